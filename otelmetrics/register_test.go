package otelmetrics_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
)

// newLimiter returns a limiter of a rule of each name, whose clock stands still.
func newLimiter(t testing.TB, names ...string) *ratelimit.RateLimiter {
	t.Helper()
	l, err := ratelimit.New(rulesNamed(names...), nil, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))
	require.NoError(t, err)
	return l
}

// rulesNamed returns a rule of each name. Each grants three requests.
func rulesNamed(names ...string) (rules []ratelimit.Rule) {
	for _, name := range names {
		rules = append(rules, ratelimit.Rule{Name: name, Rate: ratelimit.PerHour(3)})
	}
	return rules
}

// ask makes n requests of one client to the rule with this name.
func ask(t testing.TB, l *ratelimit.RateLimiter, rule string, n int) {
	t.Helper()
	for range n {
		_, err := l.Check(t.Context(), ratelimit.Request{Client: "alice", Rules: []string{rule}})
		require.NoError(t, err)
	}
}

// newReader returns a reader and a meter whose instruments it reads.
func newReader(t testing.TB, temporality metricdata.Temporality) (*sdk.ManualReader, metric.Meter) {
	t.Helper()
	reader := sdk.NewManualReader(sdk.WithTemporalitySelector(func(sdk.InstrumentKind) metricdata.Temporality { return temporality }))
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	t.Cleanup(func() { assert.NoError(t, provider.Shutdown(context.Background())) })
	return reader, provider.Meter("github.com/ratelimit-go/ratelimit")
}

// read returns what reader collects: the value of each series, by its name and attributes without
// that of the limiter.
func read(t testing.TB, reader sdk.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	values := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if _, ok := m.Data.(metricdata.Gauge[float64]); ok {
				continue // internal/verify/exporters compares them with prommetrics
			}
			sum, ok := m.Data.(metricdata.Sum[int64])
			require.True(t, ok, m.Name)
			level := []string{"rate_limiting.keys", "rate_limiting.overrides", "rate_limiting.store.parts"}
			assert.Equal(t, !slices.Contains(level, m.Name), sum.IsMonotonic, m.Name)
			for _, p := range sum.DataPoints {
				policy, _ := p.Attributes.Value("rate_limiting.policy")
				key := m.Name + " " + policy.AsString()
				for _, name := range []attribute.Key{"rate_limiting.result", "rate_limiting.effect", "rate_limiting.state"} {
					if value, ok := p.Attributes.Value(name); ok {
						key += " " + value.AsString()
					}
				}
				if policy.AsString() != "" { // what belongs to no rule is summed over the limiters
					assert.NotContains(t, values, key)
				}
				values[key] += p.Value
			}
		}
	}
	return values
}

// TestRegister compares what a reader gets from three instruments with what is expected.
func TestRegister(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "search", Rate: ratelimit.PerHour(3)},
		{Name: "new", Rate: ratelimit.PerHour(1), Mode: ratelimit.ModeShadow},
	}, nil)
	require.NoError(t, err)
	ask(t, l, "search", 5)
	ask(t, l, "new", 5)
	reader, meter := newReader(t, metricdata.CumulativeTemporality)
	registration, err := otelmetrics.Register(meter, l, otelmetrics.Options{Limiter: "api"})
	require.NoError(t, err)
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	require.Len(t, all.ScopeMetrics, 1)
	got := map[string]string{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		assert.NotEmpty(t, m.Description)
		if !slices.Contains([]string{"rate_limiting.requests", "rate_limiting.keys", "rate_limiting.store.errors"}, m.Name) {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			got[m.Name+m.Unit+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = strconv.FormatInt(p.Value, 10)
		}
	}
	const api = "rate_limiting.limiter=api,rate_limiting.policy="
	assert.Equal(t, map[string]string{
		"rate_limiting.requests{request} " + api + "search,rate_limiting.result=allowed":       "3",
		"rate_limiting.requests{request} " + api + "search,rate_limiting.result=advised":       "0",
		"rate_limiting.requests{request} " + api + "new,rate_limiting.result=advised":          "0",
		"rate_limiting.requests{request} " + api + "search,rate_limiting.result=denied":        "2",
		"rate_limiting.requests{request} " + api + "search,rate_limiting.result=shadow_denied": "0",
		"rate_limiting.requests{request} " + api + "new,rate_limiting.result=allowed":          "1",
		"rate_limiting.requests{request} " + api + "new,rate_limiting.result=denied":           "0",
		"rate_limiting.requests{request} " + api + "new,rate_limiting.result=shadow_denied":    "4",
		"rate_limiting.keys{key} " + api + "search":                                            "1",
		"rate_limiting.keys{key} " + api + "new":                                               "1",
		"rate_limiting.store.errors{error} " + api + "search":                                  "0",
		"rate_limiting.store.errors{error} " + api + "new":                                     "0",
	}, got)

	require.NoError(t, registration.Unregister())
	assert.Empty(t, read(t, reader), "nothing is shown after Unregister")
}

