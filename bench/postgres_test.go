package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/pgserver"
)

// startPostgres returns a server that ends with the test, or skips the test.
func startPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	s, err := StartPostgres(context.Background())
	if errors.Is(err, ErrNoPostgres) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestPostgresSubjectsLimitEachKey(t *testing.T) {
	server := startPostgres(t)
	for _, s := range PostgresSpecs() {
		t.Run(s.Name, func(t *testing.T) {
			require.NoError(t, server.execute(t.Context(), s.schema))
			pool, err := server.pool(t.Context(), s.Name, s.connections, 0)
			require.NoError(t, err)
			defer pool.Close()
			ask, stop, err := s.start(t.Context(), pool, Limit{Rate: 2, Per: forever, Burst: 2, MaxKeys: 100}, PostgresWork{})
			require.NoError(t, err)
			defer stop()
			for _, key := range []string{"a", "b", "ab"} {
				for i, want := range []bool{true, true, false, false} {
					got, err := ask(t.Context(), key)
					require.NoError(t, err)
					assert.Equal(t, want, got, "ask %d for %q", i, key)
				}
			}
			pool.Close()
			granted, err := ask(t.Context(), "c")
			assert.False(t, granted, "what is no decision of the server is no grant")
			assert.Error(t, err)
		})
	}
}

// TestPostgresRun takes all figures of all subjects on a real server.
func TestPostgresRun(t *testing.T) {
	server := startPostgres(t)
	for _, s := range PostgresSpecs() {
		for _, w := range []PostgresWork{
			{Keys: 1, Callers: 1, Processes: 1},
			{Keys: 100, Callers: 8, Processes: 3},
			{Keys: 10, Callers: 2, Processes: 1, Trip: time.Millisecond},
			{Keys: 10, Callers: 2, Processes: 2, Denied: true},
		} {
			t.Run(s.Name+"/"+w.String(), func(t *testing.T) {
				r, err := NewPostgresRun(t.Context(), server, s, w)
				require.NoError(t, err)
				defer r.Close()
				var got PostgresSample
				for range 2 {
					got, err = r.Time(t.Context(), time.Millisecond)
					require.NoError(t, err)
				}
				assert.Positive(t, got.PerSecond)
				assert.GreaterOrEqual(t, got.Latency, w.Trip)
				assert.GreaterOrEqual(t, got.P99, got.Latency)
				assert.GreaterOrEqual(t, got.Share, 1.0)
				if s.Name == "limiter" && w.Denied {
					assert.Zero(t, got.Log, "a denial writes nothing")
				} else {
					assert.Positive(t, got.Log)
				}
				sizes, err := r.Sizes(t.Context())
				require.NoError(t, err)
				assert.GreaterOrEqual(t, sizes.Key*float64(w.Keys), 2*8192.0, "the table and its index have a page each")
				assert.LessOrEqual(t, sizes.Key*float64(w.Keys), 12*8192.0, "no page stays empty")
				switch {
				case !w.Denied:
					assert.Positive(t, sizes.InPlace)
					assert.LessOrEqual(t, sizes.InPlace, 1.0)
				case s.Name != "upsert":
					assert.Zero(t, sizes.InPlace, "a denial updates nothing")
				}
			})
		}
	}
}

// TestPostgresRunChecksOutcomes has calls with another outcome than the work says, and then calls that fail.
func TestPostgresRunChecksOutcomes(t *testing.T) {
	server := startPostgres(t)
	for _, s := range PostgresSpecs() {
		for _, denied := range []bool{false, true} {
			r, err := NewPostgresRun(t.Context(), server, s, PostgresWork{Keys: 1, Callers: 1, Processes: 1, Denied: denied})
			require.NoError(t, err)
			r.work.Denied = !denied
			_, err = r.Time(t.Context(), time.Millisecond)
			assert.EqualError(t, err, "bench: "+s.Name+": "+map[bool]string{true: "denied", false: "allowed"}[denied])
			r.work.Denied = denied
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			assert.ErrorIs(t, r.call(ended, r.asks[0], "a"), context.Canceled)
			r.Close()
			r.Close() // does nothing
		}
	}
}

// TestPostgresDenialsNeedTheServer has denials that no process remembers.
func TestPostgresDenialsNeedTheServer(t *testing.T) {
	server := startPostgres(t)
	r, err := NewPostgresRun(t.Context(), server, PostgresSpecs()[0], PostgresWork{Keys: 1, Callers: 1, Processes: 1, Denied: true})
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, r.call(t.Context(), r.asks[0], Varied.Key(0)))
	server.server.Stop()
	assert.Error(t, r.call(t.Context(), r.asks[0], Varied.Key(0)))
}

