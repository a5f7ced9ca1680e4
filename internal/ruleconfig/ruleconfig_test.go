package ruleconfig_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

type fields = map[string]any

// A fieldError is what the tests make of a problem.
type fieldError struct{ field, value, reason string }

func (e *fieldError) Error() string { return e.field + " is " + e.value + ": " + e.reason }

func problem(field, value, reason string) error { return &fieldError{field, value, reason} }

func more(n int) error { return fmt.Errorf("and %d more", n) }

// reader returns a Reader that knows the custom algorithm "Custom", which is made by build.
func reader(build func(algoConfig fields) (any, error)) *ruleconfig.Reader {
	custom := ruleconfig.Algorithm{Name: "Custom", Custom: true}
	var r *ruleconfig.Reader
	r = ruleconfig.NewReader(ruleconfig.Caller{
		Problem: problem,
		More:    more,
		Field: func(err error) (field string, value any, reason string, ok bool) {
			e, ok := err.(*fieldError) //nolint:errorlint // an error that wraps one says more
			if !ok {
				return "", nil, "", false
			}
			return e.field, e.value, e.reason, true
		},
		Custom:      func(name string) (ruleconfig.Algorithm, bool) { return custom, confmap.Fold(name) == "custom" },
		CustomNames: func() []string { return []string{"Custom"} },
		Build: func(rule, config *confmap.Node, a ruleconfig.Algorithm) any {
			algoConfig, _ := r.Copy(config)
			return r.Made(rule, config, a, func() (any, error) { return build(algoConfig) })
		},
		Refused: func(a ruleconfig.Algorithm, rate ratetext.Rate) (faults []ruleconfig.Fault) {
			if rate.Requests > 1000 {
				faults = append(faults, ruleconfig.Fault{Field: "requests", Reason: "must be at most 1000"})
			}
			if a.Windowed && rate.Per > time.Hour {
				faults = append(faults, ruleconfig.Fault{Field: "per", Reason: "must be at most an hour"})
			}
			return faults
		},
		Modes:    []string{"enforce", "shadow"},
		MaxRules: 3,
	})
	return r
}

// read returns the rules of configs, and the problems.
func read(configs []fields, defaultConfig fields) (rules []ruleconfig.Rule, problems string) {
	r := reader(func(algoConfig fields) (any, error) { return algoConfig["x"], nil })
	r.Rules(configs, defaultConfig, func(_ *confmap.Node, rule ruleconfig.Rule, _ bool) { rules = append(rules, rule) })
	if err := r.Err(); err != nil {
		problems = err.Error()
	}
	return rules, problems
}

