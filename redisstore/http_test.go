package redisstore_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestHTTPWhileTheServerIsGone kills a real server below a middleware. The answer is that of the
// failure policy, and says whose fault it is.
func TestHTTPWhileTheServerIsGone(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		policy ratelimit.FailurePolicy
		before []int
		after  []int
	}{
		{ratelimit.FailClosed, []int{200}, []int{503}},
		{ratelimit.FailLocal(1), []int{200, 200}, []int{200, 429}},
		{ratelimit.FailOpen, []int{200}, []int{200}},
	} {
		server := startReal(t)
		client := redis.NewClient(&redis.Options{Addr: server.addr, MaxRetries: -1, DialerRetries: 1})
		l := rules(t, newStore(t, client, redisstore.WithTimeout(500*time.Millisecond)), 3, row.policy)
		m, err := httplimit.New(l, httplimit.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		require.NoError(t, err)
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ask := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			return w
		}
		for _, want := range row.before {
			w := ask()
			require.Equal(t, want, w.Code, row.policy)
			require.NotEmpty(t, w.Header().Get("RateLimit"))
		}
		server.kill(t)
		for _, want := range row.after {
			w := ask()
			assert.Equal(t, want, w.Code, row.policy)
			assert.Empty(t, w.Header().Get("RateLimit"), "what is left is not known")
			assert.Equal(t, want >= 400, w.Header().Get("Retry-After") != "")
		}
		require.NoError(t, client.Close())
	}
}

// TestHTTPCountsInTheServer gives back in a real server what does not count.
func TestHTTPCountsInTheServer(t *testing.T) {
	l := rules(t, newStore(t, startReal(t).client(t)), 2, ratelimit.FailClosed)
	m, err := httplimit.New(l, httplimit.Config{Count: func(_ *http.Request, status int) bool { return status >= 400 }})
	require.NoError(t, err)
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	var got []int
	for _, path := range []string{"/", "/", "/bad", "/", "/", "/bad", "/bad", "/"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		got = append(got, w.Code)
	}
	assert.Equal(t, []int{200, 200, 401, 200, 200, 401, 429, 429}, got)
}
