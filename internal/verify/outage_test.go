package verify

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestOutageInTheLog has 100 clients while the store fails: one line when the outage begins, and one when it is over.
func TestOutageInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		o := ratelimit.SlogObserver(slog.New(slog.NewTextHandler(&text, nil)), 0)
		for i := range 100 {
			o.Observe(t.Context(), ratelimit.Decision{
				Rule: "r", Key: uint64(i + 1), Rate: ratelimit.PerHour(1), Source: ratelimit.SourcePolicy, Err: ratelimit.ErrStore,
				Result: ratelimit.Result{Allowed: true, Degraded: true},
			})
		}
		require.Equal(t, 1, bytes.Count(text.Bytes(), []byte("\n")), "not a line for each client")
		<-time.After(time.Second)
		o.Observe(t.Context(), ratelimit.Decision{Source: ratelimit.SourceStore, Result: ratelimit.Result{Allowed: true}})
		require.Equal(t, 2, bytes.Count(text.Bytes(), []byte("\n")))
		require.Contains(t, text.String(), `msg="rate limit: the store answers again" lasted=1s decisions=100 denied=0`)
	})
}
