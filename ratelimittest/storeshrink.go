package ratelimittest

import (
	"slices"

	"github.com/ratelimit-go/ratelimit"
)

// run plays schedules until one breaks a promise, and returns that one, or nil.
func (k *storeKit) run(f scheduleKind) *storeFailure {
	schedules := k.Schedules
	if f.warms && k.Resolution < 100 { // the model tries every instant of a microsecond and more
		schedules = (schedules + 39) / 40
	}
	for i := range schedules {
		start, calls := k.write(f, i)
		if t := k.play(start, calls); t.broken != "" {
			return k.shrink(t, i)
		}
	}
	return nil
}

// shrink leaves out calls of the schedule, and makes others simpler, as long as it still
// breaks a promise.
func (k *storeKit) shrink(t *storeTrace, schedule int) *storeFailure {
	f := &storeFailure{t, k.Seed, schedule}
	f.calls = f.calls[:len(f.answers)]
	try := func(calls []storeCall) bool {
		if slices.ContainsFunc(calls, func(c storeCall) bool { return c.at < -k.Span || c.at > k.Span }) {
			return false
		}
		t := k.play(f.start, calls)
		if t.broken != "" {
			f.storeTrace = t
			t.calls = calls[:len(t.answers)]
		}
		return t.broken != ""
	}
	for size := len(f.calls); size > 0; size /= 2 {
		for from := 0; from < len(f.calls); {
			if !try(slices.Delete(slices.Clone(f.calls), from, min(from+size, len(f.calls)))) {
				from += size
			}
		}
	}
	for i := range f.calls {
		// The call may have become unnecessary and been removed.
		for j := 0; i < len(f.calls) && j < len(f.calls[i].asks); {
			if len(f.calls[i].asks) == 1 || !try(f.edited(i, func(c *storeCall) { c.asks = slices.Delete(c.asks, j, j+1) })) {
				j++
			}
		}
	}
	for range 2 { // a second time, because later calls may have kept one from getting simpler
		f.simplify(try)
	}
	return f
}

// simplify makes the calls of f simpler, one change after the other.
func (f *storeFailure) simplify(try func([]storeCall) bool) {
	edit := func(i int, change func(*storeCall)) {
		if i < len(f.calls) {
			try(f.edited(i, change))
		}
	}
	for i := range f.calls {
		if i < len(f.calls) {
			try(f.advanced(i))
		}
		edit(i, func(c *storeCall) { c.at = f.calls[max(i-1, 0)].at })
		for j := 0; i < len(f.calls) && j < len(f.calls[i].asks); j++ {
			edit(i, func(c *storeCall) { c.asks[j].N = min(c.asks[j].N, 1) })
			edit(i, func(c *storeCall) {
				// A look beside asks for units must stay one that cannot deny.
				c.asks[j].Shadow = c.asks[j].Shadow && c.asks[j].N == 0 && len(c.asks) > 1
			})
			edit(i, func(c *storeCall) { c.asks[j].Rate = f.first(c.asks[j]) })
		}
	}
}

// edited returns a copy of the calls, with call i changed by change.
func (t *storeTrace) edited(i int, change func(*storeCall)) []storeCall {
	calls := slices.Clone(t.calls)
	calls[i].asks = slices.Clone(calls[i].asks)
	change(&calls[i])
	return calls
}

// advanced returns a copy of the calls in which call i comes at the instant of the call
// before, and all later calls are moved by as much.
func (t *storeTrace) advanced(i int) []storeCall {
	calls := slices.Clone(t.calls)
	by := calls[i].at
	if i > 0 {
		by -= calls[i-1].at
	}
	for j := i; j < len(calls); j++ {
		calls[j].at = later(calls[j].at, -by)
	}
	return calls
}

// first returns the first rate under which the schedule asks for the state of a.
func (t *storeTrace) first(a ratelimit.Ask) ratelimit.Rate {
	for _, c := range t.calls {
		for _, b := range c.asks {
			if idOf(a) == idOf(b) {
				return b.Rate
			}
		}
	}
	return a.Rate
}
