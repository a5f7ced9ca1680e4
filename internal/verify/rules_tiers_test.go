package verify

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// tierNames are the tiers of requests. No rule knows the last of them.
var tierNames = []string{"", "free", "paid", "gold", "unknown"}

// drawTiers returns rates that a rule may have in addition to its own.
func drawTiers(t *rapid.T, r bookRule, names []string) map[string]ratelimit.Rate {
	tiers := make(map[string]ratelimit.Rate)
	for _, name := range names {
		tiers[name] = drawRate(t, r.Algorithm)
		if !named(r.Algorithm).bucket {
			tiers[name] = ratelimit.Rate{Requests: rapid.IntRange(1, 9).Draw(t, "requests"), Per: r.Rate.Per}
		}
	}
	return tiers
}

// drawTieredRules returns rules, most of which have several rates: by client if steady is
// true, and otherwise by tier.
func drawTieredRules(t *rapid.T, steady bool) (rules []bookRule) {
	rules = drawRules(t)
	for i := range rules {
		r := &rules[i]
		r.Tiers, r.Resolve = nil, nil
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		switch {
		case kind == 0:
		case steady:
			r.Key = rapid.SampledFrom([]ratelimit.KeyType{ratelimit.KeyUser, ratelimit.KeyUserEndpoint}).Draw(t, "key")
			rates := drawTiers(t, *r, clients[1:])
			r.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
				rate, ok := rates[req.Client]
				return rate, ok
			}
		case kind == 1:
			r.Tiers = drawTiers(t, *r, tierNames[1:4])
		default:
			r.Tiers = drawTiers(t, *r, tierNames[:2])
			rates := drawTiers(t, *r, tierNames[1:3])
			r.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
				rate, ok := rates[req.Tier]
				return rate, ok
			}
		}
	}
	return rules
}

// playTiers plays random schedules on rules of several rates.
func playTiers(t *testing.T, steady bool) {
	schedules, total := 0, make(map[string]int)
	rapid.Check(t, func(t *rapid.T) {
		b := newTable(t, rapid.SampledFrom(starts[:5]).Draw(t, "made"), drawTieredRules(t, steady))
		b.few = !steady || rapid.Bool().Draw(t, "few keys")
		b.free = b.few && rapid.Bool().Draw(t, "back")
		if !steady {
			b.book.open, b.tiers = newTiered, tierNames
		}
		for range stepsEach {
			b.ask(t)
		}
		schedules++
		for what, n := range b.counts {
			total[what] += n
		}
	})
	t.Logf("%d schedules, %d calls %v: 0 counterexamples", schedules, schedules*stepsEach, total)
	require.GreaterOrEqual(t, schedules, wantChecks())
}

// TestPropertiesOfTiers gives each client a rate that it keeps. Every answer must be the
// one that follows from the models at those rates.
func TestPropertiesOfTiers(t *testing.T) {
	t.Parallel()
	playTiers(t, true)
}

// TestPropertiesOfChangingTiers asks for the same keys at rates that change without notice.
// A key must keep what it has used, and the time since it was written must count at the
// slower rate. A look is answered the same, and changes nothing.
func TestPropertiesOfChangingTiers(t *testing.T) {
	t.Parallel()
	playTiers(t, false)
}

// TestInvalidResolvedRates requires that a rule whose Resolve returns an invalid rate
// decides by its own rate, and reports an error.
func TestInvalidResolvedRates(t *testing.T) {
	for _, a := range algorithms {
		for _, wrong := range []ratelimit.Rate{
			{}, {Requests: -1, Per: time.Second}, {Requests: 1, Per: -time.Second},
			{Requests: 1, Per: time.Minute, Burst: -1}, {Requests: 2, Per: time.Hour},
		} {
			if a.bucket && wrong.Validate() == nil {
				continue // only a window must keep its Per
			}
			clock := &manualClock{starts[0]}
			own := ratelimit.Rate{Requests: 3, Per: time.Minute}
			model := a.model(starts[0], own)
			l, err := ratelimit.New([]ratelimit.Rule{{
				Name: "r", Endpoint: "/", Algorithm: ratelimit.Algorithm(a.name), Rate: own,
				Tiers:   map[string]ratelimit.Rate{"t": {Requests: 9, Per: time.Minute}},
				Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return wrong, true },
			}}, nil, ratelimit.WithClock(clock))
			require.NoError(t, err)
			for i := range 5 {
				res, err := l.Check(context.Background(), ratelimit.Request{Endpoint: "/", Tier: "t"})
				require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%s at %#v", a.name, wrong)
				want := model.Ask(clock.now, 1)
				want.Rule = "r"
				require.Equal(t, want, res, "%s at %#v, ask %d", a.name, wrong, i)
			}
			want := model.Ask(clock.now, 1)
			want.Rule = "r"
			require.Equal(t, want, l.Allow("", "/"), "Allow returns no error, only the result")
		}
	}
}

// mostRates is how many different rates from Resolve the keys of a rule can have.
const mostRates = 1 << 16

// A resolver is a rule whose Resolve returns a rate of the given number of requests. No two
// of these rates are equal in lowest terms.
type resolver struct {
	limiter  *ratelimit.RateLimiter
	clock    *manualClock
	requests int
}

func newResolver(t *testing.T, opts ...ratelimit.Option) *resolver {
	const prime = 1e9 + 7 // nanoseconds
	r := &resolver{clock: &manualClock{starts[0]}}
	var err error
	r.limiter, err = ratelimit.New([]ratelimit.Rule{{
		Name: "r", Endpoint: "/", Rate: ratelimit.PerHour(7),
		Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
			return ratelimit.Rate{Requests: r.requests, Per: prime, Burst: r.requests}, true
		},
	}}, nil, append(opts, ratelimit.WithClock(r.clock))...)
	require.NoError(t, err)
	return r
}

