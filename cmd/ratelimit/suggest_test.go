package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/suggest"
)

const exampleSuggest = `smallest limit of a client in 1m that would have denied at most
5 % of the requests for the endpoint

endpoint  requests  clients  token  leaky  fixed  counter  log
/search      3,600        7      9      9      9       10    9
/login         260        9     33     33     47       53   47

{
  "rules": [
    {"endpoint": "/search", "mode": "shadow",
     "algorithm": "TokenBucket", "rate": "9/m"},
    {"endpoint": "/login", "mode": "shadow",
     "algorithm": "TokenBucket", "rate": "33/m"}
  ]
}
`

func TestSuggest(t *testing.T) {
	files := map[string]string{"access.log": exampleLog()}
	require.Equal(t, call{exitOK, exampleSuggest, ""}, runIn(t, files, strings.Fields("suggest access.log -share 5%")...))

	for args, want := range map[string]string{
		"suggest": "an argument is missing", "suggest access.log -per 0s": "-per is 0s", "suggest access.log -n -1": "-n is -1",
		"suggest access.log -key both":       `-key is "both"`,
		"suggest access.log -algorithm Dice": `-algorithm is "Dice": must be one of TokenBucket,`,
		"suggest access.log -requests 5":     "-requests is 5", "suggest access.log -share 200%": "must be a share",
	} {
		got := runIn(t, files, strings.Fields(args)...)
		require.Equal(t, exitUsage, got.code, args)
		require.Contains(t, got.err, want)
	}
	require.Contains(t, runIn(t, files, strings.Fields("suggest access.log -o no/dir/x")...).err, "no such file or directory")
}

// TestSuggestIsRight requires that validate accepts what suggest writes, that replay denies no more by
// it than was asked for, and more by any smaller limit.
func TestSuggestIsRight(t *testing.T) {
	evil := strings.Replace(exampleLog(), "GET /search?q=7 ", "GET /\xff ", 1)
	evil = strings.Replace(evil, "GET /search?q=8 ", "GET /\"\u009b* ", 1)
	evil = strings.Replace(evil, "GET /search?q=9 ", "GET /<\u009b\U000e0001> ", 1)
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("access.log", []byte(evil), 0o600))
	for _, a := range suggest.Algorithms {
		for _, goal := range []string{"-share 1%", "-clients 15%", "-share 0%", "-share 3% -clients 20% -per 10s -key ip"} {
			args := "suggest access.log -n 2 -o out.json -algorithm " + string(a) + " " + goal
			got := do(t, strings.Fields(args)...)
			require.Equal(t, exitOK, got.code, got.err)
			require.NotContains(t, got.out, "rules", "they are in the file")
			config, err := os.ReadFile("out.json")
			require.NoError(t, err)
			require.NotContains(t, string(config), "\u009b")
			checked := do(t, "validate", "-ignore", "RL001,RL008", "out.json")
			require.Equal(t, exitOK, checked.code, checked.out)

			var out suggestJSON
			got = do(t, append(strings.Fields(args), "-json")...)
			require.NotContains(t, got.out, "\u009b")
			require.NoError(t, json.Unmarshal([]byte(got.out), &out))
			require.Len(t, out.Endpoints, 3)
			require.JSONEq(t, string(config), string(out.Config))
			for _, e := range out.Endpoints {
				requireSmallest(t, a, goal, &out, e)
			}
		}
	}
}

// requireSmallest requires that the limit of an endpoint meets the goal, and that one less does not.
func requireSmallest(t *testing.T, a ratelimit.Algorithm, goal string, out *suggestJSON, e endpointJSON) {
	t.Helper()
	var requests, clients shareFlag
	words := strings.Fields(goal)
	for i, word := range words {
		switch word {
		case "-share":
			require.NoError(t, requests.Set(words[i+1]))
		case "-clients":
			require.NoError(t, clients.Set(words[i+1]))
		}
	}
	rule := e.Endpoint
	if rule == "" {
		rule = "default"
	}
	is := deniedBy(t, string(out.Config))[rule]
	require.Equal(t, e.Requests, is.requests)
	require.False(t, requests.exceeded(is.denied, is.requests) || clients.exceeded(is.deniedKeys, is.keys), "%s %s: %v", a, goal, is)
	if e.Limits[a] == 1 {
		return
	}
	e.Limits[a]-- // in out too
	per, key := ratelimit.PerMinute(1).Per, "user"
	if strings.Contains(goal, "10s") {
		per, key = per/6, "ip"
	}
	is = deniedBy(t, string(configOf(out.Endpoints, a, per, key)))[rule]
	require.True(t, requests.exceeded(is.denied, is.requests) || clients.exceeded(is.deniedKeys, is.keys),
		"%s %s, one less: %v", a, goal, is)
}

