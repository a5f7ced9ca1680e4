package exporters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

// maxRules is how many rules have metrics of their own in these tests.
const maxRules = 2

// exporters are both exporters of one limiter.
type exporters struct {
	registry *prometheus.Registry
	reader   *sdk.ManualReader
}

func newExporters(t testing.TB, l *ratelimit.RateLimiter) exporters {
	t.Helper()
	e := exporters{prometheus.NewPedanticRegistry(), sdk.NewManualReader()}
	require.NoError(t, e.registry.Register(prommetrics.NewCollector(l, prommetrics.Options{MaxRules: maxRules})))
	meter := sdk.NewMeterProvider(sdk.WithReader(e.reader)).Meter("github.com/ratelimit-go/ratelimit")
	_, err := otelmetrics.Register(meter, l, otelmetrics.Options{MaxRules: maxRules})
	require.NoError(t, err)
	return e
}

// A reading is what an exporter shows of the counters.
type reading struct {
	names  map[string]string // of the metric, with the label result, by the field of the counter
	values map[string]uint64 // by the field of the counter and the name of the rule
}

// add adds a value of the metric with this name to r, if it is the value of a counter.
func (r *reading) add(name, help, result, rule string, n uint64) {
	for _, c := range ratelimit.Counters() {
		if c.Result == result && strings.Contains(help, c.Help) {
			if result != "" {
				name += `{result="` + result + `"}`
			}
			r.names[c.Field] = name
			r.values[c.Field+" "+rule] = n
		}
	}
}

// prometheus returns what a scrape has.
func (e exporters) prometheus(t testing.TB) reading {
	t.Helper()
	families, err := e.registry.Gather()
	require.NoError(t, err)
	r := reading{map[string]string{}, map[string]uint64{}}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			r.add(f.GetName(), f.GetHelp(), labels["result"], labels["rule"], uint64(m.GetCounter().GetValue()))
		}
	}
	return r
}

// openTelemetry returns what a reader of the SDK gets.
func (e exporters) openTelemetry(t testing.TB) reading {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, e.reader.Collect(t.Context(), &all))
	r := reading{map[string]string{}, map[string]uint64{}}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, _ := m.Data.(metricdata.Sum[int64]) // gauges are no counters
			for _, p := range sum.DataPoints {
				result, _ := p.Attributes.Value("rate_limiting.result")
				rule, _ := p.Attributes.Value("rate_limiting.policy")
				r.add(m.Name, m.Description, result.AsString(), rule.AsString(), uint64(p.Value))
			}
		}
	}
	return r
}

// A refused is an error of a store with a class.
type refused struct{ error }

func (refused) ErrorClass() string { return "dial" }

// A faulty is a MemoryStore whose method Take fails while it is down.
type faulty struct {
	*ratelimit.MemoryStore
	down bool
}

func (s *faulty) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.down {
		return nil, refused{errors.New("connection refused")}
	}
	return s.MemoryStore.Take(ctx, asks)
}

// A shop is a limiter with random requests, whose rules and store change.
type shop struct {
	*ratelimit.RateLimiter
	clock  *ratelimit.FakeClock
	store  *faulty
	random *rand.Rand
}

func newShop(t testing.TB) *shop {
	t.Helper()
	s := &shop{clock: ratelimit.NewFakeClock(time.Unix(1e9, 0)), random: rand.New(rand.NewPCG(1, 1))}
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(s.clock))
	require.NoError(t, err)
	s.store = &faulty{MemoryStore: memory}
	s.RateLimiter, err = ratelimit.New(nil, nil, ratelimit.WithClock(s.clock), ratelimit.WithStore(s.store), ratelimit.WithName("x"),
		ratelimit.WithRequestIDs(time.Hour), ratelimit.WithMaxKeys(1))
	require.NoError(t, err)
	s.changeRules(t)
	return s
}

