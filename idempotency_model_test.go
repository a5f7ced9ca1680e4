package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A keptAnswer is what a recordModel remembers of one grant.
type keptAnswer struct {
	id      string
	at      time.Time
	each    []ratelimit.Result // that of the request, then those of its rules
	replays int
}

// A recordModel says what a limiter with request IDs answers: it is a map from identities to answers
// around a limiter that knows nothing of IDs.
type recordModel struct {
	clock  *ratelimit.FakeClock
	rules  *ratelimit.RateLimiter
	ttl    time.Duration
	most   int
	grants []*keptAnswer // the oldest first
	last   map[string]*keptAnswer
}

// check answers req.
func (m *recordModel) check(t *testing.T, req ratelimit.Request) []ratelimit.Result {
	now := m.clock.Now()
	id := fmt.Sprintf("%q %q %d %q %q", req.Client, req.ID, max(req.Cost, 1), req.Rules, req.Endpoint)
	if k := m.last[id]; req.ID != "" && k != nil && k.age(now) < m.ttl && k.replays < 100 {
		k.replays++
		each := slices.Clone(k.each)
		for i := range each {
			each[i].ResetAfter = max(each[i].ResetAfter-k.age(now), 0)
			each[i].Delay = max(each[i].Delay-k.age(now), 0)
		}
		return each
	}
	plain := req
	plain.ID = ""
	res, each, err := m.rules.CheckAll(context.Background(), plain, nil)
	require.NoError(t, err)
	each = slices.Insert(each, 0, res)
	if req.ID != "" && res.Allowed {
		for len(m.grants) > 0 && m.grants[0].age(now) >= m.ttl {
			m.forget()
		}
		if len(m.grants) == m.most {
			m.forget()
		}
		m.last[id] = &keptAnswer{id: id, at: now, each: each}
		m.grants = append(m.grants, m.last[id])
	}
	return each
}

func (k *keptAnswer) age(now time.Time) time.Duration { return max(now.Sub(k.at), 0) }

// forget drops the oldest grant.
func (m *recordModel) forget() {
	if k := m.grants[0]; m.last[k.id] == k {
		delete(m.last, k.id)
	}
	m.grants = m.grants[1:]
}

// TestRandomRetries compares limiters with request IDs with the model: requests with few clients,
// IDs and costs, by several rules, while the clock moves and rates change.
func TestRandomRetries(t *testing.T) {
	schedules, steps := 60, 400
	switch {
	case os.Getenv("RATELIMIT_SOAK") == "1":
		schedules = 6000
	case testing.Short() || raceEnabled:
		schedules = 12
	}
	replays, answers := 0, 0
	for i := range schedules {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		all := []ratelimit.Algorithm{
			ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
			ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket,
		}
		rules := []ratelimit.Rule{
			{Name: "a", Algorithm: all[i%5], Rate: ratelimit.PerMinute(3 + r.IntN(20))},
			{Name: "b", Algorithm: all[r.IntN(5)], Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(5 + r.IntN(50))},
			{Name: "s", Algorithm: all[r.IntN(5)], Mode: ratelimit.ModeShadow, Rate: ratelimit.PerMinute(2)},
		}
		clock := ratelimit.NewFakeClock(epoch)
		m := &recordModel{clock: clock, ttl: []time.Duration{time.Microsecond, sec, mins, time.Hour}[r.IntN(4)], most: 4 + r.IntN(20), last: make(map[string]*keptAnswer)}
		opts := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithMaxKeys(m.most)}
		tested := append(slices.Clone(opts), ratelimit.WithRequestIDs(m.ttl))
		if i%2 == 1 {
			for _, o := range []*[]ratelimit.Option{&opts, &tested} {
				st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(m.most))
				require.NoError(t, err)
				*o = append(*o, ratelimit.WithStore(st))
			}
		}
		m.rules = newRules(t, rules, nil, opts...)
		l := newRules(t, rules, nil, tested...)
		clients, names, moves := 1+r.IntN(3), 1+r.IntN(6), 1+r.IntN(20)
		for step := range steps {
			switch p := r.IntN(100); {
			case p < moves:
				clock.Advance(time.Duration(r.Int64N(int64(m.ttl) + int64(5*sec))))
			case p == 98:
				clock.Advance(-time.Duration(r.Int64N(int64(10 * sec))))
			case p == 99:
				rule, rate := rules[r.IntN(3)].Name, ratelimit.PerMinute(1+r.IntN(30))
				require.NoError(t, l.UpdateRate(rule, rate))
				require.NoError(t, m.rules.UpdateRate(rule, rate))
			}
			req := ratelimit.Request{Client: "c" + string(rune('0'+r.IntN(clients))), Rules: []string{"a", "b", "s"}[r.IntN(2):], Cost: r.IntN(3)}
			if r.IntN(10) > 0 {
				req.ID = string(rune('0' + r.IntN(names)))
			}
			before := l.Stats()[1].Replayed
			want := m.check(t, req)
			res, each, err := l.CheckAll(t.Context(), req, nil)
			require.NoError(t, err)
			require.Equal(t, want, slices.Insert(each, 0, res), "schedule %d, step %d: %+v", i, step, req)
			look := ratelimit.Request{Client: req.Client, Rules: req.Rules}
			require.Equal(t, peek(t, m.rules, look), peek(t, l, look), "schedule %d, step %d: what is left after %+v", i, step, req)
			replays += int(l.Stats()[1].Replayed - before)
			answers++
		}
	}
	assert.Greater(t, replays, answers/10, "the schedules have replays")
	t.Logf("%d answers, %d of them replays, 0 differences", answers, replays)
}

