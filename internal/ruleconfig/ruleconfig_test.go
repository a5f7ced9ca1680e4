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

// A fieldError is the error that the tests make for a problem.
type fieldError struct{ field, value, reason string }

func (e *fieldError) Error() string { return e.field + " is " + e.value + ": " + e.reason }

func problem(field, value, reason string) error { return &fieldError{field, value, reason} }

func more(n int) error { return fmt.Errorf("and %d more", n) }

// A rule has what a config says.
type rule struct {
	name, endpoint, key string
	additional          bool
	algorithm           ruleconfig.Algorithm
	rate                ratetext.Rate
	tiers               map[string]ratetext.Rate
	warmup              ruleconfig.Warmup
	penalty             ruleconfig.Penalty
	onStoreError        ruleconfig.Policy
	custom              any

	whole bool // whether the config has no problem
}

// readRule reads the rule at n. If its algorithm is custom, build builds its limiter.
func readRule(r *ruleconfig.Reader, n *confmap.Node, build func(algoConfig fields) (any, error)) (x rule) {
	before := r.Found()
	r.Fields(n)
	x.endpoint, _ = r.Text(n, "endpoint")
	x.name, _ = r.Text(n, "name")
	x.key, _ = r.Key(n)
	x.additional = r.Bool(n, "additional")
	x.algorithm = r.Algorithm(n)
	config, ok := r.Config(n)
	switch {
	case ok && x.algorithm.Custom:
		algoConfig, _ := r.Copy(config)
		x.custom = r.Built(n, config, x.algorithm, func() (any, error) { return build(algoConfig) })
	case ok && x.algorithm.Name != "":
		x.rate = r.Rate(n, config, x.algorithm)
	}
	r.Tiers(n, x.algorithm, x.rate, func(name string, rate ratetext.Rate) {
		if x.tiers == nil {
			x.tiers = make(map[string]ratetext.Rate)
		}
		x.tiers[name] = rate
	})
	x.warmup = r.Warmup(n, config, x.algorithm)
	x.penalty = r.Penalty(n, x.algorithm)
	x.onStoreError = r.Policy(n)
	x.whole = r.Found() == before
	return x
}

// algorithms are those of the root package.
var algorithms = []ruleconfig.Algorithm{
	{Name: "TokenBucket"}, {Name: "LeakyBucket", Leaks: true}, {Name: "FixedWindow", Windowed: true},
	{Name: "SlidingWindowCounter", Windowed: true}, {Name: "SlidingWindowLog", Windowed: true},
}

// reader returns a Reader that knows the custom algorithm "Custom".
func reader() *ruleconfig.Reader {
	custom := ruleconfig.Algorithm{Name: "Custom", Custom: true}
	return ruleconfig.NewReader(ruleconfig.Caller{
		Problem: problem,
		More:    more,
		Field: func(err error) (field string, value any, reason string, ok bool) {
			e, ok := err.(*fieldError) //nolint:errorlint // an error that wraps one says more
			if !ok {
				return "", nil, "", false
			}
			return e.field, e.value, e.reason, true
		},
		Algorithms:  algorithms,
		Custom:      func(name string) (ruleconfig.Algorithm, bool) { return custom, confmap.Fold(name) == "custom" },
		CustomNames: func() []string { return []string{"Custom"} },
		Refused: func(a ruleconfig.Algorithm, rate ratetext.Rate) (faults []ruleconfig.Fault) {
			if rate.Requests > 1000 {
				faults = append(faults, ruleconfig.Fault{Field: "requests", Reason: "must be at most 1000"})
			}
			if a.Windowed && rate.Per > time.Hour {
				faults = append(faults, ruleconfig.Fault{Field: "per", Reason: "must be at most an hour"})
			}
			return faults
		},
		MaxRules: 3,
	})
}