// TestLimiterName has the default name, and one that no exporter takes.
func TestLimiterName(t *testing.T) {
	for given, want := range map[string]string{"": "default", "a\xffb": "a\uFFFDb", "b": "b"} {
		reader, meter := newReader(t, metricdata.CumulativeTemporality)
		_, err := otelmetrics.Register(meter, newLimiter(t, "a\xff"), otelmetrics.Options{Limiter: given})
		require.NoError(t, err)
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		points := 0
		for _, m := range all.ScopeMetrics[0].Metrics {
			for _, set := range attributesOf(m) {
				limiter, _ := set.Value("rate_limiting.limiter")
				policy, ofRule := set.Value("rate_limiting.policy")
				assert.Equal(t, want, limiter.AsString())
				of := strings.Contains(m.Name, "overrid") || m.Name == "rate_limiting.store.parts" || m.Name == "rate_limiting.store.opened"
				assert.Equal(t, !of, ofRule, m.Name)
				if ofRule {
					assert.Equal(t, "a\uFFFD", policy.AsString())
				}
				points++
			}
		}
		assert.Equal(t, len(ratelimit.Counters())+4+6+3, points, "counters; keys, limit, rate and info; three effects of overrides; the store")
	}
}

// attributesOf returns the attributes of each value of m.
func attributesOf(m metricdata.Metrics) (all []attribute.Set) {
	if gauge, ok := m.Data.(metricdata.Gauge[float64]); ok {
		for _, p := range gauge.DataPoints {
			all = append(all, p.Attributes)
		}
		return all
	}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		all = append(all, p.Attributes)
	}
	return all
}

// errDown is what a downStore fails with.
var errDown = errors.New("connection refused")

// A downStore is a store that fails.
type downStore struct{}

func (downStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, errDown
}

func (downStore) Reset(context.Context, []ratelimit.Ask) error { return errDown }

// TestStoreErrors counts the calls of a store that failed.
func TestStoreErrors(t *testing.T) {
	l, err := ratelimit.New(rulesNamed("a"), nil, ratelimit.WithStore(downStore{}), ratelimit.WithName("x"))
	require.NoError(t, err)
	reader, meter := newReader(t, metricdata.CumulativeTemporality)
	_, err = otelmetrics.Register(meter, l, otelmetrics.Options{})
	require.NoError(t, err)
	for range 20 {
		_, err = l.Check(t.Context(), ratelimit.Request{Client: "alice", Rules: []string{"a"}})
		require.ErrorIs(t, err, ratelimit.ErrStore)
	}
	stats, v := l.Stats()[0], read(t, reader)
	require.Greater(t, stats.Degraded, stats.Errors, "the store is not called for each request")
	assert.Equal(t, []int64{int64(stats.Errors), 3, 17},
		[]int64{v["rate_limiting.store.errors a"], v["rate_limiting.requests a allowed"], v["rate_limiting.requests a denied"]})
}

