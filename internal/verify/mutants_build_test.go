package verify

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the root of the repository.
const root = "../.."

// mutantName is the environment variable that tells the binary of buildMutants which mutant
// to be.
const mutantName = "RATELIMIT_MUTANT"

// mutantFile is a file that is added to each package with mutants.
const mutantFile = `package %s

import "os"

var activeMutant = os.Getenv(%q)
`

// buildMutants compiles the tests once, with all mutants behind switches, and returns the
// binary. One compilation takes far longer than it takes to find one mutant.
func buildMutants(t *testing.T, all []mutant) (binary string) {
	dir := t.TempDir()
	replace := make(map[string]string)
	write := func(path, text string) {
		path, err := filepath.Abs(filepath.Join(root, path))
		require.NoError(t, err)
		if replace[path] == "" {
			replace[path] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		}
		require.NoError(t, os.WriteFile(replace[path], []byte(text), 0o600))
	}
	for path, some := range byFile(all) {
		source, pkg := withMutants(t, path, some)
		write(path, source)
		write(filepath.Join(filepath.Dir(path), "activemutant.go"), fmt.Sprintf(mutantFile, pkg, mutantName))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	binary = filepath.Join(dir, "mutants.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o="+binary, ".").CombinedOutput()
	require.NoError(t, err, "each mutant must compile:\n%s", out)
	return binary
}

// byFile returns the mutants of each file.
func byFile(all []mutant) map[string][]mutant {
	files := make(map[string][]mutant)
	for _, m := range all {
		files[m.file] = append(files[m.file], m)
	}
	return files
}

// withMutants returns the source of the file at path, with mutants, and its package. At the
// beginning of each function that a mutant of some changes, it inserts the changed body of
// that mutant, which runs if the mutant is active.
func withMutants(t *testing.T, path string, some []mutant) (source, pkg string) {
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	bodies := make(map[int]string) // text to insert, by place
	for _, m := range some {
		at, body := m.body(t, string(text), fset, file)
		bodies[at] += fmt.Sprintf("\nif activeMutant == %q {%s}\n", m.name, body)
	}
	var b strings.Builder
	for at := range text {
		b.WriteString(bodies[at])
		b.WriteByte(text[at])
	}
	return b.String(), file.Name.Name
}

// body returns where the body begins of the function that m changes, in the source of m's
// file, and the body that m makes of it. A mutant may change nothing outside of that body.
func (m mutant) body(t *testing.T, source string, fset *token.FileSet, file *ast.File) (at int, body string) {
	require.Equal(t, 1, strings.Count(source, m.old), "%s: what it replaces must occur once in %s:\n%s", m.name, m.file, m.old)
	end := strings.Index(source, m.old) + len(m.old)
	mutated := strings.Replace(source, m.old, m.new, 1)
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil || fset.Position(f.Body.Rbrace).Offset < end {
			continue
		}
		from, to := fset.Position(f.Body.Lbrace).Offset+1, fset.Position(f.Body.Rbrace).Offset
		to += len(m.new) - len(m.old)
		if !strings.HasPrefix(mutated, source[:from]) {
			break
		}
		body = mutated[from:to]
		if f.Type.Results == nil {
			body += "\nreturn\n" // a function with results ends with its own return
		}
		return from, body
	}
	require.Fail(t, "it changes something beside the body of a function", m.name)
	return 0, ""
}
