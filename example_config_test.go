package ratelimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configread"
)

// DecodeRules reads rules from maps, as JSON and YAML decode to. The service can attach
// code to the rules, such as a Resolve, before it makes a limiter of them.
func ExampleDecodeRules() {
	var configs []map[string]any
	err := json.Unmarshal([]byte(`[
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": {"capacity": 1000, "refillRatePerSecond": 0.5}},
		{"endpoint": "/login", "key": "ip", "algorithm": "SLIDING_LOG", "algoConfig": {"rate": "5/m"}, "tiers": {"paid": "20/m"}}
	]`), &configs)
	if err != nil {
		panic(err)
	}
	rules, _, err := ratelimit.DecodeRules(configs, nil)
	if err != nil {
		panic(err)
	}
	for _, r := range rules {
		fmt.Println(r.Endpoint, r.Algorithm, r.Rate, r.Tiers)
	}
	// Output:
	// /search TokenBucket 1/2s burst 1000 map[]
	// /login SlidingWindowLog 5/m map[paid:20/m]
}

// The error reports every problem of all the maps, each with its path.
func ExampleDecodeRules_problems() {
	_, _, err := ratelimit.DecodeRules([]map[string]any{
		{"endpoint": "/a", "algorithm": "TokenBuket", "algoConfig": map[string]any{"capacity": 0, "refillRatePerSecond": 5}},
		{"endpoint": "/b", "algorithm": "FixedWindow", "algoConfig": map[string]any{"max_requests": 3.7, "window": 60}},
	}, nil)
	fmt.Println(err)
	// Output:
	// ratelimit: configs[0].algorithm is "TokenBuket": unknown algorithm; did you mean "TokenBucket"?
	// ratelimit: configs[0].algoConfig.capacity is 0: must be at least 1
	// ratelimit: configs[1].algoConfig.window is 60: unknown field; did you mean "windowSeconds"?
	// ratelimit: configs[1].algoConfig.max_requests is 3.7: must be a whole number, at least 1
}

// A Factory makes one limiter from one map.
func ExampleFactory_Create() {
	factory := ratelimit.NewFactory(ratelimit.WithMaxKeys(100_000))
	limiter, err := factory.Create(map[string]any{
		"algorithm":  "FixedWindow",
		"algoConfig": map[string]any{"maxRequests": 2, "windowSeconds": 86_400},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(limiter.Allow("alice").Remaining)
	// Output:
	// 1
}

// An office is a Limiter that grants every request during office hours, by its clock.
type office struct {
	clock       ratelimit.Clock
	open, close int // hours
}

// newOffice is a ratelimit.BuildFunc: it makes an office from an algoConfig.
func newOffice(algoConfig map[string]any, env ratelimit.Env) (ratelimit.Limiter, error) {
	config := configread.Read(algoConfig)
	o := &office{clock: env.Clock, open: config.Int("open"), close: 17}
	if config.Has("close") {
		o.close = config.Int("close")
	}
	if err := config.Err(); err != nil {
		return nil, err
	}
	return o, nil
}

func (o *office) Allow(string) ratelimit.Result {
	now := o.clock.Now()
	if h := now.Hour(); o.open <= h && h < o.close {
		return ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}
	}
	opens := time.Date(now.Year(), now.Month(), now.Day(), o.open, 0, 0, 0, now.Location())
	if !opens.After(now) {
		opens = opens.AddDate(0, 0, 1)
	}
	return ratelimit.Result{Limit: -1, Remaining: 0, RetryAfter: opens.Sub(now), ResetAfter: opens.Sub(now)}
}

func (o *office) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	if n < 0 {
		return ratelimit.Result{}, ratelimit.ErrInvalidCount
	}
	if err := ctx.Err(); err != nil {
		return ratelimit.Result{}, err
	}
	return o.Allow(key), nil
}

// A registered algorithm is named in a config like one of the five.
func ExampleFactory_Register() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 17, 30, 0, 0, time.UTC))
	factory := ratelimit.NewFactory(ratelimit.WithClock(clock))
	if err := factory.Register("OfficeHours", newOffice); err != nil {
		panic(err)
	}
	limiter, err := factory.Create(map[string]any{
		"algorithm":  "OFFICE_HOURS",
		"algoConfig": map[string]any{"open": 9},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(limiter.Allow("alice").RetryAfter)

	_, err = factory.Create(map[string]any{"algorithm": "OfficeHours", "algoConfig": map[string]any{"open": "early"}})
	fmt.Println(err)
	// Output:
	// 15h30m0s
	// ratelimit: algoConfig.open is "early": must be a whole number
}

// A []Rule can be decoded directly. Each rule is read as a config map.
func ExampleRule() {
	document := []byte(`[
		{"endpoint": "*", "name": "all", "additional": true, "key": "global", "rate": "1000/s"},
		{"endpoint": "/login", "key": ["ip", "endpoint"], "algorithm": "FixedWindow", "rate": "5/m"}
	]`)
	var rules []ratelimit.Rule
	if err := json.Unmarshal(document, &rules); err != nil {
		panic(err)
	}
	for _, r := range rules {
		fmt.Println(r.Endpoint, r.Key, r.Algorithm, r.Rate)
	}
	fmt.Println(json.Unmarshal([]byte(`[{"endpoint": "/login", "mode": "off", "rate": "5/m"}]`), &rules))
	// Output:
	// * global TokenBucket 1000/s
	// /login ip+endpoint FixedWindow 5/m
	// ratelimit: rules["/login"].mode is "off": must be one of "enforce", "shadow", "advise"
}

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
		fmt.Printf("%d of %d remain; full again after %v\n", res.Remaining, res.Limit, res.ResetAfter)
		clock.Advance(time.Hour)
	}
	// Output:
	// 9 of 60 remain; full again after 2h0m0s
	// 34 of 60 remain; full again after 1h0m0s
	// 59 of 60 remain; full again after 1m0s
}

// The same rule from a config, in both ways to write it.
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
