// Quickstart reads a rule from JSON and asks a limiter until a request is denied. Then it waits as long
// as the limiter says, and asks again; that request is granted.
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

//go:embed rules.json
var rulesFile []byte

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(w io.Writer) error {
	var rules []map[string]any
	if err := json.Unmarshal(rulesFile, &rules); err != nil {
		return err
	}
	limiter, err := ratelimit.NewFromConfig(rules, nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "/search: 2 requests a second, 3 at once, for each user")
	for i := 1; ; i++ {
		res := limiter.Allow("alice", "/search")
		if !res.Allowed {
			fmt.Fprintf(w, "  request %d: denied, retry in %v\n", i, res.RetryAfter.Round(100*time.Millisecond))
			time.Sleep(res.RetryAfter)
			break
		}
		fmt.Fprintf(w, "  request %d: allowed, %d left\n", i, res.Remaining)
	}
	res := limiter.Allow("alice", "/search")
	fmt.Fprintf(w, "having waited: allowed is %t\n", res.Allowed)
	res = limiter.Allow("bob", "/search")
	fmt.Fprintf(w, "somebody else: allowed is %t, %d left\n", res.Allowed, res.Remaining)
	return nil
}
