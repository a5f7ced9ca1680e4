package exact

import (
	"math"
	"math/bits"
	"time"
)

// Never is the result for a wait that is longer than a time.Duration can hold, 292 years.
const Never time.Duration = math.MaxInt64

// A Level is an exact number of tokens: whole tokens and a fraction.
//
// Invariant: Whole >= 0 and 0 <= Frac < Unit of the bucket that the level belongs to.
type Level struct {
	Whole int64 // whole tokens, at most 2^51
	Frac  int64 // parts of a token; Unit parts are a token
}

// A Bucket is the arithmetic that token bucket and leaky bucket share: a debt that grows by the
// tokens taken and drains at an exact rational rate.
//
// Gain/Unit is Requests/Per, reduced by their greatest common divisor. A token has Unit parts,
// and each nanosecond drains exactly Gain parts. Products are computed in 128 bits, so nothing
// is rounded and nothing overflows, whatever the rate.
type Bucket struct {
	Burst int64 // tokens
	Gain  int64 // parts of a token that a nanosecond drains
	Unit  int64 // parts of a token in a token
}

// MaxBurst is the largest burst.
const MaxBurst = math.MaxUint32

// MaxUsed is where units that are charged past the limit saturate, unless the limit is higher.
const MaxUsed = 1 << 50

// Beyond returns used and n more units, but no more than most, and never less than used.
func Beyond(used, n, most int64) int64 { return used + max(min(n, most-used), 0) }

// NewBucket returns the bucket that drains requests tokens every per nanoseconds and holds
// burst tokens. All three are positive, and burst is at most [MaxBurst].
func NewBucket(requests, per, burst int64) Bucket {
	d := GCD(requests, per)
	return Bucket{Burst: burst, Gain: requests / d, Unit: per / d}
}

// Earned returns how much drains in elapsed nanoseconds: hi·2^64 + lo parts of a token.
func (b *Bucket) Earned(elapsed uint64) (hi, lo uint64) {
	return bits.Mul64(elapsed, uint64(b.Gain))
}

// Less returns debt less hi·2^64 + lo parts of a token, or zero if debt is smaller.
func (b *Bucket) Less(debt Level, hi, lo uint64) Level {
	if hi > 0 || lo >= uint64(b.Unit) {
		if hi >= uint64(b.Unit) {
			return Level{} // the parts are 2^64 tokens or more
		}
		var whole uint64
		whole, lo = bits.Div64(hi, lo, uint64(b.Unit))
		debt.Whole -= int64(min(whole, 1<<62))
	}
	if debt.Frac -= int64(lo); debt.Frac < 0 {
		debt.Frac += b.Unit
		debt.Whole--
	}
	if debt.Whole < 0 {
		return Level{}
	}
	return debt
}

// Parts returns debt in parts of a token: hi·2^64 + lo.
func (b *Bucket) Parts(debt Level) (hi, lo uint64) {
	hi, lo = bits.Mul64(uint64(debt.Whole), uint64(b.Unit))
	lo, carry := bits.Add64(lo, uint64(debt.Frac), 0)
	return hi + carry, lo
}

// ToDrain returns how long hi·2^64 + lo parts of a token take to drain, rounded up: one
// nanosecond earlier, some of them would be left.
func (b *Bucket) ToDrain(hi, lo uint64) time.Duration {
	if b.Gain != 1 { // the division takes most of the time
		var carry uint64
		lo, carry = bits.Add64(lo, uint64(b.Gain-1), 0)
		if hi += carry; hi >= uint64(b.Gain) {
			return Never
		}
		lo, _ = bits.Div64(hi, lo, uint64(b.Gain))
		hi = 0
	}
	if hi > 0 || lo > math.MaxInt64 {
		return Never
	}
	return time.Duration(lo)
}

// Drained returns what is left of debt after elapsed nanoseconds. The steps of the algorithms
// call Earned and Less themselves, because the compiler inlines these but not Drained.
func (b *Bucket) Drained(debt Level, elapsed uint64) Level {
	hi, lo := b.Earned(elapsed)
	return b.Less(debt, hi, lo)
}

// Left returns how many whole tokens may be taken at once if debt is owed.
func (b *Bucket) Left(debt Level) int64 {
	if debt.Frac > 0 {
		return b.Burst - debt.Whole - 1
	}
	return b.Burst - debt.Whole
}

// TimeToFit returns how long it takes until debt has drained so far that n tokens can be taken
// and the debt is then at most burst. They cannot be taken now.
func (b *Bucket) TimeToFit(debt Level, n, burst int64) time.Duration {
	if n > burst {
		return Never
	}
	return b.ToDrain(b.Parts(Level{debt.Whole + n - burst, debt.Frac}))
}

// Minus returns debt less off, or zero if debt is smaller.
func (b *Bucket) Minus(debt, off Level) Level {
	switch {
	case debt.Whole < off.Whole || debt.Whole == off.Whole && debt.Frac <= off.Frac:
		return Level{}
	case debt.Frac < off.Frac:
		return Level{debt.Whole - off.Whole - 1, debt.Frac + (b.Unit - off.Frac)}
	}
	return Level{debt.Whole - off.Whole, debt.Frac - off.Frac}
}

