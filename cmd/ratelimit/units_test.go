package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gatewayLog returns a log of five requests of one client in five seconds, with 9,000 tokens each but the last.
func gatewayLog() string {
	var b strings.Builder
	for i := range 5 {
		tokens := `, "usage": {"tokens": 9000}`
		if i == 4 {
			tokens = ""
		}
		fmt.Fprintf(&b, `{"time": "2026-10-10T12:00:%02dZ", "client": "a", "endpoint": "/v1/chat"%s}`+"\n", i, tokens)
	}
	return b.String()
}

func gatewayFiles() map[string]string {
	return map[string]string{
		"app.json": gatewayLog(), "gateway.json": gatewayLimits, "shadows.json": `{"rules": [
  {"name": "tokens", "endpoint": "/v1/chat", "algorithm": "TokenBucket", "rate": "9000/h", "unit": "tokens", "mode": "advise"},
  {"name": "at once", "endpoint": "/v1/chat", "algorithm": "InFlight", "rate": "1/1m", "mode": "shadow"}]}`,
	}
}

// TestReplayUnits has rules that a log without more columns cannot judge, and one that advises.
func TestReplayUnits(t *testing.T) {
	files := gatewayFiles()
	got := runIn(t, files, strings.Fields("replay app.json -config gateway.json")...)
	require.Equal(t, call{exitOK, `5 requests, 2026-10-10 12:00:00 to 2026-10-10 12:00:04 UTC
denied: 0 requests (0.00 %) of 0 of 1 client

rule      requests  denied          first  last
requests         5       0  0.00 %      -     -
tokens           0       0       -      -     -
at once          0       0       -      -     -
* small          5       0  0.00 %      -     -
* in advise mode: what it would have denied, not in the sum above
tokens: 5 requests not judged: no tokens, see -field cost:tokens=COLUMN
at once: 5 requests not judged: no log says how long they ran

keys by the least that was left  denied  none  <10 %  <25 %  <50 %  more
requests                              0     0      0      0      0     1
small                                 0     0      0      0      0     1
`, ""}, got)

	got = runIn(t, files, strings.Fields("replay app.json -config gateway.json -against shadows.json -field cost:tokens=usage.tokens")...)
	require.Equal(t, call{exitOK, `5 requests, 2026-10-10 12:00:00 to 2026-10-10 12:00:04 UTC
denied: 2 requests (40.00 %) of 1 of 1 client

rule      requests  denied                         first                 last
requests         5       0   0.00 %                    -                    -
tokens           4       2  50.00 %  2026-10-10 12:00:02  2026-10-10 12:00:03
at once          0       0        -                    -                    -
* small          5       0   0.00 %                    -                    -
* in advise mode: what it would have denied, not in the sum above
tokens: 1 requests not judged: no tokens, see -field cost:tokens=COLUMN
at once: 5 requests not judged: no log says how long they ran

by hour, UTC      requests  denied
2026-10-10 12:00         5       2  ##############################

top offenders  by rule  denied
a              tokens        2

keys by the least that was left  denied  none  <10 %  <25 %  <50 %  more
requests                              0     0      0      0      0     1
tokens                                1     0      0      0      0     0
small                                 0     0      0      0      0     1

shadows.json denies 0 (0.00 %), gateway.json 2
denied by both: 0

denied only by gateway.json: 2 (40.00 %)
rule    denied
tokens       2

top clients  by rule  denied
a            tokens        2

denied only by shadows.json: 0 (0.00 %)

shadows.json: tokens: 1 requests not judged: no tokens, see -field
  cost:tokens=COLUMN
shadows.json: at once: 5 requests not judged: no log says how long they ran
`, ""}, got)

	got = runIn(t, files, strings.Fields("replay app.json -config shadows.json -field cost:tokens=usage.tokens")...)
	require.Contains(t, got.out, "* tokens          4       3  75.00 %  2026-10-10 12:00:01  2026-10-10 12:00:03\n")
	require.Contains(t, got.out, "* in advise or shadow mode: what it would have denied, not in the sum above\n")
	got = runIn(t, files, strings.Fields("replay app.json -config shadows.json -field cost:tokens=usage.tokens -enforce -json "+
		"-decisions out.json")...)
	require.Equal(t, exitOK, got.code, got.err)
	var out replayJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Equal(t, uint64(3), out.Denied)
	require.Contains(t, got.out, `"notJudged": [
    {
      "rule": "tokens",
      "unit": "tokens",
      "noUnit": 1
    },
    {
      "rule": "at once",
      "duration": 5
    }
  ]`)

	for args, want := range map[string]string{
		"replay app.json -config gateway.json -field cost:bytes=n":  `-field has the unit "bytes", which no rule counts`,
		"replay app.json -config gateway.json -field cost:=n":       `has the part "cost:": must be time, client, endpoint, ip,`,
		"suggest app.json -field cost:tokens=usage.tokens":          "-field has cost:tokens: must be cost, as the limits found are for one unit",
		"suggest app.json -algorithm InFlight":                      `-algorithm is "InFlight": must be one of TokenBucket, LeakyBucket`,
		"explain gateway.json -client a -endpoint / -cost tokns=2":  `-cost has the unit "tokns", which no rule counts`,
		"explain gateway.json -client a -endpoint / -cost tokens=x": `must be a whole number from 1 to 2147483647, or unit=number`,
	} {
		got := runIn(t, files, strings.Fields(args)...)
		require.Equal(t, exitUsage, got.code, args)
		require.Contains(t, got.err, want)
	}
	files["app.json"] += `{"time": "2026-10-10T12:01:00Z", "client": "a", "usage": {"tokens": "many"}}`
	got = runIn(t, files, strings.Fields("replay app.json -config gateway.json -field cost:tokens=usage.tokens")...)
	require.Contains(t, got.err, "app.json: line 6 has a cost that is no whole number from 0 to 2147483647")
}

