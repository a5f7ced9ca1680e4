package prommetrics_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

// TestTwoLimiters has two limiters in one registry, which have the same rules.
func TestTwoLimiters(t *testing.T) {
	first, second := newLimiter(t, rulesNamed("a"), nil), newLimiter(t, rulesNamed("a"), nil)
	ask(t, first, "a", 1)
	ask(t, second, "a", 2)
	r := registered(t,
		prommetrics.NewCollector(first, prommetrics.Options{}), prommetrics.NewDurations(prommetrics.Options{}),
		prommetrics.NewCollector(second, prommetrics.Options{Limiter: "b"}), prommetrics.NewDurations(prommetrics.Options{Limiter: "b"}))
	text := scraped(t, r)
	assert.Contains(t, text, `ratelimit_requests_total{limiter="default",result="allowed",rule="a"} 1`)
	assert.Contains(t, text, `ratelimit_requests_total{limiter="b",result="allowed",rule="a"} 2`)

	// The name of a limiter is a label of every metric, and shown as those of rules are.
	long := strings.Repeat("\xffx", 1<<19)
	text = scraped(t, registered(t, prommetrics.NewCollector(first, prommetrics.Options{Limiter: long})))
	assert.Contains(t, text, `ratelimit_store_opened_total{limiter="`+strings.Repeat("\uFFFDx", 100)+`…`)
	assert.Less(t, len(text), 1<<19, "of each name, little is exported")
}

// TestRegisteredTwice is refused by the registry.
func TestRegisteredTwice(t *testing.T) {
	l := newLimiter(t, rulesNamed("a"), nil)
	c, d := prommetrics.NewCollector(l, prommetrics.Options{}), prommetrics.NewDurations(prommetrics.Options{})
	r := registered(t, c, d)
	for why, again := range map[string]prometheus.Collector{
		"the same collector":              c,
		"the same limiter":                prommetrics.NewCollector(l, prommetrics.Options{}),
		"another limiter of the name":     prommetrics.NewCollector(newLimiter(t, nil, nil), prommetrics.Options{Limiter: "default"}),
		"the name when it is valid":       prommetrics.NewDurations(prommetrics.Options{Limiter: ""}),
		"the same durations":              d,
		"the same limiter with a watcher": prommetrics.NewCollector(l, prommetrics.Options{Watcher: &configfile.Watcher{}}),
	} {
		err := r.Register(again)
		require.Error(t, err, why)
		assert.Regexp(t, "duplicate metrics collector registration attempted|already exists with the same fully-qualified name", err.Error(), why)
	}
	assert.True(t, r.Unregister(c))
	assert.NoError(t, r.Register(prommetrics.NewCollector(l, prommetrics.Options{})))
}

// TestRefused has what NewCollector panics with.
func TestRefused(t *testing.T) {
	refused := func(l *ratelimit.RateLimiter, o prommetrics.Options) (err error) {
		defer func() { err, _ = recover().(error) }()
		prommetrics.NewCollector(l, o)
		return nil
	}
	l := newLimiter(t, nil, nil)
	require.NoError(t, refused(l, prommetrics.Options{}))
	err := refused(nil, prommetrics.Options{MaxRules: -1})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, "ratelimit: limiter is nil: must be made by ratelimit.New or configfile.Open\nratelimit: maxRules is -1: "+
		"must not be negative; 0 means 500")
	require.EqualError(t, refused(l, prommetrics.Options{MaxRules: -2}), "ratelimit: maxRules is -2: must not be negative; 0 means 500")
	require.EqualError(t, refused(nil, prommetrics.Options{}), "ratelimit: limiter is nil: must be made by ratelimit.New or configfile.Open")
}

