package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReplayDoubts has logs that do not say what the rules limit by.
func TestReplayDoubts(t *testing.T) {
	var some strings.Builder
	some.WriteString("time,client,path,ip\n")
	for i := range 200 {
		fmt.Fprintf(&some, "%d,c%d,/login,%s\n", 1791633600+i, i, map[bool]string{true: "", false: fmt.Sprintf("10.0.0.%d", i)}[i%50 == 0])
	}
	files := map[string]string{
		"none.csv": "time,client,path\n1791633600,a,/login\n1791633601,b,/login\n", "some.csv": some.String(),
		"limits.json": `{"rules": [{"endpoint": "/login", "algorithm": "SlidingWindowLog", "rate": "3/m", "key": "ip"},
  {"endpoint": "/users/{id}", "algorithm": "TokenBucket", "rate": "9/m"}]}`,
	}
	const noIP = `warning: rule "/login" limits by ip, and no line has one: all requests share one budget; see -field ip=COLUMN` + "\n"
	const noRoute = `warning: rule "/users/{id}" met no request: the log has paths, not routes; see -route '/users/{id}'` + "\n"
	got := runIn(t, files, "replay", "none.csv", "-config", "limits.json")
	require.Equal(t, exitOK, got.code)
	require.Equal(t, noIP+noRoute, got.err)
	require.Equal(t, exitFound, runIn(t, files, "replay", "none.csv", "-config", "limits.json", "-strict").code)
	got = runIn(t, files, "replay", "none.csv", "-config", "limits.json", "-field", "ip=client", "-route", "/login")
	require.Equal(t, `warning: rule "/users/{id}" met no request: no -route gives a request the endpoint "/users/{id}"`+"\n", got.err)
	got = runIn(t, files, "replay", "some.csv", "-config", "limits.json")
	require.Equal(t, `warning: rule "/login" limits by ip, and 4 of 200 requests (2.00 %) have none: `+
		"they share one budget; see -field ip=COLUMN\n"+noRoute, got.err)
	got = runIn(t, files, "replay", "none.csv", "-config", "limits.json", "-json")
	require.Contains(t, got.out, `"warnings": [`)
}

// TestExplainUnknownClient asks about a client whom the log names in another column.
func TestExplainUnknownClient(t *testing.T) {
	const line = `10.0.0.1 - bob [10/Oct/2026:12:10:00 +0000] "GET /search HTTP/1.1" 200 5 "-" "-"` + "\n"
	files := map[string]string{
		"access.log":  strings.Repeat(line, 3),
		"limits.json": `{"rules": [{"endpoint": "/search", "algorithm": "FixedWindow", "rate": "3/h"}]}`,
	}
	ask := []string{"explain", "limits.json", "-client", "bob", "-endpoint", "/search", "-after", "access.log"}
	got := runIn(t, files, ask...)
	require.Equal(t, exitOK, got.code)
	const unknown = `warning: no request before is of client "bob"; a client in the log is "ip:10.0.0.1": see -field client=COLUMN` + "\n"
	require.Equal(t, unknown, got.err)
	require.Equal(t, exitFound, runIn(t, files, append(ask, "-strict")...).code)
	got = runIn(t, files, append(ask, "-field", "client=user")...)
	require.Empty(t, got.err)
	require.Contains(t, got.out, "denied")
}

// TestReplayFuture requires that a line from the future, as a broken clock writes it, changes no answer to the lines after it.
func TestReplayFuture(t *testing.T) {
	const lines = 60
	log := "time,client,endpoint\n"
	for i := range lines {
		if log += fmt.Sprintf("%d,a,/a\n", 1791633600+20*i); i == 9 {
			log += "2106993600,b,/b\n" // in 2036
		}
	}
	files := map[string]string{"log.csv": log, "limits.json": `{"rules": [
  {"endpoint": "/a", "algorithm": "SlidingWindowLog", "rate": "2/m"}], "default": {"algorithm": "TokenBucket", "rate": "1/s"}}`}
	got := runIn(t, files, strings.Fields("replay log.csv -config limits.json")...)
	require.Empty(t, got.err)
	require.Contains(t, got.out, fmt.Sprintf("denied: %d requests ", lines/3), "two of three requests in a minute are granted")
}

// TestReplayTab requires that the command line may name the tab in both ways.
func TestReplayTab(t *testing.T) {
	files := map[string]string{"log.tsv": "time\tclient\tendpoint\tcost\n1791633600\ta\t/a\t0\n", "limits.json": `{"rules": [
  {"endpoint": "/a", "algorithm": "TokenBucket", "rate": "1/h"}]}`}
	for _, comma := range []string{"tab", `\t`, "\t"} {
		got := runIn(t, files, "replay", "log.tsv", "-format", "csv", "-comma", comma, "-config", "limits.json", "-decisions", "-")
		require.Contains(t, got.out, `"client":"a","endpoint":"/a","cost":1,"allowed":true,"limit":1,"remaining":0`, "a cost of 0 counts as 1")
	}
}
