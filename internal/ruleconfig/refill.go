package ruleconfig

import (
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// The bounds on a number of units a second in a config. No Rate can hold a number beyond these bounds.
// They are checked first, so that no large power of ten is computed for a number with a huge exponent.
const (
	maxPoint  = 28 // the most digits before the point: no Rate can hold a number with more digits there
	minPoint  = -9 // a number below 1 has at most 9 zeros after its point: with 10, a unit takes over 317 years, too long for a Per
	maxPlaces = 63 // the most digits after the point: no Rate can hold a number with more digits there
)

// The reasons for refusing a number of units a second that no Rate can hold.
const (
	tooMany = "must be smaller: it is beyond what can be counted"
	tooSlow = "must be larger: one unit would take more than 292 years"
	tooFine = "must have fewer decimals: they take a count, or a time, beyond what can be counted"
)

// rateOf returns the Rate that grants exactly x · 10^shift units a second. If no Rate does, reason says
// why. For 0.3333333333, the reason says that 1/3 was probably meant. x must be above 0. The last parameter
// is a text with the names of the config's fields from which x comes.
func rateOf(x confmap.Decimal, shift int, fields string) (r ratetext.Rate, reason string) {
	if x.Point()+shift > maxPoint {
		return ratetext.Rate{}, tooMany
	}
	if x.Point()+shift < minPoint {
		return ratetext.Rate{}, tooSlow
	}
	unit := big.NewRat(1, 1)
	for range shift {
		unit.Mul(unit, big.NewRat(10, 1))
	}
	if meant := x.RoundedFraction(); meant != nil {
		in, ok := inSeconds(new(big.Rat).Mul(meant, unit))
		if !ok {
			return ratetext.Rate{}, tooFine
		}
		return ratetext.Rate{}, "must be exact, and is " + meant.RatString() + " rounded: " +
			"give rate: " + strconv.Quote(in.String()) + " and burst in place of " + fields
	}
	if x.Places()-shift > maxPlaces {
		return ratetext.Rate{}, tooFine
	}
	exact := x.Rat()
	exact.Mul(exact, unit)
	if r, ok := inSeconds(exact); ok {
		return r, ""
	}
	const longest = math.MaxInt64 / int64(time.Second) // the largest number of whole seconds in a Per
	switch {
	case exact.Cmp(big.NewRat(1, longest)) < 0:
		return ratetext.Rate{}, tooSlow
	case exact.IsInt():
		return ratetext.Rate{}, tooMany
	}
	return ratetext.Rate{}, tooFine
}

// inSeconds returns the Rate of x units a second, and reports whether there is such a Rate. The Per of
// that Rate is a whole number of seconds if possible, and otherwise of nanoseconds.
func inSeconds(x *big.Rat) (ratetext.Rate, bool) {
	requests, per := x.Num(), new(big.Int).Mul(x.Denom(), big.NewInt(int64(time.Second)))
	if !fitRate(requests, per) {
		d := new(big.Int).GCD(nil, nil, requests, per)
		requests, per = new(big.Int).Quo(requests, d), per.Quo(per, d) // d divides both numbers without a remainder
	}
	if !fitRate(requests, per) {
		return ratetext.Rate{}, false
	}
	return ratetext.Rate{Requests: int(requests.Int64()), Per: time.Duration(per.Int64())}, true
}

// fitRate reports whether a Rate can hold this number of requests and this Per in nanoseconds.
func fitRate(requests, per *big.Int) bool {
	return requests.IsInt64() && requests.Int64() <= math.MaxInt && per.IsInt64()
}

// refill reads the field with this name as a number of units a second or, for refillPerMs, of units a
// millisecond. It returns the zero Rate if the field is wrong.
func (r *rateReader) refill(name string) ratetext.Rate {
	unit, shift := "second", 0
	if name == "refillPerMs" {
		unit, shift = "millisecond", 3
	}
	x, ok := r.Number(r.node, name, "must be a number of units a "+unit+", above 0", "must be above 0")
	if !ok {
		return ratetext.Rate{}
	}
	rate, reason := rateOf(x, shift, r.node.Written("capacity")+" and "+r.node.Written(name))
	if reason != "" {
		r.Reject(r.node.Field(name), x.String(), reason)
	}
	return rate
}
