package breaker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

var errDown = errors.New("down")

// errStore is the error of the store, which every refusal wraps.
var errStore = errors.New("store failed")

func asStoreError(err error) error { return fmt.Errorf("%w: %w", errStore, err) }

// later is the instant this long after the start.
func later(d time.Duration) keytable.Instant { return keytable.InstantAt(d) }

// letsThrough reports whether b permits a call at d after the start, and then reports that call as
// abandoned.
func letsThrough(t *testing.T, b *breaker, d time.Duration) bool {
	t.Helper()
	p, err := b.admit(later(d))
	if err != nil {
		require.ErrorIs(t, err, errStore)
		require.ErrorIs(t, err, errDown, "why the last call failed")
		return false
	}
	b.abandoned(p)
	return true
}

// fail makes n calls fail at d after the start.
func fail(t *testing.T, b *breaker, d time.Duration, n int) {
	t.Helper()
	for range n {
		p, err := b.admit(later(d))
		require.NoError(t, err)
		b.failed(p, later(d), errDown, 0, asStoreError)
	}
}

func TestBreakerOpensAfterFiveFailuresInARow(t *testing.T) {
	var b breaker
	for range 3 {
		fail(t, &b, 0, 4)
		require.True(t, letsThrough(t, &b, 0), "four are not enough")
		p, err := b.admit(later(0))
		require.NoError(t, err)
		b.succeeded(p)
	}
	fail(t, &b, 0, 4)
	p, err := b.admit(later(0))
	require.NoError(t, err)
	b.abandoned(p)
	fail(t, &b, 0, 1)
	require.False(t, letsThrough(t, &b, 0), "what a caller gave up is no answer: this was the fifth in a row")
}

func TestBreakerPauses(t *testing.T) {
	for round := range 100 { // pauses are drawn by lot
		var b breaker
		at := time.Duration(0)
		fail(t, &b, at, failuresToOpen)
		for i, millis := range []int{50, 100, 200, 400, 500, 500, 500} {
			want := time.Duration(millis) * time.Millisecond
			require.False(t, letsThrough(t, &b, at), "pause %d of round %d", i, round)
			require.False(t, letsThrough(t, &b, at+want/2), "pause %d is shortened by at most half", i)
			at += want
			require.True(t, letsThrough(t, &b, at), "pause %d is over", i)
			fail(t, &b, at, 1)
		}
		at += lastPause
		p, err := b.admit(later(at))
		require.NoError(t, err)
		b.succeeded(p)
		fail(t, &b, at, failuresToOpen-1)
		require.True(t, letsThrough(t, &b, at), "the store is back: one failure is not enough any more")
		fail(t, &b, at, 1)
		require.True(t, letsThrough(t, &b, at+firstPause), "and pauses are short again")
	}
}

func TestBreakerPausesDiffer(t *testing.T) {
	lengths := map[keytable.Instant]bool{}
	for range 100 {
		var b breaker
		fail(t, &b, 0, failuresToOpen)
		lengths[b.pause.Load().to] = true
	}
	require.Greater(t, len(lengths), 50, "processes do not all ask at once")
}

func TestBreakerLetsOneProbeThrough(t *testing.T) {
	var b breaker
	fail(t, &b, 0, failuresToOpen)
	at := firstPause
	p, err := b.admit(later(at))
	require.NoError(t, err)
	for _, d := range []time.Duration{at, at + time.Hour, -time.Hour} {
		require.False(t, letsThrough(t, &b, d), "a probe is on its way, at %v", d)
	}
	b.abandoned(p)
	require.True(t, letsThrough(t, &b, at), "nobody knows: another one finds out")
	p, err = b.admit(later(at))
	require.NoError(t, err)
	b.failed(p, later(at), errDown, 0, asStoreError)
	require.False(t, letsThrough(t, &b, at+firstPause), "the next pause is twice as long")
	p, err = b.admit(later(at + 2*firstPause))
	require.NoError(t, err)
	b.succeeded(p)
	require.True(t, letsThrough(t, &b, at), "the store is back")
}

func TestBreakerHearsOfOldCalls(t *testing.T) {
	var b breaker
	var old []passage
	for range 20 {
		p, err := b.admit(later(0))
		require.NoError(t, err)
		old = append(old, p)
	}
	fail(t, &b, 0, failuresToOpen)
	opened := b.pause.Load()
	for _, p := range old[:15] {
		b.failed(p, later(10*time.Millisecond), errDown, 0, asStoreError)
	}
	require.Same(t, opened, b.pause.Load(), "calls from before the pause do not prolong it")
	b.succeeded(old[15])
	b.abandoned(old[16])
	require.Same(t, opened, b.pause.Load(), "nor end it: they say nothing of now")

	p, err := b.admit(later(firstPause))
	require.NoError(t, err)
	b.failed(old[17], later(firstPause), errDown, 0, asStoreError)
	b.abandoned(old[18])
	require.False(t, letsThrough(t, &b, firstPause), "nor do they stand for the probe")
	b.succeeded(p)
	b.failed(old[19], later(firstPause), errDown, 0, asStoreError)
	require.True(t, letsThrough(t, &b, firstPause), "one more old failure is one failure")
}

func TestBreakerOfAClockThatStepsBack(t *testing.T) {
	var b breaker
	fail(t, &b, time.Hour, failuresToOpen)
	require.False(t, letsThrough(t, &b, time.Hour))
	require.True(t, letsThrough(t, &b, time.Hour-1), "before the pause began, the clock does not say when it ends")
	fail(t, &b, 0, 1)
	require.False(t, letsThrough(t, &b, 0))
	require.True(t, letsThrough(t, &b, 2*firstPause), "the next pause is by the new time")
}

func TestBreakerAtTheEndOfTime(t *testing.T) {
	var b breaker
	end := keytable.End
	for range failuresToOpen {
		p, err := b.admit(end)
		require.NoError(t, err)
		b.failed(p, end, errDown, 0, asStoreError)
	}
	_, err := b.admit(end)
	require.NoError(t, err, "a clock that cannot move on does not keep it shut")
}
