package prommetrics_test

import (
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

// A shop is a service in trouble of every kind, whose metrics a server offers, and beside it a
// limiter that is well.
type shop struct {
	server  *httptest.Server
	api     *ratelimit.RateLimiter // denies, in earnest and in shadow; its file has become wrong
	stored  *ratelimit.RateLimiter // its store fails
	crowded *ratelimit.RateLimiter // has too many keys
	harsh   *ratelimit.RateLimiter // blocks each client that asks twice, but for one
	calm    *ratelimit.RateLimiter // gets requests again, and gives units back
	watcher *configfile.Watcher    // of api
	store   *failing               // of stored
	clock   *ratelimit.FakeClock
	round   int
}

// newShop returns a shop without traffic.
func newShop(t testing.TB) *shop {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	s := new(shop)
	quiet := slog.New(slog.DiscardHandler)
	open := func(name, text string, opts ...ratelimit.Option) (*ratelimit.RateLimiter, *configfile.Watcher) {
		path := filepath.Join(t.TempDir(), name+".json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		durations := prommetrics.NewDurations(prommetrics.Options{Limiter: name})
		l, w, err := configfile.Open(path, append(opts, ratelimit.WithObserver(durations))...)
		require.NoError(t, err)
		w.Log = quiet
		require.NoError(t, registry.Register(durations))
		require.NoError(t, registry.Register(prommetrics.NewCollector(l, prommetrics.Options{Limiter: name, Watcher: w})))
		return l, w
	}
	s.api, s.watcher = open("api", `[{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "1/h"},
		{"name": "next limit", "endpoint": "/search", "algorithm": "FixedWindow", "rate": "1/d", "mode": "shadow"}]`)
	require.NoError(t, os.WriteFile(s.watcher.Path, []byte("["), 0o600))
	s.calm, _ = open("calm", `[{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "1000000000/s"}]`,
		ratelimit.WithRequestIDs(time.Hour))

	made := func(name string, opts ...ratelimit.Option) *ratelimit.RateLimiter {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerDay(10_000_000)}, opts...)
		require.NoError(t, err)
		require.NoError(t, registry.Register(prommetrics.NewCollector(l, prommetrics.Options{Limiter: name})))
		return l
	}
	s.store, s.clock = newFailing(t), ratelimit.NewFakeClock(time.Unix(1e9, 0))
	s.stored = made("stored", ratelimit.WithStore(s.store), ratelimit.WithName("x"), ratelimit.WithClock(s.clock))
	s.crowded = made("crowded", ratelimit.WithMaxKeys(1))
	harsh, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerDay(1),
		Penalty: ratelimit.Penalty{After: 1, Within: time.Hour, For: time.Hour}})
	require.NoError(t, err)
	require.NoError(t, harsh.Override(t.Context(), ratelimit.Override{Client: "friend", Effect: ratelimit.EffectExempt}))
	require.NoError(t, registry.Register(prommetrics.NewCollector(harsh, prommetrics.Options{Limiter: "harsh"})))
	s.harsh = harsh
	s.server = httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	t.Cleanup(s.server.Close)
	return s
}

// work makes some requests to every limiter. The store answers again, and then fails for good.
func (s *shop) work(t testing.TB) {
	t.Helper()
	require.Error(t, s.watcher.Reload())
	s.clock.Advance(time.Hour)
	s.store.well.Store(true)
	s.stored.Allow("alice", "/")
	s.store.well.Store(false)
	for range 30 {
		s.round++
		client := strconv.Itoa(s.round)
		s.api.Allow("alice", "/search")
		for range 2 {
			_, err := s.calm.Check(t.Context(), ratelimit.Request{Client: client, Endpoint: "/search", ID: client})
			require.NoError(t, err)
		}
		r, err := s.calm.Reserve(t.Context(), ratelimit.Request{Client: client, Endpoint: "/search"}, time.Minute)
		require.NoError(t, err)
		require.NoError(t, r.Cancel())
		s.stored.Allow(client, "/")
		s.crowded.Allow(client, "/")
		s.harsh.Allow(client, "/")
		s.harsh.Allow(client, "/")
		s.harsh.Allow("friend", "/")
	}
}

// filled returns expr as Grafana sends it, with all values of all variables.
func filled(expr string) string {
	return strings.NewReplacer(
		"$job", "shop", "$instance", ".*", "$limiter", ".*", "$rule", ".*",
		"$__rate_interval", "1m", "$__range", "1h",
	).Replace(expr)
}

