package pgstore_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

// All processes that run this share one limit for each client.
func Example() {
	if err := serve(context.Background()); err != nil {
		fmt.Println(err)
	}
}

func serve(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		return err
	}
	store, err := pgstore.New(ctx, pool)
	if err != nil {
		return err
	}
	defer store.Close()
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(100)},
	}, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"))
	if err != nil {
		return err
	}
	fmt.Println(limiter.Allow("alice", "/search"))
	return nil
}
