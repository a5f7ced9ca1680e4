package verify

import (
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestHTTPJitter proves that Config.Jitter makes the waits that clients are told longer, by at most its part of them, both by the
// same, and that it is not used otherwise.
func TestHTTPJitter(t *testing.T) {
	handler := func(jitter float64) http.Handler {
		clock := ratelimit.NewFakeClock(newYear)
		l, err := ratelimit.New(nil, &ratelimit.Rule{Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(1)},
			ratelimit.WithClock(clock))
		require.NoError(t, err)
		m, err := httplimit.New(l, httplimit.Config{Jitter: jitter, Denied: func(w http.ResponseWriter, r *http.Request, i *httplimit.Info) {
			require.Equal(t, int64(3600), int64(i.Result.RetryAfter.Seconds()), "handlers know the exact time")
			httplimit.Problem(w, r, i)
		}})
		require.NoError(t, err)
		return m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	ask := func(h http.Handler, header ...string) http.Header {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header()
	}
	window := regexp.MustCompile(`;t=(\d+)$`)
	times := func(h http.Header) (retry, shown int) {
		found := window.FindStringSubmatch(h.Get("RateLimit"))
		require.NotNil(t, found, h)
		shown, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		retry, _ = strconv.Atoi(h.Get("Retry-After"))
		return retry, shown
	}

	exact := handler(0)
	_, shown := times(ask(exact))
	require.Equal(t, 3600, shown)
	retry, shown := times(ask(exact))
	require.Equal(t, []int{3600, 3600}, []int{retry, shown})

	spread, seen := handler(0.5), map[int]bool{}
	_, shown = times(ask(spread))
	require.GreaterOrEqual(t, shown, 3600)
	for range 200 {
		retry, shown := times(ask(spread))
		require.Equal(t, retry, shown)
		require.GreaterOrEqual(t, retry, 3600)
		require.LessOrEqual(t, retry, 5400)
		seen[retry] = true
	}
	require.Greater(t, len(seen), 10, "the clients come at different times")
	require.Equal(t, "-1", ask(spread, "Content-Type", "application/grpc").Get("Grpc-Retry-Pushback-Ms"), "an hour is too long to wait")
}

// TestHTTPJitterErrors proves which values of Config.Jitter are refused.
func TestHTTPJitterErrors(t *testing.T) {
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(1)})
	require.NoError(t, err)
	for _, jitter := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		_, err := httplimit.New(l, httplimit.Config{Jitter: jitter})
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.ErrorContains(t, err, "must be from 0 to 1, such as 0.1 for a tenth")
	}
	_, err = httplimit.New(l, httplimit.Config{Jitter: 1})
	require.NoError(t, err)
}
