package ratelimit_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// Other modules draw the pictures of the documentation, and write its tables of counters and the text of
// a scrape, which the tests of prommetrics read.
//go:generate go generate ./cmd/ratelimit ./internal/verify/exporters ./prommetrics

// goFiles calls f for each Go file of all modules.
func goFiles(t *testing.T, f func(path string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".go" {
			f(path)
		}
		return err
	}))
}

// TestFileLength fails if a file other than a test has more than 450 lines.
func TestFileLength(t *testing.T) {
	goFiles(t, func(path string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := bytes.Count(text, []byte("\n"))
		if !strings.HasSuffix(path, "_test.go") {
			assert.LessOrEqual(t, lines, 450, path)
		}
	})
}

// TestDocumented proves that every exported name, field and method has a comment.
func TestDocumented(t *testing.T) {
	packages := map[string][]*ast.File{}
	fset := token.NewFileSet()
	goFiles(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		require.NoError(t, err)
		dir := filepath.Dir(path)
		packages[dir] = append(packages[dir], file)
	})
	names := 0
	for dir, files := range packages {
		for _, file := range files {
			for _, field := range exportedFields(file) {
				names++
				assert.True(t, field.Doc != nil || field.Comment != nil, "%s: a field has no comment", fset.Position(field.Pos()))
			}
		}
		pkg, err := doc.NewFromFiles(fset, files, module+"/"+dir)
		require.NoError(t, err)
		assert.NotEmpty(t, pkg.Doc, "%s: the package has no comment", dir)
		check := func(name, comment string) {
			names++
			assert.NotEmpty(t, comment, "%s: %s has no comment", dir, name)
		}
		groups := [][]*doc.Value{pkg.Consts, pkg.Vars}
		funcs := [][]*doc.Func{pkg.Funcs}
		for _, typ := range pkg.Types {
			check(typ.Name, typ.Doc)
			groups = append(groups, typ.Consts, typ.Vars)
			funcs = append(funcs, typ.Funcs, typ.Methods)
		}
		for _, group := range groups {
			for _, v := range group {
				check(strings.Join(v.Names, ", "), v.Doc)
			}
		}
		for _, group := range funcs {
			for _, f := range group {
				check(f.Name, f.Doc)
			}
		}
	}
	assert.Greater(t, names, 80, "the walk has found the exported names")
}

// exportedFields returns the exported fields of the exported structs in file, and
// the methods of its exported interfaces.
func exportedFields(file *ast.File) (fields []*ast.Field) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		var list *ast.FieldList
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			list = typ.Fields
		case *ast.InterfaceType:
			list = typ.Methods
		default:
			return true
		}
		for _, field := range list.List {
			for _, name := range field.Names {
				if name.IsExported() {
					fields = append(fields, field)
					break
				}
			}
		}
		return true
	})
	return fields
}

// newHandler returns the service that the README shows.
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

// A token bucket grants its burst at once, and says how long to wait for the next request.
func Example() {
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerHour(60).WithBurst(3))
	if err != nil {
		panic(err)
	}
	for range 4 {
		res := limiter.Allow("alice")
		fmt.Println(res.Allowed, res.Remaining, res.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 1m0s
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

// TestReadmeSnippets proves that each Go snippet of the documents stands, line by line, in a Go
// file, where it is compiled and tested.
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

// flat returns text without the white space at both ends of each line.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteByte('\n')
		b.WriteString(strings.TrimSpace(line))
	}
	return b.String()
}
