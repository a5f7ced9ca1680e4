package ratelimit

import (
	"context"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/explained"
)

// Never is the value of [Result.RetryAfter] if no wait is long enough: the request needs more units than the limit can
// ever grant at once, or it would have to wait for longer than a [time.Duration] can hold, which is 292 years.
const Never time.Duration = math.MaxInt64

// A Limiter grants or denies units to keys, such as clients. Each key has a budget of its own. [TokenBucket], [FixedWindow],
// [SlidingWindowLog], [SlidingWindowCounter] and [LeakyBucket] are Limiters. Package ratelimittest can check yours.
//
// A key may have any bytes, and may be empty. A Limiter is safe for concurrent use by multiple goroutines.
type Limiter interface {
	// Allow takes one unit for key if the key has one left. A denial changes nothing.
	Allow(key string) Result

	// Take takes n units for key if the key has that many left; otherwise it takes none. With n 0, it takes nothing and
	// returns the answer that one unit would get; Remaining still counts that unit.
	//
	// If n is negative, Take returns the zero Result and [ErrInvalidCount]. If ctx has ended, it returns the zero
	// Result and the error of ctx. In both cases it takes nothing.
	Take(ctx context.Context, key string, n int) (Result, error)
}

// A Result is the answer to one request.
//
// For every Result but the zero one, Allowed is true if and only if RetryAfter is zero. The zero Result, which denies,
// is returned with an error that prevented a decision.
type Result struct {
	// Keep the three bools together: the size of a Result is then a multiple of 16 bytes, which makes copies faster.

	// Allowed reports whether the request is granted. If so, the units have been taken; if not, nothing has changed.
	Allowed bool

	// Advised is true if a rule in [ModeAdvise] would have denied the request. In the Results of
	// [RateLimiter.CheckAll], it marks the Result of such a rule, which has not denied anything.
	Advised bool

	// Degraded is true if a [Store] or a custom [Limiter] has failed and the [FailurePolicy] has answered instead.
	Degraded bool

	// Limit is the largest number of units that the limit can ever grant at once. It is -1 if no limit applies.
	Limit int

	// Remaining is how many units would be granted after this decision: 0 to Limit, or -1 if no limit applies.
	Remaining int

	// RetryAfter is how long the client must wait before it sends the same request again. After that wait, the request
	// is granted if no other request for the key came first; one nanosecond earlier, it would be denied (with a
	// [Store], one microsecond). RetryAfter is zero if this request was granted, and [Never] if no wait is long enough.
	RetryAfter time.Duration

	// ResetAfter is the time until the key is as if it had never been used, if no further request for the key comes.
	ResetAfter time.Duration

	// Delay is how long the caller should hold a granted request, so that requests leave evenly. Only [LeakyBucket] sets it.
	Delay time.Duration

	// Rule is the name of the rule that the other fields describe, or empty outside a [RateLimiter].
	Rule string

	// Reason says why the request was denied. It is one of the constants. It is empty for a grant and in the zero Result.
	Reason Reason
}

// A Reason says why a request was denied.
type Reason = string

// The values of [Result.Reason].
const (
	ReasonLimit  Reason = "limit"  // fewer units are left than the request costs
	ReasonPolicy Reason = "policy" // a [FailurePolicy] has denied the request, because the store or a custom limiter has failed

	// ReasonBusy is for a rule with [AlgorithmInFlight]: other requests are running. RetryAfter is then an upper bound, or [Never]
	// if the request costs more than the limit. If another rule denies the request too, the Result is that of the other rule.
	ReasonBusy Reason = "busy"

	ReasonPenalty  Reason = "penalty"  // the key is blocked by the rule's [Penalty]; RetryAfter says for how long
	ReasonOverride Reason = "override" // an [Override] blocks the client or address; the Result has no Rule
)

// RetryAfterMs returns RetryAfter in milliseconds, rounded up. ok is false, and ms 0, if the request was granted or RetryAfter is [Never].
func (r Result) RetryAfterMs() (ms int64, ok bool) { return r.retryIn(time.Millisecond) }

// RetryAfterSeconds returns RetryAfter in whole seconds, rounded up, as the HTTP header Retry-After has it. ok is
// false, and s 0, if the request was granted or RetryAfter is [Never].
func (r Result) RetryAfterSeconds() (s int64, ok bool) { return r.retryIn(time.Second) }

// retryIn returns RetryAfter as a number of units, such as seconds. It rounds up, so that no client comes too early.
func (r Result) retryIn(unit time.Duration) (int64, bool) {
	if r.Allowed || r.RetryAfter <= 0 || r.RetryAfter == Never {
		return 0, false
	}
	// This form rounds up without overflow: RetryAfter+unit-1 could exceed the largest Duration.
	return int64((r.RetryAfter-1)/unit) + 1, true
}

// String returns r in words, for people: `denied, 0 of 100 remain, retry after 600ms, reset after 1m0s, by rule "/search"`,
// for example. Times of 0, an empty Rule and a false Degraded are left out. The text may change.
func (r Result) String() string { return explained.Result(r).String() }

// unlimited is the answer to a request to which no limit applies.
var unlimited = Result{Allowed: true, Limit: -1, Remaining: -1}

// fill copies the verdict v of an algorithm to res, field by field. Of the other fields it only
// sets Reason, for a denial; it does not clear the Reason of an earlier answer in res.
func fill(res *Result, v *engine.Verdict) {
	if res.Allowed = v.RetryAfter == 0; !res.Allowed {
		res.Reason = ReasonLimit
	}
	res.Limit = int(v.Limit)
	res.Remaining = int(v.Left)
	res.RetryAfter = v.RetryAfter
	res.ResetAfter = v.ResetAfter
}

// setResult copies res, the Result that a store or a custom limiter has returned, to p, the answer of one rule.
func setResult(p *engine.Part, res Result) {
	p.Verdict = engine.Verdict{Limit: int64(res.Limit), Left: int64(res.Remaining), RetryAfter: res.RetryAfter, ResetAfter: res.ResetAfter}
	p.Delay = res.Delay
	switch {
	case res.Allowed:
		p.RetryAfter = 0
	case res.RetryAfter <= 0:
		// With a RetryAfter of 0, a caller of Wait would ask the store or limiter again and again without a pause.
		p.RetryAfter = time.Millisecond
	}
}
