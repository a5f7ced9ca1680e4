package ratelimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A login endpoint counts only failed attempts: each attempt holds one, and a right password
// gives it back. So no more than five attempts are under way or failed at any time.
func ExampleRateLimiter_Reserve() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/login", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
	}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	login := func(user, password string) string {
		attempt, err := limiter.Reserve(context.Background(), ratelimit.Request{Client: user, Endpoint: "/login"}, time.Minute)
		if err != nil {
			fmt.Println(err)
		}
		if !attempt.Result().Allowed {
			return "too many failed attempts"
		}
		if password != "secret" {
			return "wrong" // never settled: it stays charged
		}
		if err := attempt.Cancel(); err != nil {
			fmt.Println(err)
		}
		return "welcome"
	}
	for range 100 {
		login("alice", "secret")
	}
	for _, password := range []string{"a", "b", "secret", "c", "d", "e", "secret"} {
		fmt.Println(login("alice", password))
	}
	// Output:
	// wrong
	// wrong
	// welcome
	// wrong
	// wrong
	// wrong
	// too many failed attempts
}

// A file service charges bytes when the transfer ends. What was not transferred comes back, and
// what was transferred beyond the estimate is charged too.
func ExampleReservation_Settle() {
	clock := january()
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/files", Rate: ratelimit.PerHour(1000)},
	}, nil, ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	for _, transferred := range []int{40, 250} {
		held, err := limiter.Reserve(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/files", Cost: 100}, time.Hour)
		if err != nil {
			panic(err)
		}
		if err := held.Settle(transferred); err != nil {
			fmt.Println(err)
		}
		res, _ := limiter.Peek(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/files"})
		fmt.Println(res.Remaining, "left")
	}
	// Output:
	// 960 left
	// 710 left
}
