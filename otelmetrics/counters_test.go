package otelmetrics_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
)

// A faulty is a MemoryStore whose method Take fails while it is down.
type faulty struct {
	*ratelimit.MemoryStore
	down bool
}

func (s *faulty) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.down {
		return nil, errors.New("connection refused")
	}
	return s.MemoryStore.Take(ctx, asks)
}

// loaded returns a limiter whose rule "a" has counted requests of every kind, and what its counters
// have then. At least nine of them differ from each other and from zero.
func loaded(t testing.TB) (*ratelimit.RateLimiter, ratelimit.RuleStats) {
	t.Helper()
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	store := &faulty{MemoryStore: memory}
	rule := ratelimit.Rule{Name: "a", Rate: ratelimit.PerHour(40), OnStoreError: ratelimit.FailLocal(1)}
	l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("x"),
		ratelimit.WithRequestIDs(time.Hour), ratelimit.WithMaxKeys(1))
	require.NoError(t, err)
	ask := func(n int, req ratelimit.Request) {
		for range n {
			req.Rules = []string{"a"}
			_, err := l.Check(t.Context(), req)
			require.True(t, err == nil || errors.Is(err, ratelimit.ErrStore), err)
		}
	}
	ask(4, ratelimit.Request{ID: "1"})
	r, err := l.Reserve(t.Context(), ratelimit.Request{Rules: []string{"a"}, Cost: 31}, time.Minute)
	require.NoError(t, err)
	require.NoError(t, r.Cancel())
	ask(9, ratelimit.Request{Cost: 41})
	for _, mode := range []ratelimit.Mode{ratelimit.ModeShadow, ratelimit.ModeEnforce} {
		rule.Mode = mode
		require.NoError(t, l.Replace([]ratelimit.Rule{rule}, nil))
		if mode == ratelimit.ModeShadow {
			ask(7, ratelimit.Request{Cost: 41})
		}
	}
	store.down = true
	for i := range 12 {
		ask(1, ratelimit.Request{Client: strconv.Itoa(i)})
	}
	clock.Advance(24 * time.Hour)
	ask(1, ratelimit.Request{Client: "new"})

	stats := l.Stats()[0]
	var values []uint64
	for _, c := range ratelimit.Counters() {
		if n := c.Value(&stats); n > 0 {
			values = append(values, n)
		}
	}
	slices.Sort(values)
	require.GreaterOrEqual(t, len(slices.Compact(values)), 9, "%+v", stats)
	return l, stats
}

// TestCounters proves that a reader gets every counter of a rule, with its value, its unit and its
// description.
func TestCounters(t *testing.T) {
	l, stats := loaded(t)
	reader, meter := newReader(t, metricdata.CumulativeTemporality)
	_, err := otelmetrics.Register(meter, l, otelmetrics.Options{})
	require.NoError(t, err)
	got := read(t, reader)
	delete(got, "rate_limiting.keys a")
	maps.DeleteFunc(got, func(series string, _ int64) bool {
		_, ofLimiter, _ := strings.Cut(series, " ") // these have no rule
		return strings.HasPrefix(ofLimiter, " ") || ofLimiter == ""
	})
	want, of := map[string]int64{}, map[string]ratelimit.Counter{}
	for _, c := range ratelimit.Counters() {
		name := "rate_limiting." + strings.Replace(c.Name, "store_", "store.", 1)
		of[name] = c
		want[strings.TrimSpace(name+" a "+c.Result)] = int64(c.Value(&stats))
	}
	assert.Equal(t, want, got)
	assert.Len(t, got, len(ratelimit.Counters()))

	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		if c, ok := of[m.Name]; ok {
			delete(of, m.Name)
			assert.Equal(t, "{"+c.Unit+"}", m.Unit, m.Name)
			assert.Contains(t, m.Description, c.Help, m.Name)
		}
	}
	assert.Empty(t, of)
}
