package bench

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

// A PostgresSpec describes a limiter that keeps its state in PostgreSQL.
type PostgresSpec struct {
	Name        string // what follows "algo=" in the name of a benchmark
	table       string // the table with the states
	schema      string // SQL that makes the table; empty if the limiter makes it
	connections int32  // how many connections a process has

	// start returns the limiter of one process, and a function that ends it.
	start func(ctx context.Context, pool *pgxpool.Pool, l Limit, w PostgresWork) (ask StoreAsk, stop func(), err error)
}

// PostgresSpecs returns the limiters with their state in PostgreSQL, in the order of the report: this
// module's limiter with a store, and two ways to count that need no library. All of them commit
// without waiting for the disk.
func PostgresSpecs() []PostgresSpec {
	counters := func(table string) string {
		return "create table " + table + " (key text primary key, n int not null) with (fillfactor = 70)"
	}
	return []PostgresSpec{
		{Name: "limiter", table: "bench_limiter", connections: 4, start: startPostgresLimiter},
		{Name: "transaction", table: "bench_transaction", schema: counters("bench_transaction"), connections: 16, start: startTransaction},
		{Name: "upsert", table: "bench_upsert", schema: counters("bench_upsert"), connections: 16, start: startUpsert},
	}
}

// postgresTimeout is how long this module's limiter waits for an answer. The other subjects have no
// timeout. On a busy machine, a limiter with a shorter timeout would return errors where the others
// are only slow.
const postgresTimeout = 10 * time.Second

// startPostgresLimiter starts a TokenBucket that keeps its state in PostgreSQL. If it decides a call
// without its store, for example after a timeout, the call returns an error. In a workload that denies
// all calls, it remembers no denial, so that each call needs the server.
func startPostgresLimiter(ctx context.Context, pool *pgxpool.Pool, l Limit, w PostgresWork) (StoreAsk, func(), error) {
	opts := []dbstore.Option{dbstore.WithTimeout(postgresTimeout)}
	if w.Denied {
		opts = append(opts, dbstore.WithDenialCache(0))
	}
	store, err := pgstore.New(ctx, pool, pgstore.WithTable("bench_limiter"), pgstore.WithStoreOptions(opts...))
	if err != nil {
		return nil, nil, err
	}
	limiter, err := ratelimit.NewTokenBucket(l.bucket(), l.options(ratelimit.WithStore(store), ratelimit.WithName("bench"))...)
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	return takeStored(limiter), store.Close, nil
}

// startTransaction counts the units of each key in a transaction. It is the simplest code that grants
// no key more than the limit, however many processes call: BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT.
// Each statement is a round trip to the server. Units are never earned again.
func startTransaction(_ context.Context, pool *pgxpool.Pool, l Limit, _ PostgresWork) (StoreAsk, func(), error) {
	return func(ctx context.Context, key string) (bool, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return false, err
		}
		defer func() { _ = tx.Rollback(ctx) }() // after Commit, Rollback does nothing
		var n int
		err = tx.QueryRow(ctx, "select n from bench_transaction where key = $1 for update", key).Scan(&n)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			_, err = tx.Exec(ctx, "insert into bench_transaction values ($1, 1) on conflict (key) do update set n = bench_transaction.n + 1", key)
		case err == nil && n < l.Burst:
			_, err = tx.Exec(ctx, "update bench_transaction set n = $2 where key = $1", key, n+1)
		}
		if err != nil {
			return false, err
		}
		return n < l.Burst, tx.Commit(ctx)
	}, func() {}, nil
}

// startUpsert counts the calls for each key with a single statement, and allows a call if the count is
// not above the limit. Of all algorithms, only a fixed window can be made in this way. Units are never
// earned again.
func startUpsert(_ context.Context, pool *pgxpool.Pool, l Limit, _ PostgresWork) (StoreAsk, func(), error) {
	return func(ctx context.Context, key string) (bool, error) {
		var n int
		err := pool.QueryRow(ctx, `insert into bench_upsert values ($1, 1)
			on conflict (key) do update set n = bench_upsert.n + 1 returning n`, key).Scan(&n)
		return err == nil && n <= l.Burst, err
	}, func() {}, nil
}
