package configfile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/configread"
)

const document = `{
  "$schema": "https://example.com/schema.json",
  "rules": [
    {"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": {"capacity": 20, "refillRatePerSecond": 0.1},
      "tiers": {"paid": "600/m"}},
    {"name": "login", "key": ["ip"], "algorithm": "SlidingWindowLog", "limit": 3, "windowSeconds": 60, "onStoreError": "closed"}
  ],
  "default": {"algorithm": "FixedWindow", "rate": "900/d"}
}
`

// parsed returns the rules of a document.
func parsed(t testing.TB, text string) *ratelimit.RateLimiter {
	t.Helper()
	f, err := configfile.Parse("limits.json", []byte(text))
	require.NoError(t, err)
	l, err := f.New()
	require.NoError(t, err)
	return l
}

// refused returns what is wrong with a document, by itself or with its rules.
func refused(t testing.TB, text string, opts ...ratelimit.Option) error {
	t.Helper()
	f, err := configfile.Parse("limits.json", []byte(text))
	if err != nil {
		require.Nil(t, f)
	} else {
		var l *ratelimit.RateLimiter
		l, err = f.New(opts...)
		require.Nil(t, l)
	}
	require.Error(t, err)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	return err
}

func TestParse(t *testing.T) {
	rules := []ratelimit.Rule{
		{
			Name: "/search", Endpoint: "/search", Key: ratelimit.KeyUser, Algorithm: ratelimit.AlgorithmTokenBucket, Mode: ratelimit.ModeEnforce,
			Rate:  ratelimit.Rate{Requests: 1, Per: 10 * time.Second, Burst: 20},
			Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600)}, OnStoreError: ratelimit.FailLocal(1),
		},
		{
			Name: "login", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Mode: ratelimit.ModeEnforce,
			Rate: ratelimit.PerMinute(3), OnStoreError: ratelimit.FailClosed,
		},
	}
	got, byDefault := parsed(t, document).Rules()
	require.Equal(t, rules, got)
	require.Equal(t, ratelimit.PerDay(900), byDefault.Rate)
	if strconv.IntSize == 64 {
		got, _ := parsed(t, `[{"endpoint": "/", "algorithm": "FixedWindow", "limit": 9007199254740993, "windowSeconds": 86400}]`).Rules()
		require.Equal(t, "9007199254740993/d", got[0].Rate.String(), "a float64 would have one less")
	}

	list := document[strings.Index(document, "["):strings.Index(document, ",\n  \"default")]
	for why, text := range map[string]string{
		"the bare list":     list,
		"a byte order mark": "\ufeff" + list + "\r\n",
	} {
		got, byDefault = parsed(t, text).Rules()
		require.Equal(t, rules, got, why)
		require.Nil(t, byDefault, why)
	}
	_, byDefault = parsed(t, `{"DEFAULT": {"algorithm": "FixedWindow", "rate": "1/s"}, "Rules": []}`).Rules()
	require.Equal(t, ratelimit.PerSecond(1), byDefault.Rate, "names in any spelling, as those of rules")
}

