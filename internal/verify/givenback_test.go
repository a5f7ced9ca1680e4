package verify

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
