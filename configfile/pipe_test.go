package configfile_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// makePipe makes a named pipe that nobody writes to.
func makePipe(t *testing.T, path string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "mkfifo", "-m", "600", path).CombinedOutput()
	require.NoError(t, err, string(out))
}
