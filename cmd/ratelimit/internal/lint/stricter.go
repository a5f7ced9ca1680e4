package lint

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// windowed reports whether a counts in windows.
func windowed(a ratelimit.Algorithm) bool {
	switch a {
	case ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog, ratelimit.AlgorithmSlidingWindowCounter:
		return true
	}
	return false
}

// stricter reports whether whatever a grants, b grants too, for requests that ask both. It may say no
// where that is so, but never yes where it is not.
func stricter(a, b indexed) bool {
	if a.Mode == ratelimit.ModeShadow || a.Limiter != nil || b.Limiter != nil || !coarser(a.Key, b.Key) {
		return false
	}
	if len(a.Tiers) > 0 || a.Warmup != (ratelimit.Warmup{}) || b.Warmup != (ratelimit.Warmup{}) || a.OnStoreError != b.OnStoreError {
		return false
	}
	for _, rate := range b.Tiers {
		if !bounds(a.Algorithm, a.Rate, b.Algorithm, rate) {
			return false
		}
	}
	return bounds(a.Algorithm, a.Rate, b.Algorithm, b.Rate)
}

// coarser reports whether requests that share a budget by the key b also share one by a.
func coarser(a, b ratelimit.KeyType) bool {
	parts := func(k ratelimit.KeyType) []string {
		text := strings.ReplaceAll(string(k), "user_endpoint", "user+endpoint")
		return slices.DeleteFunc(strings.Split(text, "+"), func(part string) bool { return part == "global" })
	}
	in := parts(b)
	return !slices.ContainsFunc(parts(a), func(part string) bool { return !slices.Contains(in, part) })
}

// bounds reports whether a key that a grants units at the rate ra is never denied by b at the rate rb.
func bounds(a ratelimit.Algorithm, ra ratelimit.Rate, b ratelimit.Algorithm, rb ratelimit.Rate) bool {
	if rb == ratelimit.Unlimited {
		return true
	}
	switch b {
	case ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog:
		if b == ratelimit.AlgorithmFixedWindow && a == b && ra.Per == rb.Per {
			return ra.Requests <= rb.Requests // their windows are the same
		}
		return most(a, ra, rb.Per-1) <= rb.Requests
	case ratelimit.AlgorithmSlidingWindowCounter:
		if a == b && ra.Per == rb.Per {
			return ra.Requests <= rb.Requests
		}
		return rb.Per <= (1<<63-1)/2 && most(a, ra, 2*rb.Per-1) <= rb.Requests
	case ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket:
		// In the long run a must grant no more; and at each instant at which it may grant
		// more at once, its units must fit.
		burst := largest(rb, b)
		switch a {
		case ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket:
			return slower(ra, rb) && largest(ra, a) <= burst
		case ratelimit.AlgorithmSlidingWindowLog:
			return slower(ra, rb) && ra.Requests <= burst
		case ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowCounter:
			return slower(ra, rb) && 2*ra.Requests <= burst
		}
	}
	return false
}

// most is Algorithm.MaxIn; where no limit is known, it is more than any limit.
func most(a ratelimit.Algorithm, r ratelimit.Rate, d time.Duration) int {
	if n := a.MaxIn(r, d); n >= 0 {
		return n
	}
	return math.MaxInt
}

// slower reports whether a grants no more than b in the long run.
func slower(a, b ratelimit.Rate) bool {
	left := new(big.Int).Mul(big.NewInt(int64(a.Requests)), big.NewInt(int64(b.Per)))
	right := new(big.Int).Mul(big.NewInt(int64(b.Requests)), big.NewInt(int64(a.Per)))
	return left.Cmp(right) <= 0
}