// TestPlaces has what is wrong with documents, each with its place.
func TestPlaces(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	const good = `{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "1/s"}`
	for _, tt := range []struct {
		text string
		want string // lines, less the name of the file
		why  string
	}{
		{"", `1:1: must be a JSON value, but is the end of the file`, "an empty file"},
		{" \n ", `2:2: must be a JSON value, but is the end of the file`, "only white space"},
		{"rules:\n", `1:1: must be a JSON value, but is "r"`, "YAML"},
		{"// no\n{}", `1:1: must be a JSON value, but is "/"`, "a comment"},
		{"{\n  'rules': []}", `2:3: must have a name in double quotes here, but has "'"`, "single quotes"},
		{`{"rules": [` + good + `,]}`, `1:74: must be a JSON value, but is "]": remove the comma before it`, "a comma too many in a list"},
		{"[1,\n \t]", `2:3: must be a JSON value, but is "]": remove the comma before it`, "a comma too many, on another line"},
		{"[1,\n", `2:1: must be a JSON value, but is the end of the file`, "cut off after a comma"},
		{`{"rules": ]`, `1:11: must be a JSON value, but is "]"`, "no value, and no comma"},
		{`{"rules": [],}`, `1:14: must have a name in double quotes here, but has "}": remove the comma before it`, "a comma in an object"},
		{`{"rules" []}`, `1:10: must have a ":" after the name, but has "["`, "a colon is missing"},
		{"{\"rules\": [\n" + good + "\n" + good + "]}", `3:1: must have a "," or a "]" here, but has "{"`, "a comma is missing in a list"},
		{`{"rules": [] "default": {}}`, `1:14: must have a "," or a "}" here, but has "\""`, "a comma is missing in an object"},
		{`{"rules": [`, `1:12: must be a JSON value, but is the end of the file`, "cut off in a list"},
		{`{"rules": [` + good, `1:73: must have a "," or a "]" here, but has the end of the file`, "cut off behind a rule"},
		{`{"rules": [{"endpoint": "/a`, `1:25: must have a closing double quote`, "cut off in a string"},
		{`[] []`, `1:4: must end here, but there is "["`, "trailing data"},
		{"[]\x00", `1:3: must end here, but there is the character U+0000`, "a trailing zero byte"},
		{"[\"a\nb\"]", `1:4: must have no character U+000A in a string: write \n for a line break, \t for a tab`, "a line break in a string"},
		{`["\x"]`, `1:3: must be one of \" \\ \/ \b \f \n \r \t and \u with four hexadecimal digits`, "an escape that JSON has not"},
		{`["\u12g4"]`, `1:3: must be one of \" \\ \/ \b \f \n \r \t and \u with four hexadecimal digits`, "digits that are none"},
		{`["a\ud800b"]`, `1:4: must be a whole character: half of a pair of \u stands alone`, "half a character"},
		{`["\ude00\ud83d"]`, `1:3: must be a whole character: half of a pair of \u stands alone`, "two halves in the wrong order"},
		{"{\n\"a\xff\"", `2:3: must be UTF-8, but has the byte 0xff`, "no UTF-8"},
		{"\xff\xfe[\x00]\x00", `1:1: must be UTF-8, but has the byte 0xff`, "UTF-16"},
		{`[01]`, `1:3: must have a "," or a "]" here, but has "1"`, "a number that begins with 0"},
		{`[1.]`, `1:4: must have a digit here, but has "]"`, "a point without digits"},
		{`[-]`, `1:3: must have a digit here, but has "]"`, "a sign alone"},
		{`[1e+]`, `1:5: must have a digit here, but has "]"`, "an exponent without digits"},
		{`[NaN]`, `1:2: must be a JSON value, but is "N"`, "no number"},
		{`[truth]`, `1:2: must be a JSON value, but is "t"`, "no literal"},
		{deep(33), `1:33: must have at most 32 objects and lists within each other`, "too deep"},
		{deep(32), `1:2: rules[0] is a list: must be a map that has algorithm and algoConfig`, "as deep as may be"},
		{strings.Repeat(`{"a":`, 33), `1:161: must have at most 32 objects and lists within each other`, "too deep in objects"},
		{`5`, `1:1: rules is 5: must be an object such as {"rules": [...]}, or a list of rules`, "a number"},
		{` null`, `1:2: rules is nil: must be an object such as {"rules": [...]}, or a list of rules`, "nothing"},
		{`[]`, `1:1: rules is empty: must have at least one config, or there be a default config`, "an empty list"},
		{`{}`, `1:1: rules is empty: must have at least one config, or there be a default config`, "an empty object"},
		{`{"rules": []}`, `1:2: rules is empty: must have at least one config, or there be a default config`, "no rules"},
		{`{"rules": null}`, `1:2: rules is nil: must be a list of rules`, "rules that are nothing"},
		{
			"{\"rules\": {},\n \"default\": [1],\n  \"$schema\": 1}",
			"1:2: rules is a map: must be a list of rules\n2:2: default is a list: must be a map that has algorithm and algoConfig\n3:3: " +
				"[\"$schema\"] is 1: must be a string",
			"every field of the wrong type",
		},
		{"[" + good + ",\n 7,\n null]",
			"2:2: rules[1] is 7: must be a map that has algorithm and algoConfig\n3:2: rules[2] is nil: must be a map that has algorithm and " +
				"algoConfig", "rules that are none"},
		{
			`{"configs": [], "defaultRule": {}, "limit": 5, "rulse": [], "x": 1}`,
			"1:2: configs is a list: unknown field; did you mean \"rules\"?\n1:17: defaultRule is a map: unknown field; did you mean " +
				"\"default\"?\n" +
				"1:36: limit is 5: unknown field; it belongs in a rule: {\"rules\": [{...}]}\n1:48: rulse is a list: unknown field; did you mean " +
				"\"rules\"?\n1:61: x is 1: unknown field",
			"unknown fields, in the order of the file",
		},
		{`{"rules": [], "Rules": []}`, `1:15: Rules is a list: must not stand beside rules: give one of them`, "a field in two spellings"},
		{
			"{\"x\": 1, \"rules\": [{\"name\": \"a\",\n  \"rate\": 1, \"n\\u0061me\": \"b\"}], \"rules\": []}",
			"1:2: x is 1: unknown field\n2:14: \"name\" must be given once, and is given before in the same object\n2:34: \"rules\" must be " +
				"given once, and is given before in the same object",
			"names that are given twice, also if one is escaped",
		},
		{
			"{\"rules\": [\n" + good + ",\n  {\"endpoint\": \"/b\", \"algorithm\": \"FixedWindow\",\n   \"algoConfig\": {\"windwMs\": 1000, " +
				"\"limit\": 0}}]}",
			"4:19: rules[1].algoConfig.windwMs is 1000: unknown field; did you mean \"windowMs\"?\n4:36: rules[1].algoConfig.limit is 0: must " +
				"be at least 1",
			"fields of an algoConfig",
		},
		{
			"[{\"endpoint\": \"/b\", \"algo_rithm\": \"FixdWindow\",\n  \"algo_config\": {\"rate\": \"1/s\"}, \"keyType\": \"x\",\n  " +
				"\"tiers\": {\"paid\": \"x\", \"a b\": \"x\", \"m\": {\"limt\": 1}}}]",
			"1:21: rules[0].algo_rithm is \"FixdWindow\": unknown algorithm; did you mean \"FixedWindow\"?\n" +
				"2:35: rules[0].keyType is \"x\": must be one of \"user\", \"endpoint\", \"user_endpoint\", \"ip\", \"global\", \"attr:NAME\", or " +
				"several of them joined by \"+\"\n" +
				"3:13: rules[0].tiers[\"paid\"] is \"x\": must look like \"100/m\", \"10 per 2 minutes\", \"100/90s\" or \"100/m burst 20\"\n" +
				"3:26: rules[0].tiers[\"a b\"] is \"x\": must look like \"100/m\", \"10 per 2 minutes\", \"100/90s\" or \"100/m burst 20\"\n" +
				"3:44: rules[0].tiers[\"m\"].limt is 1: unknown field; did you mean \"limit\"?",
			"other spellings, and tiers",
		},
		{
			"{\"default\": {\"algorithm\": \"TokenBucket\", \"endpoint\": \"/\", \"rate\": \"1/s\"},\n \"rules\": [\n  {\"endpoint\": " +
				"\"/a\"},\n  " + good + ",\n  " + good + "]}",
			"1:42: default.endpoint is \"/\": must be empty: the default rule is for the endpoints that no other matches\n" +
				"3:3: rules[0].algorithm is missing: must be one of \"FixedWindow\", \"InFlight\", \"LeakyBucket\", \"SlidingWindowCounter\", " +
				"\"SlidingWindowLog\", \"TokenBucket\"\n" +
				"3:3: rules[0].algoConfig is missing: must be a map that says what the limit is\n" +
				"4:4: rules[1].endpoint is \"/a\": is that of rules[0]: rules that share an endpoint need names\n" +
				"5:4: rules[2].endpoint is \"/a\": is that of rules[0]: rules that share an endpoint need names",
			"missing fields, and conflicts",
		},
	} {
		err := refused(t, tt.text)
		var want []string
		for line := range strings.SplitSeq(tt.want, "\n") {
			want = append(want, "limits.json:"+line)
		}
		assert.EqualError(t, err, strings.Join(want, "\n"), tt.why)
		assert.EqualError(t, refused(t, "\ufeff"+tt.text), strings.Join(want, "\n"), "%s: a byte order mark is in no column", tt.why)
	}
}

