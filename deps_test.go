package ratelimit_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/ratelimit-go/ratelimit"

// TestDependencies keeps everything but the standard library out of what a user
// of the root package, or of the conformance kit, builds.
func TestDependencies(t *testing.T) {
	for _, pkg := range []string{".", "./ratelimittest"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg)
		cmd.Env = append(cmd.Environ(), "GOWORK=off")
		out, err := cmd.Output()
		require.NoError(t, err)
		deps := strings.Fields(string(out))
		require.Contains(t, deps, module)
		for _, dep := range deps {
			assert.True(t, dep == module || strings.HasPrefix(dep, module+"/"), "%s imports %s", pkg, dep)
		}
	}
}
