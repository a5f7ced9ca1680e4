//go:build unix

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompletion lets bash complete a command and a flag by the script, and has the other scripts read by their shells where
// these are installed.
func TestCompletion(t *testing.T) {
	script := runIn(t, nil, "completion", "bash")
	require.Equal(t, exitOK, script.code)
	for words, want := range map[string]string{
		"ratelimit re": "replay reset", "ratelimit replay -max": "-max-denied -max-keys", "ratelimit top -eve": "-every",
		"ratelimit validate lim": "",
	} {
		list := strings.Fields(words)
		ask := script.out +
			"\nCOMP_WORDS=(" + words + ")\nCOMP_CWORD=" + string(rune('0'+len(list)-1)) + "\n_ratelimit\necho \"${COMPREPLY[*]}\"\n"
		out, err := exec.CommandContext(t.Context(), "bash", "-c", ask).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, want, strings.TrimSpace(string(out)), words)
	}
	for _, shell := range []string{"zsh", "fish"} {
		got := runIn(t, nil, "completion", shell)
		require.Equal(t, exitOK, got.code)
		require.Contains(t, got.out, "max-denied")
		if _, err := exec.LookPath(shell); err == nil {
			require.NoError(t, exec.CommandContext(t.Context(), shell, "-n", "-c", got.out).Run())
		}
	}
	require.Contains(t, runIn(t, nil, "completion", "tcsh").err, `no shell "tcsh": must be bash, zsh or fish`)
	require.Contains(t, runIn(t, nil, "completion").err, "an argument is missing: the shell")
}
