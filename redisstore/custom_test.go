package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// models are the models of the algorithms.
var models = map[ratelimit.Algorithm]func(time.Time, ratelimit.Rate) ratelimittest.Model{
	ratelimit.AlgorithmTokenBucket:          ratelimittest.TokenBucketModel,
	ratelimit.AlgorithmLeakyBucket:          ratelimittest.LeakyBucketModel,
	ratelimit.AlgorithmFixedWindow:          ratelimittest.FixedWindowModel,
	ratelimit.AlgorithmSlidingWindowCounter: ratelimittest.SlidingWindowCounterModel,
	ratelimit.AlgorithmSlidingWindowLog:     ratelimittest.SlidingWindowLogModel,
}

// A charged is a request that was granted.
type charged struct {
	at time.Time
	n  int
}

// A denying plays requests to three rules: one for each client, one for all, and a custom limiter
// that makes further requests before it answers.
type denying struct {
	t      *testing.T
	r      *rand.Rand
	a      ratelimit.Algorithm
	rates  map[string]ratelimit.Rate // by rule
	l      *ratelimit.RateLimiter
	clock  *ratelimit.FakeClock
	start  time.Time
	ledger map[string][]*charged // by rule and client
	decide func() bool
	depth  int
	steps  int

	returned, kept int
}

// Take makes a denying the custom limiter of its rules.
func (s *denying) Take(_ context.Context, _ string, n int) (ratelimit.Result, error) {
	if n == 0 || s.decide() {
		return ratelimit.Result{Allowed: true, Limit: 1 << 30, Remaining: 1 << 30}, nil
	}
	return ratelimit.Result{Limit: 1, RetryAfter: time.Hour}, nil
}

// Allow is not used.
func (s *denying) Allow(string) ratelimit.Result { return ratelimit.Result{} }

// look returns what the model of a rule's key says of n units: it replays what is charged.
func (s *denying) look(rule, client string, n int) ratelimit.Result {
	m := models[s.a](s.start, s.rates[rule])
	for _, c := range s.ledger[rule+client] {
		require.True(s.t, m.Ask(c.at, c.n).Allowed, "what was granted is granted without what was given back")
	}
	if n > 1 {
		return m.Ask(s.clock.Now(), n)
	}
	return m.Ask(s.clock.Now(), 0)
}

// request asks for n units, beside the custom limiter if inner is not nil.
func (s *denying) request(client string, n int, inner func() bool) {
	rules, entered := []string{"own", "all"}, false
	fits := s.look("own", client, n).Allowed && s.look("all", "", n).Allowed
	mine := &charged{s.clock.Now(), n}
	enter := func() {
		entered = true
		require.True(s.t, fits, "granted by the rules")
		s.ledger["own"+client] = append(s.ledger["own"+client], mine)
		s.ledger["all"] = append(s.ledger["all"], mine)
	}
	if inner != nil {
		rules = append(rules, "custom")
		s.decide = func() bool {
			enter()
			return inner()
		}
	}
	res, err := s.l.Check(s.t.Context(), ratelimit.Request{Client: client, Rules: rules, Cost: n})
	require.NoError(s.t, err)
	switch {
	case inner == nil && res.Allowed:
		enter()
	case entered && !res.Allowed:
		s.returned++
		for _, key := range []string{"own" + client, "all"} {
			for i, c := range s.ledger[key] {
				if c == mine {
					s.ledger[key] = append(s.ledger[key][:i:i], s.ledger[key][i+1:]...)
					break
				}
			}
		}
	case entered:
		s.kept++
	default:
		require.False(s.t, fits, "denied by the rules")
	}
}

func (s *denying) step() {
	if s.steps == 0 {
		return
	}
	s.steps--
	client := fmt.Sprint("c", s.r.IntN(3))
	switch act := s.r.IntN(20); {
	case act < 8 && s.depth < 4:
		s.depth++
		grant, steps := s.r.IntN(3) == 0, s.r.IntN(5)
		s.request(client, 1+s.r.IntN(3), func() bool {
			for range steps {
				s.step()
			}
			return grant
		})
		s.depth--
	case act < 12:
		s.request(client, 1+s.r.IntN(3), nil)
	case act < 16:
		s.clock.Advance(time.Duration(s.r.IntN(997)) * time.Microsecond)
	case act == 16:
		require.NoError(s.t, s.l.Reset(s.t.Context(), ratelimit.Request{Client: client}))
		delete(s.ledger, "own"+client)
	}
	for _, key := range [][2]string{{"own", client}, {"all", ""}} {
		got, err := s.l.Peek(s.t.Context(), ratelimit.Request{Client: client, Rules: []string{key[0]}})
		require.NoError(s.t, err)
		want := s.look(key[0], key[1], 1)
		require.Equal(s.t, []any{want.Allowed, want.Remaining, ceil(want.RetryAfter)}, []any{got.Allowed, got.Remaining, got.RetryAfter},
			"%s at %v: it is as if nothing that was given back had been charged", key[0], s.clock.Now().Sub(s.start))
	}
}