func TestRules(t *testing.T) {
	rules, problems := read([]fields{{
		"endpoint": "/a", "name": "n", "key": "IP+user", "mode": "Shadow", "additional": true, "algorithm": "leaky_bucket",
		"algoConfig": fields{"capacity": 5, "leak_rate_per_second": 0.5}, "tiers": fields{"a": "7/m", "b": "unlimited"}, "onStoreError": "local:3",
	}, {"endpoint": "/b", "algorithm": "CUSTOM", "algoConfig": fields{"x": 9}}}, fields{"algorithm": "FixedWindow", "rate": "5/m"})
	require.Empty(t, problems)
	require.Equal(t, []ruleconfig.Rule{
		{
			Name: "n", Endpoint: "/a", Key: "ip+user", Mode: "shadow", Additional: true, Algorithm: ruleconfig.Algorithm{Name: "LeakyBucket", Leaks: true},
			Rate:         ratetext.Rate{Requests: 1, Per: 2 * time.Second, Burst: 5},
			Tiers:        map[string]ratetext.Rate{"a": {Requests: 7, Per: time.Minute}, "b": ratetext.Unlimited},
			OnStoreError: ruleconfig.Policy{Name: "local", Replicas: 3}, Whole: true, Identified: true,
		},
		{Endpoint: "/b", Algorithm: ruleconfig.Algorithm{Name: "Custom", Custom: true}, Custom: 9, Whole: true, Identified: true},
		{Algorithm: ruleconfig.Algorithm{Name: "FixedWindow", Windowed: true}, Rate: ratetext.Rate{Requests: 5, Per: time.Minute}, Whole: true, Identified: true},
	}, rules)

	for _, tt := range []struct {
		configs []fields
		want    string
		whole   []bool
		ident   []bool
		why     string
	}{
		{nil, "configs is empty: must have at least one config, or there be a default config", nil, nil, "nothing"},
		{make([]fields, 4), "configs is a list of 4: must have at most 3", nil, nil, "too many"},
		{[]fields{nil, {"algorithm": "FixedWindow", "rate": "5/m"}}, "configs[0] is nil: must be a map that has algorithm and algoConfig", []bool{true}, []bool{true}, "a nil map"},
		{
			[]fields{{"algorithm": "FixedWindow", "rate": "2000/2h"}},
			"configs[0].rate is \"2000/2h\": must be at most 1000\nconfigs[0].rate is \"2000/2h\": must be at most an hour",
			[]bool{false},
			[]bool{true},
			"what the caller refuses",
		},
		{[]fields{{"algorithm": "FixedWindow", "rate": "5/m", "nane": "x"}}, `configs[0].nane is "x": unknown field; did you mean "name"?`, []bool{false}, []bool{false}, "the name is not known"},
		{[]fields{{"algorithm": "FixedWindow", "rate": "5/m", "tiers": fields{"a": "2000/m"}}}, `configs[0].tiers["a"] is "2000/m": must be at most 1000`, []bool{false}, []bool{true}, "a tier"},
	} {
		rules, problems := read(tt.configs, nil)
		assert.Equal(t, tt.want, problems, tt.why)
		var whole, ident []bool
		for _, r := range rules {
			whole, ident = append(whole, r.Whole), append(ident, r.Identified)
		}
		assert.Equal(t, tt.whole, whole, tt.why)
		assert.Equal(t, tt.ident, ident, tt.why)
	}
}

var errRefused = errors.New("refused")

func TestMade(t *testing.T) {
	for _, tt := range []struct {
		build func(fields) (any, error)
		want  string
		is    error
		why   string
	}{
		{func(fields) (any, error) { return 1, nil }, "", nil, "made"},
		{func(fields) (any, error) { return nil, nil }, `rule.algorithm is "Custom": its BuildFunc returned neither a limiter nor an error`, nil, "nothing"},
		{func(fields) (any, error) { panic(errRefused) }, `rule.algorithm is "Custom": its BuildFunc panicked: refused`, errRefused, "a panic"},
		{func(fields) (any, error) { return 1, errRefused }, `rule.algoConfig is refused by "Custom": refused`, errRefused, "an error"},
		{func(fields) (any, error) {
			return nil, errors.Join(problem("a", "1", "bad"), problem("[b]", "2", "bad"))
		},
			"rule.algoConfig.a is 1: bad\nrule.algoConfig[b] is 2: bad", nil, "errors for fields"},
		{func(fields) (any, error) { return nil, errors.Join(problem("a", "1", "bad"), errRefused) },
			"rule.algoConfig is refused by \"Custom\": a is 1: bad refused", errRefused, "and another one"},
	} {
		r := reader(tt.build)
		n, _ := confmap.NodeOf("rule", fields{"algorithm": "Custom", "algoConfig": fields{}})
		rule := r.Rule(n)
		if tt.want == "" {
			assert.NoError(t, r.Err())
			assert.Equal(t, 1, rule.Custom)
			continue
		}
		assert.Nil(t, rule.Custom, tt.why)
		require.EqualError(t, r.Err(), tt.want, tt.why)
		if tt.is != nil {
			assert.ErrorIs(t, r.Err(), tt.is, tt.why)
		}
	}
}

