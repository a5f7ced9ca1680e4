package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A MemoryStore is a [Store] that keeps its state in this process. It gives the same answers
// as a limiter without a Store. It is for tests of programs that use a Store, and for
// several limiters in one process that share state by [WithName].
//
// A MemoryStore is safe for concurrent use by multiple goroutines. It serves them one at a
// time.
type MemoryStore struct {
	time    engine.Timeline
	maxKeys int

	mu   sync.Mutex
	keys map[stateName]engine.Keys // guarded by mu
}

// A stateName says in which of the engine's Keys the state of an Ask is.
type stateName struct {
	rule      string
	algorithm Algorithm
}

// NewMemoryStore returns an empty MemoryStore. It accepts the options [WithClock] and
// [WithMaxKeys], whose number is for each rule and algorithm. Any other option is an error,
// which matches [ErrInvalidConfig].
func NewMemoryStore(opts ...Option) (*MemoryStore, error) {
	set, err := newSettings(opts)
	if set.store != nil || set.name != "" || set.observer != nil || set.observeRequests || set.factory != nil || set.policy != FailLocal(1) {
		err = errors.Join(err, &ConfigError{"options", "others", "must be WithClock or WithMaxKeys"})
	}
	if err != nil {
		return nil, err
	}
	m := &MemoryStore{time: newTimeline(set.clock), maxKeys: set.maxKeys, keys: make(map[stateName]engine.Keys)}
	m.time.OnRestart(m.restart)
	return m, nil
}

// restart makes every key as new, after the clock was set to a usual time.
func (m *MemoryStore) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, keys := range m.keys {
		keys.Restart()
	}
}

// Take charges all asks or none and returns a Result for each, as [Store] says. If it
// returns an error, it has charged nothing. The error matches [ErrInvalidConfig] for an
// unknown algorithm or an invalid rate, [ErrInvalidCount] for a negative N, or is that of ctx
// if ctx has ended.
func (m *MemoryStore) Take(ctx context.Context, asks []Ask) ([]Result, error) {
	if ctx != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	m.time.Renew()
	m.mu.Lock()
	defer m.mu.Unlock()
	parts, err := m.partsLocked(asks)
	if err != nil {
		return nil, err
	}
	now, passes := m.time.Now(), true
	for i := range parts {
		p, do := &parts[i], engine.Look
		if asks[i].N > 0 {
			do = engine.Probe
		}
		p.Verdict, p.Delay = p.Keys.Ask(p.Hash, p.Want, now, int64(max(asks[i].N, 1)), do)
		passes = passes && (p.Shadow || p.Granted())
	}
	results := make([]Result, len(asks))
	for i := range parts {
		p := &parts[i]
		if passes && asks[i].N > 0 && p.Granted() {
			p.Verdict, p.Delay = p.Keys.Ask(p.Hash, p.Want, now, int64(asks[i].N), engine.Take)
		}
		fill(&results[i], &p.Verdict)
		results[i].Delay = p.Delay
	}
	return results, nil
}

// Reset makes the state that each ask names as if it had never been used. If ctx has ended,
// it changes nothing and returns the error of ctx.
func (m *MemoryStore) Reset(ctx context.Context, asks []Ask) error {
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		return errZeroStore
	}
	var problems []error
	for i := range asks {
		keys := m.keys[stateName{asks[i].Rule, asks[i].Algorithm}]
		if keys != nil && !keys.Reset(keytable.HashOf(asks[i].Key), engine.Wanted{}) {
			problems = append(problems, fmt.Errorf("rule %q: %w", asks[i].Rule, errOverflown))
		}
	}
	return errors.Join(problems...)
}

// partsLocked returns the asks as the engine has them, one Part for each. The caller holds
// m.mu.
func (m *MemoryStore) partsLocked(asks []Ask) ([]engine.Part, error) {
	if m.keys == nil {
		return nil, errZeroStore
	}
	parts := make([]engine.Part, len(asks))
	for i := range asks {
		ask := &asks[i]
		algorithm, ok := algorithms[ask.Algorithm]
		if !ok {
			return nil, &ConfigError{"algorithm", ask.Algorithm, "must be one of " + list(algorithmNames())}
		}
		if ask.N < 0 {
			return nil, ErrInvalidCount
		}
		if err := algorithm.validate(ask.Rate); err != nil {
			return nil, err
		}
		name, rate := stateName{ask.Rule, ask.Algorithm}, engine.Rate(ask.Rate)
		if m.keys[name] == nil {
			var err error
			rates := engine.Rates{Base: rate, MayGrow: true, Windows: algorithm.windowed}
			if m.keys[name], err = algorithm.keys(&m.time, rates, m.maxKeys); err != nil {
				return nil, err
			}
		}
		parts[i] = engine.Part{Keys: m.keys[name], Hash: keytable.HashOf(ask.Key), Want: engine.Wanted{Rate: &rate}, Shadow: ask.Shadow}
	}
	return parts, nil
}

// errZeroStore is the error of the methods of a zero MemoryStore.
var errZeroStore error = &ConfigError{"store", "the zero value", "must be made by NewMemoryStore"}
