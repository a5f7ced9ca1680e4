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
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// january returns the clock of the examples, which stands at midnight on 1 January 2026.
func january() *ratelimit.FakeClock {
	return ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
}

// rulesFile is a file that an operator writes. The limit of /login is a sliding window
// log: a fixed window would grant up to twice the limit within a short time around its
// edge.
const rulesFile = `{
	"rules": [
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": {"capacity": 10, "refillRatePerSecond": 1}},
		{"endpoint": "/login", "key": "user_endpoint", "algorithm": "SlidingWindowLog", "algoConfig": {"rate": "3/m"}},
		{"endpoint": "/api/*", "algorithm": "SlidingWindowCounter", "algoConfig": {"maxRequests": 1000, "windowSeconds": 60}}
	],
	"default": {"algorithm": "TokenBucket", "algoConfig": {"rate": "100/m", "burst": 20}}
}`

// A rule is for one endpoint, or for all endpoints that begin with a prefix. The default
// rule is for the other requests.
func ExampleNew() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(60).WithBurst(10)},
		{Endpoint: "/login", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
		{Endpoint: "/api/*", Key: ratelimit.KeyUserEndpoint, Rate: ratelimit.PerHour(1000)},
	}, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)})
	if err != nil {
		panic(err)
	}
	for _, endpoint := range []string{"/search", "/login", "/api/users", "/"} {
		res := limiter.Allow("alice", endpoint)
		fmt.Println(endpoint, res.Rule, res.Limit)
	}
	// Output:
	// /search /search 10
	// /login /login 5
	// /api/users /api/* 1000
	// / default 100
}

// Rules are read from maps, as JSON and YAML decode to. The error reports every problem
// with them.
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

// A handler calls Allow for each request, and answers a denied one with status 429 and
// a Retry-After header.
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

// Two rules have one endpoint. A request passes if both rules grant it, and then both
// are charged; a denied request charges neither.
func ExampleRateLimiter_Check() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "per user", Endpoint: "/search", Rate: ratelimit.PerHour(2)},
		{Name: "all together", Endpoint: "/search", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(3)},
	}, nil)
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

// Tiers are the rates of the clients' plans. The caller says which plan a client has. A
// client whose plan changes keeps what it has used.
func ExampleRule_tiers() {
	limiter, err := ratelimit.New([]ratelimit.Rule{{
		Endpoint: "*",
		Rate:     ratelimit.PerMinute(10),
		Tiers: map[string]ratelimit.Rate{
			"free": ratelimit.PerMinute(60),
			"paid": ratelimit.PerMinute(600),
		},
	}}, nil)
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

// Resolve finds the rate of a request in code: here in a map of the service.
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

// A shadow rule decides and counts but denies nothing. Its statistics say how many
// requests it would have denied.
func ExampleMode_shadow() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "now", Endpoint: "/search", Rate: ratelimit.PerHour(100)},
		{Name: "planned", Endpoint: "/search", Rate: ratelimit.PerHour(5), Mode: ratelimit.ModeShadow},
	}, nil)
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

// CheckAll returns the answer, and also what each rule alone would answer, for a response that
// shows more than one limit. Find an entry by the name of its rule.
func ExampleRateLimiter_CheckAll() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "per user", Endpoint: "/search", Rate: ratelimit.PerHour(100)},
		{Name: "all together", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(3)},
	}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	res, each, err := limiter.CheckAll(ctx, ratelimit.Request{Client: "alice", Endpoint: "/search"}, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(res.Rule, res.Remaining)
	if i := slices.IndexFunc(each, func(r ratelimit.Result) bool { return r.Rule == "per user" }); i >= 0 {
		fmt.Println("the client's own:", each[i].Remaining, "of", each[i].Limit)
	}
	// Output:
	// all together 2
	// the client's own: 99 of 100
}

// Reset forgets everything that a client has used: here for one endpoint, and then for all rules.
func ExampleRateLimiter_Reset() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerHour(1)},
		{Endpoint: "/login", Key: ratelimit.KeyIP, Rate: ratelimit.PerHour(1)},
	}, nil, ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	limiter.Allow("alice", "/search")
	if err := limiter.Reset(ctx, ratelimit.Request{Client: "alice", Endpoint: "/search"}); err != nil {
		panic(err)
	}
	fmt.Println(limiter.Allow("alice", "/search").Allowed)

	err = limiter.Reset(ctx, ratelimit.Request{Client: "alice", Endpoint: "/login"})
	fmt.Println(errors.Is(err, ratelimit.ErrNotReset)) // the rule is by IP
	fmt.Println(limiter.Reset(ctx, ratelimit.Request{Client: "alice"}))
	// Output:
	// true
	// true
	// <nil>
}

// An additional rule applies along with the rule of the endpoint: here one limit on all requests
// together.
func ExampleRule_additional() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerHour(3)},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(5)},
	}, nil)
	if err != nil {
		panic(err)
	}
	for _, client := range []string{"alice", "alice", "alice", "alice", "bob", "carol", "dave"} {
		res := limiter.Allow(client, "/search")
		fmt.Println(client, res.Allowed, res.Rule)
	}
	// Output:
	// alice true /search
	// alice true /search
	// alice true /search
	// alice false /search
	// bob true all
	// carol true all
	// dave false all
}

