package ratelimittest

import (
	"fmt"
	"slices"
	"strings"
)

// A failure is a schedule (a list of calls) in which the limiter under test breaks a promise: it fails
// one of the checks of TestLimiter.
type failure struct {
	breach
	*trace
	kit      *kit
	schedule int
}

// run makes the calls of one random schedule after the other. It stops at the first schedule in which the
// limiter breaks a promise. It returns a failure for each promise that is broken in that schedule. The keys
// of the map are the names of these promises.
func (k *kit) run() map[string]*failure {
	broken := make(map[string]*failure)
	for i := 0; i < k.Schedules && len(broken) == 0; i++ {
		t, err := k.write(i)
		if err != nil {
			f := &failure{breach{0, fmt.Sprintf("New fails the second time: %v", err)}, &trace{}, k, i}
			broken["well-formed"] = f
			break
		}
		for _, p := range promises {
			if p.broken(k, t) != nil {
				broken[p.name] = k.shrink(p, t, i)
			}
		}
	}
	return broken
}

// shrink makes the schedule easier to read: it removes calls and simplifies others, as long as the
// limiter still breaks the promise p. The failure that it returns has the shortened schedule.
func (k *kit) shrink(p promise, t *trace, schedule int) *failure {
	all := *k
	all.thorough = true
	f := &failure{*p.broken(&all, t), t, k, schedule}
	try := func(calls []call) bool {
		t, err := k.play(t.start, t.rate, calls)
		if err != nil {
			return false
		}
		b := p.broken(&all, t)
		if b != nil {
			f.breach, f.trace = *b, t
		}
		return b != nil
	}
	for size := len(t.calls); size > 0; size /= 2 {
		for from := 0; from < len(f.calls); {
			if !try(slices.Delete(slices.Clone(f.calls), from, min(from+size, len(f.calls)))) {
				from += size
			}
		}
	}
	for i := range f.calls {
		for _, simpler := range simplify {
			calls := slices.Clone(f.calls)
			if simpler(calls, i); calls[i] != f.calls[i] {
				try(calls)
			}
		}
	}
	return f
}

// simplify holds functions that each make call i simpler in one way.
var simplify = []func(calls []call, i int){
	func(calls []call, i int) {
		first := calls[i].at
		for j := i; j < len(calls); j++ {
			calls[j].at -= first
			if i > 0 {
				calls[j].at = later(calls[j].at, calls[i-1].at)
			}
		}
	},
	func(calls []call, i int) { calls[i].at = calls[max(i-1, 0)].at },
	func(calls []call, i int) { calls[i].key = keys[0] },
	func(calls []call, i int) { calls[i].n = min(calls[i].n, 1) },
	func(calls []call, i int) {
		if calls[i].verb == allow {
			calls[i].verb, calls[i].n = take, 1
		}
	},
}

// String returns the schedule as Go code. A comment after the call that broke the promise explains
// the breach.
func (f *failure) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "seed %d, schedule %d; instants since the start:\n", f.kit.Seed, f.schedule)
	fmt.Fprintf(&s, "\tstart := time.Unix(%d, %d)\n", f.start.Unix(), f.start.Nanosecond())
	fmt.Fprintf(&s, "\tclock := ratelimit.NewFakeClock(start)\n")
	fmt.Fprintf(&s, "\tl, _ := New(%#v, clock)\n", f.rate)
	for i, c := range f.calls[:min(f.step+1, len(f.calls))] {
		if i == 0 || c.at != f.calls[i-1].at {
			fmt.Fprintf(&s, "\tclock.Set(start.Add(%d)) // %v\n", int64(c.at), c.at)
		}
		fmt.Fprintf(&s, "\t%v // %v\n", c, f.answers[i])
	}
	fmt.Fprintf(&s, "\t// %s", f.text)
	return s.String()
}