// Slower reports whether a nanosecond drains less of a token from b than from than.
func (b *Bucket) Slower(than *Bucket) bool {
	hi, lo := bits.Mul64(uint64(b.Gain), uint64(than.Unit))
	thanHi, thanLo := bits.Mul64(uint64(than.Gain), uint64(b.Unit))
	return hi < thanHi || hi == thanHi && lo < thanLo
}

// Rescaled returns debt, whose Frac is in parts of from, with its Frac in parts of b. It rounds
// up, against the client.
func (b *Bucket) Rescaled(debt Level, from *Bucket) Level {
	if b.Unit == from.Unit {
		return debt
	}
	hi, lo := bits.Mul64(uint64(debt.Frac), uint64(b.Unit))
	frac, rest := bits.Div64(hi, lo, uint64(from.Unit)) // fits: debt.Frac < from.Unit
	if rest > 0 {
		frac++
	}
	if frac == uint64(b.Unit) {
		return Level{debt.Whole + 1, 0}
	}
	return Level{debt.Whole, int64(frac)}
}

// RescaledDown is [Bucket.Rescaled], but rounds down.
func (b *Bucket) RescaledDown(debt Level, from *Bucket) Level {
	if b.Unit == from.Unit {
		return debt
	}
	hi, lo := bits.Mul64(uint64(debt.Frac), uint64(b.Unit))
	frac, _ := bits.Div64(hi, lo, uint64(from.Unit)) // fits: debt.Frac < from.Unit
	return Level{debt.Whole, int64(frac)}
}

// Arithmetic returns b: a type that embeds a Bucket has it as a method.
func (b *Bucket) Arithmetic() *Bucket { return b }

// Converted returns the debt that a key has after a change of the burst from that of from to
// that of b. debt is its debt before, in parts of b. The key keeps what it may still take, as far
// as b allows: if the burst grows, the debt grows as much. The debt does not become less than
// least, as far as b holds that.
func (b *Bucket) Converted(debt, least Level, from *Bucket) Level {
	debt.Whole += b.Burst - from.Burst
	if least.Whole >= b.Burst {
		least = Level{b.Burst, 0}
	}
	if debt.Whole < least.Whole || debt.Whole == least.Whole && debt.Frac < least.Frac {
		return least
	}
	return debt
}

// Weight returns what one token costs where only units are granted for every of: of/units tokens,
// rounded up to parts. units is at least 1 and at most of.
func (b *Bucket) Weight(units, of int64) Level {
	if units == of {
		return Level{Whole: 1}
	}
	hi, lo := bits.Mul64(uint64(of%units), uint64(b.Unit))
	parts, left := bits.Div64(hi, lo, uint64(units)) // fits: of%units < units
	if left > 0 {
		parts++
	}
	if parts == uint64(b.Unit) {
		return Level{of/units + 1, 0}
	}
	return Level{of / units, int64(parts)}
}

// Times returns n times l. The whole tokens of the product must fit an int64.
func (b *Bucket) Times(l Level, n int64) Level {
	if l.Frac == 0 {
		return Level{l.Whole * n, 0}
	}
	hi, lo := bits.Mul64(uint64(l.Frac), uint64(n))
	whole, frac := bits.Div64(hi, lo, uint64(b.Unit)) // fits: l.Frac < Unit
	return Level{l.Whole*n + int64(whole), int64(frac)}
}

// Plus returns the sum of two levels.
func (b *Bucket) Plus(l, more Level) Level {
	l.Whole += more.Whole
	if l.Frac >= b.Unit-more.Frac {
		return Level{l.Whole + 1, l.Frac - (b.Unit - more.Frac)}
	}
	l.Frac += more.Frac
	return l
}

// Beyond returns the sum of two levels, in which whole tokens saturate at [MaxUsed].
func (b *Bucket) Beyond(l, more Level) Level {
	if most := MaxUsed - l.Whole; more.Whole >= most {
		return Level{max(l.Whole, MaxUsed), l.Frac}
	}
	return b.Plus(l, more)
}

// Fit returns how many times weight, which is at least a token, fits into what debt leaves of
// burst.
func (b *Bucket) Fit(debt, weight Level, burst int64) int64 {
	room := b.Minus(Level{burst, 0}, debt)
	if weight.Frac == 0 {
		return room.Whole / weight.Whole
	}
	hi, lo := b.Parts(room)
	wHi, wLo := b.Parts(weight)
	if wHi == 0 {
		n, _ := bits.Div64(hi, lo, wLo) // fits: a weight has Unit parts at least, so n is at most burst
		return int64(n)
	}
	// With weight rounded up to its 64 leading bits, the quotient is too small by less than 1.
	shift := uint(bits.Len64(wHi))
	n := uint64(0)
	if top := wHi<<(64-shift) | wLo>>shift; top < math.MaxUint64 {
		n, _ = bits.Div64(hi>>shift, hi<<(64-shift)|lo>>shift, top+1)
	}
	nextHi, nextLo := bits.Mul64(wLo, n+1)
	if nextHi += wHi * (n + 1); nextHi < hi || nextHi == hi && nextLo <= lo {
		n++
	}
	return int64(n)
}

// GCD returns the greatest common divisor of a and b, which are positive.
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