// TestRetriesAtOnce sends each request from 64 goroutines at once, by one or two limiters.
func TestRetriesAtOnce(t *testing.T) {
	rounds := 1000
	if testing.Short() || raceEnabled {
		rounds = 100
	}
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		rules := []ratelimit.Rule{
			{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(1 << 20)},
			{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Additional: true, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(1 << 14)},
		}
		one := newRules(t, rules, nil, append(opts, ids())...)
		other := one
		if len(opts) > 1 { // they share a store
			other = newRules(t, rules, nil, append(opts, ids())...)
		}
		atOnce(t, rounds, []*ratelimit.RateLimiter{one, other}, "/")
		require.Equal(t, 1<<14-rounds, peekAt(t, one, "all", "alice").Remaining, "one charge for each")
	})
}

// TestRetriesAtOnceBesideACustomLimiter is the same for rules with a limiter of the user's, which is
// called without a lock held.
func TestRetriesAtOnceBesideACustomLimiter(t *testing.T) {
	const rounds = 50
	inner, err := ratelimit.NewFixedWindow(ratelimit.PerHour(rounds), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
	require.NoError(t, err)
	l := newRules(t, []ratelimit.Rule{
		{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(rounds)},
		{Name: "custom", Endpoint: "/", Limiter: inner},
	}, nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ids())
	atOnce(t, rounds, []*ratelimit.RateLimiter{l, l}, "/")
	require.Zero(t, inner.Peek("alice").Remaining, "one charge for each, and none too many")
	require.Zero(t, peekAt(t, l, "own", "alice").Remaining)
}

// atOnce sends requests with an ID each from 64 goroutines, which must get equal answers.
func atOnce(t *testing.T, rounds int, ls []*ratelimit.RateLimiter, endpoint string) {
	t.Helper()
	for round := range rounds {
		req := ratelimit.Request{Client: "alice", Endpoint: endpoint, ID: fmt.Sprint(round)}
		var results [64]ratelimit.Result
		var begin, all sync.WaitGroup
		begin.Add(1)
		for g := range results {
			all.Go(func() {
				begin.Wait()
				results[g], _ = ls[g%len(ls)].Check(context.Background(), req)
			})
		}
		begin.Done()
		all.Wait()
		require.True(t, results[0].Allowed)
		for _, res := range results {
			require.Equal(t, results[0], res, "round %d", round)
		}
	}
}
