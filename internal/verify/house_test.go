package verify

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The bounds on the root package. Lower them when the package gets better.
const (
	maxRootFiles     = 35   // files that are not tests
	maxRootLines     = 8100 // in these files
	maxRootTestFiles = 40
	maxBackArrows    = 27 // in the best order of the files that the search finds

	maxLimiterMethods, maxLimiterFiles   = 60, 15 // of RateLimiter
	maxDecisionMethods, maxDecisionFiles = 20, 3  // of decision
)

// TestRootSize bounds the number of files of the root package, and their lines.
func TestRootSize(t *testing.T) {
	files, tests := rootFiles(t)
	lines := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines += bytes.Count(text, []byte("\n"))
	}
	t.Logf("%d files, %d lines; %d test files", len(files), lines, len(tests))
	assert.LessOrEqual(t, len(files), maxRootFiles, "files")
	assert.LessOrEqual(t, lines, maxRootLines, "lines")
	assert.LessOrEqual(t, len(tests), maxRootTestFiles, "test files")
}

// TestMap fails if CONTRIBUTING.md does not say what a file of the root or of redisstore, or a package in internal, is for.
func TestMap(t *testing.T) {
	text, err := os.ReadFile("../../CONTRIBUTING.md")
	require.NoError(t, err)
	parts := strings.Split(string(text), "\n### ")
	places := map[string]string{"The root\n": "../../*.go", "redisstore\n": "../../redisstore/*.go", "internal\n": "../../internal/*"}
	for _, part := range parts {
		for title, pattern := range places {
			if !strings.HasPrefix(part, title) {
				continue
			}
			delete(places, title)
			paths, err := filepath.Glob(pattern)
			require.NoError(t, err)
			require.Greater(t, len(paths), 10, title)
			for _, path := range paths {
				if name := filepath.Base(path); !strings.HasSuffix(name, "_test.go") && name != "doc.go" {
					assert.Contains(t, part, "`"+name+"`", title)
				}
			}
		}
	}
	assert.Empty(t, places, "parts of CONTRIBUTING.md")
}

// maxFileBytes is the largest size of a file in the repository. A program that go build leaves behind is larger.
const maxFileBytes = 512 << 10

// TestFileSizes bounds the size of each file that git tracks.
func TestFileSizes(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-z").Output()
	require.NoError(t, err)
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	require.Greater(t, len(files), 500)
	for _, path := range files {
		info, err := os.Lstat(filepath.Join("../..", path))
		require.NoError(t, err, path)
		assert.LessOrEqual(t, info.Size(), int64(maxFileBytes), path)
	}
}

// TestRootMethods bounds the methods of the two types of the root package that have the most, and
// the number of files that declare them.
func TestRootMethods(t *testing.T) {
	h := loadHouse(t)
	for _, bound := range []struct {
		typ                  string
		maxMethods, maxFiles int
	}{
		{"RateLimiter", maxLimiterMethods, maxLimiterFiles},
		{"decision", maxDecisionMethods, maxDecisionFiles},
	} {
		obj := h.pkg.Scope().Lookup(bound.typ)
		require.NotNil(t, obj, "type %s", bound.typ)
		named, ok := obj.Type().(*types.Named)
		require.True(t, ok, "type %s", bound.typ)
		in := map[string]int{}
		for m := range named.Methods() {
			in[h.file(m.Pos())]++
		}
		t.Logf("%s: %d methods in %d files: %v", bound.typ, named.NumMethods(), len(in), in)
		assert.LessOrEqual(t, named.NumMethods(), bound.maxMethods, "methods of %s", bound.typ)
		assert.LessOrEqual(t, len(in), bound.maxFiles, "files with methods of %s", bound.typ)
	}
}

