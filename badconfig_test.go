package ratelimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A badDocument is the content of a file in testdata/badconfig. The text of its error is in a file
// of the same name, with {maxInt} for the largest int.
type badDocument struct {
	Configs       []fields `json:"configs"`
	DefaultConfig fields   `json:"defaultConfig"`
	UseNumber     bool     `json:"useNumber"` // whether a float64 cannot hold its numbers
}

// readDocument decodes a document, with or without json.Decoder.UseNumber.
func readDocument(t testing.TB, text []byte, useNumber bool) (doc badDocument) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	if useNumber {
		d.UseNumber()
	}
	require.NoError(t, d.Decode(&doc))
	return doc
}

// TestBadDocuments proves which error each document in testdata/badconfig gives.
func TestBadDocuments(t *testing.T) {
	paths, err := filepath.Glob("testdata/badconfig/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(paths), 45)
	texts, err := filepath.Glob("testdata/badconfig/*.txt")
	require.NoError(t, err)
	require.Len(t, texts, len(paths))
	seen := map[string]string{}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			expected, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".txt")
			require.NoError(t, err)
			want := strings.ReplaceAll(strings.TrimSuffix(string(expected), "\n"), "{maxInt}", strconv.Itoa(math.MaxInt))
			doc := readDocument(t, text, true)
			requireRefused(t, want, doc.Configs, doc.DefaultConfig)
			if !doc.UseNumber {
				doc = readDocument(t, text, false)
				requireRefused(t, want, doc.Configs, doc.DefaultConfig)
			}
			assert.Empty(t, seen[string(text)], "a document is there once")
			seen[string(text)] = path
		})
	}
}

// requireRefused decodes the rules twice. Both times the error must have the text want.
func requireRefused(t *testing.T, want string, configs []fields, defaultConfig fields, opts ...ratelimit.Option) {
	t.Helper()
	for range 2 {
		rules, defaultRule, err := ratelimit.DecodeRules(configs, defaultConfig, opts...)
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.Nil(t, rules)
		require.Nil(t, defaultRule)
		requireShort(t, err)
	}
}

// requireShort fails the test if the text of err is too long for a log.
func requireShort(t testing.TB, err error) {
	t.Helper()
	text := err.Error()
	require.LessOrEqual(t, len(text), 64<<10)
	require.LessOrEqual(t, strings.Count(text, "\n"), ratelimit.MaxProblems)
	for line := range strings.SplitSeq(text, "\n") {
		require.LessOrEqual(t, len(line), 1000)
		require.Equal(t, -1, strings.IndexFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }), "%q", line)
	}
}

// deep returns maps nested to this many levels.
func deep(levels int) fields {
	m := fields{}
	for range levels - 1 {
		m = fields{"m": m}
	}
	return m
}

// withCustom returns the option of a Factory that knows the algorithm "Custom", which accepts any
// algoConfig.
func withCustom(t testing.TB) ratelimit.Option {
	f := ratelimit.NewFactory()
	require.NoError(t, f.Register("Custom", func(fields, ratelimit.Env) (ratelimit.Limiter, error) { return sameLimiter{}, nil }))
	return ratelimit.WithFactory(f)
}

// manyFields returns n unknown fields.
func manyFields(n int) fields {
	m := make(fields, n)
	for i := range n {
		m[fmt.Sprintf("f%07d", i)] = i
	}
	return m
}

