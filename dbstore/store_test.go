package dbstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
)

func ask(key string, requests int) ratelimit.Ask {
	return ratelimit.Ask{Rule: "r", Key: key, Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(requests), N: 1}
}

func one(t *testing.T, s *dbstore.Store, a ratelimit.Ask) ratelimit.Result {
	t.Helper()
	results, err := s.Take(t.Context(), []ratelimit.Ask{a})
	require.NoError(t, err)
	require.Len(t, results, 1)
	return results[0]
}

// realClock is the clock of the machine, or of the bubble of a test.
type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

// TestOneRoundTrip proves that a decision takes one call of the Backend if the value of the row is known, and that a denial or a
// look writes nothing.
func TestOneRoundTrip(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	m := newMemory(clock)
	s := newStore(t, m, patient, dbstore.WithClock(clock), dbstore.WithDenialCache(0))
	one(t, s, ask("a", 3))
	require.Equal(t, 2, m.Stats().Calls, "the first call asks for the time")
	one(t, s, ask("b", 3))
	one(t, s, ask("a", 3))
	one(t, s, ask("a", 3))
	require.Equal(t, 5, m.Stats().Calls)
	require.Equal(t, 4, m.Stats().Writes)
	require.False(t, one(t, s, ask("a", 3)).Allowed)
	look := ask("b", 3)
	look.Look = true
	require.True(t, one(t, s, look).Allowed)
	require.Equal(t, 7, m.Stats().Calls)
	require.Equal(t, 4, m.Stats().Writes, "a denial and a look write nothing")

	other := newStore(t, m, patient, dbstore.WithClock(clock))
	one(t, other, ask("b", 3))
	require.Equal(t, 0, one(t, s, ask("b", 3)).Remaining, "another process has taken one")
	require.Equal(t, dbstore.Stats{Decisions: 7, Transactions: 9, Misses: 1}, s.Stats())
}

// TestDenied denies without a call of the database, for as long as the database would deny.
func TestDenied(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	m := newMemory(clock)
	s := newStore(t, m, patient, dbstore.WithClock(clock))
	a := ratelimit.Ask{Rule: "r", Key: "a", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerSecond(2), N: 2}
	require.True(t, one(t, s, a).Allowed)
	_, denied := s.Denied(a)
	require.False(t, denied, "nothing was denied so far")
	require.Equal(t, time.Second, one(t, s, a).RetryAfter)
	calls := m.Stats().Calls
	clock.Advance(400 * time.Millisecond)
	res, denied := s.Denied(a)
	require.True(t, denied)
	require.Equal(t, 600*time.Millisecond, res.RetryAfter)
	require.Equal(t, res, one(t, s, a), "Take needs no call either")
	require.Equal(t, calls, m.Stats().Calls)
	require.EqualValues(t, 2, s.Stats().CacheHits)

	less := a
	less.N = 1
	clock.Advance(100 * time.Millisecond)
	_, denied = s.Denied(less)
	require.False(t, denied, "one token is there")
	slower := a
	slower.Rate = ratelimit.PerSecond(3)
	_, denied = s.Denied(slower)
	require.False(t, denied, "a denial at a new rate changes the row")
	counted := a
	counted.Penalty = ratelimit.Penalty{After: 3, Within: time.Minute, For: time.Minute}
	_, denied = s.Denied(counted)
	require.False(t, denied, "a denial that is a strike changes the row")
	clock.Advance(500 * time.Millisecond)
	_, denied = s.Denied(a)
	require.False(t, denied, "the tokens are there")

	require.True(t, one(t, s, a).Allowed)
	require.False(t, one(t, s, a).Allowed)
	require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{a}))
	_, denied = s.Denied(a)
	require.False(t, denied, "the key was reset")

	long := ask("b", 1)
	require.True(t, one(t, s, long).Allowed)
	require.False(t, one(t, s, long).Allowed)
	clock.Advance(time.Second)
	_, denied = s.Denied(long)
	require.True(t, denied)
	clock.Advance(1)
	_, denied = s.Denied(long)
	require.False(t, denied, "a second is over, so another process may have reset the key")
}

