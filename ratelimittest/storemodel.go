package ratelimittest

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An algorithm is what the kit knows of one of the five algorithms.
type algorithm struct {
	name ratelimit.Algorithm

	// model returns the Model of one key, which is also a keeper.
	model func(start time.Time, r ratelimit.Rate) Model

	// valid returns an error if the algorithm cannot have the rate.
	valid func(r ratelimit.Rate) error

	// bursts reports whether rates of the algorithm have a burst. Two such rates are
	// different if they differ in lowest terms. Other rates are different if any field
	// differs.
	bursts bool
}

var algorithms = []algorithm{
	{ratelimit.AlgorithmTokenBucket, TokenBucketModel, validFor(ratelimit.NewTokenBucket), true},
	{ratelimit.AlgorithmFixedWindow, FixedWindowModel, validFor(ratelimit.NewFixedWindow), false},
	{ratelimit.AlgorithmSlidingWindowLog, SlidingWindowLogModel, validFor(ratelimit.NewSlidingWindowLog), false},
	{ratelimit.AlgorithmSlidingWindowCounter, SlidingWindowCounterModel, validFor(ratelimit.NewSlidingWindowCounter), false},
	{ratelimit.AlgorithmLeakyBucket, LeakyBucketModel, validFor(ratelimit.NewLeakyBucket), true},
}

func validFor[L any](construct func(ratelimit.Rate, ...ratelimit.Option) (L, error)) func(ratelimit.Rate) error {
	return func(r ratelimit.Rate) error {
		_, err := construct(r)
		return err
	}
}

// algorithmNamed returns the algorithm of that name, or nil if there is none.
func algorithmNamed(name ratelimit.Algorithm) *algorithm {
	for i := range algorithms {
		if algorithms[i].name == name {
			return &algorithms[i]
		}
	}
	return nil
}

// A stateID identifies one state of a store.
type stateID struct {
	algorithm ratelimit.Algorithm // with a mark if the state warms up
	rule, key string
}

func idOf(a ratelimit.Ask) stateID {
	if a.Warmup != (ratelimit.Warmup{}) {
		return stateID{a.Algorithm + ", warming up", a.Rule, a.Key}
	}
	return stateID{a.Algorithm, a.Rule, a.Key}
}

// A modelStore is what a store is compared with. It has a model for each state.
type modelStore struct {
	start    time.Time
	step     time.Duration // between two instants of the clock
	states   map[stateID]keeper
	accounts map[stateID]*account // only if charges may be given back
	grants   map[string]*keptGrant
}

func newModelStore(start time.Time, step time.Duration, settles bool) *modelStore {
	s := &modelStore{start: start, step: step, states: make(map[stateID]keeper), grants: make(map[string]*keptGrant)}
	if settles {
		s.accounts = make(map[stateID]*account)
	}
	return s
}

// take answers asks at the instant at. It charges all of them or none; a shadow that does
// not fit is left out.
//
// A state adopts the rate of an ask for units, even if that ask or another one is denied; see
// [keeper] for the exception. A look is answered the same, and changes nothing.
func (s *modelStore) take(at time.Time, asks []ratelimit.Ask) []ratelimit.Result {
	results := make([]ratelimit.Result, len(asks))
	passes := true
	for i, a := range asks {
		if results[i] = s.state(a).meet(at, a.Rate, a.N); s.accounts != nil {
			results[i] = s.account(a).lined(at, results[i])
		}
		passes = passes && (a.Shadow || results[i].Allowed)
	}
	for i, a := range asks {
		switch m := s.state(a); {
		case !passes || a.N == 0 || !results[i].Allowed:
		case s.accounts != nil: // at rates that do not change
			acc := s.account(a)
			res, c := acc.Reserve(at, a.N)
			if results[i] = res; a.Receipt != 0 {
				acc.open = append(acc.open, charge{c, a.Receipt, at.Add(a.Term)})
			}
		default:
			m.adopt(at, a.Rate)
			results[i] = m.Ask(at, a.N)
		}
	}
	return results
}

// reset makes the states of asks as good as new.
func (s *modelStore) reset(asks []ratelimit.Ask) {
	for _, a := range asks {
		delete(s.states, idOf(a))
		delete(s.accounts, idOf(a))
	}
}

// state returns the model of the state of a. A new state gets the rate of a.
func (s *modelStore) state(a ratelimit.Ask) keeper {
	if s.accounts != nil {
		return s.account(a).keeper
	}
	id := idOf(a)
	if s.states[id] == nil {
		s.states[id] = s.fresh(a)
	}
	return s.states[id]
}

// fresh returns the model of a new state with the rate and the Warmup of a.
func (s *modelStore) fresh(a ratelimit.Ask) keeper {
	if a.Warmup != (ratelimit.Warmup{}) {
		return newWarm(a.Algorithm, s.start, a.Rate, a.Warmup, s.step)
	}
	return algorithmNamed(a.Algorithm).model(s.start, a.Rate).(keeper)
}
