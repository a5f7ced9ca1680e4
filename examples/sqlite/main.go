// SQLite shares one limit among the processes of a machine, in a file. Start it several times at once: all processes together are
// granted five requests in ten seconds. SQLITE_FILE is the path of the file.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
)

func main() {
	path := os.Getenv("SQLITE_FILE")
	if path == "" {
		path = filepath.Join(os.TempDir(), "ratelimit.db")
	}
	if err := run(context.Background(), os.Stdout, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, path string) error {
	rows, err := open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = rows.db.Close() }()
	if err := rows.sweep(ctx); err != nil { // a server does this once a minute
		return err
	}
	store, err := dbstore.New(rows)
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
		if err != nil { // the file could not be used, so the failure policy has decided
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
