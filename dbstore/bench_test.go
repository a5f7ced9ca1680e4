package dbstore_test

import (
	"fmt"
	"testing"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
)

// BenchmarkTake measures what a decision costs without a database.
func BenchmarkTake(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s, err := dbstore.New(newMemory(realClock{}))
			if err != nil {
				b.Fatal(err)
			}
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a := ratelimit.Ask{Rule: "r", Key: names[i%keys], Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerHour(1 << 30), N: 1}
				if _, err := s.Take(b.Context(), []ratelimit.Ask{a}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("keys=%d/parallel", keys), func(b *testing.B) {
			s, err := dbstore.New(newMemory(realClock{}))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					a := ratelimit.Ask{Rule: "r", Key: fmt.Sprint(i % keys), Algorithm: ratelimit.AlgorithmTokenBucket, N: 1}
					a.Rate = ratelimit.PerHour(1 << 30)
					if _, err := s.Take(b.Context(), []ratelimit.Ask{a}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
