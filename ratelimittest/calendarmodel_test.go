package ratelimittest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// TestWindowModel compares the model of a fixed window with a limiter whose rate has a Window, around edges that are unusual:
// days of 23 and 25 hours, a day without a midnight, one with two, a skipped day, and a leap day.
func TestWindowModel(t *testing.T) {
	for _, c := range []struct{ window, at string }{
		{"day Europe/Berlin", "2026-03-28T20:00:00Z"}, {"day Europe/Berlin", "2026-10-24T20:00:00Z"},
		{"day America/Sao_Paulo", "2018-11-03T20:00:00Z"}, {"day America/Sao_Paulo", "2018-02-17T20:00:00Z"},
		{"day Pacific/Apia", "2011-12-29T03:00:00Z"}, {"month", "2028-02-29T20:00:00Z"}, {"week Asia/Beirut", "2022-03-26T15:00:00Z"},
		{"month from day 26 Africa/Cairo", "2024-04-25T15:00:00Z"},
		{"year Asia/Gaza", "2026-12-31T15:00:00Z"}, {"first", "2026-01-01T00:00:00Z"},
	} {
		rate := ratelimit.Rate{Requests: 3, Window: ratelimit.Window(c.window)}
		if c.window == "first" {
			rate.Per = 90 * time.Minute
		}
		start, err := time.Parse(time.RFC3339, c.at)
		require.NoError(t, err)
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 24))
			clock := ratelimit.NewFakeClock(start)
			l, err := ratelimit.NewFixedWindow(rate, ratelimit.WithClock(clock))
			require.NoError(t, err)
			m := ratelimittest.FixedWindowModel(start, rate)
			for step := range 60 {
				n := 1 + r.IntN(3)
				res, err := l.Take(t.Context(), "key", n)
				require.NoError(t, err)
				require.Equal(t, m.Ask(clock.Now(), n), res, fmt.Sprint(rate, " seed ", seed, " step ", step, " at ", clock.Now()))
				switch {
				case r.IntN(3) > 0:
					clock.Advance(time.Duration(r.IntN(90)) * time.Minute)
				case res.RetryAfter > 0 && res.RetryAfter < ratelimit.Never:
					clock.Advance(res.RetryAfter - time.Duration(r.IntN(2)))
				}
			}
		}
	}
}
