package verify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A downStore is a MemoryStore that fails while down is set.
type downStore struct {
	*ratelimit.MemoryStore
	down    bool
	settled []int // how many asks each call of Settle had
}

func (s *downStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.down {
		return nil, errDead
	}
	return s.MemoryStore.Take(ctx, asks)
}

func (s *downStore) Settle(ctx context.Context, asks []ratelimit.Ask) error {
	if s.down {
		return errDead
	}
	s.settled = append(s.settled, len(asks))
	return s.MemoryStore.Settle(ctx, asks)
}

// newDown returns a limiter with these rules over a downStore.
func newDown(t *testing.T, rules ...ratelimit.Rule) (*ratelimit.RateLimiter, *downStore, *ratelimit.FakeClock) {
	t.Helper()
	clock := ratelimit.NewFakeClock(newYear)
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	s := &downStore{MemoryStore: memory}
	return newRules(t, rules, ratelimit.WithClock(clock), ratelimit.WithStore(s)), s, clock
}

// recovers lets the breaker of the store try again.
func recovers(clock *ratelimit.FakeClock, s *downStore) {
	s.down = false
	clock.Advance(6 * time.Second)
}

// TestInFlightOutage lets FailLocal count what this process has in flight, also what the store has granted.
func TestInFlightOutage(t *testing.T) {
	l, s, clock := newDown(t, inFlight(4))
	first, second := start(t, l), start(t, l)
	require.Equal(t, 2, second.Result().Remaining)
	s.down = true
	local := func() *ratelimit.Reservation {
		r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/"}, time.Hour)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.True(t, r.Result().Degraded)
		return r
	}
	third := local()
	require.Equal(t, 1, third.Result().Remaining, "two by the store, one by the policy")
	require.ErrorIs(t, first.Done(), ratelimit.ErrStore, "the store has not got the end")
	require.ErrorIs(t, first.Done(), ratelimit.ErrStore)
	require.Equal(t, 1, local().Result().Remaining, "the first has ended here")
	require.NoError(t, third.Done(), "it was never in the store")
	require.ErrorIs(t, second.Extend(), ratelimit.ErrStore)
	clock.Advance(time.Minute - 1)
	require.Equal(t, 1, local().Result().Remaining, "the second, one by the policy, this one: what is extended here goes on")

	recovers(clock, s)
	require.Equal(t, 3, start(t, l).Result().Remaining, "in the store, all is over; it does not know of those by the policy")
}

// TestInFlightByTheClockOfTheStore extends what is over by the clock of this process, but not by that of the store.
func TestInFlightByTheClockOfTheStore(t *testing.T) {
	st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(ratelimit.NewFakeClock(newYear)))
	require.NoError(t, err)
	clock := ratelimit.NewFakeClock(newYear)
	r := start(t, newRules(t, []ratelimit.Rule{inFlight(2)}, ratelimit.WithClock(clock), ratelimit.WithStore(st)))
	clock.Advance(2 * time.Minute)
	require.NoError(t, r.Extend(), "the store decides")
}

// TestInFlightEndsAreSent sends the ends that the store has not got with the next call that it answers.
func TestInFlightEndsAreSent(t *testing.T) {
	l, s, clock := newDown(t, inFlight(1000))
	var all []*ratelimit.Reservation
	for range 600 {
		all = append(all, start(t, l))
	}
	s.down = true
	for _, r := range all[:550] {
		require.ErrorIs(t, r.Done(), ratelimit.ErrStore)
	}
	for range 10 {
		_, err := l.Reserve(t.Context(), ratelimit.Request{Client: "bob", Endpoint: "/"}, time.Hour)
		require.ErrorIs(t, err, ratelimit.ErrStore)
	}
	recovers(clock, s)
	require.Empty(t, s.settled)
	require.Equal(t, 399, start(t, l).Result().Remaining, "the call that finds that the store is back has no ends before it")
	require.Equal(t, 654, start(t, l).Result().Remaining, "the ends follow, some with each call")
	require.Equal(t, 909, start(t, l).Result().Remaining)
	require.Equal(t, 946, start(t, l).Result().Remaining)
	require.NoError(t, all[0].Done(), "a second end changes nothing")
	require.Equal(t, 945, start(t, l).Result().Remaining)
	require.Equal(t, []int{256, 256, 38, 1}, s.settled)

	s.down = true
	require.ErrorIs(t, all[599].Done(), ratelimit.ErrStore)
	clock.Advance(2 * time.Minute)
	recovers(clock, s)
	require.Equal(t, 999, start(t, l).Result().Remaining)
	require.Len(t, s.settled, 4, "after Per, the hold is over by itself")
}

// TestInFlightEndsAreSentBesideIDs sends them also with a call for a request with an ID.
func TestInFlightEndsAreSentBesideIDs(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	s := &downStore{MemoryStore: memory}
	l := newRules(t, []ratelimit.Rule{inFlight(3)}, ratelimit.WithClock(clock), ratelimit.WithStore(s), ratelimit.WithRequestIDs(time.Hour))
	r := start(t, l)
	s.down = true
	require.ErrorIs(t, r.Done(), ratelimit.ErrStore)
	s.down = false
	_, err = l.Reserve(t.Context(), ratelimit.Request{Client: "bob", Endpoint: "/", ID: "1"}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, []int{1}, s.settled)
}
