package httplimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestLateSettle proves that AdapterConfig.Count gets what belongs to its own request if a framework settles a request
// after another request has begun.
func TestLateSettle(t *testing.T) {
	l, _ := perMinute(t, 100)
	var counted []string
	a, err := httplimit.NewAdapter(l, httplimit.AdapterConfig[string]{Count: func(c string, _ int) bool {
		counted = append(counted, c)
		return true
	}}, func(string) string { return "/" })
	require.NoError(t, err)
	var late []func(int)
	for _, name := range []string{"first", "second"} {
		next := func(_ string, _ *http.Request, settle func(int)) error {
			late = append(late, settle)
			return nil
		}
		_, err := a.Serve(name, httptest.NewRecorder(), request(t, "/", "203.0.113.9:1"), next)
		require.NoError(t, err)
	}
	late[0](200)
	late[1](200)
	assert.Equal(t, []string{"first", "second"}, counted)
}

// TestAdapterForgets proves that a denied request has nothing of the request before it.
func TestAdapterForgets(t *testing.T) {
	l, _ := perMinute(t, 1)
	a, err := httplimit.NewAdapter(l, httplimit.AdapterConfig[string]{}, func(string) string { return "/" })
	require.NoError(t, err)
	failed := errors.New("from the handler")
	next := func(string, *http.Request, func(int)) error { return failed }
	passed, err := a.Serve("", httptest.NewRecorder(), request(t, "/", "203.0.113.9:1"), next)
	assert.True(t, passed)
	require.ErrorIs(t, err, failed)
	passed, err = a.Serve("", httptest.NewRecorder(), request(t, "/", "203.0.113.9:1"), next)
	assert.False(t, passed)
	require.NoError(t, err)
}
