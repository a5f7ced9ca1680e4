package configfile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// TestSchemaFile compares schema.json with what Schema returns. go generate writes it.
func TestSchemaFile(t *testing.T) {
	if os.Getenv("RATELIMIT_WRITE") == "1" {
		require.NoError(t, os.WriteFile("schema.json", configfile.Schema(), 0o644)) //nolint:gosec // a file for all
	}
	text, err := os.ReadFile("schema.json")
	require.NoError(t, err)
	require.Equal(t, string(configfile.Schema()), string(text), "run go generate ./configfile")
}

// A validator checks values by a JSON Schema: by the keywords that Schema uses, and it panics at
// any other.
type validator struct {
	root     map[string]any
	patterns map[string]*regexp.Regexp
}

func newValidator(t testing.TB, schema []byte) *validator {
	v := &validator{patterns: map[string]*regexp.Regexp{}}
	require.NoError(t, json.Unmarshal(schema, &v.root))
	return v
}

func (v *validator) matches(pattern, text string) bool {
	p, ok := v.patterns[pattern]
	if !ok {
		p = regexp.MustCompile(pattern)
		v.patterns[pattern] = p
	}
	return p.MatchString(text)
}

// takes reports whether schema takes value.
func (v *validator) takes(schema, value any) bool {
	s := schema.(map[string]any)
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	text, isText := value.(string)
	number, isNumber := value.(json.Number)
	exact := new(big.Rat)
	if isNumber {
		exact.SetString(number.String())
	}
	all := func(schemas any, some bool) bool { // or some
		for _, each := range schemas.([]any) {
			if v.takes(each, value) == some {
				return some
			}
		}
		return !some
	}
	for keyword, arg := range s {
		ok := true
		limit, _ := arg.(float64)
		switch keyword {
		case "$schema", "$id", "$defs", "title", "description", "then", "else":
		case "$ref":
			ok = v.takes(v.root["$defs"].(map[string]any)[strings.TrimPrefix(arg.(string), "#/$defs/")], value)
		case "type":
			ok = map[string]bool{"object": isObject, "array": isList, "string": isText, "number": isNumber, "integer": isNumber && exact.IsInt(),
				"boolean": value == true || value == false}[arg.(string)]
		case "const":
			ok = reflect.DeepEqual(arg, value)
		case "enum":
			ok = slices.ContainsFunc(arg.([]any), func(one any) bool { return one == value })
		case "anyOf":
			ok = all(arg, true)
		case "allOf":
			ok = all(arg, false)
		case "not":
			ok = !v.takes(arg, value)
		case "if":
			branch := "else"
			if v.takes(arg, value) {
				branch = "then"
			}
			ok = v.takes(s[branch], value)
		case "pattern":
			ok = !isText || v.matches(arg.(string), text)
		case "minLength":
			ok = !isText || utf8.RuneCountInString(text) >= int(limit)
		case "maxLength":
			ok = !isText || utf8.RuneCountInString(text) <= int(limit)
		case "minimum":
			ok = !isNumber || exact.Cmp(new(big.Rat).SetFloat64(limit)) >= 0
		case "exclusiveMinimum":
			ok = !isNumber || exact.Cmp(new(big.Rat).SetFloat64(limit)) > 0
		case "minItems":
			ok = !isList || len(list) >= int(limit)
		case "maxItems":
			ok = !isList || len(list) <= int(limit)
		case "maxProperties":
			ok = len(object) <= int(limit)
		case "required":
			for _, name := range arg.([]any) {
				_, has := object[name.(string)]
				ok = ok && (!isObject || has)
			}
		case "items":
			for _, item := range list {
				ok = ok && v.takes(arg, item)
			}
		case "propertyNames":
			for name := range object {
				ok = ok && v.takes(arg, name)
			}
		case "properties", "patternProperties", "additionalProperties":
			if keyword == "additionalProperties" || s["additionalProperties"] == nil {
				ok = v.properties(s, object)
			}
		default:
			panic("unknown keyword " + keyword)
		}
		if !ok {
			return false
		}
	}
	return true
}

// properties checks the properties of an object.
func (v *validator) properties(s, object map[string]any) bool {
	for name, value := range object {
		known := false
		if p, ok := s["properties"].(map[string]any); ok {
			if one, has := p[name]; has {
				known = true
				if !v.takes(one, value) {
					return false
				}
			}
		}
		if p, ok := s["patternProperties"].(map[string]any); ok {
			for pattern, one := range p {
				if v.matches(pattern, name) {
					known = true
					if !v.takes(one, value) {
						return false
					}
				}
			}
		}
		switch rest := s["additionalProperties"].(type) {
		case bool:
			if !known && !rest {
				return false
			}
		case map[string]any:
			if !known && !v.takes(rest, value) {
				return false
			}
		}
	}
	return true
}

