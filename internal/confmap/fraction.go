package confmap

import "math/big"

// usedDigits is the number of digits of a Decimal that are compared with fractions. It
// is more than the shortest decimal of any float64 has.
const usedDigits = 40

// RoundedFraction returns the fraction that x is a rounded decimal of, such as 1/3 for
// 0.3333333333333333. It returns nil if x is to be taken as it is written: it has few
// decimals, or it is no such fraction, or it is one exactly. x is above 0, and its
// Point is small, see [Decimal.Rat].
//
// Some fraction is close to any decimal, so only those with a small denominator count.
// Of all decimals with n digits, a share of about q²/10^n is by chance as close to a
// fraction with a denominator of at most q as a rounded one would be. The bounds below
// keep that share at one in 1,000 or less.
func (x Decimal) RoundedFraction() *big.Rat {
	significant := min(x.Places(), len(x.digits)) // without the zeros after the point
	asWritten, largest := 9, int64(1000)          // decimals, denominator
	switch {
	case x.single:
		asWritten, largest = 6, 100
	case significant >= 15:
		largest = 1_000_000
	}
	if significant <= asWritten {
		return nil
	}
	dropped := max(len(x.digits)-usedDigits, 0)
	used := x.leading(len(x.digits) - dropped)
	near := nearestFraction(used, x.slack(used, x.Places()-dropped), big.NewInt(largest))
	if near == nil || dropped == 0 && near.Cmp(used) == 0 {
		return nil
	}
	return near
}

// slack returns how far from a fraction its rounded decimal may be. value is the
// number that is compared, which has so many decimals.
//
// A float is at most an ulp from the fraction, and so is the shortest decimal of that
// float. What was rounded by hand, or cut off, is at most one of its last decimal from
// the fraction.
func (x Decimal) slack(value *big.Rat, decimals int) *big.Rat {
	mantissa := uint(52) // bits of a float64
	if x.single {
		mantissa = 23
	}
	ulp := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), mantissa))
	ulp.Mul(ulp, value)
	last := new(big.Rat).SetFrac(big.NewInt(1), tenTo(decimals))
	if last.Cmp(ulp) > 0 {
		return last
	}
	return ulp
}

// nearestFraction returns the simplest of the convergents of x that is above 0 and
// within slack of x, or nil if its denominator would be beyond largest.
//
// The convergents are the fractions that end the continued fraction of x after each of
// its terms; each is closer to x than any fraction with a smaller denominator.
func nearestFraction(x, slack *big.Rat, largest *big.Int) *big.Rat {
	a, b := new(big.Int).Set(x.Num()), new(big.Int).Set(x.Denom())
	p, q := big.NewInt(1), big.NewInt(0)       // the convergent p/q
	oldP, oldQ := big.NewInt(0), big.NewInt(1) // and the one before
	for b.Sign() > 0 {
		term, rest := new(big.Int).QuoRem(a, b, new(big.Int))
		a, b = b, rest
		p, oldP = new(big.Int).Add(oldP, new(big.Int).Mul(term, p)), p
		q, oldQ = new(big.Int).Add(oldQ, new(big.Int).Mul(term, q)), q
		if q.Cmp(largest) > 0 {
			return nil
		}
		near := new(big.Rat).SetFrac(p, q)
		if off := new(big.Rat).Sub(x, near); off.Abs(off).Cmp(slack) <= 0 && near.Sign() > 0 {
			return near
		}
	}
	return nil
}
