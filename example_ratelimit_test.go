package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// January is the clock of the examples.
func january() *ratelimit.FakeClock {
	return ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
}

// rulesFile is what an operator writes.
const rulesFile = `{
	"rules": [
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": {"capacity": 10, "refillRatePerSecond": 1}},
		{"endpoint": "/login", "key": "user_endpoint", "algorithm": "FixedWindow", "algoConfig": {"rate": "3/m"}},
		{"endpoint": "/api/*", "algorithm": "SlidingWindowCounter", "algoConfig": {"maxRequests": 1000, "windowSeconds": 60}}
	],
	"default": {"algorithm": "TokenBucket", "algoConfig": {"rate": "100/m", "burst": 20}}
}`

// Rules are read from maps, as JSON and YAML decode to. All that is wrong with them is
// reported at once.
func ExampleNewFromConfig() {
	var file struct {
		Rules   []map[string]any
		Default map[string]any
	}
	if err := json.Unmarshal([]byte(rulesFile), &file); err != nil {
		panic(err)
	}
	limiter, err := ratelimit.NewFromConfig(file.Rules, file.Default, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	for range 4 {
		res := limiter.Allow("alice", "/login")
		fmt.Println(res.Rule, res.Allowed, res.Remaining, res.RetryAfter)
	}
	fmt.Println(limiter.Allow("alice", "/api/users").Rule, limiter.Allow("alice", "/").Rule)
	// Output:
	// /login true 2 0s
	// /login true 1 0s
	// /login true 0 0s
	// /login false 0 1m0s
	// /api/* default
}

// An inline limiter: a handler asks, and answers who asks too often.
func ExampleRateLimiter_Allow() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(60).WithBurst(1)},
	}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res := limiter.Allow(r.Header.Get("X-API-Key"), r.URL.Path)
		if !res.Allowed {
			if s, ok := res.RetryAfterSeconds(); ok {
				w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
			}
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})

	for range 2 {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/search?q=go", nil)
		r.Header.Set("X-API-Key", "alice")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// 204 ""
	// 429 "1"
}

// Two rules on one endpoint: a request passes if both let it, and then both are
// charged.
func ExampleRateLimiter_Check() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "per user", Endpoint: "/search", Rate: ratelimit.PerMinute(2)},
		{Name: "all together", Endpoint: "/search", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(3)},
	}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	for _, client := range []string{"alice", "alice", "alice", "bob", "carol"} {
		res, err := limiter.Check(context.Background(), ratelimit.Request{Client: client, Endpoint: "/search"})
		if err != nil {
			panic(err)
		}
		fmt.Printf("%-5s %-5t %s\n", client, res.Allowed, res.Rule)
	}
	// Output:
	// alice true  per user
	// alice true  per user
	// alice false per user
	// bob   true  all together
	// carol false all together
}

// Plans as data: the caller knows the client's tier. One that changes keeps what it
// has used.
func ExampleRule_tiers() {
	limiter, err := ratelimit.New([]ratelimit.Rule{{
		Endpoint: "*",
		Rate:     ratelimit.PerMinute(10),
		Tiers: map[string]ratelimit.Rate{
			"free": ratelimit.PerMinute(60),
			"paid": ratelimit.PerMinute(600),
		},
	}}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	for _, tier := range []string{"", "free", "paid"} {
		res, err := limiter.Check(context.Background(), ratelimit.Request{Client: "client " + tier, Endpoint: "/", Tier: tier})
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Remaining, "of", res.Limit)
	}
	// Output:
	// 9 of 10
	// 59 of 60
	// 599 of 600
}

// Plans as code: a rate for each request, from wherever the service keeps it.
func ExampleRule_resolve() {
	plans := map[string]ratelimit.Rate{"alice": ratelimit.PerMinute(600)}
	limiter, err := ratelimit.New([]ratelimit.Rule{{
		Endpoint: "*",
		Rate:     ratelimit.PerMinute(60),
		Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
			rate, ok := plans[r.Client]
			return rate, ok
		},
	}}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	fmt.Println(limiter.Allow("alice", "/").Limit, limiter.Allow("bob", "/").Limit)
	// Output: 600 60
}

// A shadow rule decides and counts, and denies nothing: what would it do?
func ExampleMode_shadow() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "now", Endpoint: "/search", Rate: ratelimit.PerMinute(100)},
		{Name: "planned", Endpoint: "/search", Rate: ratelimit.PerMinute(5), Mode: ratelimit.ModeShadow},
	}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	for range 20 {
		limiter.Allow("alice", "/search")
	}
	for _, s := range limiter.Stats() {
		fmt.Println(s.Rule, s.Allowed, s.Denied, s.ShadowDenied)
	}
	// Output:
	// now 20 0 0
	// planned 5 0 15
}

// Rules change while they are in use. What every key has used stays used.
func ExampleRateLimiter_UpdateRate() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(10)},
	}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	for range 8 {
		limiter.Allow("alice", "/search")
	}
	if err := limiter.UpdateRate("/search", ratelimit.PerMinute(20)); err != nil {
		panic(err)
	}
	fmt.Println(limiter.Allow("alice", "/search").Remaining)

	err = limiter.UpdateRate("/search", ratelimit.PerMinute(0))
	fmt.Println(err)
	fmt.Println(limiter.Allow("alice", "/search").Remaining)
	// Output:
	// 11
	// ratelimit: rules[0].rate.requests is 0: must be at least 1
	// 10
}

