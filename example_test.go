package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A token bucket grants a burst at once, and then as many requests as it earns tokens.
func ExampleTokenBucket() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(10).WithBurst(2), ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	for range 3 {
		res := limiter.Allow("alice")
		fmt.Println(res.Allowed, res.Remaining, res.RetryAfter)
	}
	clock.Advance(100 * time.Millisecond)
	fmt.Println(limiter.Allow("alice").Allowed)
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 100ms
	// true
}

// A fixed window grants its limit at any time within the minute, and grants it again
// from the start of the next full minute.
func ExampleFixedWindow() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 59, 0, time.UTC))
	limiter, err := ratelimit.NewFixedWindow(ratelimit.PerMinute(2), ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	for range 3 {
		res := limiter.Allow("alice")
		fmt.Println(res.Allowed, res.Remaining, res.RetryAfter)
	}
	clock.Advance(time.Second) // 12:01:00
	fmt.Println(limiter.Allow("alice").Allowed)
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1s
	// true
}

// A sliding window log remembers when it granted each request. A request leaves the
// log exactly one minute later, and makes room for the next one.
func ExampleSlidingWindowLog() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 50, 0, time.UTC))
	limiter, err := ratelimit.NewSlidingWindowLog(ratelimit.PerMinute(2), ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	fmt.Println(limiter.Allow("alice").Allowed)
	clock.Advance(20 * time.Second)
	fmt.Println(limiter.Allow("alice").Allowed)
	fmt.Println(limiter.Allow("alice").RetryAfter)
	clock.Advance(40 * time.Second)
	fmt.Println(limiter.Allow("alice").Allowed)
	// Output:
	// true
	// true
	// 40s
	// true
}

// A sliding window counter weighs the requests of the previous minute by how much of
// that minute still lies within the last 60 seconds: here half of it.
func ExampleSlidingWindowCounter() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 59, 0, time.UTC))
	limiter, err := ratelimit.NewSlidingWindowCounter(ratelimit.PerMinute(100), ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	if _, err := limiter.Take(context.Background(), "alice", 100); err != nil {
		panic(err)
	}
	clock.Advance(31 * time.Second) // 12:01:30
	fmt.Println(limiter.Peek("alice").Remaining)
	// Output:
	// 50
}

// A leaky bucket tells each granted request how long to wait before it goes on. If
// every caller waits for the Delay, requests go on evenly spaced.
func ExampleLeakyBucket() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limiter, err := ratelimit.NewLeakyBucket(ratelimit.PerSecond(10).WithBurst(3), ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	for range 4 {
		res := limiter.Allow("alice")
		fmt.Println(res.Allowed, res.Delay, res.RetryAfter)
	}
	// Output:
	// true 0s 0s
	// true 100ms 0s
	// true 200ms 0s
	// false 0s 100ms
}

// Wait returns as soon as the limiter grants the request. It fails at once, without
// waiting, if that would be after the deadline of its context.
func ExampleWait() {
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(1000).WithBurst(1))
	if err != nil {
		panic(err)
	}
	for range 3 {
		res, err := ratelimit.Wait(context.Background(), limiter, "alice", 1)
		fmt.Println(res.Allowed, err)
	}
	daily, err := ratelimit.NewTokenBucket(ratelimit.PerDay(1))
	if err != nil {
		panic(err)
	}
	daily.Allow("alice")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = ratelimit.Wait(ctx, daily, "alice", 1)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), ctx.Err())
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// true <nil>
}

// skewedClock is the machine's clock moved by a constant.
type skewedClock struct{ ahead time.Duration }

func (c skewedClock) Now() time.Time { return time.Now().Add(c.ahead) }

// Any type with a method Now is a Clock; no type of this package is needed.
func ExampleWithClock() {
	limiter, err := ratelimit.NewFixedWindow(ratelimit.PerDay(100), ratelimit.WithClock(skewedClock{ahead: 2 * time.Hour}))
	if err != nil {
		panic(err)
	}
	fmt.Println(limiter.Allow("alice").Remaining)
	// Output:
	// 99
}

// Login limits how often a user may try a password.
type Login struct{ attempts ratelimit.Limiter }

// Try reports whether user may try another password.
func (l *Login) Try(user string) bool { return l.attempts.Allow(user).Allowed }

// A test moves a FakeClock forward instead of sleeping. Attempts to log in are limited
// by a sliding window log: a fixed window would grant up to twice the limit within a
// short time around its edge.
func ExampleFakeClock() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limiter, err := ratelimit.NewSlidingWindowLog(ratelimit.PerHour(3), ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	login := &Login{attempts: limiter}
	fmt.Println(login.Try("bob"), login.Try("bob"), login.Try("bob"), login.Try("bob"))
	clock.Advance(time.Hour)
	fmt.Println(login.Try("bob"))
	// Output:
	// true true true false
	// true
}

// In a testing/synctest bubble a limiter needs no clock: it reads the bubble's time.
func TestExampleSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(1))
		require.NoError(t, err)
		start := time.Now()
		for range 3 {
			_, err := limiter.Wait(t.Context(), "alice", 1)
			require.NoError(t, err)
		}
		require.Equal(t, 2*time.Minute, time.Since(start))
	})
}

// ParseRate reads a rate as people write it in a file or a flag.
func ExampleParseRate() {
	for _, text := range []string{"100/m", "10 per 2 minutes", "100/m burst 20", "1000/month Europe/Berlin", "1/mounth"} {
		rate, err := ratelimit.ParseRate(text)
		fmt.Println(rate, err)
	}
	// Output:
	// 100/m <nil>
	// 10/2m <nil>
	// 100/m burst 20 <nil>
	// 1000/month Europe/Berlin <nil>
	// 0/0s ratelimit: rate is "1/mounth": its unit is unknown; did you mean "month"?
}

// A program that calls another service's API keeps to the limit of that API: one limit for the
// whole program, and each call waits for its turn.
func ExampleTokenBucket_Wait() {
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(1000).WithBurst(10))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 3 {
		if _, err := limiter.Wait(ctx, "", 1); err != nil {
			panic(err)
		}
		fmt.Println("call")
	}
	// Output:
	// call
	// call
	// call
}

// limit returns HTTP middleware that limits requests by what key returns.
func limit(limiter ratelimit.Limiter, key func(*http.Request) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			res := limiter.Allow(key(r))
			if !res.Allowed {
				if s, ok := res.RetryAfterSeconds(); ok {
					w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
				}
				http.Error(w, "too many requests", http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// byUser returns the user that an earlier handler has authenticated.
func byUser(r *http.Request) string { return r.Header.Get("X-User") }

// Any Limiter can limit an http.Handler.
func ExampleLimiter() {
	limiter, err := ratelimit.NewSlidingWindowCounter(ratelimit.PerHour(100))
	if err != nil {
		panic(err)
	}
	handler := limit(limiter, byUser)(http.NotFoundHandler())

	for range 102 {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
		r.Header.Set("X-User", "alice")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound {
			fmt.Println(w.Code)
		}
	}
	// Output:
	// 429
	// 429
}