// document reports whether the schema takes a document, which must be JSON.
func (v *validator) document(t testing.TB, text string) bool {
	t.Helper()
	var value any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&value), text)
	return v.takes(v.root, value)
}

// loads returns what the library says to a document.
func loads(text string, opts ...ratelimit.Option) error {
	f, err := configfile.Parse("x", []byte(text))
	if err == nil {
		_, err = f.New(opts...)
	}
	return err
}

// notInSchema are the documents of testdata/badconfig that the schema takes: what is wrong with
// them is in the numbers, or in several fields or rules together.
var notInSchema = strings.Fields(`
	a-hundred-thirds a-third alias-beside-its-field burst-in-the-rate-of-a-window burst-twice
	config-beside-algoconfig default-named-as-a-rule duplicate-endpoint-and-key duplicate-names
	empty-endpoint-and-name field-in-two-spellings fields-in-two-spellings huge-count huge-exponent
	key-global-and-more key-part-twice keytype-beside-key leak-for-a-token-bucket log-too-large
	log-too-large-by-rate number-beyond-float number-huge-exponent number-long one-a-day penalty-of-inflight rate-burst-with-comma
	rate-burst-with-equals rate-of-zero rate-per-month refill-too-fine refill-too-slow strategy-beside-policy
	tier-of-another-window tier-of-another-window-in-fields tier-with-a-burst unlimited-rule
	unlimited-tier-with-a-burst warmup-twice window-beside-length window-counter window-day-29 window-day-of-week window-day-text
	window-first-alone window-first-zone window-text-burst window-text-misspelt window-text-zone window-tier window-too-fine
	window-too-long window-too-long-for-counter window-zone-alone window-zone-local window-zone-unknown
`)

// TestSchemaRefuses plays the documents that the library refuses to the schema.
func TestSchemaRefuses(t *testing.T) {
	v := newValidator(t, configfile.Schema())
	var takes []string
	for name, text := range badDocuments(t) {
		require.Error(t, loads(text), name)
		if v.document(t, text) {
			takes = append(takes, name)
		}
	}
	slices.Sort(takes)
	require.Equal(t, strings.Join(notInSchema, "\n"), strings.Join(takes, "\n"))
}

