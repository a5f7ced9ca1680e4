package main

import (
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHistoriesAreTheSameAgain plays histories of each kind twice, by one worker and by two.
func TestHistoriesAreTheSameAgain(t *testing.T) {
	count := 300
	if testing.Short() || raceEnabled() {
		count = 50
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			var first, again strings.Builder
			run(t, task{[]string{kind}, 0, count, 1, 1}, &first)
			run(t, task{[]string{kind}, 0, count, 1, 2}, &again)
			require.Equal(t, first.String(), again.String())
			require.Equal(t, count, strings.Count(first.String(), "\n"))
		})
	}
}

// raceEnabled reports whether the race detector watches the tests, which then take longer.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// TestHistoriesDiffer checks that histories depend on the kind, the number and the seed.
func TestHistoriesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, kind := range kinds {
		for number := range 5 {
			for seed := range uint64(3) {
				text := transcript(t, kind, number, seed)
				require.NotContains(t, seen, text, "%s %d %d", kind, number, seed)
				seen[text] = kind
			}
		}
	}
}
