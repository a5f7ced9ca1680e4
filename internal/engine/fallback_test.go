package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// fallbackOf returns a fallback whose two Keys grant each key 5 units, and have room for said and granted keys.
func fallbackOf(t *testing.T, line *Timeline, said, granted int) *fallback {
	t.Helper()
	return &fallback{Keys: quotasOf(t, line, 5, said), granted: quotasOf(t, line, 5, granted), time: line}
}

// TestFallbackWithoutRoom has a table that is full: a charge to a debt that several keys share cannot be given back, and
// leaves no receipt behind.
func TestFallbackWithoutRoom(t *testing.T) {
	for _, rooms := range [][2]int{{100, 1}, {1, 100}} {
		line := NewTimeline(&handClock{now: time.Unix(1, 0)}, nil)
		f := fallbackOf(t, &line, rooms[0], rooms[1])
		_, _, _, _ = f.Decide(bob, "", 1, 0)
		v, _, id, queued := f.Hold(alice, "", 2, time.Hour)
		require.True(t, v.Granted())
		require.False(t, queued)
		f.Settle(alice, id, 0, keytable.Start)
		require.Zero(t, f.Keys.issued().open, "room for %v", rooms)
		require.Zero(t, f.granted.issued().open, "room for %v", rooms)
	}
}

// TestFallbackOfAClockThatPanics proves that a panic of the clock leaves neither state of the key locked.
func TestFallbackOfAClockThatPanics(t *testing.T) {
	clock := &handClock{now: time.Unix(1, 0)}
	line := NewTimeline(clock, nil)
	f := fallbackOf(t, &line, 100, 100)
	clock.panics = true
	require.Panics(t, func() { _, _, _, _ = f.Decide(alice, "", 1, 0) })
	clock.panics = false
	v, _, _, _ := f.Decide(alice, "", 1, 0)
	require.EqualValues(t, 4, v.Left)
	require.EqualValues(t, 1, f.Counts().Allowed)
}

// TestFallbackIsReleased proves that Hold gives the receipts of both Keys a term, and that units are given back to both.
func TestFallbackIsReleased(t *testing.T) {
	line := NewTimeline(&handClock{now: time.Unix(1, 0)}, nil)
	f := fallbackOf(t, &line, 100, 100)
	_, _, id, _ := f.Hold(alice, "", 4, time.Hour)
	require.Equal(t, [2]int{1, 1}, [2]int{f.Keys.issued().terms, f.granted.issued().terms})
	require.EqualValues(t, 1, left(f, alice))
	require.EqualValues(t, 3, f.Settle(alice, id, 1, keytable.Start))
	require.EqualValues(t, 4, left(f, alice))
	require.EqualValues(t, 4, left(f.Keys, alice))
	require.EqualValues(t, 4, left(f.granted, alice))
	require.Zero(t, f.Settle(alice, id, 0, keytable.Start), "once")
}

// TestFallbackIsRefused proves that a rate that one of the Keys refuses changes neither.
func TestFallbackIsRefused(t *testing.T) {
	line := NewTimeline(&handClock{now: time.Unix(1, 0)}, nil)
	f := fallbackOf(t, &line, 100, 100)
	commit, err := f.Change(Rates{Base: Rate{Requests: -1, Per: time.Second}})
	require.ErrorIs(t, err, errRate)
	require.Nil(t, commit)
	broken := errors.New("no keys")
	_, err = NewFallback(&line, Rates{}, 1, func(*Timeline, Rates, int) (Keys, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
}

// TestFallbackRefusesARate proves that a decision says so if only one of the Keys cannot have the rate that the request
// asks for.
func TestFallbackRefusesARate(t *testing.T) {
	for i := range 2 {
		line := NewTimeline(&handClock{now: time.Unix(1, 0)}, nil)
		f := fallbackOf(t, &line, 100, 100)
		plans := []Keys{f.Keys, f.granted}[i].(*ratedKeys[quotaState, *quota]).plans.Load()
		plans.most, plans.refusals.TooMany = 0, func(Rate) error { return errRate }
		parts := []Part{{Keys: f, Question: Question{Hash: alice, Want: Wanted{Rate: &Rate{Requests: 9, Per: time.Second}}}}}
		require.True(t, decideFor(1, &line, parts, &Order{Within: AnyDelay}, 0).Passes)
		require.ErrorIs(t, parts[0].Err, errRate)
		require.EqualValues(t, 4, parts[0].Left, "the rule's own rate stands in")
	}
}
