package verify

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A ledgerStore is a MemoryStore that notes what it is asked, and fails when it is told to.
type ledgerStore struct {
	*ratelimit.MemoryStore
	taken, settled []ratelimit.Ask
	fails, settles error // of Take and of Settle
}

func newLedgerStore(t *testing.T, clock ratelimit.Clock, opts ...ratelimit.Option) *ledgerStore {
	memory, err := ratelimit.NewMemoryStore(append(opts, ratelimit.WithClock(clock))...)
	require.NoError(t, err)
	return &ledgerStore{MemoryStore: memory}
}

func (s *ledgerStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.taken = append(s.taken, asks...)
	if s.fails != nil {
		return nil, s.fails
	}
	return s.MemoryStore.Take(ctx, asks)
}

func (s *ledgerStore) Settle(ctx context.Context, asks []ratelimit.Ask) error {
	s.settled = append(s.settled, asks...)
	if s.settles != nil {
		return s.settles
	}
	return s.MemoryStore.Settle(ctx, asks)
}

// TestLedger requires which charges of a MemoryStore can be given back.
func TestLedger(t *testing.T) {
	clock := &manualClock{starts[0]}
	var store *ledgerStore
	ask := func(n int, receipt uint64) ratelimit.Ask {
		return ratelimit.Ask{Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(5000), N: n, Receipt: receipt, HoldFor: time.Second}
	}
	take := func(n int, receipt uint64) int {
		results, err := store.Take(t.Context(), []ratelimit.Ask{ask(n, receipt)})
		require.NoError(t, err)
		return results[0].Remaining
	}
	settle := func(stay, was int, receipt uint64) int {
		a := ask(stay, receipt)
		a.Charged = was
		require.NoError(t, store.Settle(t.Context(), []ratelimit.Ask{a}))
		return take(0, 0)
	}
	store = newLedgerStore(t, clock)
	take(5, 1)
	require.Equal(t, 4997, settle(3, 5, 1))
	require.Equal(t, 4997, settle(0, 5, 1), "once")
	take(5, 2)
	clock.now = clock.now.Add(time.Second)
	take(1, 3)
	require.Equal(t, 4996, settle(0, 5, 2), "the term has just not passed")
	clock.now = clock.now.Add(time.Second + 1)
	require.Equal(t, 4996, settle(0, 1, 3), "it has passed")
	for id := range uint64(1025) {
		take(1, 10+id)
	}
	require.Equal(t, 4996-1025, settle(0, 1, 10), "the oldest of 1,025 has become final")
	require.Equal(t, 4996-1024, settle(0, 1, 11))

	store = newLedgerStore(t, clock, ratelimit.WithMaxKeys(2))
	for id := range uint64(3) {
		take(1, 1+id)
	}
	require.Equal(t, 4997, settle(0, 1, 1), "the oldest of three has become final")
	require.Equal(t, 4998, settle(0, 1, 2))
	take(1, 3)
	require.Equal(t, 4998, settle(0, 1, 3), "the later of two charges with one number")
	require.Equal(t, 4998, settle(0, 1, 3))

	store = newLedgerStore(t, clock, ratelimit.WithMaxKeys(2))
	for _, id := range []uint64{7, 7, 8} {
		take(1, id)
	}
	require.Equal(t, 4998, settle(0, 1, 7), "the earlier of two charges with one number has no place any more")
}

// TestSettleBesideACustomLimiter requires what a RateLimiter asks of its store when a custom limiter
// denies, and what it says of a store that fails.
func TestSettleBesideACustomLimiter(t *testing.T) {
	down := errors.New("down")
	for _, row := range []struct {
		fails, settles error
		policy         ratelimit.FailurePolicy
		left           int
		errors         uint64
	}{
		{nil, nil, ratelimit.FailLocal(1), 5, 0},
		{nil, down, ratelimit.FailLocal(1), 3, 1},
		{down, nil, ratelimit.FailLocal(1), 5, 1},
		{down, nil, ratelimit.FailOpen, -1, 1},
	} {
		clock := &manualClock{starts[0]}
		store, s := newLedgerStore(t, clock), &nested{decide: func() bool { return false }}
		store.fails, store.settles = row.fails, row.settles
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "ours", Rate: ratelimit.PerMinute(5), OnStoreError: row.policy},
			{Name: "shadow", Rate: ratelimit.PerMinute(1), Mode: ratelimit.ModeShadow},
			{Name: "custom", Limiter: s},
		}, nil, ratelimit.WithStore(store), ratelimit.WithName("n"), ratelimit.WithClock(clock))
		require.NoError(t, err)
		req := ratelimit.Request{Client: "c", Rules: []string{"ours", "shadow", "custom"}, Cost: 2}
		res, each, err := l.CheckAll(t.Context(), req, nil)
		require.False(t, res.Allowed)
		require.Equal(t, row.fails != nil || row.settles != nil, errors.Is(err, ratelimit.ErrStore))
		require.Equal(t, row.fails != nil, res.Degraded)
		require.Equal(t, row.left, each[0].Remaining)
		require.Len(t, store.taken, 2)
		for _, a := range store.taken {
			require.Equal(t, time.Second, a.HoldFor)
			require.NotZero(t, a.Receipt)
		}
		if row.fails == nil {
			require.Len(t, store.settled, 1, "what was charged, and no more")
			require.Equal(t, []any{0, 2, store.taken[0].Receipt}, []any{store.settled[0].N, store.settled[0].Charged, store.settled[0].Receipt})
		} else {
			require.Empty(t, store.settled)
		}
		stats := l.Stats()
		require.Equal(t, ratelimit.RuleStats{Rule: "ours", Errors: row.errors, LiveKeys: stats[0].LiveKeys}, stats[0], "what is given back is not counted")
		require.EqualValues(t, 1, stats[2].Denied)
		if row.fails == nil && row.settles == nil {
			store.fails = down
			look, _ := l.Peek(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"ours"}})
			require.Equal(t, 3, look.Remaining, "others may have taken what came back: the share does not count on it")
			store.fails = nil
			s.decide = func() bool { return true }
			res, err := l.Check(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, 3, res.Remaining)
			require.Len(t, store.settled, 1, "what is granted is not settled")
			require.EqualValues(t, 1, l.Stats()[0].Allowed)
		}
	}
}