// TestError takes an error apart.
func TestError(t *testing.T) {
	err := refused(t, "[\n {\"endpoint\": \"/a\", \"algorithm\": \"FixedWindow\", \"rate\": 5}]")
	var e *configfile.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, &configfile.Error{
		File: "limits.json", Line: 2, Column: 49,
		Err: &ratelimit.ConfigError{Field: "rules[0].rate", Value: "5",
			Reason: `must look like "100/m", "10 per 2 minutes", "100/90s" or "100/m burst 20"`},
	}, e)
	require.EqualError(t, &configfile.Error{File: "a", Err: fs.ErrPermission}, "a: permission denied")

	_, err = configfile.Load(filepath.Join(t.TempDir(), "none.json"))
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, []int{0, 0}, []int{e.Line, e.Column})
	require.EqualError(t, err, e.File+": no such file or directory")
}

// TestManyProblems has more problems than an error lists.
func TestManyProblems(t *testing.T) {
	for why, text := range map[string]string{
		"of rules":         "[" + strings.Repeat("\n{},", 149) + "{}]",
		"of no rules":      "[" + strings.Repeat("\n7,", 149) + "7]",
		"of twice a name":  `{"a":1` + strings.Repeat(",\n\"a\":1", 150) + `}`,
		"unknown fields":   `{"rules": [` + fieldsOf(150) + `]}`,
		"unknown, outside": fieldsOf(150),
	} {
		lines := strings.Split(refused(t, text).Error(), "\n")
		last := len(lines) - 1
		require.True(t, 100 <= last && last <= 102, "%s: %d", why, last)
		require.Regexp(t, `^limits.json: and \d+ more$`, lines[last], why)
		for i, line := range lines[:last] {
			require.Regexp(t, `^limits.json:\d+:\d+: `, line, "%s %d", why, i)
			require.Less(t, len(line), 1000)
		}
	}
}