// TestBrokenRow changes rows. A request that needs such a row fails, and the store counts as healthy. All others go on, and a Reset
// repairs it.
func TestBrokenRow(t *testing.T) {
	for why, change := range map[string]func(key string, row []byte) []byte{
		"another version":      func(_ string, row []byte) []byte { row[0]++; return row },
		"a bit":                func(_ string, row []byte) []byte { row[3] ^= 1; return row },
		"cut":                  func(_ string, row []byte) []byte { return row[:len(row)-1] },
		"too short":            func(_ string, row []byte) []byte { return row[:2] },
		"empty":                func(string, []byte) []byte { return []byte{} },
		"foreign":              func(string, []byte) []byte { return []byte("hello, this is not a row") },
		"of another key":       nil,
		"of another algorithm": nil,
	} {
		t.Run(why, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(starts[0])
			m := newMemory(clock)
			writer := newStore(t, m, patient, dbstore.WithClock(clock))
			a, b := ask("a", 5), ask("b", 5)
			one(t, writer, a)
			if change == nil {
				other := ask("z", 5)
				if why == "of another algorithm" {
					other = a
					other.Algorithm = ratelimit.AlgorithmTokenBucket
				}
				var value []byte
				m.Edit(func(_ string, row []byte) []byte { value = row; return nil })
				one(t, writer, other)
				m.Edit(func(string, []byte) []byte { return value })
				a = other
			} else {
				m.Edit(change)
			}
			s := newStore(t, m, patient, dbstore.WithClock(clock))
			before := fmt.Sprintf("%q", m.Rows())
			_, err := s.Take(t.Context(), []ratelimit.Ask{a})
			require.ErrorIs(t, err, ratelimit.ErrStore)
			require.ErrorContains(t, err, fmt.Sprintf("dbstore: the row of rule %q, key %q is broken: ", "r", a.Key))
			var failure *dbstore.Error
			require.ErrorAs(t, err, &failure)
			require.True(t, failure.Answered())
			require.True(t, failure.NotDone())
			_, err = s.Take(t.Context(), []ratelimit.Ask{b, a})
			require.ErrorAs(t, err, &failure)
			require.Equal(t, before, fmt.Sprintf("%q", m.Rows()), "nothing was changed")
			require.Equal(t, 4, one(t, s, b).Remaining, "nothing was charged, and other keys go on")
			require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{a}))
			require.Equal(t, 4, one(t, s, a).Remaining)
		})
	}
}

// TestBrokenRecord does the same for the record of a request with an ID.
func TestBrokenRecord(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	m := newMemory(clock)
	s := newStore(t, m, patient, dbstore.WithClock(clock))
	once := ratelimit.Attempt{Client: "c", ID: "1", TTL: time.Hour}
	_, _, err := s.Once(t.Context(), once, []ratelimit.Ask{ask("a", 5)})
	require.NoError(t, err)
	m.Edit(func(key string, row []byte) []byte {
		if strings.HasPrefix(key, "o") {
			row[2] ^= 1
		}
		return row
	})
	_, _, err = s.Once(t.Context(), once, []ratelimit.Ask{ask("a", 5)})
	require.ErrorContains(t, err, "dbstore: the record of a request with an ID is broken: its checksum is wrong")
	require.Equal(t, 3, one(t, s, ask("a", 5)).Remaining, "nothing was charged")
}

// TestNames proves that rows have short keys, and that no two states share one.
func TestNames(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	m := newMemory(clock)
	s := newStore(t, m, patient, dbstore.WithClock(clock))
	n := 0
	for _, rule := range []string{"", "a", "ab", strings.Repeat("r", 198), strings.Repeat("r", 199), strings.Repeat("r", 1<<16)} {
		for _, key := range []string{"", "b", "ab", strings.Repeat("k", 1<<20)} {
			for _, warmup := range []ratelimit.Warmup{{}, {From: 1, Over: time.Hour}} {
				a := ask(key, 5)
				a.Rule, a.Warmup = rule, warmup
				require.True(t, one(t, s, a).Allowed)
				n++
			}
		}
	}
	require.Len(t, m.Rows(), n)
	for key := range m.Rows() {
		require.LessOrEqual(t, len(key), 200)
	}
}

// TestTimeLimit hangs the database. Each caller returns at its time limit, and all failures of a transaction are one.
func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(realClock{})
		s := newStore(t, m)
		one(t, s, ask("a", 100))
		m.before = func(ctx context.Context, _ []dbstore.Group) error { <-ctx.Done(); return ctx.Err() }
		numbers := make(map[uint64]int)
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				began := time.Now()
				_, err := s.Take(t.Context(), []ratelimit.Ask{ask([]string{"a", "b", "c"}[i%3], 100)})
				assert.Equal(t, 200*time.Millisecond, time.Since(began))
				assert.ErrorIs(t, err, ratelimit.ErrStore)
				assert.NotErrorIs(t, err, context.DeadlineExceeded)
				var failure *dbstore.Error
				if assert.ErrorAs(t, err, &failure) {
					assert.False(t, failure.Answered())
					mu.Lock()
					numbers[failure.Call()]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, len(numbers), 4)
		require.NotContains(t, numbers, uint64(0))
		<-time.After(time.Second)
		synctest.Wait()
		m.before = nil
		require.True(t, one(t, s, ask("a", 100)).Allowed, "the database is back")
	})
}

