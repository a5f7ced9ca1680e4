package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

const exampleExplain = `IP "203.0.113.9" for "/login", cost 1, at 2026-10-10 12:10:20 UTC
denied, again after 40s

rule "/login" denies
  match  exact "/login"
  key    ip "203.0.113.9"
  limit  SlidingWindowLog 3/m, at most 3 in any 1m
  state  used before: 0 of 3 left, denied, again after 40s
         as new after 42s
  used by 3 granted requests:
    2026-10-10 12:10:00 ip:203.0.113.9 for "/login"
    2026-10-10 12:10:01 ip:203.0.113.9 for "/login"
    2026-10-10 12:10:02 ip:203.0.113.9 for "/login"
`

// explainFiles returns the files that the tests of explain read.
func explainFiles() map[string]string {
	return map[string]string{"access.log": exampleLog(), "limits.json": exampleLimits, "tiers.json": `{"rules": [
  {"endpoint": "/a", "algorithm": "LeakyBucket", "rate": "2/m", "tiers": {"paid": "unlimited", "free": "1/m"}},
  {"name": "tenant", "endpoint": "*", "additional": true, "algorithm": "FixedWindow", "rate": "2/h",
   "key": "attr:tenant", "mode": "shadow"}]}`,
		"nano.json": `{"time": 1791633600000000001, "client": "x", "endpoint": "/a"}`}
}

func TestExplain(t *testing.T) {
	files := explainFiles()
	got := runIn(t, files, strings.Fields("explain limits.json -ip 203.0.113.9 -endpoint /login -after access.log "+
		"-at 2026-10-10T12:10:20Z")...)
	require.Equal(t, call{exitFound, exampleExplain, ""}, got)

	got = runIn(t, files, strings.Fields("explain limits.json -client x -endpoint /search -at 2026-10-10T12:00:00.000000001Z")...)
	require.Equal(t, call{exitOK, `client "x" for "/search", cost 1, at 2026-10-10 12:00:00.000000001 UTC
granted

rule "/search" is in shadow mode, and would grant
  match  exact "/search"
  key    user "x"
  limit  TokenBucket 10/m, at most 19 in any 1m
  state  unused: 9 of 10 left, granted
         as new after 6s

rule "default" grants
  match  default
  key    user "x"
  limit  TokenBucket 20/s, at most 39 in any 1s
  state  unused: 19 of 20 left, granted
         as new after 50ms
`, ""}, got)

	got = runIn(t, files, strings.Fields("explain tiers.json -client x\x1b[2J -endpoint /a -tier paid -attr tenant=acme -cost 3 "+
		"-at 1791633600")...)
	require.Equal(t, exitOK, got.code)
	require.Equal(t, `client "x\x1b[2J" for "/a", cost 3, at 2026-10-10 12:00:00 UTC
granted

rule "/a" grants
  match  exact "/a"
  key    user "x\x1b[2J"
  limit  none for this client, by its tier

rule "tenant" is in shadow mode, and would deny
  match  additional "*"
  key    attr:tenant "acme"
  limit  FixedWindow 2/h, at most 4 in any 1h
  state  unused: 2 of 2 left, denied, and always would be
         as new after 0s
`, got.out)
}

// TestExplainWindows explains rules whose windows are those of a calendar, or begin with the first use.
func TestExplainWindows(t *testing.T) {
	files := map[string]string{"months.json": `{"rules": [
  {"endpoint": "/a", "algorithm": "FixedWindow", "rate": "10000/month Europe/Berlin"},
  {"endpoint": "/b", "algorithm": "FixedWindow", "rate": "500/day from first"}]}`}
	for _, row := range []struct{ endpoint, limit, state string }{
		{"/a", "FixedWindow 10000/month Europe/Berlin, at most 30000 in any 31d1h", "as new after 21d11h"},
		{"/b", "FixedWindow 500/d from first, at most 1000 in any 1d", "as new after 1d"},
	} {
		got := runIn(t, files, strings.Fields("explain months.json -client x -at 2026-10-10T12:00:00Z -endpoint "+row.endpoint)...)
		require.Equal(t, exitOK, got.code, got.err)
		require.Contains(t, got.out, "  limit  "+row.limit+"\n")
		require.Contains(t, got.out, "         "+row.state+"\n")
	}
}

func TestExplainAfter(t *testing.T) {
	files := explainFiles()
	// At the time of the last line, which counts; and before it, which does not.
	got := runIn(t, files, strings.Fields("explain tiers.json -client x -endpoint /a -after nano.json")...)
	require.Contains(t, got.out, "at 2026-10-10 12:00:00.000000001 UTC\ngranted, to be held for 30s\n")
	got = runIn(t, files, strings.Fields("explain tiers.json -client x -endpoint /a -after nano.json -at 1791633600000000001")...)
	require.Contains(t, got.out, "at 2026-10-10 12:00:00.000000001 UTC\ngranted\n")
	got = runIn(t, files, strings.Fields("explain tiers.json -client x -endpoint /a -tier free -after nano.json")...)
	require.Equal(t, exitFound, got.code)
	require.Contains(t, got.out, "LeakyBucket 1/m, by its tier,")
	got = runIn(t, files, strings.Fields("explain tiers.json -client x -endpoint /none")...)
	require.Contains(t, got.out, "granted\n\nrule \"tenant\"")
	got = runIn(t, files, strings.Fields("explain limits.json -ip 10.0.0.1 -endpoint /login -json -cost 4")...)
	require.Equal(t, exitFound, got.code)
	var e ratelimit.Explanation
	require.NoError(t, json.Unmarshal([]byte(got.out), &e))
	require.Equal(t, ratelimit.Never, e.Result.RetryAfter)
}

func TestExplainBad(t *testing.T) {
	files := explainFiles()
	for args, want := range map[string]string{
		"explain":                     "an argument is missing: the file of rules",
		"explain limits.json -cost 0": `"0" for flag -cost: must be a whole number from 1`,
		"explain limits.json -client a -endpoint /a -at noon":                   `-at is "noon"`,
		"explain limits.json -attr x":                                           "must be name=value",
		"explain limits.json other.json":                                        "one argument too many",
		"explain limits.json -client a -endpoint /a -after a.log -format pages": `-format is "pages"`,
		"explain limits.json -client a":                                         "-endpoint is missing",
		"explain limits.json -endpoint /search":                                 "-client or -ip is missing",
		"explain limits.json -client a -endpoint /login":                        `rule "/login" limits by ip: give -ip`,
		"explain limits.json -client a -ip x -endpoint /login":                  `-ip is "x": must be an address`,
		"explain limits.json -client a -endpoint /login -ipv6 5":                "-ipv6 is 5",
	} {
		got := runIn(t, files, strings.Fields(args)...)
		require.Equal(t, exitUsage, got.code, args)
		require.Contains(t, got.err, want)
	}
	require.Equal(t, exitFailed, runIn(t, files, strings.Fields("explain limits.json -client a -endpoint /a -after missing.log")...).code)
}
