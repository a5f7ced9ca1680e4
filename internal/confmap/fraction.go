package confmap

import "math/big"

// usedDigits is the number of digits of a Decimal that are compared with fractions. The shortest
// decimal of any float64 has fewer.
const usedDigits = 40

// RoundedFraction returns the fraction that was probably rounded to x, such as 1/3 for
// 0.3333333333333333. It returns nil if x is to be taken as it is written, because it has few
// decimals, is close to no such fraction, or equals one. x is above 0, and its Point is small,
// see [Decimal.Rat].
//
// Every decimal is close to some fraction, so only fractions with a small denominator count. Of
// all decimals with n digits, a share of about q²/10^n is by chance as close to a fraction with
// a denominator of at most q as a rounded one would be. The bounds below keep that share at one
// in 1,000 or less.
func (x Decimal) RoundedFraction() *big.Rat {
	significant := min(x.Places(), len(x.digits)) // decimals without zeros right after the point
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

// slack returns the largest distance between a fraction and a decimal that was rounded from it.
// value is the decimal, and decimals is how many digits it has after the point.
//
// A float is at most one ulp, the distance to the next float, from the fraction; so is the
// shortest decimal of that float. A decimal that was rounded by hand or cut off is at most one
// unit of its last digit from the fraction.
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

// nearestFraction returns the first convergent of x that is above 0 and at most slack from x, or
// nil if its denominator would be larger than largest.
//
// The convergents of x are the fractions that its continued fraction has if it is cut off after
// each of its terms. Each is closer to x than any fraction with a smaller denominator.
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
