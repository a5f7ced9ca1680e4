package ratelimittest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A slowStore is a store that has no faults, because it is made of models. A test may give
// it some.
type slowStore struct {
	faults
	clock ratelimit.Clock

	mu     sync.Mutex
	states map[stateID]keeper
	latest map[stateID]time.Time // for faults that need a memory
}

// faults replace parts of a slowStore.
type faults struct {
	id    func(a ratelimit.Ask) stateID
	fresh func(s *slowStore, a ratelimit.Ask) keeper
	adopt func(m keeper, at time.Time, r ratelimit.Rate)
	keeps func(a ratelimit.Ask, cut, charged bool) bool // whether an adopted rate is kept; cut: see bucket.stays
	now   func(s *slowStore, a ratelimit.Ask) time.Time
	edit  func(res ratelimit.Result, a ratelimit.Ask) ratelimit.Result
	take  func(s *slowStore, ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error)
	reset func(s *slowStore, ctx context.Context, asks []ratelimit.Ask) error
}

func newSlowStore(f faults) func(ratelimit.Clock) (ratelimit.Store, error) {
	return func(clock ratelimit.Clock) (ratelimit.Store, error) {
		return &slowStore{faults: f, clock: clock, states: make(map[stateID]keeper), latest: make(map[stateID]time.Time)}, nil
	}
}

func (s *slowStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.take != nil {
		return s.take(s, ctx, asks)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decide(asks), nil
}

// decide answers asks. It works on copies of the states, and then keeps them or drops them.
func (s *slowStore) decide(asks []ratelimit.Ask) []ratelimit.Result {
	passes := true
	for _, a := range asks {
		if !a.Shadow && !s.open(a).peek(s.at(a), a.N).Allowed {
			passes = false
		}
	}
	var results []ratelimit.Result
	for _, a := range asks {
		m := s.open(a)
		res := m.peek(s.at(a), a.N)
		charged := passes && a.N > 0 && res.Allowed
		before, isBucket := s.states[s.name(a)].(*bucket)
		cut := isBucket && before.stays(s.at(a), a.Rate)
		keeps := charged || a.N > 0 && !cut
		if s.keeps != nil {
			keeps = s.keeps(a, cut, charged)
		}
		switch {
		case charged:
			res = m.Ask(s.at(a), a.N)
		case cut && !keeps && s.adopt == nil:
			res = before.meet(s.at(a), a.Rate, a.N)
		}
		if keeps {
			s.states[s.name(a)] = m
		}
		if s.edit != nil {
			res = s.edit(res, a)
		}
		results = append(results, res)
	}
	return results
}

// open returns a copy of the state of a, at the rate of a.
func (s *slowStore) open(a ratelimit.Ask) keeper {
	m := s.states[s.name(a)]
	if m == nil {
		if s.fresh != nil {
			return s.fresh(s, a)
		}
		return algorithmNamed(a.Algorithm).model(s.clock.Now(), a.Rate).(keeper)
	}
	m = m.clone()
	if s.adopt != nil {
		s.adopt(m, s.at(a), a.Rate)
	} else {
		m.adopt(s.at(a), a.Rate)
	}
	return m
}

func (s *slowStore) name(a ratelimit.Ask) stateID {
	if s.id != nil {
		return s.id(a)
	}
	return stateID{a.Algorithm, a.Rule, a.Key}
}

func (s *slowStore) at(a ratelimit.Ask) time.Time {
	if s.now != nil {
		return s.now(s, a)
	}
	return s.clock.Now()
}

func (s *slowStore) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reset != nil {
		return s.reset(s, ctx, asks)
	}
	for _, a := range asks {
		delete(s.states, s.name(a))
	}
	return nil
}

// TestSlowStore checks that a store made of the models keeps every promise. The kit thus
// finds each mutant only because of its fault.
func TestSlowStore(t *testing.T) {
	TestStore(t, StoreConfig{New: newSlowStore(faults{}), Schedules: 25, Seed: 1})
	t.Run("in microseconds", func(t *testing.T) {
		TestStore(t, StoreConfig{New: newSlowStore(faults{}), Resolution: time.Microsecond, Schedules: 10})
	})
}
