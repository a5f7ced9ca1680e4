package verify

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A refuser is a custom limiter that does something and then denies.
type refuser func()

func (f refuser) Allow(key string) ratelimit.Result {
	res, _ := f.Take(context.Background(), key, 1)
	return res
}

func (f refuser) Take(_ context.Context, _ string, n int) (ratelimit.Result, error) {
	if n > 0 {
		f()
	}
	return ratelimit.Result{Limit: 1, RetryAfter: time.Minute}, nil
}

// TestGivenBackAtItsOwnRate proves that a request which a custom limiter denies gets the answers of
// its own tier, also if another request for the key had another tier meanwhile.
func TestGivenBackAtItsOwnRate(t *testing.T) {
	for _, a := range algorithmNames {
		var l *ratelimit.RateLimiter
		free := ratelimit.Request{Client: "a", Rules: []string{"ours"}}
		clock := ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "ours", Algorithm: a, Rate: ratelimit.PerHour(3), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(9)}},
			{Name: "custom", Limiter: refuser(func() {
				require.NoError(t, l.Reset(t.Context(), free))
				res, err := l.Check(t.Context(), free)
				require.NoError(t, err)
				require.True(t, res.Allowed)
			})},
		}, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		paid := ratelimit.Request{Client: "a", Tier: "paid", Rules: []string{"ours", "custom"}, Cost: 4}
		res, each, err := l.CheckAll(t.Context(), paid, nil)
		require.NoError(t, err)
		require.False(t, res.Allowed, a)
		require.Equal(t, 9, each[0].Limit, a)
		require.Less(t, each[0].RetryAfter, ratelimit.Never, "%s: 4 of 9, not of 3", a)
	}
}

// TestGivenBackIsNeverCounted reads the totals while a custom limiter decides. A total that counts a
// grant and takes it back would look to Prometheus as if it had begun again, and be added once more.
func TestGivenBackIsNeverCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		allowed := func() (sum uint64) {
			for _, s := range l.Stats() {
				sum += s.Allowed
			}
			return sum
		}
		asked := 0
		rules := []ratelimit.Rule{
			{Name: "ours", Rate: ratelimit.PerHour(9)},
			{Name: "shadow", Rate: ratelimit.PerHour(9), Mode: ratelimit.ModeShadow},
			{Name: "custom", Limiter: refuser(func() {
				asked++
				require.EqualValues(t, 2, allowed(), "ask %d", asked)
			})},
		}
		l, err := ratelimit.New(rules, nil)
		require.NoError(t, err)
		check := func(names ...string) bool {
			res, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Rules: names})
			require.NoError(t, err)
			return res.Allowed
		}
		require.True(t, check("ours", "shadow"))
		require.False(t, check("ours", "shadow", "custom"))
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second) // the second try is from the line
		defer cancel()
		_, err = l.Wait(ctx, ratelimit.Request{Client: "a", Rules: []string{"ours", "shadow", "custom"}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3, asked)
		require.EqualValues(t, 2, allowed())

		rules[2].Limiter = &gate{open: true}
		require.NoError(t, l.Replace(rules, nil))
		require.True(t, check("ours", "shadow", "custom"))
		require.EqualValues(t, 5, allowed(), "what is granted after all is counted")
	})
}

// TestGivenBackAtAPanic proves that the other rules get their units back if a custom limiter panics,
// and that a caller who waits for these is served.
func TestGivenBackAtAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		var waiting sync.WaitGroup
		rules := []ratelimit.Rule{
			{Name: "ours", Rate: ratelimit.PerHour(1)},
			{Name: "custom", Limiter: refuser(func() {
				waiting.Go(func() {
					_, err := l.Wait(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"ours"}})
					assert.NoError(t, err)
				})
				synctest.Wait()
				panic(errDead)
			})},
		}
		l, err := ratelimit.New(rules, nil)
		require.NoError(t, err)
		begun := time.Now()
		require.PanicsWithValue(t, errDead, func() {
			_, _ = l.Check(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"ours", "custom"}})
		})
		waiting.Wait()
		require.Zero(t, time.Since(begun), "at once")
		require.Equal(t, []ratelimit.RuleStats{{Rule: "ours", Allowed: 1, LiveKeys: 1}, {Rule: "custom"}}, l.Stats())
	})
}

// TestGivenBackFailsBesideARefusal proves that the caller hears of both errors if a custom limiter
// refuses the request and the store then does not give its units back.
func TestGivenBackFailsBesideARefusal(t *testing.T) {
	store := newLedgerStore(t, &manualClock{starts[0]})
	store.settles = errDead
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "ours", Rate: ratelimit.PerMinute(5)},
		{Name: "custom", Limiter: &scripted{err: ratelimit.ErrExceedsLimit}},
	}, nil, ratelimit.WithStore(store), ratelimit.WithName("n"), ratelimit.WithClock(&manualClock{starts[0]}))
	require.NoError(t, err)
	res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"ours", "custom"}})
	require.Zero(t, res)
	require.ErrorIs(t, err, ratelimit.ErrExceedsLimit)
	require.ErrorIs(t, err, errDead)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.Equal(t, []ratelimit.RuleStats{{Rule: "ours", Errors: 1}, {Rule: "custom"}}, func() []ratelimit.RuleStats {
		stats := l.Stats()
		stats[0].LiveKeys = 0
		return stats
	}())
}

// TestACustomLimiterInShadowDeniesNobody proves that the other rules stay charged if a custom limiter
// in shadow denies.
func TestACustomLimiterInShadowDeniesNobody(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "ours", Rate: ratelimit.PerHour(5)},
		{Name: "custom", Limiter: refuser(func() {}), Mode: ratelimit.ModeShadow},
	}, nil)
	require.NoError(t, err)
	for left := 4; left >= 0; left-- {
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"ours", "custom"}})
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.Equal(t, left, res.Remaining)
	}
	require.Equal(t, []ratelimit.RuleStats{{Rule: "ours", Allowed: 5, LiveKeys: 1}, {Rule: "custom", ShadowDenied: 5}}, l.Stats())
}
