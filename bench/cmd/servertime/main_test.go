package main

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/bench"
)

// TestRun prints a line for each step of each work, and those of some works only.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), &out, "", "", 1, 0)
	if errors.Is(err, bench.ErrNoRedis) {
		t.Skip(err)
	}
	require.NoError(t, err)
	var want, some int
	for _, w := range append(plain(), extras...) {
		want += len(w.steps)
		if strings.Contains(w.name, "Receipts") {
			some += len(w.steps)
		}
	}
	line := regexp.MustCompile(`^Benchmark[A-Za-z0-9/-]+ 500 [1-9]\d* ns/op [1-9]\d* latency-ns$`)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, want)
	for _, l := range lines {
		assert.Regexp(t, line, l)
	}

	out.Reset()
	require.NoError(t, run(t.Context(), &out, "", "Receipts", 1, 0))
	require.Equal(t, some, strings.Count(out.String(), "\n"))
	require.Equal(t, some, strings.Count(out.String(), "BenchmarkReceipts/"))

	out.Reset()
	require.NoError(t, run(t.Context(), &out, "", "Log", 1, 3))
	require.Regexp(t, `^BenchmarkOpen/SlidingWindowLog/one 1000 \d+ ns/op \d+ mean-ns 1\.00 x-one\n`, out.String())
	require.Equal(t, 1+len(places), strings.Count(out.String(), "\n"))
}

// TestRunFails has no server at an address.
func TestRunFails(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), &bytes.Buffer{}, "127.0.0.1:1", "", 1, 0), "Take/TokenBucket: ")
}
