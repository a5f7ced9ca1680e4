package ratelimittest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A windowStore is a store in memory, as a user of the kit may write one. It supports only
// fixed windows of an hour.
type windowStore struct {
	clock ratelimit.Clock

	mu     sync.Mutex
	states map[[2]string]windowState // by rule and key
}

// A windowState is the state of one key.
type windowState struct {
	last time.Time // instant of the last charge
	used int
}

func newWindowStore(clock ratelimit.Clock) (ratelimit.Store, error) {
	return &windowStore{clock: clock, states: make(map[[2]string]windowState)}, nil
}

// Supports returns an error, unless the algorithm is a fixed window and Per is an hour.
func (s *windowStore) Supports(a ratelimit.Algorithm, r ratelimit.Rate) error {
	if a != ratelimit.AlgorithmFixedWindow || r.Per != time.Hour {
		return fmt.Errorf("%s at %v is not a fixed window of an hour", a, r)
	}
	return nil
}

// Take charges all asks, or none.
func (s *windowStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]ratelimit.Result, len(asks))
	passes := true
	for i, a := range asks {
		results[i] = s.answer(a, 0)
		passes = passes && (a.Shadow || results[i].Allowed)
	}
	for i, a := range asks {
		if passes && results[i].Allowed && a.N > 0 {
			results[i] = s.answer(a, a.N)
		}
	}
	return results, nil
}

// answer decides a and returns the result. It charges n units if they fit.
func (s *windowStore) answer(a ratelimit.Ask, n int) ratelimit.Result {
	id := [2]string{a.Rule, a.Key}
	now, state := s.clock.Now().UTC(), s.states[id]
	if state.used > 0 && now.Before(state.last) {
		now = state.last
	}
	begin := now.Truncate(time.Hour)
	if state.last.Before(begin) {
		state.used = 0
	}
	left := begin.Add(time.Hour).Sub(s.clock.Now())
	res := ratelimit.Result{Limit: a.Rate.Requests, Remaining: max(a.Rate.Requests-state.used, 0)}
	switch {
	case max(a.N, 1) > res.Limit:
		res.RetryAfter = ratelimit.Never
	case max(a.N, 1) > res.Remaining:
		res.RetryAfter = left
	default:
		res.Allowed = true
		res.Remaining -= n
		state.used += n
	}
	if state.used > 0 {
		res.ResetAfter = left
	}
	if n > 0 {
		s.states[id] = windowState{now, state.used}
	}
	return res
}

// Reset deletes the states of asks.
func (s *windowStore) Reset(_ context.Context, asks []ratelimit.Ask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range asks {
		delete(s.states, [2]string{a.Rule, a.Key})
	}
	return nil
}

func ExampleTestStore() {
	// This is a test function of the package that has newWindowStore.
	TestWindowStore := func(t *testing.T) {
		ratelimittest.TestStore(t, ratelimittest.StoreConfig{
			New:        newWindowStore,
			Algorithms: []ratelimit.Algorithm{ratelimit.AlgorithmFixedWindow},

			// Without Rates, the kit would use its own, and leave out those that Supports
			// refuses.
			Rates: map[ratelimit.Algorithm][]ratelimit.Rate{
				ratelimit.AlgorithmFixedWindow: {ratelimit.PerHour(3), ratelimit.PerHour(100)},
			},
		})
	}
	fmt.Printf("%T", TestWindowStore)
	// Output: func(*testing.T)
}

// TestWindowStore is the test of the example.
func TestWindowStore(t *testing.T) {
	ratelimittest.TestStore(t, ratelimittest.StoreConfig{
		New:        newWindowStore,
		Algorithms: []ratelimit.Algorithm{ratelimit.AlgorithmFixedWindow},
		Rates: map[ratelimit.Algorithm][]ratelimit.Rate{
			ratelimit.AlgorithmFixedWindow: {ratelimit.PerHour(3), ratelimit.PerHour(100)},
		},
		Schedules: 40,
	})
}