// TestTooManyRules has lists that are too long to be read element by element.
func TestTooManyRules(t *testing.T) {
	for why, element := range map[string]string{"of rules": "{}", "of no rules": "7"} {
		require.EqualError(t, refused(t, "{\n\"rules\": [{}"+strings.Repeat(","+element, 50_000)+"]}"),
			"limits.json:2:1: rules is a list of 50001: must have at most 10000", why)
	}
}

// fieldsOf returns an object with n unknown fields.
func fieldsOf(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("\n\"%d x\": 0", i))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// TestOptionsAreNoProblemOfTheFile keeps the errors of options apart.
func TestOptionsAreNoProblemOfTheFile(t *testing.T) {
	f, err := configfile.Parse("limits.json", []byte(`[{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "x"}]`))
	require.NoError(t, err)
	_, err = f.New(ratelimit.WithMaxKeys(-1))
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 2)
	require.True(t, strings.HasPrefix(lines[0], "limits.json:1:49: rules[0].rate is "), lines[0])
	require.True(t, strings.HasPrefix(lines[1], "ratelimit: maxKeys is -1: "), lines[1])

	_, err = f.New(ratelimit.WithRequiredRules("/b"))
	require.Error(t, err)
	good, err := configfile.Parse("limits.json", []byte(` [{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "1/s"}]`))
	require.NoError(t, err)
	_, err = good.New(ratelimit.WithRequiredRules("/b"))
	require.EqualError(t, err, `limits.json:1:2: rules["/b"] is missing: must exist: WithRequiredRules names it`)

	require.EqualError(t, good.Apply(nil), "ratelimit: limiter is nil: must be made by ratelimit.New or configfile.Open")
	require.ErrorIs(t, good.Apply(new(ratelimit.RateLimiter)), ratelimit.ErrInvalidConfig)
	require.ErrorIs(t, new(configfile.File).Apply(parsed(t, document[:0]+`[{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "1/s"}]`)),
		ratelimit.ErrInvalidConfig)
}

