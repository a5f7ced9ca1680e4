package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/pgstore"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// open returns the options that make a limiter keep its state in the server at the URL of the flag
// -store, and a function that closes the connections.
func (c *config) open(ctx context.Context) (opts []ratelimit.Option, done func(), err error) {
	var store ratelimit.Store
	switch scheme, _, _ := strings.Cut(c.store, "://"); scheme {
	case "redis", "rediss", "unix":
		store, done, err = openRedis(ctx, c.store, c.timeout)
	case "postgres", "postgresql":
		store, done, err = openPostgres(ctx, c.store, c.timeout)
	default:
		err = errors.New("-store must be a URL that begins with redis:// or postgres://")
	}
	if err != nil {
		return nil, nil, err
	}
	return []ratelimit.Option{
		ratelimit.WithStore(store),
		ratelimit.WithName("httpserver"),
		ratelimit.WithFailurePolicy(ratelimit.FailLocal(c.replicas)),
	}, done, nil
}

// openRedis returns a store in Redis. The server need not run yet: the store connects as soon as the server runs.
func openRedis(ctx context.Context, url string, timeout time.Duration) (ratelimit.Store, func(), error) {
	where, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewClient(where)
	store, err := redisstore.New(client, redisstore.WithTimeout(timeout))
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	if err := store.Ping(ctx); err != nil {
		slog.Warn("until Redis answers, each process limits by itself", "error", err)
	}
	return store, func() { _ = client.Close() }, nil
}

// openPostgres returns a store in PostgreSQL. The server must run already, because pgstore.New makes the
// table of the store, or checks it. The store has a pool of its own, with four connections.
func openPostgres(ctx context.Context, url string, timeout time.Duration) (ratelimit.Store, func(), error) {
	where, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	where.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(ctx, where)
	if err != nil {
		return nil, nil, err
	}
	store, err := pgstore.New(ctx, pool, pgstore.WithStoreOptions(dbstore.WithTimeout(timeout)))
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return store, func() {
		store.Close()
		pool.Close()
	}, nil
}