// read returns the rules of configs, and the problems.
func read(configs []fields, defaultConfig fields) (rules []rule, problems string) {
	r := reader()
	r.Rules(configs, defaultConfig, func(n *confmap.Node, _ bool) {
		rules = append(rules, readRule(r, n, func(algoConfig fields) (any, error) { return algoConfig["x"], nil }))
	})
	if err := r.Err(); err != nil {
		problems = err.Error()
	}
	return rules, problems
}

func TestRules(t *testing.T) {
	rules, problems := read([]fields{{
		"endpoint": "/a", "name": "n", "key": "IP+user", "additional": true, "algorithm": "leaky_bucket",
		"algoConfig": fields{"capacity": 5, "leak_rate_per_second": 0.5}, "tiers": fields{"a": "7/m", "b": "unlimited"},
		"onStoreError": "local:3",
	}, {"endpoint": "/b", "algorithm": "CUSTOM", "algoConfig": fields{"x": 9}}}, fields{"algorithm": "FixedWindow", "rate": "5/m"})
	require.Empty(t, problems)
	require.Equal(t, []rule{
		{
			name: "n", endpoint: "/a", key: "ip+user", additional: true,
			algorithm:    ruleconfig.Algorithm{Name: "LeakyBucket", Leaks: true},
			rate:         ratetext.Rate{Requests: 1, Per: 2 * time.Second, Burst: 5},
			tiers:        map[string]ratetext.Rate{"a": {Requests: 7, Per: time.Minute}, "b": ratetext.Unlimited},
			onStoreError: ruleconfig.Policy{Name: "local", Replicas: 3}, whole: true,
		},
		{endpoint: "/b", algorithm: ruleconfig.Algorithm{Name: "Custom", Custom: true}, custom: 9, whole: true},
		{
			algorithm: ruleconfig.Algorithm{Name: "FixedWindow", Windowed: true},
			rate:      ratetext.Rate{Requests: 5, Per: time.Minute}, whole: true,
		},
	}, rules)

	for _, tt := range []struct {
		configs []fields
		want    string
		whole   []bool
		why     string
	}{
		{nil, "configs is empty: must have at least one config, or there be a default config", nil, "nothing"},
		{make([]fields, 4), "configs is a list of 4: must have at most 3", nil, "too many"},
		{[]fields{nil, {"algorithm": "FixedWindow", "rate": "5/m"}}, "configs[0] is nil: must be a map that has algorithm and algoConfig",
			[]bool{true}, "a nil map"},
		{
			[]fields{{"algorithm": "FixedWindow", "rate": "2000/2h"}},
			"configs[0].rate is \"2000/2h\": must be at most 1000\nconfigs[0].rate is \"2000/2h\": must be at most an hour",
			[]bool{false},
			"what the caller refuses",
		},
		{[]fields{{"algorithm": "FixedWindow", "rate": "5/m", "nane": "x"}},
			`configs[0].nane is "x": unknown field; did you mean "name"?`, []bool{false}, "the name is not known"},
		{[]fields{{"algorithm": "FixedWindow", "rate": "5/m", "tiers": fields{"a": "2000/m"}}},
			`configs[0].tiers["a"] is "2000/m": must be at most 1000`, []bool{false}, "a tier"},
	} {
		rules, problems := read(tt.configs, nil)
		assert.Equal(t, tt.want, problems, tt.why)
		var whole []bool
		for _, r := range rules {
			whole = append(whole, r.whole)
		}
		assert.Equal(t, tt.whole, whole, tt.why)
	}
}

var errRefused = errors.New("refused")

