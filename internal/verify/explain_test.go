package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A twin is one of two RateLimiters with the same rules, which get the same requests at the same
// instants. Only one of them explains.
type twin struct {
	*ratelimit.RateLimiter
	clock *ratelimit.FakeClock
	store *flakyStore
	told  []ratelimit.Decision
}

func (w *twin) Observe(_ context.Context, d ratelimit.Decision) {
	d.Took = 0
	w.told = append(w.told, d)
}

// A flakyStore is a MemoryStore that fails while it is down.
type flakyStore struct {
	*ratelimit.MemoryStore
	down  bool
	knows bool // whether it accepts a Look
}

func (s *flakyStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.down {
		return nil, errDead
	}
	return s.MemoryStore.Take(ctx, asks)
}

func (s *flakyStore) Once(ctx context.Context, once ratelimit.Attempt, asks []ratelimit.Ask) ([]ratelimit.Result, bool, error) {
	if s.down {
		return nil, false, errDead
	}
	return s.MemoryStore.Once(ctx, once, asks)
}

func (s *flakyStore) Accepts(a ratelimit.Ask) error {
	if a.Look && !s.knows {
		return errors.New("what is a Look?")
	}
	return s.MemoryStore.Accepts(a)
}

// A moody limiter answers the same whatever it is asked for, and otherwise at another time.
type moody struct{ clock *ratelimit.FakeClock }

func (m moody) Allow(key string) ratelimit.Result {
	res, _ := m.Take(context.Background(), key, 1)
	return res
}

func (m moody) Take(_ context.Context, key string, _ int) (ratelimit.Result, error) {
	switch now := m.clock.Now().UnixNano() + int64(len(key)); now % 7 {
	case 0, 1, 2:
		return ratelimit.Result{Limit: 9, RetryAfter: time.Duration(now%5 + 1), ResetAfter: 8}, nil
	case 3:
		return ratelimit.Result{}, errDead
	default:
		return ratelimit.Result{Allowed: true, Limit: 9, Remaining: int(now % 3), ResetAfter: 3, Delay: time.Duration(now % 2)}, nil
	}
}

// An explained is a schedule of requests for twins.
type explained struct {
	*rand.Rand
	few, stored, flaky, watched, custom bool
	dense                               bool // most requests for one key, each at another instant
	rules                               []ratelimit.Rule
	turns                               int
	explains, asks                      twin
}

func (x *explained) oneIn(n int) bool { return x.IntN(n) == 0 }

func someOf[V any](x *explained, of []V) V { return of[x.IntN(len(of))] }

// rate returns a rate of a; all have the same Per.
func (x *explained) rate(a ratelimit.Algorithm) ratelimit.Rate {
	r := ratelimit.Rate{Requests: 1 + x.IntN(6), Per: 10}
	if x.dense {
		r.Requests += 6
	}
	if a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket {
		r.Per, r.Burst = time.Duration(7+x.IntN(9)), 1+x.IntN(6)
	}
	return r
}

// drawRules draws 1 to 5 rules, the last of which may be the default.
func (x *explained) drawRules() {
	for i := range 1 + x.IntN(5) {
		r := ratelimit.Rule{Name: fmt.Sprint("r", i), Endpoint: someOf(x, patterns[:9]), Key: someOf(x, keyTypes), Algorithm: someOf(x, algorithmNames)}
		r.Rate = x.rate(r.Algorithm)
		r.OnStoreError = someOf(x, []ratelimit.FailurePolicy{{}, ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.FailLocal(2)})
		if x.oneIn(4) {
			r.Mode = ratelimit.ModeShadow
		}
		r.Additional = x.oneIn(4)
		if x.oneIn(3) {
			r.Tiers = map[string]ratelimit.Rate{"paid": x.rate(r.Algorithm), "free": x.rate(r.Algorithm), "own": ratelimit.Unlimited}
		}
		if x.oneIn(4) {
			rates := []ratelimit.Rate{x.rate(r.Algorithm), x.rate(r.Algorithm), {}, ratelimit.Unlimited}
			r.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
				return rates[len(req.Client)%4], len(req.Endpoint)%3 > 0
			}
		}
		x.rules = append(x.rules, r)
	}
	x.custom = x.oneIn(3)
}

