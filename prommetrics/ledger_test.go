package prommetrics_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

// rulesNamed returns a rule of each name, in this order.
func rulesNamed(names ...string) (rules []ratelimit.Rule) {
	for _, name := range names {
		rules = append(rules, ratelimit.Rule{Name: name, Endpoint: "/" + strconv.Itoa(len(rules)), Rate: ratelimit.PerHour(100)})
	}
	return rules
}

// ask makes n requests to the rule with this name.
func ask(t testing.TB, l *ratelimit.RateLimiter, rule string, n int) {
	t.Helper()
	for i := range n {
		_, err := l.Check(t.Context(), ratelimit.Request{Client: strconv.Itoa(i), Rules: []string{rule}})
		require.NoError(t, err)
	}
}

// allowedOf returns how many allowed requests v has, by the name of the rule.
func allowedOf(v map[string]float64) map[string]float64 {
	of := map[string]float64{}
	for key, n := range v {
		if rest, ok := strings.CutPrefix(key, `ratelimit_requests_total{result="allowed",rule=`); ok {
			name, err := strconv.Unquote(strings.TrimSuffix(rest, "}"))
			if err != nil {
				panic(err)
			}
			of[name] = n
		}
	}
	return of
}

// TestMaxRules sums the rules beyond the bound.
func TestMaxRules(t *testing.T) {
	l := newLimiter(t, rulesNamed("a", "b", "c", "d"), &ratelimit.Rule{Rate: ratelimit.PerHour(1), Mode: ratelimit.ModeShadow})
	for i, rule := range []string{"a", "b", "c", "d", "default"} {
		ask(t, l, rule, i+1)
	}
	ask(t, l, "default", 1)
	for _, tt := range []struct {
		max  int
		want map[string]float64
		why  string
	}{
		{1, map[string]float64{"a": 1, "_other": 14}, "the first rule, and the others in one"},
		{2, map[string]float64{"a": 1, "b": 2, "_other": 12}, "the first two"},
		{4, map[string]float64{"a": 1, "b": 2, "c": 3, "d": 4, "_other": 5}, "the default rule comes last"},
		{5, map[string]float64{"a": 1, "b": 2, "c": 3, "d": 4, "default": 5}, "as many as there are"},
		{0, map[string]float64{"a": 1, "b": 2, "c": 3, "d": 4, "default": 5}, "500"},
	} {
		v := values(t, registered(t, prommetrics.NewCollector(l, prommetrics.Options{MaxRules: tt.max})))
		assert.Equal(t, tt.want, allowedOf(v), tt.why)
		if tt.max == 2 {
			assert.Equal(t, 1.0, v[requests("_other", "shadow_denied")])
			assert.Equal(t, 12.0, v[`ratelimit_keys{rule="_other"}`])
			assert.NotContains(t, v, `ratelimit_rule_limit_units{rule="_other"}`, "a sum of limits says nothing")
			assert.Contains(t, v, `ratelimit_rule_limit_units{rule="b"}`)
		}
	}
}

// TestDefaultMaxRules has more rules than are shown each by itself.
func TestDefaultMaxRules(t *testing.T) {
	var names []string
	for i := range 502 {
		names = append(names, strconv.Itoa(i))
	}
	l := newLimiter(t, rulesNamed(names...), nil)
	ask(t, l, "499", 1)
	ask(t, l, "500", 2)
	ask(t, l, "501", 3)
	allowed := allowedOf(values(t, registered(t, prommetrics.NewCollector(l, prommetrics.Options{}))))
	assert.Len(t, allowed, 501)
	assert.Equal(t, []float64{1, 5}, []float64{allowed["499"], allowed["_other"]})
}

// hashed returns how a long name is shown whose first n bytes are.
func hashed(n int, name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:n], "\uFFFD") + "…" + hex.EncodeToString(sum[:4])
}

// TestNames shows names that Prometheus cannot have, or should not.
func TestNames(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		names []string
		want  map[string]float64
		why   string
	}{
		{[]string{"a\xffb", "a\xfeb", "a\uFFFDb"}, map[string]float64{"a\uFFFDb": 6}, "names that are equal when they are valid are summed"},
		{[]string{"\xff\xfe", "é\n\"\\"}, map[string]float64{"\uFFFD": 1, "é\n\"\\": 2}, "several bytes are replaced at once"},
		{[]string{strings.Repeat("x", 200), strings.Repeat("x", 201)},
			map[string]float64{strings.Repeat("x", 200): 1, hashed(200, strings.Repeat("x", 201)): 2}, "200 bytes are shown"},
		{[]string{long, long + "y"}, map[string]float64{hashed(200, long): 1, hashed(200, long+"y"): 2}, "a megabyte"},
		{[]string{strings.Repeat("é", 99) + "x€z"}, map[string]float64{hashed(199, strings.Repeat("é", 99)+"x€z"): 1}, "not within a character"},
		{[]string{strings.Repeat("\xff", 300)}, map[string]float64{hashed(200, strings.Repeat("\xff", 300)): 1}, "invalid and long"},
		{[]string{strings.Repeat("\x80", 300)}, map[string]float64{hashed(196, strings.Repeat("\x80", 300)): 1}, "no character begins"},
		{[]string{"_other", "b"}, map[string]float64{"_other": 1, "b": 2}, "a rule may have this name"},
	} {
		l := newLimiter(t, rulesNamed(tt.names...), nil)
		for i, name := range tt.names {
			ask(t, l, name, i+1)
		}
		allowed := allowedOf(values(t, registered(t, prommetrics.NewCollector(l, prommetrics.Options{}))))
		got := map[string]float64{}
		for name, n := range allowed {
			require.True(t, utf8.ValidString(name), tt.why)
			require.LessOrEqual(t, len(name), 211, tt.why)
			got[name] = n
		}
		assert.Equal(t, tt.want, got, tt.why)
	}
}

