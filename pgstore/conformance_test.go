package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/dbstore/dbstoretest"
	"github.com/ratelimit-go/ratelimit/pgstore"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// starts are instants that are at least 100 years from the bounds of a row, which are in 1678 and 2262.
var starts = []time.Time{
	time.Date(2026, 3, 1, 12, 34, 56, 789012000, time.UTC),
	time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2100, 12, 31, 23, 59, 59, 999999000, time.UTC),
	time.Date(1800, 2, 3, 4, 5, 6, 7000, time.UTC),
}

// onClock makes the server take its time from clock: the schema has a function clock_timestamp, which comes before that of the server.
func onClock(t *testing.T, schema string, clock ratelimit.Clock, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	admin := poolOf(t, sharedServer(t).url(), 1, nil)
	execute(t, admin, strings.ReplaceAll(`create schema {s}; create function {s}.clock_timestamp() returns timestamptz language sql volatile
		as $$ select current_setting('fake.now')::timestamptz $$`, "{s}", schema), pgx.QueryExecModeSimpleProtocol)
	return poolOf(t, sharedServer(t).url(), 4, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = mode
		c.ConnConfig.RuntimeParams["search_path"] = schema + ", pg_catalog"
		c.ConnConfig.RuntimeParams["timezone"] = "UTC"
		c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			_, err := conn.Exec(ctx, "select set_config('fake.now', $1, false)", pgx.QueryExecModeExec,
				clock.Now().UTC().Format("2006-01-02 15:04:05.000000+00"))
			return err == nil, err
		}
	})
}

// TestStore checks all promises of a Store on a real server, in each of the modes in which a pool may send its statements.
func TestStore(t *testing.T) {
	for i, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			if i > 0 && testing.Short() {
				t.Skip("the first mode alone, with -short")
			}
			schedules := 12
			if i > 0 || testing.Short() {
				schedules = 1
			}
			ratelimittest.TestStore(t, ratelimittest.StoreConfig{
				New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
					pool := onClock(t, fmt.Sprintf("fake_%d", i), clock, mode)
					s, err := pgstore.New(t.Context(), pool, pgstore.WithStoreOptions(dbstore.WithClock(clock), dbstore.WithTimeout(time.Minute)))
					if err == nil {
						s.Close() // nothing may be deleted
					}
					return s, err
				},
				Starts: starts, Resolution: time.Microsecond, Schedules: schedules, Seed: uint64(i),
			})
		})
	}
}

// TestBackend checks what package dbstore needs of the server.
func TestBackend(t *testing.T) {
	s := newStore(t, poolOf(t, sharedServer(t).url(), 8, nil), pgstore.WithTable(table(t)))
	dbstoretest.TestBackend(t, s.Backend())
}

// TestPing proves that Ping writes a row and leaves nothing.
func TestPing(t *testing.T) {
	pool, name := poolOf(t, sharedServer(t).url(), 4, nil), table(t)
	s := newStore(t, pool, pgstore.WithTable(name))
	require.NoError(t, s.Ping(t.Context()))
	require.Zero(t, query[int](t, pool, "select count(*) from "+name))
}
