package ratelimittest

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

func retryAfter(k *kit, t *trace) *breach {
	return k.sample(t, func(i int) bool {
		return !t.answers[i].res.Allowed && t.calls[i].units() <= t.answers[i].res.Limit
	}, func(i int) *breach {
		c := t.calls[i]
		wait := up(t.answers[i].res.RetryAfter, k.Resolution)
		c.at = later(t.calls[i].at, wait)
		switch {
		case wait == ratelimit.Never:
			c.at = min(k.Span, later(t.calls[i].at, wait-k.Resolution))
			c.at -= c.at % k.Resolution
		case !k.within(c.at):
			return nil
		default:
			if a := k.after(t, i, c); !a.res.Allowed {
				return breachf(i, "asked again at %v, after RetryAfter: %v", c.at, a)
			}
			c.at -= k.Resolution
		}
		if a := k.after(t, i, c); c.at > t.calls[i].at && a.res.Allowed {
			return breachf(i, "asked again at %v, before RetryAfter: %v", c.at, a)
		}
		return nil
	})
}

func resetAfter(k *kit, t *trace) *breach {
	return k.sample(t, func(i int) bool { return true }, func(i int) *breach {
		c := t.calls[i].look()
		c.at = later(t.calls[i].at, up(t.answers[i].res.ResetAfter, k.Resolution))
		if !k.within(c.at) || t.answers[i].res.ResetAfter == math.MaxInt64 {
			return nil
		}
		if a := k.after(t, i, c); a.res.Remaining != a.res.Limit || a.res.Delay != 0 {
			return breachf(i, "a look at %v, after ResetAfter: %v", c.at, a)
		}
		return nil
	})
}

// within reports whether the clock may be set to the given time. It refuses the largest Duration, which
// stands for any sum that is too large for a Duration.
func (k *kit) within(at time.Duration) bool { return at <= k.Span && at < math.MaxInt64 }

// sample selects the calls for which the first function returns true. It checks some of these calls with the second
// function, or all of them if the field thorough is true. Both functions get the index of a call. sample leaves out
// the calls that were not decided under a limit. It also leaves out a call if, after the clock has stepped back, it is
// in doubt at which instant the limiter counts the call.
func (k *kit) sample(t *trace, fits func(i int) bool, check func(i int) *breach) *breach {
	var fit []int
	for i := range t.calls {
		if t.limited(i) && t.moments[i].known && fits(i) {
			fit = append(fit, i)
		}
	}
	stride := 1
	if !k.thorough {
		stride = len(fit)/4 + 1
	}
	for j := 0; j < len(fit); j += stride {
		if b := check(fit[j]); b != nil {
			return b
		}
	}
	return nil
}

// The method named "after" plays the schedule of t up to and including call i on a new limiter. Then it makes the
// call c, and returns the answer to c.
func (k *kit) after(t *trace, i int, c call) answer {
	s, err := k.open(t.start, t.rate)
	if err != nil {
		return answer{err: err}
	}
	for _, past := range t.calls[:i+1] {
		s.do(past)
	}
	return s.do(c)
}
