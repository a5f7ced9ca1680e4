package dbstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
)

// writtenBy returns the rows that the calls of f have written, by their keys.
func writtenBy(t *testing.T, clock ratelimit.Clock, f func(s *dbstore.Store)) map[string][]byte {
	t.Helper()
	m := newMemory(clock)
	f(newStore(t, m, patient, dbstore.WithClock(clock), dbstore.WithDenialCache(0)))
	return m.Rows()
}

// TestStored reads the state of each algorithm from its row, and compares it with the answer of the Store.
func TestStored(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	var asks []ratelimit.Ask
	for _, a := range append(ratelimit.Algorithms(), ratelimit.AlgorithmInFlight) {
		for _, key := range []string{"", "alice", "a\x00\xff:" + strings.Repeat("k", 50)} {
			asks = append(asks, ratelimit.Ask{Rule: "shop:" + string(a) + "\x00tokens", Key: key, Algorithm: a, Rate: ratelimit.PerHour(9), N: 4})
		}
		if a != ratelimit.AlgorithmInFlight {
			asks = append(asks, ratelimit.Ask{Rule: "shop:young", Key: "new", Algorithm: a, Rate: ratelimit.PerHour(50), N: 3,
				Warmup: ratelimit.Warmup{From: 10, Over: time.Hour}})
		}
	}
	looks := make(map[string]ratelimit.Result)
	name := func(a *ratelimit.Ask) string { return fmt.Sprint(a.Rule, " ", a.Key, " ", a.Algorithm) }
	rows := writtenBy(t, clock, func(s *dbstore.Store) {
		for _, a := range asks {
			if a.Algorithm == ratelimit.AlgorithmInFlight {
				a.Receipt, a.HoldFor = 7, time.Hour
			}
			require.True(t, one(t, s, a).Allowed)
		}
		clock.Advance(time.Minute)
		for _, a := range asks {
			a.N, a.Look = 0, true
			looks[name(&a)] = one(t, s, a)
		}
	})
	require.Len(t, rows, len(asks))
	seen := make(map[string]bool)
	for key, value := range rows {
		s, ok := dbstore.StoredIn([]byte(key), value)
		require.True(t, ok)
		require.False(t, s.Hashed)
		require.Equal(t, s.Ask.Rule == "shop:young", s.Warms)
		s.Ask.Rate = ratelimit.PerHour(9)
		if s.Warms {
			s.Ask.Rate, s.Ask.Warmup = ratelimit.PerHour(50), ratelimit.Warmup{From: 10, Over: time.Hour}
		}
		want, known := looks[name(&s.Ask)]
		require.True(t, known, "%q", name(&s.Ask))
		seen[name(&s.Ask)] = true
		got, err := s.Look(clock.Now())
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", name(&s.Ask))
		require.Less(t, got.Remaining, got.Limit)
		got, err = s.Look(clock.Now().Add(1000 * time.Hour))
		require.NoError(t, err)
		asNew := 9
		if s.Warms {
			asNew = 10 // as Warmup.From says
		}
		require.Equal(t, asNew, got.Remaining, "much later, the key is as good as new")
		require.True(t, s.ChargedAt(s.Ask.Rate))
		require.False(t, s.ChargedAt(ratelimit.PerHour(10)))
		require.False(t, s.ChargedAt(ratelimit.Rate{}))
	}
	require.Len(t, seen, len(asks))
}

