package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestDocumentedOutput runs the commands that the documents show, and requires that they print the
// lines below them, one after the other.
func TestDocumentedOutput(t *testing.T) {
	t.Chdir("../..")
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	commands := 0
	for _, doc := range append(docs, "README.md") {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, block := range strings.Split(string(text), "```console\n$ go run ./cmd/ratelimit ")[1:] {
			block, _, _ = strings.Cut(block, "```")
			line, shown, _ := strings.Cut(block, "\n")
			var out, errs strings.Builder
			run(t.Context(), &terminal{in: strings.NewReader(""), out: &out, err: &errs, width: 80}, words(line))
			require.Empty(t, errs.String(), line)
			require.NotEmpty(t, shown)
			require.Contains(t, "\n"+out.String(), "\n"+shown, "%s: %s", doc, line)
			commands++
		}
	}
	require.GreaterOrEqual(t, commands, 1, "simulate")
}

// words splits a command as a shell does: at spaces, but not within double quotes.
func words(line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

// TestAlgorithmsPage requires that the limits in docs/algorithms.md have the bounds that it states.
func TestAlgorithmsPage(t *testing.T) {
	rules := []ratelimit.Rule{
		{Endpoint: "/search", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(100).WithBurst(20)},
		{Endpoint: "/print", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerMinute(100).WithBurst(20)},
		{Endpoint: "/export", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerDay(1000)},
		{Endpoint: "/feed", Algorithm: ratelimit.AlgorithmSlidingWindowCounter, Rate: ratelimit.PerMinute(100)},
		{Endpoint: "/login", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
	}
	_, err := ratelimit.New(rules, nil)
	require.NoError(t, err)
	for i, want := range []int{119, 119, 2000, 199, 5} {
		require.Equal(t, want, rules[i].Algorithm.MaxIn(rules[i].Rate, rules[i].Rate.Per-1), rules[i].Algorithm)
	}
	require.Equal(t, 120, rules[0].Algorithm.MaxIn(rules[0].Rate, time.Minute), "B + T·L/P, with both ends")

	bucket, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(100).WithBurst(20))
	require.NoError(t, err)
	require.Equal(t, 19, bucket.Allow("a").Remaining)
	leaky, err := ratelimit.NewLeakyBucket(ratelimit.PerMinute(100).WithBurst(20))
	require.NoError(t, err)
	require.Zero(t, leaky.Allow("a").Delay)
	require.Positive(t, leaky.Allow("a").Delay)
	window, err := ratelimit.NewFixedWindow(ratelimit.PerDay(1000))
	require.NoError(t, err)
	require.Equal(t, 999, window.Allow("a").Remaining)
	quota := ratelimit.Rate{Requests: 10_000, Window: ratelimit.Calendar("month", "Europe/Berlin")}
	billing := ratelimit.Rate{Requests: 10_000, Window: ratelimit.Monthly(15, "Europe/Berlin")}
	daily := ratelimit.Rate{Requests: 500, Per: 24 * time.Hour, Window: "first"}
	for _, row := range []struct {
		rate ratelimit.Rate
		text string
	}{
		{quota, "10000/month Europe/Berlin"}, {billing, "10000/month from day 15 Europe/Berlin"}, {daily, "500/day from first"},
	} {
		read, err := ratelimit.ParseRate(row.text)
		require.NoError(t, err)
		require.Equal(t, row.rate, read)
		window, err := ratelimit.NewFixedWindow(row.rate)
		require.NoError(t, err)
		require.Equal(t, row.rate.Requests-1, window.Allow("a").Remaining)
	}
	counter, err := ratelimit.NewSlidingWindowCounter(ratelimit.PerMinute(100))
	require.NoError(t, err)
	require.Equal(t, 99, counter.Allow("a").Remaining)
	log, err := ratelimit.NewSlidingWindowLog(ratelimit.PerMinute(5))
	require.NoError(t, err)
	require.Equal(t, 4, log.Allow("a").Remaining)
}