func TestBuilt(t *testing.T) {
	for _, tt := range []struct {
		build func(fields) (any, error)
		want  string
		is    error
		why   string
	}{
		{func(fields) (any, error) { return 1, nil }, "", nil, "a limiter"},
		{func(fields) (any, error) { return nil, nil },
			`rule.algorithm is "Custom": its BuildFunc returned neither a limiter nor an error`, nil, "nothing"},
		{func(fields) (any, error) { panic(errRefused) }, `rule.algorithm is "Custom": its BuildFunc panicked: refused`, errRefused, "a panic"},
		{func(fields) (any, error) { return 1, errRefused }, `rule.algoConfig is refused by "Custom": refused`, errRefused, "an error"},
		{func(fields) (any, error) {
			return nil, errors.Join(problem("a", "1", "bad"), problem("[b]", "2", "bad"))
		},
			"rule.algoConfig.a is 1: bad\nrule.algoConfig[b] is 2: bad", nil, "errors for fields"},
		{func(fields) (any, error) { return nil, errors.Join(problem("a", "1", "bad"), errRefused) },
			"rule.algoConfig is refused by \"Custom\": a is 1: bad refused", errRefused, "and another one"},
	} {
		r := reader()
		n, _ := confmap.NodeOf("rule", fields{"algorithm": "Custom", "algoConfig": fields{}})
		rule := readRule(r, n, tt.build)
		if tt.want == "" {
			assert.NoError(t, r.Err())
			assert.Equal(t, 1, rule.custom)
			continue
		}
		assert.Nil(t, rule.custom, tt.why)
		require.EqualError(t, r.Err(), tt.want, tt.why)
		if tt.is != nil {
			assert.ErrorIs(t, r.Err(), tt.is, tt.why)
		}
	}
}

