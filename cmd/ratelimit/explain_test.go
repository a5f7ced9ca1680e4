package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

const exampleExplain = `IP "203.0.113.9" for "/login", cost 1, at 2026-10-10 12:10:20 UTC
denied, again after 40s, at 2026-10-10 12:11:00
in the log, by these rules: 20 requests of this client for "/login", 17 denied:
  each one since 2026-10-10 12:10:03

rule "/login" denies
  match  exact "/login"
  key    ip "203.0.113.9"
  limit  SlidingWindowLog 3/m, at most 3 in any 1m
  window 2026-10-10 12:09:20 to 2026-10-10 12:10:20
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
  window 2026-10-10 12:00:00 to 2026-10-10 13:00:00
  state  unused: 2 of 2 left, denied, and always would be
         as new after 0s
`, got.out)
}

// TestExplainWindows explains rules whose windows are those of a calendar, or begin with the first use.
func TestExplainWindows(t *testing.T) {
	files := map[string]string{"months.json": `{"rules": [
  {"endpoint": "/a", "algorithm": "FixedWindow", "rate": "10000/month Europe/Berlin"},
  {"endpoint": "/c", "algorithm": "FixedWindow", "rate": "5/h"},
  {"endpoint": "/d", "algorithm": "SlidingWindowCounter", "rate": "5/h"},
  {"endpoint": "/b", "algorithm": "FixedWindow", "rate": "500/day from first"}]}`,
		"log": `{"time": "2026-10-10T10:30:00Z", "client": "x", "endpoint": "/b"}`}
	for _, row := range []struct{ endpoint, limit, state string }{
		{"/a", "FixedWindow 10000/month Europe/Berlin, at most 30000 in any 31d1h\n" +
			"  window 2026-09-30 22:00:00 to 2026-10-31 23:00:00", "as new after 21d11h"},
		{"/b", "FixedWindow 500/d from first, at most 1000 in any 1d", "as new after 1d"},
		{"/c", "FixedWindow 5/h, at most 10 in any 1h\n  window 2026-10-10 12:00:00 to 2026-10-10 13:00:00", "as new after 1h"},
		{"/d", "SlidingWindowCounter 5/h, at most 9 in any 1h\n" +
			"  window 2026-10-10 12:00:00 to 2026-10-10 13:00:00 and part of the last", "as new after 2h"},
	} {
		got := runIn(t, files, strings.Fields("explain months.json -client x -at 2026-10-10T12:00:00Z -endpoint "+row.endpoint)...)
		require.Equal(t, exitOK, got.code, got.err)
		require.Contains(t, got.out, "  limit  "+row.limit+"\n")
		require.Contains(t, got.out, "         "+row.state+"\n")
	}
	got := runIn(t, files, strings.Fields("explain months.json -client x -endpoint /b -after log -at 2026-10-10T12:00:00Z")...)
	require.Contains(t, got.out, "  window 2026-10-10 10:30:00 to 2026-10-11 10:30:00\n", "it began with the first use")
}

// TestExplainSince says since when a client is denied: since the first denial after its last grant.
func TestExplainSince(t *testing.T) {
	files := map[string]string{"limits.json": `[{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "2/m", "key": "global"}]`}
	for i, client := range strings.Fields("x y x y x y x x") { // the second minute begins with the fifth request
		files["log"] += fmt.Sprintf(`{"time": "2026-10-10T12:00:%02dZ", "client": "%s", "endpoint": "/a"}`+"\n", 20+10*i, client)
		if i == 3 {
			files["short"] = files["log"]
		}
	}
	files["log"] = strings.NewReplacer(":60Z", ":59.25Z", ":70Z", ":59.5Z", ":80Z", ":59.75Z", ":90Z", ":59.999Z").Replace(files["log"])
	for args, want := range map[string]string{
		"-client x -after log -at 2026-10-10T12:00:40Z": `1 request of this client for "/a", none denied`,
		"-client x -after log -at 2026-10-10T12:00:41Z": `2 requests of this client for "/a", 1 denied, at 2026-10-10 12:00:40`,
		"-client x -after log":                          `5 requests of this client for "/a", 4 denied: each one since 2026-10-10 12:00:40`,
		"-client y -after short":                        `2 requests of this client for "/a", 1 denied, at 2026-10-10 12:00:50`,
	} {
		got := runIn(t, files, append([]string{"explain", "limits.json", "-endpoint", "/a"}, strings.Fields(args)...)...)
		require.Contains(t, strings.ReplaceAll(got.out, "\n  ", " "), "in the log, by these rules: "+want, args+got.err)
	}
	got := runIn(t, files, strings.Fields("explain limits.json -endpoint /a -client x -after log")...)
	require.Contains(t, got.out, "  asked  8 requests of this key, 6 denied: each one since 2026-10-10 12:00:40\n")
	files["log"] += `{"time": "2026-10-10T12:01:01Z", "client": "x", "endpoint": "/a"}` + "\n"
	got = runIn(t, files, strings.Fields("explain limits.json -endpoint /a -client x -after log -json")...)
	require.Equal(t, exitOK, got.code)
	var out struct {
		Time time.Time
		Log  replay.Seen
	}
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	at := func(sec, ms int) time.Time { return time.Date(2026, 10, 10, 12, 0, sec, ms*1e6, time.UTC) }
	require.Equal(t, replay.Seen{Requests: 6, Denied: 4, FirstDenied: at(40, 0), LastDenied: at(59, 999)}, out.Log)
	require.Equal(t, at(61, 0), out.Time)
}

