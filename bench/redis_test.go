package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// startRedis returns a server that ends with the test, or skips the test.
func startRedis(t testing.TB) *RedisServer {
	t.Helper()
	s, err := StartRedis(context.Background())
	if errors.Is(err, ErrNoRedis) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestRedisSubjectsLimitEachKey(t *testing.T) {
	server := startRedis(t)
	for _, s := range RedisSpecs() {
		t.Run(s.Name, func(t *testing.T) {
			ask, err := s.New(server.Client(), Limit{Rate: 2, Per: forever, Burst: 2, MaxKeys: 100})
			require.NoError(t, err)
			for _, key := range []string{"a", "b", "ab"} {
				for i, want := range []bool{true, true, false} {
					got, err := ask(t.Context(), key)
					require.NoError(t, err)
					assert.Equal(t, want, got, "ask %d for %q", i, key)
				}
			}
		})
	}
}

// What is no decision of Redis is told apart from a denial, and from a grant.
func TestRedisSubjectsReportErrors(t *testing.T) {
	server := startRedis(t)
	for _, s := range RedisSpecs() {
		t.Run(s.Name, func(t *testing.T) {
			client := server.Client()
			ask, err := s.New(client, s.Limit(Workload{Keys: 1, Outcome: Allowed}))
			require.NoError(t, err)
			require.NoError(t, client.Close())
			_, err = ask(t.Context(), "a")
			assert.Error(t, err)
		})
	}
}

func TestRedisRun(t *testing.T) {
	server := startRedis(t)
	for _, s := range RedisSpecs() {
		for _, w := range []RedisWork{{1, 1, false}, {100, 8, false}, {100, 2, true}} {
			t.Run(s.Name+"/"+w.String(), func(t *testing.T) {
				r, err := NewRedisRun(server, s, w)
				require.NoError(t, err)
				defer r.Close()
				got, err := r.Time(t.Context(), time.Millisecond)
				require.NoError(t, err)
				assert.Positive(t, got.PerSecond)
				assert.Positive(t, got.Latency)
				assert.Positive(t, got.Scripts)
			})
		}
	}
}

// TestRedisWorkCancels gives each call the context that the work names, and ends it after the call.
func TestRedisWorkCancels(t *testing.T) {
	for _, w := range []RedisWork{{1, 1, false}, {1, 1, true}} {
		var seen context.Context
		allowed, err := w.call(func(ctx context.Context, key string) (bool, error) {
			seen = ctx
			assert.Equal(t, "a", key)
			return true, ctx.Err()
		}, "a")
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, w.Cancelable, seen.Err() != nil)
		assert.Equal(t, w.Cancelable, seen.Done() != nil)
	}
	assert.Equal(t, "keys=1k/callers=2/ctx=cancelable", RedisWork{1000, 2, true}.String())
	assert.Equal(t, "keys=1k/callers=2", RedisWork{1000, 2, false}.String())
}

func TestRedisRunFailsOnADenial(t *testing.T) {
	server := startRedis(t)
	few := func(Workload) Limit { return Limit{Rate: 2, Per: forever, Burst: 2} }
	s := RedisSpec{"store", few, newStore(ratelimit.AlgorithmTokenBucket)}
	r, err := NewRedisRun(server, s, RedisWork{Keys: 1, Callers: 1})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Time(t.Context(), time.Second)
	assert.EqualError(t, err, "bench: store: denied")
}

func TestRedisSampleCountsNoErrors(t *testing.T) {
	r := &RedisRun{asks: [][]time.Duration{{5, 1}, {3, 9}}}
	got := r.sample(time.Second, []int{0, 1}, Effort{10, 100}, Effort{40, 400})
	assert.Equal(t, RedisSample{3, 0.25, 5, Effort{10, 100}}, got, "three decisions")
	got = r.sample(time.Second, []int{2, 2}, Effort{}, Effort{10, 100})
	assert.Equal(t, RedisSample{Errors: 1, Latency: 5}, got, "no decision")
}

