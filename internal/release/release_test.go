package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clone returns the root of a clone of this repository.
func clone(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "repository")
	require.NoError(t, cloneWorkTree(root))
	return root
}

// TestPack compares what is packed with what git tracks.
func TestPack(t *testing.T) {
	root, proxy := clone(t), t.TempDir()
	modules, err := publishedModules(root)
	require.NoError(t, err)
	tracked, err := git(root, "ls-files")
	require.NoError(t, err)

	var paths []string
	for _, m := range modules {
		paths = append(paths, m.Path)
		require.NoError(t, m.pack(root, proxy))
		dir := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
		list, err := os.ReadFile(filepath.Join(dir, "list"))
		require.NoError(t, err)
		assert.Equal(t, m.Version.Version+"\n", string(list))

		want := []string{m.String() + "/LICENSE"}
		for file := range strings.Lines(tracked) {
			file = strings.TrimSpace(file)
			if moduleOf(root, file) == m.dir && file != "LICENSE" {
				rel, err := filepath.Rel(m.dir, file)
				require.NoError(t, err)
				want = append(want, m.String()+"/"+filepath.ToSlash(rel))
			}
		}
		packed, err := zip.OpenReader(filepath.Join(dir, m.Version.Version+".zip"))
		require.NoError(t, err)
		var got []string
		for _, file := range packed.File {
			got = append(got, file.Name)
		}
		require.NoError(t, packed.Close())
		assert.ElementsMatch(t, want, got)
	}
	assert.Equal(t, []string{rootPath, rootPath + "/cmd/ratelimit", rootPath + "/connectlimit",
		rootPath + "/echolimit", rootPath + "/fiberlimit", rootPath + "/ginlimit", rootPath + "/grpclimit", rootPath + "/otelmetrics",
		rootPath + "/prommetrics", rootPath + "/redisstore"}, paths)
}

// moduleOf returns the folder of the module that file is of.
func moduleOf(root, file string) string {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil {
			return dir
		}
	}
}

// TestVersions has go.mod files that name no version, or two.
func TestVersions(t *testing.T) {
	root := clone(t)
	modules, err := publishedModules(root)
	require.NoError(t, err)
	version := modules[0].Version.Version
	edit := func(file, old, replacement string) {
		file = filepath.Join(root, file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), old)
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o600))
	}
	mods := []string{"redisstore/go.mod", "connectlimit/go.mod",
		"echolimit/go.mod", "fiberlimit/go.mod", "ginlimit/go.mod", "grpclimit/go.mod", "bench/go.mod",
		"cmd/ratelimit/go.mod", "examples/grpc/go.mod",
		"examples/httpserver/go.mod", "examples/llmgateway/go.mod", "examples/recipes/go.mod", "examples/redis/go.mod",
		"internal/verify/go.mod", "otelmetrics/go.mod", "prommetrics/go.mod"}
	edit(mods[0], rootPath+" "+version, rootPath+" v0.0.0")
	_, err = publishedModules(root)
	assert.ErrorContains(t, err, "v0.0.0")
	for _, mod := range mods[1:] {
		edit(mod, rootPath+" "+version, rootPath+" v0.0.0")
	}
	_, err = publishedModules(root)
	assert.EqualError(t, err, "no go.mod file requires a version of "+rootPath)
}

// The files of TestSnippets, and what it writes of them.
const (
	testOfSnippet = `package a_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

func make() int {
		limiter := newLimiter(3)
		return limiter
}

func ExampleMake() {
	fmt.Println(make())
	// Output: 3
}

func TestOther(t *testing.T) { redis.Other(helper()) }
`
	helpersOfSnippet = `package a_test

import "github.com/redis/go-redis/v9"

type limiter struct{}

func (limiter) n(n int) int { return n + redis.Zero }

func newLimiter(n int) int { return limiter{}.n(n) }

func helper() int { return 0 }
`
	neededOfTest = `package a_test

import "fmt"

func make() int {
		limiter := newLimiter(3)
		return limiter
}

func ExampleMake() {
	fmt.Println(make())
	// Output: 3
}
`
	neededOfHelpers = `package a_test

import "github.com/redis/go-redis/v9"

type limiter struct{}

func (limiter) n(n int) int { return n + redis.Zero }

func newLimiter(n int) int { return limiter{}.n(n) }
`
)

// TestSnippets writes only what a snippet needs.
func TestSnippets(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"README.md": "```go\nlimiter := newLimiter(3)\nreturn limiter\n```\n",
		"a.go":      "package a\n\nfunc inside() int {\n\tlimiter := newLimiter(3)\n\treturn limiter\n}\n",
		"a_test.go": testOfSnippet,
		"b_test.go": helpersOfSnippet,
	} {
		require.NoError(t, write(filepath.Join(root, name), []byte(text)))
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}} {
		_, err := git(root, args...)
		require.NoError(t, err)
	}
	require.NoError(t, writeSnippets(root, dir))
	for name, want := range map[string]string{
		"a_test.go": neededOfTest,
		"b_test.go": neededOfHelpers,
	} {
		got, err := os.ReadFile(filepath.Join(dir, "snippets", name))
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}

	require.NoError(t, os.Remove(filepath.Join(root, "a_test.go")))
	_, err := git(root, "add", ".")
	require.NoError(t, err)
	assert.ErrorContains(t, writeSnippets(root, dir), "has these lines:\nlimiter := newLimiter(3)")
}
