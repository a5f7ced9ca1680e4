// Command report measures the limiters of this module and of other modules (its peers) in one
// process. It checks what this module promises about its speed and memory.
//
//	go run ./bench/cmd/report [-quick] [-lines regexp] [-rounds n] [-page file] [-measurements file]
//
// The report is Markdown. It opens with the ten figures that most readers look for. A table of
// promises follows: bounds that hold on every machine on which the report was run. All other
// figures are measurements, without a verdict, in groups that can be unfolded.
//
// With -lines it measures only the lines whose name matches the regular expression, in upper or
// lower case. A name contains a limiter such as tokenbucket, or a topic such as windows, mixed,
// rules, tiers, shadow, observer, cores, redis or postgres. To match several topics, use for example
// 'bytes|collection'.
//
// With -page it also writes the opening and the promises into a file, between these two lines of
// the file:
//
//	<!-- report -->
//	<!-- end of report -->
//
// With -measurements it also writes the rest of the report into a file, between these two lines:
//
//	<!-- measurements -->
//	<!-- end of measurements -->
//
// The lines about Redis need the program redis-server in the PATH. The command starts it and ends
// it. Without redis-server, these lines are not measured. The lines about PostgreSQL need the
// programs initdb and postgres, in the PATH or where the packages of Debian have them.
//
// The command exits with 1 if a promise is broken and with 2 if a figure could not be taken. With
// -quick it has fewer keys and rounds, and checks only the promises about bytes and allocations. A
// full report takes about five minutes and 4 GB of memory, and needs the machine for itself.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "fewer keys and rounds; checks only promises about bytes and allocations")
	flag.StringVar(&o.pattern, "lines", "", "take only the lines whose name matches this `regexp`, in upper or lower case")
	flag.IntVar(&o.rounds, "rounds", 0, "the `number` of times that each subject is timed (default 15, or 3 with -quick)")
	flag.StringVar(&o.page, "page", "", "write the opening and the promises into this `file` too, between its markers")
	flag.StringVar(&o.measurements, "measurements", "", "write the measurements into this `file` too, between its markers")
	flag.Parse()
	kept, err := report(os.Stdout, os.Stderr, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
	}
	os.Exit(exitCode(kept, err))
}

// exitCode returns the exit code of the command. The argument kept is true if no promise was
// broken.
func exitCode(kept bool, err error) int {
	switch {
	case err != nil:
		return 2
	case !kept:
		return 1
	}
	return 0
}

// The type options holds the values of the command's flags.
type options struct {
	quick              bool
	pattern            string
	rounds             int
	page, measurements string // names of the files to write to; empty for none
}

// sizes returns how much the report measures with these options.
func (o options) sizes() sizes {
	s := full
	if o.quick {
		s = quick
	}
	if o.rounds > 0 {
		s.rounds = o.rounds
	}
	return s
}

// report measures the lines that the options o select, and writes the report to out. It writes a
// message at each step to progress. The result kept is false if a promise is broken.
func report(out, progress io.Writer, o options) (kept bool, err error) {
	pattern, err := regexp.Compile("(?i)" + o.pattern)
	if err != nil {
		return false, err
	}
	if err := errors.Join(hasMarkers(o.page, "report"), hasMarkers(o.measurements, "measurements")); err != nil {
		return false, err
	}
	s := o.sizes()
	var chosen []line
	for _, l := range lines(s) {
		if pattern.MatchString(l.work) {
			chosen = append(chosen, l)
		}
	}
	if len(chosen) == 0 {
		return false, fmt.Errorf("no line matches %q", o.pattern)
	}

	// Switch garbage collection off. It is switched on again only for figures that must include its
	// time. This favours peers that allocate memory in each call.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))

	lab := newLab(s, progress)
	defer lab.servers.close()
	rows, err := take(lab, chosen)
	if err != nil {
		return false, err
	}
	verdicts := check(rows, o.quick)
	var head, rest bytes.Buffer
	writeHeader(&head, os.Args[1:], time.Now())
	writeOpening(&head, rows, s.rounds)
	writePromises(&head, verdicts)
	writeMeasurements(&rest, rows)
	writeSamples(&rest, lab)
	writeRedis(&rest, &lab.redis)
	writePostgres(&rest, &lab.postgres)
	fmt.Fprintf(out, "%s%s", head.String(), rest.String())
	return allHold(verdicts), errors.Join(
		between(o.page, "report", head.String()),
		between(o.measurements, "measurements", rest.String()),
	)
}

// take measures the lines and returns a row for each.
func take(lab *lab, lines []line) ([]row, error) {
	var cells []cell
	for _, l := range lines {
		cells = append(cells, l.cells...)
	}
	if err := lab.sample(cells); err != nil {
		return nil, err
	}
	var rows []row
	for _, l := range lines {
		lab.say(l.work)
		got, err := l.read(lab)
		r := row{line: l, reading: got}
		switch {
		case errors.Is(err, bench.ErrNoRedis):
			r.reading = reading{measured: "not measured: no redis-server"}
		case errors.Is(err, bench.ErrNoPostgres):
			r.reading = reading{measured: "not measured: no PostgreSQL"}
		case err != nil:
			return nil, fmt.Errorf("%s: %w", l.work, err)
		}
		if err != nil {
			lab.say(err.Error())
			r.missing = true
		}
		rows = append(rows, r)
	}
	return rows, nil
}
