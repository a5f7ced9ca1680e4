package ratelimittest

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An algorithm describes one of the five algorithms to the kit.
type algorithm struct {
	name ratelimit.Algorithm

	// model returns the Model of one key. The Model also implements the interface keeper.
	model func(start time.Time, r ratelimit.Rate) Model

	// valid returns an error if the rate r is invalid for the algorithm.
	valid func(r ratelimit.Rate) error

	// bursts is true if rates of the algorithm have a burst. Two rates with a burst are the same if
	// their bursts and their quotients Requests/Per are equal. Two rates without a burst are the
	// same only if all fields are equal.
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

// algorithmNamed returns the algorithm with the given name, or nil if there is none.
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
	algorithm ratelimit.Algorithm // the name of the algorithm; has a suffix if the state warms up
	rule, key string
}

func idOf(a ratelimit.Ask) stateID {
	if a.Warmup != (ratelimit.Warmup{}) {
		return stateID{a.Algorithm + ", warming up", a.Rule, a.Key}
	}
	return stateID{a.Algorithm, a.Rule, a.Key}
}

// A modelStore holds a model for each state. The kit compares the answers of the store under test
// with the answers of the modelStore.
type modelStore struct {
	start    time.Time
	step     time.Duration // the smallest difference between two instants of the clock
	states   map[stateID]keeper
	accounts map[stateID]*account // takes the place of the map above if charges may be settled; otherwise nil
	grants   map[string]*keptGrant
}

func newModelStore(start time.Time, step time.Duration, settles bool) *modelStore {
	s := &modelStore{start: start, step: step, states: make(map[stateID]keeper), grants: make(map[string]*keptGrant)}
	if settles {
		s.accounts = make(map[stateID]*account)
	}
	return s
}

// take answers the asks at the given time. It charges all of them or none. There is one exception: a
// shadow ask must never deny anything. So if a shadow ask does not fit, it is not charged, and the other
// asks are charged as if the shadow ask did not exist.
//
// An ask for units changes its state to the rate of the ask, even if this ask or another ask of the call
// is denied. There is one exception: a bucket makes some changes of its rate only when units are charged. The
// method bucket.stays says which changes these are. A look (an ask for 0 units) is answered at its own rate, and
// changes nothing.
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
		case s.accounts != nil: // schedules with settlements do not change rates
			acc := s.account(a)
			res, c := acc.Reserve(at, a.N)
			if results[i] = res; a.Receipt != 0 {
				acc.open = append(acc.open, charge{c, a.Receipt, at.Add(a.HoldFor)})
			}
		default:
			m.adopt(at, a.Rate)
			results[i] = m.Ask(at, a.N)
		}
	}
	return results
}

// reset forgets the states that the asks name.
func (s *modelStore) reset(asks []ratelimit.Ask) {
	for _, a := range asks {
		delete(s.states, idOf(a))
		delete(s.accounts, idOf(a))
	}
}

// The method state returns the model of the state that the given ask names. If the state is new, it gets
// the rate of the ask.
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

// The method named "fresh" returns the model of a new state, with the rate and the Warmup of the given ask.
func (s *modelStore) fresh(a ratelimit.Ask) keeper {
	if a.Warmup != (ratelimit.Warmup{}) {
		return newWarm(a.Algorithm, s.start, a.Rate, a.Warmup, s.step)
	}
	return algorithmNamed(a.Algorithm).model(s.start, a.Rate).(keeper)
}
