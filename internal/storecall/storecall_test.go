package storecall

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

var (
	errDown     = errors.New("down")
	errStore    = errors.New("store failed")
	errNotReset = errors.New("not reset")
)

// An ask names a part of a store. A Settle of the ask is repeated for as long as the field lasts says.
type ask struct {
	part  int
	lasts time.Duration
}

// A plain store has no optional methods.
type plain struct {
	calls []string
	err   error
	extra int // how many results it returns too many
}

func (s *plain) called(name string, asks []ask) error {
	s.calls = append(s.calls, fmt.Sprint(name, " ", len(asks)))
	return s.err
}

func (s *plain) Take(_ context.Context, asks []ask) ([]int, error) {
	return make([]int, len(asks)+s.extra), s.called("take", asks)
}

func (s *plain) Reset(_ context.Context, asks []ask) error { return s.called("reset", asks) }

// A full store has all optional methods.
type full struct{ plain }

func (s *full) Part(a ask) int { return a.part }

func (s *full) Once(_ context.Context, attempt string, asks []ask) ([]int, bool, error) {
	return make([]int, len(asks)), true, s.called("once "+attempt, asks)
}

func (s *full) Settle(ctx context.Context, asks []ask) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.called("settle", asks)
}

// newCaller returns a Caller for the store, and its clock.
func newCaller(s Store[ask, int]) (*Caller[ask, int, string], *keytable.Instant) {
	now := new(keytable.Instant)
	return New[ask, int, string](s, Terms[ask]{
		Now:      func() keytable.Instant { return *now },
		Wrap:     func(err error) error { return fmt.Errorf("%w: %w", errStore, err) },
		NotReset: errNotReset,
		Lasts:    func(a *ask) time.Duration { return a.lasts },
	}), now
}

// take makes one call of Take for the asks, if the circuit breakers permit it.
func take(c *Caller[ask, int, string], attempt *string, asks ...ask) (replayed bool, err error) {
	pass, err := c.Breakers.Admit(c.PartsOf(asks...), c.terms.Now())
	if err == nil {
		_, replayed, err = c.Take(context.Background(), pass, attempt, asks)
	}
	return replayed, err
}

// TestParts proves that only the parts of failed calls are left alone, and that a store without the method Part is one part.
func TestParts(t *testing.T) {
	one, _ := newCaller(&plain{err: errDown})
	require.False(t, one.HasParts())
	require.EqualValues(t, 1, one.PartsOf(ask{part: 3}))
	s := &full{plain{err: errDown}}
	c, _ := newCaller(s)
	require.True(t, c.HasParts())
	require.EqualValues(t, 1<<3|1<<5, c.PartsOf(ask{part: 3}, ask{part: 5}))
	for range 5 {
		_, err := take(c, nil, ask{part: 3})
		require.Equal(t, errDown, err, "the error of the store, unchanged")
	}
	s.err = nil
	_, err := take(c, nil, ask{part: 3})
	require.ErrorIs(t, err, errStore, "a refusal")
	_, err = take(c, nil, ask{part: 5})
	require.NoError(t, err)
	require.Len(t, s.calls, 6)
}

// TestTake proves which method of the store is called, and that the results are counted.
func TestTake(t *testing.T) {
	s, attempt := &full{}, "a"
	c, _ := newCaller(s)
	replayed, err := take(c, &attempt, ask{}, ask{})
	require.NoError(t, err)
	require.True(t, replayed)
	s.extra = 1
	_, err = take(c, nil, ask{})
	require.EqualError(t, err, "2 results for 1 asks")
	s.err = errDown
	replayed, err = take(c, &attempt, ask{})
	require.Equal(t, errDown, err)
	require.False(t, replayed, "nothing is known of a call that has failed")
	require.Equal(t, []string{"once a 2", "take 1", "once a 1"}, s.calls)
}

// TestLook proves that the breakers can refuse a Look, but do not learn from it.
func TestLook(t *testing.T) {
	s, attempt := &full{plain{err: errDown}}, "a"
	c, _ := newCaller(s)
	look := func() error {
		_, _, err := c.Look(t.Context(), c.PartsOf(ask{}), 0, &attempt, []ask{{}})
		return err
	}
	for range 9 {
		require.Equal(t, errDown, look())
	}
	require.Zero(t, c.Breakers.Stats().Asked)
	for range 5 {
		_, err := take(c, nil, ask{})
		require.Equal(t, errDown, err)
	}
	require.ErrorIs(t, look(), errStore)
	require.Len(t, s.calls, 14)
}

// TestSettle proves that failed calls are repeated after the next success, for as long as Terms say.
func TestSettle(t *testing.T) {
	s := &full{plain{err: errDown}}
	c, now := newCaller(s)
	sent, err := c.Settle(t.Context(), []ask{{}, {lasts: 10}, {lasts: 20}, {lasts: 30}})
	require.True(t, sent)
	require.ErrorIs(t, err, errStore)
	s.err, *now = nil, 10
	_, err = take(c, nil, ask{})
	require.NoError(t, err)
	require.Equal(t, []string{"settle 4", "take 1", "settle 2"}, s.calls, "the first is not to be repeated, the second is of no use")
	_, err = take(c, nil, ask{})
	require.NoError(t, err)
	require.Len(t, s.calls, 4, "the repeated call has succeeded")

	s.err = errDown
	for range 5 {
		sent, _ = c.Settle(t.Context(), []ask{{}})
		require.True(t, sent)
	}
	sent, err = c.Settle(t.Context(), []ask{{lasts: 10 * time.Second}})
	require.False(t, sent, "refused")
	require.ErrorIs(t, err, errStore)
	s.err, *now = nil, now.Add(time.Second)
	s.calls = nil
	left, cancel := context.WithCancel(t.Context())
	cancel()
	pass, err := c.Breakers.Admit(1, *now)
	require.NoError(t, err)
	_, _, err = c.Take(left, pass, nil, []ask{{}})
	require.NoError(t, err)
	require.Equal(t, []string{"take 1", "settle 1"}, s.calls, "also if the caller whose call has succeeded has left")
}

// TestReset proves that a Reset is sent while the breakers refuse calls, and what its errors are.
func TestReset(t *testing.T) {
	s := &full{plain{err: errDown}}
	c, _ := newCaller(s)
	for range 6 {
		require.ErrorIs(t, c.Reset(t.Context(), []ask{{}}), errStore)
	}
	require.Len(t, s.calls, 6)
	require.Equal(t, 1, c.Breakers.Stats().Open)
	s.err = fmt.Errorf("%w: overflown", errNotReset)
	require.Equal(t, s.err, c.Reset(t.Context(), []ask{{}}))
	s.err = nil
	require.NoError(t, c.Reset(t.Context(), []ask{{}}))
	left, cancel := context.WithCancel(t.Context())
	cancel()
	s.err = errDown
	require.Equal(t, context.Canceled, c.Reset(left, []ask{{}}))
}

// TestAnsweredReset proves that a key that could not be reset is no failure of the store.
func TestAnsweredReset(t *testing.T) {
	s := &full{plain{err: errNotReset}}
	c, _ := newCaller(s)
	for range 9 {
		require.ErrorIs(t, c.Reset(t.Context(), []ask{{}}), errNotReset)
	}
	require.Zero(t, c.Breakers.Stats().Open)
}
