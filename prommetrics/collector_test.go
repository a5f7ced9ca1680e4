package prommetrics_test

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

// newLimiter returns a limiter of these rules, whose clock stands still.
func newLimiter(t testing.TB, rules []ratelimit.Rule, defaultRule *ratelimit.Rule, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	t.Helper()
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	l, err := ratelimit.New(rules, defaultRule, append([]ratelimit.Option{ratelimit.WithClock(clock)}, opts...)...)
	require.NoError(t, err)
	return l
}

// registered returns a registry that checks what collectors say of themselves, with these.
func registered(t testing.TB, collectors ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, r.Register(c))
	}
	return r
}

// values returns what r gathers: the value of each series, by its name and labels without that of
// the limiter, such as `ratelimit_keys{rule="/a"}`.
func values(t testing.TB, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[f.GetName()+labelsOf(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

func labelsOf(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		if l.GetName() != "limiter" {
			labels = append(labels, l.GetName()+"="+strconv.Quote(l.GetValue()))
		}
	}
	return "{" + strings.Join(labels, ",") + "}"
}

// requests returns the key of values for a rule and a result.
func requests(rule, result string) string {
	return `ratelimit_requests_total{result="` + result + `",rule=` + strconv.Quote(rule) + "}"
}

// denying is a custom limiter that denies.
type denying struct{}

func (denying) Allow(string) ratelimit.Result {
	return ratelimit.Result{Limit: 1, RetryAfter: time.Second}
}

func (denying) Take(context.Context, string, int) (ratelimit.Result, error) {
	return ratelimit.Result{Limit: 1, RetryAfter: time.Second}, nil
}

// scraped returns what r gathers, as Prometheus reads it.
func scraped(t testing.TB, r prometheus.Gatherer) string {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	var text strings.Builder
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(t, err)
	}
	return text.String()
}

// TestCollector compares the text of a scrape with testdata/scrape.txt, which go generate writes.
func TestCollector(t *testing.T) {
	l := newLimiter(t, []ratelimit.Rule{
		{Name: "search", Endpoint: "/search", Rate: ratelimit.PerMinute(30).WithBurst(2)},
		{Endpoint: "/login", Key: ratelimit.KeyOf(ratelimit.KeyUser, ratelimit.KeyEndpoint), Algorithm: ratelimit.AlgorithmSlidingWindowLog,
			Rate: ratelimit.Rate{Requests: 3, Per: 2 * time.Second}, Mode: ratelimit.ModeShadow},
		{Endpoint: "/own", Limiter: denying{}},
	}, &ratelimit.Rule{Rate: ratelimit.PerHour(3600), Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmFixedWindow})
	for range 3 {
		l.Allow("a", "/search")
	}
	l.Allow("b", "/search")
	for range 5 {
		l.Allow("a", "/login")
	}
	l.Allow("a", "/own")
	require.NoError(t, l.Override(t.Context(),
		ratelimit.Override{Client: "mallory", Effect: ratelimit.EffectBlock}, ratelimit.Override{Client: "trent", Effect: ratelimit.EffectExempt},
		ratelimit.Override{IP: "10.0.0.0/8", Effect: ratelimit.EffectExempt}))
	for range 3 {
		l.Allow("mallory", "/search")
	}
	l.Allow("trent", "/search")
	durations := prommetrics.NewDurations(prommetrics.Options{Limiter: "api"})
	durations.Observe(t.Context(), ratelimit.Decision{Source: ratelimit.SourceMemory, Took: 500 * time.Nanosecond})
	durations.Observe(t.Context(), ratelimit.Decision{Source: ratelimit.SourceMemory, Took: 2 * time.Second})
	durations.Observe(t.Context(), ratelimit.Decision{Source: ratelimit.SourceStore, Took: 750 * time.Microsecond})
	watcher := &configfile.Watcher{Path: "none.json", Limiter: l, Log: slog.New(slog.DiscardHandler)}
	require.Error(t, watcher.Reload())
	r := registered(t, durations, prommetrics.NewCollector(l, prommetrics.Options{Limiter: "api", Watcher: watcher}))
	if os.Getenv("RATELIMIT_WRITE") == "1" {
		require.NoError(t, os.WriteFile("testdata/scrape.txt", []byte(scraped(t, r)), 0o644)) //nolint:gosec // a file for all
	}
	want, err := os.ReadFile("testdata/scrape.txt")
	require.NoError(t, err)
	assert.Equal(t, string(want), scraped(t, r), "run go generate ./prommetrics")

	for _, whom := range []string{"mallory", "trent", "10.0.0.0"} {
		assert.NotContains(t, string(want), whom, "no label names a client")
	}

	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// TestCollectorOfWindows requires that the rate of a rule is its limit divided by the length of the current window, in seconds.
// The time in a bubble of synctest begins on January 1, 2000.
func TestCollectorOfWindows(t *testing.T) {
	const day = 86400.
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "month", Endpoint: "/a", Algorithm: ratelimit.AlgorithmFixedWindow,
				Rate: ratelimit.Rate{Requests: 100, Window: ratelimit.Calendar("month", "")}},
			{Name: "first", Endpoint: "/b", Algorithm: ratelimit.AlgorithmFixedWindow,
				Rate: ratelimit.Rate{Requests: 100, Per: time.Hour, Window: "first"}},
		}, nil)
		require.NoError(t, err)
		r := registered(t, prommetrics.NewCollector(l, prommetrics.Options{Limiter: "api"}))
		for _, days := range []float64{31, 29, 31} { // of January, February and March
			all := values(t, r)
			require.Equal(t, 100/(days*day), all[`ratelimit_rule_units_per_second{rule="month"}`])
			require.Equal(t, 100., all[`ratelimit_rule_limit_units{rule="month"}`])
			require.Equal(t, 100/3600., all[`ratelimit_rule_units_per_second{rule="first"}`])
			time.Sleep(time.Duration(days * day * 1e9))
		}
	})
}
