package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const good = `{"rules": [{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "60/m"}],
  "default": {"algorithm": "TokenBucket", "rate": "20/s"}}`

const doubtful = `{"rules": [
  {"endpoint": "/login", "algorithm": "FixedWindow", "rate": "5/m", "key": "ip"},
  {"endpoint": "/day", "algorithm": "FixedWindow", "rate": "5/d", "onStoreError": "local"}
], "default": {"algorithm": "TokenBucket", "rate": "20/s", "onStoreError": "closed"}}`

// gatewayRules has a rule of each kind that a gateway has, and what validate finds in them.
const gatewayRules = `{"rules": [
  {"name": "requests", "endpoint": "/chat", "key": "user", "algorithm": "TokenBucket", "rate": "60/m"},
  {"name": "tokens", "endpoint": "/chat", "unit": "tokens", "algorithm": "TokenBucket", "rate": "20000/h"},
  {"name": "at once", "endpoint": "/chat", "algorithm": "InFlight", "rate": "2000/1m"},
  {"name": "output", "endpoint": "/chat", "algorithm": "TokenBucket", "unit": "tokns", "rate": "9000/h"}
], "default": {"algorithm": "TokenBucket", "rate": "20/s"}}`

// exemptRules has overrides, and what validate finds in them.
const exemptRules = `{"rules": [{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "60/m"}],
  "default": {"algorithm": "TokenBucket", "rate": "20/s"}, "overrides": [
  {"client": "client", "effect": "exempt"},
  {"client": "client", "effect": "block", "note": "\u001b[2J"},
  {"ip": "0.0.0.0/0", "effect": "block"},
  {"client": "bob", "effect": "block", "until": "2001-01-01T00:00:00Z"}
]}`

// monthRules has a rule that counts in windows of 30 days, and one that counts in months.
const monthRules = `[{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "1000/30d"},
  {"endpoint": "/b", "algorithm": "FixedWindow", "rate": "1000/month Europe/Berlin"},
  {"endpoint": "/c", "algorithm": "FixedWindow", "rate": "1000/week"}, {"endpoint": "*", "rate": "1000/h", "algorithm": "TokenBucket"}]`

