package apart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mutant is one fault that is put into the source of a package.
type mutant struct {
	file string // in the repository
	old  string // must occur once in the file
	new  string
	by   string // pattern of the tests that must fail
	why  string // why these tests must fail
}

// mutants lists the mutants of all packages.
var mutants = slices.Concat(grpcMutants, frameworkMutants)

// mutantsSwitch is the variable that asks for the mutants: 1 for all, or such as 2/4 for the second quarter of them.
const mutantsSwitch = "RATELIMIT_MUTANTS"

// top is the path from this package to the root of the repository.
const top = "../../.."

// chosen returns the mutants that the environment asks for, or none.
func chosen(t *testing.T) (some []mutant) {
	text := os.Getenv(mutantsSwitch)
	if text == "" {
		return nil
	}
	part, parts := 1, 1
	if text != "1" {
		n, err := fmt.Sscanf(text, "%d/%d", &part, &parts)
		require.True(t, err == nil && n == 2 && part >= 1 && part <= parts, "%s is %q: must be 1, or such as 2/4", mutantsSwitch, text)
	}
	for i, m := range mutants {
		if i%parts == part-1 {
			some = append(some, m)
		}
	}
	return some
}

// apply returns the source of m's file with m in it.
func (m mutant) apply(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(top, m.file))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), m.old), "%s: the text that %q replaces must occur once in %s:\n%s", m.why, m.new, m.file,
		m.old)
	return strings.Replace(string(text), m.old, m.new, 1)
}

// folder returns the folder of the tests that must fail: that of the table of all frameworks, or that of the file of m.
func (m mutant) folder() string {
	if strings.HasPrefix(m.by, "TestFrameworks") {
		return filepath.Join(top, "internal/verify/frameworks")
	}
	return filepath.Join(top, filepath.Dir(m.file))
}

// run compiles the tests of m with source in place of its file, and runs those that pattern matches. It returns their
// output, and an error if a test fails.
func (m mutant) run(t *testing.T, source, pattern string) (output string, err error) {
	dir := t.TempDir()
	path, err := filepath.Abs(filepath.Join(top, m.file))
	require.NoError(t, err)
	mutated := filepath.Join(dir, filepath.Base(m.file))
	require.NoError(t, os.WriteFile(mutated, []byte(source), 0o600))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
	require.NoError(t, err)
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+overlay, "-o="+binary, ".")
	build.Dir = m.folder()
	built, err := build.CombinedOutput()
	require.NoError(t, err, "each mutant must compile:\n%s", built)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run="+pattern, "-test.failfast", "-test.short", "-test.timeout=60s")
	cmd.Env, cmd.Dir = append(os.Environ(), mutantsSwitch+"="), m.folder()
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), string(out))
	require.NotContains(t, string(out), "no tests to run")
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err, "the tests must have run")
	}
	return string(out), err
}

// TestMutants puts one fault at a time into the source, and requires that the tests find it. It takes a while, so it runs
// only when the environment asks for it.
func TestMutants(t *testing.T) {
	some := chosen(t)
	if some == nil {
		t.Skipf("takes some minutes: set %s=1 to run the %d mutants", mutantsSwitch, len(mutants))
	}
	var killed atomic.Int32
	t.Run("each", func(t *testing.T) {
		tested := make(map[string]bool)
		for _, m := range some {
			if !tested[m.folder()] {
				tested[m.folder()] = true
				t.Run("none in "+filepath.Base(m.folder()), func(t *testing.T) {
					t.Parallel()
					source, err := os.ReadFile(filepath.Join(top, m.file))
					require.NoError(t, err)
					output, err := m.run(t, string(source), ".")
					require.NoError(t, err, "without a mutant the tests must pass:\n%s", output)
				})
			}
			t.Run(m.why, func(t *testing.T) {
				t.Parallel()
				output, err := m.run(t, m.apply(t), m.by)
				if assert.Error(t, err, "%s survived %s\n%s", m.new, m.by, output) {
					killed.Add(1)
				}
			})
		}
	})
	t.Logf("killed %d of %d, of %d in all", killed.Load(), len(some), len(mutants))
}

// TestMutantsApply requires that the text of every mutant still occurs in the source, so that a change of the source
// cannot leave a mutant behind unnoticed.
func TestMutantsApply(t *testing.T) {
	whys := make(map[string]bool)
	for _, m := range mutants {
		require.False(t, whys[m.why], "two mutants have the reason %s", m.why)
		whys[m.why] = true
		require.NotEqual(t, m.old, m.new, m.why)
		m.apply(t)
	}
	require.GreaterOrEqual(t, len(grpcMutants), 106)
	require.GreaterOrEqual(t, len(frameworkMutants), 50)
	t.Logf("%d mutants apply", len(mutants))
}