// errOutage is the cause of what a BuildFunc has refused.
var errOutage = errors.New("outage")

// TestCustom has the errors of a custom algorithm: they keep their causes, and name the field of
// the file.
func TestCustom(t *testing.T) {
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Custom", func(config map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		if config["down"] == true {
			return nil, errOutage
		}
		c := configread.Read(config)
		c.Int("size")
		c.Int("depth")
		return nil, c.Err()
	}))
	err := refused(t, "[{\"endpoint\": \"/a\", \"algorithm\": \"Custom\", \"algoConfig\":\n {\"size\": 1.5, \"dpth\": 1}},\n "+
		"{\"endpoint\": \"/b\", \"algorithm\": \"custom\", \"algoConfig\": {\"down\": true}}]",
		ratelimit.WithFactory(factory))
	require.EqualError(t, err, "limits.json:2:3: rules[0].algoConfig.size is 1.5: must be a whole number\n"+
		"limits.json:2:16: rules[0].algoConfig.dpth is 1: unknown field; did you mean \"depth\"?\n"+
		`limits.json:3:44: rules[1].algoConfig is refused by "Custom": outage`)
	require.ErrorIs(t, err, errOutage)
}

// TestBadDocuments reads all that the root refuses from files, and finds the same problems, with
// places.
func TestBadDocuments(t *testing.T) {
	for name, text := range badDocuments(t) {
		expected, err := os.ReadFile("../testdata/badconfig/" + name + ".txt")
		require.NoError(t, err)
		got := refused(t, text).Error()
		for line := range strings.SplitSeq(got, "\n") {
			require.Regexp(t, `^limits\.json:\d+:\d+: (rules|default)|^limits\.json: and `, line, name)
		}
		if name == "null-among-configs" {
			continue // what is no rule at all is a problem with the document, and found first
		}
		require.Equal(t, bytes.Count(expected, []byte("\n")), strings.Count(got, "\n")+1, name)
	}
}

// badDocuments returns the documents of testdata/badconfig by name, as files.
func badDocuments(t testing.TB) map[string]string {
	paths, err := filepath.Glob("../testdata/badconfig/*.json")
	require.NoError(t, err)
	require.Greater(t, len(paths), 45)
	all := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var doc struct {
			Configs       json.RawMessage `json:"configs"`
			DefaultConfig json.RawMessage `json:"defaultConfig"`
		}
		require.NoError(t, json.Unmarshal(text, &doc))
		var parts []string
		if doc.Configs != nil && string(doc.Configs) != "null" {
			parts = append(parts, `"rules": `+string(doc.Configs))
		}
		if doc.DefaultConfig != nil && string(doc.DefaultConfig) != "null" {
			parts = append(parts, `"default": `+string(doc.DefaultConfig))
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = "{" + strings.Join(parts, ",\n") + "}"
	}
	return all
}

// TestScannerIsJSON compares what documents mean with encoding/json.
func TestScannerIsJSON(t *testing.T) {
	for _, text := range append(seeds(t), `["\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t"]`, `[-0, 1E5, 1.5e-7, 0.10, true, false, null]`, "[\t\r\n ]",
		"[\"\u007f\u2028\"]") {
		sameAsJSON(t, []byte(text))
	}
}