// Each state takes some memory, and what one ask leaves is not counted again for
// the next.
func TestRedisBytes(t *testing.T) {
	server := startRedis(t)
	for _, s := range RedisStates() {
		first, err := RedisBytes(server, s, 1)
		require.NoError(t, err)
		assert.Greater(t, first, int64(KeyLen), s.Name)
		again, err := RedisBytes(server, s, 1)
		require.NoError(t, err)
		assert.Less(t, again, 2*first, s.Name)
	}
}

func TestDeniedByStore(t *testing.T) {
	limiter, store, err := DeniedByStore(startRedis(t))
	require.NoError(t, err)
	for range 10 {
		assert.False(t, limiter.Allow(Varied.Key(0)))
		assert.False(t, store.Allow(Varied.Key(0)))
	}
}

func TestScriptTime(t *testing.T) {
	stats := strings.Join([]string{
		"# Commandstats",
		"cmdstat_get:calls=5,usec=1000,usec_per_call=200.00,rejected_calls=0,failed_calls=0",
		"cmdstat_evalsha:calls=4,usec=40,usec_per_call=10.00,rejected_calls=0,failed_calls=1",
		"cmdstat_eval:calls=1,usec=2,usec_per_call=2.00,rejected_calls=0,failed_calls=0",
		"",
	}, "\r\n")
	assert.Equal(t, 42*time.Microsecond, scriptTime(stats), "what scripts call is a part of their time")
	assert.Zero(t, scriptTime(""))
}

func TestRedisServer(t *testing.T) {
	s := startRedis(t)
	client := s.Client()
	require.NoError(t, client.Set(t.Context(), "a", strings.Repeat("a", 1000), 0).Err())
	bytes, err := s.bytes(t.Context())
	require.NoError(t, err)
	assert.Greater(t, bytes, int64(1000))
	require.NoError(t, s.empty(t.Context()))
	bytes, err = s.bytes(t.Context())
	require.NoError(t, err)
	assert.Zero(t, bytes)

	require.NoError(t, s.Close())
	assert.NoDirExists(t, s.dir)
	assert.Error(t, client.Ping(context.Background()).Err())
}

func TestNoRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("RATELIMIT_REQUIRE_REDIS", "")
	_, err := StartRedis(t.Context())
	require.ErrorIs(t, err, ErrNoRedis)

	t.Setenv("RATELIMIT_REQUIRE_REDIS", "1")
	_, err = StartRedis(t.Context())
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNoRedis)
}

func BenchmarkRedis(b *testing.B) {
	server := startRedis(b)
	for _, s := range RedisSpecs() {
		b.Run("algo="+s.Name, func(b *testing.B) {
			for _, w := range []RedisWork{
				{1, 1, false}, {1, 64, false}, {10_000, 64, false},
				{1000, 1, true}, {1000, 2, false}, {1000, 2, true}, {1000, 4, false}, {1000, 4, true},
			} {
				b.Run(w.String(), func(b *testing.B) { benchmarkRedis(b, server, s, w) })
			}
		})
	}
}

// benchmarkRedis shares b.N asks among the callers.
func benchmarkRedis(b *testing.B, server *RedisServer, s RedisSpec, w RedisWork) {
	r, err := NewRedisRun(server, s, w)
	require.NoError(b, err)
	defer r.Close()
	var left, failed atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, atOnce(len(r.keys), func(i int) error {
		for left.Add(-1) >= 0 {
			allowed, err := w.call(r.ask, strings.Clone(r.keys[i].Next()))
			if err != nil {
				failed.Add(1)
			} else if !allowed {
				return fmt.Errorf("%s: denied", s.Name)
			}
		}
		return nil
	}))
	b.StopTimer()
	decisions := int64(b.N) - failed.Load()
	b.ReportMetric(float64(decisions)/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(100*float64(failed.Load())/float64(b.N), "%errors")
}

func BenchmarkRedisDenied(b *testing.B) {
	limiter, store, err := DeniedByStore(startRedis(b))
	require.NoError(b, err)
	for name, s := range map[string]Subject{"limiter": limiter, "store": store} {
		b.Run("algo="+name, func(b *testing.B) {
			keys := NewKeys(Varied, 1, 0)
			allowed := 0
			b.ReportAllocs()
			for b.Loop() {
				if s.Allow(keys.Next()) {
					allowed++
				}
			}
			require.Zero(b, allowed)
		})
	}
}