// TestBadMaps proves which errors configs give that JSON cannot express or that are large, and that
// decoding them costs little.
func TestBadMaps(t *testing.T) {
	const (
		mega = 1 << 20
		size = "must be smaller: at most 100 maps and lists within each other and, over all configs, 524288 values, " +
			"each map or list counting as 8"
		form = "must be a map that says what the limit is"
	)
	list := `"FixedWindow", "InFlight", "LeakyBucket", "SlidingWindowCounter", "SlidingWindowLog", "TokenBucket", "Custom"`
	good := fields{"rate": "1/s"}
	long, shown := strings.Repeat("x", mega), strings.Repeat("x", 55)+"..."
	cycle := ruleOf("TokenBucket", nil)
	cycle["algoConfig"] = cycle
	customCycle := ruleOf("Custom", nil)
	customCycle["algoConfig"] = customCycle
	bush := fields{}
	bush["left"], bush["right"] = bush, bush
	wide := make([]any, mega)
	for _, tt := range []struct {
		why    string
		config fields
		want   string // lines of the error, without the path of the rule
	}{
		{"a nil map", nil, " is nil: must be a map that has algorithm and algoConfig"},
		{"a nil algoConfig", ruleOf("TokenBucket", fields(nil)), ".algoConfig is nil: " + form},
		{"a nil algoConfig of an old YAML decoder", ruleOf("TokenBucket", map[any]any(nil)), ".algoConfig is nil: " + form},
		{"a nil algoConfig of a named type", ruleOf("TokenBucket", namedMap(nil)), ".algoConfig is nil: " + form},
		{"nil tiers", with(ruleOf("TokenBucket", good), fields{"tiers": fields(nil)}),
			`.tiers is nil: must be a map of rates, such as {"paid": "600/m"}`},
		{"a map of numbers", ruleOf("TokenBucket", map[int]string{1: "1/s"}), ".algoConfig is a map: " + form},
		{"keys that are no strings", ruleOf("TokenBucket", map[any]any{"rate": "1/s", 1: 2, true: nil, 1.5: "x", int8(1): 3}),
			".algoConfig[1] is 2: must have a string for its key\n.algoConfig[1] is 3: must have a string for its key\n" +
				".algoConfig[1.5] is \"x\": must have a string for its key\n.algoConfig[true] is nil: must have a string for its key"},
		{"tiers with keys that are no strings", with(ruleOf("TokenBucket", good), fields{"tiers": map[any]any{1: "1/s"}}),
			`.tiers[1] is "1/s": must have a string for its key`},
		{"a custom algorithm with keys that are no strings", ruleOf("Custom", map[any]any{2: 0, 1: 0}),
			".algoConfig[1] is 0: must have a string for its key\n.algoConfig[2] is 0: must have a string for its key"},
		{"NaN and infinity", ruleOf("FixedWindow", fields{"limit": math.NaN(), "windowMs": math.Inf(1)}),
			".algoConfig.limit is NaN: must be a whole number, at least 1\n.algoConfig.windowMs is +Inf: must be a number of milliseconds, above 0"},
		{"a time.Duration", ruleOf("FixedWindow", fields{"limit": int8(5), "windowMs": time.Minute}),
			".algoConfig.windowMs is 1m0s: must be a number of milliseconds, above 0"},
		{"a json.Number for a string", with(ruleOf("TokenBucket", good), fields{"name": json.Number("5")}), ".name is 5: must be a string"},
		{"a map within itself", cycle, ".algoConfig.algoConfig is a map: unknown field; it belongs beside algoConfig\n" +
			".algoConfig.algorithm is \"TokenBucket\": unknown field; it belongs beside algoConfig\n" +
			".algoConfig.endpoint is \"/a\": unknown field; it belongs beside algoConfig\n" +
			".algoConfig is a map: must have capacity and refillRatePerSecond, or maxRequests and windowMs, or rate"},
		{"a custom map within itself", customCycle, ".algoConfig is a map: " + size},
		{"a map twice within itself", ruleOf("Custom", bush), ".algoConfig is a map: " + size},
		{"a deep custom map", ruleOf("Custom", deep(10_000)), ".algoConfig is a map: " + size},
		{"a deep unknown map", ruleOf("TokenBucket", fields{"rate": "1/s", "x": deep(10_000)}), ".algoConfig.x is a map: unknown field"},
		{"a wide custom map", ruleOf("Custom", fields{"a": wide, "b": wide}), ".algoConfig is a map: " + size},
		{"a long custom list of wide ones", ruleOf("Custom", fields{"a": []any{wide, wide}, "b": 1}), ".algoConfig is a map: " + size},
		{"tiers for a custom algorithm", with(ruleOf("Custom", good), fields{"tiers": fields{"paid": "1/s"}}),
			".tiers is a map: must be left out: Custom has rates of its own"},
		{"a long algorithm", ruleOf(long, good), `.algorithm is "` + shown + `": unknown algorithm: must be one of ` + list},
		{"a long rate", ruleOf("TokenBucket", fields{"rate": long}),
			`.algoConfig.rate is "` + shown + `": must look like "100/m", "10 per 2 minutes", "100/90s" or "100/m burst 20"`},
		{"a long number in quotes", ruleOf("FixedWindow", fields{"limit": long, "windowMs": long}),
			`.algoConfig.limit is "` + shown + "\": must be a whole number, at least 1" +
				"\n.algoConfig.windowMs is \"" + shown + `": must be a number of milliseconds, above 0`},
		{"a long name", with(ruleOf("TokenBucket", good), fields{"name": long}), `.name is "` + shown + `": must be at most 1024 bytes long`},
		{"a long key", with(ruleOf("TokenBucket", good), fields{"key": long, "mode": long}),
			`.key is "` + shown + "\": must be at most 1024 bytes long\n.mode is \"" + shown + `": must be one of "enforce", "shadow", "advise"`},
		{"a long field", with(ruleOf("TokenBucket", good), fields{long: long}), `["` + shown + `"] is "` + shown + `": unknown field`},
		{"a long json.Number", ruleOf("TokenBucket", fields{"capacity": json.Number(strings.Repeat("7", mega)),
			"refillRatePerSecond": json.Number("0." + strings.Repeat("3", mega))}),
			".algoConfig.capacity is 7." + strings.Repeat("7", 39) + "...e1048575: must be at most {maxInt}\n" +
				".algoConfig.refillRatePerSecond is 3." + strings.Repeat("3", 39) +
				"...e-1: must be exact, and is 1/3 rounded: give rate: \"1/3s\" and burst in place of capacity and refillRatePerSecond"},
		{"more tiers than are allowed", with(ruleOf("TokenBucket", good), fields{"tiers": manyFields(ratelimit.MaxTiers + 1)}),
			".tiers is a map of 10001: must have at most 10000"},
	} {
		t.Run(tt.why, func(t *testing.T) {
			lines := strings.Split(strings.ReplaceAll(tt.want, "{maxInt}", strconv.Itoa(math.MaxInt)), "\n")
			option := withCustom(t)
			cheap(t, func() {
				requireRefused(t, "ratelimit: configs[0]"+strings.Join(lines, "\nratelimit: configs[0]"), []fields{tt.config}, nil, option)
			})
		})
	}
}

