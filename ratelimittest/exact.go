package ratelimittest

import (
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// The functions below compute with integers of any size, so that no result overflows. A result is
// rounded only if the comment of its function says so. No function changes its arguments.

func num(n int64) *big.Int       { return big.NewInt(n) }
func add(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }
func sub(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
func mul(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// floorDiv returns the quotient a/b, rounded towards minus infinity. The divisor b must be positive.
func floorDiv(a, b *big.Int) *big.Int { return new(big.Int).Div(a, b) }

// ceilDiv returns the quotient a/b, rounded towards plus infinity. The divisor b must be positive.
func ceilDiv(a, b *big.Int) *big.Int {
	return floorDiv(sub(add(a, b), num(1)), b)
}

func least(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func largest(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// duration returns ns nanoseconds, or the longest Duration if ns does not fit.
func duration(ns *big.Int) time.Duration {
	if !ns.IsInt64() {
		return ratelimit.Never
	}
	return time.Duration(ns.Int64())
}

// sinceEpoch returns the nanoseconds from the Unix epoch to t. Unlike UnixNano, it is right
// for every year.
func sinceEpoch(t time.Time) *big.Int {
	return add(mul(num(t.Unix()), num(int64(time.Second))), num(int64(t.Nanosecond())))
}

// burst returns the largest number of units that the rate r grants at once.
func burst(r ratelimit.Rate) int {
	if r.Burst == 0 {
		return r.Requests
	}
	return r.Burst
}
