package ratelimittest

import (
	"context"
	"maps"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// storeDeciding returns faults in how a store decides asks. The store is locked meanwhile.
func storeDeciding(decide func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result) faults {
	return faults{take: func(s *slowStore, ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return decide(s, asks), nil
	}}
}

// storeKeeping returns a fault in the buckets that the store keeps after a call.
func storeKeeping(change func(b *bucket)) faults {
	return storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		for _, m := range s.states {
			if b, ok := m.(*bucket); ok {
				change(b)
			}
		}
		return results
	})
}

// storeEditing returns faults in the result of each ask.
func storeEditing(change func(res *ratelimit.Result, a ratelimit.Ask)) faults {
	return faults{edit: func(res ratelimit.Result, a ratelimit.Ask) ratelimit.Result {
		change(&res, a)
		return res
	}}
}

// storeNaming returns faults in which asks have one state.
func storeNaming(name func(a ratelimit.Ask) stateID) faults { return faults{id: name} }

// with returns a with n units.
func with(a ratelimit.Ask, n int) ratelimit.Ask {
	a.N, a.Shadow = n, false
	return a
}

// passed reports whether a decision about asks charged them.
func passed(asks []ratelimit.Ask, results []ratelimit.Result) bool {
	for i, res := range results {
		if !res.Allowed && !asks[i].Shadow {
			return false
		}
	}
	return true
}

// smallLimits are limits that are soon used up.
var smallLimits = map[ratelimit.Algorithm][]ratelimit.Rate{
	ratelimit.AlgorithmFixedWindow: {ratelimit.PerHour(20)},
	ratelimit.AlgorithmTokenBucket: {ratelimit.PerHour(30)},
}

// TestStoreConcurrent checks that the kit finds stores that lose units that another
// goroutine takes at the same time.
func TestStoreConcurrent(t *testing.T) {
	// Units that others take while this one decides are lost.
	lossy := faults{take: func(s *slowStore, ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
		s.mu.Lock()
		before := make(map[stateID]keeper)
		for _, a := range asks {
			before[s.name(a)] = s.open(a)
		}
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.Copy(s.states, before)
		return s.decide(asks), nil
	}}
	// A unit that is held is not given back when another ask is denied.
	leaky := storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		var results []ratelimit.Result
		for i := range asks {
			results = append(results, s.decide(asks[i : i+1])[0])
		}
		return results
	})
	for name, f := range map[string]faults{"a lost update": lossy, "units that are not given back": leaky} {
		k, err := newStoreKit(StoreConfig{
			New:        newSlowStore(f),
			Algorithms: []ratelimit.Algorithm{ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmTokenBucket},
			Rates:      smallLimits,
		})
		require.NoError(t, err)
		found := false
		for range 100 {
			if found = k.concurrent() != nil; found {
				break
			}
		}
		require.True(t, found, "%s is not found", name)
	}
	k, err := newStoreKit(StoreConfig{New: newSlowStore(faults{})})
	require.NoError(t, err)
	require.NoError(t, k.concurrent(), "a store that makes one decision at a time must pass")
}
