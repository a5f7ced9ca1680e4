package main

import (
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

// The slowest of millions of asks is as a rule one during which the machine
// did something else: the kernel gave the core to another, a virtual machine
// stood still. An empty loop shows such moments too, so a pass of asks is
// compared with an empty loop of the same length.
//
// Both are repeated, and a pass is cut into windows: what belongs to the work
// comes in the same window of every pass, what belongs to the machine stays
// away from some. So the slowest ask of a window is the least that any pass saw
// in it, and the slowest of all is that of the worst window. Windows overlap by
// half, lest a moment near an edge count in neither. A slow ask that comes less
// than once in a window of every pass would be missed.
//
// Collections run as they do in a service, and each pass begins with memory
// returned to the system, so that a growing table has to ask for it.

// windows is how many pieces a pass is cut into; two neighbours are a window.
const windows = 16

// slowestGrowing promises how much longer than an empty loop's slowest turn
// the slowest ask takes while count unseen keys arrive.
func slowestGrowing(work string, count int, bound time.Duration) line {
	return slowest(work, bound, func() (pass, error) {
		subject, err := empty(bench.Denied, count)
		if err != nil {
			return pass{}, err
		}
		p := watch(subject, 0, count)
		return p, holds(subject, count)
	})
}

// slowestFlooded promises the same for a token bucket that has as many keys as
// it may, while twice as many unseen keys arrive. In one half of a run nothing
// can be forgotten, because every key owes a unit for thirty days; in the other
// every key is soon as good as new.
func slowestFlooded(work string, count int, bound time.Duration) line {
	return slowest(work, bound, func() (pass, error) {
		var all pass
		for _, outcome := range []bench.Outcome{bench.Denied, bench.Allowed} {
			subject, err := empty(outcome, count)
			if err != nil {
				return pass{}, err
			}
			bench.Fill(subject, bench.Varied, count)
			all = all.and(watch(subject, count, 3*count))
		}
		return all, nil
	})
}

// empty returns a token bucket that may hold count keys and has none. A key that
// was asked for once is as good as new after thirty days, or, with the outcome
// allowed, after a millisecond.
func empty(outcome bench.Outcome, count int) (bench.Subject, error) {
	l := bench.Limit{Rate: 1, Per: 30 * 24 * time.Hour, Burst: 1, MaxKeys: count}
	if outcome == bench.Allowed {
		l.Per = time.Millisecond
	}
	s, err := bench.Find("tokenbucket")
	if err != nil {
		return nil, err
	}
	return s.New(l)
}

// slowest is a line about the slowest ask of a pass.
func slowest(work string, bound time.Duration, asks func() (pass, error)) line {
	return line{work: work, target: "< " + millis(bound) + " beyond an empty loop", bound: float64(bound) - 1,
		read: func(l *lab) (reading, error) {
			defer debug.SetGCPercent(debug.SetGCPercent(100))
			var mine, idle []pass
			for range l.runs {
				debug.FreeOSMemory()
				p, err := asks()
				if err != nil {
					return reading{}, err
				}
				mine = append(mine, p)
				debug.FreeOSMemory()
				idle = append(idle, watchIdle(p.took, len(p.slowest)))
			}
			return beyond(slowestOf(mine), slowestOf(idle), l.runs), nil
		}}
}

// beyond is the reading of two slowest asks.
func beyond(mine, idle time.Duration, runs int) reading {
	return reading{
		value:    float64(max(0, mine-idle)),
		measured: fmt.Sprintf("%s; empty loop %s; %d passes", millis(mine), millis(idle), runs),
	}
}

// A pass is what came of many asks: the slowest in each piece, and how long all
// took.
type pass struct {
	slowest []time.Duration
	took    time.Duration
}

// and returns p followed by q.
func (p pass) and(q pass) pass {
	return pass{append(p.slowest, q.slowest...), p.took + q.took}
}

// turn notes that the turn that began at p.took ended at now, in the last piece.
func (p *pass) turn(now time.Duration) {
	last := &p.slowest[len(p.slowest)-1]
	*last = max(*last, now-p.took)
	p.took = now
}

// slowestOf returns the slowest ask of passes with equally many pieces.
func slowestOf(passes []pass) (worst time.Duration) {
	for i := 1; i < len(passes[0].slowest); i++ {
		least := time.Duration(math.MaxInt64)
		for _, p := range passes {
			least = min(least, max(p.slowest[i-1], p.slowest[i]))
		}
		worst = max(worst, least)
	}
	return worst
}

// watch asks s for the keys from up to to, reading the clock after each ask.
func watch(s bench.Subject, from, to int) pass {
	keys := bench.NewKeys(bench.Varied, 1, 0)
	var p pass
	start := time.Now()
	for piece := range windows {
		p.slowest = append(p.slowest, 0)
		end := from + (to-from)*(piece+1)/windows
		for i := from + (to-from)*piece/windows; i < end; i++ {
			s.Allow(keys.At(i))
			p.turn(time.Since(start))
		}
	}
	return p
}

// nothing answers at once.
type nothing struct{}

func (nothing) Allow(string) bool { return true }

// watchIdle is watch without work, in so many pieces that together take d.
func watchIdle(d time.Duration, pieces int) pass {
	var s bench.Subject = nothing{}
	keys := bench.NewKeys(bench.Varied, 1, 0)
	var p pass
	start := time.Now()
	for piece := range pieces {
		p.slowest = append(p.slowest, 0)
		end := d * time.Duration(piece+1) / time.Duration(pieces)
		for i := 0; p.took < end; i++ {
			s.Allow(keys.At(i))
			p.turn(time.Since(start))
		}
	}
	return p
}
