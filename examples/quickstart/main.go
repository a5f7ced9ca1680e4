// Quickstart shows a limiter, a denial with its retry time, and a recovery.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(w io.Writer) error {
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(2).WithBurst(3))
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "2 requests a second, 3 at once:")
	for i := 1; ; i++ {
		res := limiter.Allow("alice")
		if !res.Allowed {
			fmt.Fprintf(w, "  request %d: denied, retry in %v\n", i, res.RetryAfter.Round(100*time.Millisecond))
			time.Sleep(res.RetryAfter)
			break
		}
		fmt.Fprintf(w, "  request %d: allowed, %d left\n", i, res.Remaining)
	}
	res := limiter.Allow("alice")
	fmt.Fprintf(w, "having waited: allowed is %t\n", res.Allowed)
	fmt.Fprintf(w, "somebody else: allowed is %t, %d left\n", limiter.Allow("bob").Allowed, limiter.Peek("bob").Remaining)
	return nil
}
