package recipes

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestGatewayRules runs a third export while two run, and asks for a 51st answer.
func TestGatewayRules(t *testing.T) {
	l, err := ratelimit.New(gatewayRules(), nil, ratelimit.WithClock(newClock()))
	require.NoError(t, err)
	m := middleware(t, l, httplimit.Config{})
	begun, end := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/export", func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	url := serve(t, m.Handler(mux))
	answers := make(chan int)
	for range 2 {
		go func() { answers <- ask(t, http.MethodGet, url+"/export").status }()
		<-begun
	}
	require.Equal(t, http.StatusTooManyRequests, ask(t, http.MethodGet, url+"/export").status)
	close(end)
	require.Equal(t, 200, <-answers)
	require.Equal(t, 200, <-answers)
	go func() { <-begun }()
	require.Equal(t, 200, ask(t, http.MethodGet, url+"/export").status)

	for range 50 {
		require.False(t, l.Allow("alice", "/chat").Advised)
	}
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1, Advised: true}, l.Allow("alice", "/chat"))
}
