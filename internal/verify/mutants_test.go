package verify

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A mutant is one fault that is put into the parent module's source.
type mutant struct {
	name string
	file string // from the root of the repository
	old  string // occurs once in the file
	new  string
	by   string // the tests that must fail, as a pattern
	why  string // they must

	// timeout is how long the tests may take, of a mutant that makes them hang.
	timeout string
}

// root is the root of the repository.
const root = "../.."

// mutated returns the source of m's file with the fault in it.
func (m mutant) mutated(t *testing.T) string {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), m.old), "%s: what it replaces must occur once in %s:\n%s", m.name, m.file, m.old)
	return strings.Replace(string(source), m.old, m.new, 1)
}

// overlay writes the file that makes the go command see m in place of the source.
func (m mutant) overlay(t *testing.T) string {
	dir := t.TempDir()
	file, err := filepath.Abs(filepath.Join(root, m.file))
	require.NoError(t, err)
	changed := filepath.Join(dir, filepath.Base(m.file))
	require.NoError(t, os.WriteFile(changed, []byte(m.mutated(t)), 0o600))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	require.NoError(t, err)
	path := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// goTest runs the tests that pattern matches, in the fewest schedules that find
// every mutant, and returns what they print, and an error if one fails.
func goTest(t *testing.T, pattern string, flags ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	args := append([]string{"test", "-vet=off", "-count=1", "-failfast", "-short", "-timeout=100s"}, flags...)
	args = append(args, "-run="+pattern, ".", "-rapid.checks=2500", "-rapid.seed=1", "-rapid.shrinktime=0s", "-rapid.nofailfile")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), mutantsSwitch+"=")
	out, err := cmd.CombinedOutput()
	output = string(out)
	require.NoError(t, ctx.Err(), output)
	require.NotContains(t, output, "[build failed]", "a mutant must compile")
	require.NotContains(t, output, "[setup failed]")
	require.NotContains(t, output, "no tests to run")
	return output, err
}

// tests returns the pattern of all tests that find a mutant.
func tests() string {
	names := make(map[string]bool)
	for _, m := range mutants() {
		name, _, _ := strings.Cut(m.by, "/")
		names[name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "|")
}

const mutantsSwitch = "RATELIMIT_MUTANTS"

// TestMutants puts one fault at a time into the source and requires that the tests
// find it. It compiles the module once for each, so it only runs when told to.
func TestMutants(t *testing.T) {
	if os.Getenv(mutantsSwitch) != "1" {
		t.Skipf("takes minutes: set %s=1 to run the %d mutants", mutantsSwitch, len(mutants()))
	}
	output, err := goTest(t, tests())
	require.NoError(t, err, "without a mutant the tests must pass:\n%s", output)
	begun := time.Now()
	var killed atomic.Int32
	all := mutants()
	t.Run("each", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				flags := []string{"-overlay=" + m.overlay(t)}
				if m.timeout != "" {
					flags = append(flags, "-timeout="+m.timeout)
				}
				output, err := goTest(t, m.by, flags...)
				if err == nil {
					t.Errorf("survived %s, although %s\n%s", m.by, m.why, output)
					return
				}
				killed.Add(1)
			})
		}
	})
	t.Logf("killed %d of %d in %v", killed.Load(), len(all), time.Since(begun).Round(time.Second))
	require.EqualValues(t, len(all), killed.Load())
}

// TestMutantsApply requires that every mutant still has its place in the source, so
// that none is left behind unnoticed when the source changes.
func TestMutantsApply(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range mutants() {
		require.False(t, names[m.name], "two mutants are called %s", m.name)
		names[m.name] = true
		require.NotEqual(t, m.old, m.new, m.name)
		require.NotEmpty(t, m.why, m.name)
		m.mutated(t)
	}
	require.GreaterOrEqual(t, len(names), 20)
	t.Logf("%d mutants apply", len(names))
}

// mutants returns all mutants.
func mutants() (all []mutant) {
	for _, some := range [][]mutant{bucketMutants, windowMutants, decisionMutants, tableMutants, rulesMutants, ratesMutants} {
		all = append(all, some...)
	}
	return all
}