func TestReportChecked(t *testing.T) {
	problems := []error{problem("rule.rate.burst", "5", "bad"), problem("rule.endpoint", `"/a"`, "bad"), problem("rule.limiter", "*x", "must be nil: bad"),
		problem(`rule.tiers["t"]`, "3/m", "bad"), problem("rule.onStoreError", "local:1", "bad"), problem("elsewhere", "1", "bad"), errRefused}
	const always = "\nelsewhere is 1: bad\nrefused"
	five := `must be one of "FixedWindow", "LeakyBucket", "SlidingWindowCounter", "SlidingWindowLog", "TokenBucket": bad`
	for _, row := range []struct {
		config fields
		want   string
	}{
		{fields{"algorithm": "GCRA", "algoConfig": fields{}}, `rule.algoConfig.burst is 5: bad
rule.endpoint is "/a": bad
rule.algorithm is "GCRA": ` + five + `
rule.tiers["t"] is 3/m: bad
rule.onStoreError is local:1: bad`},
		{fields{"policy": "GCRA", "Config": fields{}, "end_point": "/a", "TIERS": fields{}, "on_store_error": "local"}, `rule.Config.burst is 5: bad
rule.end_point is "/a": bad
rule.policy is "GCRA": ` + five + `
rule.TIERS["t"] is 3/m: bad
rule.on_store_error is "local": bad`},
		{fields{"algorithm": "GCRA", "rate": "3/m"}, `rule.rate.burst is 5: bad
rule.endpoint is "/a": bad
rule.algorithm is "GCRA": ` + five + `
rule.tiers["t"] is 3/m: bad
rule.onStoreError is local:1: bad`},
		{fields{"algorithm": "GCRA", "limit": 3, "windowMs": 5}, `rule.burst is 5: bad
rule.endpoint is "/a": bad
rule.algorithm is "GCRA": ` + five + `
rule.tiers["t"] is 3/m: bad
rule.onStoreError is local:1: bad`},
	} {
		r := reader(nil)
		n, _ := confmap.NodeOf("rule", row.config)
		r.Fields(n)
		r.ReportChecked(n, problems)
		require.EqualError(t, r.Err(), row.want+always, "a problem is reported for what the config has")
	}
}

func TestNameOf(t *testing.T) {
	assert.Equal(t, "n", ruleconfig.NameOf(fields{"Name": "n", "endpoint": "/a"}))
	assert.Equal(t, "/a", ruleconfig.NameOf(fields{"name": "", "ENDPOINT": "/a"}))
	assert.Empty(t, ruleconfig.NameOf(fields{"name": 5}))
	assert.Empty(t, ruleconfig.NameOf(nil))
}

func TestBuiltin(t *testing.T) {
	for name, want := range map[string]string{
		"GCRA": "TokenBucket", "TOKEN_BUCKET": "TokenBucket", "token-bucket-limiter": "TokenBucket", "SlidingLog": "SlidingWindowLog",
		"slidingcounter": "SlidingWindowCounter", "FixedWindowCounterLimiter": "FixedWindow", "leakyBucket": "LeakyBucket",
		"Limiter": "", "": "", "Bucket": "", "RateLimiter": "", "GCRA" + strings.Repeat("_", 97): "",
	} {
		a, ok := ruleconfig.Builtin(name)
		assert.Equal(t, want, a.Name, name)
		assert.Equal(t, want != "", ok, name)
	}
}

func TestParseKey(t *testing.T) {
	for text, want := range map[string]string{
		"user": "user", "User_Endpoint": "user_endpoint", "endpoint + user": "user_endpoint", "IP+ENDPOINT": "ip+endpoint",
		"Attr:A_b": "attr:A_b", "user+attr:x": "attr:x+user", "GLOBAL": "global",
	} {
		key, problem := ruleconfig.ParseKey(text)
		assert.Equal(t, want, key)
		assert.Empty(t, problem)
	}
	for text, want := range map[string]string{
		"":                        `must be a key such as "ip" or "ip+endpoint", or a list of parts such as ["ip", "endpoint"]`,
		"usr":                     `unknown key; did you mean "user"?`,
		"ip+usr":                  `unknown key; did you mean "ip+user"?`,
		"ip+usr+user":             `must be one of "user", "endpoint", "user_endpoint", "ip", "global", "attr:NAME", or several of them joined by "+"`,
		strings.Repeat("x", 1025): "must be at most 1024 bytes long",
	} {
		key, problem := ruleconfig.ParseKey(text)
		assert.Empty(t, key)
		assert.Equal(t, want, problem, text)
	}
}