// TestBadLists proves which errors lists of configs give as a whole.
func TestBadLists(t *testing.T) {
	const nothing = "ratelimit: configs is empty: must have at least one config, or there be a default config"
	requireRefused(t, nothing, nil, nil)
	requireRefused(t, nothing, []fields{}, nil)

	many := make([]fields, 1_000_000)
	cheap(t, func() {
		requireRefused(t, "ratelimit: configs is a list of 1000000: must have at most 10000", many, nil)
	})

	nils := make([]fields, ratelimit.MaxRules)
	want := "ratelimit: "
	for i := range ratelimit.MaxProblems {
		want += fmt.Sprintf("configs[%d] is nil: must be a map that has algorithm and algoConfig\nratelimit: ", i)
	}
	cheap(t, func() { requireRefused(t, want+"and 9900 more", nils, nil) })

	want = "ratelimit: "
	for i := range ratelimit.MaxProblems {
		want += fmt.Sprintf("configs[0].algoConfig.f%07d is %d: unknown field\nratelimit: ", i, i)
	}
	config := manyFields(1_000_000)
	config["rate"] = "1/s"
	configs := []fields{ruleOf("TokenBucket", config)}
	cheap(t, func() { requireRefused(t, want+"and 999900 more", configs, nil) })
}

// TestLargeDocuments proves that decoding the rules of a megabyte of JSON costs little.
func TestLargeDocuments(t *testing.T) {
	fill := func(open, element, closing string) string {
		return open + strings.Repeat(element+",", (1<<20)/(len(element)+1)) + element + closing
	}
	const tail = `,"algorithm":"Custom","endpoint":"/a"}]}`
	numbered := func(open, element, closing string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, element+",", i)
		}
		return open + strings.TrimSuffix(b.String(), ",") + closing
	}
	for _, tt := range []struct{ why, text string }{
		{"empty rules", fill(`{"configs":[`, `{}`, `]}`)},
		{"empty rules, as many as are allowed", `{"configs":[` + strings.Repeat(`{},`, ratelimit.MaxRules-1) + `{}]}`},
		{"a list of numbers", fill(`{"configs":[{"algoConfig":{"x":[`, `0`, `]}`+tail)},
		{"a list of maps", fill(`{"configs":[{"algoConfig":{"x":[`, `{"a":{}}`, `]}`+tail)},
		{"a list of lists", fill(`{"configs":[{"algoConfig":{"x":[`, `[[]]`, `]}`+tail)},
		{"a map of numbers", numbered(`{"configs":[{"algoConfig":{"x":{`, `"%d":0`, `}}`+tail, 100_000)},
		{"unknown fields", numbered(`{"configs":[{`, `"%d":0`, `}]}`, 100_000)},
		{"rules that are all alike", numbered(`{"configs":[`, `{"endpoint":"/%d","algorithm":"FixedWindow","algoConfig":{"rate":"1/s"}}`, `]}`,
			ratelimit.MaxRules)},
		{"rules with nothing right", numbered(`{"configs":[`,
			`{"endpoint":%d,"algorithm":"FixdWindow","algoConfig":{"capcity":0.33333333333333,"rat":"1"}}`, `]}`, ratelimit.MaxRules)},
		{"fractions", fill(`{"configs":[{"algorithm":"TokenBucket","algoConfig":{"capacity":1,"refillRatePerSecond":0.3333333333333333}`, `"n":0`,
			`}]}`)},
		{"tiers", numbered(`{"configs":[{"algorithm":"TokenBucket","endpoint":"/a","algoConfig":{"rate":"1/s"},"tiers":{`,
			`"tier %06d":{"capacity":1,"refillRatePerSecond":0.14285714285714285}`, `}}]}`, ratelimit.MaxTiers)},
		{"nested maps", `{"configs":[{"algoConfig":` + strings.Repeat(`{"m":`, 9000) + "0" + strings.Repeat("}", 9000) + tail},
	} {
		t.Run(tt.why, func(t *testing.T) {
			if tt.why == "fractions" {
				tt.text = strings.Replace(tt.text, `0.3333333333333333}`, `0.3333333333333333},`, 1)
			}
			doc := readDocument(t, []byte(tt.text), false)
			option := withCustom(t)
			cheap(t, func() {
				_, _, err := ratelimit.DecodeRules(doc.Configs, doc.DefaultConfig, option)
				if err != nil {
					require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
					requireShort(t, err)
				}
			})
		})
	}
}

