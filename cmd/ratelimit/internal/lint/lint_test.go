package lint_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/lint"
)

var (
	window  = ratelimit.AlgorithmFixedWindow
	log     = ratelimit.AlgorithmSlidingWindowLog
	counter = ratelimit.AlgorithmSlidingWindowCounter
	leaky   = ratelimit.AlgorithmLeakyBucket
	bucket  = ratelimit.AlgorithmTokenBucket
)

func check(t *testing.T, o lint.Options, byDefault *ratelimit.Rule, rules ...ratelimit.Rule) []lint.Finding {
	t.Helper()
	l, err := ratelimit.New(rules, byDefault, ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	if o.MaxKeys == 0 {
		o.MaxKeys = 1000
	}
	found, err := lint.Check(l, o)
	require.NoError(t, err)
	return slices.DeleteFunc(found, func(f lint.Finding) bool { return f.Code == "RL018" }) // see TestNoDefault
}

const day = 24 * time.Hour

var perMinute = ratelimit.PerMinute(10)

func per(d time.Duration) ratelimit.Rate { return ratelimit.Rate{Requests: 1, Per: d} }

// A codesRow is rules, and what is found in them.
type codesRow struct {
	why       string
	options   lint.Options
	byDefault *ratelimit.Rule
	rules     []ratelimit.Rule
	want      []string // code and index of the rule
}

func (row codesRow) run(t *testing.T) {
	t.Run(row.why, func(t *testing.T) {
		var got []string
		for _, f := range check(t, row.options, row.byDefault, row.rules...) {
			got = append(got, fmt.Sprintf("%s %d", f.Code, f.Rule))
			require.NotEmpty(t, f.Message)
			require.NotEmpty(t, f.Advice)
		}
		require.Equal(t, row.want, got)
	})
}

// windowsOf returns a rule that counts in fixed windows.
func windowsOf(per time.Duration, w ratelimit.Window) []ratelimit.Rule {
	return []ratelimit.Rule{{Endpoint: "/a", Algorithm: window, Rate: ratelimit.Rate{Requests: 10, Per: per, Window: w}}}
}

func TestCodes(t *testing.T) {
	for _, row := range []codesRow{
		{"nothing", lint.Options{}, nil, []ratelimit.Rule{{Endpoint: "/a", Rate: perMinute}}, nil},
		{"attempts", lint.Options{}, nil, []ratelimit.Rule{{Endpoint: "/v1/Login", Algorithm: window, Rate: perMinute, Key: ratelimit.KeyIP}},
			[]string{"RL001 0"}},
		{"weeks since the epoch", lint.Options{}, nil, windowsOf(7*24*time.Hour, ""), []string{"RL002 0", "RL017 0"}},
		{"30 days since the epoch", lint.Options{}, nil, windowsOf(30*24*time.Hour, ""), []string{"RL002 0", "RL017 0"}},
		{"31 days since the epoch", lint.Options{}, nil, windowsOf(31*24*time.Hour, ""), []string{"RL002 0", "RL017 0"}},
		{"365 days since the epoch", lint.Options{}, nil, windowsOf(365*24*time.Hour, ""), []string{"RL002 0", "RL017 0"}},
		{"two weeks", lint.Options{}, nil, windowsOf(14*24*time.Hour, ""), []string{"RL002 0"}},
		{"30 days from the first use", lint.Options{}, nil, windowsOf(30*24*time.Hour, "first"), []string{"RL002 0"}},
		{"a month", lint.Options{}, nil, windowsOf(0, "month Europe/Berlin"), []string{"RL002 0"}},
		{"30 days of a bucket", lint.Options{}, nil,
			[]ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.Rate{Requests: 10, Per: 30 * 24 * time.Hour}}}, nil},
		{"attempts in a log", lint.Options{}, nil, []ratelimit.Rule{
			{Endpoint: "/login", Algorithm: log, Rate: perMinute, Key: ratelimit.KeyIP},
		}, nil},
		{"a window", lint.Options{}, nil, []ratelimit.Rule{{Endpoint: "/a", Algorithm: window, Rate: perMinute}}, []string{"RL002 0"}},
		{"30 days", lint.Options{}, nil, []ratelimit.Rule{
			{Endpoint: "/28", Algorithm: window, Rate: per(28 * day)}, {Endpoint: "/31", Algorithm: window, Rate: per(31 * day)},
			{Endpoint: "/365", Algorithm: window, Rate: per(365 * day)}, {Endpoint: "/366", Algorithm: window, Rate: per(366 * day)},
		}, []string{"RL017 0", "RL017 1", "RL017 2", "RL017 3"}},
		{"no month", lint.Options{}, nil, []ratelimit.Rule{
			{Endpoint: "/28", Algorithm: window, Rate: per(28*day - time.Second)},
			{Endpoint: "/31", Algorithm: window, Rate: per(31*day + time.Second)},
			{Endpoint: "/365", Algorithm: window, Rate: per(365*day - time.Second)},
			{Endpoint: "/366", Algorithm: window, Rate: per(366*day + time.Second)},
			{Endpoint: "/log", Algorithm: log, Rate: per(30 * day)},
			{Endpoint: "/first", Algorithm: window, Rate: ratelimit.Rate{Requests: 1, Per: 30 * day, Window: "first"}},
			{Endpoint: "/month", Algorithm: window, Rate: ratelimit.Rate{Requests: 1, Window: ratelimit.Calendar("month", "")}},
		}, nil},
		{"a cost beyond the burst", lint.Options{Costs: map[string][]ratelimit.Cost{"/a": {{N: 4}}}}, nil,
			[]ratelimit.Rule{{Endpoint: "/a", Rate: perMinute.WithBurst(3)}, {Endpoint: "/b", Rate: perMinute.WithBurst(3)}}, []string{"RL003 0"}},
		{"a cost that fits", lint.Options{Costs: map[string][]ratelimit.Cost{"/a": {{N: 3}}}}, nil,
			[]ratelimit.Rule{{Endpoint: "/a", Rate: perMinute.WithBurst(3)}}, nil},
		{"a cost beyond a window", lint.Options{Costs: map[string][]ratelimit.Cost{"/a": {{N: 11}}}}, nil,
			[]ratelimit.Rule{{Endpoint: "/*", Algorithm: log, Rate: perMinute}}, []string{"RL003 0"}},
		{"the default rule behind *", lint.Options{}, &ratelimit.Rule{Rate: perMinute}, []ratelimit.Rule{{Endpoint: "*", Rate: perMinute}},
			[]string{"RL004 -1"}},
		{"names that differ in case", lint.Options{}, &ratelimit.Rule{Rate: perMinute}, []ratelimit.Rule{
			{Name: "Search", Endpoint: "/a", Rate: perMinute}, {Name: "search", Endpoint: "/b", Rate: perMinute},
			{Endpoint: "Default", Rate: perMinute}, {Name: "other", Endpoint: "/c", Rate: perMinute},
		}, []string{"RL010 1", "RL010 -1"}},
		{"the default rule beside an additional *", lint.Options{}, &ratelimit.Rule{Rate: perMinute},
			[]ratelimit.Rule{{Endpoint: "*", Additional: true, Rate: ratelimit.PerMinute(5), Key: ratelimit.KeyIP}}, nil},
		{"the default rule in shadow behind *", lint.Options{}, &ratelimit.Rule{Rate: perMinute, Mode: ratelimit.ModeShadow},
			[]ratelimit.Rule{{Endpoint: "*", Rate: ratelimit.PerMinute(5)}}, []string{"RL005 -1"}},
		{"a name", lint.Options{}, nil, []ratelimit.Rule{{Name: "by name", Rate: perMinute}, {Endpoint: "*", Rate: perMinute}}, nil},
		{"a part of a second", lint.Options{}, nil, []ratelimit.Rule{{Endpoint: "/a", Algorithm: counter,
			Rate: ratelimit.Rate{Requests: 5, Per: 1500 * time.Millisecond}}}, []string{"RL007 0"}},
		{"a bucket of a part of a second", lint.Options{}, nil,
			[]ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.Rate{Requests: 5, Per: 1500 * time.Millisecond}}}, nil},
		{"large logs", lint.Options{MaxKeys: 1 << 20}, nil, []ratelimit.Rule{{Endpoint: "/a", Algorithm: log, Rate: ratelimit.PerMinute(60)}},
			[]string{"RL008 0"}},
		{"the log of a tier", lint.Options{MaxKeys: 1 << 20}, nil, []ratelimit.Rule{
			{Endpoint: "/a", Algorithm: log, Rate: ratelimit.PerMinute(5),
				Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(60), "staff": ratelimit.Unlimited}},
		}, []string{"RL008 0"}},
		{"small logs", lint.Options{MaxKeys: 1 << 20}, nil, []ratelimit.Rule{{Endpoint: "/a", Algorithm: log, Rate: ratelimit.PerMinute(59)}},
			nil},
		{"local", lint.Options{}, nil, []ratelimit.Rule{
			{Endpoint: "/a", Rate: perMinute, OnStoreError: ratelimit.FailLocal(1)},
			{Endpoint: "/b", Rate: perMinute, OnStoreError: ratelimit.FailLocal(2)},
		}, []string{"RL009 0"}},
	} {
		row.run(t)
	}
}