// A reload that has anything wrong changes nothing, and says all of it.
func ExampleRateLimiter_Reload() {
	limiter, err := ratelimit.NewFromConfig([]map[string]any{
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "5/m"}},
	}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	limiter.Allow("alice", "/search")

	err = limiter.Reload([]map[string]any{
		{"endpoint": "/search", "algorithm": "TokenBuckets", "algoConfig": map[string]any{"rate": "5/m"}},
	}, nil)
	fmt.Println(err != nil, limiter.Allow("alice", "/search").Remaining)

	err = limiter.Reload([]map[string]any{
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "4/m"}},
	}, nil)
	fmt.Println(err, limiter.Allow("alice", "/search").Remaining)
	// Output:
	// true 3
	// <nil> 1
}

// A service waits for its turn, here for the two rules of what it calls.
func ExampleRateLimiter_Wait() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "tenant", Endpoint: "mail", Rate: ratelimit.PerSecond(1000)},
		{Name: "provider", Endpoint: "mail", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(1)},
	}, nil)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 2 {
		_, err := limiter.Wait(ctx, ratelimit.Request{Client: "tenant 1", Endpoint: "mail"})
		fmt.Println(errors.Is(err, context.DeadlineExceeded))
	}
	// Output:
	// false
	// true
}

// Two processes, here two limiters, share what is in a store.
func ExampleWithStore() {
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	for range 2 {
		limiter, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(3),
			ratelimit.WithStore(store), ratelimit.WithName("mail"))
		if err != nil {
			panic(err)
		}
		fmt.Println(limiter.Allow("alice").Allowed, limiter.Allow("alice").Allowed)
	}
	// Output:
	// true true
	// true false
}

// brokenStore is a store that nobody reaches.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, errors.New("connection refused")
}

func (brokenStore) Reset(context.Context, []ratelimit.Ask) error {
	return errors.New("connection refused")
}

// While a store does not answer, each rule's failure policy does.
func ExampleFailLocal() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(100)},
		{Endpoint: "/login", Rate: ratelimit.PerMinute(5), OnStoreError: ratelimit.FailClosed},
	}, nil, ratelimit.WithStore(brokenStore{}), ratelimit.WithFailurePolicy(ratelimit.FailLocal(4)))
	if err != nil {
		panic(err)
	}
	res, err := limiter.Check(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/search"})
	fmt.Println(res.Allowed, res.Limit, res.Degraded, err)
	res, _ = limiter.Check(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/login"})
	fmt.Println(res.Allowed, res.RetryAfter, res.Degraded)
	// Output:
	// true 25 true ratelimit: store failed: connection refused
	// false 1s true
}

// denials counts what is denied, by rule.
type denials map[string]int

// Observe is called after each decision.
func (d denials) Observe(decision ratelimit.Decision) {
	if !decision.Result.Allowed {
		d[decision.Rule]++
	}
}

// An observer is told of every decision; here for a counter of one's own.
func ExampleObserver() {
	denied := denials{}
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(2)},
	}, nil, ratelimit.WithObserver(denied), ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	for range 5 {
		limiter.Allow("alice", "/search")
	}
	fmt.Println(denied)
	// Output: map[/search:3]
}

// One denial a minute is written, with how many were left out.
func ExampleSlogObserver() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "retry_after" {
				return slog.Attr{}
			}
			return a
		},
	}))
	observer := ratelimit.SlogObserver(logger, time.Minute)
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(1), ratelimit.WithObserver(observer))
	if err != nil {
		panic(err)
	}
	for range 5 {
		limiter.Allow("alice")
	}
	// Output: level=INFO msg="rate limit: denied" rule=TokenBucket key_type=user cost=1 allowed=false limit=1 source=memory skipped=0
}

// Mailer is a service that limits what it sends.
type Mailer struct{ limiter *ratelimit.RateLimiter }

// NewMailer returns a Mailer. Its tests pass WithClock.
func NewMailer(opts ...ratelimit.Option) (*Mailer, error) {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "mail", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(2)},
	}, nil, opts...)
	return &Mailer{limiter}, err
}

// Send reports whether the mail was sent, or when to try again.
func (m *Mailer) Send(to string) (sent bool, retry time.Duration) {
	res := m.limiter.Allow(to, "mail")
	return res.Allowed, res.RetryAfter
}

// TestMailer is how a user tests such a service: time passes when it is told to.
func TestMailer(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	mailer, err := NewMailer(ratelimit.WithClock(clock))
	require.NoError(t, err)

	for range 2 {
		sent, _ := mailer.Send("alice")
		require.True(t, sent)
	}
	sent, retry := mailer.Send("alice")
	require.False(t, sent)
	require.Equal(t, time.Hour, retry)

	clock.Advance(retry - 1)
	sent, _ = mailer.Send("alice")
	require.False(t, sent, "a nanosecond early")
	clock.Advance(1)
	sent, _ = mailer.Send("alice")
	require.True(t, sent)
}
