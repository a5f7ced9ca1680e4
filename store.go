package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/rulecheck"
)

// A Store keeps the state of limiters outside this process, so that several processes share
// one limit. [WithStore] gives it to a limiter. The module redisstore has one for Redis and
// Valkey, [MemoryStore] is one for tests, and the package ratelimittest checks one that you
// write.
//
// A Store decides by its own clock. It must limit the duration of its calls itself: this
// package sets no deadline. It must be safe for concurrent use by multiple goroutines.
//
// A Store may have further methods:
//
// Supports(Algorithm, Rate) error returns why the Store cannot decide exactly by that
// algorithm and rate, or nil. A rule or limiter with such a rate is refused when it is made
// or changed.
//
// Part(Ask) int is for a Store of parts that fail independently, such as the nodes of a
// cluster. It returns the number of the part that has the state of the ask, from 0 to 63; of
// another number, the lowest six bits count. It is called for each ask, must be quick, and
// may depend only on the fields that name the state. While some parts do not answer, a
// [RateLimiter] goes on to call the Store for the others; a [FailurePolicy] answers only
// those requests that need a part that does not answer. An error of Take or Reset may have a
// method Parts() []int, which is found by [errors.As] and returns the parts that have
// failed. Without it, or if it returns none of the parts that the call was about, all of
// these count as failed.
//
// The errors of a Store may have three more methods, which [errors.As] finds too. They keep a
// healthy Store in use, and notice a Store that is down:
//
//   - Answered() bool returns true if the server has answered, and the error is about these
//     asks only. The [FailurePolicy] then answers this request, and the Store counts as healthy.
//   - Call() uint64 returns the same number, which is not 0, for all callers of one call of the
//     server. If that call fails, it counts as one failure.
//   - Later(f func(error)) is for the error of a caller whose context has ended while the call
//     goes on. The Store must call f once, soon and without a lock held: with nil or the error
//     of the call when that has ended, also by the time limit of the Store; or with the error
//     of the context if the call was never made.
//
// Denied(Ask) (Result, bool) is for a Store that sometimes knows, without a call to the
// server, that an ask would be denied. It then returns that denial and true; otherwise it
// returns false and changes nothing. A [RateLimiter] calls it before Take for a request to
// which a single rule without tiers applies.
type Store interface {
	// Take decides on all asks together and returns a Result for each, in the
	// same order. It charges every ask if every ask that is no Shadow has
	// enough units left; otherwise it charges none. Each Result is what the
	// ask would get alone. No two asks are about the same state.
	//
	// An ask whose N is 0 is charged nothing and gets the answer that one
	// unit would get. If the states lie on several nodes, a denied decision
	// may hold units for the time of one round trip.
	//
	// A denial is a Result, never an error. An error means that it is not known whether any
	// ask was charged. If ctx has ended the call, the error must match that of ctx.
	Take(ctx context.Context, asks []Ask) ([]Result, error)

	// Reset makes the state that each ask names as if it had never been used. It ignores N.
	Reset(ctx context.Context, asks []Ask) error
}

// An Ask is what a [Store] needs to know to decide on one request by one rule.
type Ask struct {
	// Rule and Key, together with Algorithm, name the state: two asks are
	// about the same state if and only if all three are equal. Rule and Key
	// may have any bytes, so no separator can join them unambiguously.
	//
	// Rule is the name of the limiter, see [WithName], and for a rule of a [RateLimiter] a
	// colon and the name of the rule after it, such as "shop:search".
	Rule, Key string

	// Client is the client that the state belongs to, or empty if it belongs to more than
	// one. A Store may keep the states of one Client together, for example by a hash tag in
	// a cluster. All asks about one state have the same Client.
	Client string

	// Algorithm is one of the five of this package.
	Algorithm Algorithm

	// Rate is the limit from this ask on. If the state was last charged under
	// another Rate, the time since then counts at the slower of the two.
	Rate Rate

	// N is how many units to take, all or none. If it is 0, the ask takes
	// nothing and gets the answer that one unit would get.
	N int

	// Shadow is true for an ask of a rule in [ModeShadow]. Such an ask never
	// causes the others to be denied. It is charged if it has enough units
	// left and the others are charged.
	Shadow bool
}

// A denier is a store that has the method Denied; see Store.
type denier interface{ Denied(a Ask) (Result, bool) }

// supportsOf returns the method Supports of s, or nil if s has none.
func supportsOf(s Store) func(Algorithm, Rate) error {
	if s, ok := s.(interface {
		Supports(Algorithm, Rate) error
	}); ok {
		return s.Supports
	}
	return nil
}

// unsupported returns the error for a rate that the store cannot decide by, or nil.
func unsupported(supports func(Algorithm, Rate) error, a Algorithm, r Rate) error {
	if supports == nil {
		return nil
	}
	if err := supports(a, r); err != nil {
		return &ConfigError{"rate", r, rulecheck.NotSupported + err.Error()}
	}
	return nil
}

// storeError returns err, wrapped if need be so that it matches ErrStore.
func storeError(err error) error {
	if errors.Is(err, ErrStore) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// blamedBy returns the parts of the store that have failed according to err, as bits. They
// are 0 if err does not say.
func blamedBy(err error) (parts uint64) {
	var blaming interface{ Parts() []int }
	if errors.As(err, &blaming) {
		for _, part := range blaming.Parts() {
			parts |= breaker.Bit(part)
		}
	}
	return parts
}

// errPanicked is the error that the breakers get for a store that has panicked.
var errPanicked = errors.New("it panicked")

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
	if set.store != nil || set.name != "" || set.observer != nil || set.observeRequests || set.factory != nil || set.maxWaiters != defaultMaxWaiters || set.policy != FailLocal(1) {
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
			return nil, &ConfigError{"algorithm", ask.Algorithm, "must be one of " + confmap.List(algorithmNames())}
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