// cheap fails the test if f allocates 64 MB or more, or takes 10 s or longer. On an idle machine f
// takes about 0.1 s; if its time grew with the square of its input, it would take hours.
func cheap(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	f()
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	t.Logf("%v, %d KB", took, (after.TotalAlloc-before.TotalAlloc)>>10)
	if !raceEnabled {
		require.Less(t, took, 10*time.Second)
	}
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}

// FuzzConfig decodes any JSON. The result must be either rules that a RateLimiter accepts, with
// limiters that work, or an error that can be logged.
func FuzzConfig(f *testing.F) {
	paths, err := filepath.Glob("testdata/badconfig/*.json")
	require.NoError(f, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(text)
	}
	for _, text := range []string{
		`{"configs":[{"endpoint":"/search","algorithm":"TokenBucket","algoConfig":{"capacity":1000,"refillRatePerSecond":10}}]}`,
		`{"configs":[{"name":"n","algorithm":"FIXED_WINDOW","algoConfig":{"maxRequests":5,"windowMs":0.5},"key":"ip","mode":"shadow"}]}`,
		`{"defaultConfig":{"algorithm":"leaky-bucket","algoConfig":{"capacity":5,"leakRatePerSecond":1e-3},` +
			`"tiers":{"a":"5/s","b":{"rate":"1/s","burst":2}}}}`,
		`{"configs":[{"endpoint":"/a*","algorithm":"SlidingLog","algoConfig":{"limit":5,"windowSeconds":2},` +
			`"onStoreError":"local:4"}],"useNumber":true}`,
		`{"configs":[{"endpoint":"/a","algorithm":"custom","algoConfig":{"x":[{"y":null}]}}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var doc badDocument
		d := json.NewDecoder(bytes.NewReader(text))
		if bytes.Contains(text, []byte("useNumber")) {
			d.UseNumber()
		}
		if d.Decode(&doc) != nil {
			return
		}
		option := withCustom(t)
		rules, defaultRule, err := ratelimit.DecodeRules(doc.Configs, doc.DefaultConfig, option)
		_, _, again := ratelimit.DecodeRules(doc.Configs, doc.DefaultConfig, option)
		if err != nil {
			requireGoodError(t, err)
			require.EqualError(t, again, err.Error())
			require.Nil(t, rules)
			require.Nil(t, defaultRule)
		} else {
			require.NoError(t, again)
			require.Len(t, rules, len(doc.Configs))
			require.NoError(t, ratelimit.CheckRules(rules, defaultRule))
		}
		clock := ratelimit.NewFakeClock(epoch)
		factory := ratelimit.NewFactory(ratelimit.WithClock(clock))
		for _, config := range doc.Configs {
			l, created := factory.Create(config)
			if created != nil {
				requireGoodError(t, created)
				require.Nil(t, l)
				continue
			}
			requireWorks(t, l, clock)
		}
	})
}

// requireGoodError fails the test if err does not name a field, or if its text cannot be logged.
func requireGoodError(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	var field *ratelimit.ConfigError
	require.ErrorAs(t, err, &field)
	require.NotEmpty(t, field.Field)
	require.NotEmpty(t, field.Reason)
	requireShort(t, err)
}

// requireWorks asks l twenty times and checks that each answer is consistent.
func requireWorks(t *testing.T, l ratelimit.Limiter, clock *ratelimit.FakeClock) {
	t.Helper()
	for i := range 20 {
		res := l.Allow("key")
		require.Equal(t, res.Allowed, res.RetryAfter == 0, "%+v", res)
		require.True(t, res.Allowed || i > 0, "a new key is granted its first unit")
		require.GreaterOrEqual(t, res.Limit, 1)
		require.True(t, 0 <= res.Remaining && res.Remaining <= res.Limit, "%+v", res)
		require.True(t, res.RetryAfter >= 0 && res.ResetAfter >= 0 && res.Delay >= 0, "%+v", res)
		clock.Advance(min(res.RetryAfter, ms))
	}
}
