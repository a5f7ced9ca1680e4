package ratelimittest

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// rerun plays the schedule of t again on a new limiter. In place of call i, it makes the calls that the function
// edit(i) returns. It passes i and the answers to these calls to its last argument, a function. If that function
// returns a text other than "", rerun returns a breach at call i, with this text. Most promises are checked this
// way: the last argument compares the answers with those of the first schedule.
func (k *kit) rerun(t *trace, edit func(i int) []call, differs func(i int, now []answer) string) *breach {
	s, err := k.open(t.start, t.rate)
	if err != nil {
		return breachf(0, "New fails the second time: %v", err)
	}
	var now []answer
	for i := range t.calls {
		now = now[:0]
		for _, c := range edit(i) {
			now = append(now, s.do(c))
		}
		if len(now) == 0 {
			continue
		}
		if text := differs(i, now); text != "" {
			return &breach{i, text}
		}
	}
	return nil
}

// unlike returns a function that can be passed to the method rerun as its last argument. That function
// compares the last new answer with the answer in the trace t. If the two are unequal, it returns a text
// that begins with the given text.
func (k *kit) unlike(t *trace, when string) func(i int, now []answer) string {
	return func(i int, now []answer) string {
		if a := now[len(now)-1]; !k.same(a, t.answers[i]) {
			return when + ": " + a.String()
		}
		return ""
	}
}

// without plays the schedule of t again and leaves out the calls for which drop(i) is true. It
// returns a breach unless all remaining calls get the same answers as before.
func (k *kit) without(t *trace, drop func(i int) bool) *breach {
	dropped := false
	for i := range t.calls {
		dropped = dropped || drop(i)
	}
	if !dropped {
		return nil
	}
	return k.rerun(t, func(i int) []call {
		if drop(i) {
			return nil
		}
		return t.calls[i : i+1]
	}, k.unlike(t, "without the earlier calls of that kind"))
}

func denialIsFree(k *kit, t *trace) *breach { return k.without(t, t.denies) }

func clockStandsStill(k *kit, t *trace) *breach {
	return k.rerun(t, func(i int) []call {
		c := t.calls[i]
		if c.asks() && t.moments[i].known {
			c.at = t.moments[i].at
		}
		return []call{c}
	}, func(i int, now []answer) string {
		a := now[0]
		if t.calls[i].asks() && t.moments[i].known {
			a.res = ahead(a.res, t.calls[i].at, t.moments[i].at)
		}
		if !k.same(a, t.answers[i]) {
			return "if the clock had stood still instead of stepping back, and that time were waited for too: " + a.String()
		}
		return ""
	})
}

// ahead returns the expected answer to a request after the clock has stepped back. The request then
// counts at a later instant than the clock shows; the last two parameters are the time of the clock and
// this instant. res is the answer that the request would get if the clock showed this instant.
func ahead(res ratelimit.Result, clock, counts time.Duration) ratelimit.Result {
	d := counts - clock
	if d < 0 { // the difference overflowed
		d = math.MaxInt64
	}
	if res.RetryAfter > 0 {
		res.RetryAfter = later(res.RetryAfter, d)
	}
	if res.ResetAfter > 0 {
		res.ResetAfter = later(res.ResetAfter, d)
	}
	return res
}

func keysApart(k *kit, t *trace) *breach {
	for _, key := range keys {
		alone := func(i int) []call {
			if c := t.calls[i]; c.key == key || c.verb == setRate {
				return []call{c}
			}
			return nil
		}
		if b := k.rerun(t, alone, k.unlike(t, "without the calls for other keys")); b != nil {
			return b
		}
	}
	return nil
}

func split(k *kit, t *trace) *breach {
	return k.rerun(t, func(i int) []call {
		c := t.calls[i]
		if !t.admits(i) || c.n < 2 {
			return []call{c}
		}
		var parts []call
		for c.n = min(c.n-1, 20); c.n > 0; c.n-- {
			parts = append(parts, call{at: c.at, key: c.key, n: 1})
		}
		c.n = t.calls[i].n - len(parts)
		return append(parts, c)
	}, func(i int, now []answer) string {
		got, want := now[len(now)-1], t.answers[i]
		if len(now) > 1 { // the call was split into several calls, and each has its own Delay
			got.res.Delay, want.res.Delay = 0, 0
		}
		if !k.same(got, want) {
			return "taken in parts, the last: " + got.String()
		}
		return ""
	})
}

func shortcuts(k *kit, t *trace) *breach {
	return k.rerun(t, func(i int) []call {
		c := t.calls[i]
		switch c.verb {
		case allow:
			c.verb, c.n = take, 1
		case peek:
			c.verb, c.n = take, 0
		}
		return []call{c}
	}, k.unlike(t, "with Take in place of Allow and Peek"))
}
