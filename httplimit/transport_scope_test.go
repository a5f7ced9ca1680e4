package httplimit_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// origin is a server with several paths.
const origin = "https://api.example.com"

// TestTransportScope has a server that denies one path, and then one key. Only requests of the same scope wait.
func TestTransportScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := func(*http.Request) bool { return false }
		tr := &httplimit.Transport{Base: &wire{answer: func(r *http.Request) *http.Response {
			if denied(r) {
				return response(http.StatusTooManyRequests, "Retry-After", "20")
			}
			return response(http.StatusOK)
		}}, MaxWait: time.Nanosecond}
		ask := func(tr *httplimit.Transport, target, key string) error {
			r, b := post(t.Context(), t, target)
			r.Header.Set("Authorization", key)
			res, err := tr.RoundTrip(r)
			assert.Equal(t, 1, b.closed)
			if err == nil {
				require.NoError(t, res.Body.Close())
			}
			return err
		}
		search, items, other := origin+"/search?q=1", origin+"/items", "https://other.example/search"

		byPath := &httplimit.Transport{Base: tr.Base, MaxWait: tr.MaxWait, Scope: httplimit.PathScope}
		denied = func(r *http.Request) bool { return r.URL.Path == "/search" && r.URL.Host != "other.example" }
		require.NoError(t, ask(byPath, search, "a"))
		held := (*httplimit.HoldError)(nil)
		require.ErrorAs(t, ask(byPath, origin+"/search?q=2", "b"), &held)
		assert.Equal(t, &httplimit.HoldError{Host: "https://api.example.com:443", Wait: 20 * time.Second}, held)
		assert.NoError(t, ask(byPath, items, "a"), "another path does not wait")
		assert.NoError(t, ask(byPath, other, "a"), "the same path of another server does not wait")

		byKey := &httplimit.Transport{Base: tr.Base, MaxWait: tr.MaxWait, Scope: httplimit.HeaderScope("Authorization")}
		denied = func(r *http.Request) bool { return r.Header.Get("Authorization") == "a" }
		require.NoError(t, ask(byKey, search, "a"))
		assert.ErrorAs(t, ask(byKey, items, "a"), &held)
		assert.NoError(t, ask(byKey, items, "b"), "another key does not wait")

		denied = func(*http.Request) bool { return true }
		require.NoError(t, ask(tr, search, "a"))
		assert.ErrorAs(t, ask(tr, items, "b"), &held, "without Scope, all wait")

		time.Sleep(21 * time.Second)
		denied = func(*http.Request) bool { return false }
		assert.NoError(t, ask(byPath, search, "a"))
		assert.Empty(t, httplimit.PathScope(&http.Request{}))
	})
}

// TestTransportScopeQueue lets requests of two scopes wait: for the hold of the one, and for the Limiter. A hold makes
// only the requests of its scope leave the queue of the Limiter, which still gets the origin.
func TestTransportScopeQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "one", Rate: ratelimit.PerMinute(6).WithBurst(1)})
		require.NoError(t, err)
		var sent []string
		tr := &httplimit.Transport{Limiter: l, Scope: httplimit.PathScope, MaxWait: time.Hour}
		tr.Base = &wire{answer: func(r *http.Request) *http.Response {
			sent = append(sent, r.URL.Path)
			if r.URL.Path == "/held" && len(sent) == 1 {
				return response(http.StatusTooManyRequests, "Retry-After", "60")
			}
			return response(http.StatusOK)
		}}
		_, err = send(t.Context(), t, tr, origin+"/held")
		require.NoError(t, err)
		ended := make(chan time.Duration, 2)
		for _, path := range []string{"/held", "/free"} {
			go func() {
				took, err := send(context.WithoutCancel(t.Context()), t, tr, origin+path)
				assert.NoError(t, err)
				ended <- took
			}()
			synctest.Wait()
		}
		assert.Equal(t, 10*time.Second, <-ended, "the free request waits for the Limiter alone")
		assert.GreaterOrEqual(t, <-ended, time.Minute)
		assert.Equal(t, []string{"/held", "/free", "/held"}, sent)
	})
}

// TestTransportScopeLeavesQueue lets a request wait for the Limiter while another one of its scope is denied. It leaves
// the queue, and waits for the hold.
func TestTransportScopeLeavesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "one", Rate: ratelimit.PerMinute(6).WithBurst(1)})
		require.NoError(t, err)
		answer := make(chan *http.Response)
		tr := &httplimit.Transport{Limiter: l, Scope: httplimit.PathScope, MaxWait: time.Hour, Base: answers(answer)}
		ended := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				took, err := send(context.WithoutCancel(t.Context()), t, tr, origin+"/held")
				assert.NoError(t, err)
				ended <- took
			}()
			synctest.Wait()
		}
		answer <- response(http.StatusTooManyRequests, "Retry-After", "60")
		assert.Zero(t, <-ended)
		answer <- response(http.StatusOK)
		assert.GreaterOrEqual(t, <-ended, time.Minute)
	})
}

// answers is a RoundTripper that answers each request with the next response of a channel.
type answers chan *http.Response

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return <-a, r.Body.Close() }

// TestTransportDo sends requests by another protocol than HTTP.
func TestTransportDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &httplimit.Transport{MaxWait: time.Minute, MaxHold: 40 * time.Second}
		sent := 0
		do := func(server string, wait time.Duration) error {
			return tr.Do(t.Context(), server, func() (time.Duration, error) {
				sent++
				return wait, nil
			})
		}
		require.NoError(t, do("db", 10*time.Second))
		began := time.Now()
		require.NoError(t, do("other", 0))
		assert.Zero(t, time.Since(began), "another server")
		require.NoError(t, do("db", 0))
		assert.GreaterOrEqual(t, time.Since(began), 10*time.Second)
		assert.Equal(t, 3, sent)

		require.NoError(t, do("db", time.Hour))
		began = time.Now()
		require.NoError(t, do("db", 0))
		assert.LessOrEqual(t, time.Since(began), 41*time.Second, "MaxHold")

		tr.Hold("db", 20*time.Second)
		tr.Hold("db", -time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began = time.Now()
		err := tr.Do(ctx, "db", func() (time.Duration, error) { panic("not sent") })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, time.Since(began), "it fails at once")
		bad := &httplimit.Transport{MaxWait: -1}
		assert.ErrorIs(t, bad.Do(t.Context(), "db", nil), ratelimit.ErrInvalidConfig)
	})
}

// TestTransportScopePanics has a Scope that panics: the request is not sent, and its body is closed.
func TestTransportScopePanics(t *testing.T) {
	tr := &httplimit.Transport{Scope: func(*http.Request) string { panic("a bug") }}
	r, b := post(t.Context(), t, api)
	assert.PanicsWithValue(t, "a bug", func() {
		_, _ = tr.RoundTrip(r) //nolint:bodyclose // there is no response
	})
	assert.Equal(t, 1, b.closed)
}
