package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestValidateIgnoresOfRule leaves out a code for one rule, and keeps it for the others.
func TestValidateIgnoresOfRule(t *testing.T) {
	files := map[string]string{"limits.json": `{"rules": [
  {"endpoint": "/login", "algorithm": "FixedWindow", "rate": "5/m"},
  {"endpoint": "/signin", "algorithm": "FixedWindow", "rate": "5/m"}
], "default": {"algorithm": "TokenBucket", "rate": "20/s"}}`}
	got := runIn(t, files, "validate", "limits.json")
	require.Equal(t, exitFound, got.code)
	require.Equal(t, 2, strings.Count(got.out, " RL001 "), got.out)
	got = runIn(t, files, "validate", "limits.json", "-ignore", "/login:RL001")
	require.Equal(t, exitFound, got.code)
	require.Equal(t, 1, strings.Count(got.out, " RL001 "), got.out)
	require.Contains(t, got.out, "limits.json:3:")
	got = runIn(t, files, "validate", "limits.json", "-ignore", "/login:RL001,/signin:RL001")
	require.Equal(t, exitOK, got.code, got.out)
	got = runIn(t, files, "validate", "limits.json", "-ignore", "/logn:RL001")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.err, `-ignore has "/logn:RL001", but no file has a rule "/logn"`)
}