// A denial says how much a rule has denied.
type denial struct{ denied, requests, deniedKeys, keys uint64 }

// deniedBy replays access.log with these rules, and returns what each of them has denied.
func deniedBy(t *testing.T, config string) map[string]denial {
	t.Helper()
	require.NoError(t, os.WriteFile("limits.json", []byte(config), 0o600))
	got := do(t, "replay", "access.log", "-config", "limits.json", "-enforce", "-json")
	require.Equal(t, exitOK, got.code, got.err)
	var out replayJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	by := map[string]denial{}
	for _, r := range out.Rules {
		by[r.Name] = denial{r.Denied, r.Requests, r.Keys.Denied, r.Keys.Keys}
	}
	return by
}

func TestSuggestLarge(t *testing.T) {
	var log strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&log, "{\"time\":%d,\"client\":\"c%d\",\"endpoint\":\"/a\"}\n", 1_791_633_600+i/100, i%3000)
	}
	got := runOf(t, nil, log.String(), strings.Fields("suggest - -requests 1000 -share 0 -n 0")...)
	require.Equal(t, exitOK, got.code, got.err)
	require.Contains(t, got.out, "found from all requests of one in 64 clients\n")
	require.Contains(t, got.out, "all others    30,000")
	require.Contains(t, got.out, "\"rules\": [],\n  \"default\": {\"mode\": \"shadow\",")
	_, rules, _ := strings.Cut(got.out, "\n{\n")
	got = runIn(t, map[string]string{"out.json": "{" + rules}, "validate", "out.json")
	require.Equal(t, exitOK, got.code, got.out)
}

func TestPlainJSON(t *testing.T) {
	text := "{\"a\": \"ü\u009b\x7f\u202e\U000e0001\"}\n"
	got := plainJSON([]byte(text))
	require.Regexp(t, `^{"a": "ü\\u009b\\u007f\\u202e\\udb40\\udc01"}\n$`, string(got))
	require.JSONEq(t, text, string(got))
}

// TestSuggestIgnoresTheAbuser has 300 people, and one program that sends 39 % of the requests: 20 each second.
func TestSuggestIgnoresTheAbuser(t *testing.T) {
	var log strings.Builder
	log.WriteString("time,client,path\n")
	for second := range 600 {
		for i := range 20 {
			fmt.Fprintf(&log, "%d.%03d,scraper,/items/%d\n", 1791633600+second, i*50, second*20+i)
		}
		for i := range 31 {
			fmt.Fprintf(&log, "%d.999,person%d,/items/%d\n", 1791633600+second, (second*31+i)%300, i)
		}
	}
	files := map[string]string{"attack.csv": log.String()}
	got := runIn(t, files, "suggest", "attack.csv", "-json")
	require.Equal(t, exitOK, got.code)
	var out suggestJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Len(t, out.Endpoints, 1, "paths are grouped")
	require.Equal(t, "/items/{id}", out.Endpoints[0].Endpoint)
	require.Less(t, out.Endpoints[0].Limits[ratelimit.AlgorithmSlidingWindowLog], 20, "what people need")
	require.Equal(t, "warning: client scraper sends 39.22 % of the requests: a limit by -share follows it, one by -clients does not\n",
		strings.SplitAfter(got.err, "\n")[1])
	require.Contains(t, got.err, "note: paths are grouped as 1 route, such as /items/{id}: replay the rules with -route")

	got = runIn(t, files, "suggest", "attack.csv", "-json", "-share", "0.1%", "-strict")
	require.Equal(t, exitFound, got.code, "by -strict")
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Greater(t, out.Endpoints[0].Limits[ratelimit.AlgorithmSlidingWindowLog], 1000, "the limit follows the program")
	got = runIn(t, files, "suggest", "attack.csv", "-json", "-group=false", "-n", "3")
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Len(t, out.Endpoints, 4)
	got = runIn(t, files, "suggest", "attack.csv", "-key", "ip")
	require.Contains(t, got.err, "30,600 of 30,600 requests have no ip: they count as one client; see -field ip=COLUMN")
}
