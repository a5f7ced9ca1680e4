package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/pgserver"
)

// A database is a PostgreSQL server that belongs to a test.
type database struct {
	dir  string
	port int
	as   *syscall.SysProcAttr // the user that it runs as: PostgreSQL refuses to run as root
	cmd  *exec.Cmd            // nil while it does not run
}

// startPostgres starts a server with an empty database. It ends with the test.
func startPostgres(t testing.TB) *database {
	t.Helper()
	dir, as := pgserver.NewCluster(t)
	s := &database{dir: dir, port: 10_000 + rand.IntN(20_000), as: as}
	t.Cleanup(func() {
		s.kill()
		_ = os.RemoveAll(dir)
	})
	s.run(t)
	return s
}

// run starts s, and returns when it answers.
func (s *database) run(t testing.TB) {
	t.Helper()
	s.cmd = exec.CommandContext(context.Background(), pgserver.Program(t, "postgres"), "-D",
		filepath.Join(s.dir, "data"), "-F", // kill ends it
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
