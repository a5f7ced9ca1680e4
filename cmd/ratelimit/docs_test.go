//go:build unix

package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// example is a command in a document, and the output below it.
var example = regexp.MustCompile("```sh\n(?:go run github.com/ratelimit-go/ratelimit/cmd/)?ratelimit " +
	"([^\n]+)\n```\n\n```text\n((?s:.*?))```\n")

// TestDocs runs the commands in the documents, and compares their output: all of it, or the first
// lines, or after three dots the last.
func TestDocs(t *testing.T) {
	ran := 0
	for _, path := range []string{"docs/tool.md", "README.md"} {
		text, err := os.ReadFile("../../" + path)
		require.NoError(t, err)
		if path == "docs/tool.md" {
			require.Contains(t, string(text), "```json\n"+exampleLimits+"\n```")
		}
		for _, found := range example.FindAllStringSubmatch(string(text), -1) {
			args, want := strings.Fields(found[1]), found[2]
			switch args[0] {
			case "replay", "explain", "suggest", "validate", "prove":
			default:
				continue // see TestDocsOfRedis
			}
			t.Run(found[1], func(t *testing.T) {
				got := runIn(t, map[string]string{"access.log": exampleLog(), "limits.json": exampleLimits, "other.json": exampleOther}, args...)
				require.Empty(t, got.err)
				end, isEnd := strings.CutPrefix(want, "...\n")
				switch {
				case isEnd:
					require.True(t, strings.HasSuffix(got.out, end), "%s", got.out)
				case path == "README.md":
					require.True(t, strings.HasPrefix(got.out, want), "%s", got.out)
				default:
					require.Equal(t, want, got.out)
				}
			})
			ran++
		}
	}
	require.Equal(t, 6, ran)
}

// TestDocsOfRedis does so for the commands that need a server. The address and the times differ.
func TestDocsOfRedis(t *testing.T) {
	text, err := os.ReadFile("../../docs/tool.md")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	address, client, _ := startRedis(t)
	require.NoError(t, os.WriteFile("shared.json", []byte(`[{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "100/d"}]`), 0o600))
	store, err := redisstore.New(client)
	require.NoError(t, err)
	_, l, err := loadRules("shared.json", ratelimit.WithStore(store), ratelimit.WithName("shop"),
		ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	for name, cost := range map[string]int{"alice": 100, "bob": 90, "carol": 1} {
		res, err := l.Check(t.Context(), ratelimit.Request{Client: name, Endpoint: "/search", Cost: cost})
		require.NoError(t, err)
		require.True(t, res.Allowed)
	}
	spaces, times := regexp.MustCompile(" +"), regexp.MustCompile(`\d+-\d+-\d+ \d+:\d+(:\d+)?|(\d+h)?(\d+m)?[0-9.]+s`)
	alike := func(text string) string {
		text = strings.ReplaceAll(text, who(), "by anna@host")
		text = strings.ReplaceAll(text, address, "127.0.0.1:6379")
		return spaces.ReplaceAllString(times.ReplaceAllString(text, "TIME"), " ")
	}
	ran := 0
	for _, found := range example.FindAllStringSubmatch(string(text), -1) {
		args := strings.Fields(strings.ReplaceAll(found[1], "127.0.0.1:6379", address))
		if slices.Contains([]string{"top", "reset", "block", "overrides"}, args[0]) {
			got := do(t, args...)
			require.Equal(t, exitOK, got.code, got.err)
			require.Equal(t, alike(found[2]), alike(got.out))
			ran++
		}
	}
	require.Equal(t, 3, ran, fmt.Sprint("of ", address))
}
