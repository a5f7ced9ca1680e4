package pgserver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listens reports whether something listens at the port of s.
func listens(t *testing.T, s *Server) bool {
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
	return err == nil && conn.Close() == nil
}

// TestServer ends a server in each of the two ways, and starts it anew.
func TestServer(t *testing.T) {
	s := Start(t, "fsync=off", "shared_buffers=16MB")
	assert.True(t, listens(t, s))
	s.Stop()
	assert.False(t, listens(t, s))
	s.Stop() // does nothing
	require.NoError(t, s.Run(t.Context()))
	assert.True(t, listens(t, s))
	s.Kill()
	assert.False(t, listens(t, s))
	for range 5 { // fails where a child of the process that was killed still has the files
		require.NoError(t, s.Run(t.Context()))
		s.Kill()
	}

	// The file that says "ready" is still there, but with the number of another process.
	pid := filepath.Join(s.data(), "postmaster.pid")
	require.FileExists(t, pid)
	s.Process = &os.Process{Pid: os.Getpid()}
	assert.False(t, s.ready())
	s.Process = nil
	require.NoError(t, s.Close())
	assert.NoDirExists(t, s.Dir)
}

// TestServerDoesNotStart has the error of the server, and no process stays behind.
func TestServerDoesNotStart(t *testing.T) {
	Program(t, "postgres")
	s, err := New(t.Context(), "no_such_setting=1")
	require.NoError(t, err)
	assert.ErrorContains(t, s.Run(t.Context()), `unrecognized configuration parameter "no_such_setting"`)
	assert.Nil(t, s.Process)

	s.Settings = nil
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, s.Run(ended), context.Canceled)
	assert.Nil(t, s.Process)
	require.NoError(t, s.Close())

	t.Setenv("TMPDIR", t.TempDir())
	_, err = New(ended)
	assert.ErrorIs(t, err, context.Canceled)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left, "the folder of a server that could not be made")
}

// TestNone tells a machine without PostgreSQL from one that must have it.
func TestNone(t *testing.T) {
	folders := Folders
	defer func() { Folders = folders }()
	Folders = filepath.Join(t.TempDir(), "*")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("RATELIMIT_REQUIRE_POSTGRES", "")
	_, err := New(t.Context())
	require.ErrorIs(t, err, ErrNone)
	assert.ErrorContains(t, err, "no initdb")
	t.Run("skipped", func(t *testing.T) {
		Start(t)
		t.Error("not skipped")
	})

	t.Setenv("RATELIMIT_REQUIRE_POSTGRES", "1")
	_, err = New(t.Context())
	assert.EqualError(t, err, "pgserver: RATELIMIT_REQUIRE_POSTGRES is set, and there is no initdb")
	assert.NotErrorIs(t, err, ErrNone)
}

// TestFind takes the newest version.
func TestFind(t *testing.T) {
	folders := Folders
	defer func() { Folders = folders }()
	dir := t.TempDir()
	Folders = filepath.Join(dir, "*", "bin")
	for _, version := range []string{"14", "9.6", "17", "15"} {
		bin := filepath.Join(dir, version, "bin")
		require.NoError(t, os.MkdirAll(bin, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(bin, "initdb"), nil, 0o755))
	}
	path, err := Find("initdb")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "17", "bin", "initdb"), path)
}