// TestNoRules has limiters without rules.
func TestNoRules(t *testing.T) {
	for why, l := range map[string]*ratelimit.RateLimiter{"none": newLimiter(t, nil, nil), "the zero limiter": new(ratelimit.RateLimiter)} {
		v := values(t, registered(t, prommetrics.NewCollector(l, prommetrics.Options{})))
		assert.Equal(t, map[string]float64{`ratelimit_store_opened_total{}`: 0, `ratelimit_store_parts{state="open"}`: 0,
			`ratelimit_store_parts{state="closed"}`: 0, `ratelimit_overrides{effect="block"}`: 0, `ratelimit_overrides{effect="exempt"}`: 0,
			`ratelimit_overrides{effect="rate"}`: 0, `ratelimit_overridden_requests_total{effect="block"}`: 0,
			`ratelimit_overridden_requests_total{effect="exempt"}`: 0, `ratelimit_overridden_requests_total{effect="rate"}`: 0}, v, why)
	}
}

// TestLimits compares the limits that are shown with what limiters say, for each algorithm.
func TestLimits(t *testing.T) {
	for algorithm, rate := range map[ratelimit.Algorithm]ratelimit.Rate{
		ratelimit.AlgorithmTokenBucket:          ratelimit.PerSecond(7).WithBurst(9),
		ratelimit.AlgorithmLeakyBucket:          {Requests: 7, Per: time.Second / 2},
		ratelimit.AlgorithmFixedWindow:          {Requests: 7, Per: 4 * time.Second},
		ratelimit.AlgorithmSlidingWindowLog:     ratelimit.PerSecond(7),
		ratelimit.AlgorithmSlidingWindowCounter: ratelimit.PerSecond(7),
	} {
		l := newLimiter(t, []ratelimit.Rule{{Name: "a", Algorithm: algorithm, Rate: rate}}, nil)
		res, err := l.Peek(t.Context(), ratelimit.Request{Client: "x", Rules: []string{"a"}})
		require.NoError(t, err)
		v := values(t, registered(t, prommetrics.NewCollector(l, prommetrics.Options{})))
		assert.Equal(t, float64(res.Limit), v[`ratelimit_rule_limit_units{rule="a"}`], algorithm)
		perSecond := map[time.Duration]float64{time.Second: 7, time.Second / 2: 14, 4 * time.Second: 1.75}[rate.Per]
		assert.Equal(t, perSecond, v[`ratelimit_rule_units_per_second{rule="a"}`], algorithm)
		assert.Equal(t, 1.0, v[`ratelimit_rule_info{algorithm="`+string(algorithm)+`",key="user",mode="enforce",rule="a"}`], algorithm)
	}
}

// TestWatcher follows a file that is right, wrong, gone, and right again.
func TestWatcher(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	good := `[{"endpoint": "/a", "algorithm": "TokenBucket", "rate": "5/s"}]`
	write(good)
	l, opened, err := configfile.Open(path)
	require.NoError(t, err)
	opened.Log = slog.New(slog.DiscardHandler)
	made := &configfile.Watcher{Path: path, Limiter: l, Log: opened.Log}
	for _, w := range []*configfile.Watcher{opened, made} {
		r := registered(t, prommetrics.NewCollector(l, prommetrics.Options{Watcher: w}))
		check := func(successful, success, failure float64, why string) {
			t.Helper()
			v := values(t, r)
			const applied = `ratelimit_config_last_reload_success_timestamp_seconds{}`
			assert.Equal(t, []float64{successful, success, failure}, []float64{v[`ratelimit_config_last_reload_successful{}`],
				v[`ratelimit_config_reloads_total{result="success"}`], v[`ratelimit_config_reloads_total{result="failure"}`]}, why)
			at, ok := v[applied]
			assert.Equal(t, success > 0, ok, why)
			if ok {
				assert.Equal(t, float64(w.Status().Applied.UnixMilli())/1000, at, why)
			}
		}
		loads := 0.0
		if w == opened {
			loads = 1
			check(1, 1, 0, "Open has applied it")
		} else {
			check(0, 0, 0, "nothing was applied yet")
		}
		require.NoError(t, w.Reload())
		check(1, loads+1, 0, "applied")
		write("[")
		require.Error(t, w.Reload())
		check(0, loads+1, 1, "refused")
		require.NoError(t, os.Remove(path))
		require.Error(t, w.Reload())
		check(0, loads+1, 2, "gone")
		write(good)
		require.NoError(t, w.Reload())
		check(1, loads+2, 2, "right again")
	}
}
