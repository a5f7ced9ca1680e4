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

func ExampleAccount() {
	start := time.Unix(0, 0)
	acc := ratelimittest.NewAccount(ratelimit.AlgorithmTokenBucket, start, ratelimit.PerSecond(10))
	_, held := acc.Reserve(start, 6)
	fmt.Println(acc.Ask(start, 0).Remaining, "left")
	fmt.Println(acc.Settle(start, held, 2), "given back")
	fmt.Println(acc.Ask(start, 0).Remaining, "left,", acc.Units(), "charged")
	// Output:
	// 4 left
	// 4 given back
	// 8 left, 2 charged
}
