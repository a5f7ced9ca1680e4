package ratelimit

import (
	"errors"
	"math"
	"math/bits"
	"time"
)

// A level is an exact amount of tokens: whole tokens and a fraction.
//
// Invariant: whole >= 0 and 0 <= frac < the unit of the bucket it belongs to.
type level struct {
	whole int64 // tokens, at most 2^32
	frac  int64 // parts of a token, of which unit make one
}

// A bucket is the arithmetic that token and leaky bucket share: a debt that
// grows by what is taken and drains at an exact rational rate.
//
// With Requests/Per reduced to gain/unit, a nanosecond drains exactly gain parts
// of 1/unit token. Products take 128 bits, so nothing rounds and nothing
// overflows, whatever the rate.
type bucket struct {
	burst int64 // tokens
	gain  int64 // parts of a token drained in a nanosecond
	unit  int64 // parts in a token
}

// maxBurst is the largest burst: a token bucket keeps whole tokens in 32 bits.
const maxBurst = math.MaxUint32

// newBucket returns the bucket of r, or all the problems that r has, joined.
func newBucket(r Rate) (bucket, error) {
	err := r.Validate()
	switch burst := int64(r.burst()); {
	case burst > maxBurst && r.Burst == 0:
		err = errors.Join(err, &ConfigError{"requests", r.Requests, "must be at most 4294967295 without a burst"})
	case burst > maxBurst:
		err = errors.Join(err, &ConfigError{"burst", r.Burst, "must be at most 4294967295"})
	}
	if err != nil {
		return bucket{}, err
	}
	requests, per := int64(r.Requests), int64(r.Per)
	d := gcd(requests, per)
	return bucket{burst: int64(r.burst()), gain: requests / d, unit: per / d}, nil
}

// earned returns what drains in elapsed nanoseconds: hi·2^64 + lo parts of a token.
func (b *bucket) earned(elapsed uint64) (hi, lo uint64) {
	return bits.Mul64(elapsed, uint64(b.gain))
}

// less returns what is left of debt without hi·2^64 + lo parts of a token.
func (b *bucket) less(debt level, hi, lo uint64) level {
	if hi > 0 || lo >= uint64(b.unit) {
		if hi >= uint64(b.unit) {
			return level{} // 2^64 tokens and more
		}
		var whole uint64
		whole, lo = bits.Div64(hi, lo, uint64(b.unit))
		debt.whole -= int64(min(whole, maxBurst+1))
	}
	if debt.frac -= int64(lo); debt.frac < 0 {
		debt.frac += b.unit
		debt.whole--
	}
	if debt.whole < 0 {
		return level{}
	}
	return debt
}

// parts returns debt in parts of a token: hi·2^64 + lo.
func (b *bucket) parts(debt level) (hi, lo uint64) {
	hi, lo = bits.Mul64(uint64(debt.whole), uint64(b.unit))
	lo, carry := bits.Add64(lo, uint64(debt.frac), 0)
	return hi + carry, lo
}

// toDrain returns how long hi·2^64 + lo parts of a token take to drain, rounded up:
// a nanosecond less would leave a part of them.
func (b *bucket) toDrain(hi, lo uint64) time.Duration {
	if b.gain != 1 { // a division is most of the cost
		var carry uint64
		lo, carry = bits.Add64(lo, uint64(b.gain-1), 0)
		if hi += carry; hi >= uint64(b.gain) {
			return Never
		}
		lo, _ = bits.Div64(hi, lo, uint64(b.gain))
		hi = 0
	}
	if hi > 0 || lo > math.MaxInt64 {
		return Never
	}
	return time.Duration(lo)
}

// drained returns what is left of debt after elapsed nanoseconds. The steps spell
// it out: it is too large to be inlined, and its parts are not.
func (b *bucket) drained(debt level, elapsed uint64) level {
	hi, lo := b.earned(elapsed)
	return b.less(debt, hi, lo)
}

// left returns how many whole tokens may be taken at once beside debt.
func (b *bucket) left(debt level) int64 {
	if debt.frac > 0 {
		return b.burst - debt.whole - 1
	}
	return b.burst - debt.whole
}

// timeToFit returns how long it takes until n tokens fit into a burst beside debt,
// which do not now.
func (b *bucket) timeToFit(debt level, n, burst int64) time.Duration {
	if n > burst {
		return Never
	}
	return b.toDrain(b.parts(level{debt.whole + n - burst, debt.frac}))
}

// minus returns what is left of debt without the part off, and nothing if off is
// more.
func (b *bucket) minus(debt, off level) level {
	switch {
	case debt.whole < off.whole || debt.whole == off.whole && debt.frac <= off.frac:
		return level{}
	case debt.frac < off.frac:
		return level{debt.whole - off.whole - 1, debt.frac + (b.unit - off.frac)}
	}
	return level{debt.whole - off.whole, debt.frac - off.frac}
}

// slower reports whether less drains in a nanosecond than from a bucket like than.
func (b *bucket) slower(than *bucket) bool {
	hi, lo := bits.Mul64(uint64(b.gain), uint64(than.unit))
	thanHi, thanLo := bits.Mul64(uint64(than.gain), uint64(b.unit))
	return hi < thanHi || hi == thanHi && lo < thanLo
}

// rescaled returns debt, measured in the parts of from, in those of b. It rounds
// up, against the client.
func (b *bucket) rescaled(debt level, from *bucket) level {
	if b.unit == from.unit {
		return debt
	}
	hi, lo := bits.Mul64(uint64(debt.frac), uint64(b.unit))
	frac, rest := bits.Div64(hi, lo, uint64(from.unit)) // fits: debt.frac < from.unit
	if rest > 0 {
		frac++
	}
	if frac == uint64(b.unit) {
		return level{debt.whole + 1, 0}
	}
	return level{debt.whole, int64(frac)}
}

// converted returns the debt under b of a key that owes debt under from, of which
// it has used the part used: both in parts of b. A raise of the burst grants
// nothing, a cut leaves no more than the new burst less what was used.
func (b *bucket) converted(debt, used level, from *bucket) level {
	debt.whole += b.burst - from.burst
	if debt.whole < used.whole || debt.whole == used.whole && debt.frac < used.frac {
		debt = used
	}
	if debt.whole >= b.burst {
		return level{b.burst, 0}
	}
	return debt
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
