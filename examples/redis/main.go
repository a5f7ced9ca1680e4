// Redis shares one limit among processes. Start it several times at once: all processes together are
// granted five requests in ten seconds. REDIS_URL is the address of the Redis server.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

func main() {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379/0"
	}
	if err := run(context.Background(), os.Stdout, url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, url string) error {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()
	store, err := redisstore.New(client)
	if err != nil {
		return err
	}
	search := ratelimit.Rule{
		Endpoint:  "/search",
		Algorithm: ratelimit.AlgorithmSlidingWindowCounter,
		Rate:      ratelimit.Rate{Requests: 5, Per: 10 * time.Second},
	}
	limiter, err := ratelimit.New([]ratelimit.Rule{search}, nil, ratelimit.WithStore(store), ratelimit.WithName("example"))
	if err != nil {
		return err
	}
	for i := 1; i <= 6; i++ {
		res, err := limiter.Check(ctx, ratelimit.Request{Client: "alice", Endpoint: "/search"})
		if err != nil { // Redis did not answer, so the failure policy has decided
			fmt.Fprintf(w, "request %d: decided in this process: %v\n", i, err)
		}
		if res.Allowed {
			fmt.Fprintf(w, "request %d: allowed, %d left\n", i, res.Remaining)
		} else {
			fmt.Fprintf(w, "request %d: denied, retry in %v\n", i, res.RetryAfter.Round(100*time.Millisecond))
		}
	}
	return nil
}