// TestSchemaTakes plays documents that the library takes to the schema: those of the examples,
// and each field in each of its names and spellings.
func TestSchemaTakes(t *testing.T) {
	v := newValidator(t, configfile.Schema())
	custom := newValidator(t, configfile.Schema("Custom", "office-hours"))
	texts := []string{
		document, `{"default": {"algorithm": "GCRA", "rate": "1/s", "endpoint": "", "additional": false}}`,
		`[{"name": "a", "key": ["attr:tenant", "user"], "algorithm": "TokenBucketLimiter", "capacity": 5, "refill_per_ms": 0.5}]`,
		`[{"name": "a", "key": " IP + Attr:x y+u-s-e-r", "algorithm": "LeakyBucket", "rate": 5, "windowMs": 1e3, "burst": 7.0}]`,
		`[{"endpoint": "*", "additional": true, "mode": "SHADOW", "algorithm": "sliding-log", "config": {"limit": 5, "windowSeconds": 0.5}, ` +
			`"tiers": {}}]`,
		`[{"name": "a", "algorithm": "FixedWindow", "rate": "5/s", "warm_up": {"From": 2, "OVER": "90s"}}]`,
		`[{"name": "a", "algorithm": "FixedWindow", "rate": "5/s", "warmupRequests": 2, "warmup_duration": 0.5}]`,
		`[{"name": "a", "algorithm": "FixedWindow", "algoConfig": {"rate": "5/s", "warmupRequests": 2, "warmupDuration": 60}}]`,
		`[{"name": "a", "algorithm": "FixedWindow", "rate": "5/s", "Penalty": {"AFTER": 10, "within": "1 m", "for": "1h", "_most": "7d"}}]`,
		`[{"name": "a", "algorithm": "FixedWindow", "maxRequests": 5, "window": "Month", "zone": "Europe/Berlin", "first_day": 28}]`,
		`[{"name": "a", "algorithm": "FixedWindow", "rate": "5/month from day 2 Europe/Berlin", ` +
			`"tiers": {"x": {"rate": "7/month from day 3 Europe/Berlin"}}}]`,
		`[{"name": "a", "algorithm": "FixedWindow", "algoConfig": {"limit": 5, "window": "first", "windowMs": 500}}]`,
		`[{"name": "a", "algorithm": "fixed_window", "rate": "1/s", "tiers": {"x": "unlimited", "y": {"LIMIT": 7, "window_seconds": 1}}, ` +
			`"onStoreError": "local:04"}]`,
	}
	page, err := os.ReadFile("../docs/reload.md")
	require.NoError(t, err)
	for _, snippet := range strings.Split(string(page), "```json\n")[1:] {
		snippet, _, _ = strings.Cut(snippet, "```")
		texts = append(texts, snippet)
	}
	require.Greater(t, len(texts), 6, "the page has a file")
	for name, at := range map[string][]ruleconfig.Field{"rule": ruleconfig.RuleFields, "rate": ruleconfig.RateFields} {
		for _, f := range at {
			for _, spelling := range append([]string{f.Name, strings.ToUpper(f.Name), "_" + strings.ToLower(f.Name) + "-"}, f.Also...) {
				text, ok := texted(f, spelling)
				require.True(t, ok, "%s field %s: no sample of its kind", name, f.Name)
				texts = append(texts, text)
			}
		}
	}
	for _, names := range ruleconfig.AllNames(ratelimit.Algorithms()) {
		for _, name := range names {
			for _, spelling := range []string{name, strings.ToUpper(name), name + "Limiter", name + "_LIMITER", "-" + name} {
				texts = append(texts, fmt.Sprintf(`[{"name": "a", "algorithm": %q, "rate": "1/s"}]`, spelling))
			}
		}
	}
	for _, text := range texts {
		require.NoError(t, loads(text), text)
		assert.True(t, v.document(t, text), text)
		assert.True(t, custom.document(t, text), text)
	}

	factory := ratelimit.NewFactory()
	for _, name := range []string{"Custom", "office-hours"} {
		require.NoError(t, factory.Register(name, func(map[string]any, ratelimit.Env) (ratelimit.Limiter, error) {
			return ratelimit.NewTokenBucket(ratelimit.PerSecond(1))
		}))
	}
	for text, good := range map[string]bool{
		`[{"name": "a", "algorithm": "CUSTOM", "algoConfig": {"x": {"y": [1]}}}]`:             true,
		`[{"name": "a", "policy": "OfficeHours", "algo_config": {}, "onStoreError": "open"}]`: true,
		`[{"name": "a", "algorithm": "Custom", "algoConfig": 5}]`:                             false,
		`[{"name": "a", "algorithm": "Custom"}]`:                                              false,
		`[{"name": "a", "algorithm": "Custom", "rate": "1/s"}]`:                               false,
		`[{"name": "a", "algorithm": "Custom", "algoConfig": {}, "tiers": {"x": "1/s"}}]`:     false,
		`[{"name": "a", "algorithm": "Customs", "algoConfig": {"rate": "1/s"}}]`:              false,
		`[{"algorithm": "Custom", "algoConfig": {}}]`:                                         false,
		`[{"name": "a", "algorithm": 5, "algoConfig": {"rate": "1/s"}}]`:                      false,
	} {
		err := loads(text, ratelimit.WithFactory(factory))
		require.Equal(t, good, err == nil, "%s: %v", text, err)
		assert.Equal(t, good, custom.document(t, text), text)
		assert.False(t, v.document(t, text), "this schema knows no custom algorithm: %s", text)
	}
}

