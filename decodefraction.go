package ratelimit

import (
	"math"
	"math/big"
	"strconv"
	"time"
)

// Where numbers of units a second end: beyond these powers of ten no Rate holds
// them, and no power of ten needs to be worked out.
const (
	mostDigits = 28 // before the point: an int of units a nanosecond
	leastPoint = -9 // 0.0000000001 a second is one in 317 years
	mostPlaces = 63 // behind it: 2^63 and 5^63 are beyond any Per
)

// perSecond returns the Rate of x units a second, exactly, or why there is none,
// in which "%" stands for the field that x is from.
func (x decimal) perSecond() (r Rate, reason string) {
	point := len(x.digits) + x.exp
	if point > mostDigits {
		return Rate{}, tooMany
	}
	if point < leastPoint {
		return Rate{}, tooSlow
	}
	if near := x.fraction(); near != nil {
		in, ok := inSeconds(near)
		if !ok {
			return Rate{}, tooFine
		}
		return Rate{}, "must be exact, and is " + near.RatString() + " rounded: give rate: " + strconv.Quote(in.String()) + " and burst in place of capacity and %"
	}
	if x.exp < -mostPlaces {
		return Rate{}, tooFine
	}
	exact := x.rat(len(x.digits))
	if r, ok := inSeconds(exact); ok {
		return r, ""
	}
	switch {
	case exact.Cmp(big.NewRat(1, maxSeconds)) < 0:
		return Rate{}, tooSlow
	case exact.IsInt():
		return Rate{}, tooMany
	}
	return Rate{}, tooFine
}

// Why there is no Rate of so many units a second.
const (
	tooMany = "must be smaller: it is beyond what can be counted"
	tooSlow = "must be larger: one unit would take more than 292 years"
	tooFine = "must have fewer decimals: they take a count, or a time, beyond what can be counted"
)

// maxSeconds is the longest Per in whole seconds.
const maxSeconds = math.MaxInt64 / int64(time.Second)

// inSeconds returns the Rate of x units a second and reports whether there is one:
// in whole seconds if it can be, else in nanoseconds.
func inSeconds(x *big.Rat) (Rate, bool) {
	requests, per := x.Num(), new(big.Int).Mul(x.Denom(), big.NewInt(int64(time.Second)))
	if !fits(requests, per) {
		d := new(big.Int).GCD(nil, nil, requests, per)
		requests, per = new(big.Int).Quo(requests, d), per.Quo(per, d) // both without a rest
	}
	if !fits(requests, per) {
		return Rate{}, false
	}
	return Rate{Requests: int(requests.Int64()), Per: time.Duration(per.Int64())}, true
}

// fits reports whether a Rate holds requests per so many nanoseconds.
func fits(requests, per *big.Int) bool {
	return requests.IsInt64() && requests.Int64() <= math.MaxInt && per.IsInt64()
}

// rat returns x, of whose digits only the first are taken.
func (x decimal) rat(first int) *big.Rat {
	digits := x.digits[:first]
	exp := x.exp + len(x.digits) - first
	n, _ := new(big.Int).SetString(digits, 10)
	if exp >= 0 {
		return new(big.Rat).SetInt(n.Mul(n, tenTo(exp)))
	}
	return new(big.Rat).SetFrac(n, tenTo(-exp))
}

// tenTo returns 10^n.
func tenTo(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

// fraction returns the small fraction that x is the rounded decimal of, or nil if x
// is what somebody wrote: a decimal of few places, or one that is no such fraction.
//
// Of n places that say nothing, one in 10^n/q^2 or so is within a rounding of some
// fraction with a denominator up to q; q is chosen so that this is rare.
func (x decimal) fraction() *big.Rat {
	places := -x.exp
	significant := min(places, len(x.digits))
	written, largest := 9, int64(1000)
	switch {
	case x.single:
		written, largest = 6, 100
	case significant >= 15:
		largest = 1_000_000
	}
	if significant <= written {
		return nil
	}
	const enough = 40 // digits, beyond those of any float64
	dropped := max(len(x.digits)-enough, 0)
	cut := x.rat(len(x.digits) - dropped)
	bits := uint(52)
	if x.single {
		bits = 23
	}
	// A float is at most an ulp from the fraction, and so is its shortest decimal;
	// what was rounded or cut by hand is within one of its last place.
	slack := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), bits))
	slack.Mul(slack, cut)
	last := new(big.Rat).SetFrac(big.NewInt(1), tenTo(places-dropped))
	if last.Cmp(slack) > 0 {
		slack = last
	}
	near := nearestFraction(cut, slack, big.NewInt(largest))
	if near == nil || dropped == 0 && near.Cmp(cut) == 0 {
		return nil
	}
	return near
}

// nearestFraction returns the first convergent of the continued fraction of x that
// is within slack of it, or nil if its denominator is beyond largest.
func nearestFraction(x, slack *big.Rat, largest *big.Int) *big.Rat {
	a, b := new(big.Int).Set(x.Num()), new(big.Int).Set(x.Denom())
	p, q := big.NewInt(1), big.NewInt(0) // the convergent,
	oldP, oldQ := big.NewInt(0), big.NewInt(1)
	for b.Sign() > 0 {
		whole, rest := new(big.Int).QuoRem(a, b, new(big.Int))
		a, b = b, rest
		p, oldP = new(big.Int).Add(oldP, new(big.Int).Mul(whole, p)), p
		q, oldQ = new(big.Int).Add(oldQ, new(big.Int).Mul(whole, q)), q
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
