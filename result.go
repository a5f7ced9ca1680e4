package ratelimit

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// Never is the RetryAfter of a request that no wait is long enough for: it
// asks for more than the limit, or for a wait beyond what a time.Duration can
// hold, 292 years.
const Never time.Duration = math.MaxInt64

// A Result reports one decision.
//
// For every Result but the zero one, Allowed is true if and only if RetryAfter
// is zero. The zero Result accompanies an error that prevented a decision.
type Result struct {
	// Allowed reports whether the units may be used. They have been taken
	// if it is true; nothing has changed if it is false.
	Allowed bool

	// Limit is the most units that could ever be granted at once. It is -1
	// where no limit applies.
	Limit int

	// Remaining is how many units would be granted now, after this
	// decision. It is in [0, Limit], or -1 where no limit applies.
	Remaining int

	// RetryAfter is the shortest wait after which the same request is
	// granted if no other request for the key comes first: one nanosecond
	// less would be denied. It is zero if the request was granted and
	// [Never] if no wait is long enough.
	RetryAfter time.Duration

	// ResetAfter is how long the key takes, left alone, to be as good as
	// new.
	ResetAfter time.Duration

	// Delay is how long to hold a granted request so that requests leave
	// evenly spaced. Only [LeakyBucket] sets it.
	Delay time.Duration

	// Rule names the rule that decided. It is empty for a limiter used on
	// its own.
	Rule string

	// Degraded reports that the store could not be asked and the failure
	// policy answered.
	Degraded bool
}

// RetryAfterMs returns RetryAfter in milliseconds, rounded up. It reports
// false if the request was granted or no wait is long enough.
func (r Result) RetryAfterMs() (ms int64, ok bool) {
	return r.retryIn(time.Millisecond)
}

// RetryAfterSeconds returns RetryAfter in seconds, rounded up, as the HTTP
// header of that name wants it. It reports false if the request was granted or
// no wait is long enough.
func (r Result) RetryAfterSeconds() (s int64, ok bool) {
	return r.retryIn(time.Second)
}

// retryIn rounds up: a client that waits a whole unit less would be denied.
func (r Result) retryIn(unit time.Duration) (int64, bool) {
	if r.Allowed || r.RetryAfter <= 0 || r.RetryAfter == Never {
		return 0, false
	}
	// Subtracting first keeps the sum below the largest Duration.
	return int64((r.RetryAfter-1)/unit) + 1, true
}

// unlimited is the answer where no limit applies.
var unlimited = Result{Allowed: true, Limit: -1, Remaining: -1}

// fill makes res say what v does.
func fill(res *Result, v *engine.Verdict) {
	res.Allowed = v.RetryAfter == 0
	res.Limit = int(v.Limit)
	res.Remaining = int(v.Left)
	res.RetryAfter = v.RetryAfter
	res.ResetAfter = v.ResetAfter
}