// TestOverrides shows how many overrides there are, and how many requests they have changed, by their effect.
func TestOverrides(t *testing.T) {
	l := newLimiter(t, "a")
	reader, meter := newReader(t, metricdata.CumulativeTemporality)
	_, err := otelmetrics.Register(meter, l, otelmetrics.Options{})
	require.NoError(t, err)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock},
		ratelimit.Override{Client: "bob", Effect: ratelimit.EffectExempt}, ratelimit.Override{Client: "carol", Effect: ratelimit.EffectExempt},
		ratelimit.Override{Client: "dave", Effect: ratelimit.EffectRate, Rate: ratelimit.PerHour(4)}))
	ask(t, l, "a", 3)
	_, err = l.Check(t.Context(), ratelimit.Request{Client: "bob", Rules: []string{"a"}})
	require.NoError(t, err)
	for range 2 {
		_, err = l.Check(t.Context(), ratelimit.Request{Client: "dave", Rules: []string{"a"}})
		require.NoError(t, err)
	}
	got := read(t, reader)
	for key := range got {
		if !strings.Contains(key, "overrid") {
			delete(got, key)
		}
	}
	assert.Equal(t, map[string]int64{
		"rate_limiting.overrides  block": 1, "rate_limiting.overrides  exempt": 2, "rate_limiting.overrides  rate": 1,
		"rate_limiting.overridden_requests  block": 3, "rate_limiting.overridden_requests  exempt": 1,
		"rate_limiting.overridden_requests  rate": 2,
	}, got)
}

// TestRulesChange reads counters while rules come and go, as sums and as differences: none of them
// goes backwards.
func TestRulesChange(t *testing.T) {
	l := newLimiter(t, "a", "b", "c")
	readers := map[metricdata.Temporality]sdk.Reader{}
	for _, temporality := range []metricdata.Temporality{metricdata.CumulativeTemporality, metricdata.DeltaTemporality} {
		reader, meter := newReader(t, temporality)
		_, err := otelmetrics.Register(meter, l, otelmetrics.Options{MaxRules: 1})
		require.NoError(t, err)
		readers[temporality] = reader
	}
	check := func(sums, differences map[string]int64, why string) {
		t.Helper()
		for temporality, want := range map[metricdata.Temporality]map[string]int64{metricdata.CumulativeTemporality: sums,
			metricdata.DeltaTemporality: differences} {
			got := map[string]int64{}
			for key, n := range read(t, readers[temporality]) {
				if name, ok := strings.CutPrefix(key, "rate_limiting.requests "); ok && strings.HasSuffix(key, " allowed") {
					got[strings.TrimSuffix(name, " allowed")] = n
				}
			}
			assert.Equal(t, want, got, "%s, %s", why, temporality)
		}
	}
	ask(t, l, "a", 3)
	ask(t, l, "b", 2)
	ask(t, l, "c", 1)
	check(map[string]int64{"a": 3, "_other": 3}, map[string]int64{"a": 3, "_other": 3}, "a, and the others")
	ask(t, l, "c", 1)
	check(map[string]int64{"a": 3, "_other": 4}, map[string]int64{"a": 0, "_other": 1}, "one more")
	require.NoError(t, l.RemoveRule("b"))
	check(map[string]int64{"a": 3, "_other": 4}, map[string]int64{"a": 0, "_other": 0}, "one of the others was removed")
	require.NoError(t, l.Replace(nil, nil))
	require.NoError(t, l.Replace(rulesNamed("a"), nil))
	ask(t, l, "a", 2)
	check(map[string]int64{"a": 5}, map[string]int64{"a": 2}, "made anew between two reads")
}