func TestExplainUnits(t *testing.T) {
	got := runIn(t, gatewayFiles(), strings.Fields("explain gateway.json -client a -endpoint /v1/chat -at 1791633600")...)
	require.Equal(t, call{exitOK, `client "a" for "/v1/chat", cost 1, at 2026-10-10 12:00:00 UTC
granted

rule "requests" grants
  match  exact "/v1/chat"
  key    user "a"
  limit  TokenBucket 60/m, at most 119 in any 1m
  state  unused: 59 of 60 left, granted
         as new after 1s

rule "tokens" is not asked
  match  exact "/v1/chat"
  key    user "a"
  limit  TokenBucket 20000/h tokens
  state  the request has no tokens; see -cost tokens=NUMBER

rule "at once" is not asked
  match  exact "/v1/chat"
  key    user "a"
  limit  InFlight 4/m
  state  counts what is running, and a log does not say how long it runs

rule "small" is in advise mode, and would grant
  match  exact "/v1/chat"
  key    user "a"
  limit  TokenBucket 10/m, at most 19 in any 1m
  state  unused: 9 of 10 left, granted
         as new after 6s
`, ""}, got)

	got = runIn(t, gatewayFiles(), strings.Fields("explain gateway.json -client a -endpoint /v1/chat -cost 2 -cost tokens=9000 "+
		"-after app.json -field cost:tokens=usage.tokens")...)
	require.Equal(t, exitFound, got.code)
	require.Contains(t, got.out, `client "a" for "/v1/chat", cost 2 and 9000 tokens, at 2026-10-10 12:00:04 UTC
denied, again after 20m56s, at 2026-10-10 12:21:00
`)
	require.Contains(t, got.out, `
rule "tokens" denies
  match  exact "/v1/chat"
  key    user "a"
  limit  TokenBucket 20000/h tokens, at most 39999 in any 1h
  state  used before: 2022 of 20000 left, denied, again after 20m56s
         as new after 53m56s
`)
}
