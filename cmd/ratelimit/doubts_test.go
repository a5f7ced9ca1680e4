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
