package verify

import (
	"fmt"
	"math/big"
	"slices"
)

// bucketFits is the constraint of token and leaky bucket: no closed interval that ends now
// holds more than the burst and what is earned in it.
func bucketFits(o *oracle, u, n *big.Rat) bool {
	burst, taken := rat(o.limit()), n
	if less(burst, taken) {
		return false
	}
	for _, g := range slices.Backward(o.grants) {
		taken = add(taken, g.n)
		earned := div(sub(u, g.at), o.perUnit())
		if less(add(burst, earned), taken) {
			return false
		}
	}
	return true
}

// window returns the number of the aligned window that contains u.
func (o *oracle) window(u *big.Rat) *big.Rat { return floor(div(u, rat(o.rate.Per))) }

// inWindow returns the units granted in window w.
func (o *oracle) inWindow(w *big.Rat) *big.Rat {
	sum := rat(0)
	for _, g := range o.grants {
		if g.in.Cmp(w) == 0 {
			sum = add(sum, g.n)
		}
	}
	return sum
}

// fixedWindowFits is the constraint of a fixed window: the window of u holds no more than
// the limit.
func fixedWindowFits(o *oracle, u, n *big.Rat) bool {
	return !less(rat(o.limit()), add(o.inWindow(o.window(u)), n))
}

// slidingLogFits is the constraint of a sliding window log: the half-open Per that ends now
// holds no more than the limit.
func slidingLogFits(o *oracle, u, n *big.Rat) bool {
	return !less(rat(o.limit()), add(o.inPer(u), n))
}

// inPer returns the units granted in the half-open Per that ends at u.
func (o *oracle) inPer(u *big.Rat) *big.Rat {
	sum := rat(0)
	for _, g := range o.grants {
		if !less(u, g.at) && less(sub(u, g.at), rat(o.rate.Per)) {
			sum = add(sum, g.n)
		}
	}
	return sum
}

// slidingCounterFits is the constraint of a sliding window counter: the estimate is no more
// than the limit.
func slidingCounterFits(o *oracle, u, n *big.Rat) bool {
	previous, current, elapsed := o.counted(u)
	estimate := add(mul(previous, sub(rat(1), elapsed)), current)
	return !less(rat(o.limit()), add(estimate, n))
}

// counted returns the units granted in the window before that of u, those granted in the
// window of u, and the fraction of the latter that has passed.
func (o *oracle) counted(u *big.Rat) (previous, current, elapsed *big.Rat) {
	w := o.window(u)
	return o.inWindow(sub(w, rat(1))), o.inWindow(w), sub(div(u, rat(o.rate.Per)), w)
}

// A law returns a text that says which part of the grants breaks a bound, or "". Unlike a
// constraint it looks at the whole history at once.
type law func(o *oracle) string

// noIntervalAboveBurstAndRate holds for token and leaky bucket: any closed interval of
// length T holds at most burst + T·rate.
func noIntervalAboveBurstAndRate(o *oracle) string {
	for i, first := range o.grants {
		taken := rat(0)
		for _, last := range o.grants[i:] {
			taken = add(taken, last.n)
			length := sub(last.at, first.at)
			if less(add(rat(o.limit()), div(length, o.perUnit())), taken) {
				return fmt.Sprintf("%s units within %s ns are more than the burst and what was earned", taken.RatString(), length.RatString())
			}
		}
	}
	return ""
}

// departuresAreSpaced holds for a leaky bucket. Each departure is at least as long after an
// earlier one as the units between them take; in the reported whole nanoseconds, less than
// one nanosecond may be missing. The order of the departures is kept. None is later than a
// full bucket takes to drain, and none is later than necessary.
func departuresAreSpaced(o *oracle) string {
	for i, last := range o.grants {
		between := rat(0)
		for k := i - 1; k >= 0; k-- {
			first := o.grants[k]
			between = add(between, mul(first.n, o.perUnit()))
			if less(sub(last.left, first.left), between) {
				return "the units of two asks leave closer to each other than the rate permits"
			}
			reported := sub(ceil(last.left), ceil(first.left))
			if reported.Cmp(sub(between, rat(1))) <= 0 {
				return "the Delays of two asks are closer to each other than the rate permits, by a nanosecond or more"
			}
		}
		waits := sub(last.left, last.at)
		if waits.Sign() < 0 || less(mul(sub(rat(o.limit()), last.n), o.perUnit()), waits) {
			return "the wait of an ask is negative, or longer than a full bucket takes to drain"
		}
		if waits.Sign() > 0 {
			before := o.grants[i-1]
			if last.left.Cmp(add(before.left, mul(before.n, o.perUnit()))) != 0 {
				return "an ask that waits does not leave at the instant at which the grant before it has left"
			}
		}
	}
	return ""
}

// noWindowAboveLimit holds for fixed window and sliding window counter: each aligned window
// holds at most the limit.
func noWindowAboveLimit(o *oracle) string {
	for _, g := range o.grants {
		if used := o.inWindow(g.in); less(rat(o.limit()), used) {
			return fmt.Sprintf("%s units in one window", used.RatString())
		}
	}
	return ""
}

// noIntervalAboveItsWindows holds for a fixed window: a closed interval of length T holds
// at most limit·(⌈T/Per⌉ + 1), and a half-open Per holds at most twice the limit.
func noIntervalAboveItsWindows(o *oracle) string {
	for i, first := range o.grants {
		taken := rat(0)
		for _, last := range o.grants[i:] {
			taken = add(taken, last.n)
			windows := add(ceil(div(sub(last.at, first.at), rat(o.rate.Per))), rat(1))
			if less(mul(rat(o.limit()), windows), taken) {
				return "an interval holds more than the limit of each of its windows"
			}
		}
	}
	return noPerAbove(o, mul(rat(2), rat(o.limit())))
}

// noPerAboveLimit holds for a sliding window log: any half-open Per holds at most the
// limit.
func noPerAboveLimit(o *oracle) string { return noPerAbove(o, rat(o.limit())) }

// noPerAboveTwiceTheLimitLessOne holds for a sliding window counter: any half-open Per
// holds at most 2·limit - 1.
func noPerAboveTwiceTheLimitLessOne(o *oracle) string {
	return noPerAbove(o, sub(mul(rat(2), rat(o.limit())), rat(1)))
}

func noPerAbove(o *oracle, most *big.Rat) string {
	for _, g := range o.grants {
		if used := o.inPer(g.at); less(most, used) {
			return fmt.Sprintf("%s units within one Per are more than %s", used.RatString(), most.RatString())
		}
	}
	return ""
}

// estimateErrsWithinItsBounds holds for a sliding window counter. The estimate is above the
// true count by at most the weight that the previous window still has, and below it by at
// most the weight that it has lost.
func estimateErrsWithinItsBounds(o *oracle) string {
	for i, g := range o.grants {
		then := *o
		then.grants = o.grants[:i+1]
		previous, current, elapsed := then.counted(g.at)
		lost := mul(previous, elapsed)
		kept := sub(previous, lost)
		err := sub(add(kept, current), then.inPer(g.at))
		if less(kept, err) || less(err, new(big.Rat).Neg(lost)) {
			return "the estimate is further from the truth than the previous window can explain"
		}
		if most := floor(add(rat(o.limit()), lost)); less(most, then.inPer(g.at)) {
			return "an ask was granted beyond what the previous window has lost"
		}
	}
	return ""
}
