package ratelimittest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A givingStore is a MemoryStore with one fault.
type givingStore struct {
	*ratelimit.MemoryStore
	take   func(asks []ratelimit.Ask) // changes them
	settle func(s *ratelimit.MemoryStore, asks []ratelimit.Ask) error
}

func (s givingStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.take != nil {
		s.take(asks)
	}
	return s.MemoryStore.Take(ctx, asks)
}

func (s givingStore) Settle(ctx context.Context, asks []ratelimit.Ask) error {
	if s.settle != nil {
		return s.settle(s.MemoryStore, asks)
	}
	return s.MemoryStore.Settle(ctx, asks)
}

// settleMutants are faults of Settle that the kit must find, in the schedules of a TokenBucket.
var settleMutants = map[string]givingStore{
	"nothing is given back": {settle: func(*ratelimit.MemoryStore, []ratelimit.Ask) error { return nil }},
	"all is given back": {settle: func(s *ratelimit.MemoryStore, asks []ratelimit.Ask) error {
		for i := range asks {
			asks[i].N = 0
		}
		return s.Settle(context.Background(), asks)
	}},
	"the first ask only": {settle: func(s *ratelimit.MemoryStore, asks []ratelimit.Ask) error {
		return s.Settle(context.Background(), asks[:1])
	}},
	"units beyond are dropped": {settle: func(s *ratelimit.MemoryStore, asks []ratelimit.Ask) error {
		for i := range asks {
			asks[i].N = min(asks[i].N, asks[i].Charged)
		}
		return s.Settle(context.Background(), asks)
	}},
	"units beyond are charged with the receipt only": {settle: func(s *ratelimit.MemoryStore, asks []ratelimit.Ask) error {
		for i := range asks {
			if a := asks[i]; a.N > a.Charged {
				a.Charged = a.N
				a.N = 0
				if err := s.Settle(context.Background(), []ratelimit.Ask{a}); err != nil {
					return err
				}
			}
		}
		return s.Settle(context.Background(), asks)
	}},
	"the HoldFor does not end": {take: func(asks []ratelimit.Ask) {
		for i := range asks {
			if asks[i].Receipt != 0 {
				asks[i].HoldFor = 366 * 24 * time.Hour
			}
		}
	}},
	"the HoldFor is short": {take: func(asks []ratelimit.Ask) {
		for i := range asks {
			if asks[i].Receipt != 0 {
				asks[i].HoldFor = time.Microsecond
			}
		}
	}},
	"the state is reset": {settle: func(s *ratelimit.MemoryStore, asks []ratelimit.Ask) error {
		return s.Reset(context.Background(), asks)
	}},
}

// oneStart is an instant that a MemoryStore tells apart from all that lie within the Span.
var oneStart = []time.Time{time.Date(2026, 3, 1, 12, 34, 56, 789012000, time.UTC)}

func settleKit(t *testing.T, wrap func(*ratelimit.MemoryStore) ratelimit.Store) *storeKit {
	k, err := newStoreKit(StoreConfig{New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
		s, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		return wrap(s), err
	}, Starts: oneStart, Schedules: 100})
	require.NoError(t, err)
	return k
}

// TestSettleMutants checks that the kit finds each fault of Settle, and none without a fault.
func TestSettleMutants(t *testing.T) {
	for name, m := range settleMutants {
		k := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store {
			m.MemoryStore = s
			return m
		})
		broken := k.run(k.settleKinds()[0])
		require.NotNil(t, broken, name)
		require.Contains(t, broken.String(), "Receipt: ", name)
	}
	k := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store { return s })
	for _, f := range k.settleKinds() {
		require.Nil(t, k.run(f), f.name)
	}
}

// TestSettleSchedules checks that the schedules settle charges in all ways.
func TestSettleSchedules(t *testing.T) {
	k := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store { return s })
	for _, f := range k.settleKinds() {
		seen := make(map[string]int)
		for i := range 100 {
			start, calls := k.write(f, i)
			models, closed := newModelStore(start, 1, true), make(map[uint64]bool)
			for _, c := range calls {
				at := start.Add(c.at)
				switch {
				case c.reset:
					models.reset(c.asks)
				case !c.settle:
					models.take(at, c.asks)
				}
				for _, a := range c.asks {
					if !c.settle {
						continue
					}
					way, more := "never made, or reset", a.N > a.Charged
					if closed[a.Receipt] {
						way = "settled before"
					}
					for _, charge := range models.account(a).open {
						switch {
						case charge.id != a.Receipt:
						case at.After(charge.until):
							way = "too late"
						case a.N == 0:
							way = "given back"
						case a.N < charge.n:
							way = "given back in part"
						default:
							way = "kept"
						}
					}
					if closed[a.Receipt] = true; more {
						way += ", and more"
					}
					seen[way]++
					models.settle(at, a)
				}
			}
		}
		for _, way := range []string{
			"never made, or reset", "settled before", "too late", "given back", "given back in part", "kept", "kept, and more",
			"settled before, and more", "too late, and more",
		} {
			require.Greater(t, seen[way], 5, "%s: %s", f.name, way)
		}
	}
}

// An idleStore has methods that do nothing.
type idleStore struct{ ratelimit.Store }

func (idleStore) Supports(ratelimit.Algorithm, ratelimit.Rate) error { return nil }
func (idleStore) Accepts(ratelimit.Ask) error                        { return nil }
func (idleStore) Settle(context.Context, []ratelimit.Ask) error      { return nil }
func (idleStore) Part(a ratelimit.Ask) int                           { return a.N }
func (idleStore) Once(context.Context, ratelimit.Attempt, []ratelimit.Ask) ([]ratelimit.Result, bool, error) {
	return nil, false, nil
}
func (idleStore) Denied(ratelimit.Ask) (ratelimit.Result, bool) { return ratelimit.Result{}, true }

// A bareStore has the methods of ratelimit.Store and no others.
type bareStore struct{ ratelimit.Store }

// TestStoreLacks checks that the kit skips the methods that a store does not have, and says so,
// that methods that do nothing fail, and that those of a MemoryStore pass.
func TestStoreLacks(t *testing.T) {
	bare := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store { return bareStore{s} })
	idle := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store { return idleStore{s} })
	whole := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store { return s })
	for _, x := range storeExtras {
		skip, err := bare.extra(x)
		require.NoError(t, err, x.name)
		require.Equal(t, "the store has no "+x.name, skip)
		skip, err = idle.extra(x)
		require.Error(t, err, x.name)
		require.Empty(t, skip, x.name)
		skip, err = whole.extra(x)
		require.NoError(t, err, x.name)
		require.Equal(t, x.has(whole.store), skip == "", x.name)
	}
	require.Contains(t, bare.unsettled("TokenBucket", false), "no Settle")
	require.Empty(t, whole.unsettled("TokenBucket", false))
	require.Empty(t, whole.unsettled("TokenBucket", true))
	t.Run("kit", func(t *testing.T) {
		TestStore(t, StoreConfig{New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
			s, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			return bareStore{s}, err
		}, Starts: oneStart, Schedules: 1})
	})
}
