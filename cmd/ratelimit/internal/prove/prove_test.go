package prove_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/prove"
)

// makeOf returns the function Make of a Setup with these rules.
func makeOf(rules []ratelimit.Rule, byDefault *ratelimit.Rule) func(...ratelimit.Option) (*ratelimit.RateLimiter, error) {
	return func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
		return ratelimit.New(rules, byDefault, opts...)
	}
}

func TestBounds(t *testing.T) {
	second := ratelimit.PerSecond
	rules := []ratelimit.Rule{
		{Endpoint: "/db", Rate: second(10), Algorithm: ratelimit.AlgorithmSlidingWindowLog},
		{Endpoint: "/edge", Rate: second(10), Algorithm: ratelimit.AlgorithmFixedWindow, Key: ratelimit.KeyGlobal},
		{Endpoint: "/tiers", Rate: second(10), Tiers: map[string]ratelimit.Rate{"paid": second(50)}, OnStoreError: ratelimit.FailOpen},
		{Endpoint: "/free", Rate: second(10), Tiers: map[string]ratelimit.Rate{"staff": ratelimit.Unlimited}},
		{Endpoint: "/turns", Rate: second(1), Key: ratelimit.KeyEndpoint, OnStoreError: ratelimit.FailLocal(4),
			Tiers: map[string]ratelimit.Rate{"a": second(10).WithBurst(60), "b": second(20).WithBurst(5)}},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: second(100).WithBurst(5),
			OnStoreError: ratelimit.FailClosed},
	}
	p := func(s prove.Setup) *prove.Prover {
		s.Make = makeOf(rules, nil)
		p, err := prove.New(s)
		require.NoError(t, err)
		return p
	}
	const interval = time.Second
	one, shared := p(prove.Setup{Replicas: 1}), p(prove.Setup{Replicas: 4, Shared: true, Policy: ratelimit.FailLocal(4)})
	for _, row := range []struct {
		why   string
		bound func(string, time.Duration) (prove.Bound, error)
		path  string
		most  int
		how   prove.How
		by    string
	}{
		{"a client is bounded by its log", one.Client, "/db", 10, prove.Reached, "/db"},
		{"clients are bounded by what they share", one.All, "/db", 104, prove.Exact, "all"},
		{"a window grants twice its limit around its edge; the bucket fills meanwhile", one.All, "/edge", 20, prove.Upper, "/edge"},
		{"the largest tier", one.Client, "/tiers", 99, prove.Upper, "/tiers"},
		{"tiers that take from one key: the burst of one, the rate of another", one.All, "/turns", 79, prove.Upper, "/turns"},
		{"a tier without a limit leaves the shared one", one.Client, "/free", 104, prove.Upper, "all"},
		{"four processes that share a store", shared.Client, "/db", 10, prove.Reached, "/db"},
		{"four that do not", p(prove.Setup{Replicas: 4}).Client, "/db", 40, prove.Reached, "/db"},
	} {
		got, err := row.bound(row.path, interval)
		require.NoError(t, err)
		require.Equal(t, row.most, got.Most, row.why)
		require.Equal(t, row.by, got.By, row.why)
		require.Equal(t, row.how, got.How, row.why)
	}
	for _, row := range []struct {
		path   string
		client bool
		most   int
	}{
		{"/db", true, 10}, // "all" is closed, so that nothing passes while the store is down
		{"/tiers", true, 99}, {"/db", false, 104},
	} {
		got, err := shared.Down(row.path, interval, row.client)
		require.NoError(t, err)
		require.Equal(t, row.most, got.Most, row.path)
	}
	rules = rules[:2]
	shared = p(prove.Setup{Replicas: 4, Shared: true, Policy: ratelimit.FailLocal(4), Lease: 7})
	got, err := shared.Down("/db", interval, true)
	require.NoError(t, err)
	require.Equal(t, 10+4*7+4*2, got.Most, "the store's, the leases, and in each process a fourth of ten, rounded down")
	got, err = shared.All("/db", interval)
	require.NoError(t, err)
	require.Equal(t, prove.Unlimited, got.Most)
	got, err = shared.All("/other", interval)
	require.NoError(t, err)
	require.Equal(t, prove.Unlimited, got.Most, "no rule applies")
}

// A brokenStore is a store that fails while it is told to.
type brokenStore struct {
	*ratelimit.MemoryStore
	broken bool
}

// Take fails while the store is broken.
func (s *brokenStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.broken {
		return nil, errors.New("broken")
	}
	return s.MemoryStore.Take(ctx, asks)
}

// A grant is a request that was let through.
type grant struct {
	at     int64
	client int
}

