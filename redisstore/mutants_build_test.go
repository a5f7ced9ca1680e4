package redisstore_test

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

// mutantName is the environment variable that tells the binary of buildMutants which mutant
// to be.
const mutantName = "RATELIMIT_MUTANT"

// mutantFile is a file that is added to the package. It has a case for each mutant of a
// script, which changes the text of the script.
const mutantFile = `package redisstore

import (
	"os"
	"strings"
)

var activeMutant = os.Getenv(%q)

func mutated(text string) string {
	switch activeMutant {
%s	}
	return text
}
`

// newScript is the head of the function that makes every script.
const newScript = "func newScript(text string) *script {"

// buildMutants compiles the tests once, with all mutants behind switches, and returns the
// binary. One compilation takes longer than it takes to find one mutant.
func buildMutants(t *testing.T, all []mutant) (binary string) {
	dir := t.TempDir()
	replace := make(map[string]string)
	for name, text := range mutatedFiles(t, all) {
		path, err := filepath.Abs(name)
		require.NoError(t, err)
		replace[path] = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(replace[path], []byte(text), 0o600))
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

// mutatedFiles returns the Go files that contain the mutants, by name.
func mutatedFiles(t *testing.T, all []mutant) map[string]string {
	bodies := make(map[string]map[int]string) // text to insert, by file and place
	sources := make(map[string]string)
	var scripts strings.Builder
	for _, m := range all {
		text, err := os.ReadFile(m.file)
		require.NoError(t, err)
		source := string(text)
		require.Equal(t, 1, strings.Count(source, m.old), "%s: the text that it replaces must occur once in %s:\n%s", m.name, m.file, m.old)
		if strings.HasSuffix(m.file, ".lua") {
			changed := strings.Replace(source, m.old, m.new, 1)
			fmt.Fprintf(&scripts, "\tcase %q:\n\t\treturn strings.Replace(text, %q, %q, 1)\n", m.name, source, changed)
			continue
		}
		if sources[m.file] == "" {
			sources[m.file], bodies[m.file] = source, make(map[int]string)
		}
		at, body := m.body(t, source)
		bodies[m.file][at] += fmt.Sprintf("\nif activeMutant == %q {%s}\n", m.name, body)
	}
	for name, source := range sources {
		var b strings.Builder
		for at := range len(source) {
			b.WriteString(bodies[name][at])
			b.WriteByte(source[at])
		}
		sources[name] = b.String()
	}
	require.Equal(t, 1, strings.Count(sources["script.go"], newScript))
	sources["script.go"] = strings.Replace(sources["script.go"], newScript, newScript+"\ntext = mutated(text)", 1)
	sources["activemutant.go"] = fmt.Sprintf(mutantFile, mutantName, &scripts)
	return sources
}

// body returns where the body begins of the function that m changes, in the source of m's
// file, and the body that m makes of it. A mutant may change nothing outside of that body.
func (m mutant) body(t *testing.T, source string) (at int, body string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, m.file, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	begin := strings.Index(source, m.old)
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		from, to := fset.Position(f.Body.Lbrace).Offset+1, fset.Position(f.Body.Rbrace).Offset
		if begin < from || begin+len(m.old) > to {
			continue
		}
		body = strings.Replace(source[from:to], m.old, m.new, 1)
		if f.Type.Results == nil {
			body += "\nreturn\n" // a function with results ends with its own return
		}
		return from, body
	}
	require.Fail(t, "the mutant changes something outside of the body of a function", m.name)
	return 0, ""
}