// TestPostgresRunFails ends the server during a run, and before one.
func TestPostgresRunFails(t *testing.T) {
	server := startPostgres(t)
	w, upsert := PostgresWork{Keys: 1, Callers: 1, Processes: 1}, PostgresSpecs()[2]
	r, err := NewPostgresRun(t.Context(), server, upsert, w)
	require.NoError(t, err)
	defer r.Close()
	server.server.Stop()
	_, err = r.Time(t.Context(), time.Millisecond)
	assert.Error(t, err)
	_, err = r.Sizes(t.Context())
	assert.Error(t, err)
	_, err = NewPostgresRun(t.Context(), server, upsert, w)
	assert.ErrorContains(t, err, "bench: upsert: ")
}

func TestPostgresSample(t *testing.T) {
	r := &PostgresRun{
		work:  PostgresWork{Callers: 2, Processes: 2},
		times: [][]time.Duration{{5, 1}, {3, 7}, {9}, {2}},
	}
	got := r.sample(2*time.Second, 300)
	assert.Equal(t, PostgresSample{PerSecond: 3, Latency: 5, P99: 9, Share: 2, Log: 50}, got)

	assert.Equal(t, "keys=10k/callers=64/processes=1", PostgresWork{Keys: 10_000, Callers: 64, Processes: 1}.String())
	assert.Equal(t, "keys=1/callers=8/processes=8/trip=1ms/denied",
		PostgresWork{Keys: 1, Callers: 8, Processes: 8, Trip: time.Millisecond, Denied: true}.String())
}

// TestDistantConn has a message that arrives later by the whole trip.
func TestDistantConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := &distantConn{near, time.Millisecond}
		began := time.Now()
		go func() {
			_, _ = c.Write([]byte("a"))
			_ = c.Close()
		}()
		got, err := io.ReadAll(far)
		require.NoError(t, err)
		assert.Equal(t, "a", string(got))
		assert.Equal(t, time.Millisecond, time.Since(began))
	})
}

func TestPostgresServer(t *testing.T) {
	s := startPostgres(t)
	ctx := context.Background()
	pool, err := s.pool(ctx, "test", 1, time.Millisecond)
	require.NoError(t, err)
	defer pool.Close()
	var set string
	require.NoError(t, pool.QueryRow(ctx, "show synchronous_commit").Scan(&set))
	assert.Equal(t, "off", set)

	before, err := s.written(ctx)
	require.NoError(t, err)
	require.NoError(t, s.execute(ctx, "create table test (n int); insert into test values (1); update test set n = 2"))
	after, err := s.written(ctx)
	require.NoError(t, err)
	assert.Greater(t, after, before)
	size, err := s.size(ctx, "test")
	require.NoError(t, err)
	assert.EqualValues(t, 8192, size)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.inPlace(ended, "test", "test")
	assert.Error(t, err)
	_, err = s.size(ctx, "none")
	assert.Error(t, err)

	require.NoError(t, s.Close())
	assert.NoDirExists(t, s.server.Dir)
	assert.Error(t, pool.Ping(ctx))
}

func TestNoPostgresServer(t *testing.T) {
	folders := pgserver.Folders
	defer func() { pgserver.Folders = folders }()
	pgserver.Folders = filepath.Join(t.TempDir(), "*")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("RATELIMIT_REQUIRE_POSTGRES", "")
	_, err := StartPostgres(t.Context())
	require.ErrorIs(t, err, ErrNoPostgres)

	t.Setenv("RATELIMIT_REQUIRE_POSTGRES", "1")
	_, err = StartPostgres(t.Context())
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNoPostgres)
}

func BenchmarkPostgres(b *testing.B) {
	server := startPostgres(b)
	for _, s := range PostgresSpecs() {
		b.Run("algo="+s.Name, func(b *testing.B) {
			for _, w := range []PostgresWork{
				{Keys: 100, Callers: 1, Processes: 1}, {Keys: 100, Callers: 1, Processes: 1, Denied: true},
				{Keys: 1, Callers: 64, Processes: 1}, {Keys: 10_000, Callers: 64, Processes: 1}, {Keys: 1, Callers: 21, Processes: 3},
			} {
				b.Run(w.String(), func(b *testing.B) { benchmarkPostgres(b, server, s, w) })
			}
		})
	}
}

// benchmarkPostgres shares b.N asks among the callers.
func benchmarkPostgres(b *testing.B, server *PostgresServer, s PostgresSpec, w PostgresWork) {
	r, err := NewPostgresRun(b.Context(), server, s, w)
	require.NoError(b, err)
	defer r.Close()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, atOnce(len(r.keys), func(i int) error {
		for left.Add(-1) >= 0 {
			if err := r.call(b.Context(), r.asks[i/w.Callers], strings.Clone(r.keys[i].Next())); err != nil {
				return err
			}
		}
		return nil
	}))
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