// TestExplainOverrides explains with overrides of the file of rules, and of another file.
func TestExplainOverrides(t *testing.T) {
	files := map[string]string{
		"limits.json": `{"rules": [{"name": "a", "endpoint": "/a", "algorithm": "TokenBucket", "rate": "1/m"}], "overrides": [
  {"client": "x", "effect": "block", "until": "2026-10-10T12:00:01Z", "note": "scraper"}]}`,
		"more.json": `{"server": "s", "overrides": [{"client": "y", "effect": "exempt", "rules": [], "until": null, "restNs": 0, "note": "b"},
  {"client": "z", "effect": "rate", "rate": "5/m", "rules": ["a"]}, {"ip": "10.0.0.0/8", "effect": "block", "rules": ["gone"]}]}`,
		"list.json": `[{"client": "y", "effect": "block"}]`,
	}
	for _, client := range []string{"x", "y", "z"} {
		for i := range 3 {
			files["log"] += fmt.Sprintf(`{"time": "2026-10-10T12:00:0%dZ", "client": "%s", "endpoint": "/a"}`+"\n", i, client)
		}
	}
	explain := func(args string) call {
		return runIn(t, files, append([]string{"explain", "limits.json", "-endpoint", "/a"}, strings.Fields(args)...)...)
	}
	got := explain("-client x -at 2026-10-10T12:00:00Z")
	require.Equal(t, call{exitFound, `client "x" for "/a", cost 1, at 2026-10-10 12:00:00 UTC
denied, again after 1s, at 2026-10-10 12:00:01

blocked by an override, and no rule is asked:
  block of client "x" until 2026-10-10T12:00:01Z: "scraper"
`, ""}, got)
	require.Contains(t, explain("-client x -after log").out, "3 requests of this client for \"/a\", 2 denied, from\n"+
		"  2026-10-10 12:00:00 to 2026-10-10 12:00:02: each one since 2026-10-10 12:00:02\n", "granted when the block had ended")
	require.Contains(t, explain("-client y -overrides list.json").out, "denied, until the block is lifted\n")

	got = explain("-client y -overrides more.json -after log")
	require.Contains(t, got.out, "  limit  none for this client, by its override\n  by     an override: exemption of client \"y\": \"b\"\n")
	require.Contains(t, got.err, "note: without effect: block of IP \"10.0.0.0/8\" for rule \"gone\"")
	got = explain("-client z -overrides more.json -after log")
	require.Equal(t, exitOK, got.code, "three of five are used")
	require.Contains(t, got.out, "TokenBucket 5/m, at most 9 in any 1m\n  by     an override: rate 5/m of client \"z\" for rule \"a\"\n")

	for args, want := range map[string]string{
		"-client y -overrides none.json":              "none.json: no such file",
		"-client y -overrides log":                    "log: invalid character",
		"-client y -name shop":                        "-redis is missing",
		"-client y -redis redis://x":                  "-name is missing",
		"-client y -redis redis://x -overrides a":     "-overrides and -redis are given",
		"-client y -redis http://x -name shop":        "the address must be redis://",
		"-client y -redis redis://[::1]:1 -name shop": "refused",
	} {
		got := explain(args)
		require.GreaterOrEqual(t, got.code, exitUsage, args)
		require.Contains(t, got.err, want, args)
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

// TestExplainPenalty requires that explain says that a penalty blocks a client, for whom more budget would not help.
func TestExplainPenalty(t *testing.T) {
	files := map[string]string{"limits.json": `{"rules": [{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "1/h",
  "penalty": {"after": 2, "within": "1h", "for": "3h"}}]}`, "access.csv": "time,client,endpoint\n" +
		strings.Repeat("1791633600,alice,/search\n", 4)}
	got := runIn(t, files, strings.Fields("explain limits.json -client alice -endpoint /search -after access.csv -at 1791633660")...)
	require.Equal(t, exitFound, got.code)
	require.Contains(t, got.out, "\nblocked by a penalty, again after 2h59m, at 2026-10-10 15:00:00\n")
	require.Contains(t, got.out, "\n  state  used before: 0 of 1 left, blocked by a penalty, again after 2h59m\n")
}
