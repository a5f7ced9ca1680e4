package grpclimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mutant is one fault that is put into the source of this package.
type mutant struct {
	file string
	old  string // must occur once in the file
	new  string
	by   string // pattern of the tests that must fail
	why  string // why these tests must fail
}

// mutantsSwitch is the variable that asks for the mutants: 1 for all, or such as 2/4 for the second
// quarter of them.
const mutantsSwitch = "RATELIMIT_MUTANTS"

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
	text, err := os.ReadFile(m.file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), m.old), "%s: the text that %q replaces must occur once in %s:\n%s", m.why, m.new, m.file,
		m.old)
	return strings.Replace(string(text), m.old, m.new, 1)
}

// runTests compiles the tests with source in place of file, and runs those that pattern matches.
// It returns their output, and an error if a test fails.
func runTests(t *testing.T, file, source, pattern string) (output string, err error) {
	dir := t.TempDir()
	path, err := filepath.Abs(file)
	require.NoError(t, err)
	mutated := filepath.Join(dir, filepath.Base(file))
	require.NoError(t, os.WriteFile(mutated, []byte(source), 0o600))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutated}})
	require.NoError(t, err)
	overlay, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	built, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+overlay, "-o="+binary,
		".").CombinedOutput()
	require.NoError(t, err, "each mutant must compile:\n%s", built)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run="+pattern, "-test.failfast", "-test.short", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), mutantsSwitch+"=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), string(out))
	require.NotContains(t, string(out), "no tests to run")
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err, "the tests must have run")
	}
	return string(out), err
}

// TestMutants puts one fault at a time into the source, and requires that the tests find it. It
// takes a while, so it runs only when the environment asks for it.
func TestMutants(t *testing.T) {
	some := chosen(t)
	if some == nil {
		t.Skipf("takes some minutes: set %s=1 to run the %d mutants", mutantsSwitch, len(mutants))
	}
	var killed atomic.Int32
	t.Run("each", func(t *testing.T) {
		t.Run("none", func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile("log.go")
			require.NoError(t, err)
			output, err := runTests(t, "log.go", string(source), ".")
			require.NoError(t, err, "without a mutant the tests must pass:\n%s", output)
		})
		for _, m := range some {
			t.Run(m.why, func(t *testing.T) {
				t.Parallel()
				output, err := runTests(t, m.file, m.apply(t), m.by)
				if assert.Error(t, err, "%s survived %s\n%s", m.new, m.by, output) {
					killed.Add(1)
				}
			})
		}
	})
	t.Logf("killed %d of %d, of %d in all", killed.Load(), len(some), len(mutants))
}

// TestMutantsApply requires that the text of every mutant still occurs in the source, so that a
// change of the source cannot leave a mutant behind unnoticed.
func TestMutantsApply(t *testing.T) {
	whys := make(map[string]bool)
	for _, m := range mutants {
		require.False(t, whys[m.why], "two mutants have the reason %s", m.why)
		whys[m.why] = true
		require.NotEqual(t, m.old, m.new, m.why)
		m.apply(t)
	}
	require.GreaterOrEqual(t, len(mutants), 25)
	t.Logf("%d mutants apply", len(mutants))
}
