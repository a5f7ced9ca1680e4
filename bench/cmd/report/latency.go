package main

import (
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

// The slowest of millions of calls is usually one during which the machine did something else: the
// kernel gave the core to another process, or a virtual machine was paused. An empty loop shows
// such pauses too. So a pass (one sequence of calls) is compared with an empty loop that runs for
// the same time.
//
// Passes are repeated, and each pass is cut into windows. Windows overlap by half, so that a pause
// at the edge of one window lies inside the next. A pause that the limiter causes comes in the same
// window of every pass. A pause of the machine is missing in some of the passes. So for each
// window, the report takes the minimum over the passes of the slowest call in that window. The
// result is the maximum of these minimums. A slow call that does not come in the same window of
// every pass is not found.
//
// Garbage collections run during a pass, as they do in a service. Before each pass, free memory is
// returned to the operating system, so that a growing table has to request memory again.

// The constant windows is the number of pieces into which a pass (a sequence of timed calls) is cut.
// Two neighbouring pieces form one window, so windows overlap.
const windows = 16

// slowestGrowing returns a line of the report for the slowest call of a token bucket limiter that
// holds no keys at first and is then called with new keys. The parameter count is the number of
// these keys.
func slowestGrowing(work string, count int) line {
	return slowest(work, func() (pass, error) {
		subject, err := empty(bench.Denied, count)
		if err != nil {
			return pass{}, err
		}
		p := watch(subject, 0, count)
		return p, holds(subject, count)
	})
}

// slowestFlooded returns a line of the report for the slowest call with a new key to a token bucket
// limiter that already holds its maximum number of keys. The parameter count is this maximum. The
// calls are made to two limiters, one after the other. Each limiter is first filled with as many keys
// as it can hold, and then called with twice as many new keys. The first limiter can drop none of its
// keys, because the unit that a key has used is free again only after thirty days. The second limiter
// can drop a key after a millisecond.
func slowestFlooded(work string, count int) line {
	return slowest(work, func() (pass, error) {
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

// empty returns a token bucket limiter that holds no keys yet. Its maximum number of keys is the
// parameter count. The limiter can drop a key as soon as the unit that the key has used is free again.
// This takes a millisecond with the outcome Allowed, and otherwise thirty days.
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

// slowest returns a line of the report: the time of the slowest call in a pass (a sequence of timed
// calls), minus the time of the slowest iteration of an empty loop.
func slowest(work string, calls func() (pass, error)) line {
	return line{work: work, read: func(l *lab) (reading, error) {
		defer debug.SetGCPercent(debug.SetGCPercent(100))
		var mine, idle []pass
		for range l.runs {
			debug.FreeOSMemory()
			p, err := calls()
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

// beyond returns the result for one line of the report: how much longer the slowest call of a limiter
// took than the slowest iteration of an empty loop. These two times are the parameters measured and
// idle.
func beyond(measured, idle time.Duration, runs int) reading {
	return reading{
		value: float64(max(0, measured-idle)),
		measured: fmt.Sprintf("%s beyond an empty loop; %s with, %s without; %d passes",
			millis(max(0, measured-idle)), millis(measured), millis(idle), runs),
	}
}

// A pass holds the times of one sequence of calls. The sequence is cut into pieces.
type pass struct {
	slowest []time.Duration // the duration of the slowest call in each piece
	took    time.Duration   // time of all calls together
}

// The method named "and" joins two passes: the result consists of the pass p, followed by the pass q.
func (p pass) and(q pass) pass {
	return pass{append(p.slowest, q.slowest...), p.took + q.took}
}

// The method named "turn" records one call in the last piece of the pass p. The call began at the time p.took
// and ended at the given time, both counted from the start of the pass.
func (p *pass) turn(now time.Duration) {
	last := &p.slowest[len(p.slowest)-1]
	*last = max(*last, now-p.took)
	p.took = now
}

// slowestOf returns how long the slowest call took, without pauses of the machine. Two neighbouring
// pieces of a pass form a window. For each window, slowestOf finds the slowest call in each pass, and
// takes the minimum over the passes. The result is the maximum of these minimums. All passes must
// have the same number of pieces.
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

// watch calls the subject once for each key whose number is from first to past-1. It returns the times
// of these calls.
func watch(s bench.Subject, first, past int) pass {
	keys := bench.NewKeys(bench.Varied, 1, 0)
	var p pass
	start := time.Now()
	for piece := range windows {
		p.slowest = append(p.slowest, 0)
		end := first + (past-first)*(piece+1)/windows
		for i := first + (past-first)*piece/windows; i < end; i++ {
			s.Allow(keys.At(i))
			p.turn(time.Since(start))
		}
	}
	return p
}

// The type named "nothing" is a subject that does no work, so that a loop of its calls counts as empty.
type nothing struct{}

func (nothing) Allow(string) bool { return true }

// watchIdle times calls of a subject that does no work, for comparison: the slowest of them shows a
// pause of the machine. It runs for the duration d, and cuts the pass into the given number of pieces.
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
