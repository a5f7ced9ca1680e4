package bench

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// BenchmarkExtras compares one plain decision with what may come with it: a reservation and its
// settlement, a request ID that is replayed, a key that warms up. The goals are ratios to plain.
func BenchmarkExtras(b *testing.B) {
	ctx, plenty := context.Background(), ratelimit.PerSecond(1<<30)
	start := func(b *testing.B, r ratelimit.Rule, opts ...ratelimit.Option) *ratelimit.RateLimiter {
		r.Rate = plenty
		l, err := ratelimit.New(nil, &r, opts...)
		require.NoError(b, err)
		b.ReportAllocs()
		return l
	}
	b.Run("plain", func(b *testing.B) {
		l := start(b, ratelimit.Rule{})
		for b.Loop() {
			if !l.Allow("alice", "/").Allowed {
				b.Fatal("denied")
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		l := start(b, ratelimit.Rule{})
		for b.Loop() {
			if res, err := l.Check(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"}); err != nil || !res.Allowed {
				b.Fatal("denied")
			}
		}
	})
	b.Run("reserve", func(b *testing.B) {
		l := start(b, ratelimit.Rule{})
		for b.Loop() {
			r, err := l.Reserve(ctx, ratelimit.Request{Client: "alice", Endpoint: "/", Cost: 4}, time.Minute)
			if err != nil || r.Settle(3) != nil {
				b.Fatal("not settled")
			}
		}
	})
	b.Run("replay", func(b *testing.B) {
		l := start(b, ratelimit.Rule{}, ratelimit.WithRequestIDs(time.Hour))
		ids := make([]string, 100)
		for i := range ids {
			ids[i] = "request-" + strconv.Itoa(i)
		}
		i := 0
		for b.Loop() {
			if i++; i == len(ids) {
				i = 0
			}
			if res, err := l.Check(ctx, ratelimit.Request{Client: "alice", Endpoint: "/", ID: ids[i]}); err != nil || !res.Allowed {
				b.Fatal("denied")
			}
		}
	})
	b.Run("young", func(b *testing.B) {
		l := start(b, ratelimit.Rule{Warmup: ratelimit.Warmup{From: 1 << 29, Over: 24 * time.Hour}})
		for b.Loop() {
			if !l.Allow("alice", "/").Allowed {
				b.Fatal("denied")
			}
		}
	})
}
