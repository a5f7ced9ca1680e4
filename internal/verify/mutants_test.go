package verify

import (
	"cmp"
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A mutant is one fault that is put into the source of the parent module.
type mutant struct {
	name string
	file string // path from the root of the repository
	old  string // must occur once in the file
	new  string
	by   string // pattern of the tests that must fail
	why  string // why these tests must fail

	// timeout is how long the tests may take with a mutant that makes them hang.
	timeout string
}

// runTests runs the tests of binary that pattern matches, with the mutant of this name
// active and with the fewest schedules that find every mutant. It returns their output, and
// an error if a test fails.
func runTests(t *testing.T, binary, pattern, name, timeout string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run="+pattern, "-test.failfast", "-test.short", "-test.timeout="+timeout,
		"-rapid.checks=2500", "-rapid.seed=1", "-rapid.shrinktime=0s", "-rapid.nofailfile")
	cmd.Env = append(os.Environ(), mutantsSwitch+"=", mutantName+"="+name)
	out, err := cmd.CombinedOutput()
	output = string(out)
	require.NoError(t, ctx.Err(), output)
	require.NotContains(t, output, "no tests to run")
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError), "it must have run")
	}
	return output, err
}

// tests returns a pattern of all tests that must find a mutant.
func tests() string {
	names := make(map[string]bool)
	for _, m := range mutants() {
		name, _, _ := strings.Cut(m.by, "/")
		names[name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "|")
}

const mutantsSwitch = "RATELIMIT_MUTANTS"

// maxRuns is how often the tests may look for one mutant. A test whose goroutines meet by
// chance can miss a fault once; the log then names the test, which is to be mended.
const maxRuns = 3

// TestMutants puts one fault at a time into the source, and requires that the tests find
// it. It takes a while, so it runs only when the environment asks for it.
func TestMutants(t *testing.T) {
	if os.Getenv(mutantsSwitch) != "1" {
		t.Skipf("takes half a minute: set %s=1 to run the %d mutants", mutantsSwitch, len(mutants()))
	}
	begun := time.Now()
	all := mutants()
	binary := buildMutants(t, all)
	var killed atomic.Int32
	t.Run("each", func(t *testing.T) {
		t.Run("none", func(t *testing.T) {
			t.Parallel()
			output, err := runTests(t, binary, tests(), "", "450s")
			require.NoError(t, err, "without a mutant the tests must pass:\n%s", output)
		})
		for _, m := range all {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				output, err := runTests(t, binary, m.by, m.name, cmp.Or(m.timeout, "100s"))
				for run := 2; err == nil && run <= maxRuns; run++ {
					t.Logf("not found by run %d of %s", run-1, m.by)
					output, err = runTests(t, binary, m.by, m.name, cmp.Or(m.timeout, "100s"))
				}
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

// TestMutantsApply requires that the text of every mutant still occurs in the source, so
// that a change of the source cannot leave a mutant behind unnoticed.
func TestMutantsApply(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range mutants() {
		require.False(t, names[m.name], "two mutants are called %s", m.name)
		names[m.name] = true
		require.NotEqual(t, m.old, m.new, m.name)
		require.NotEmpty(t, m.why, m.name)
	}
	for path, some := range byFile(mutants()) {
		withMutants(t, path, some)
	}
	require.GreaterOrEqual(t, len(names), 20)
	t.Logf("%d mutants apply", len(names))
}

// mutants returns all mutants.
func mutants() (all []mutant) {
	for _, some := range [][]mutant{
		reserveMutants, bucketMutants, windowMutants, decisionMutants, tableMutants, rulesMutants, ratesMutants, partsMutants, settleMutants, tokenMutants,
		mutantsOfTime, operateMutants, apiMutants, receiptMutants, matchMutants, configMutants, fileMutants, bytesMutants, waitMutants, retryMutants, warmupMutants, explainMutants, httpMutants, transportMutants,
		countMutants, stepMutants, httpMoreMutants, httpExemptMutants, unitsMutants, calendarMutants, dialMutants, databaseMutants,
	} {
		all = append(all, some...)
	}
	return all
}