// sameAsJSON requires that text is read as encoding/json reads it, if both take it.
func sameAsJSON(t testing.TB, text []byte) {
	t.Helper()
	got, ok := configfile.Scan(text)
	if ok {
		var want any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		require.NoError(t, d.Decode(&want))
		require.Equal(t, want, got)
		require.True(t, json.Valid(text))
		return
	}
	require.False(t, json.Valid(text) && !strings.Contains(string(text), `\u`) &&
		bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= 32, "%q", text)
}

// seeds returns documents, good and bad.
func seeds(t testing.TB) (all []string) {
	for _, text := range badDocuments(t) {
		all = append(all, text)
	}
	return append(all, document, "\ufeff[]", `[{"endpoint":"/a","algorithm":"custom","algoConfig":{"x":[{"y":null}]}}]`,
		`{"rules":[{"endpoint":"/a*","algorithm":"GCRA","rate":"5/s"}],"rules":1}`)
}

// FuzzParse reads any document. What comes of it are rules that a limiter takes, or errors whose
// places are in the document.
func FuzzParse(f *testing.F) {
	for _, text := range seeds(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("\ufeff")) {
			text = text[len("\ufeff"):]
		}
		if bytes.Equal(bytes.ToValidUTF8(text, nil), text) {
			sameAsJSON(t, text)
		}
		file, err := configfile.Parse("x", text)
		if err == nil {
			var l *ratelimit.RateLimiter
			if l, err = file.New(); err == nil {
				require.NoError(t, file.Apply(l))
				return
			}
			require.Nil(t, l)
		}
		joined, ok := err.(interface{ Unwrap() []error })
		require.True(t, ok)
		lines := bytes.Split(text, []byte("\n"))
		before := [2]int{}
		for _, part := range joined.Unwrap() {
			e, ok := part.(*configfile.Error) //nolint:errorlint // each by itself
			require.True(t, ok, "%v", part)
			require.ErrorIs(t, e, ratelimit.ErrInvalidConfig)
			if e.Line == 0 {
				require.Contains(t, e.Error(), " more")
				continue
			}
			require.LessOrEqual(t, e.Line, len(lines), "%v", e)
			require.GreaterOrEqual(t, e.Column, 1, "%v", e)
			require.LessOrEqual(t, e.Column, len(lines[e.Line-1])+1, "%v", e)
			at := [2]int{e.Line, e.Column}
			require.False(t, at[0] < before[0] || at[0] == before[0] && at[1] < before[1], "in order: %v", err)
			before = at
		}
	})
}

// TestCheckConfig runs the check of docs/reload.md.
func TestCheckConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	var out bytes.Buffer
	require.Equal(t, 1, checkConfig(path, &out))
	require.Equal(t, path+": no such file or directory\n", out.String())
	require.NoError(t, os.WriteFile(path, []byte(`[{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "1/s"}]`), 0o600))
	require.Zero(t, checkConfig(path, &out))
}

func TestFind(t *testing.T) {
	f, err := configfile.Parse("limits.json",
		[]byte("{\"rules\": [\n {\"endpoint\": \"/a\", \"algoConfig\": {\"rate\": \"1/s\"}}\n],\n \"default\": {\"key\": \"ip\"}}"))
	require.NoError(t, err)
	bare, err := configfile.Parse("limits.json", []byte("[\n {\"endpoint\": \"/a\"}]"))
	require.NoError(t, err)
	for _, row := range []struct {
		file         *configfile.File
		path         string
		line, column int
	}{
		{f, "rules", 1, 2}, {f, "rules[0]", 2, 2}, {f, "rules[0].endpoint", 2, 3}, {f, "rules[0].algoConfig.rate", 2, 36},
		{f, "rules[0].mode", 2, 2}, {f, "rules[7]", 1, 2}, {f, "default", 4, 2}, {f, "default.key", 4, 14}, {f, "", 0, 0},
		{bare, "rules", 1, 1}, {bare, "rules[0]", 2, 2}, {bare, "rules[0].endpoint", 2, 3},
	} {
		line, column := row.file.Find(row.path)
		require.Equal(t, [2]int{row.line, row.column}, [2]int{line, column}, row.path)
	}
}