// A key may have several parts: here each user of each tenant has a budget.
func ExampleKeyOf() {
	limiter, err := ratelimit.New([]ratelimit.Rule{{
		Endpoint: "*",
		Key:      ratelimit.KeyOf(ratelimit.KeyAttr("tenant"), ratelimit.KeyUser),
		Rate:     ratelimit.PerMinute(60),
	}}, nil)
	if err != nil {
		panic(err)
	}
	req := ratelimit.Request{Client: "alice", Endpoint: "/search"}
	for _, tenant := range []string{"acme", "acme", "globex"} {
		req.Attrs = map[string]string{"tenant": tenant}
		res, err := limiter.Check(context.Background(), req)
		if err != nil {
			panic(err)
		}
		fmt.Println(tenant, res.Remaining)
	}
	// Output:
	// acme 59
	// acme 58
	// globex 59
}

// The tier "internal" is not limited.
func ExampleRule_unlimited() {
	limiter, err := ratelimit.New([]ratelimit.Rule{{
		Endpoint: "/search",
		Rate:     ratelimit.PerMinute(60),
		Tiers:    map[string]ratelimit.Rate{"internal": ratelimit.Unlimited},
	}}, nil)
	if err != nil {
		panic(err)
	}
	for _, tier := range []string{"", "internal"} {
		res, err := limiter.Check(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/search", Tier: tier})
		if err != nil {
			panic(err)
		}
		fmt.Println(res.Allowed, res.Limit, res.Remaining)
	}
	// Output:
	// true 60 59
	// true -1 -1
}

// UpdateRate changes the rate of a rule while it is used. Every key keeps what it has used. An
// invalid rate changes nothing.
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
	// ratelimit: rules["/search"].rate.requests is 0: must be at least 1
	// 10
}

// Reload replaces all rules by those of a new config. A config with any problem changes
// nothing; the error reports every problem.
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
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "2/m"}},
	}, nil)
	fmt.Println(err, limiter.Allow("alice", "/search").Remaining)
	// Output:
	// true 3
	// <nil> 1
}

// Wait blocks until both rules of the endpoint grant the request. The second call fails at once,
// because the provider's limit would grant it in an hour, after the deadline.
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

// Two limiters with the same store and the same name share their limit. In production
// the limiters are in two processes and the store is a server.
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

// brokenStore is a store that cannot be reached.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, errors.New("connection refused")
}

func (brokenStore) Reset(context.Context, []ratelimit.Ask) error {
	return errors.New("connection refused")
}

// While the store does not answer, the failure policy of each rule answers. /login denies
// everything; /search grants a quarter of its limit, as one of four replicas. The limit
// of /login is a sliding window log: a fixed window would grant up to twice the limit
// within a short time around its edge.
func ExampleFailLocal() {
	store := brokenStore{}
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(100)},
		{Endpoint: "/login", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5), OnStoreError: ratelimit.FailClosed},
	}, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"), ratelimit.WithFailurePolicy(ratelimit.FailLocal(4)))
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

// denials is an Observer that counts the denied requests of each rule.
type denials map[string]int

// Observe is called once for each decision, after it was made.
func (d denials) Observe(_ context.Context, decision ratelimit.Decision) {
	if !decision.Result.Allowed {
		d[decision.Rule]++
	}
}

// An Observer is called with every decision, for example to count denied requests.
func ExampleObserver() {
	denied := denials{}
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerHour(2)},
	}, nil, ratelimit.WithObserver(denied))
	if err != nil {
		panic(err)
	}
	for range 5 {
		limiter.Allow("alice", "/search")
	}
	fmt.Println(denied)
	// Output: map[/search:3]
}

// SlogObserver writes at most one denial of a rule in each minute, with the number of denials since
// the last line that it left out.
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

// Mailer limits how many mails it sends to one address.
type Mailer struct{ limiter *ratelimit.RateLimiter }

// NewMailer returns a Mailer. A test passes WithClock.
func NewMailer(opts ...ratelimit.Option) (*Mailer, error) {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "mail", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(2)},
	}, nil, opts...)
	return &Mailer{limiter}, err
}

// Send reports whether the mail was sent and, if it was not, how long to wait.
func (m *Mailer) Send(to string) (sent bool, retry time.Duration) {
	res := m.limiter.Allow(to, "mail")
	return res.Allowed, res.RetryAfter
}

// TestMailer shows how to test such a service: time passes only when the test advances
// its clock.
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
	require.False(t, sent, "one nanosecond early")
	clock.Advance(1)
	sent, _ = mailer.Send("alice")
	require.True(t, sent)
}

// explainedRules are the rules of these examples.
var explainedRules = []ratelimit.Rule{
	{Endpoint: "/search", Rate: ratelimit.PerMinute(3), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(30)}},
	{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmSlidingWindowCounter,
		Rate: ratelimit.PerSecond(100)},
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

