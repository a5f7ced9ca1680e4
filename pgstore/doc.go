// Package pgstore keeps the state of limiters in PostgreSQL 14 or later, so that several processes share one limit.
//
//	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
//	store, err := pgstore.New(ctx, pool)
//	limiter, err := ratelimit.New(rules, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"))
//
// A decision is one statement, and one statement is one transaction: no lock in the database outlives a round trip, and every
// pooler of connections works. Package dbstore, which makes the decisions, says what is exact.
package pgstore
