package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A striker is the model of a penalty: what OPERATIONS calls start, count, until and the last block.
type striker struct {
	ratelimit.Penalty
	start, until time.Time
	last         time.Duration
	count        int
}

// denied counts a denial at the time now, and returns how long the key is blocked from then.
func (s *striker) denied(now time.Time) time.Duration {
	if s.count == 0 || !now.Before(s.start.Add(s.Within)) {
		s.start, s.count = now, 0
	}
	if s.count++; s.count < s.After {
		return 0
	}
	d := s.For
	if s.Most > 0 && s.last > 0 && now.Sub(s.until) < s.Most {
		d = min(2*s.last, s.Most)
	}
	s.until, s.last, s.count = now.Add(d), d, 0
	return d
}

// TestPenaltyModel compares random schedules of requests with the same requests to a rule without a Penalty, around which
// the model counts. It does so for keys in this process and in a MemoryStore.
func TestPenaltyModel(t *testing.T) {
	const schedules = 2000
	var denials, blocked int
	for seed := range uint64(schedules) {
		r := rand.New(rand.NewPCG(seed, 23))
		pick := func(all ...time.Duration) time.Duration { return all[r.IntN(len(all))] }
		p := ratelimit.Penalty{After: 1 + r.IntN(4), Within: pick(time.Second, 10*time.Second), For: pick(time.Second, 7*time.Second)}
		if r.IntN(2) == 0 {
			p.Most = p.For * time.Duration(1+r.IntN(5))
		}
		algorithms := []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
			ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket}
		rule := ratelimit.Rule{Name: "r", Endpoint: "/", Rate: ratelimit.Rate{Requests: 1 + r.IntN(3), Per: pick(time.Second, 5*time.Second)},
			Algorithm: algorithms[r.IntN(len(algorithms))]}
		clock := ratelimit.NewFakeClock(epoch)
		plain, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		rule.Penalty = p
		opts := []ratelimit.Option{ratelimit.WithClock(clock)}
		if seed%2 == 1 {
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("t"))
		}
		l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
		require.NoError(t, err)
		model := striker{Penalty: p}
		for step := range 60 {
			clock.Advance(pick(0, 1, time.Millisecond, 300*time.Millisecond, time.Second, 3*time.Second, p.Within-1, p.Within, p.For-1, p.For, p.Most))
			if rest := model.until.Sub(clock.Now()); r.IntN(4) == 0 && rest > 1 {
				clock.Advance(rest - time.Duration(r.IntN(2)))
			}
			req := ratelimit.Request{Client: "alice", Endpoint: "/", Cost: 1 + r.IntN(2)}
			what := fmt.Sprintf("seed %d, step %d, %+v", seed, step, p)
			now, rest := clock.Now(), model.until.Sub(clock.Now())
			var want ratelimit.Result
			switch {
			case rest > 0:
				// The block denies; a look at the plain rule says what the rule alone would answer.
				x, err := plain.Explain(t.Context(), req)
				require.NoError(t, err)
				if want = x.Result; want.Allowed {
					want.RetryAfter, want.Delay = 0, 0
				}
			default:
				want, err = plain.Check(t.Context(), req)
				require.NoError(t, err)
				if !want.Allowed {
					denials++
					rest = model.denied(now)
				}
			}
			if rest > 0 {
				blocked++
				want.Allowed, want.Remaining, want.Reason = false, 0, ratelimit.ReasonPenalty
				want.RetryAfter, want.ResetAfter = max(want.RetryAfter, rest), max(want.ResetAfter, rest)
			}
			got, err := l.Check(t.Context(), req)
			require.NoError(t, err)
			if want.Reason != "" { // what a blocked key would have afterwards is not part of the answer
				got.ResetAfter, want.ResetAfter = 0, 0
			}
			require.Equal(t, want, got, what)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d schedules: %d denials, %d by a block", schedules, denials, blocked)
	require.Greater(t, blocked, schedules)
}