// Why was alice denied? Explain takes nothing, so it can be called at any time.
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

// mostOf returns, for each of rules, the most requests that it can let through in d for one key.
func mostOf(rules []ratelimit.Rule, d time.Duration) map[string]int {
	most := make(map[string]int)
	for _, r := range rules {
		most[r.Name] = r.Algorithm.MaxIn(r.Rate, d)
	}
	return most
}

// How many requests can these rules let through in ten seconds, for one key each?
func ExampleAlgorithm_MaxIn() {
	limiter, err := ratelimit.New(explainedRules, nil)
	if err != nil {
		panic(err)
	}
	rules, _ := limiter.Rules() // every default is filled in
	fmt.Println(mostOf(rules, 10*time.Second))
	// Output: map[/search:3 all:1090]
}

// Programs can read an Explanation as JSON.
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
	//       "rateFrom": "tier",
	//       "answeredBy": "unseen",
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

// A login endpoint counts only failed attempts: each attempt reserves a unit, and a right password
// gives it back. So no more than five attempts are under way or have failed at any time.
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
		switch allowed := attempt.Result().Allowed; {
		case !allowed && err != nil:
			return "try again later" // a failure policy has denied, or there is no answer and attempt is nil
		case !allowed:
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

// A file service charges bytes when the transfer ends. Bytes that were not transferred are given
// back, and bytes beyond the estimate are charged too.
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

// A client sends a payment and does not get the answer. It sends the payment again with the same
// ID, gets the same answer, and is charged once. Another payment has another ID.
func ExampleWithRequestIDs() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/pay", Rate: ratelimit.PerMinute(10)},
	}, nil, ratelimit.WithRequestIDs(24*time.Hour), ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, id := range []string{"7f3a", "7f3a", "91c0"} {
		res, err := limiter.Check(ctx, ratelimit.Request{Client: "alice", Endpoint: "/pay", ID: id})
		fmt.Println(id, res.Allowed, res.Remaining, err)
	}
	fmt.Println("replayed:", limiter.Stats()[0].Replayed)
	// Output:
	// 7f3a true 9 <nil>
	// 7f3a true 9 <nil>
	// 91c0 true 8 <nil>
	// replayed: 1
}

// idOf returns the ID of a request that came by HTTP, which clients send again under the same key.
func idOf(clientID string, r *http.Request) ratelimit.Request {
	return ratelimit.Request{Client: clientID, Endpoint: r.URL.Path, ID: r.Header.Get("Idempotency-Key")}
}

// Here the ID comes from a header of the request. If there is none, the ID is empty, and the request
// is charged each time.
func ExampleRequest_iD() {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "https://example.com/pay", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Idempotency-Key", "7f3a")
	fmt.Println(idOf("alice", r).ID)
	// Output: 7f3a
}

// An operator blocks an address for an hour, and lets a customer through until Monday.
func ExampleRateLimiter_Override() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC))
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "search", Endpoint: "/search", Rate: ratelimit.PerMinute(1)},
	}, nil, ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	monday := clock.Now().AddDate(0, 0, 3)

	err = limiter.Override(ctx,
		ratelimit.Override{IP: "203.0.113.9", Effect: ratelimit.EffectBlock, Until: clock.Now().Add(time.Hour), Note: "scraper, ticket 4711"},
		ratelimit.Override{Client: "alice", Effect: ratelimit.EffectExempt, Until: monday, Note: "import runs until Monday"},
	)
	if err != nil {
		panic(err)
	}
	for range 2 {
		fmt.Println(limiter.Allow("alice", "/search"))
	}
	res, err := limiter.Check(ctx, ratelimit.Request{Client: "bob", IP: "203.0.113.9", Endpoint: "/search"})
	fmt.Println(res, err)
	fmt.Printf("%+v\n", limiter.OverrideStats())
	// Output:
	// allowed, no limit applies
	// allowed, no limit applies
	// denied, 0 of 0 remain, retry after 1h0m0s, reset after 1h0m0s, override <nil>
	// {Blocked:1 Exempted:2 Rated:0 Blocks:1 Exemptions:1 Rates:0}
}

// Whoever fails ten times within five minutes is out for an hour, and for two hours the next time.
func ExamplePenalty() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC))
	limiter, err := ratelimit.New([]ratelimit.Rule{{
		Name: "login", Endpoint: "/login", Rate: ratelimit.PerMinute(1),
		Penalty: ratelimit.Penalty{After: 10, Within: 5 * time.Minute, For: time.Hour, Most: 24 * time.Hour},
	}}, nil, ratelimit.WithClock(clock))
	if err != nil {
		panic(err)
	}
	for range 11 {
		limiter.Allow("mallory", "/login") // the first is granted, and the next ten are strikes
	}
	fmt.Println(limiter.Allow("mallory", "/login"))
	clock.Advance(time.Hour)
	fmt.Println(limiter.Allow("mallory", "/login"))
	// Output:
	// denied, 0 of 1 remain, retry after 1h0m0s, reset after 1h0m0s, by rule "login", penalty
	// allowed, 0 of 1 remain, reset after 1m0s, by rule "login"
}
