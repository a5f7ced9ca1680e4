// Package pgstore keeps the state of limiters in PostgreSQL 14 or later, so that several processes share one limit.
//
//	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
//	store, err := pgstore.New(ctx, pool)
//	limiter, err := ratelimit.New(rules, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"))
//
// A decision needs one statement, which is a transaction of its own. So no lock in the database lasts longer than a round trip, and
// every connection pooler works. Package dbstore makes the decisions; its documentation says how exact the limits are.
package pgstore
