package exact

import (
	"math"
	"math/bits"
	"time"
)

// Never stands for a wait that is too long for a time.Duration: longer than 292 years.
const Never time.Duration = math.MaxInt64

// A Level is an exact number of tokens: whole tokens and a fraction.
//
// Invariant: Whole >= 0 and 0 <= Frac < Unit of the bucket that the level belongs to.
type Level struct {
	Whole int64 // whole tokens, at most 2^51
	Frac  int64 // the fraction of a token, as a number of parts; a token has as many parts as Bucket.Unit says
}

// A Bucket computes with the debts of a token bucket or a leaky bucket. The debt of a key is the
// number of tokens that the key has taken and not yet earned back. The debt grows by the tokens that
// are taken, and drains at an exact rational rate.
//
// A token is divided into Unit parts, and Gain parts drain in each nanosecond. Gain/Unit is the
// rate Requests/Per in lowest terms: for 1 token per second, Gain is 1 and Unit is 1,000,000,000.
// Products are computed in 128 bits, so nothing is rounded and nothing overflows, whatever the
// rate.
type Bucket struct {
	Burst int64 // tokens that a key can take at once
	Gain  int64 // parts of a token that drain in a nanosecond
	Unit  int64 // parts that make up one token
}

// MaxBurst is the largest burst of a [Bucket].
const MaxBurst = math.MaxUint32

// MaxUsed is the most units that a key can owe after charges past its limit. Such a charge corrects an earlier
// charge that was too low. If the limit itself is above MaxUsed, the key can owe as many units as the limit.
const MaxUsed = 1 << 50

// Beyond returns the sum of used and n, or the limit if the sum is above the limit. If used is above
// the limit already, Beyond returns used.
func Beyond(used, n, limit int64) int64 { return used + max(min(n, limit-used), 0) }

// NewBucket returns a bucket that drains a number of tokens (requests) in each period (per, in
// nanoseconds). It holds burst tokens, at most [MaxBurst]. All three numbers are positive.
func NewBucket(requests, per, burst int64) Bucket {
	d := GCD(requests, per)
	return Bucket{Burst: burst, Gain: requests / d, Unit: per / d}
}

// Earned returns how many parts of a token drain in the given time (elapsed, in nanoseconds). The
// number has 128 bits: it is hi·2^64 + lo.
func (b *Bucket) Earned(elapsed uint64) (hi, lo uint64) {
	return bits.Mul64(elapsed, uint64(b.Gain))
}

