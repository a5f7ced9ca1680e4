package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// newHandler is the service of the README.
func newHandler() (http.Handler, error) {
	limiter, err := newLimiter()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clientID := r.Header.Get("X-User")
		res := limiter.Allow(clientID, r.URL.Path)
		if !res.Allowed {
			if s, ok := res.RetryAfterSeconds(); ok {
				w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
			}
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}), nil
}

func newLimiter() (l *ratelimit.RateLimiter, err error) {
	return l, makeLimiter(&l)
}

func makeLimiter(l **ratelimit.RateLimiter) error {
	limiter, err := ratelimit.NewFromConfig([]map[string]any{
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": map[string]any{"capacity": 20, "refillRatePerSecond": 0.5}},
		{"endpoint": "/login", "algorithm": "SlidingWindowLog", "algoConfig": map[string]any{"maxRequests": 3, "windowSeconds": 60}},
	}, nil)
	if err != nil {
		return err
	}
	*l = limiter
	return nil
}

func makeAlone(l **ratelimit.TokenBucket) error {
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(100).WithBurst(20))
	if err != nil {
		return err
	}
	*l = limiter
	return nil
}

func TestReadmeAlone(t *testing.T) {
	var l *ratelimit.TokenBucket
	require.NoError(t, makeAlone(&l))
	assert.Equal(t, 19, l.Allow("alice").Remaining)
}

func TestReadmeService(t *testing.T) {
	handler, err := newHandler()
	require.NoError(t, err)
	ask := func(user string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/search", nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	codes := map[int]int{}
	var denied *httptest.ResponseRecorder
	for range 60 { // 20 at once; 40 more take 80 s to earn
		w := ask("alice")
		codes[w.Code]++
		if w.Code == http.StatusTooManyRequests {
			denied = w
		}
	}
	require.GreaterOrEqual(t, codes[http.StatusNoContent], 20)
	require.NotNil(t, denied)
	assert.Contains(t, []string{"1", "2"}, denied.Header().Get("Retry-After"), "at most 2 s")
	assert.Equal(t, http.StatusNoContent, ask("bob").Code)
}

// TestReadmeSnippets finds each Go snippet of the documents in a Go file, line by
// line, so that what is shown is what is compiled and run.
func TestReadmeSnippets(t *testing.T) {
	var code []string
	goFiles(t, func(path string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		code = append(code, flat(string(text)))
	})
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, docs)
	for _, doc := range append(docs, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		snippets := strings.Split(string(text), "```go\n")[1:]
		if doc == "README.md" {
			require.NotEmpty(t, snippets)
		}
		for _, snippet := range snippets {
			snippet, _, _ = strings.Cut(snippet, "```")
			for _, pair := range []string{"()", "[]", "{}"} {
				assert.Equal(t, strings.Count(snippet, pair[:1]), strings.Count(snippet, pair[1:]), "%s: a snippet is whole:\n%s", doc, snippet)
			}
			found := false
			for _, file := range code {
				found = found || strings.Contains(file, flat(snippet))
			}
			assert.True(t, found, "%s: no Go file has these lines:\n%s", doc, snippet)
		}
	}
}

// flat returns text without the white space around its lines.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteByte('\n')
		b.WriteString(strings.TrimSpace(line))
	}
	return b.String()
}