// ask asks for n units of a client at a rate of this many requests.
func (r *resolver) ask(client any, requests, n int) (ratelimit.Result, error) {
	r.requests = requests
	return r.limiter.Check(context.Background(), ratelimit.Request{Client: fmt.Sprint(client), Endpoint: "/", Cost: n})
}

// TestManyResolvedRates asks at more rates than the keys of a rule can have. All of them must
// be granted, because few are in use at a time, and a key must keep what it has used.
func TestManyResolvedRates(t *testing.T) {
	oneGoroutine(t)
	for _, name := range []string{"in this process", "in a store"} {
		t.Run(name, func(t *testing.T) {
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(&manualClock{starts[0]}))
			require.NoError(t, err)
			opts := map[string][]ratelimit.Option{"in a store": {ratelimit.WithStore(store), ratelimit.WithName("test")}}[name]
			r := newResolver(t, opts...)
			first, err := r.ask("first", 5, 3)
			require.NoError(t, err)
			for n := 1; n <= 2*mostRates+10; n++ {
				res, err := r.ask(n%1000, n, 1)
				require.NoError(t, err)
				require.Equal(t, n, res.Limit)
			}
			again, err := r.ask("first", 5, 1)
			require.NoError(t, err)
			first.Remaining--
			first.ResetAfter = again.ResetAfter
			require.Equal(t, first, again, "the key has 1 of 5 left")
			again, err = r.ask("first", 5, 2)
			require.NoError(t, err)
			require.False(t, again.Allowed)
		})
	}
}

// TestManyResolvedRatesWaitedFor is TestManyResolvedRates for callers of Wait.
func TestManyResolvedRatesWaitedFor(t *testing.T) {
	r := newResolver(t)
	for r.requests = 1; r.requests <= mostRates+10; r.requests++ {
		r.clock.now = r.clock.now.Add(2 * time.Second) // so that the client owes nothing
		res, err := r.limiter.Wait(context.Background(), ratelimit.Request{Client: "c", Endpoint: "/"})
		require.NoError(t, err)
		require.Equal(t, r.requests, res.Limit)
	}
}

// TestManyResolvedRatesWithoutStore is TestManyResolvedRates for a rule whose store fails.
func TestManyResolvedRatesWithoutStore(t *testing.T) {
	oneGoroutine(t)
	r := newResolver(t, ratelimit.WithStore(&emptyStore{fails: true}), ratelimit.WithName("test"))
	for n := 1; n <= mostRates+10; n++ {
		res, err := r.ask(n%1000, n+10, 1)
		require.ErrorIs(t, err, errDead)
		require.NotErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.Equal(t, [2]int{n + 10, n + 9}, [2]int{res.Limit, res.Remaining})
		r.clock.now = r.clock.now.Add(2 * time.Second) // so that the client owes nothing
	}
}

// TestTooManyResolvedRates asks at as many rates as the keys of a rule can have, each for a
// key of its own that owes something. A further rate is refused, with the rule's own rate in
// its place. When the keys owe nothing any more, new rates are granted again, but not at once:
// the search for rates that no key uses visits all keys, so it is made after each 16,384 new
// rates.
func TestTooManyResolvedRates(t *testing.T) {
	r := newResolver(t)
	for n := 1; n <= mostRates; n++ {
		res, err := r.ask(n, n, 1)
		require.NoError(t, err)
		require.Equal(t, n, res.Limit)
	}
	refused := 0
	refuse := func(client any, requests int) bool {
		res, err := r.ask(client, requests, 1)
		if err == nil {
			require.Equal(t, requests, res.Limit)
			return false
		}
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.Equal(t, 7, res.Limit, "the rule's own rate stands in")
		refused++
		return true
	}
	require.True(t, refuse("new", mostRates+1))
	require.False(t, refuse(mostRates, mostRates), "the rates in use are granted")
	require.Equal(t, uint64(0), r.limiter.Stats()[0].Evicted)
	r.clock.now = r.clock.now.Add(time.Hour)
	for n := 2; refuse("new", mostRates+n); n++ {
		require.Less(t, n, mostRates)
	}
	require.Equal(t, mostRates/4-mostRates/64+1, refused)
	require.Equal(t, uint64(mostRates), r.limiter.Stats()[0].Evicted, "all but the key that was charged last")
	require.NoError(t, r.limiter.UpdateRate("r", ratelimit.PerHour(8)))
	require.False(t, refuse("other", 2*mostRates))
}

// TestTooManyRatesInAStore asks a MemoryStore at more rates than the keys of a rule can have
// while all keys owe something. It must not decide by another rate in silence.
func TestTooManyRatesInAStore(t *testing.T) {
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(&manualClock{starts[0]}))
	require.NoError(t, err)
	take := func(n int) (ratelimit.Result, error) {
		res, err := store.Take(context.Background(), []ratelimit.Ask{{
			Rule: "r", Key: fmt.Sprint(n), Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.Rate{Requests: n, Per: 1e9 + 7}, N: 1,
		}})
		if err != nil {
			return ratelimit.Result{}, err
		}
		return res[0], nil
	}
	for n := 1; n <= mostRates; n++ {
		res, err := take(n)
		require.NoError(t, err)
		require.Equal(t, n, res.Limit)
	}
	_, err = take(mostRates + 1)
	require.EqualError(t, err, "ratelimit: rate is 65537/1000000007ns: must be one of the 65,536 rates that a rule has at most")
	res, err := take(mostRates)
	require.NoError(t, err)
	require.Equal(t, mostRates, res.Limit)
}
