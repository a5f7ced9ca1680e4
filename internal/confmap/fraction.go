package confmap

import "math/big"

// usedDigits is the largest number of digits of a Decimal that the method RoundedFraction uses. It ignores
// further digits. The shortest decimal of any float64 has fewer digits.
const usedDigits = 40

// RoundedFraction returns the fraction that was probably rounded to x, such as 1/3 for
// 0.3333333333333333. It returns nil if x was probably not rounded: because x has only a few decimals,
// is not close to a simple fraction, or is exactly a simple fraction. x must be above 0, and its Point
// must be small, see [Decimal.Rat].
//
// A simple fraction is one with a small denominator. Every decimal is close to some fraction, but the bounds
// below are so small that by chance fewer than one in 1,000 decimals is close to a simple fraction.
func (x Decimal) RoundedFraction() *big.Rat {
	significant := min(x.Places(), len(x.digits)) // number of digits after the point, without the zeros right after the point
	// A number with at most asWritten significant decimals counts as not rounded. The variable largest is
	// the largest denominator that a simple fraction may have.
	asWritten, largest := 9, int64(1000)
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

// slack returns the largest possible distance between a fraction and the decimal to which the fraction
// was rounded. The parameter value is the decimal, and decimals is the number of its digits after the point.
//
// A float that was rounded from a fraction differs from it by at most one ulp, the distance to the next
// float. So does the shortest decimal of that float. A decimal that was rounded by hand, or cut off,
// differs from the fraction by at most one unit of its last digit.
func (x Decimal) slack(value *big.Rat, decimals int) *big.Rat {
	mantissa := uint(52) // number of bits of the mantissa of a float64
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

// nearestFraction returns the first convergent of x that is above 0 and whose distance from x is at most
// the parameter slack. It returns nil if the denominator of that convergent is above the parameter largest.
//
// The convergents of x are the values of its continued fraction, cut off after one term, after two
// terms, and so on. Each is closer to x than any fraction with a smaller denominator.
func nearestFraction(x, slack *big.Rat, largest *big.Int) *big.Rat {
	a, b := new(big.Int).Set(x.Num()), new(big.Int).Set(x.Denom())
	p, q := big.NewInt(1), big.NewInt(0)       // the convergent p/q
	oldP, oldQ := big.NewInt(0), big.NewInt(1) // the convergent before it
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
