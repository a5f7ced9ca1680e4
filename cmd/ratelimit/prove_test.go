package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const provedLimits = `{"rules": [
  {"endpoint": "/db", "algorithm": "SlidingWindowLog", "rate": "10/s"},
  {"endpoint": "/login", "algorithm": "FixedWindow", "rate": "5/m", "key": "ip", "onStoreError": "closed"},
  {"name": "all", "endpoint": "*", "additional": true, "algorithm": "TokenBucket", "rate": "100/s burst 5", "key": "global"}
]}`

func TestProve(t *testing.T) {
	files := map[string]string{"limits.json": provedLimits,
		"exempt.json": provedLimits[:len(provedLimits)-1] + `, "overrides": [{"client": "bob", "effect": "exempt", "note": "x"}]}`}
	got := runIn(t, files, "prove", "limits.json")
	require.Equal(t, call{exitOK, `endpoint    in any  one client  all clients
/db             1s  10 reached    104 exact
/login          1s  10 reached    104 exact
/login          1m  10 reached  6,004 exact
all others      1s   104 exact    104 exact
`, ""}, got)
	got = runIn(t, files, "prove", "limits.json", "-replicas", "4", "-store", "redis", "-policy", "local:4",
		"-endpoint", "/db,/login", "-in", "1s")
	require.Equal(t, call{exitOK, `endpoint  in any  one client  all clients  outage: one  outage: all
/db           1s  10 reached    104 exact     18 bound    204 bound
/login        1s  10 reached    104 exact     10 bound    104 bound
`, ""}, got)
	got = runIn(t, files, "prove", "limits.json", "-replicas", "4", "-endpoint", "/db", "-in", "1s", "-schedule")
	require.Contains(t, got.out, "/db           1s  40 reached    416 exact\n\n"+
		"/db, any 1s, one client: 10 requests from 00:00:00 on\n  +0s  5\n  +10ms  1\n")
	require.Contains(t, got.out, "and so on, 88 more times\n")

	got = runIn(t, files, "prove", "limits.json", "-assert", "any 10s of /db <= 1004", "-assert", "any 1s of /db  by one client <= 9")
	require.Equal(t, call{exitFound, "assert any 10s of /db <= 1004: holds, 1,004 exact\n" +
		"assert any 1s of /db  by one client <= 9: is broken, 10 reached\n", ""}, got)
	got = runIn(t, files, "prove", "exempt.json", "-assert", "any 10s of /db <= 1004", "-json")
	require.Equal(t, exitFound, got.code)
	var out proofJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Equal(t, []string{"client bob (exempt)"}, out.Overridden)
	require.Nil(t, out.Asserts[0].Bound.Most)
	got = runIn(t, files, "prove", "limits.json", "-store", "redis", "-assert", "any 1s of /db by one client while the store fails <= 20")
	require.Equal(t, call{exitOK, "assert any 1s of /db by one client while the store fails <= 20: holds, 20 bound\n", ""}, got)

	for args, want := range map[string]string{
		"prove": "an argument is missing: the file of rules", "prove limits.json -replicas 0": "-replicas is 0",
		"prove limits.json -store sql":   "-store is",
		"prove limits.json -policy some": `-policy is "some"`, "prove limits.json -lease 5": "-lease is given without -store redis",
		"prove limits.json -in soon": `-in: "soon" is no length of time`, "prove limits.json -assert x": `-assert is "x": must be like`,
		"prove limits.json -lease -1": "-lease is -1",
	} {
		got := runIn(t, files, strings.Fields(args)...)
		require.Equal(t, exitUsage, got.code, args)
		require.Contains(t, got.err, want)
	}
	got = runIn(t, files, "prove", "limits.json", "-assert", "any 1s of /db while the store fails <= 1")
	require.Contains(t, got.err, "give -store redis")
}
