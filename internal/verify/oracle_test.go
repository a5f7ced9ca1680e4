package verify

import (
	"fmt"
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An oracle knows only what one key was granted, and when. It judges a Result by trying
// which asks would break the constraint of the algorithm. It has no running state, and
// never computes an answer of its own.
type oracle struct {
	rate   ratelimit.Rate
	made   time.Time // when the limiter was made
	fits   constraint
	grants []grant
}

// A grant is one request that was granted.
type grant struct {
	at   *big.Rat // in nanoseconds since the Unix epoch
	n    *big.Rat // in units
	in   *big.Rat // number of the aligned window that contains at
	left *big.Rat // when the last unit before it has left a leaky bucket
}

// A constraint reports whether the algorithm allows n more units at the instant u, which is
// not before the last grant.
type constraint func(o *oracle, u, n *big.Rat) bool

func rat[N int | int64 | time.Duration](n N) *big.Rat { return new(big.Rat).SetInt64(int64(n)) }
func add(a, b *big.Rat) *big.Rat                      { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat                      { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat                      { return new(big.Rat).Mul(a, b) }
func div(a, b *big.Rat) *big.Rat                      { return new(big.Rat).Quo(a, b) }
func less(a, b *big.Rat) bool                         { return a.Cmp(b) < 0 }

// floor returns the largest whole number that is not above a.
func floor(a *big.Rat) *big.Rat {
	// Euclidean division rounds down, because a denominator is positive.
	return new(big.Rat).SetInt(new(big.Int).Div(a.Num(), a.Denom()))
}

// ceil returns the smallest whole number that is not below a.
func ceil(a *big.Rat) *big.Rat { return new(big.Rat).Neg(floor(new(big.Rat).Neg(a))) }

// epoch returns the nanoseconds from the Unix epoch to t, for every year.
func epoch(t time.Time) *big.Rat {
	return add(mul(rat(t.Unix()), rat(time.Second)), rat(t.Nanosecond()))
}

// limit returns the most units that are ever granted at once.
func (o *oracle) limit() int {
	if o.rate.Burst > 0 {
		return o.rate.Burst
	}
	return o.rate.Requests
}

// perUnit returns the nanoseconds in which one unit is earned.
func (o *oracle) perUnit() *big.Rat { return div(rat(o.rate.Per), rat(o.rate.Requests)) }

// instant returns the instant at which an ask at the reading at counts.
func (o *oracle) instant(at time.Time) *big.Rat { return o.held(o.reading(at)) }

// reading returns the reading at, not further than a Duration reaches from when the limiter
// was made.
func (o *oracle) reading(at time.Time) *big.Rat {
	return add(epoch(o.made), rat(at.Sub(o.made)))
}

// held returns the instant at which an ask at the reading u counts: not before the last grant.
func (o *oracle) held(u *big.Rat) *big.Rat {
	if n := len(o.grants); n > 0 && less(u, o.grants[n-1].at) {
		return o.grants[n-1].at
	}
	return u
}

// grant records a grant of n units at u.
func (o *oracle) grant(u, n *big.Rat) {
	o.grants = append(o.grants, grant{u, n, o.window(u), o.departure(u)})
}

// departure returns when the units of an ask at u begin to leave a leaky bucket: when those
// of the grant before have left.
func (o *oracle) departure(u *big.Rat) *big.Rat {
	if n := len(o.grants); n > 0 {
		before := o.grants[n-1]
		if gone := add(before.left, mul(before.n, o.perUnit())); less(u, gone) {
			return gone
		}
	}
	return u
}

// judge returns a text that says what is wrong with res, the answer to an ask for n units
// at the reading at, or "". It records what was granted.
func (o *oracle) judge(at time.Time, n int, res ratelimit.Result, leaky bool) string {
	u := o.instant(at)
	asked := rat(max(n, 1))
	if res.Limit != o.limit() {
		return fmt.Sprintf("Limit should be %d", o.limit())
	}
	if admits := o.fits(o, u, asked); res.Allowed != admits {
		return fmt.Sprintf("Allowed should be %v", admits)
	}
	if problem := o.judgeRetry(o.reading(at), asked, res); problem != "" {
		return problem
	}
	if problem := o.judgeDelay(u, res, leaky); problem != "" {
		return problem
	}
	if res.Allowed && n > 0 {
		o.grant(u, asked)
	}
	if res.Remaining < 0 || res.Remaining > 0 && !o.fits(o, u, rat(res.Remaining)) {
		return "Remaining is too high"
	}
	if res.Remaining < res.Limit && o.fits(o, u, add(rat(res.Remaining), rat(1))) {
		return "Remaining is too low"
	}
	return o.judgeReset(o.reading(at), res)
}

// judgeRetry requires that RetryAfter is the shortest wait, from the reading u of the clock, that
// is long enough.
func (o *oracle) judgeRetry(u, n *big.Rat, res ratelimit.Result) string {
	never := res.RetryAfter == ratelimit.Never
	switch {
	case res.Allowed && res.RetryAfter != 0:
		return "RetryAfter should be 0"
	case res.Allowed:
		return ""
	case less(rat(o.limit()), n):
		if !never {
			return "RetryAfter should be Never"
		}
		return ""
	case res.RetryAfter <= 0:
		return "RetryAfter should be positive"
	}
	then := add(u, rat(res.RetryAfter))
	if !never && !o.fits(o, o.held(then), n) {
		return "RetryAfter is too short"
	}
	if o.fits(o, o.held(sub(then, rat(1))), n) {
		return "RetryAfter is too long"
	}
	return ""
}

// judgeReset requires that ResetAfter is the shortest time after which the whole limit
// would be granted at once. u is the reading of the clock.
func (o *oracle) judgeReset(u *big.Rat, res ratelimit.Result) string {
	then, all := add(u, rat(res.ResetAfter)), rat(o.limit())
	if res.ResetAfter < 0 || res.ResetAfter != ratelimit.Never && !o.fits(o, o.held(then), all) {
		return "ResetAfter is too short"
	}
	if res.ResetAfter > 0 && o.fits(o, o.held(sub(then, rat(1))), all) {
		return "ResetAfter is too long"
	}
	return ""
}

// judgeDelay requires that Delay is the time until the departure, rounded up.
func (o *oracle) judgeDelay(u *big.Rat, res ratelimit.Result, leaky bool) string {
	want := rat(0)
	if leaky && res.Allowed {
		want = ceil(sub(o.departure(u), u))
	}
	if most := rat(ratelimit.Never); less(most, want) {
		want = most
	}
	if rat(res.Delay).Cmp(want) != 0 {
		return fmt.Sprintf("Delay should be %s ns", want.RatString())
	}
	return ""
}

// broken returns a text that says which of laws the grants break, or "".
func (o *oracle) broken(laws []law) string {
	for _, l := range laws {
		if problem := l(o); problem != "" {
			return problem
		}
	}
	return ""
}