// TestLeft ends the context of a caller while its call runs.
func TestLeft(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(realClock{})
			s := newStore(t, m)
			one(t, s, ask("a", 100))
			m.before = func(context.Context, []dbstore.Group) error {
				<-time.After(50 * time.Millisecond)
				if fails {
					return errLost
				}
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := s.Take(ctx, []ratelimit.Ask{ask("a", 100)})
			require.Equal(t, 10*time.Millisecond, time.Since(began))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var later ratelimit.StoreErrorLater
			require.ErrorAs(t, err, &later)
			told := make(chan error, 2)
			later.Later(func(err error) { told <- err })
			err = <-told
			require.Equal(t, 50*time.Millisecond, time.Since(began))
			if fails {
				require.ErrorIs(t, err, errLost)
			} else {
				require.NoError(t, err)
			}
			later.Later(func(err error) { told <- err })
			require.Equal(t, fails, <-told != nil, "also if the call has ended before")
			<-time.After(time.Second)
			require.Empty(t, told)
		})
	}
}

// TestJoin lets many callers wait while transactions run. The next ones take all that waits.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(realClock{})
		s := newStore(t, m, dbstore.WithTimeout(time.Minute))
		one(t, s, ask("0", 1000))
		var running, most atomic.Int64
		m.before = func(context.Context, []dbstore.Group) error {
			most.Store(max(most.Load(), running.Add(1)))
			<-time.After(time.Millisecond)
			running.Add(-1)
			return nil
		}
		calls := m.Stats().Calls
		var all sync.WaitGroup
		for i := range 3000 {
			all.Go(func() {
				results, err := s.Take(t.Context(), []ratelimit.Ask{ask(fmt.Sprint(i%300), 1000)})
				assert.NoError(t, err)
				assert.True(t, results[0].Allowed)
			})
		}
		all.Wait()
		require.EqualValues(t, 4, most.Load())
		require.LessOrEqual(t, m.Stats().Largest, 64)
		require.Less(t, m.Stats().Calls-calls, 60, "3,000 calls for 300 rows")
		for i := range 300 {
			look := ask(fmt.Sprint(i), 1000)
			look.N = 0
			want := 990
			if i == 0 {
				want--
			}
			require.Equal(t, want, one(t, s, look).Remaining)
		}
	})
}

// TestLockedRow has a row that somebody else has locked. Requests for other keys go on: the row is soon in transactions of its own.
func TestLockedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(realClock{})
		s := newStore(t, m)
		one(t, s, ask("free", 1000))
		m.before = func(ctx context.Context, groups []dbstore.Group) error {
			for _, g := range groups {
				for _, c := range g.Changes {
					if bytes.Contains(c.Key, []byte("locked")) {
						<-ctx.Done()
						return dbstore.NotDone(errors.New("the row is locked"))
					}
				}
			}
			<-time.After(time.Millisecond)
			return nil
		}
		var all sync.WaitGroup
		for i := range 200 {
			key := fmt.Sprint(i % 20)
			if i%20 == 7 {
				key = "locked"
			}
			all.Go(func() {
				began := time.Now()
				_, err := s.Take(t.Context(), []ratelimit.Ask{ask(key, 1000)})
				if assert.Equal(t, key == "locked", err != nil, "%v", err); key == "locked" {
					assert.LessOrEqual(t, time.Since(began), 200*time.Millisecond)
					return
				}
				assert.Less(t, time.Since(began), 200*time.Millisecond)
			})
		}
		all.Wait()
		began := time.Now()
		all.Go(func() { _, _ = s.Take(t.Context(), []ratelimit.Ask{ask("locked", 1000)}) })
		for i := range 20 {
			all.Go(func() {
				_, err := s.Take(t.Context(), []ratelimit.Ask{ask(fmt.Sprint(i), 1000)})
				assert.NoError(t, err)
				assert.LessOrEqual(t, time.Since(began), 20*time.Millisecond, "the locked row is apart")
			})
		}
		all.Wait()
	})
}

