package exporters

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

// attributes has the attribute of OpenTelemetry for each label of Prometheus.
var attributes = map[string]string{"limiter": "limiter", "rule": "policy", "result": "result", "effect": "effect", "state": "state",
	"key": "key_type", "mode": "mode", "algorithm": "algorithm", "source": "source",
	"part": "part", "class": "class"}

// scrape returns the values that r exports, by the names and attributes that OpenTelemetry gives them.
func scrape(t testing.TB, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	names := map[string]string{"ratelimit_" + counters.DurationName: counters.DurationOtelName}
	for _, c := range counters.Table {
		names["ratelimit_"+c.Name+"_total"] = strings.Replace(c.Name, "store_", "store.", 1)
	}
	for _, m := range counters.Metrics {
		names["ratelimit_"+m.Prometheus] = m.OpenTelemetry
	}
	families, err := r.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		require.Contains(t, names, f.GetName())
		for _, m := range f.GetMetric() {
			var set []attribute.KeyValue
			for _, l := range m.GetLabel() {
				require.Contains(t, attributes, l.GetName())
				set = append(set, attribute.String("rate_limiting."+attributes[l.GetName()], l.GetValue()))
			}
			all := attribute.NewSet(set...)
			series := "rate_limiting." + names[f.GetName()] + " " + all.Encoded(attribute.DefaultEncoder())
			values[series] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if h := m.GetHistogram(); h != nil {
				values[series], values[series+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			}
		}
	}
	return values
}

// collect returns the values that reader gets.
func collect(t testing.TB, reader *sdk.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			series := func(set attribute.Set) string { return m.Name + " " + set.Encoded(attribute.DefaultEncoder()) }
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					values[series(p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					values[series(p.Attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[series(p.Attributes)], values[series(p.Attributes)+" sum"] = float64(p.Count), p.Sum
				}
			default:
				require.Fail(t, "an unknown kind of metric", m.Name)
			}
		}
	}
	return values
}

// observers pass each decision on to all of them.
type observers []ratelimit.Observer

func (all observers) Observe(ctx context.Context, d ratelimit.Decision) {
	for _, o := range all {
		o.Observe(ctx, d)
	}
}

// TestAllMetrics gives a limiter a load of every kind, and reloads its file, once without success. Then both exporters show the same
// metrics with the same labels and values, number by number.
func TestAllMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	write(`{"rules": [
		{"name": "a", "endpoint": "/", "algorithm": "TokenBucket", "rate": "5/m burst 7", "onStoreError": "open"},
		{"name": "b", "endpoint": "/", "algorithm": "FixedWindow", "rate": "3/h", "mode": "shadow", "onStoreError": "closed"}]}`)

	reader := sdk.NewManualReader()
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("github.com/ratelimit-go/ratelimit")
	slow, err := otelmetrics.NewDurations(meter, otelmetrics.Options{})
	require.NoError(t, err)
	durations := prommetrics.NewDurations(prommetrics.Options{})

	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	store := &faulty{MemoryStore: memory}
	l, w, err := configfile.Open(path, ratelimit.WithStore(store), ratelimit.WithName("x"), ratelimit.WithObserver(observers{durations, slow}))
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(durations, prommetrics.NewCollector(l, prommetrics.Options{Watcher: w}))
	_, err = otelmetrics.Register(meter, l, otelmetrics.Options{Watcher: w})
	require.NoError(t, err)

	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "mallory", Effect: ratelimit.EffectBlock},
		ratelimit.Override{Client: "bob", Effect: ratelimit.EffectExempt, Until: time.Now().Add(time.Hour)}))
	for _, client := range []string{"alice", "bob", "mallory"} {
		for range 12 {
			l.Allow(client, "/")
		}
	}
	require.Equal(t, scrape(t, registry), collect(t, reader), "while the store answers, its breaker is closed")
	store.down = true
	for range 20 {
		l.Allow("alice", "/")
	}
	write(`{"rules": [`)
	require.Error(t, w.Reload())

	scraped, read := scrape(t, registry), collect(t, reader)
	for series, n := range scraped {
		if strings.HasSuffix(series, " sum") { // both add up the same durations, in the order of the decisions
			assert.Positive(t, n, series)
		}
	}
	require.Equal(t, scraped, read)

	shown := map[string]bool{}
	for series, n := range scraped {
		if name, _, _ := strings.Cut(series, " "); n > 0 {
			shown[name] = true
		}
	}
	for _, m := range counters.Metrics {
		if m.OpenTelemetry != "config.last_reload_successful" && m.OpenTelemetry != "keys" {
			assert.True(t, shown["rate_limiting."+m.OpenTelemetry], m.OpenTelemetry)
		}
	}
	failed := `rate_limiting.store.failures rate_limiting.class=dial,rate_limiting.limiter=default,rate_limiting.part=0`
	assert.GreaterOrEqual(t, scraped[failed], 5.0, "it took five failures to open the breaker")
	assert.Contains(t, slices.Collect(maps.Keys(shown)), "rate_limiting."+counters.DurationOtelName)
	assert.NotContains(t, strings.Join(slices.Collect(maps.Keys(scraped)), "\n"), "mallory", "no metric names a client")
}
