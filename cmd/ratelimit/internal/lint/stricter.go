package lint

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// stricter compares two rules, on the requests to which both rules apply. If it returns true, the second rule grants
// every request that the first rule grants. If it returns false, this is not certain: the second rule may or may not
// grant all of these requests.
func stricter(a, b indexed) bool {
	if !a.Mode.Denies() || a.Limiter != nil || b.Limiter != nil || a.Unit != b.Unit || !coarser(a.Key, b.Key) {
		return false
	}
	if b.Penalty != (ratelimit.Penalty{}) { // while the penalty of b blocks a key, b also denies what a grants
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

// coarser compares two types of keys, such as user and endpoint. It reports whether two requests that have the same
// key of the second type always have the same key of the first type, too.
func coarser(a, b ratelimit.KeyType) bool {
	parts := func(k ratelimit.KeyType) []string {
		text := strings.ReplaceAll(string(k), "user_endpoint", "user+endpoint")
		return slices.DeleteFunc(strings.Split(text, "+"), func(part string) bool { return part == "global" })
	}
	in := parts(b)
	return !slices.ContainsFunc(parts(a), func(part string) bool { return !slices.Contains(in, part) })
}

// bounds compares two limits. If it returns true, the second limit never denies a request that the first limit has
// granted. The first two parameters are the algorithm and the rate of the first limit. The last two parameters are
// the algorithm and the rate of the second limit.
func bounds(a ratelimit.Algorithm, ra ratelimit.Rate, b ratelimit.Algorithm, rb ratelimit.Rate) bool {
	if rb == ratelimit.Unlimited {
		return true
	}
	switch {
	case a == ratelimit.AlgorithmFixedWindow && b == ratelimit.AlgorithmFixedWindow && ra.Per == rb.Per &&
		ra.Window == rb.Window && ra.Window != "first":
		return ra.Requests <= rb.Requests // both limits count in the same windows, so the smaller limit is stricter
	case ra.Per == 0 || rb.Per == 0:
		return false // without Per, the windows are those of a calendar, which differ in length
	}
	switch b {
	case ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog:
		return maxIn(a, ra, rb.Per-1) <= rb.Requests
	case ratelimit.AlgorithmSlidingWindowCounter:
		if a == b && ra.Per == rb.Per {
			return ra.Requests <= rb.Requests
		}
		return rb.Per <= (1<<63-1)/2 && maxIn(a, ra, 2*rb.Per-1) <= rb.Requests
	case ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket:
		// In the long run, the first limit (a, ra) must not grant more than the second limit (b, rb). The units that the
		// first limit grants at once must fit into the burst of the second limit.
		burst := largest(rb, b)
		switch a {
		case ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket:
			return slower(ra, rb) && largest(ra, a) <= burst
		case ratelimit.AlgorithmSlidingWindowLog:
			return slower(ra, rb) && ra.Requests <= burst
		case ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowCounter:
			return slower(ra, rb) && 2*ra.Requests <= burst
		}
	case ratelimit.AlgorithmInFlight: // requests may run for long, so only InFlight bounds how many run at once
		return a == b && ra.Requests <= rb.Requests && ra.Per >= rb.Per
	}
	return false
}

// maxIn returns the largest number of units that the algorithm a with the rate r can grant within the duration d. If
// there is no such bound, it returns the largest int.
func maxIn(a ratelimit.Algorithm, r ratelimit.Rate, d time.Duration) int {
	if n := a.MaxIn(r, d); n >= 0 {
		return n
	}
	return math.MaxInt
}

// slower reports whether the first rate grants at most as much as the second rate in the long run.
func slower(a, b ratelimit.Rate) bool {
	left := new(big.Int).Mul(big.NewInt(int64(a.Requests)), big.NewInt(int64(b.Per)))
	right := new(big.Int).Mul(big.NewInt(int64(b.Requests)), big.NewInt(int64(a.Per)))
	return left.Cmp(right) <= 0
}