// TestContended has other processes that change the row each time. The error says so, and the store counts as healthy.
func TestContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(realClock{})
		s := newStore(t, m)
		one(t, s, ask("a", 1000))
		m.before = func(_ context.Context, groups []dbstore.Group) error {
			<-time.After(3 * time.Millisecond)
			for i := range groups {
				groups[i].Changes[0].Read = true
			}
			return nil
		}
		began := time.Now()
		_, err := s.Take(t.Context(), []ratelimit.Ask{ask("a", 1000)})
		require.Error(t, err)
		require.LessOrEqual(t, time.Since(began), 200*time.Millisecond)
		<-time.After(time.Second)
		synctest.Wait()
		require.Less(t, m.Stats().Calls, 100)
		m.before = nil
		require.Equal(t, 998, one(t, s, ask("a", 1000)).Remaining, "nothing was charged")
	})
}

// TestOptions proves that mistakes are errors at once.
func TestOptions(t *testing.T) {
	m := newMemory(realClock{})
	for want, opts := range map[string][]dbstore.Option{
		"timeout is 0s: must be longer than zero":   {dbstore.WithTimeout(0)},
		"denialCache is -1ns: must not be negative": {dbstore.WithDenialCache(-1)},
		"options[1] is <nil>: must not be nil":      {dbstore.WithTimeout(1), nil},
	} {
		_, err := dbstore.New(m, opts...)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.EqualError(t, err, "ratelimit: "+want)
	}
	_, err := dbstore.New(nil)
	require.EqualError(t, err, "ratelimit: backend is <nil>: must not be nil")
	var zero dbstore.Store
	_, err = zero.Take(t.Context(), nil)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorIs(t, zero.Reset(t.Context(), nil), ratelimit.ErrInvalidConfig)
	_, denied := zero.Denied(ask("a", 1))
	require.False(t, denied)
	require.Zero(t, (*dbstore.Store)(nil).Stats())
	log := ratelimit.Rule{Name: "log", Endpoint: "/", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(1001)}
	_, err = ratelimit.New([]ratelimit.Rule{log}, nil, ratelimit.WithStore(newStore(t, m, patient)), ratelimit.WithName("n"))
	require.ErrorContains(t, err, "requests must be at most 1000 for SlidingWindowLog in a database")
}

// TestErrorsOfAsks proves that bad asks get the errors of a MemoryStore, without a call of the database.
func TestErrorsOfAsks(t *testing.T) {
	m := newMemory(realClock{})
	s := newStore(t, m, patient)
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	good := ask("a", 5)
	bad := func(change func(a *ratelimit.Ask)) []ratelimit.Ask {
		a := good
		change(&a)
		return []ratelimit.Ask{a}
	}
	for _, asks := range [][]ratelimit.Ask{
		bad(func(a *ratelimit.Ask) { a.N = -1 }),
		bad(func(a *ratelimit.Ask) { a.Rate.Requests = 0 }),
		bad(func(a *ratelimit.Ask) { a.Algorithm = "x" }),
		bad(func(a *ratelimit.Ask) { a.Receipt = 1 }),
		bad(func(a *ratelimit.Ask) { a.Warmup.From = -1 }),
		{good, {Rule: "q", Key: "k", Algorithm: good.Algorithm, Rate: good.Rate, Look: true}},
		{},
	} {
		want, wantErr := memory.Take(t.Context(), asks)
		got, err := s.Take(t.Context(), asks)
		require.Equal(t, wantErr, err)
		require.Equal(t, want, got)
		_, err = s.Take(ended, asks)
		require.Equal(t, context.Canceled, err)
		for _, once := range []ratelimit.Attempt{{}, {ID: "1"}, {ID: "1", TTL: time.Hour}} {
			_, _, wantErr = memory.Once(t.Context(), once, asks)
			_, _, err = s.Once(t.Context(), once, asks)
			if len(asks) != 2 || once.TTL == 0 {
				require.Equal(t, wantErr, err)
			}
		}
	}
	for _, asks := range [][]ratelimit.Ask{
		{good},
		bad(func(a *ratelimit.Ask) { a.Receipt, a.N = 1, -1 }),
		bad(func(a *ratelimit.Ask) { a.Receipt, a.Charged = 1, -1 }),
		bad(func(a *ratelimit.Ask) { a.Receipt, a.Rate.Requests = 1, 0 }),
		bad(func(a *ratelimit.Ask) { a.Receipt, a.N, a.Warmup.From = 1, 0, -1 }),
	} {
		require.EqualError(t, s.Settle(t.Context(), asks), memory.Settle(t.Context(), asks).Error())
	}
	require.Zero(t, m.Stats().Calls)
}