// TestStoredTier tells at which rate a key was charged, and that a bucket of 2 per 2 s with a burst is one of 1 per second with it.
func TestStoredTier(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	paid := ratelimit.Rate{Requests: 600, Per: time.Hour, Burst: 90}
	rows := writtenBy(t, clock, func(s *dbstore.Store) {
		one(t, s, ratelimit.Ask{Rule: "r", Key: "carol", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: paid, N: 30})
	})
	require.Len(t, rows, 1)
	for key, value := range rows {
		s, ok := dbstore.StoredIn([]byte(key), value)
		require.True(t, ok)
		require.True(t, s.ChargedAt(paid))
		require.True(t, s.ChargedAt(ratelimit.Rate{Requests: 10, Per: time.Minute, Burst: 90}), "the same bucket")
		require.False(t, s.ChargedAt(ratelimit.Rate{Requests: 600, Per: time.Hour, Burst: 91}))
		require.False(t, s.ChargedAt(ratelimit.Rate{Requests: 601, Per: time.Hour, Burst: 90}))
	}
}

// TestStoredPenalty shows a key that a Penalty blocks, and leaves nothing of one row in the answer of the next.
func TestStoredPenalty(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	penalty := ratelimit.Penalty{After: 2, Within: time.Hour, For: 3 * time.Hour, Most: 3 * time.Hour}
	a := ratelimit.Ask{Rule: "r", Key: "evil", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(1), N: 1, Penalty: penalty}
	rows := writtenBy(t, clock, func(s *dbstore.Store) {
		for range 3 {
			one(t, s, a)
		}
	})
	require.Len(t, rows, 1)
	for key, value := range rows {
		s, ok := dbstore.StoredIn([]byte(key), value)
		require.True(t, ok)
		s.Ask.Rate, s.Ask.Penalty = a.Rate, penalty
		for range 2 {
			res, err := s.Look(clock.Now())
			require.NoError(t, err)
			require.Equal(t, 3*time.Hour, res.RetryAfter)
			require.Equal(t, ratelimit.ReasonPenalty, res.Reason)
		}
		other, ok := dbstore.StoredIn([]byte(key), nil)
		require.True(t, ok)
		other.Ask.Rate, other.Ask.Penalty = a.Rate, penalty
		res, err := other.Look(clock.Now())
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.Equal(t, 1, res.Remaining)
	}
}

// TestNotStored has rows that are no state, or whose state cannot be read.
func TestNotStored(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	rows := writtenBy(t, clock, func(s *dbstore.Store) {
		a := ask("a", 3)
		_, _, err := s.Once(t.Context(), ratelimit.Attempt{Client: "c", ID: "1", TTL: time.Hour}, []ratelimit.Ask{a})
		require.NoError(t, err)
		one(t, s, ask(strings.Repeat("k", 200), 3))
	})
	require.Len(t, rows, 3)
	var states, hashed int
	for key, value := range rows {
		s, ok := dbstore.StoredIn([]byte(key), value)
		switch {
		case !ok:
			require.Equal(t, byte('o'), key[0])
			continue
		case s.Hashed:
			hashed++
			require.Zero(t, s.Ask)
			_, err := s.Look(clock.Now())
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			continue
		}
		states++
		s.Ask.Rate = ratelimit.PerHour(3)
		_, err := s.Look(clock.Now())
		require.NoError(t, err)
		broken, ok := dbstore.StoredIn([]byte(key), append([]byte{value[0] + 1}, value[1:]...))
		require.True(t, ok)
		broken.Ask.Rate = s.Ask.Rate
		_, err = broken.Look(clock.Now())
		var failed *dbstore.Error
		require.ErrorAs(t, err, &failed)
		require.True(t, failed.Answered())
		require.EqualError(t, err, `dbstore: the row of rule "r", key "a" is broken: its value has version 2, which this version `+
			`of the library does not know`)
		require.False(t, broken.ChargedAt(s.Ask.Rate))
		s.Ask.Rate = ratelimit.Rate{}
		_, err = s.Look(clock.Now())
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	}
	require.Equal(t, 1, states)
	require.Equal(t, 1, hashed)
	for _, key := range []string{"", "t", "z\x01rk", "!probe", "t\x05rule", "t\xff", "#short", "H", "f\x01r" + strings.Repeat("k", 198)} {
		_, ok := dbstore.StoredIn([]byte(key), nil)
		require.False(t, ok, "%q", key)
	}
}
