package bench

import (
	"flag"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var big = flag.Bool("big", false, "benchmark with 10 million keys as well")

func BenchmarkAllow(b *testing.B) {
	counts := []int{1, 1000, 1_000_000}
	if *big {
		counts = append(counts, 10_000_000)
	}
	for _, s := range Specs() {
		b.Run("algo="+s.Name, func(b *testing.B) {
			for _, n := range counts {
				if !s.Can(Workload{Keys: n, Outcome: Allowed}) {
					continue
				}
				b.Run("keys="+Count(n), func(b *testing.B) {
					benchmarkOutcomes(b, s, n)
				})
			}
		})
	}
}

func benchmarkOutcomes(b *testing.B, s Spec, keys int) {
	for _, outcome := range []Outcome{Allowed, Denied, Mixed} {
		w := Workload{Keys: keys, Outcome: outcome}
		if !s.Can(w) {
			continue
		}
		b.Run("outcome="+string(outcome), func(b *testing.B) {
			// The two below share a subject, which exists if one of them runs.
			start := sync.OnceValue(func() Subject { return started(b, s, w) })
			b.Run("cpus=1", func(b *testing.B) { benchmarkSerial(b, s, w, start()) })
			w.Parallel = true
			if s.Can(w) {
				b.Run("cpus=all", func(b *testing.B) { benchmarkParallel(b, s, w, start()) })
			}
		})
	}
}

// started returns a subject that is ready for w, and closes it when b ends.
func started(b *testing.B, s Spec, w Workload) Subject {
	subject, err := s.Start(w)
	require.NoError(b, err)
	if c, ok := subject.(io.Closer); ok {
		b.Cleanup(func() { _ = c.Close() })
	}
	return subject
}

func BenchmarkLongKeys(b *testing.B) {
	for _, s := range Specs() {
		if w := (Workload{Keys: 1, Names: Long, Outcome: Allowed}); s.Can(w) {
			b.Run("algo="+s.Name, func(b *testing.B) {
				benchmarkSerial(b, s, w, started(b, s, w))
			})
		}
	}
}

// BenchmarkWindows has windows that turn while it runs.
func BenchmarkWindows(b *testing.B) {
	for _, s := range Specs() {
		for _, w := range turning() {
			if !s.Can(w) {
				continue
			}
			b.Run("algo="+s.Name+"/"+w.String(), func(b *testing.B) {
				r, err := NewRun(s, w)
				require.NoError(b, err)
				require.NoError(b, Turn(r))
				benchmarkSerial(b, s, w, r.subject)
			})
		}
	}
}

func benchmarkSerial(b *testing.B, s Spec, w Workload, subject Subject) {
	keys := w.keys(1)
	allowed := 0
	b.ReportAllocs()
	for b.Loop() {
		if subject.Allow(keys.Next()) {
			allowed++
		}
	}
	require.NoError(b, s.check(w, allowed, b.N))
}

func benchmarkParallel(b *testing.B, s Spec, w Workload, subject Subject) {
	var allowed, seed atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		keys := w.keys(uint64(seed.Add(1)))
		n := 0
		for pb.Next() {
			if subject.Allow(keys.Next()) {
				n++
			}
		}
		allowed.Add(int64(n))
	})
	require.NoError(b, s.check(w, int(allowed.Load()), b.N))
}
