package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// BenchmarkOpen prints how long a Cancel takes in memory, of a key with one open reservation and of a key with
// 1,024: if the oldest, the newest, the middle or any of them ends. A time is that of the median batch of 64.
func BenchmarkOpen(b *testing.B) {
	places := map[string]func(n int) int{
		"oldest": func(int) int { return 0 },
		"newest": func(n int) int { return n - 1 },
		"middle": func(n int) int { return n / 2 },
		"random": rand.IntN,
	}
	for _, a := range ratelimit.Algorithms() {
		one := 0.0
		b.Run(string(a)+"/one", func(b *testing.B) {
			one = cancelOpen(b, a, 1, places["oldest"])
		})
		for _, name := range []string{"oldest", "newest", "middle", "random"} {
			b.Run(fmt.Sprint(a, "/1024/", name), func(b *testing.B) {
				many := cancelOpen(b, a, 1024, places[name])
				b.ReportMetric(many/one, "x-one")
			})
		}
	}
}

// cancelOpen reserves until each key has n open reservations, and cancels those that pick chooses, in
// batches of 64. It reports the time of a Cancel in the median batch, and returns it.
func cancelOpen(b *testing.B, a ratelimit.Algorithm, n int, pick func(n int) int) float64 {
	const batch = 64
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "rule", Endpoint: "*", Algorithm: a, Rate: ratelimit.PerDay(1 << 16)}}, nil)
	require.NoError(b, err)
	keys := 1
	if n == 1 {
		keys = batch
	}
	open := make([][]*ratelimit.Reservation, keys)
	next := make([]*ratelimit.Reservation, batch)
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		for k := range open {
			for len(open[k]) < n+batch/keys-1 {
				r, err := l.Reserve(context.Background(), ratelimit.Request{Client: strconv.Itoa(k), Endpoint: "/"}, time.Hour)
				require.NoError(b, err)
				require.True(b, r.Result().Allowed)
				open[k] = append(open[k], r)
			}
		}
		for i := range next {
			k := i % keys
			place := pick(len(open[k]))
			next[i] = open[k][place]
			open[k] = slices.Delete(open[k], place, place+1)
		}
		begun := time.Now()
		for _, r := range next {
			if r.Cancel() != nil {
				b.Fatal("not canceled")
			}
		}
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	median := float64(times[len(times)/2]) / batch
	b.ReportMetric(median, "ns/Cancel")
	b.ReportMetric(0, "ns/op")
	return median
}