// mostIn returns the most grants in a half-open interval of the given length: of any client if client is -1.
func mostIn(all []grant, in time.Duration, client int) (most int) {
	var at []int64
	for _, g := range all {
		if client < 0 || g.client == client {
			at = append(at, g.at)
		}
	}
	for i, j := 0, 0; j < len(at); j++ {
		for at[j]-at[i] >= int64(in) {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}

// randomRules returns one to three rules that apply to /db.
func randomRules(r *rand.Rand) (rules []ratelimit.Rule) {
	keys := []ratelimit.KeyType{ratelimit.KeyUser, ratelimit.KeyIP, ratelimit.KeyGlobal, ratelimit.KeyEndpoint, ratelimit.KeyUserEndpoint}
	pers := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 500 * time.Millisecond}
	for i := range 1 + r.IntN(3) {
		rule := ratelimit.Rule{
			Name: fmt.Sprint(i), Endpoint: []string{"*", "/db"}[r.IntN(2)], Additional: true, Key: keys[r.IntN(len(keys))],
			Algorithm:    ratelimit.Algorithms()[r.IntN(5)],
			Rate:         ratelimit.Rate{Requests: 1 + r.IntN(12), Per: pers[r.IntN(len(pers))]},
			OnStoreError: []ratelimit.FailurePolicy{{}, ratelimit.FailClosed, ratelimit.FailLocal(2)}[r.IntN(3)],
		}
		if !rule.Algorithm.Windowed() && r.IntN(2) == 0 {
			rule.Rate.Burst = 1 + r.IntN(12)
		}
		if r.IntN(4) == 0 {
			rule.Tiers = map[string]ratelimit.Rate{"paid": {Requests: 1 + r.IntN(20), Per: rule.Rate.Per}}
		}
		rules = append(rules, rule)
	}
	return rules
}

// traffic sends random requests to processes that have the rules, and returns those that were let through. If outage is true,
// the store fails for some time, once.
func traffic(t *testing.T, r *rand.Rand, s prove.Setup, outage bool) (all []grant) {
	t.Helper()
	clock := ratelimit.NewFakeClock(time.Unix(1_790_000_000, r.Int64N(1e9)))
	opts := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithFailurePolicy(s.Policy)}
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	store := &brokenStore{MemoryStore: memory}
	if s.Shared {
		opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("x"))
	}
	var processes []*ratelimit.RateLimiter
	for range s.Replicas {
		l, err := s.Make(opts...)
		require.NoError(t, err)
		processes = append(processes, l)
	}
	const steps = 250
	from, to := r.IntN(steps), r.IntN(steps)
	for i := range steps {
		store.broken = outage && from <= i && i < to
		switch r.IntN(6) {
		case 0:
			clock.Advance(time.Duration(r.Int64N(int64(time.Second))))
		case 1: // to just before an edge, or to it
			now := clock.Now().UnixNano()
			clock.Advance(time.Duration(5e8 - now%5e8 - r.Int64N(2)))
		case 2:
			clock.Advance(time.Duration(r.Int64N(int64(50 * time.Millisecond))))
		}
		for range 1 + r.IntN(6) {
			client := r.IntN(3)
			res, _ := processes[r.IntN(len(processes))].Check(t.Context(), ratelimit.Request{ // an error comes with the answer of the policy
				Client: fmt.Sprint(client), IP: fmt.Sprint(client), Endpoint: "/db", Tier: []string{"", "paid"}[client%2],
			})
			if res.Allowed {
				all = append(all, grant{clock.Now().UnixNano(), client})
			}
		}
	}
	return all
}

// TestNoMoreThanProved compares the bounds for 2,000 random configs with what simulated processes let through, and plays each
// schedule that reaches a bound.
func TestNoMoreThanProved(t *testing.T) {
	reached, played, tight := 0, 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 26))
		rules := randomRules(r)
		s := prove.Setup{
			Make: makeOf(rules, nil), Replicas: 1 + r.IntN(3), Shared: r.IntN(3) > 0,
			Policy: []ratelimit.FailurePolicy{ratelimit.FailLocal(1), ratelimit.FailLocal(3), ratelimit.FailClosed}[r.IntN(3)],
		}
		p, err := prove.New(s)
		require.NoError(t, err)
		in := []time.Duration{time.Second, 500 * time.Millisecond, 2500 * time.Millisecond, 1}[r.IntN(4)]
		outage := s.Shared && r.IntN(2) == 0
		all := traffic(t, r, s, outage)
		for _, client := range []bool{true, false} {
			got, err := p.All("/db", in)
			if client {
				got, err = p.Client("/db", in)
			}
			require.NoError(t, err)
			if got.Schedule != nil {
				played++
				requireReaches(t, s, got, client)
			}
			if got.How == prove.Reached {
				reached++
			}
			if outage {
				got, err = p.Down("/db", in, client)
				require.NoError(t, err)
			}
			most := 0
			if client {
				for i := range 3 {
					most = max(most, mostIn(all, in, i))
				}
			} else {
				most = mostIn(all, in, -1)
			}
			require.LessOrEqual(t, most, got.Most, "seed %d, in %v, client %v, outage %v, %+v: %+v", seed, in, client, outage, rules, got)
			if most == got.Most {
				tight++
			}
		}
	}
	t.Logf("%d bounds of several rules reached, %d schedules played, %d bounds that random traffic has reached", reached, played, tight)
	require.Greater(t, played, 2000)
	require.Greater(t, reached, 500)
	require.Greater(t, tight, 500)
}

// requireReaches plays a schedule to a new limiter: each of its requests is granted, and their number is the bound.
func requireReaches(t *testing.T, s prove.Setup, b prove.Bound, client bool) {
	t.Helper()
	clock := ratelimit.NewFakeClock(b.Start)
	l, err := s.Make(ratelimit.WithClock(clock))
	require.NoError(t, err)
	n := 0
	for _, g := range b.Schedule {
		require.Less(t, g.At.Sub(b.Start), b.Length)
		clock.Set(g.At)
		for range g.N {
			req := ratelimit.Request{Client: "c", IP: "i", Endpoint: "/db"}
			if !client {
				req.Client, req.IP = fmt.Sprint(n), fmt.Sprint(n)
			}
			res, err := l.Check(t.Context(), req)
			require.NoError(t, err)
			require.True(t, res.Allowed)
			n++
		}
	}
	if !s.Shared {
		n *= s.Replicas
	}
	require.Equal(t, b.Most, n)
}
