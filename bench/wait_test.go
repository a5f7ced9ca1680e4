package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/ratelimit-go/ratelimit"
)

// BenchmarkWait has ten goroutines wait in a loop for one key, at 10,000 a second with a burst of
// 1. The metric is the share of that rate that they are granted.
func BenchmarkWait(b *testing.B) {
	const perSecond, waiters = 10_000, 10
	for _, row := range []struct {
		name string
		make func() func(ctx context.Context) error
	}{
		{"limiter", func() func(ctx context.Context) error {
			l, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(perSecond).WithBurst(1))
			check(b, err)
			return func(ctx context.Context) error { _, err := l.Wait(ctx, "key", 1); return err }
		}},
		{"rules", func() func(ctx context.Context) error {
			l, err := ratelimit.New([]ratelimit.Rule{
				{Name: "own", Endpoint: "/e", Rate: ratelimit.PerSecond(perSecond).WithBurst(1)},
				{Name: "all", Endpoint: "/e", Rate: ratelimit.PerSecond(2 * perSecond), Key: ratelimit.KeyGlobal},
			}, nil)
			check(b, err)
			req := ratelimit.Request{Client: "key", Endpoint: "/e"}
			return func(ctx context.Context) error { _, err := l.Wait(ctx, req); return err }
		}},
		{"x/time/rate", func() func(ctx context.Context) error {
			return rate.NewLimiter(perSecond, 1).Wait
		}},
	} {
		b.Run(row.name, func(b *testing.B) {
			wait := row.make()
			var all sync.WaitGroup
			began := time.Now()
			for i := range waiters {
				n := (b.N + i) / waiters
				all.Go(func() {
					for range n {
						check(b, wait(context.Background()))
					}
				})
			}
			all.Wait()
			b.ReportMetric(100*float64(b.N)/time.Since(began).Seconds()/perSecond, "%rate")
		})
	}
}

// BenchmarkWaitLine has 100,000 callers join the line of one key and leave it again: the last
// ones first, and the first ones first. The time for each must not depend on their number.
func BenchmarkWaitLine(b *testing.B) {
	const waiters = 100_000
	for b.Loop() {
		l, err := ratelimit.NewTokenBucket(ratelimit.PerHour(1), ratelimit.WithMaxWaiters(waiters))
		check(b, err)
		l.Allow("key")
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range waiters {
			all.Go(func() { _, _ = l.Wait(ctx, "key", 1) })
		}
		for i := range 100 { // newcomers, while they leave
			if i == 50 {
				cancel()
			}
			l.Allow("key")
		}
		cancel()
		all.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/waiters, "ns/waiter")
}

func check(b *testing.B, err error) {
	if err != nil {
		b.Error(err)
	}
}