func TestCodesOfStricterRules(t *testing.T) {
	for _, row := range []codesRow{
		{"a looser one", lint.Options{}, nil, []ratelimit.Rule{
			{Name: "tight", Endpoint: "/a", Rate: perMinute}, {Name: "loose", Endpoint: "/a", Rate: ratelimit.PerMinute(11)},
		}, []string{"RL006 1"}},
		{"two that are equal", lint.Options{}, nil, []ratelimit.Rule{
			{Name: "first", Endpoint: "/a", Rate: perMinute}, {Name: "second", Endpoint: "/a", Rate: perMinute},
		}, []string{"RL006 1"}},
		{"a looser one for each endpoint", lint.Options{}, nil, []ratelimit.Rule{
			{Name: "tight", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: perMinute},
			{Endpoint: "/a", Rate: perMinute},
		}, []string{"RL006 1"}},
		{"a tight one for less", lint.Options{}, nil, []ratelimit.Rule{
			{Name: "tight", Endpoint: "/a", Rate: perMinute},
			{Name: "all", Endpoint: "*", Additional: true, Rate: ratelimit.PerMinute(100)},
		}, nil},
		{"a tight one by another key", lint.Options{}, nil, []ratelimit.Rule{
			{Name: "tight", Endpoint: "/a", Rate: perMinute},
			{Name: "all", Endpoint: "/a", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(100)},
		}, nil},
		{"a tight one in shadow", lint.Options{}, nil, []ratelimit.Rule{
			{Name: "tight", Endpoint: "/a", Mode: ratelimit.ModeShadow, Rate: perMinute},
			{Name: "loose", Endpoint: "/a", Rate: ratelimit.PerMinute(100)},
		}, nil},
		{"a quick burst and a slow day", lint.Options{}, nil, []ratelimit.Rule{
			{Name: "quick", Endpoint: "/a", Rate: ratelimit.PerSecond(10)},
			{Name: "slow", Endpoint: "/a", Algorithm: log, Rate: ratelimit.PerDay(1000)},
		}, nil},
	} {
		row.run(t)
	}
}