// An alert is what Prometheus says of one rule of alerts.yaml.
type alert struct {
	Name        string            `json:"name"`
	Query       string            `json:"query"`
	Duration    float64           `json:"duration"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Health      string            `json:"health"`
	Alerts      []struct {
		Labels map[string]string `json:"labels"`
	} `json:"alerts"` // those that are pending or firing
}

// alerts returns what p says of its rules.
func (p *prometheusServer) alerts(t testing.TB) []alert {
	t.Helper()
	text, err := p.fetch(t.Context(), "/api/v1/rules")
	require.NoError(t, err)
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []alert `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(text, &answer))
	require.Len(t, answer.Data.Groups, 1)
	return answer.Data.Groups[0].Rules
}

// shows reports whether samples are what a query is to show in a shop in trouble: for that of an
// alert any, because its condition is part of it.
func shows(samples []sample, alerts bool) bool {
	return slices.ContainsFunc(samples, func(s sample) bool { return alerts || s.value > 0 && !math.IsInf(s.value, 0) })
}

// TestPrometheus lets a real Prometheus scrape a shop in trouble. Each query of the dashboard, and
// each alert, shows the trouble; no alert is about the limiter that is well.
func TestPrometheus(t *testing.T) {
	s := newShop(t)
	p := startPrometheus(t, strings.TrimPrefix(s.server.URL, "http://"))
	open := map[string]string{}     // the queries that have shown nothing yet, by expression, and what asks them
	labels := map[string][]string{} // what the legends name, by expression
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			expr := filled(target.Expr)
			open[expr] = panel.Title
			for _, name := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				labels[expr] = append(labels[expr], name[1])
			}
		}
	}
	panels := len(open)
	require.Equal(t, 24, panels)
	alerts := p.alerts(t)
	for _, a := range alerts {
		open[a.Query] = a.Name
	}
	require.Len(t, open, panels+7)

	deadline := time.Now().Add(time.Minute)
	for len(open) > 0 {
		require.True(t, time.Now().Before(deadline), "these queries show nothing: %v", open)
		s.work(t)
		for expr, asker := range open {
			samples := p.query(t, expr)
			if shows(samples, strings.HasPrefix(asker, "Ratelimit")) {
				delete(open, expr)
				for _, name := range labels[expr] {
					assert.Contains(t, samples[0].labels, name, "%s: the legend names a label that %s has not", asker, expr)
				}
			}
		}
	}
	for _, a := range alerts {
		assert.NotEmpty(t, a.Annotations["summary"], a.Name)
		assert.NotEmpty(t, a.Annotations["description"], a.Name)
		assert.Contains(t, []string{"warning", "info"}, a.Labels["severity"], a.Name)
	}
	want := map[string]string{ // the limiter that each alert is about
		"RatelimitDegraded":      "ok stored",
		"RatelimitStorePartOpen": "ok stored",
		"RatelimitOverflow":      "ok crowded",
		"RatelimitReloadFailed":  "ok api",
		"RatelimitDenied":        "ok api",
		"RatelimitBlocksRise":    "ok harsh",
		"RatelimitLongExemption": "ok harsh",
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		about := map[string]string{}
		for _, a := range p.alerts(t) {
			about[a.Name] = a.Health
			for _, active := range a.Alerts {
				about[a.Name] += " " + active.Labels["limiter"]
			}
		}
		assert.Equal(c, want, about)
	}, time.Minute, 100*time.Millisecond)

	for _, v := range readDashboard(t).Templating.List[1:] {
		of := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		require.NotNil(t, of, v.Definition)
		found := map[string]bool{}
		for _, s := range p.query(t, filled(of[1])) {
			found[s.labels[of[2]]] = true
		}
		want := map[string][]string{
			"job": {"shop"}, "instance": {strings.TrimPrefix(s.server.URL, "http://")},
			"limiter": {"api", "calm", "crowded", "harsh", "stored"}, "rule": {"/search", "default", "next limit"},
		}[v.Name]
		var got []string
		for value := range found {
			got = append(got, value)
		}
		assert.ElementsMatch(t, want, got, v.Name)
	}
}

// TestPromtool lets promtool check the metrics, the alerts, and when the alerts fire.
func TestPromtool(t *testing.T) {
	s := newShop(t)
	s.work(t)
	text, err := fetch(t.Context(), s.server.URL)
	require.NoError(t, err)
	promtool(t, string(text), "check", "metrics")
	beside(t, "dashboards/alerts.yaml")
	promtool(t, "", "check", "rules", "../dashboards/alerts.yaml")
	promtool(t, "", "test", "rules", "testdata/alerts_test.yaml", "testdata/alerts_week_test.yaml")
}

// TestScrape has every metric in a real scrape, of a server.
func TestScrape(t *testing.T) {
	s := newShop(t)
	s.work(t)
	resp, err := http.Get(s.server.URL) //nolint:noctx // the server is the test's own
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	text, err := fetch(t.Context(), s.server.URL)
	require.NoError(t, err)
	checkShown(t, exportedNames(string(text)))
}
