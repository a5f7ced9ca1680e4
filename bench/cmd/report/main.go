// Command report takes the figures that this module promises to keep, side by
// side with its peers and in one process, and says which are kept.
//
//	go run ./bench/cmd/report [-quick] [-lines regexp] [-rounds n] [-summary file]
//
// With -lines it takes some of them, in whatever case they are written: a limiter,
// such as tokenbucket, or a family, such as windows, mixed, rules, tiers, shadow,
// observer, cores, redis or 'bytes|collection'.
//
// The lines about Redis need a redis-server in the path, which it starts for
// itself; without one they are not measured.
//
// It prints the body of a page in Markdown: where and how the figures were taken, the
// promises, those that are missed, and what all of them were made of. With -summary it
// also writes the few lines that a README shows, of the same run, into a file.
//
// It exits with 1 if a figure is missed and with 2 if it
// could not take one. A full run takes a few minutes and 4 GB of memory; it
// should have the machine to itself.
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
	flag.BoolVar(&o.quick, "quick", false, "fewer keys and rounds, to see that it works; judges nothing")
	flag.StringVar(&o.pattern, "lines", "", "take only the lines whose work matches this regular expression, in any case")
	flag.IntVar(&o.rounds, "rounds", 0, "how often each subject is timed (default 15, or 3 with -quick)")
	flag.StringVar(&o.summary, "summary", "", "write the few lines of a README into this file as well")
	flag.Parse()
	kept, err := report(os.Stdout, os.Stderr, o)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	case !kept:
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	quick   bool
	pattern string
	rounds  int
	summary string // a file
}

// report takes the figures that o selects, writes them to out and what it is
// doing to progress, and reports whether all figures are kept.
func report(out, progress io.Writer, o options) (kept bool, err error) {
	pattern, err := regexp.Compile("(?i)" + o.pattern)
	if err != nil {
		return false, err
	}
	s := full
	if o.quick {
		s = quick
	}
	if o.rounds > 0 {
		s.rounds = o.rounds
	}
	var chosen []line
	for _, l := range lines(s) {
		if pattern.MatchString(l.work) {
			chosen = append(chosen, l)
		}
	}
	if len(chosen) == 0 {
		return false, fmt.Errorf("no line matches %q", o.pattern)
	}

	// Collections happen between the figures and never within one, except
	// where a figure is about them: garbage costs the peers that make it
	// nothing, which favours them.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))

	lab := newLab(s, progress)
	defer lab.redis.close()
	rows, err := take(lab, chosen, !o.quick)
	if err != nil {
		return false, err
	}
	var header bytes.Buffer
	writeHeader(&header, os.Args[1:], time.Now())
	fmt.Fprintf(out, "%s", header.String())
	writeRows(out, rows)
	writeMisses(out, rows)
	writeSamples(out, lab)
	writeRedis(out, &lab.redis)
	if o.summary != "" {
		writeSummary(&header, rows)
		err = os.WriteFile(o.summary, header.Bytes(), 0o644)
	}
	return allKept(rows), err
}

// take measures lines and judges them.
func take(lab *lab, lines []line, judge bool) ([]row, error) {
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
		if errors.Is(err, bench.ErrNoRedis) {
			lab.say(err.Error())
			rows = append(rows, row{l.work, l.target, "no redis-server on this machine", "", notMeasured, l.chosen})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.work, err)
		}
		rows = append(rows, newRow(l, got, judge))
	}
	return rows, nil
}