// samples are good values of each kind of field, with what must stand beside it.
var samples = map[ruleconfig.Kind][2]string{
	ruleconfig.Endpoint:       {`"/a*"`, `"algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.Text:           {`"a"`, `"endpoint": "/a", "algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.Key:            {`"ip+endpoint"`, `"name": "a", "algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.Mode:           {`"shadow"`, `"name": "a", "algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.Bool:           {`true`, `"endpoint": "/a", "algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.AlgorithmName:  {`"LeakyBucket"`, `"name": "a", "rate": "1/s"`},
	ruleconfig.AlgoConfig:     {`{"rate": "1/s"}`, `"name": "a", "algorithm": "TokenBucket"`},
	ruleconfig.Tiers:          {`{"x": "2/s"}`, `"name": "a", "algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.Unit:           {`"tokens"`, `"name": "a", "algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.StoreError:     {`"closed"`, `"name": "a", "algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.Capacity:       {`5`, `"name": "a", "algorithm": "TokenBucket", "refillRatePerSecond": 1`},
	ruleconfig.PerSecond:      {`0.5`, `"name": "a", "algorithm": "LeakyBucket", "capacity": 1`},
	ruleconfig.PerMillisecond: {`0.5`, `"name": "a", "algorithm": "LeakyBucket", "capacity": 1`},
	ruleconfig.Requests:       {`5`, `"name": "a", "algorithm": "FixedWindow", "windowMs": 1`},
	ruleconfig.Milliseconds:   {`0.5`, `"name": "a", "algorithm": "FixedWindow", "limit": 1`},
	ruleconfig.Seconds:        {`0.5`, `"name": "a", "algorithm": "FixedWindow", "limit": 1`},
	ruleconfig.RateText:       {`"5/m"`, `"name": "a", "algorithm": "FixedWindow"`},
	ruleconfig.WindowName:     {`"month"`, `"name": "a", "algorithm": "FixedWindow", "limit": 1`},
	ruleconfig.Zone:           {`"Europe/Berlin"`, `"name": "a", "algorithm": "FixedWindow", "limit": 1, "window": "day"`},
	ruleconfig.FirstDay:       {`28`, `"name": "a", "algorithm": "FixedWindow", "limit": 1, "window": "month"`},
	ruleconfig.Burst:          {`5`, `"name": "a", "algorithm": "TokenBucket", "rate": "1/s"`},
	ruleconfig.PenaltyMap:     {`{"after": 1, "within": "1s", "for": "1h"}`, `"name": "a", "algorithm": "TokenBucket", "rate": "5/s"`},
	ruleconfig.WarmupMap:      {`{"from": 1, "over": "1h"}`, `"name": "a", "algorithm": "TokenBucket", "rate": "5/s"`},
}

// texted returns a document with the field f, by this name.
func texted(f ruleconfig.Field, name string) (string, bool) {
	sample, ok := samples[f.Kind]
	return fmt.Sprintf(`[{%s, %q: %s}]`, sample[1], name, sample[0]), ok
}

// TestSchemaAndDecoder changes good documents at random. What the library takes, the schema
// takes; what both refuse is counted, so that the schema does refuse.
func TestSchemaAndDecoder(t *testing.T) {
	v := newValidator(t, configfile.Schema())
	random := rand.New(rand.NewPCG(5, 6))
	var names []string
	for _, fields := range [][]ruleconfig.Field{ruleconfig.RuleFields, ruleconfig.RateFields} {
		for _, f := range fields {
			names = append(append(names, f.Name), f.Also...)
		}
	}
	names = append(names, "rules", "default", "$schema", "nane", "windw", "x")
	values := []string{
		`"/a"`, `"/a*b"`, `""`, `5`, `0`, `-1`, `0.5`, `1e2`, `true`, `false`, `null`, `[]`, `{}`, `"5/m"`, `"x"`, `"ip"`, `["ip",
		"user"]`, `["ip+user"]`, `"ip++user"`,
		`"shadow"`, `"FixedWindow"`, `"TokenBuket"`, `"Leaky-Bucket"`, `{"rate": "1/s"}`, `{"limit": 5, "windowMs": 1000}`,
		`{"limit": 5}`, `{"a": "5/m", "b": {"rate": "2/m"}}`,
		`{"a": 5}`, `"open"`, `"local:4"`, `"local:0"`, `"global"`, `"attr:x"`, `"attr:"`, `"5"`, `"unlimited"`, `{"from": 1,
		"over": "1h"}`, `{"from": 0, "over": "1h"}`, `{"from": 1}`, `{"from": 1, "over": 60}`,
	}
	docs := 8_000
	if testing.Short() {
		docs = 2_000
	}
	var taken, refusedByBoth, refusedByLibrary int
	for range docs {
		var rule bytes.Buffer
		given := map[string]bool{}
		add := func(name, value string) {
			if !given[name] {
				fmt.Fprintf(&rule, ", %q: %s", name, value)
			}
			given[name] = true
		}
		fields := slices.Concat(ruleconfig.RuleFields, ruleconfig.RateFields)
		f := fields[random.IntN(len(fields))]
		sample := samples[f.Kind]
		for range random.IntN(3) {
			name, value := names[random.IntN(len(names))], values[random.IntN(len(values))]
			if random.IntN(3) == 0 {
				name = strings.ToUpper(name)
			}
			add(name, value)
		}
		if !given[f.Name] {
			add(f.Name, sample[0])
		}
		text := "{" + sample[1] + rule.String() + "}"
		if strings.Count(text, `"name":`) > 1 || strings.Count(text, `"algorithm":`) > 1 || strings.Count(text, `"rate": `) > 3 {
			text = "{" + strings.TrimPrefix(rule.String(), ", ") + "}"
		}
		switch random.IntN(4) {
		case 0:
			text = `{"default": ` + text + `}`
		case 1:
			text = `{"rules": [` + text + `]}`
		default:
			text = `[` + text + `]`
		}
		err, takes := loads(text), v.document(t, text)
		switch {
		case err == nil:
			taken++
			require.True(t, takes, text)
		case takes:
			refusedByLibrary++
		default:
			refusedByBoth++
		}
	}
	t.Logf("%d documents: %d taken by both, %d refused by both, %d refused by the library alone", docs, taken, refusedByBoth, refusedByLibrary)
	require.Greater(t, taken, docs/20)
	require.Greater(t, refusedByBoth, 3*refusedByLibrary)
}
