package ratelimit

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// Never is the value of [Result.RetryAfter] if no wait is long enough: the request needs
// more units than the limit can ever grant at once, or it would have to wait for longer
// than a [time.Duration] can hold, which is 292 years.
const Never time.Duration = math.MaxInt64

// A Result is the answer to one request.
//
// For every Result but the zero one, Allowed is true if and only if RetryAfter is zero. The
// zero Result is returned beside an error that prevented a decision. It denies.
type Result struct {
	// Allowed reports whether the request is granted. If it is true, the
	// units have been taken; if it is false, nothing has changed.
	Allowed bool

	// Limit is the largest number of units that could ever be granted at
	// once. It is -1 if no limit applies.
	Limit int

	// Remaining is the number of units that would be granted now, after this
	// decision. It is from 0 to Limit, or -1 if no limit applies.
	Remaining int

	// RetryAfter is how long the client must wait before it sends the same
	// request again. After that wait, the request is granted if no other
	// request for the key came first; one nanosecond earlier, it would be
	// denied (with a [Store], one microsecond). RetryAfter is zero if this
	// request was granted, and [Never] if no wait is long enough.
	RetryAfter time.Duration

	// ResetAfter is how long it takes until the key is as if it had never
	// been used, if no further request for it comes.
	ResetAfter time.Duration

	// Delay is how long the caller should hold a granted request before it lets it proceed,
	// so that requests leave evenly spaced. Only [LeakyBucket] sets it.
	Delay time.Duration

	// Rule is the name of the rule that the other fields describe. It is
	// empty for a limiter outside a [RateLimiter].
	Rule string

	// Degraded reports whether the [FailurePolicy] has answered because the
	// [Store], or a custom [Limiter], has failed.
	Degraded bool
}

// RetryAfterMs returns RetryAfter in milliseconds, rounded up. ok is false, and ms 0, if the
// request was granted or RetryAfter is [Never].
func (r Result) RetryAfterMs() (ms int64, ok bool) {
	return r.retryIn(time.Millisecond)
}

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up, as the HTTP header
// Retry-After wants it. ok is false, and s 0, if the request was granted or RetryAfter is
// [Never].
func (r Result) RetryAfterSeconds() (s int64, ok bool) {
	return r.retryIn(time.Second)
}

// retryIn rounds RetryAfter up: rounded down, the client would come too early.
func (r Result) retryIn(unit time.Duration) (int64, bool) {
	if r.Allowed || r.RetryAfter <= 0 || r.RetryAfter == Never {
		return 0, false
	}
	// Subtracting first keeps the sum below the largest Duration.
	return int64((r.RetryAfter-1)/unit) + 1, true
}

// unlimited is the answer to a request to which no limit applies.
var unlimited = Result{Allowed: true, Limit: -1, Remaining: -1}

// fill copies the verdict v to the fields of res that it has a value for.
func fill(res *Result, v *engine.Verdict) {
	res.Allowed = v.RetryAfter == 0
	res.Limit = int(v.Limit)
	res.Remaining = int(v.Left)
	res.RetryAfter = v.RetryAfter
	res.ResetAfter = v.ResetAfter
}

// combine writes the answer to a request to res. parts are the answers of rules, one for
// each. The answer is that of the binding rule, but Remaining is the smallest of all and
// Delay the largest. It returns the index of the binding rule. If no rule enforces, that is
// -1, and no limit applies.
func combine(rules []*activeRule, parts []engine.Part, passes bool, res *Result) (binding int) {
	binding = -1
	left, delay := uint64(math.MaxUint64), time.Duration(0)
	for i := range parts {
		p := &parts[i]
		if p.Shadow {
			continue
		}
		if binding < 0 || binds(p, &parts[binding], passes, rules[i].index < rules[binding].index) {
			binding = i
		}
		// If no limit applies, Left is -1. As a uint64, that is the largest number.
		left, delay = min(left, uint64(max(p.Left, -1))), max(delay, p.Delay)
	}
	if binding < 0 {
		*res = unlimited
		return binding
	}
	fill(res, &parts[binding].Verdict)
	res.Allowed, res.Remaining, res.Rule = passes, int(int64(left)), rules[binding].resultName
	if passes {
		res.Delay = delay
	}
	return binding
}

// binds reports whether the rule of a binds rather than that of b. For a denied request, the
// one with the longer RetryAfter binds; for a granted one, the one with fewer units left. Of
// two that are equal in this, the earlier one binds.
func binds(a, b *engine.Part, passes, earlier bool) bool {
	switch {
	case !passes && a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case passes && a.Left != b.Left:
		return uint64(a.Left) < uint64(b.Left)
	}
	return earlier
}
