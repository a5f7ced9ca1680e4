package sample

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDue has events of a few kinds.
func TestDue(t *testing.T) {
	s, now := New[string](time.Minute), time.Unix(0, 0)
	for _, row := range []struct {
		after   time.Duration
		kind    string
		skipped int
		ok      bool
		why     string
	}{
		{0, "a", 0, true, "the first"},
		{0, "a", 0, false, "one in the time"},
		{0, "b", 0, true, "each kind by itself"},
		{time.Minute - 1, "a", 0, false, "a nanosecond early"},
		{1, "a", 2, true, "on time, with the number of those left out"},
		{time.Hour, "a", 0, true, "they are counted once"},
	} {
		now = now.Add(row.after)
		skipped, ok := s.Due(row.kind, now)
		require.Equal(t, row.ok, ok, row.why)
		require.Equal(t, row.skipped, skipped, row.why)
	}
	all := New[string](0)
	for range 3 {
		skipped, ok := all.Due("a", now)
		require.True(t, ok)
		require.Zero(t, skipped)
	}
	require.Empty(t, all.kinds, "nothing is remembered where nothing is left out")
}

// TestKindsAreBounded floods a Sampler with kinds. Those beyond the bound count as one, until
// others are idle.
func TestKindsAreBounded(t *testing.T) {
	s, now := New[int](time.Minute), time.Unix(0, 0)
	passed := 0
	for i := range 3 * MaxKinds {
		if _, ok := s.Due(i, now); ok {
			passed++
		}
	}
	require.Equal(t, MaxKinds+1, passed, "one for each that is remembered, one for the rest")
	require.Len(t, s.kinds, MaxKinds)
	_, ok := s.Due(0, now)
	require.False(t, ok)

	now = now.Add(time.Minute)
	skipped, ok := s.Due(3*MaxKinds, now)
	require.True(t, ok)
	require.Zero(t, skipped)
	require.Len(t, s.kinds, 1, "the idle ones are forgotten")
	for i := range MaxKinds {
		s.Due(i, now)
	}
	require.Equal(t, 0, s.rest.skipped, "what was left out is told once")
}
