package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

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
		shared.Kill()
		_ = shared.Close()
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A server is a PostgreSQL server that belongs to the tests.
type server struct{ *pgserver.Server }

// start starts a server with a new, empty cluster. The settings are those of postgresql.conf.
func start(t testing.TB, settings ...string) *server {
	t.Helper()
	return &server{pgserver.Start(t, append([]string{"max_connections=200", "shared_buffers=64MB"}, settings...)...)}
}

// own starts a server for a single test.
func own(t *testing.T, settings ...string) *server {
	t.Helper()
	s := start(t, settings...)
	t.Cleanup(func() {
		s.Kill()
		_ = s.Close()
	})
	return s
}

// run starts the process of s, and waits until it answers.
func (s *server) run(t testing.TB) {
	t.Helper()
	require.NoError(t, s.Run(t.Context()))
}

func (s *server) url() string {
	return fmt.Sprintf("postgres://postgres:secret@127.0.0.1:%d/postgres?sslmode=disable", s.Port)
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