// start makes w.
func (x *explained) start(t *testing.T, w *twin) {
	w.clock = ratelimit.NewFakeClock(time.Unix(1_700_000_000, 0))
	opts := []ratelimit.Option{ratelimit.WithClock(w.clock)}
	if x.few {
		opts = append(opts, ratelimit.WithMaxKeys(2))
	}
	if x.stored {
		memory, err := ratelimit.NewMemoryStore(opts...)
		require.NoError(t, err)
		w.store = &flakyStore{MemoryStore: memory, knows: true}
		opts = append(opts, ratelimit.WithStore(w.store), ratelimit.WithName("n"))
	}
	if x.watched {
		opts = append(opts, ratelimit.WithObserver(w))
	}
	rules := slices.Clone(x.rules)
	if x.custom {
		r := &rules[0]
		r.Limiter, r.Algorithm, r.Rate, r.Tiers, r.Resolve = moody{w.clock}, "", ratelimit.Rate{}, nil, nil
		if r.OnStoreError == ratelimit.FailLocal(2) {
			r.OnStoreError = ratelimit.FailurePolicy{}
		}
	}
	var fallback *ratelimit.Rule
	if last := len(rules) - 1; last > 0 && !rules[last].Additional && x.rules[last].Rate.Requests%2 == 0 {
		fallback, rules = &rules[last], rules[:last]
		fallback.Endpoint = ""
	}
	var err error
	w.RateLimiter, err = ratelimit.New(rules, fallback, opts...)
	require.NoError(t, err)
}

// change changes something of both twins: the clock, a rate, a key, or whether the store answers.
func (x *explained) change(t *testing.T) {
	if x.dense {
		x.explains.clock.Advance(1)
		x.asks.clock.Advance(1)
	}
	d, rule, client := time.Duration(x.IntN(12)), someOf(x, x.rules), someOf(x, clients)
	rate, what, down := x.rate(rule.Algorithm), x.IntN(20), x.oneIn(2)
	for _, w := range []*twin{&x.explains, &x.asks} {
		switch {
		case what == 0 && rule.Name != x.rules[0].Name:
			_ = w.UpdateRate(rule.Name, rate)
		case what == 1:
			_ = w.Reset(t.Context(), ratelimit.Request{Client: client})
		case what == 2:
			w.clock.Advance(-d)
		case what == 3 && x.flaky:
			w.store.down = down
		case what < 12:
			w.clock.Advance(d)
		}
	}
}

// step explains a request, and then both twins decide on it.
func (x *explained) step(t *testing.T, counts map[string]int) {
	req := ratelimit.Request{
		Client: someOf(x, clients), Endpoint: someOf(x, endpoints), IP: someOf(x, addresses),
		Tier: someOf(x, []string{"", "paid", "free", "own", "none"}), Cost: x.IntN(4),
	}
	if x.dense {
		req = ratelimit.Request{Client: "ann", Endpoint: "/a", Cost: 1}
	}
	if x.oneIn(5) {
		req.Rules = []string{someOf(x, x.rules).Name, someOf(x, x.rules).Name}
	}
	stats, storeStats, told := x.explains.Stats(), x.explains.StoreStats(), len(x.explains.told)
	said, err := x.explains.Explain(t.Context(), req)
	again, _ := x.explains.Explain(t.Context(), req)
	require.Equal(t, said, again)
	require.Equal(t, stats, x.explains.Stats())
	require.Equal(t, storeStats, x.explains.StoreStats())
	require.Len(t, x.explains.told, told)

	res, each, problem := x.decide(t, &x.explains, req)
	require.Equal(t, fmt.Sprint(problem), fmt.Sprint(err), "%+v", req)
	require.Equal(t, res, said.Result, "%+v\n%+v", req, said)
	var alone []ratelimit.Result
	for _, r := range said.Rules {
		counts[string(r.AnsweredBy)]++
		counts[string(r.RateFrom)]++
		counts[r.Match]++
		if r.Mode != ratelimit.ModeShadow {
			alone = append(alone, r.Result)
		}
	}
	if each != nil {
		require.Equal(t, each, alone, "%+v\n%+v", req, said)
	}
	x.compareTold(t, said, x.explains.told)
	readBack(t, said)
	counts["requests"]++
	if !x.flaky { // the pauses of breakers are random
		wanted, _, _ := x.decide(t, &x.asks, req)
		require.Equal(t, wanted, res, "%+v", req)
		require.Equal(t, x.asks.told, x.explains.told)
	}
	x.explains.told, x.asks.told, x.turns = nil, nil, x.turns+1
}

