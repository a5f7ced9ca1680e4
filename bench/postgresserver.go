package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ratelimit-go/ratelimit/internal/pgserver"
)

// ErrNoPostgres means that this machine has no PostgreSQL, and that none is required: the
// environment does not have RATELIMIT_REQUIRE_POSTGRES=1.
var ErrNoPostgres = pgserver.ErrNone

// A PostgresServer is a PostgreSQL server on a free port of the loopback address 127.0.0.1. It has
// a folder and a database of its own.
type PostgresServer struct {
	server *pgserver.Server
	admin  *pgxpool.Pool // makes calls that are not measured
}

// StartPostgres starts a PostgresServer. If the machine has no PostgreSQL, the error matches
// [ErrNoPostgres], unless the environment has RATELIMIT_REQUIRE_POSTGRES=1. If ctx ends before the
// server has started, nothing of it is left.
func StartPostgres(ctx context.Context) (*PostgresServer, error) {
	// The settings are the defaults, with two exceptions. Subjects with several processes need more
	// connections. And after a checkpoint, the first change of each page writes the whole page into
	// the log of the server, so a checkpoint would change the figures of some rounds.
	server, err := pgserver.New(ctx, "max_connections=400", "checkpoint_timeout=1h", "max_wal_size=4GB")
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{server: server}
	if err = server.Run(ctx); err == nil {
		s.admin, err = s.pool(ctx, "admin", 1, 0)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the server, and removes its files.
func (s *PostgresServer) Close() error {
	err := s.server.Close()
	if s.admin != nil {
		s.admin.Close()
	}
	return err
}

// pool returns a new pool of at most n connections with the given name. With a connection of it, a
// commit does not wait until the disk has it. Each message to the server takes longer by the
// duration trip, and so does each round trip.
func (s *PostgresServer) pool(ctx context.Context, name string, n int32, trip time.Duration) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.server.URL())
	if err != nil {
		return nil, err
	}
	config.MaxConns = n
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	config.ConnConfig.RuntimeParams["application_name"] = name
	if dial := config.ConnConfig.DialFunc; trip > 0 {
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &distantConn{conn, trip}, err
		}
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// A distantConn is a connection to a server that seems to be far away: each Write takes longer by
// the duration trip.
type distantConn struct {
	net.Conn
	trip time.Duration
}

func (c *distantConn) Write(b []byte) (int, error) {
	time.Sleep(c.trip)
	return c.Conn.Write(b)
}

// execute runs SQL statements without arguments.
func (s *PostgresServer) execute(ctx context.Context, sql string) error {
	_, err := s.admin.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// written returns how many bytes the server has written to its write-ahead log, the log of all
// changes (WAL), since it exists.
func (s *PostgresServer) written(ctx context.Context) (n int64, err error) {
	err = s.admin.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&n)
	return n, err
}

// size returns how many bytes a table takes on the disk, with its index.
func (s *PostgresServer) size(ctx context.Context, table string) (n int64, err error) {
	err = s.admin.QueryRow(ctx, "select pg_total_relation_size($1::text::regclass)", table).Scan(&n)
	return n, err
}

// inPlace returns the share of the updates of a table for which the server did not have to change
// the index: updates of the kind that PostgreSQL calls HOT. The connections with the given name must
// be closed. The server counts what they did when they end, so inPlace waits until they have ended.
func (s *PostgresServer) inPlace(ctx context.Context, table, name string) (share float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var open int
		err := s.admin.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1", name).Scan(&open)
		if err != nil {
			return 0, err
		}
		if open == 0 {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, fmt.Errorf("bench: %d connections of %s do not end", open, name)
		}
	}
	// Before version 15, the server publishes its counts up to half a second later.
	if _, err := s.admin.Exec(ctx, "select pg_sleep(1) where current_setting('server_version_num')::int < 150000"); err != nil {
		return 0, err
	}
	err = s.admin.QueryRow(ctx, `select coalesce(n_tup_hot_upd::float8 / nullif(n_tup_upd, 0), 0)
		from pg_stat_user_tables where relid = $1::text::regclass`, table).Scan(&share)
	return share, err
}
