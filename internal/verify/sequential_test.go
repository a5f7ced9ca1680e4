package verify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// The linearizability checker tries many orders, so it needs a small state that it can
// compare. The sequential specification is written for one small rate, in plain integers.
// TestSequential compares it with the models.
const (
	seqLimit = 4
	seqGain  = 3 // units in every
	seqPer   = 10
)

var seqRate = ratelimit.Rate{Requests: seqGain, Per: seqPer, Burst: seqLimit}

// seqRateOf returns the rate that the specification of a is written for. Windows have no
// burst, so their rate has seqLimit requests.
func seqRateOf(a algorithm) ratelimit.Rate {
	if a.bucket {
		return seqRate
	}
	return ratelimit.Rate{Requests: seqLimit, Per: seqPer}
}

// A seqState is the state of one key. Instants are nanoseconds since the Unix epoch, at
// which the limiter is made.
type seqState struct {
	now  int64 // time of the clock
	last int64 // of the last grant
	debt int64 // of a bucket: what it lacks, in units of 1/seqPer
	prev int64 // of a window: units in the window before that of last
	cur  int64 // of a window: units in the window of last
	log  [seqLimit]int64
	held int64 // entries of log, oldest first
}

// A seqStep asks for n units, or looks if n is 0.
type seqStep func(s seqState, n int64) (seqState, ratelimit.Result)

var seqSteps = map[string]seqStep{
	"TokenBucket":          func(s seqState, n int64) (seqState, ratelimit.Result) { return seqBucket(s, n, false) },
	"LeakyBucket":          func(s seqState, n int64) (seqState, ratelimit.Result) { return seqBucket(s, n, true) },
	"FixedWindow":          func(s seqState, n int64) (seqState, ratelimit.Result) { return seqWindow(s, n, false) },
	"SlidingWindowCounter": func(s seqState, n int64) (seqState, ratelimit.Result) { return seqWindow(s, n, true) },
	"SlidingWindowLog":     seqLog,
}

// ahead adds to the times in res how many nanoseconds the key's clock is ahead of the limiter's. It sets the Reason of a denial.
func ahead(res ratelimit.Result, ns int64) ratelimit.Result {
	if res.RetryAfter > 0 && res.RetryAfter < ratelimit.Never {
		res.RetryAfter += time.Duration(ns)
	}
	if res.ResetAfter > 0 {
		res.ResetAfter += time.Duration(ns)
	}
	if !res.Allowed {
		res.Reason = ratelimit.ReasonLimit
	}
	return res
}

func up(a, b int64) int64 { return (a + b - 1) / b }

func seqBucket(s seqState, n int64, leaky bool) (seqState, ratelimit.Result) {
	now, u := s.now, max(s.now, s.last)
	debt := max(s.debt-(u-s.last)*seqGain, 0)
	res := ratelimit.Result{Limit: seqLimit}
	switch units := max(n, 1) * seqPer; {
	case units > seqLimit*seqPer:
		res.RetryAfter = ratelimit.Never
	case debt+units > seqLimit*seqPer:
		res.RetryAfter = time.Duration(up(debt+units-seqLimit*seqPer, seqGain))
	default:
		res.Allowed = true
		if leaky {
			res.Delay = time.Duration(up(debt, seqGain))
		}
		if n > 0 {
			debt += units
			s.last, s.debt = u, debt
		}
	}
	res.Remaining = int(seqLimit - up(debt, seqPer))
	res.ResetAfter = time.Duration(up(debt, seqGain))
	return s, ahead(res, u-now)
}

func seqWindow(s seqState, n int64, sliding bool) (seqState, ratelimit.Result) {
	now, u := s.now, max(s.now, s.last)
	prev, cur := s.prev, s.cur
	switch u/seqPer - s.last/seqPer {
	case 0:
	case 1:
		prev, cur = cur, 0
	default:
		prev, cur = 0, 0
	}
	if !sliding {
		prev = 0
	}
	// used returns what counts as used at a later instant.
	used := func(then int64) int64 {
		prev, cur := prev, cur
		for w := u / seqPer; w < then/seqPer; w++ {
			prev, cur = cur, 0
		}
		if !sliding {
			return cur
		}
		return up(prev*(seqPer-then%seqPer), seqPer) + cur
	}
	res := ratelimit.Result{Limit: seqLimit}
	switch asked := max(n, 1); {
	case asked > seqLimit:
		res.RetryAfter = ratelimit.Never
	case used(u)+asked > seqLimit:
		for used(u+int64(res.RetryAfter))+asked > seqLimit {
			res.RetryAfter++
		}
	default:
		res.Allowed = true
		if n > 0 {
			cur += n
			s.last, s.prev, s.cur = u, prev, cur
		}
	}
	res.Remaining = int(seqLimit - used(u))
	end := u - u%seqPer + seqPer
	switch {
	case cur > 0 && sliding:
		res.ResetAfter = time.Duration(end + seqPer - u)
	case cur > 0 || prev > 0:
		res.ResetAfter = time.Duration(end - u)
	}
	return s, ahead(res, u-now)
}

func seqLog(s seqState, n int64) (seqState, ratelimit.Result) {
	now, u := s.now, max(s.now, s.last)
	var in []int64
	for _, at := range s.log[:s.held] {
		if u-at < seqPer {
			in = append(in, at)
		}
	}
	res := ratelimit.Result{Limit: seqLimit}
	switch over := len(in) + int(max(n, 1)) - seqLimit; {
	case n > seqLimit:
		res.RetryAfter = ratelimit.Never
	case over > 0:
		res.RetryAfter = time.Duration(in[over-1] + seqPer - u)
	default:
		res.Allowed = true
		for range n {
			in = append(in, u)
		}
		if n > 0 {
			s.last, s.held, s.log = u, int64(len(in)), [seqLimit]int64{}
			copy(s.log[:], in)
		}
	}
	res.Remaining = seqLimit - len(in)
	if len(in) > 0 {
		res.ResetAfter = time.Duration(in[len(in)-1] + seqPer - u)
	}
	return s, ahead(res, u-now)
}

// TestSequential plays random asks, at instants close together, on the sequential
// specifications and on the models.
func TestSequential(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		step, made := seqSteps[a.name], time.Unix(0, 0)
		rapid.Check(t, func(t *rapid.T) {
			model := a.model(made, seqRateOf(a))
			var s seqState
			for range stepsEach {
				s.now = max(s.now+rapid.Int64Range(-4, 8).Draw(t, "on by"), 0)
				n := rapid.IntRange(0, seqLimit+1).Draw(t, "n")
				var got ratelimit.Result
				s, got = step(s, int64(n))
				require.Equal(t, model.Ask(made.Add(time.Duration(s.now)), n), got)
			}
		})
	})
}