// decide has w decide, by Check or by CheckAll.
func (x *explained) decide(t *testing.T, w *twin, req ratelimit.Request) (ratelimit.Result, []ratelimit.Result, error) {
	if x.turns%2 == 0 {
		res, err := w.Check(t.Context(), req)
		return res, nil, err
	}
	return w.CheckAll(t.Context(), req, nil)
}

// compareTold requires that what the observer was told says the same.
func (x *explained) compareTold(t *testing.T, said ratelimit.Explanation, told []ratelimit.Decision) {
	for _, d := range told {
		i := slices.IndexFunc(said.Rules, func(r ratelimit.RuleExplanation) bool { return r.Name == d.Rule })
		if i < 0 {
			continue // no rule applies
		}
		r := said.Rules[i]
		require.Equal(t, d.Rate, r.Rate)
		require.Equal(t, d.Tier != "", r.RateFrom == "tier")
		if d.Mode == ratelimit.ModeShadow {
			require.Equal(t, d.Result, r.Result)
		}
	}
}

// readBack requires that said is the same after it was written to JSON, but for errors and for bytes
// that are not UTF-8.
func readBack(t *testing.T, said ratelimit.Explanation) {
	data, err := json.Marshal(said)
	require.NoError(t, err)
	var back ratelimit.Explanation
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, said.Result, back.Result)
	for i, r := range said.Rules {
		r.Key, r.Err, back.Rules[i].Err = back.Rules[i].Key, nil, nil
		require.Equal(t, r, back.Rules[i])
	}
}

// TestExplain requires that Explain says what Check then answers, rule by rule, and that it changes
// nothing: a twin that is never explained answers the same.
func TestExplain(t *testing.T) {
	worlds := 400
	switch {
	case os.Getenv("RATELIMIT_SOAK") == "1":
		worlds = 6000
	case raceEnabled:
		worlds = 100
	}
	counts := make(map[string]int)
	for seed := range worlds {
		x := &explained{Rand: rand.New(rand.NewPCG(uint64(seed), 12))}
		x.few, x.stored, x.watched = x.oneIn(2), x.oneIn(3), x.oneIn(2)
		x.dense = x.oneIn(8)
		x.flaky = x.stored && x.oneIn(3)
		x.drawRules()
		x.start(t, &x.explains)
		x.start(t, &x.asks)
		for range 40 {
			x.change(t)
			x.step(t, counts)
		}
		require.True(t, x.flaky || slices.Equal(x.asks.Stats(), x.explains.Stats()))
	}
	t.Log(counts)
	for _, what := range []string{
		"own", "unseen", "shared", "store", "policy", "limiter", "unlimited",
		"rule", "tier", "resolve", "exact", "prefix", "default", "named", "additional",
	} {
		require.NotZero(t, counts[what], what)
	}
}

// TestExplainBehindOthers: while a caller waits for its own key, an explanation or a look for another
// tier does not bring a key that nobody waits for to the rate of that tier.
func TestExplainBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := map[string]ratelimit.Rate{"slow": ratelimit.PerHour(10)}
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "own", Endpoint: "/a", Rate: ratelimit.PerSecond(1)},
			{Name: "all", Endpoint: "/a", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(10), Tiers: slow},
		}, nil)
		require.NoError(t, err)
		ann, all := ratelimit.Request{Client: "ann", Endpoint: "/a"}, ratelimit.Request{Rules: []string{"all"}, Cost: 9}
		for _, req := range []ratelimit.Request{ann, all} {
			res, err := l.Check(t.Context(), req)
			require.NoError(t, err)
			require.True(t, res.Allowed)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, err := l.Wait(t.Context(), ratelimit.Request{Client: "ann", Rules: []string{"own"}})
			assert.NoError(t, err)
		})
		synctest.Wait()
		<-time.After(time.Second / 2)
		ann.Tier = "slow"
		stats := l.Stats()
		e, err := l.Explain(t.Context(), ann)
		require.NoError(t, err)
		require.EqualValues(t, "tier", e.Rules[1].RateFrom)
		require.False(t, e.Result.Allowed)
		_, err = l.Peek(t.Context(), ann)
		require.NoError(t, err)
		require.Equal(t, stats, l.Stats())
		left, err := l.Peek(t.Context(), all)
		require.NoError(t, err)
		require.Equal(t, 5, left.Remaining, "what half a second has earned at the rule's own rate")
		waiting.Wait()
	})
}
