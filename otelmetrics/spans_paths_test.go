package otelmetrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
)

// TestSpansOfCalls proves that the span of the caller describes decisions of Wait and Reserve, and those of a request to an
// HTTP handler, as it does those of Check.
func TestSpansOfCalls(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, l *ratelimit.RateLimiter){
		"Wait": func(ctx context.Context, l *ratelimit.RateLimiter) {
			_, _ = l.Wait(ctx, ratelimit.Request{Client: "a", Endpoint: "/"})
		},
		"Reserve": func(ctx context.Context, l *ratelimit.RateLimiter) {
			_, _ = l.Reserve(ctx, ratelimit.Request{Client: "a", Endpoint: "/"}, time.Minute)
		},
		"httplimit": func(ctx context.Context, l *ratelimit.RateLimiter) {
			h := httplimit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), l)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "plan", Rate: ratelimit.PerMinute(1)},
				ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))), ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{})))
			require.NoError(t, err)
			span := traced(t, func(ctx context.Context) { do(ctx, l) })
			said := texts(span.Attributes)
			assert.Equal(t, "allowed", said["rate_limiting.result"])
			assert.Equal(t, "plan", said["rate_limiting.policy"])
			assert.Empty(t, span.Events)
		})
	}
}
