package ratelimit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A MemoryStore is a [Store] in this process. It decides as any other Store does,
// and as limiters without one do: for tests of what a store is used by, and for
// limiters that share state under one name.
//
// It is safe for concurrent use by multiple goroutines, which it serves one at a
// time.
type MemoryStore struct {
	time    timeline
	maxKeys int

	mu     sync.Mutex
	states map[stateName]states
}

// A stateName says which keys belong together.
type stateName struct {
	rule      string
	algorithm Algorithm
}

// NewMemoryStore returns an empty MemoryStore. Of the options, [WithClock] and
// [WithMaxKeys], for each rule, mean something to it; others are errors.
func NewMemoryStore(opts ...Option) (*MemoryStore, error) {
	set, err := newSettings(opts)
	if set.store != nil || set.name != "" || set.observer != nil || set.observeRequests || set.factory != nil || set.policy != FailLocal(1) {
		err = errors.Join(err, &ConfigError{"options", "others", "must be WithClock or WithMaxKeys"})
	}
	if err != nil {
		return nil, err
	}
	return &MemoryStore{time: newTimeline(set.clock), maxKeys: set.maxKeys, states: make(map[stateName]states)}, nil
}

// Take charges all asks or none; see [Store]. Its errors match [ErrInvalidConfig],
// [ErrInvalidCount] or ctx's.
func (m *MemoryStore) Take(ctx context.Context, asks []Ask) ([]Result, error) {
	if ctx != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	parts, err := m.parts(asks)
	if err != nil {
		return nil, err
	}
	now, passes := m.time.now(), true
	for i := range parts {
		a := &parts[i]
		intent := toLook
		if asks[i].N > 0 {
			intent = toAsk
		}
		a.step(now, max(asks[i].N, 1), intent)
		passes = passes && (asks[i].Shadow || a.verdict.retryAfter == 0)
	}
	results := make([]Result, len(asks))
	for i := range parts {
		a := &parts[i]
		if passes && asks[i].N > 0 && a.verdict.retryAfter == 0 {
			a.step(now, asks[i].N, toTake)
		}
		a.verdict.fill(&results[i])
		results[i].Delay = a.delay
	}
	return results, nil
}

// step has the states of a asked by themselves.
func (a *ask) step(now instant, n int, do intent) {
	shard, _ := a.states.lock(a.hash, now)
	defer shard.Unlock()
	a.verdict, a.delay, _ = a.states.step(shard, a.hash, &a.wish, now, int64(n), do)
}

// Reset makes the keys of asks as good as new.
func (m *MemoryStore) Reset(ctx context.Context, asks []Ask) error {
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.states == nil {
		return errZeroStore
	}
	for i := range asks {
		if states := m.states[stateName{asks[i].Rule, asks[i].Algorithm}]; states != nil {
			states.reset(keytable.HashOf(asks[i].Key))
		}
	}
	return nil
}

// parts returns the asks as those of a decision. It must be called with m.mu held.
func (m *MemoryStore) parts(asks []Ask) ([]ask, error) {
	if m.states == nil {
		return nil, errZeroStore
	}
	parts := make([]ask, len(asks))
	for i := range asks {
		ask := &asks[i]
		algorithm, ok := builtins[ask.Algorithm]
		if !ok {
			return nil, &ConfigError{"algorithm", ask.Algorithm, "must be one of " + list(slices.Sorted(maps.Keys(builtins)))}
		}
		if ask.N < 0 {
			return nil, ErrInvalidCount
		}
		if err := algorithm.validate(ask.Rate); err != nil {
			return nil, err
		}
		name := stateName{ask.Rule, ask.Algorithm}
		if m.states[name] == nil {
			var err error
			rates := rates{base: ask.Rate, open: true, windows: algorithm.windowed}
			if m.states[name], err = algorithm.states(&m.time, rates, m.maxKeys); err != nil {
				return nil, err
			}
		}
		parts[i].states, parts[i].hash = m.states[name], keytable.HashOf(ask.Key)
		parts[i].wish = wish{rate: ask.Rate, resolved: true}
	}
	return parts, nil
}

// errZeroStore is what the methods of a zero MemoryStore return.
var errZeroStore error = &ConfigError{"store", "the zero value", "must be made by NewMemoryStore"}