// TestRefused has what Register refuses.
func TestRefused(t *testing.T) {
	meter, l := noop.NewMeterProvider().Meter("x"), newLimiter(t)
	_, err := otelmetrics.Register(meter, l, otelmetrics.Options{})
	require.NoError(t, err)
	const (
		noLimiter = "ratelimit: limiter is nil: must be made by ratelimit.New or configfile.Open"
		badMax    = "ratelimit: maxRules is -1: must not be negative; 0 means 500"
		noMeter   = "ratelimit: meter is nil: must come from a metric.MeterProvider"
	)
	for _, tt := range []struct {
		meter   metric.Meter
		limiter *ratelimit.RateLimiter
		max     int
		want    string
	}{
		{nil, nil, -1, noLimiter + "\n" + badMax + "\n" + noMeter},
		{meter, nil, 0, noLimiter},
		{meter, l, -1, badMax},
		{nil, l, 0, noMeter},
	} {
		registration, err := otelmetrics.Register(tt.meter, tt.limiter, otelmetrics.Options{MaxRules: tt.max})
		require.EqualError(t, err, tt.want)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.Nil(t, registration)
	}
}

// errMeter is what a brokenMeter fails with.
var errMeter = errors.New("no more instruments")

// A brokenMeter makes no counters.
type brokenMeter struct{ metric.Meter }

func (brokenMeter) Int64ObservableCounter(string, ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	return nil, errMeter
}

// TestMeterFails returns the error of the meter.
func TestMeterFails(t *testing.T) {
	registration, err := otelmetrics.Register(brokenMeter{noop.NewMeterProvider().Meter("x")}, newLimiter(t), otelmetrics.Options{})
	require.ErrorIs(t, err, errMeter)
	require.Nil(t, registration)
}

// TestTwoLimiters has two limiters at one meter.
func TestTwoLimiters(t *testing.T) {
	first, second := newLimiter(t, "a"), newLimiter(t, "b")
	reader, meter := newReader(t, metricdata.CumulativeTemporality)
	for name, l := range map[string]*ratelimit.RateLimiter{"1": first, "2": second} {
		_, err := otelmetrics.Register(meter, l, otelmetrics.Options{Limiter: name})
		require.NoError(t, err)
	}
	ask(t, first, "a", 1)
	ask(t, second, "b", 2)
	v := read(t, reader)
	assert.Equal(t, []int64{1, 2, 1}, []int64{v["rate_limiting.requests a allowed"], v["rate_limiting.requests b allowed"],
		v["rate_limiting.keys b"]})
}

// TestRegisteredTwice shows a limiter twice under one name, and the SDK adds what both show.
func TestRegisteredTwice(t *testing.T) {
	l := newLimiter(t, "a")
	reader, meter := newReader(t, metricdata.CumulativeTemporality)
	for range 2 {
		_, err := otelmetrics.Register(meter, l, otelmetrics.Options{})
		require.NoError(t, err)
	}
	ask(t, l, "a", 2)
	assert.Equal(t, int64(4), read(t, reader)["rate_limiting.requests a allowed"])
}

// TestReadsUnderLoad reads while requests come and rules change.
func TestReadsUnderLoad(t *testing.T) {
	l := newLimiter(t, "a", "b")
	reader, meter := newReader(t, metricdata.CumulativeTemporality)
	_, err := otelmetrics.Register(meter, l, otelmetrics.Options{MaxRules: 1})
	require.NoError(t, err)
	var working sync.WaitGroup
	for range 2 {
		working.Go(func() { ask(t, l, "a", 2000) })
	}
	working.Go(func() {
		for i := range 50 {
			assert.NoError(t, l.Replace(rulesNamed("a", "b", "c")[:2+i%2], nil))
		}
	})
	working.Go(func() {
		for range 20 {
			read(t, reader)
		}
	})
	working.Wait()
	v := read(t, reader)
	assert.Equal(t, int64(4000), v["rate_limiting.requests a allowed"]+v["rate_limiting.requests a denied"])
}