// joinLines returns the lines, each with its end.
func joinLines(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// ruleFiles returns the files that the tests of validate read.
func ruleFiles() map[string]string {
	return map[string]string{
		"month.json": monthRules, "units.json": gatewayRules, "exempt.json": exemptRules,
		"good.json": good, "doubtful.json": doubtful, "bad.json": "[\n{\"endpoint\": 5, \"rate\": \"x\"}]", "no.json": "{",
	}
}

func TestValidate(t *testing.T) {
	files := ruleFiles()
	for _, row := range []struct {
		args []string
		want call
	}{
		{[]string{"good.json"}, call{exitOK, "ok: 1 of 1 file, 0 notes\n", ""}},
		{[]string{"doubtful.json"}, call{exitFound, joinLines(
			`doubtful.json:2:26: RL001 warning: "/login" grants 10 attempts within 1m around the edge of its window, twice its limit`,
			`    use SlidingWindowLog, which holds its limit in every window`,
			`doubtful.json:3:24: RL002 note: "/day" grants up to 10 within 1d, around the edge of its window`,
			`    use SlidingWindowCounter or TokenBucket if that is too much`,
			`doubtful.json:3:67: RL009 warning: while the store is down, each process grants the whole limit of "/day"`,
			`    say how many processes share the store: "local:4"`,
		), ""}},
		{[]string{"-ignore", "RL002", "month.json"}, call{exitOK, joinLines(
			`month.json:1:49: RL017 note: the windows of "/a" last 30d and begin at multiples of that since 1970, not with a month`,
			`    write "1000/month" if the windows of a calendar are meant`,
			`month.json:3:50: RL017 note: the windows of "/c" last 7d and begin at multiples of that since 1970, not with a week`,
			`    write "1000/week UTC" if the windows of a calendar are meant`,
			`ok: 1 of 1 file, 2 notes`,
		), ""}},
		{[]string{"-ignore", "RL001, RL009", "doubtful.json"}, call{exitOK, joinLines(
			`doubtful.json:3:24: RL002 note: "/day" grants up to 10 within 1d, around the edge of its window`,
			`    use SlidingWindowCounter or TokenBucket if that is too much`,
			`ok: 1 of 1 file, 1 note`,
		), ""}},
		{[]string{"doubtful.json", "-format=github", "-ignore", "RL009"}, call{exitFound, joinLines(
			`::warning file=doubtful.json,line=2,col=26,title=RL001::"/login" grants 10 attempts within 1m around the edge of `+
				`its window, twice its limit%0Ause SlidingWindowLog, which holds its limit in every window`,
			`::notice file=doubtful.json,line=3,col=24,title=RL002::"/day" grants up to 10 within 1d, around the edge of `+
				`its window%0Ause SlidingWindowCounter or TokenBucket if that is too much`,
		), ""}},
		{[]string{"-cost", "/search=61", "good.json"}, call{exitFound, joinLines(
			`good.json:1:64: RL003 warning: a request for "/search" takes 61 units, but "/search" grants at most 60 at once`,
			`    raise the burst, or split the request`,
		), ""}},
		{[]string{"-cost", "/search=tokens:9", "good.json"}, call{exitOK, "ok: 1 of 1 file, 0 notes\n", ""}},
		{[]string{"-cost", "/chat=tokens:20001", "-cost", "/chat=tokens:20002", "-cost", "/chat=61", "units.json"}, call{exitFound, joinLines(
			`units.json:2:88: RL003 warning: a request for "/chat" takes 61 units, but "requests" grants at most 60 at once`,
			`    raise the burst, or split the request`,
			`units.json:3:89: RL003 warning: a request for "/chat" takes 20002 tokens, but "tokens" grants at most 20000 at once`,
			`    raise the burst, or split the request`,
			`units.json:4:69: RL012 warning: "at once" lets 2000 requests of a key run at once, `+
				`but "requests" can give units back for only 1024 of them`,
			`    lower it to 1024, or expect that of the oldest requests all units stay charged`,
			`units.json:5:71: RL011 note: nothing else names the unit "tokns": "output" limits only requests whose Costs name it`,
			`    is "tokens" meant? if the name is right, pass a cost in this unit by -cost`,
		), ""}},
		{[]string{"exempt.json"}, call{exitFound, joinLines(
			`exempt.json:3:24: RL013 note: the exemption of the client "client" has no end`,
			`    say by "until" when it ends, if it does`,
			`exempt.json:3:24: RL015 warning: the exemption of the client "client" never applies: overrides[1] decides in its place`,
			`    remove one of the two`,
			`exempt.json:5:4: RL014 warning: the block of 0.0.0.0/0 is for everybody`,
			`    give a longer prefix, or change the rules`,
			`exempt.json:6:40: RL016 note: the block of the client "bob" has ended, and is left out`,
			`    remove it`,
		), ""}},
		{[]string{"no.json"}, call{exitFound,
			"no.json:1:2: RL000 error: must have a name in double quotes here, but has the end of the file\n", ""}},
		{[]string{"good.json", "missing.json"}, call{exitFailed, "", "ratelimit validate: missing.json: no such file or directory\n"}},
		{nil, call{exitUsage, "", "ratelimit validate: an argument is missing: the file of rules\n" +
			"Run \"ratelimit validate -h\" for examples.\n"}},
		{[]string{"-format", "xml", "good.json"}, call{exitUsage, "",
			"ratelimit validate: -format is \"xml\": must be text, json or github\nRun \"ratelimit validate -h\" for examples.\n"}},
		{[]string{"-max-keys", "0", "good.json"}, call{exitUsage, "",
			"ratelimit validate: -max-keys is 0: must be at least 1\nRun \"ratelimit validate -h\" for examples.\n"}},
		{[]string{"-ignore", "RL1", "good.json"}, call{exitUsage, "",
			"ratelimit validate: -ignore has \"RL1\", which is no code\nRun \"ratelimit validate -h\" for examples.\n"}},
	} {
		require.Equal(t, row.want, runIn(t, files, append([]string{"validate"}, row.args...)...), row.args)
	}
	require.Contains(t, runIn(t, files, "validate", "-cost", "x", "good.json").err, "must be endpoint=units, or endpoint=unit:units")
	require.Contains(t, runIn(t, files, "validate", "-cost", "x=:5", "good.json").err, "with at least one unit")
	require.Contains(t, runIn(t, files, "validate", "-cost", "x=0", "good.json").err, "at least one unit")
}

func TestValidateForms(t *testing.T) {
	files := ruleFiles()
	got := runIn(t, files, "validate", "-json", "bad.json")
	require.Equal(t, exitFound, got.code)
	var reports []report
	require.NoError(t, json.Unmarshal([]byte(got.out), &reports))
	require.Len(t, reports, 2, "every problem at once")
	require.Equal(t, "bad.json", reports[0].File)
	require.Equal(t, 2, reports[0].Line)
	escapes := `{"rules": [{"name": "\u001b[2J\u202e", "endpoint": "/login", "algorithm": "FixedWindow", "rate": "5/m"}]}`
	for _, form := range []string{"text", "json", "github"} {
		got := runIn(t, map[string]string{"limits.json": escapes}, "validate", "-format", form, "limits.json")
		require.Equal(t, exitFound, got.code)
		require.NotContains(t, got.out, "\x1b", form)
		require.NotContains(t, got.out, "\u202e", form)
	}
	require.Equal(t, "[]\n", runIn(t, files, "validate", "-json", "good.json").out)
	require.Equal(t, "%25%0A:,", annotated("%\n:,", false))
	require.Equal(t, "%3A%2C", annotated(":,", true))
}

// TestValidateYAML requires that the first problem of a file of YAML says that it must be JSON.
func TestValidateYAML(t *testing.T) {
	got := runIn(t, map[string]string{"limits.yaml": "rules:\n  - endpoint: /a\n"}, "validate", "limits.yaml")
	require.Equal(t, call{exitFound, "limits.yaml:1:1: RL000 error: must be a JSON value, but is \"r\"\n" +
		"    only JSON is read: convert the file, for example by yq -o json\n", ""}, got)
}
