package ratelimittest_test

import (
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

func ExampleTokenBucketModel() {
	start := time.Unix(0, 0)
	m := ratelimittest.TokenBucketModel(start, ratelimit.PerSecond(10))
	m.Ask(start, 10)
	res := m.Ask(start.Add(30*time.Millisecond), 1)
	fmt.Println(res.Allowed, res.Remaining, res.RetryAfter, res.ResetAfter)
	// Output: false 0 70ms 970ms
}