func TestFields(t *testing.T) {
	newFields := func(config fields) *ruleconfig.Fields { return ruleconfig.NewFields(config, problem, more) }
	good := newFields(fields{
		"int": json.Number("-9"), "zero": 0, "FLOAT": "no", "float": 2.5, "string": "s", "bool": true, "pause": "1h30m", "wait": time.Second, "rate": "5/m burst 7", "max_size": 3.0,
	})
	assert.Equal(t, []any{-9, 0, 2.5, "s", true, 90 * time.Minute, time.Second, ratetext.Rate{Requests: 5, Per: time.Minute, Burst: 7}, 3, true, false},
		[]any{good.Int("int"), good.Int("zero"), good.Float("float"), good.String("string"), good.Bool("bool"), good.Duration("pause"), good.Duration("wait"), good.Rate("rate"), good.Int("maxSize"), good.Has("INT"), good.Has("other")})
	assert.EqualError(t, good.Err(), "FLOAT is \"no\": must not stand beside float: give one of them")

	for _, tt := range []struct {
		value any
		want  string // by Int, Float, String, Bool, Duration and Rate; "" where the value is one
	}{
		{nil, "f is nil: must be a whole number|f is nil: must be a number|f is nil: must be a string|f is nil: must be true or false|f is nil: must be a time with its unit, such as \"90s\"|f is nil: must be a rate such as \"100/m\""},
		{"5", `f is "5": must be a number, not a string: drop the quotes|f is "5": must be a number, not a string: drop the quotes||f is "5": must be true or false|f is "5": must be a time with its unit, such as "90s"|f is "5": ` + ratetext.Form},
		{1.5, `f is 1.5: must be a whole number||f is 1.5: must be a string|f is 1.5: must be true or false|f is 1.5: must be a time with its unit, such as "90s"|f is 1.5: must be a rate such as "100/m"`},
		{json.Number("1e400"), `f is 1e400: must be closer to 0: it is beyond what can be counted|f is 1e400: must be closer to 0|f is 1e400: must be a string|f is 1e400: must be true or false|f is 1e400: must be a time with its unit, such as "90s"|f is 1e400: must be a rate such as "100/m"`},
		{"unlimited", `f is "unlimited": must be a whole number|f is "unlimited": must be a number||f is "unlimited": must be true or false|f is "unlimited": must be a time with its unit, such as "90s"|f is "unlimited": must be a rate such as "100/m"`},
		{-time.Second, `f is -1s: must be a whole number|f is -1s: must be a number|f is -1s: must be a string|f is -1s: must be true or false|f is -1s: must be a time with its unit, such as "90s"|f is -1s: must be a rate such as "100/m"`},
	} {
		var got []string
		for _, ask := range []func(*ruleconfig.Fields){
			func(f *ruleconfig.Fields) { f.Int("f") }, func(f *ruleconfig.Fields) { f.Float("f") }, func(f *ruleconfig.Fields) { f.String("f") },
			func(f *ruleconfig.Fields) { f.Bool("f") }, func(f *ruleconfig.Fields) { f.Duration("f") }, func(f *ruleconfig.Fields) { f.Rate("f") },
		} {
			f, text := newFields(fields{"f": tt.value}), ""
			ask(f)
			if err := f.Err(); err != nil {
				text = err.Error()
			}
			got = append(got, text)
		}
		assert.Equal(t, tt.want, strings.Join(got, "|"))
	}

	missing := newFields(fields{"intt": 5, "y": 6})
	missing.Int("int")
	missing.Rate("rate")
	missing.Has("optional")
	want := "intt is 5: unknown field; did you mean \"int\"?\ny is 6: unknown field\nrate is missing: must be a rate such as \"100/m\""
	require.EqualError(t, missing.Err(), want, "what is misspelt is not missing")
	require.EqualError(t, missing.Err(), want, "it says the same again")
	require.NoError(t, newFields(nil).Err())
}
