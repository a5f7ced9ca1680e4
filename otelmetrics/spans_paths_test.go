package otelmetrics_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
)

// client is the client of all requests, which no span may name.
const client = "ip:192.0.2.1"

// calls are the ways to ask a limiter for one unit with the context of the caller. They return whether it was granted.
// The other ways are in internal/verify/exporters: gRPC, Connect, and the web frameworks.
var calls = map[string]func(ctx context.Context, l *ratelimit.RateLimiter) bool{
	"Check": func(ctx context.Context, l *ratelimit.RateLimiter) bool {
		res, err := l.Check(ctx, ratelimit.Request{Client: client, Endpoint: "/"})
		return err == nil && res.Allowed
	},
	"CheckAll": func(ctx context.Context, l *ratelimit.RateLimiter) bool {
		var memory [1]ratelimit.Result
		res, _, err := l.CheckAll(ctx, ratelimit.Request{Client: client, Endpoint: "/"}, memory[:0])
		return err == nil && res.Allowed
	},
	"Wait": func(ctx context.Context, l *ratelimit.RateLimiter) bool {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // shorter than the wait, so that a denial comes at once
		defer cancel()
		res, err := l.Wait(ctx, ratelimit.Request{Client: client, Endpoint: "/"})
		return err == nil && res.Allowed
	},
	"Reserve": func(ctx context.Context, l *ratelimit.RateLimiter) bool {
		units, err := l.Reserve(ctx, ratelimit.Request{Client: client, Endpoint: "/"}, time.Minute)
		return err == nil && units.Result().Allowed
	},
	"ReserveWait": func(ctx context.Context, l *ratelimit.RateLimiter) bool {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		units, err := l.ReserveWait(ctx, ratelimit.Request{Client: client, Endpoint: "/"}, time.Minute)
		return err == nil && units.Result().Allowed
	},
	"httplimit": func(ctx context.Context, l *ratelimit.RateLimiter) bool {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.RemoteAddr = "192.0.2.1:1234"
		w := httptest.NewRecorder()
		httplimit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), l).ServeHTTP(w, r)
		return w.Code == http.StatusOK
	},
}

// newPlan returns a limiter with one rule, which grants each client n units a minute.
func newPlan(t *testing.T, n int, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	t.Helper()
	l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "plan", Rate: ratelimit.PerMinute(n)},
		append(opts, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))...)
	require.NoError(t, err)
	return l
}

// TestSpansOfCalls compares what the span of the caller says of a grant and of a denial, for all calls that have a context. These
// are all attributes: none contains the client or its key.
func TestSpansOfCalls(t *testing.T) {
	const p = "rate_limiting."
	granted := map[string]string{p + "limiter": "default", p + "policy": "plan", p + "result": "allowed", p + "source": "memory",
		p + "limit": "1", p + "remaining": "0"}
	denied := map[string]string{p + "limiter": "default", p + "policy": "plan", p + "result": "denied", p + "source": "memory",
		p + "limit": "1", p + "remaining": "0", p + "retry_after": "60"}
	for name, ask := range calls {
		t.Run(name, func(t *testing.T) {
			l := newPlan(t, 1, ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{})))
			span := traced(t, func(ctx context.Context) { assert.True(t, ask(ctx, l)) })
			assert.Equal(t, granted, texts(span.Attributes))
			assert.Empty(t, span.Events)

			span = traced(t, func(ctx context.Context) { assert.False(t, ask(ctx, l)) })
			assert.Equal(t, denied, texts(span.Attributes))
			require.Len(t, span.Events, 1)
			assert.Equal(t, p+"denied", span.Events[0].Name)
			assert.Equal(t, denied, texts(span.Events[0].Attributes))
		})
	}
}

// TestSpansOfAllow proves that Allow, which has no context, describes its decisions on no span.
func TestSpansOfAllow(t *testing.T) {
	l := newPlan(t, 1, ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{})))
	span := traced(t, func(context.Context) {
		assert.True(t, l.Allow(client, "/").Allowed)
		assert.False(t, l.Allow(client, "/").Allowed)
	})
	assert.Empty(t, span.Attributes)
	assert.Empty(t, span.Events)
}

// TestSpansOfLooks proves that a call that takes nothing adds nothing to the span.
func TestSpansOfLooks(t *testing.T) {
	l := newPlan(t, 1, ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{})))
	req := ratelimit.Request{Client: client, Endpoint: "/"}
	span := traced(t, func(ctx context.Context) {
		_, err := l.Peek(ctx, req)
		_, explained := l.Explain(ctx, req)
		require.NoError(t, errors.Join(err, explained, l.Reset(ctx, req)))
	})
	assert.Empty(t, span.Attributes)
	assert.Empty(t, span.Events)
}

// TestSpansAllocateNothingMore proves that a call allocates as much with Spans, in a span that is not recorded, as without.
func TestSpansAllocateNothingMore(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	dropped, span := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test").Start(t.Context(), "request")
	defer span.End()
	spans := ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{}))
	for name, ask := range calls {
		for _, n := range []int{1, 1e9} { // of one, all but the first call are denied
			with, without := newPlan(t, n, spans), newPlan(t, n)
			want := testing.AllocsPerRun(100, func() { ask(dropped, without) })
			assert.Equal(t, want, testing.AllocsPerRun(100, func() { ask(dropped, with) }), "%s of %d", name, n)
		}
	}
}