// TestOtherByName has a rule that is called as the sum of others.
func TestOtherByName(t *testing.T) {
	l := newLimiter(t, rulesNamed("_other", "b"), nil)
	ask(t, l, "_other", 1)
	ask(t, l, "b", 2)
	v := values(t, registered(t, prommetrics.NewCollector(l, prommetrics.Options{MaxRules: 1})))
	assert.Equal(t, map[string]float64{"_other": 3}, allowedOf(v))
	assert.NotContains(t, v, `ratelimit_rule_limit_units{rule="_other"}`, "which is not that of all")

	l = newLimiter(t, rulesNamed("a\xff", "a\xfe", "b"), nil)
	ask(t, l, "a\xff", 1)
	ask(t, l, "a\xfe", 2)
	v = values(t, registered(t, prommetrics.NewCollector(l, prommetrics.Options{MaxRules: 1})))
	assert.Equal(t, map[string]float64{"a\uFFFD": 3, "_other": 0}, allowedOf(v), "a name that is shown is no other")
}

// TestRulesChange reads counters while rules come and go. A counter never decreases while its name
// is there, and the sum over all names is what was asked.
func TestRulesChange(t *testing.T) {
	l := newLimiter(t, rulesNamed("a", "b", "c", "d"), nil)
	r := registered(t, prommetrics.NewCollector(l, prommetrics.Options{MaxRules: 2}))
	scrape := func() map[string]float64 { return allowedOf(values(t, r)) }
	for i, rule := range []string{"a", "b", "c", "d"} {
		ask(t, l, rule, 10+i)
	}
	require.Equal(t, map[string]float64{"a": 10, "b": 11, "_other": 25}, scrape())

	require.NoError(t, l.RemoveRule("c"))
	require.Equal(t, map[string]float64{"a": 10, "b": 11, "_other": 25}, scrape(),
		"what a removed rule has counted stays in the sum of others")

	require.NoError(t, l.RemoveRule("a"))
	ask(t, l, "d", 1)
	require.Equal(t, map[string]float64{"b": 11, "d": 1}, scrape(),
		"d has been counted among others; by itself it begins with what came since")

	require.NoError(t, l.AddRule(ratelimit.Rule{Name: "a", Endpoint: "/0", Rate: ratelimit.PerHour(5)}))
	ask(t, l, "a", 3)
	require.Equal(t, map[string]float64{"b": 11, "d": 1, "_other": 3}, scrape(), "a rule that a scrape did not find begins again")

	// Removed and added between two scrapes.
	require.NoError(t, l.RemoveRule("b"))
	require.NoError(t, l.AddRule(ratelimit.Rule{Name: "b", Endpoint: "/1", Rate: ratelimit.PerHour(5)}))
	ask(t, l, "b", 2)
	require.Equal(t, map[string]float64{"d": 1, "a": 0, "_other": 5}, scrape(),
		"b is the last now, and what it counted anew is added to the 3 of a")
	require.NoError(t, l.Replace(rulesNamed("d"), nil))
	require.Equal(t, map[string]float64{"d": 1}, scrape())
	require.NoError(t, l.RemoveRule("d"))
	require.NoError(t, l.AddRule(ratelimit.Rule{Name: "d", Endpoint: "/1", Rate: ratelimit.PerHour(5)}))
	require.Equal(t, map[string]float64{"d": 1}, scrape(), "it does not go backwards")
	ask(t, l, "d", 4)
	require.Equal(t, map[string]float64{"d": 5}, scrape())
	ask(t, l, "d", 1)
	require.Equal(t, map[string]float64{"d": 6}, scrape())

	require.NoError(t, l.UpdateRate("d", ratelimit.PerHour(7)))
	v := values(t, r)
	require.Equal(t, []float64{6, 7}, []float64{v[requests("d", "allowed")], v[`ratelimit_rule_limit_units{rule="d"}`]},
		"a change of the rate keeps the counts")

	require.NoError(t, l.Replace(nil, nil))
	require.Empty(t, scrape())
	require.NoError(t, l.Replace(rulesNamed("d"), nil))
	ask(t, l, "d", 8)
	require.Equal(t, map[string]float64{"d": 8}, scrape(), "a scrape did not find d, so it begins again")
}

