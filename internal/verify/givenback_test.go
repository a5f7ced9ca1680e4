package verify

import (
	"context"
	"testing"
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
