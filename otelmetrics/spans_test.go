package otelmetrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
)

// traced runs the function do in a span, and returns that span.
func traced(t *testing.T, do func(ctx context.Context)) tracetest.SpanStub {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	do(ctx)
	span.End()
	require.Len(t, exporter.GetSpans(), 1)
	return exporter.GetSpans()[0]
}

// texts returns the attributes as texts, by their names.
func texts(all []attribute.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		m[string(a.Key)] = a.Value.Emit()
	}
	return m
}

// TestSpans compares what a span says of decisions with what is expected.
func TestSpans(t *testing.T) {
	rate := ratelimit.PerMinute(1)
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "plan", Rate: rate},
		{Name: "new", Rate: rate, Mode: ratelimit.ModeShadow},
		{Name: "soft", Rate: rate, Mode: ratelimit.ModeAdvise},
		{Name: "tiers", Rate: rate, Tiers: map[string]ratelimit.Rate{"all": ratelimit.Unlimited}},
	}, nil, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))),
		ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{Limiter: "api"})))
	require.NoError(t, err)
	check := func(ctx context.Context, cost int, tier string, rules ...string) {
		_, err := l.Check(ctx, ratelimit.Request{Client: "secret", IP: "192.0.2.1", Rules: rules, Cost: cost, Tier: tier})
		require.NoError(t, err)
	}
	const p = "rate_limiting."
	granted := map[string]string{p + "limiter": "api", p + "policy": "plan", p + "result": "allowed", p + "source": "memory",
		p + "limit": "1", p + "remaining": "0"}
	span := traced(t, func(ctx context.Context) { check(ctx, 1, "", "plan") })
	assert.Equal(t, granted, texts(span.Attributes))
	assert.Empty(t, span.Events)

	refused := map[string]string{p + "limiter": "api", p + "policy": "plan", p + "result": "denied", p + "source": "memory",
		p + "limit": "1", p + "remaining": "0", p + "retry_after": "60"}
	span = traced(t, func(ctx context.Context) { check(ctx, 1, "", "plan") })
	assert.Equal(t, refused, texts(span.Attributes))
	require.Len(t, span.Events, 1)
	assert.Equal(t, p+"denied", span.Events[0].Name)
	assert.Equal(t, refused, texts(span.Events[0].Attributes))
	assert.Equal(t, codes.Unset, span.Status.Code, "a denial is no failure of the server")

	delete(refused, p+"retry_after")
	span = traced(t, func(ctx context.Context) { check(ctx, 2, "", "plan") })
	assert.Equal(t, refused, texts(span.Attributes), "no wait is long enough")

	for rule, result := range map[string]string{"new": "shadow_denied", "soft": "advised"} {
		span = traced(t, func(ctx context.Context) { check(ctx, 1, "", rule) })
		assert.Empty(t, span.Events, "the rule grants")
		assert.NotContains(t, texts(span.Attributes), p+"policy", "a rule that does not enforce gives no result")
		span = traced(t, func(ctx context.Context) { check(ctx, 1, "", rule) })
		require.Len(t, span.Events, 1)
		event := texts(span.Events[0].Attributes)
		assert.Equal(t, []string{rule, result, "60"}, []string{event[p+"policy"], event[p+"result"], event[p+"retry_after"]})
		assert.NotEqual(t, result, texts(span.Attributes)[p+"result"])
	}

	span = traced(t, func(ctx context.Context) { check(ctx, 1, "all", "tiers") })
	assert.Equal(t, map[string]string{p + "limiter": "api", p + "result": "allowed", p + "source": "none"}, texts(span.Attributes),
		"a tier without a limit")
}

// TestSpansDegraded proves that a span says that a failure policy has answered.
func TestSpansDegraded(t *testing.T) {
	l, err := ratelimit.New(rulesNamed("a"), nil, ratelimit.WithStore(downStore{}), ratelimit.WithName("x"),
		ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{})))
	require.NoError(t, err)
	span := traced(t, func(ctx context.Context) {
		_, err = l.Check(ctx, ratelimit.Request{Client: "alice", Rules: []string{"a"}})
		require.ErrorIs(t, err, ratelimit.ErrStore)
	})
	got := texts(span.Attributes)
	assert.Equal(t, []string{"policy", "true", "default"},
		[]string{got["rate_limiting.source"], got["rate_limiting.degraded"], got["rate_limiting.limiter"]})
}

// TestSpansAllocateNothing proves that a decision in a span that is not recorded, or in none, allocates nothing.
func TestSpansAllocateNothing(t *testing.T) {
	spans := otelmetrics.NewSpans(otelmetrics.Options{})
	dropped, span := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test").Start(t.Context(), "request")
	defer span.End()
	require.False(t, trace.SpanFromContext(dropped).IsRecording())
	decision := ratelimit.Decision{Rule: "a", Result: ratelimit.Result{RetryAfter: time.Second}}
	for _, ctx := range []context.Context{context.Background(), dropped} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { spans.Observe(ctx, decision) }))
	}
}

// TestDurations proves that the histogram has a sample for each decision, by what has decided.
func TestDurations(t *testing.T) {
	_, err := otelmetrics.NewDurations(nil, otelmetrics.Options{})
	require.EqualError(t, err, "ratelimit: meter is nil: must come from a metric.MeterProvider")
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)

	reader, meter := newReader(t, metricdata.CumulativeTemporality)
	durations, err := otelmetrics.NewDurations(meter, otelmetrics.Options{Limiter: "api"})
	require.NoError(t, err)
	for source, took := range map[ratelimit.Source]time.Duration{
		ratelimit.SourceMemory: time.Microsecond, ratelimit.SourceStore: time.Millisecond, ratelimit.SourceNone: time.Second} {
		durations.Observe(t.Context(), ratelimit.Decision{Source: source, Took: took})
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	require.Len(t, all.ScopeMetrics[0].Metrics, 1)
	m := all.ScopeMetrics[0].Metrics[0]
	assert.Equal(t, []string{"rate_limiting.decision.duration", "s"}, []string{m.Name, m.Unit})
	got := map[string]float64{}
	for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
		got[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Sum
		assert.Len(t, p.Bounds, 12)
	}
	const api = "rate_limiting.limiter=api,rate_limiting.source="
	assert.Equal(t, map[string]float64{api + "memory": 1e-6, api + "store": 1e-3, api + "none": 1}, got)
}
