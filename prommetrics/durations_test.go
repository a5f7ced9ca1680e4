package prommetrics_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

// samples returns how many samples the histogram of each source has.
func samples(t testing.TB, d *prommetrics.Durations) map[string]uint64 {
	t.Helper()
	families, err := registered(t, d).Gather()
	require.NoError(t, err)
	counts := map[string]uint64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			counts[m.GetLabel()[1].GetValue()] = m.GetHistogram().GetSampleCount()
		}
	}
	return counts
}

// TestDurations asks limiters with the observer.
func TestDurations(t *testing.T) {
	d := prommetrics.NewDurations(prommetrics.Options{})
	assert.Empty(t, samples(t, d), "no series of a source that is not used")
	store := newFailing(t)
	l := newLimiter(t, []ratelimit.Rule{
		{Endpoint: "/a", Rate: ratelimit.PerHour(1)},
		{Endpoint: "/own", Limiter: denying{}},
	}, nil, ratelimit.WithObserver(d))
	stored := newLimiter(t, rulesNamed("a"), nil, ratelimit.WithObserver(d), ratelimit.WithStore(store), ratelimit.WithName("x"))
	for range 3 {
		l.Allow("x", "/a")
		l.Allow("x", "/none")
	}
	l.Allow("x", "/own")
	stored.Allow("x", "/0")
	store.well.Store(true)
	stored.Allow("x", "/0")
	_, err := l.Peek(t.Context(), ratelimit.Request{Client: "x", Endpoint: "/a"})
	require.NoError(t, err)
	assert.Equal(t, map[string]uint64{"memory": 3, "none": 3, "limiter": 1, "policy": 1, "store": 1}, samples(t, d))

	for _, source := range []ratelimit.Source{ratelimit.SourceReplay, ratelimit.SourceReplay, "new", "n\xff"} {
		d.Observe(t.Context(), ratelimit.Decision{Source: source})
	}
	assert.Equal(t, map[string]uint64{"memory": 3, "none": 3, "limiter": 1, "policy": 1, "store": 1, "replay": 2, "new": 1, "n\uFFFD": 1},
		samples(t, d))
}

// TestBuckets has the bounds that are promised, and a sample at each of them and beyond.
func TestBuckets(t *testing.T) {
	d := prommetrics.NewDurations(prommetrics.Options{})
	bounds := []time.Duration{
		time.Microsecond, 5 * time.Microsecond, 25 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond,
		time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond,
	}
	for _, took := range bounds {
		d.Observe(t.Context(), ratelimit.Decision{Source: ratelimit.SourceMemory, Took: took})
		d.Observe(t.Context(), ratelimit.Decision{Source: ratelimit.SourceMemory, Took: took + 1})
	}
	text := scraped(t, registered(t, d))
	for i, bound := range bounds {
		line := `le="` + strconv.FormatFloat(bound.Seconds(), 'g', -1, 64) + `"} ` + strconv.Itoa(2*i+1) + "\n"
		assert.Equal(t, 1, strings.Count(text, line), line)
	}
	assert.Equal(t, len(bounds)+1, strings.Count(text, "_bucket{"))
	assert.Contains(t, text, `le="+Inf"} 24`)
}

// TestDurationsAllocate keeps the observer free of allocations.
func TestDurationsAllocate(t *testing.T) {
	d := prommetrics.NewDurations(prommetrics.Options{})
	decision := ratelimit.Decision{Source: ratelimit.SourceStore, Took: time.Microsecond}
	assert.Zero(t, testing.AllocsPerRun(100, func() { d.Observe(context.Background(), decision) }))
}

// BenchmarkDurations is what the observer adds to a decision: "none" has no observer, "empty" one
// that does nothing.
func BenchmarkDurations(b *testing.B) {
	for _, tt := range []struct {
		name string
		opts []ratelimit.Option
	}{
		{"none", nil},
		{"empty", []ratelimit.Option{ratelimit.WithObserver(ignoring{})}},
		{"durations", []ratelimit.Option{ratelimit.WithObserver(prommetrics.NewDurations(prommetrics.Options{}))}},
	} {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1e9)}, tt.opts...)
		require.NoError(b, err)
		b.Run("observer="+tt.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Allow("client", "/")
				}
			})
		})
	}
}

// BenchmarkObserve is one call of the observer.
func BenchmarkObserve(b *testing.B) {
	d := prommetrics.NewDurations(prommetrics.Options{})
	decision := ratelimit.Decision{Source: ratelimit.SourceStore, Took: time.Microsecond}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			d.Observe(context.Background(), decision)
		}
	})
}

// ignoring is an Observer that does nothing.
type ignoring struct{}

func (ignoring) Observe(context.Context, ratelimit.Decision) {}

// BenchmarkScrape is one scrape of a limiter with this many rules.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{10, 500, 10_000} {
		var names []string
		for i := range n {
			names = append(names, "rule"+strconv.Itoa(i))
		}
		l := newLimiter(b, rulesNamed(names...), nil)
		r := prometheus.NewRegistry()
		require.NoError(b, r.Register(prommetrics.NewCollector(l, prommetrics.Options{})))
		b.Run("rules="+strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := r.Gather()
				require.NoError(b, err)
			}
		})
	}
}