func TestReportChecked(t *testing.T) {
	problems := []error{
		problem("rule.rate.burst", "5", "bad"), problem("rule.endpoint", `"/a"`, "bad"), problem("rule.limiter", "*x", "must be nil: bad"),
		problem(`rule.tiers["t"]`, "3/m", "bad"), problem("rule.onStoreError", "local:1", "bad"), problem("elsewhere", "1", "bad"), errRefused,
	}
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
		{fields{"policy": "GCRA", "Config": fields{}, "end_point": "/a", "TIERS": fields{}, "on_store_error": "local"},
			`rule.Config.burst is 5: bad
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
		r := reader()
		n, _ := confmap.NodeOf("rule", row.config)
		r.Fields(n)
		r.ReportChecked(n, problems)
		require.EqualError(t, r.Err(), row.want+always, "a problem is reported for what the config has")
	}
}

func TestMarshal(t *testing.T) {
	values := fields{"algoConfig": fields{"rate": "5/m"}, "algorithm": "GCRA", "tiers": fields{}}
	for _, f := range ruleconfig.RuleFields {
		if _, set := values[f.Name]; !set {
			values[f.Name] = ""
		}
	}
	text, err := ruleconfig.Marshal(values)
	require.NoError(t, err)
	//nolint:testifylint // byte for byte
	assert.Equal(t, `{"algorithm":"GCRA","algoConfig":{"rate":"5/m"}}`, string(text), "zero values are left out")
	values["endpoint"], values["additional"], values["algoConfig"], values["tiers"] = "/<a>", true, fields(nil), fields{"b": 1, "a": 2}
	text, err = ruleconfig.Marshal(values)
	require.NoError(t, err)
	//nolint:testifylint // byte for byte
	assert.Equal(t, `{"endpoint":"/\u003ca\u003e","additional":true,"algorithm":"GCRA","algoConfig":null,"tiers":{"a":2,"b":1}}`, string(text))
	values["name"] = func() {}
	_, err = ruleconfig.Marshal(values)
	require.EqualError(t, err, "json: unsupported type: func()")

	delete(values, "name")
	_, err = ruleconfig.Marshal(values)
	assert.EqualError(t, err, `ruleconfig: Marshal: no value for the field "name"`)
}

func TestNameOf(t *testing.T) {
	assert.Equal(t, "n", ruleconfig.NameOf(fields{"Name": "n", "endpoint": "/a"}))
	assert.Equal(t, "/a", ruleconfig.NameOf(fields{"name": "", "ENDPOINT": "/a"}))
	assert.Empty(t, ruleconfig.NameOf(fields{"name": 5}))
	assert.Empty(t, ruleconfig.NameOf(nil))
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{
		"GCRA": "TokenBucket", "TOKEN_BUCKET": "TokenBucket", "token-bucket-limiter": "TokenBucket", "SlidingLog": "SlidingWindowLog",
		"slidingcounter": "SlidingWindowCounter", "FixedWindowCounterLimiter": "FixedWindow", "leakyBucket": "LeakyBucket",
		"Limiter": "", "": "", "Bucket": "", "RateLimiter": "", "GCRA" + strings.Repeat("_", 97): "",
	} {
		a, ok := ruleconfig.Find(algorithms, name)
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
		"":       `must be a key such as "ip" or "ip+endpoint", or a list of parts such as ["ip", "endpoint"]`,
		"usr":    `unknown key; did you mean "user"?`,
		"ip+usr": `unknown key; did you mean "ip+user"?`,
		"ip+usr+user": `must be one of "user", "endpoint", "user_endpoint", "ip", "global", "attr:NAME", ` +
			`or several of them joined by "+"`,
		strings.Repeat("x", 1025): "must be at most 1024 bytes long",
	} {
		key, problem := ruleconfig.ParseKey(text)
		assert.Empty(t, key)
		assert.Equal(t, want, problem, text)
	}
}

func newFields(config fields) *ruleconfig.Fields { return ruleconfig.NewFields(config, problem, more) }

func TestFields(t *testing.T) {
	good := newFields(fields{
		"int": json.Number("-9"), "zero": 0, "FLOAT": "no", "float": 2.5, "string": "s", "bool": true, "pause": "1h30m",
		"wait": time.Second, "rate": "5/m burst 7", "max_size": 3.0,
	})
	assert.Equal(t, -9, good.Int("int"))
	assert.Equal(t, 0, good.Int("zero"))
	assert.Exactly(t, 2.5, good.Float("float"))
	assert.Equal(t, "s", good.String("string"))
	assert.True(t, good.Bool("bool"))
	assert.Equal(t, 90*time.Minute, good.Duration("pause"))
	assert.Equal(t, time.Second, good.Duration("wait"))
	assert.Equal(t, ratetext.Rate{Requests: 5, Per: time.Minute, Burst: 7}, good.Rate("rate"))
	assert.Equal(t, 3, good.Int("maxSize"))
	assert.True(t, good.Has("INT"))
	assert.False(t, good.Has("other"))
	assert.EqualError(t, good.Err(), "FLOAT is \"no\": must not stand beside float: give one of them")

	missing := newFields(fields{"intt": 5, "y": 6})
	missing.Int("int")
	missing.Rate("rate")
	missing.Has("optional")
	want := "intt is 5: unknown field; did you mean \"int\"?\ny is 6: unknown field\nrate is missing: must be a rate such as \"100/m\""
	require.EqualError(t, missing.Err(), want, "what is misspelt is not missing")
	require.EqualError(t, missing.Err(), want, "it says the same again")
	require.NoError(t, newFields(nil).Err())
}

func TestFieldsThatAreWrong(t *testing.T) {
	const (
		whole = "f is %s: must be a whole number"
		num   = "f is %s: must be a number"
		text  = "f is %s: must be a string"
		truth = "f is %s: must be true or false"

		unquote = ", not a string: drop the quotes"
		span    = `f is %s: must be a time with its unit, such as "90s"`
		rate    = `f is %s: must be a rate such as "100/m"`
	)
	for _, tt := range []struct {
		value any
		shown string    // the value in an error, which stands for each %s
		want  [6]string // by Int, Float, String, Bool, Duration and Rate; "" where the value is one
	}{
		{nil, "nil", [6]string{whole, num, text, truth, span, rate}},
		{"5", `"5"`, [6]string{num + unquote, num + unquote, "", truth, span, "f is %s: " + ratetext.Form}},
		{1.5, "1.5", [6]string{whole, "", text, truth, span, rate}},
		{json.Number("1e400"), "1e400", [6]string{
			"f is %s: must be closer to 0: it is beyond what can be counted", "f is %s: must be closer to 0", text, truth, span, rate,
		}},
		{"unlimited", `"unlimited"`, [6]string{whole, num, "", truth, span, rate}},
		{-time.Second, "-1s", [6]string{whole, num, text, truth, span, rate}},
	} {
		for i, read := range []func(*ruleconfig.Fields){
			func(f *ruleconfig.Fields) { f.Int("f") }, func(f *ruleconfig.Fields) { f.Float("f") }, func(f *ruleconfig.Fields) { f.String("f") },
			func(f *ruleconfig.Fields) { f.Bool("f") }, func(f *ruleconfig.Fields) { f.Duration("f") }, func(f *ruleconfig.Fields) { f.Rate("f") },
		} {
			f := newFields(fields{"f": tt.value})
			read(f)
			if tt.want[i] == "" {
				assert.NoError(t, f.Err(), tt.shown)
				continue
			}
			assert.EqualError(t, f.Err(), strings.ReplaceAll(tt.want[i], "%s", tt.shown))
		}
	}
}

// TestFaults proves which warm-ups and penalties are refused, and by which field.
func TestFaults(t *testing.T) {
	const year = 366 * 24 * time.Hour
	fields := func(faults []ruleconfig.Fault) (fields string) {
		for _, f := range faults {
			fields += f.Field + " "
		}
		return fields
	}
	for w, want := range map[ruleconfig.Warmup]string{
		{}:                                    "",
		{From: 1, Over: time.Microsecond}:     "",
		{From: 1, Over: year}:                 "",
		{From: 1, Over: time.Microsecond - 1}: "over ",
		{From: 1, Over: year + 1}:             "over ",
		{From: -1, Over: 0}:                   "from over ",
	} {
		assert.Equal(t, want, fields(w.Faults()), "%+v", w)
	}
	for p, want := range map[ruleconfig.Penalty]string{
		{}: "",
		{After: 1, Within: time.Second, For: time.Second}:                        "",
		{After: 1, Within: year, For: time.Second, Most: time.Second}:            "",
		{After: 1, Within: time.Second, For: time.Second, Most: time.Second - 1}: "most ",
		{After: 1, Within: time.Second, For: time.Second, Most: year + 1}:        "most ",
		{Most: time.Second}: "after within for ",
	} {
		assert.Equal(t, want, fields(p.Faults()), "%+v", p)
	}
	for _, c := range []struct {
		from    int
		rate    ratetext.Rate
		at      string // what is wrong with From for a rule with this rate
		misfit  string // what is wrong with this rate as another one of the rule
		portion int64
	}{
		{10, ratetext.Rate{Requests: 10, Per: time.Second}, "", "", 1},
		{11, ratetext.Rate{Requests: 10, Per: time.Second}, "must be at most 10, the requests of the rule's rate", "", 1},
		{2, ratetext.Rate{Requests: 10, Per: time.Second, Burst: 5}, "", "", 2},
		{1, ratetext.Rate{Requests: 10, Per: time.Second, Burst: 5},
			"must be at least 2: with less, a burst of 5 grants a new key nothing",
			"must be at least 10: with less, a warm-up from 1 of 10 grants a new key nothing", 2},
	} {
		w := ruleconfig.Warmup{From: c.from, Over: time.Hour}
		var at, misfit []ruleconfig.Fault
		if c.at != "" {
			at = []ruleconfig.Fault{{Field: "from", Value: c.from, Reason: c.at}}
		}
		if c.misfit != "" {
			misfit = []ruleconfig.Fault{{Field: "burst", Value: c.rate.Burst, Reason: c.misfit}}
		}
		assert.Equal(t, at, w.FaultsAt(c.rate), "%+v", c)
		assert.Equal(t, misfit, w.Misfit(c.rate), "%+v", c)
		assert.Equal(t, c.portion, ruleconfig.MinPortion(c.rate), "%+v", c)
	}
	assert.Empty(t, ruleconfig.Warmup{}.Misfit(ratetext.Rate{Requests: 10, Per: 1, Burst: 1}))
}
