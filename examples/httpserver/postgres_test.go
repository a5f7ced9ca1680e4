package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A database is a PostgreSQL server that belongs to a test.
type database struct {
	dir  string
	port int
	as   *syscall.SysProcAttr // the user that it runs as: PostgreSQL refuses to run as root
	cmd  *exec.Cmd            // nil while it does not run
}

// postgresProgram returns the path of a program of PostgreSQL. Without it the test is skipped, or fails
// if the environment has RATELIMIT_REQUIRE_POSTGRES=1.
func postgresProgram(t testing.TB, name string) string {
	t.Helper()
	if paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(paths) > 0 {
		return paths[len(paths)-1]
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("RATELIMIT_REQUIRE_POSTGRES") == "1" {
			require.NoError(t, err)
		}
		t.Skipf("no %s on this machine", name)
	}
	return path
}

// startPostgres starts a server with an empty database. It ends with the test.
func startPostgres(t testing.TB) *database {
	t.Helper()
	initdb := postgresProgram(t, "initdb")
	dir, err := os.MkdirTemp("", "httpserver") //nolint:usetesting // the server runs as a user who may not enter the directory of the test
	require.NoError(t, err)
	s := &database{dir: dir, port: 10_000 + rand.IntN(20_000)}
	t.Cleanup(func() {
		s.kill()
		_ = os.RemoveAll(dir)
	})
	if os.Getuid() == 0 {
		other, err := user.Lookup("postgres")
		if err != nil {
			other, err = user.Lookup("nobody")
		}
		require.NoError(t, err)
		uid, err := strconv.Atoi(other.Uid)
		require.NoError(t, err)
		gid, err := strconv.Atoi(other.Gid)
		require.NoError(t, err)
		require.NoError(t, os.Chown(dir, uid, gid))
		s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	cmd := exec.CommandContext(t.Context(), initdb, "-D", filepath.Join(dir, "data"), "-A", "trust", "-U", "postgres",
		"--locale=C", "--no-sync")
	cmd.SysProcAttr, cmd.Dir = s.as, dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.run(t)
	return s
}

// run starts s, and returns when it answers.
func (s *database) run(t testing.TB) {
	t.Helper()
	s.cmd = exec.CommandContext(context.Background(), postgresProgram(t, "postgres"), "-D", filepath.Join(s.dir, "data"), "-F", // kill ends it
		"-c", "listen_addresses=127.0.0.1", "-p", strconv.Itoa(s.port), "-k", s.dir, "-c", "shared_buffers=16MB")
	s.cmd.SysProcAttr, s.cmd.Dir = s.as, s.dir
	require.NoError(t, s.cmd.Start())
	until(t, func() bool {
		conn, err := pgx.Connect(t.Context(), s.url())
		return err == nil && conn.Close(t.Context()) == nil
	})
}

// kill ends s, and all connections to it, if it runs.
func (s *database) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *database) url() string {
	return fmt.Sprintf("postgres://postgres:secret@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

// TestSharedInPostgres has two programs, of two replicas, on one PostgreSQL server. Together they grant
// what one would and, while the server is gone, half of it each.
func TestSharedInPostgres(t *testing.T) {
	srv := startPostgres(t)
	shareServer(t, srv.url(), "1s", func() { srv.kill() }, func() { srv.run(t) })
	conn, err := pgx.Connect(t.Context(), srv.url())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close(t.Context())) }()
	var rows int
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from ratelimit").Scan(&rows))
	assert.Positive(t, rows, "the states are in the database")
}
