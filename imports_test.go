package ratelimit_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/ratelimit-go/ratelimit"

// mayImport says which packages of this module each package of it may import, beside the
// standard library. "." is the root. Imports run one way, and nothing internal knows a
// type of the root.
var mayImport = map[string][]string{
	".": {
		"internal/books", "internal/breaker", "internal/calendar", "internal/confmap", "internal/costs", "internal/counters", "internal/engine",
		"internal/exact", "internal/explained", "internal/handclock", "internal/hooks", "internal/keyspec", "internal/keytable", "internal/match",
		"internal/mirror", "internal/override", "internal/packed", "internal/penalty", "internal/ratetext", "internal/replay",
		"internal/ruleconfig", "internal/sample", "internal/storecall", "internal/waitline",
	},
	"internal/engine":     {"internal/calendar", "internal/exact", "internal/keytable", "internal/packed", "internal/penalty"},
	"internal/exact":      {"internal/keytable", "internal/packed"},
	"internal/books":      {"internal/engine"},
	"internal/packed":     {},
	"internal/waitline":   {"internal/engine", "internal/keytable"},
	"internal/replay":     {"internal/engine", "internal/keytable"},
	"internal/storecall":  {"internal/backlog", "internal/breaker", "internal/keytable"},
	"internal/backlog":    {"internal/keytable"},
	"internal/breaker":    {"internal/keytable"},
	"internal/calendar":   {"internal/confmap"},
	"internal/keytable":   {},
	"internal/keyspec":    {"internal/keytable"},
	"internal/match":      {},
	"internal/mirror":     {},
	"internal/confmap":    {},
	"internal/connection": {},
	"internal/costs":      {},
	"internal/counters":   {"internal/keytable"},
	"internal/handclock":  {},
	"internal/pgserver":   {},
	"internal/hooks":      {},
	"internal/running":    {},
	"internal/sample":     {},
	"internal/ratetext":   {"internal/calendar", "internal/confmap"},
	"internal/ratefield":  {},
	"internal/explained":  {"internal/confmap", "internal/ratetext"},
	"internal/override":   {"internal/confmap", "internal/keyspec", "internal/keytable", "internal/ratetext"},
	"internal/penalty":    {"internal/keytable", "internal/packed"},
	"internal/ruleconfig": {"internal/calendar", "internal/confmap", "internal/exact", "internal/keyspec", "internal/ratetext"},

	"configfile": {".", "internal/confmap", "internal/ruleconfig"},
	"configread": {".", "internal/ruleconfig"},
	"dbstore": {
		".", "internal/books", "internal/engine", "internal/keytable", "internal/packed", "internal/penalty", "internal/ruleconfig",
	},
	"dbstore/dbstoretest": {".", "dbstore"},
	"ratelimittest":       {"."},
	"httplimit": {
		".", "internal/calendar", "internal/connection", "internal/engine", "internal/keytable", "internal/override", "internal/ratefield",
		"internal/running",
	},
	"iolimit":             {"."},
	"examples/quickstart": {"."},
}

// TestImports compares what each package of the module imports, tests aside, with mayImport.
func TestImports(t *testing.T) {
	listed := goList(t, `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...")
	require.NotEmpty(t, listed)
	for pkg, allowed := range mayImport {
		if strings.HasPrefix(pkg, "internal/") {
			assert.NotContains(t, allowed, ".", "package %s is internal: the root gives it what it needs", pkg)
		}
	}
	var found []string
	for _, line := range listed {
		paths := strings.Fields(line)
		pkg := inModule(paths[0])
		found = append(found, pkg)
		allowed, known := mayImport[pkg]
		if !assert.True(t, known, "package %s is not in mayImport: say whom it may import", pkg) {
			continue
		}
		for _, path := range paths[1:] {
			if host, _, _ := strings.Cut(path, "/"); !strings.Contains(host, ".") {
				continue // a package of the standard library
			}
			assert.True(t, slices.Contains(allowed, inModule(path)), "package %s may not import %s", pkg, path)
		}
	}
	for pkg := range mayImport {
		assert.Contains(t, found, pkg, "mayImport has a package that does not exist")
	}
}

// inModule returns path as mayImport writes it. It leaves the path of a package of another module
// as it is.
func inModule(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// TestDependencies proves that the root package and the packages for users beside it
// depend on the standard library alone.
func TestDependencies(t *testing.T) {
	for _, pkg := range []string{
		".", "./configfile", "./configread", "./dbstore", "./dbstore/dbstoretest", "./httplimit", "./iolimit", "./ratelimittest",
	} {
		deps := goList(t, "{{if not .Standard}}{{.ImportPath}}{{end}}", "-deps", pkg)
		require.Contains(t, deps, module)
		for _, dep := range deps {
			assert.True(t, dep == module || strings.HasPrefix(dep, module+"/"), "%s imports %s", pkg, dep)
		}
	}
}

// goList returns the lines that go list prints for packages of this module, outside the workspace.
func goList(t *testing.T, format string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", format}, args...)...)
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}
