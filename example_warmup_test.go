package ratelimit_test

import (
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A new user is granted 10 requests a minute, an hour later 35, and after two hours 60.
func ExampleWarmup() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limiter, err := ratelimit.New([]ratelimit.Rule{{
		Endpoint:  "/search",
		Algorithm: ratelimit.AlgorithmFixedWindow,
		Rate:      ratelimit.PerMinute(60),
		Warmup:    ratelimit.Warmup{From: 10, Over: 2 * time.Hour},
	}}, nil, ratelimit.WithClock(clock))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		res := limiter.Allow("alice", "/search")
		fmt.Printf("%d of %d remain; as good as new after %v\n", res.Remaining, res.Limit, res.ResetAfter)
		clock.Advance(time.Hour)
	}
	// Output:
	// 9 of 60 remain; as good as new after 2h0m0s
	// 34 of 60 remain; as good as new after 1h0m0s
	// 59 of 60 remain; as good as new after 1m0s
}

// The same from config, in both ways to write it.
func ExampleWarmup_config() {
	limiter, err := ratelimit.NewFromConfig([]map[string]any{
		{"endpoint": "/search", "algorithm": "FixedWindow", "algoConfig": map[string]any{"rate": "60/m"},
			"warmup": map[string]any{"from": 10, "over": "2h"}},
		{"endpoint": "/login", "algorithm": "FixedWindow", "algoConfig": map[string]any{"rate": "60/m",
			"warmupRequests": 10, "warmupDuration": 7200}},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	rules, _ := limiter.Rules()
	for _, r := range rules {
		fmt.Println(r.Warmup.From, r.Warmup.Over)
	}
	// Output:
	// 10 2h0m0s
	// 10 2h0m0s
}
