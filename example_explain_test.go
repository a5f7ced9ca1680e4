package ratelimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// explainedRules are the rules of these examples.
var explainedRules = []ratelimit.Rule{
	{Endpoint: "/search", Rate: ratelimit.PerMinute(3), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(30)}},
	{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmSlidingWindowCounter, Rate: ratelimit.PerSecond(100)},
}

// printExplanation prints why req is granted or denied.
func printExplanation(ctx context.Context, limiter *ratelimit.RateLimiter, req ratelimit.Request) error {
	e, err := limiter.Explain(ctx, req)
	if err != nil {
		return err
	}
	fmt.Print(e)
	return nil
}

// Why was alice denied? Explain takes nothing, so it may be asked as often as one likes.
func ExampleRateLimiter_Explain() {
	clock := january()
	limiter, err := ratelimit.New(explainedRules, nil, ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	for range 4 {
		limiter.Allow("alice", "/search")
	}
	clock.Advance(5 * time.Second)
	if err := printExplanation(context.Background(), limiter, ratelimit.Request{Client: "alice", Endpoint: "/search"}); err != nil {
		panic(err)
	}
	// Output:
	// "alice" for "/search", cost 1: denied for 15s by rule "/search" (exact "/search")
	// rule       match       key           algorithm             rate   from  state   limit  left  retry after  reset after  at most
	// "/search"  exact       user "alice"  TokenBucket           3/m    rule  own     3      0     15s          55s          6 in 1m0s
	// "all"      additional  global ""     SlidingWindowCounter  100/s  rule  unseen  100    100   0s           0s           199 in 1s
}

// mostOf returns the most requests that each of rules can let through in d for one key.
func mostOf(rules []ratelimit.Rule, d time.Duration) map[string]int {
	most := make(map[string]int)
	for _, r := range rules {
		most[r.Name] = r.Algorithm.MaxIn(r.Rate, d)
	}
	return most
}

// What is the most that these rules let through in ten seconds, for one key each?
func ExampleAlgorithm_MaxIn() {
	limiter, err := ratelimit.New(explainedRules, nil)
	if err != nil {
		panic(err)
	}
	rules, _ := limiter.Rules() // every default is filled in
	fmt.Println(mostOf(rules, 10*time.Second))
	// Output: map[/search:3 all:1090]
}

// In JSON, an Explanation is for programs.
func ExampleExplanation() {
	limiter, err := ratelimit.New(explainedRules[:1], nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	e, err := limiter.Explain(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/search", Tier: "paid"})
	if err != nil {
		panic(err)
	}
	data, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		panic(err)
	}
	fmt.Println(string(data))
	// Output:
	// {
	//   "request": {
	//     "client": "alice",
	//     "endpoint": "/search",
	//     "tier": "paid"
	//   },
	//   "match": "exact",
	//   "pattern": "/search",
	//   "result": {
	//     "allowed": true,
	//     "limit": 30,
	//     "remaining": 29,
	//     "resetAfter": "2s",
	//     "rule": "/search"
	//   },
	//   "rules": [
	//     {
	//       "name": "/search",
	//       "match": "exact",
	//       "pattern": "/search",
	//       "keyType": "user",
	//       "key": "alice",
	//       "algorithm": "TokenBucket",
	//       "mode": "enforce",
	//       "source": "tier",
	//       "state": "unseen",
	//       "result": {
	//         "allowed": true,
	//         "limit": 30,
	//         "remaining": 29,
	//         "resetAfter": "2s",
	//         "rule": "/search"
	//       },
	//       "maxIn": 60,
	//       "rate": "30/m"
	//     }
	//   ]
	// }
}
