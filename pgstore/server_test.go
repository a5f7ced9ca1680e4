package pgstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/internal/pgserver"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

// TestMain stops the server that the tests share, and fails if a goroutine is left at the end. In a process that TestStoppedProcess has
// started it only runs a load.
func TestMain(m *testing.M) {
	if url := os.Getenv("PGSTORE_CHILD_URL"); url != "" {
		if err := child(url, os.Getenv("PGSTORE_CHILD_TABLE")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if shared != nil {
		shared.kill()
		_ = os.RemoveAll(shared.dir)
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A server is a PostgreSQL server that belongs to the tests.
type server struct {
	dir  string
	port int
	as   *syscall.SysProcAttr // the user that it runs as: PostgreSQL refuses to run as root
	args []string
	cmd  *exec.Cmd
}

// start starts a server with a new, empty cluster. The settings are those of postgresql.conf.
func start(t testing.TB, settings ...string) *server {
	t.Helper()
	s := new(server)
	s.dir, s.as = pgserver.NewCluster(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.port = listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	for _, set := range append([]string{"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(s.port), "unix_socket_directories=" + s.dir,
		"max_connections=200", "shared_buffers=64MB"}, settings...) {
		s.args = append(s.args, "-c", set)
	}
	s.run(t)
	return s
}

// own starts a server for a single test.
func own(t *testing.T, settings ...string) *server {
	t.Helper()
	s := start(t, settings...)
	t.Cleanup(func() {
		s.kill()
		_ = os.RemoveAll(s.dir)
	})
	return s
}

// run starts the process of s, and waits until it answers.
func (s *server) run(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	args := append([]string{"-D", filepath.Join(s.dir, "data")}, s.args...)
	s.cmd = exec.CommandContext(context.Background(), pgserver.Program(t, "postgres"), args...)
	s.cmd.SysProcAttr, s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.as, s.dir, log, log
	require.NoError(t, s.cmd.Start())
	require.NoError(t, log.Close())
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(context.Background(), s.url())
		if err != nil {
			return false
		}
		return conn.Close(context.Background()) == nil
	}, time.Minute, 20*time.Millisecond)
}

// kill ends all processes of s at once, as a crash does.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	// If the postmaster is killed, its children end by themselves as soon as they notice.
	_ = s.cmd.Process.Kill()
	_, _ = s.cmd.Process.Wait()
	s.cmd = nil
	for range 500 {
		if _, err := os.Stat(filepath.Join(s.dir, "data", "postmaster.pid")); err != nil {
			break
		}
		if !s.alive() {
			_ = os.Remove(filepath.Join(s.dir, "data", "postmaster.pid"))
			break
		}
		<-time.After(10 * time.Millisecond)
	}
}

// alive reports whether a process has a file of the cluster open: whether a child of the server still runs.
func (s *server) alive() bool {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == filepath.Join(s.dir, "data") {
			return true
		}
	}
	return false
}

func (s *server) url() string {
	return fmt.Sprintf("postgres://postgres:secret@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

var (
	shared *server
	once   sync.Once
)

// sharedServer returns the server that most tests share.
func sharedServer(t testing.TB) *server {
	t.Helper()
	pgserver.Program(t, "postgres")
	once.Do(func() { shared = start(t, "fsync=off") })
	require.NotNil(t, shared, "the server did not start")
	return shared
}

// pool returns a pool of n connections to the server at the given URL. The function change may change its settings.
func poolOf(t testing.TB, url string, n int, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = int32(n)
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// slowMachine is the time limit of the Stores that newStore makes without another. It is fifteen times the default, so that a busy
// machine fails no test, and short enough for tests in which the server does not answer.
const slowMachine = 3 * time.Second

func newStore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.Store {
	t.Helper()
	opts = append([]pgstore.Option{pgstore.WithStoreOptions(dbstore.WithTimeout(slowMachine))}, opts...)
	s, err := pgstore.New(t.Context(), pool, opts...)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// table returns the name of a table that no other test uses.
func table(t testing.TB) string {
	t.Helper()
	tables.Lock()
	defer tables.Unlock()
	tables.n++
	return fmt.Sprintf("limits_%d", tables.n)
}

var tables struct {
	sync.Mutex
	n int
}

// query returns the only value of the row that the statement selects.
func query[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

func execute(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}
