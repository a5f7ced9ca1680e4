// Command report takes the figures that this module promises to keep, side by
// side with its peers and in one process, and says which are kept.
//
//	go run ./bench/cmd/report [-quick] [-lines regexp] [-rounds n]
//
// The lines about Redis need a redis-server in the path, which it starts for
// itself; without one they are not measured.
//
// It prints Markdown. It exits with 1 if a figure is missed and with 2 if it
// could not take one. A full run takes a few minutes and 4 GB of memory; it
// should have the machine to itself.
package main

import (
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
	flag.StringVar(&o.pattern, "lines", "", "take only the lines whose work matches this regular expression")
	flag.IntVar(&o.rounds, "rounds", 0, "how often each subject is timed (default 15, or 3 with -quick)")
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
}

// report takes the figures that o selects, writes them to out and what it is
// doing to progress, and reports whether all figures are kept.
func report(out, progress io.Writer, o options) (kept bool, err error) {
	pattern, err := regexp.Compile(o.pattern)
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
	writeHeader(out, os.Args[1:], time.Now())
	writeRows(out, rows)
	writeSamples(out, lab)
	writeRedis(out, &lab.redis)
	return allKept(rows), nil
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
			rows = append(rows, row{l.work, l.target, "no redis-server on this machine", "", notMeasured})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.work, err)
		}
		rows = append(rows, newRow(l, got, judge))
	}
	return rows, nil
}