// TestRootOrder bounds the arrows between files of the root package that run back. A file has an
// arrow to another if it uses a package-level name or a method which the other declares; fields do
// not count. The test searches the order of the files in which most arrows run from a later file to
// an earlier one. The others run back: each of them is a definition that may be in the wrong file.
// With -v the test prints the order, and each arrow that runs back with the names behind it.
func TestRootOrder(t *testing.T) {
	h := loadHouse(t)
	arrows := h.arrows()
	all := 0
	for _, to := range arrows {
		all += len(to)
	}
	order, back := bestOrder(slices.Sorted(maps.Keys(h.files)), arrows)
	t.Logf("%d files, %d arrows, %d run back in the best order: %s", len(order), all, back, strings.Join(order, " "))
	counted := 0
	for i, from := range order {
		for _, to := range order[i+1:] {
			if names := arrows[from][to]; len(names) > 0 {
				counted++
				t.Logf("back: %s -> %s: %s", from, to, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
			}
		}
	}
	require.Equal(t, back, counted)
	assert.LessOrEqual(t, back, maxBackArrows, "arrows that run back: run this test with -v")
}

// rootFiles returns the paths of the Go files of the root package, and of its test files.
func rootFiles(t *testing.T) (files, tests []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, path := range all {
		if strings.HasSuffix(path, "_test.go") {
			tests = append(tests, path)
		} else {
			files = append(files, path)
		}
	}
	return files, tests
}

// A house is the root package, type-checked without its tests.
type house struct {
	fset  *token.FileSet
	pkg   *types.Package
	files map[string]*ast.File // by base name
	uses  map[*ast.Ident]types.Object
}

// loadHouse type-checks the root package. What it imports is read from the build cache.
func loadHouse(t *testing.T) *house {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", ".")
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}

	h := &house{fset: token.NewFileSet(), files: map[string]*ast.File{}, uses: map[*ast.Ident]types.Object{}}
	var parsed []*ast.File
	paths, _ := rootFiles(t)
	for _, path := range paths {
		file, err := parser.ParseFile(h.fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed = append(parsed, file)
		h.files[filepath.Base(path)] = file
	}
	config := types.Config{Importer: importer.ForCompiler(h.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	h.pkg, err = config.Check("github.com/ratelimit-go/ratelimit", h.fset, parsed, &types.Info{Uses: h.uses})
	require.NoError(t, err)
	return h
}

// file returns the base name of the file that pos is in.
func (h *house) file(pos token.Pos) string {
	return filepath.Base(h.fset.Position(pos).Filename)
}

// arrows returns, for each file and each other file that it uses, the names that it uses.
func (h *house) arrows() map[string]map[string]map[string]bool {
	arrows := map[string]map[string]map[string]bool{}
	for ident, obj := range h.uses {
		name, ok := h.shared(obj)
		from := h.file(ident.Pos())
		if !ok || from == h.file(obj.Pos()) {
			continue
		}
		if arrows[from] == nil {
			arrows[from] = map[string]map[string]bool{}
		}
		to := h.file(obj.Pos())
		if arrows[from][to] == nil {
			arrows[from][to] = map[string]bool{}
		}
		arrows[from][to][name] = true
	}
	return arrows
}

// shared returns how to print obj, and whether it is a package-level name or a method of the package.
func (h *house) shared(obj types.Object) (name string, ok bool) {
	if obj.Pkg() != h.pkg {
		return "", false
	}
	if fn, isFunc := obj.(*types.Func); isFunc {
		if recv := fn.Signature().Recv(); recv != nil {
			typ := recv.Type()
			if p, isPointer := typ.(*types.Pointer); isPointer {
				typ = p.Elem()
			}
			if named, isNamed := typ.(*types.Named); isNamed {
				return named.Obj().Name() + "." + obj.Name(), true
			}
			return obj.Name(), true
		}
	}
	return obj.Name(), obj.Parent() == h.pkg.Scope()
}

// bestOrder returns an order of the files in which few arrows run back, from an earlier file to a
// later one, and how many do. From each of many random orders, it moves one file at a time to its best
// place until no move helps. The seed is fixed, so the result is the same each time.
func bestOrder(files []string, arrows map[string]map[string]map[string]bool) (best []string, back int) {
	const starts = 400
	n := len(files)
	uses := make([][]int, n) // 1 where the file of the row uses that of the column
	for i, from := range files {
		uses[i] = make([]int, n)
		for j, to := range files {
			uses[i][j] = min(len(arrows[from][to]), 1)
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	var places []int
	for start := range starts {
		order := random.Perm(n)
		improve(order, uses)
		if b := countBack(order, uses); start == 0 || b < back {
			places, back = order, b
		}
	}
	for _, i := range places {
		best = append(best, files[i])
	}
	return best, back
}

// countBack returns how many arrows of uses run from an earlier file of order to a later one.
func countBack(order []int, uses [][]int) (back int) {
	for i, from := range order {
		for _, to := range order[i+1:] {
			back += uses[from][to]
		}
	}
	return back
}

// improve moves one file of order after another to the place where the fewest arrows run back, until
// no single move lowers their number.
func improve(order []int, uses [][]int) {
	for changed := true; changed; {
		changed = false
		for _, file := range slices.Sorted(slices.Values(order)) {
			at := slices.Index(order, file)
			others := slices.Delete(slices.Clone(order), at, at+1)
			// delta[p] is how many more arrows run back with file at place p than at place 0.
			delta := make([]int, len(order))
			for p, other := range others {
				delta[p+1] = delta[p] + uses[other][file] - uses[file][other]
			}
			place := slices.Index(delta, slices.MinFunc(delta, cmp.Compare[int]))
			if delta[place] < delta[at] {
				copy(order, slices.Insert(others, place, file))
				changed = true
			}
		}
	}
}
