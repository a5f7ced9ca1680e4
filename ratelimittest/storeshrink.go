package ratelimittest

import (
	"slices"

	"github.com/ratelimit-go/ratelimit"
)

// run plays schedules of the kind f until one breaks a promise, and returns that schedule. It
// returns nil if no schedule breaks a promise.
func (k *storeKit) run(f scheduleKind) *storeFailure {
	schedules := k.Schedules
	if f.warms && k.Resolution < 100 { // the model of a warm-up is then slow, because it tries each multiple of the Resolution
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

// shrink removes calls from the schedule and simplifies others, as long as the schedule still
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
		// Call i may have become unnecessary and been removed, so the condition checks i again.
		for j := 0; i < len(f.calls) && j < len(f.calls[i].asks); {
			if len(f.calls[i].asks) == 1 || !try(f.edited(i, func(c *storeCall) { c.asks = slices.Delete(c.asks, j, j+1) })) {
				j++
			}
		}
	}
	for range 2 { // twice, because some calls can be simplified only after later calls were simplified
		f.simplify(try)
	}
	return f
}

// simplify tries changes that make the calls of f simpler. It makes one change at a time. The given
// function plays the changed calls, and keeps the change if a promise is still broken.
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
				// In a call that also asks for units, a look (an ask for 0 units) must remain a
				// shadow ask, so that the call cannot be denied because of it.
				c.asks[j].Shadow = c.asks[j].Shadow && c.asks[j].N == 0 && len(c.asks) > 1
			})
			edit(i, func(c *storeCall) { c.asks[j].Rate = f.first(c.asks[j]) })
		}
	}
}

// edited returns a copy of the calls in which the given function has changed call i.
func (t *storeTrace) edited(i int, change func(*storeCall)) []storeCall {
	calls := slices.Clone(t.calls)
	calls[i].asks = slices.Clone(calls[i].asks)
	change(&calls[i])
	return calls
}

// advanced returns a copy of the calls in which call i is made at the same instant as the previous
// call. All later calls are moved earlier by the same time.
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

// The method named "first" returns the rate of the first ask in the trace that is for the same state as a.
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
