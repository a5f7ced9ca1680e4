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

// TestManyResolvedRates asks at more rates than a rule keeps. The rates that are too many
// must be refused, with the rule's own rate in their place. The earlier rates must still be
// granted. A rate that is equal to another in lowest terms does not count.
func TestManyResolvedRates(t *testing.T) {
	const (
		most  = 1 << 16
		prime = 1e9 + 7 // nanoseconds, so that no two rates are equal in lowest terms
	)
	requests := 0
	l, err := ratelimit.New([]ratelimit.Rule{{
		Name: "r", Endpoint: "/", Rate: ratelimit.PerHour(7),
		Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
			return ratelimit.Rate{Requests: requests, Per: prime, Burst: requests}, true
		},
	}}, nil, ratelimit.WithClock(&manualClock{starts[0]}))
	require.NoError(t, err)
	ask := func(n int) (ratelimit.Result, error) {
		requests = n
		return l.Check(context.Background(), ratelimit.Request{Client: fmt.Sprint(n % 1000), Endpoint: "/"})
	}
	refused := 0
	for n := 1; n <= most+10; n++ {
		res, err := ask(n)
		if err == nil {
			require.Equal(t, n, res.Limit)
			continue
		}
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.Equal(t, 7, res.Limit, "the rule's own rate stands in")
		refused++
	}
	require.Equal(t, 10, refused, "requests can have 65,536 rates besides the rule's own")
	for _, n := range []int{1, 7, most - 1} {
		res, err := ask(n)
		require.NoError(t, err)
		require.Equal(t, n, res.Limit)
	}
	require.NoError(t, l.UpdateRate("r", ratelimit.PerHour(8)))
	res, err := ask(most + 10)
	require.NoError(t, err, "the rates are counted from one change of the rule to the next")
	require.Equal(t, most+10, res.Limit)
}