// TestLimitsThatCannotDeny lets random traffic through random pairs of rules. Where RL006 says that one
// of them can never deny, it never does.
func TestLimitsThatCannotDeny(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	keys := []ratelimit.KeyType{ratelimit.KeyUser, ratelimit.KeyGlobal, ratelimit.KeyIP, ratelimit.KeyOf(ratelimit.KeyUser, ratelimit.KeyIP)}
	rule := func(name string) ratelimit.Rule {
		rate := ratelimit.Rate{Requests: 1 + r.IntN(6), Per: time.Duration(1+r.IntN(5)) * time.Second}
		a := []ratelimit.Algorithm{bucket, leaky, window, counter, log}[r.IntN(5)]
		if (a == bucket || a == leaky) && r.IntN(2) == 0 {
			rate.Burst = 1 + r.IntN(8)
		}
		return ratelimit.Rule{Name: name, Endpoint: "/a", Algorithm: a, Rate: rate, Key: keys[r.IntN(len(keys))]}
	}
	said := make(map[string]int)
	for range 3000 {
		rules := []ratelimit.Rule{rule("0"), rule("1")}
		idle := -1
		for _, f := range check(t, lint.Options{}, nil, rules...) {
			if f.Code == "RL006" {
				idle = f.Rule
			}
		}
		if idle < 0 {
			continue
		}
		said[fmt.Sprintf("%s behind %s", rules[idle].Algorithm, rules[1-idle].Algorithm)]++
		clock := ratelimit.NewFakeClock(time.Unix(1_000_000, 0))
		l, err := ratelimit.New(rules, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		for range 150 {
			clock.Advance(time.Duration(r.IntN(900)) * time.Millisecond * time.Duration(r.IntN(2)))
			req := ratelimit.Request{Client: fmt.Sprint(r.IntN(2)), IP: fmt.Sprint(r.IntN(2)), Endpoint: "/a", Cost: 1 + r.IntN(2)}
			e, err := l.Explain(t.Context(), req)
			require.NoError(t, err)
			both := e.Rules[idle].Result.Allowed || !e.Rules[1-idle].Result.Allowed
			require.True(t, both, "%v denies, and %v does not: %+v", rules[idle], rules[1-idle], req)
			_, err = l.Check(t.Context(), req)
			require.NoError(t, err)
		}
	}
	require.Greater(t, len(said), 10, "kinds of pairs")
}

// TestTheGlobalRuleIsNamed has a rule for everybody that lacks additional. The finding is about the default rule,
// which it replaces, and names the rule that is wrong.
func TestTheGlobalRuleIsNamed(t *testing.T) {
	found := check(t, lint.Options{}, &ratelimit.Rule{Rate: ratelimit.PerMinute(20)},
		ratelimit.Rule{Endpoint: "/a", Rate: perMinute},
		ratelimit.Rule{Name: "everybody", Endpoint: "*", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)})
	require.Equal(t, []lint.Finding{{
		Code: "RL004", Severity: lint.Warning, Rule: -1, Field: "endpoint",
		Message: `no request asks the default rule: "everybody" is for each endpoint and not additional, so it applies in place of it`,
		Advice:  `make "everybody" additional, or remove one of the two`,
	}}, found)
}
