package main

import (
	"fmt"
	"slices"

	"github.com/ratelimit-go/ratelimit/bench"
)

// A comparison describes one line of the report. The line measures a subject (a limiter) under a
// workload. It compares the subject with a base, which is another subject, and with peers (limiters
// of other modules).
type comparison struct {
	algo     string // name of the subject
	base     string // name of the subject to compare with; empty if there is nothing to compare with
	baseName string // the base's name as the report prints it
	work     bench.Workload
	peers    []bench.Kind // the subject is also compared with the fastest subject of these kinds
}

// overFloor returns a line of the report that divides the time of a subject (a limiter) by the time
// of the subject named floor. The subject floor does only the work that every limiter with keys must
// do. The parameter algo is the name of the first subject. Both subjects have the workload w.
func overFloor(work, algo string, w bench.Workload) line {
	return over(work, algo, "floor", "floor", w)
}

// over returns a line of the report that divides the time of a subject by the time of another
// subject, the base. The parameters algo and base are the names of these subjects. The parameter
// name is the text that the report prints for the base.
func over(work, algo, base, name string, w bench.Workload) line {
	return comparison{algo: algo, base: base, baseName: name, work: w}.line(work)
}

// bucketLine returns a line of the report that compares a TokenBucket with the subject named floor
// and with the fastest peer (limiter of another module). Limiters without keys are timed too, but
// the line does not compare them, because they look up no key.
func bucketLine(work string, w bench.Workload) line {
	l := comparison{algo: "tokenbucket", base: "floor", baseName: "floor", work: w, peers: []bench.Kind{bench.Peer}}.line(work)
	l.cells = append(l.cells, cellsOf(w, bench.Unkeyed)...)
	return l
}

// cellsOf returns a cell (a subject under a workload) for each subject of the given kinds that can
// run the workload w.
func cellsOf(w bench.Workload, kinds ...bench.Kind) (cells []cell) {
	for _, s := range bench.Specs() {
		if slices.Contains(kinds, s.Kind) && s.Can(w) {
			cells = append(cells, cell{s.Name, w})
		}
	}
	return cells
}

// line returns the line of the report that shows the comparison. The given text becomes the first
// column of the line.
func (c comparison) line(work string) line {
	mine, base, peers := cell{c.algo, c.work}, cell{c.base, c.work}, cellsOf(c.work, c.peers...)
	timed := append([]cell{mine}, peers...)
	if c.base != "" {
		timed = append(timed, base)
	}
	return line{work: work, cells: timed, read: func(l *lab) (reading, error) {
		got := reading{
			value:    l.median(mine),
			measured: nanos(l.median(mine)) + l.share(mine),
			best:     nanos(l.best(mine)),
		}
		if c.base != "" {
			got.base = l.compared(mine, base, c.baseName)
		}
		if len(peers) > 0 {
			fastest := l.fastest(peers)
			got.peer = l.compared(mine, fastest, fastest.algo)
		}
		return got, nil
	}}
}

// compared divides the time of a cell (a subject under a workload) by the time of another cell, the
// base. It returns this ratio. The parameter name is the text that the report prints for the base.
func (l *lab) compared(timed, base cell, name string) ratio {
	return newRatio(l.ratio(timed, base), name, nanos(l.median(base)))
}

// newRatio returns a ratio. The parameter value is a figure divided by the figure of a base. The other
// two parameters are the name of the base and its figure. For example, newRatio(1.24, "floor",
// "48.0 ns") has the text "1.24 × floor (48.0 ns)".
func newRatio(value float64, name, figure string) ratio {
	return ratio{value, fmt.Sprintf("%.2f × %s (%s)", value, name, figure)}
}

// growth returns a line of the report that shows how many times as long a call of a token bucket
// takes with many keys as with few keys. The line compares this factor with the same factor of a
// bare Go map. The parameters few and most are the two numbers of keys.
func growth(work string, few, most int) line {
	at := func(algo string, keys int) cell {
		return cell{algo, bench.Workload{Keys: keys, Outcome: bench.Allowed}}
	}
	mine := [2]cell{at("tokenbucket", few), at("tokenbucket", most)}
	bare := [2]cell{at("map", few), at("map", most)}
	return line{work: work, cells: []cell{mine[0], mine[1], bare[0], bare[1]}, read: func(l *lab) (reading, error) {
		factor := l.median(mine[1]) / l.median(mine[0])
		natural := l.median(bare[1]) / l.median(bare[0])
		written := func(cells [2]cell) string { return nanos(l.median(cells[0])) + " → " + nanos(l.median(cells[1])) }
		return reading{
			value:    factor,
			measured: fmt.Sprintf("×%.1f (%s); a bare map ×%.1f (%s)", factor, written(mine), natural, written(bare)),
			base:     ratio{value: factor / natural},
		}, nil
	}}
}

// nanos formats nanoseconds with about three digits.
func nanos(ns float64) string {
	if ns < 100 {
		return fmt.Sprintf("%.1f ns", ns)
	}
	return fmt.Sprintf("%.0f ns", ns)
}