// denyAtRandom has a custom limiter deny what a store on client has granted, for as many random
// steps of each algorithm.
func denyAtRandom(t *testing.T, client redis.UniversalClient, steps int) {
	for i, a := range all {
		s := &denying{t: t, r: rand.New(rand.NewPCG(uint64(i), 12)), a: a, start: time.Unix(1772323200, 0)}
		for done := 0; done < steps; done += 60 {
			s.clock = ratelimit.NewFakeClock(s.start)
			own, all := ratelimit.Rate{Requests: 3, Per: 997 * time.Microsecond}, ratelimit.Rate{Requests: 7, Per: 997 * time.Microsecond}
			if a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket {
				own.Burst, all.Burst = 5, 9
			}
			s.rates, s.ledger, s.steps = map[string]ratelimit.Rate{"own": own, "all": all}, make(map[string][]*charged), 60
			var err error
			s.l, err = ratelimit.New([]ratelimit.Rule{
				{Name: "own", Endpoint: "*", Algorithm: a, Rate: own},
				{Name: "all", Algorithm: a, Rate: all, Key: ratelimit.KeyGlobal},
				{Name: "custom", Limiter: s},
			}, nil, ratelimit.WithClock(s.clock), ratelimit.WithName(fmt.Sprint(a, done)),
				ratelimit.WithStore(newStore(t, client, redisstore.WithClock(s.clock), redisstore.WithDenialCache(0))))
			require.NoError(t, err)
			for s.steps > 0 {
				s.step()
			}
		}
		require.Positive(t, s.returned)
		t.Logf("%s: %d steps, %d requests kept, %d given back, nothing lost, nothing forgiven", a, steps, s.kept, s.returned)
	}
}

// soaked returns n, or many with RATELIMIT_SOAK=1.
func soaked(n, many int) int {
	if os.Getenv("RATELIMIT_SOAK") == "1" {
		return many
	}
	return schedules(n)
}

// TestCustomLimiterBesideRedis has a custom limiter deny what Redis has granted, at random, and
// compares all keys with models that replay what was not given back.
func TestCustomLimiterBesideRedis(t *testing.T) {
	t.Parallel()
	t.Run("standalone", func(t *testing.T) { denyAtRandom(t, startReal(t).client(t), soaked(1500, 20_040)) })
	t.Run("cluster", func(t *testing.T) {
		_, client := startCluster(t)
		denyAtRandom(t, client, soaked(480, 20_040))
	})
}

// A picky is a custom limiter that denies every other request.
type picky struct{ asked atomic.Int64 }

func (c *picky) Take(context.Context, string, int) (ratelimit.Result, error) {
	if c.asked.Add(1)%2 == 0 {
		return ratelimit.Result{Allowed: true, Limit: 9, Remaining: 9}, nil
	}
	return ratelimit.Result{Limit: 9, RetryAfter: time.Hour}, nil
}

// Allow is not used.
func (*picky) Allow(string) ratelimit.Result { return ratelimit.Result{} }

// TestCustomLimiterInACrowd has many requests at the same time of which a custom limiter denies
// every other. What is charged in the end is what was granted.
func TestCustomLimiterInACrowd(t *testing.T) {
	const callers, requests = 16, 25
	client := startReal(t).client(t)
	for _, a := range all {
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "own", Endpoint: "/", Algorithm: a, Rate: ratelimit.PerDay(10_000)},
			{Name: "all", Endpoint: "/", Algorithm: a, Rate: ratelimit.PerDay(10_000), Key: ratelimit.KeyGlobal},
			{Name: "custom", Endpoint: "/", Limiter: new(picky)},
		}, nil, ratelimit.WithStore(newStore(t, client, frozen(), redisstore.WithDenialCache(0))), ratelimit.WithName(string(a)))
		require.NoError(t, err)
		var all sync.WaitGroup
		var granted atomic.Int64
		for range callers {
			all.Go(func() {
				for range requests {
					res, err := l.Check(context.Background(), ratelimit.Request{Client: "c", Endpoint: "/", Cost: 2})
					assert.NoError(t, err)
					if res.Allowed {
						granted.Add(2)
					}
				}
			})
		}
		all.Wait()
		require.EqualValues(t, callers*requests, granted.Load(), a)
		for _, rule := range []string{"own", "all"} {
			res, err := l.Peek(context.Background(), ratelimit.Request{Client: "c", Rules: []string{rule}})
			require.NoError(t, err)
			require.Equal(t, 10_000-callers*requests, res.Remaining, "%s, %s", a, rule)
		}
	}
}