// TestSettleAfterTheCallerHasLeft proves that a store gives its units back if the caller has left while
// the custom limiter was asked.
func TestSettleAfterTheCallerHasLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := newLedgerStore(t, &manualClock{starts[0]})
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "ours", Rate: ratelimit.PerMinute(5)}, {Name: "custom", Limiter: refuser(cancel)},
	}, nil, ratelimit.WithStore(store), ratelimit.WithName("n"))
	require.NoError(t, err)
	res, err := l.Check(ctx, ratelimit.Request{Client: "c", Rules: []string{"ours", "custom"}})
	require.NoError(t, err)
	require.False(t, res.Allowed)
	look, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"ours"}})
	require.NoError(t, err)
	require.Equal(t, 5, look.Remaining)
}

// TestALateRequestIsNotCharged proves that a Wait which a queue would delay beyond its deadline takes
// nothing, in this process, in a store and beside a custom limiter.
func TestALateRequestIsNotCharged(t *testing.T) {
	leaky := ratelimit.Rule{Name: "leaky", Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerMinute(1).WithBurst(5)}
	delaying := ratelimit.Rule{Name: "custom", Endpoint: "/", Limiter: &gate{open: true, delay: time.Minute}}
	for _, rules := range [][]ratelimit.Rule{{leaky}, {leaky, delaying}} {
		inBothPlaces(t, rules, func(r *retrier) {
			left := func() int {
				res, err := r.l.Peek(t.Context(), ratelimit.Request{Rules: []string{"leaky"}})
				require.NoError(r.t, err)
				return res.Remaining
			}
			before := 5
			if len(rules) == 1 {
				require.True(r.t, r.l.Allow("", "/").Allowed)
				before = 4
			}
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			defer cancel()
			_, err := r.l.Wait(ctx, ratelimit.Request{Endpoint: "/"})
			require.ErrorIs(r.t, err, context.DeadlineExceeded)
			require.Equal(r.t, before, left())
			require.EqualValues(r.t, 1, r.l.Stats()[len(rules)-1].Denied)
		})
	}
}

// TestNoReceiptsNoCustomLimiter requires that a custom limiter is refused beside a store that does
// not take receipts, whichever of the rules comes first.
func TestNoReceiptsNoCustomLimiter(t *testing.T) {
	store := refusing{newLedgerStore(t, &manualClock{starts[0]})}
	ours, custom := ratelimit.Rule{Name: "ours", Rate: ratelimit.PerMinute(5)}, ratelimit.Rule{Name: "custom", Limiter: &returning{}}
	opts := []ratelimit.Option{ratelimit.WithStore(store), ratelimit.WithName("n")}
	_, err := ratelimit.New([]ratelimit.Rule{ours, custom}, nil, opts...)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	l, err := ratelimit.New([]ratelimit.Rule{ours}, nil, opts...)
	require.NoError(t, err)
	require.ErrorIs(t, l.AddRule(custom), ratelimit.ErrInvalidConfig)
	l, err = ratelimit.New([]ratelimit.Rule{custom}, nil, opts...)
	require.NoError(t, err)
	require.ErrorIs(t, l.AddRule(ours), ratelimit.ErrInvalidConfig)
}

// A refusing store takes no receipts.
type refusing struct{ *ledgerStore }

func (refusing) Accepts(a ratelimit.Ask) error {
	if a.Receipt != 0 {
		return errors.New("no receipts")
	}
	return nil
}
