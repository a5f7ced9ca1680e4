package bench

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A readyStore is a store that answers at once: what a limiter with it costs is the core's own.
type readyStore struct{ results []ratelimit.Result }

func newReadyStore() *readyStore {
	return &readyStore{[]ratelimit.Result{{Allowed: true, Limit: 100, Remaining: 99, ResetAfter: time.Second}}}
}

func (s *readyStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return s.results, nil
}

func (s *readyStore) Reset(context.Context, []ratelimit.Ask) error { return nil }

// Denied never knows of a denial, as a store that has denied nothing lately.
func (s *readyStore) Denied(ratelimit.Ask) (ratelimit.Result, bool) { return ratelimit.Result{}, false }

// BenchmarkStoreCore measures what the core costs beside a store, for one rule: the limiter
// and the store by itself take turns. Beside the time of the limiter, it reports the median
// of the differences.
func BenchmarkStoreCore(b *testing.B) {
	const turn = 500 // calls
	store := ratelimit.Store(newReadyStore())
	rate := ratelimit.PerSecond(100)
	options := []ratelimit.Option{ratelimit.WithStore(store), ratelimit.WithName("bench")}
	ctx := context.Background()

	bucket, err := ratelimit.NewTokenBucket(rate, options...)
	check(b, err)
	rule := ratelimit.Rule{Name: "one", Endpoint: "/e", Rate: rate}
	rules, err := ratelimit.New([]ratelimit.Rule{rule}, nil, options...)
	check(b, err)
	rule.Name, rule.Endpoint, rule.OnStoreError = "open", "/open", ratelimit.FailOpen
	check(b, rules.AddRule(rule))
	rule.Name, rule.Endpoint, rule.Key = "pair", "/pair", ratelimit.KeyUserEndpoint
	check(b, rules.AddRule(rule))

	for _, row := range []struct {
		name string
		ask  func(key string)
	}{
		{"TokenBucket.Allow", func(key string) { bucket.Allow(key) }},
		{"TokenBucket.Take", func(key string) { _, _ = bucket.Take(ctx, key, 1) }},
		{"RateLimiter.Allow", func(key string) { rules.Allow(key, "/e") }},
		{"RateLimiter.Check", func(key string) { _, _ = rules.Check(ctx, ratelimit.Request{Client: key, Endpoint: "/e"}) }},
		{"RateLimiter.Check/FailOpen", func(key string) { _, _ = rules.Check(ctx, ratelimit.Request{Client: key, Endpoint: "/open"}) }},
		{"RateLimiter.Check/KeyUserEndpoint", func(key string) { _, _ = rules.Check(ctx, ratelimit.Request{Client: key, Endpoint: "/pair"}) }},
	} {
		b.Run(row.name, func(b *testing.B) {
			keys := NewKeys(Varied, 10_000, 1)
			var alone []ratelimit.Result
			var extra []float64
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n%turn > 0 {
					row.ask(keys.Next())
					continue
				}
				b.StopTimer()
				began := time.Now()
				for range turn {
					ask := ratelimit.Ask{Rule: "bench", Key: keys.Next(), Algorithm: ratelimit.AlgorithmTokenBucket, Rate: rate, N: 1}
					alone, _ = store.Take(ctx, []ratelimit.Ask{ask})
				}
				between := time.Now()
				for range turn {
					row.ask(keys.Next())
				}
				extra = append(extra, float64(time.Since(between)-between.Sub(began))/turn)
				b.StartTimer()
			}
			_ = alone
			slices.Sort(extra)
			b.ReportMetric(extra[len(extra)/2], "core-ns/op")
		})
	}
}
