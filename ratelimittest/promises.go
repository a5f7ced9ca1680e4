package ratelimittest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit"
)

// A promise is one property of a limiter that TestLimiter checks.
type promise struct {
	name   string
	broken func(*kit, *trace) *breach // returns nil if the recorded calls and answers (the trace) keep the promise
}

// A breach reports at which call of a schedule a promise is broken, and how.
type breach struct {
	step int
	text string
}

func breachf(step int, format string, args ...any) *breach {
	return &breach{step, fmt.Sprintf(format, args...)}
}

// promises lists all promises, in the order of the subtests. The comment of [TestLimiter] explains each
// promise under its name.
var promises = []promise{
	{"well-formed", wellFormed},
	{"look-agrees", lookAgrees},
	{"exact-use", exactUse},
	{"look-is-free", lookIsFree},
	{"denial-is-free", denialIsFree},
	{"negative-count", negativeCount},
	{"ended-context", endedContext},
	{"monotone", monotone},
	{"retry-after", retryAfter},
	{"reset-after", resetAfter},
	{"never", never},
	{"clock", clockStandsStill},
	{"keys", keysApart},
	{"split", split},
	{"shortcuts", shortcuts},
	{"reset", resets},
	{"rate-change", rateChange},
	{"same-rate", sameRate},
	{"bound", boundHolds},
	{"model", modelAgrees},
}

// same reports whether two answers are equal after their Durations are rounded up to the
// resolution.
func (k *kit) same(a, b answer) bool {
	return rounded(a.res, k.Resolution) == rounded(b.res, k.Resolution) && (a.err == nil) == (b.err == nil)
}

func wellFormed(_ *kit, t *trace) *breach {
	limit := 0 // Limit of the answers since the last change of the rate; 0 before the first answer
	for i, c := range t.calls {
		if c.verb == setRate {
			limit = 0
		}
		if !c.asks() {
			continue
		}
		res := t.answers[i].res
		switch {
		case t.answers[i].err != nil:
			return breachf(i, "a decision must not be an error")
		case res.Allowed != (res.RetryAfter == 0), res.RetryAfter < 0:
			return breachf(i, "RetryAfter must be 0 if allowed and positive if not, not %v", res.RetryAfter)
		case res.ResetAfter < 0, res.Delay < 0:
			return breachf(i, "ResetAfter %v and Delay %v must not be negative", res.ResetAfter, res.Delay)
		case !res.Allowed && res.Delay != 0:
			return breachf(i, "a denial must have no Delay, not %v", res.Delay)
		case res.Limit == -1 && (res.Remaining != -1 || !res.Allowed):
			return breachf(i, "without a limit, Remaining must be -1 and everything allowed")
		case res.Limit != -1 && (res.Limit < 1 || res.Remaining < 0 || res.Remaining > res.Limit):
			return breachf(i, "Remaining %d must be in [0, Limit], and Limit %d at least 1, or both -1", res.Remaining, res.Limit)
		case limit != 0 && res.Limit != limit:
			return breachf(i, "Limit was %d before", limit)
		}
		limit = res.Limit
	}
	return nil
}

func never(_ *kit, t *trace) *breach {
	for i, c := range t.calls {
		if res := t.answers[i].res; t.limited(i) && c.units() > res.Limit && (res.Allowed || res.RetryAfter != ratelimit.Never) {
			return breachf(i, "%d units are more than the limit of %d: they must be denied, with RetryAfter Never", c.units(), res.Limit)
		}
	}
	return nil
}

func endedContext(k *kit, t *trace) *breach {
	for i, c := range t.calls {
		if a := t.answers[i]; c.verb == takeEnded && (!errors.Is(a.err, context.Canceled) || a.res != (ratelimit.Result{})) {
			return breachf(i, "with a context that has ended, Take must return the zero Result and the context's error")
		}
	}
	return k.without(t, func(i int) bool { return t.calls[i].verb == takeEnded })
}

func negativeCount(k *kit, t *trace) *breach {
	negative := func(i int) bool { return t.calls[i].verb == take && t.calls[i].n < 0 }
	for i := range t.calls {
		if a := t.answers[i]; negative(i) && (!errors.Is(a.err, ratelimit.ErrInvalidCount) || a.res != (ratelimit.Result{})) {
			return breachf(i, "for a negative count, Take must return the zero Result and ErrInvalidCount")
		}
	}
	return k.without(t, negative)
}

func boundHolds(k *kit, t *trace) *breach {
	if k.Bound == nil {
		return nil
	}
	rate := t.rate
	charges := make(map[string][]Charge)
	for i, c := range t.calls {
		switch a := t.answers[i]; {
		case t.changes(i):
			rate = c.rate
			clear(charges)
		case c.verb == reset:
			delete(charges, c.key)
		case t.admits(i):
			at := t.start.Add(t.moments[i].at)
			charges[c.key] = append(charges[c.key], Charge{at, c.units(), up(a.res.Delay, k.Resolution)})
			if err := k.Bound(rate, charges[c.key], k.Resolution); err != nil {
				return breachf(i, "%v", err)
			}
		}
	}
	return nil
}

func modelAgrees(k *kit, t *trace) *breach {
	if k.Model == nil {
		return nil
	}
	rate := t.rate
	models := make(map[string]Model)
	for i, c := range t.calls {
		if models[c.key] == nil {
			models[c.key] = k.Model(t.start, rate)
		}
		at := t.start.Add(c.at)
		switch {
		case t.changes(i):
			rate = c.rate
			for _, m := range models {
				m.SetRate(at, rate)
			}
		case c.verb == reset:
			models[c.key].Reset()
		case c.asks():
			n := c.units()
			if c.looks() {
				n = 0
			}
			if want := (answer{res: models[c.key].Ask(at, n)}); !k.same(t.answers[i], want) {
				return breachf(i, "the model says: %v", want)
			}
		}
	}
	return nil
}