// Less subtracts hi·2^64 + lo parts of a token from the debt. If the difference is negative, Less
// returns zero.
func (b *Bucket) Less(debt Level, hi, lo uint64) Level {
	if hi > 0 || lo >= uint64(b.Unit) {
		if hi >= uint64(b.Unit) {
			return Level{} // the parts to subtract are at least 2^64 tokens, more than any key owes
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

// Parts converts the debt to parts of a token. The number of parts has 128 bits: it is hi·2^64 + lo.
func (b *Bucket) Parts(debt Level) (hi, lo uint64) {
	hi, lo = bits.Mul64(uint64(debt.Whole), uint64(b.Unit))
	lo, carry := bits.Add64(lo, uint64(debt.Frac), 0)
	return hi + carry, lo
}

// ToDrain returns how long hi·2^64 + lo parts of a token take to drain, rounded up to a nanosecond.
func (b *Bucket) ToDrain(hi, lo uint64) time.Duration {
	if b.Gain != 1 { // without this test, a division by 1 would take most of the time
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

// Drained returns what is left of the debt after the given time (elapsed, in nanoseconds). The
// algorithms call Earned and Less instead, because the compiler inlines these two but not Drained.
func (b *Bucket) Drained(debt Level, elapsed uint64) Level {
	hi, lo := b.Earned(elapsed)
	return b.Less(debt, hi, lo)
}

// Left returns how many whole tokens a key with this debt may take at once: Burst minus the debt,
// rounded down.
func (b *Bucket) Left(debt Level) int64 {
	if debt.Frac > 0 {
		return b.Burst - debt.Whole - 1
	}
	return b.Burst - debt.Whole
}

// TimeToFit returns how long it takes until the sum of the debt and n further tokens is at most burst
// tokens. When TimeToFit is called, the sum must be above burst tokens.
func (b *Bucket) TimeToFit(debt Level, n, burst int64) time.Duration {
	if n > burst {
		return Never
	}
	return b.ToDrain(b.Parts(Level{debt.Whole + n - burst, debt.Frac}))
}

// Minus subtracts a second level from the debt. If the difference is negative, Minus returns zero.
func (b *Bucket) Minus(debt, off Level) Level {
	switch {
	case debt.Whole < off.Whole || debt.Whole == off.Whole && debt.Frac <= off.Frac:
		return Level{}
	case debt.Frac < off.Frac:
		return Level{debt.Whole - off.Whole - 1, debt.Frac + (b.Unit - off.Frac)}
	}
	return Level{debt.Whole - off.Whole, debt.Frac - off.Frac}
}

// Slower reports whether b drains more slowly than the other bucket.
func (b *Bucket) Slower(than *Bucket) bool {
	hi, lo := bits.Mul64(uint64(b.Gain), uint64(than.Unit))
	thanHi, thanLo := bits.Mul64(uint64(than.Gain), uint64(b.Unit))
	return hi < thanHi || hi == thanHi && lo < thanLo
}

// Rescaled converts a debt of another bucket (the parameter from) to a debt of b, after a change of the
// rate. The two buckets may divide a token into different numbers of parts. Rescaled rounds up, against the
// client.
func (b *Bucket) Rescaled(debt Level, from *Bucket) Level {
	if b.Unit == from.Unit {
		return debt
	}
	hi, lo := bits.Mul64(uint64(debt.Frac), uint64(b.Unit))
	frac, rest := bits.Div64(hi, lo, uint64(from.Unit)) // the quotient fits, because debt.Frac < from.Unit
	if rest > 0 {
		frac++
	}
	if frac == uint64(b.Unit) {
		return Level{debt.Whole + 1, 0}
	}
	return Level{debt.Whole, int64(frac)}
}

// RescaledDown returns the same as [Bucket.Rescaled], but rounds down.
func (b *Bucket) RescaledDown(debt Level, from *Bucket) Level {
	if b.Unit == from.Unit {
		return debt
	}
	hi, lo := bits.Mul64(uint64(debt.Frac), uint64(b.Unit))
	frac, _ := bits.Div64(hi, lo, uint64(from.Unit)) // the quotient fits, because debt.Frac < from.Unit
	return Level{debt.Whole, int64(frac)}
}

// Arithmetic returns b. With it, a type that embeds a Bucket gives access to that Bucket.
func (b *Bucket) Arithmetic() *Bucket { return b }

// Converted returns the debt of a key after its bucket was replaced by b. The parameter from is the old bucket.
// The parameter debt is the debt before the change, already divided into the parts of b, see Rescaled. The debt
// grows or falls by as much as the burst: a key that owes 3 of 10 tokens owes 8 of 15 afterwards, so the key may
// take 7 as before. If debt and minDebt are both zero, the key is unused and stays unused: the new debt is zero.
//
// The new debt is at least minDebt, such as the units that still wait in the queue of a leaky bucket. If minDebt
// is above the burst of b and the parameter ahead is false, Converted first lowers minDebt to the burst of b. The
// result lost is true if minDebt was lowered, or if the debt was raised to minDebt.
func (b *Bucket) Converted(debt, minDebt Level, from *Bucket, ahead bool) (to Level, lost bool) {
	if debt == (Level{}) && minDebt == debt {
		return debt, false
	}
	debt.Whole += b.Burst - from.Burst
	if top := (Level{b.Burst, 0}); !ahead && minDebt.Whole >= b.Burst {
		minDebt, lost = top, minDebt != top
	}
	if debt.Whole < minDebt.Whole || debt.Whole == minDebt.Whole && debt.Frac < minDebt.Frac {
		return minDebt, true
	}
	return debt, lost
}

// A Portion is a fraction of the full limit: Units divided by Of. A new key may have a lower limit at first,
// which grows to the full limit. Until then, the key has only a Portion of the full limit, and pays Of/Units
// tokens for each unit: a key with half of the limit pays 2 tokens.
//
// Invariant: 1 <= Units <= Of.
type Portion struct {
	Units int64 // the present limit of the key, in units
	Of    int64 // the full limit, in units
}

// Cost returns what n units cost a key with the portion p of the full limit. The sum for all units is
// rounded up to whole parts of a token. A cost of more tokens than an int64 can hold is cut to the
// largest int64.
func (b *Bucket) Cost(p Portion, n int64) Level {
	hi, lo := bits.Mul64(uint64(n), uint64(p.Of))
	if hi >= uint64(p.Units) {
		return Level{math.MaxInt64, 0}
	}
	whole, rest := bits.Div64(hi, lo, uint64(p.Units))
	if whole >= math.MaxInt64 {
		return Level{math.MaxInt64, 0}
	}
	if rest == 0 {
		return Level{int64(whole), 0}
	}
	frac, rest := b.partsOf(rest, p)
	if rest > 0 {
		frac++
	}
	if frac == b.Unit {
		return Level{int64(whole) + 1, 0}
	}
	return Level{int64(whole), frac}
}

// partsOf converts rest/p.Units tokens to whole parts of a token. It also returns the remainder of the
// division. The given rest must be less than p.Units.
func (b *Bucket) partsOf(rest uint64, p Portion) (parts int64, left uint64) {
	hi, lo := bits.Mul64(rest, uint64(b.Unit))
	quotient, left := bits.Div64(hi, lo, uint64(p.Units))
	return int64(quotient), left
}

// CostDown returns what one unit costs a key with the portion p of the limit, rounded down.
func (b *Bucket) CostDown(p Portion) Level {
	frac, _ := b.partsOf(uint64(p.Of%p.Units), p)
	return Level{p.Of / p.Units, frac}
}

// Times returns the level l multiplied by n. The whole tokens of the product must fit an int64.
func (b *Bucket) Times(l Level, n int64) Level {
	if l.Frac == 0 {
		return Level{l.Whole * n, 0}
	}
	hi, lo := bits.Mul64(uint64(l.Frac), uint64(n))
	whole, frac := bits.Div64(hi, lo, uint64(b.Unit)) // the quotient fits, because l.Frac < Unit
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

// Beyond returns the sum of two levels, but with at most [MaxUsed] whole tokens. If the first level l
// already has more whole tokens than MaxUsed, Beyond returns l.
func (b *Bucket) Beyond(l, more Level) Level {
	if room := MaxUsed - l.Whole; more.Whole >= room {
		return Level{max(l.Whole, MaxUsed), l.Frac}
	}
	return b.Plus(l, more)
}

// Fit returns how many units a key with this debt can be granted at once, if it has the portion p of the
// full limit. The cost of the units and the debt are then together at most burst tokens.
func (b *Bucket) Fit(debt Level, p Portion, burst int64) int64 {
	room := b.Minus(Level{burst, 0}, debt)
	hi, lo := b.Parts(room)
	top, hi, lo := times(hi, lo, uint64(p.Units))
	unitHi, unitLo := bits.Mul64(uint64(p.Of), uint64(b.Unit)) // n units fit if n times this number is at most top·2^128 + hi·2^64 + lo
	if unitHi == 0 {
		n, _ := bits.Div64(hi, lo, unitLo) // n is at most burst, so top is 0 and the quotient has at most 64 bits
		return int64(n)
	}
	// The divisor has more than 64 bits. It is rounded up to its 64 leading bits. The quotient is then
	// too small by less than 1, so n is correct or 1 too small. If n+1 units fit too, n is raised
	// below.
	shift := uint(bits.Len64(unitHi))
	n, rest := top<<(64-shift)|hi>>shift, hi<<(64-shift)|lo>>shift
	if leading := unitHi<<(64-shift) | unitLo>>shift; leading < math.MaxUint64 {
		n, _ = bits.Div64(n, rest, leading+1)
	}
	if next := b.Cost(p, int64(n)+1); next.Whole < room.Whole || next.Whole == room.Whole && next.Frac <= room.Frac {
		n++
	}
	return int64(n)
}

// Spend reports whether n units are granted to a key with this debt and the portion p of the limit: whether the
// debt and the cost of the units are together at most burst tokens. If the units are granted and the parameter
// charge is true, Spend also returns their cost and how many further units fit after them. Otherwise, it returns
// the cost zero and how many units fit now.
func (b *Bucket) Spend(debt Level, p Portion, n, burst int64, charge bool) (cost Level, left int64, granted bool) {
	if charge {
		if cost = b.Cost(p, n); cost.Whole <= burst {
			if sum := b.Plus(debt, cost); sum.Whole < burst || sum.Whole == burst && sum.Frac == 0 {
				return cost, b.Fit(sum, p, burst), true
			}
		}
	}
	left = b.Fit(debt, p, burst)
	return Level{}, left, n <= left
}

// times returns hi·2^64 + lo multiplied by n, as top·2^128 + hi·2^64 + lo.
func times(hi, lo, n uint64) (uint64, uint64, uint64) {
	carry, lo := bits.Mul64(lo, n)
	top, hi := bits.Mul64(hi, n)
	hi, more := bits.Add64(hi, carry, 0)
	return top + more, hi, lo
}

// GCD returns the greatest common divisor of a and b, which are positive.
func GCD(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