// changeRules replaces the rules by one to four of others. The second is in shadow mode.
func (s *shop) changeRules(t testing.TB) {
	t.Helper()
	var rules []ratelimit.Rule
	for i, name := range s.random.Perm(4)[:1+s.random.IntN(4)] {
		rule := ratelimit.Rule{Name: strconv.Itoa(name), Endpoint: "/", Rate: ratelimit.PerMinute(5), OnStoreError: ratelimit.FailLocal(1)}
		if i == 1 {
			rule.Mode = ratelimit.ModeShadow
		}
		rules = append(rules, rule)
	}
	require.NoError(t, s.Replace(rules, nil))
}

// step makes a request of a random client, or changes the rules, the store or the time.
func (s *shop) step(t testing.TB) {
	t.Helper()
	client := strconv.Itoa(s.random.IntN(9))
	switch n := s.random.IntN(100); {
	case n < 60:
		s.Allow(client, "/")
	case n < 75:
		_, err := s.Check(t.Context(), ratelimit.Request{Client: client, Endpoint: "/", ID: client})
		require.True(t, err == nil || errors.Is(err, ratelimit.ErrStore), err)
	case n < 90:
		r, err := s.Reserve(t.Context(), ratelimit.Request{Client: client, Endpoint: "/", Cost: 3}, time.Minute)
		require.True(t, err == nil || errors.Is(err, ratelimit.ErrStore), err)
		if err := r.Cancel(); err != nil {
			require.ErrorIs(t, err, ratelimit.ErrStore)
		}
	case n < 94:
		s.store.down = !s.store.down
	case n < 98:
		s.clock.Advance(time.Minute)
	default:
		s.changeRules(t)
	}
}

// TestCompare reads both exporters while requests come and rules change, and they show the same.
func TestCompare(t *testing.T) {
	s := newShop(t)
	e := newExporters(t, s.RateLimiter)
	counted := map[string]bool{} // the fields of the counters that were not zero
	for range 200 {
		for range s.random.IntN(50) {
			s.step(t)
		}
		scraped, read := e.prometheus(t), e.openTelemetry(t)
		require.Equal(t, scraped.values, read.values)
		require.NotEmpty(t, scraped.values)
		for series, n := range scraped.values {
			if field, _, _ := strings.Cut(series, " "); n > 0 {
				counted[field] = true
			}
		}
	}
	assert.GreaterOrEqual(t, len(counted), 9, "these were counted: %v", counted)
}

// root is the directory of the repository.
const root = "../../.."

// The lines before and after a table of counters.
const (
	begin = "<!-- counters: go generate ./... writes this table -->\n"
	end   = "<!-- end of counters -->\n"
)

// TestTables compares the tables of counters in the documents with ratelimit.Counters, and with the names
// that the exporters give them. go generate writes the tables.
func TestTables(t *testing.T) {
	s := newShop(t)
	e := newExporters(t, s.RateLimiter)
	scraped, read := e.prometheus(t).names, e.openTelemetry(t).names

	fields := "| field | what it counts |\n|---|---|\n"
	metrics := "| Prometheus | OpenTelemetry | unit | what it counts |\n|---|---|---|---|\n"
	for _, c := range ratelimit.Counters() {
		require.Contains(t, scraped, c.Field)
		require.Contains(t, read, c.Field)
		help := regexp.MustCompile(`\b[A-Z][a-z]+[A-Z]\w*`).ReplaceAllString(c.Help, "`$0`") // names of the package
		fields += fmt.Sprintf("| `%s` | %s |\n", c.Field, help)
		name, _, _ := strings.Cut(read[c.Field], "{")
		metrics += fmt.Sprintf("| `%s` | `%s` | `{%s}` | %s |\n", scraped[c.Field], name, c.Unit, help)
	}
	for path, table := range map[string]string{"docs/observing.md": fields, "docs/metrics.md": metrics} {
		path = filepath.Join(root, path)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		before, rest, ok := strings.Cut(string(text), begin)
		require.True(t, ok, "%s has no line %q", path, begin)
		_, after, ok := strings.Cut(rest, end)
		require.True(t, ok, "%s has no line %q", path, end)
		want := before + begin + table + end + after
		if os.Getenv("RATELIMIT_WRITE") == "1" {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644)) //nolint:gosec // a file for all
			continue
		}
		assert.Equal(t, want, string(text), "run go generate ./...")
	}
}