// TestKeyCounts has keys that are forgotten, and keys beyond the bound on their number.
func TestKeyCounts(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	rules := []ratelimit.Rule{{Name: "a", Rate: ratelimit.Rate{Requests: 1000, Per: time.Second}}}
	l, err := ratelimit.New(rules, nil, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
	require.NoError(t, err)
	r := registered(t, prommetrics.NewCollector(l, prommetrics.Options{}))
	const (
		overflowed = `ratelimit_overflowed_requests_total{rule="a"}`
		evicted    = `ratelimit_evicted_keys_total{rule="a"}`
		keys       = `ratelimit_keys{rule="a"}`
	)
	ask(t, l, "a", 100)
	stats, v := l.Stats()[0], values(t, r)
	require.Greater(t, stats.Overflowed, uint64(50), "most clients found no room")
	require.Zero(t, stats.Evicted)
	require.Equal(t, []float64{float64(stats.Overflowed), 0, float64(stats.LiveKeys)}, []float64{v[overflowed], v[evicted], v[keys]})

	clock.Advance(time.Hour)
	_, err = l.Check(t.Context(), ratelimit.Request{Client: "new", Rules: []string{"a"}})
	require.NoError(t, err)
	stats, v = l.Stats()[0], values(t, r)
	require.NotZero(t, stats.Evicted)
	require.NotEqual(t, stats.Evicted, stats.Overflowed)
	require.Equal(t, []float64{float64(stats.Overflowed), float64(stats.Evicted), float64(stats.LiveKeys)},
		[]float64{v[overflowed], v[evicted], v[keys]})
}

// TestKeyNames has a key of an attribute whose name is not UTF-8.
func TestKeyNames(t *testing.T) {
	l := newLimiter(t, []ratelimit.Rule{{Name: "a", Key: "attr:team\xff", Rate: ratelimit.PerHour(1)}}, nil)
	assert.Contains(t, values(t, registered(t, prommetrics.NewCollector(l, prommetrics.Options{}))),
		`ratelimit_rule_info{algorithm="TokenBucket",key="attr:team`+"\uFFFD"+`",mode="enforce",rule="a"}`)
}

// TestEachCount has every counter of a rule begin again.
func TestEachCount(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	rule := ratelimit.Rule{Name: "a", Rate: ratelimit.PerSecond(1), OnStoreError: ratelimit.FailClosed}
	store := newFailing(t)
	l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("x"))
	require.NoError(t, err)
	r := registered(t, prommetrics.NewCollector(l, prommetrics.Options{}))
	for range 8 {
		_, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"a"}})
		require.ErrorIs(t, err, ratelimit.ErrStore)
	}
	calls := float64(store.calls.Load())
	require.Greater(t, calls, 1.0)
	require.Less(t, calls, 8.0, "the breaker has opened")
	v := values(t, r)
	counted := []string{requests("a", "denied"), `ratelimit_degraded_requests_total{rule="a"}`, `ratelimit_store_errors_total{rule="a"}`,
		`ratelimit_store_opened_total{}`, `ratelimit_store_parts{state="open"}`, `ratelimit_store_parts{state="closed"}`}
	of := func(v map[string]float64) (got []float64) {
		for _, key := range counted {
			require.Contains(t, v, key)
			got = append(got, v[key])
		}
		return got
	}
	require.Equal(t, []float64{8, 8, calls, 1, 1, 0}, of(v))

	store.well.Store(true)
	clock.Advance(time.Hour)
	require.NoError(t, l.RemoveRule("a"))
	require.NoError(t, l.AddRule(rule))
	ask(t, l, "a", 1)
	require.Equal(t, []float64{8, 8, calls, 1, 0, 1}, of(values(t, r)))
}

// TestLedgersAreOne compares the files that both modules have.
func TestLedgersAreOne(t *testing.T) {
	for _, name := range []string{"ledger.go", "measures.go"} {
		other, err := os.ReadFile("../otelmetrics/" + name)
		if os.IsNotExist(err) {
			t.Skip("the other module is not beside this one")
		}
		require.NoError(t, err)
		own, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, strings.Replace(string(own), "package prommetrics", "package otelmetrics", 1), string(other))
	}
}

// TestScrapesUnderLoad scrapes while requests come and rules change.
func TestScrapesUnderLoad(t *testing.T) {
	l := newLimiter(t, rulesNamed("a", "b", "c"), nil)
	r := registered(t, prommetrics.NewCollector(l, prommetrics.Options{MaxRules: 2}))
	const each = 2000
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for i := range each {
				l.Allow(strconv.Itoa(i), "/0")
			}
		})
	}
	working.Go(func() {
		for i := range 100 {
			assert.NoError(t, l.Replace(rulesNamed("a", "b", "c", "d")[:3+i%2], nil))
		}
	})
	for range 2 {
		working.Go(func() {
			before := 0.0
			for range 50 {
				now := values(t, r)
				sum := now[requests("a", "allowed")] + now[requests("a", "denied")]
				assert.GreaterOrEqual(t, sum, before)
				before = sum
			}
		})
	}
	working.Wait()
	v := values(t, r)
	assert.Equal(t, 4.0*each, v[requests("a", "allowed")]+v[requests("a", "denied")])
}
