package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/books"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
	"github.com/ratelimit-go/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A MemoryStore is a [Store] that keeps its state in this process. It gives the same answers as a limiter without a
// Store, except that a denied request with another Rate may change the state of its key, see [Ask.Rate]. Use it in
// tests, and for limiters in one process that share their state by [WithName].
//
// A MemoryStore is safe for concurrent use by multiple goroutines. It serves them one at a time.
type MemoryStore struct {
	book    *engine.Book // the states of all keys; nil in the zero MemoryStore
	records *replay.Log

	clock     Clock // of the option WithClock, or nil
	overrides override.Lists
}

var (
	_ StoreSettler   = (*MemoryStore)(nil)
	_ StoreReplayer  = (*MemoryStore)(nil)
	_ StorePardoner  = (*MemoryStore)(nil)
	_ StoreOverrider = (*MemoryStore)(nil)
)

func init() { books.Of = func(store any) *engine.Book { return store.(*MemoryStore).book } }

// NewMemoryStore returns an empty MemoryStore. Its options are [WithClock] and [WithMaxKeys]; for any other option, it
// returns an error that matches [ErrInvalidConfig]. The number of WithMaxKeys applies to each rule and algorithm: it
// bounds the keys with a state of their own, and the charges with a Receipt whose units can be given back.
func NewMemoryStore(opts ...Option) (*MemoryStore, error) {
	set, err := newSettings(opts)
	if set.store != nil || set.name != "" || set.observer != nil || set.observeRequests || set.factory != nil ||
		set.maxWaiters != defaultMaxWaiters || set.policy != FailLocal(1) || set.requestIDs != 0 || set.overrides {
		err = errors.Join(err, &ConfigError{"options", "others", "must be WithClock or WithMaxKeys"})
	}
	if err != nil {
		return nil, err
	}
	line, records := newTimeline(set.clock), replay.New(set.maxKeys)
	book := engine.NewBook(&line, set.maxKeys, func(name string, r engine.Rate, w *engine.Warmup) (*engine.Ledger, error) {
		algorithm := algorithms[Algorithm(name)]
		rates := engine.Rates{Base: r, MayGrow: true, Learns: true, Windows: algorithm.windowed, Warmup: w}
		keys, err := algorithm.keys(&line, rates, set.maxKeys)
		return engine.NewLedger(keys, set.maxKeys, algorithm.name == AlgorithmInFlight), err
	}, records.Clear)
	return &MemoryStore{book: book, records: records, clock: set.clock}, nil
}

// Take charges all asks or none and returns a Result for each, as [Store] says. If it returns an error, it has charged
// nothing. The error matches [ErrInvalidConfig] for an unknown algorithm, an invalid rate, Warmup or HoldFor, or asks
// that differ in Look, and [ErrInvalidCount] for a negative N. If ctx has ended, it is the error of ctx.
func (m *MemoryStore) Take(ctx context.Context, asks []Ask) ([]Result, error) {
	charges, err := m.charges(ctx, asks, m.takes)
	if err == nil && slices.ContainsFunc(asks, func(a Ask) bool { return a.Look != asks[0].Look }) {
		err = &ConfigError{"look", "true and false", "must be the same in all asks of one call"}
	}
	if err != nil {
		return nil, err
	}
	results, _, err := m.decide(charges, nil, false)
	return results, err
}

// Once does what Take does, for the request that has the ID once.ID. If the same request was granted the same asks less
// than once.TTL ago, Once takes nothing, and returns the results of that grant and true, as [StoreReplayer] says. The
// error also matches [ErrInvalidConfig] for an empty ID, an invalid TTL or an ask with Look.
func (m *MemoryStore) Once(ctx context.Context, once Attempt, asks []Ask) (results []Result, replayed bool, err error) {
	switch {
	case once.ID == "":
		return nil, false, &ConfigError{"id", `""`, "must not be empty"}
	case !ruleconfig.ValidSpan(once.TTL):
		return nil, false, &ConfigError{"ttl", once.TTL, ruleconfig.SpanRange}
	}
	charges, err := m.charges(ctx, asks, func(a *Ask) error {
		if a.Look && a.N >= 0 {
			return &ConfigError{"look", true, "must be false: Once has a Look of its own"}
		}
		return m.takes(a)
	})
	if err != nil || len(asks) == 0 {
		return nil, false, err
	}
	return m.decide(charges, replay.NewRecord(m.records, once.Client, once.ID, once.TTL, once.Look, charges), once.Look)
}

// Settle changes the charge that each ask names to N units, as [StoreSettler] says. If it returns an error, it has
// changed nothing. [ErrInvalidConfig] means that an ask has no Receipt or an invalid Warmup, or that an ask with an N above
// Charged has an unknown algorithm or an invalid rate. [ErrInvalidCount] means that N or Charged is negative. [ErrSettled] means
// that a charge by [AlgorithmInFlight] has ended. If ctx has ended, the error is that of ctx.
func (m *MemoryStore) Settle(ctx context.Context, asks []Ask) error {
	charges, err := m.charges(ctx, asks, func(a *Ask) error {
		switch {
		case a.Receipt == 0:
			return &ConfigError{"receipt", 0, "must name the charge"}
		case a.N < 0 || a.Charged < 0:
			return ErrInvalidCount
		case a.N > a.Charged:
			return m.Accepts(Ask{Algorithm: a.Algorithm, Rate: a.Rate, Warmup: a.Warmup})
		}
		return errors.Join(atPath("warmup", a.Warmup.validate())...)
	})
	if err != nil {
		return err
	}
	over, err := m.book.Settle(charges)
	if over {
		return ErrSettled
	}
	return err
}

// Reset clears the state that each ask names: the key is then as if it had never been used. If m is full, new keys
// share one budget. If that budget denies a key, the key is not reset, and the error matches [ErrNotReset]. If ctx has
// ended, Reset changes nothing and returns the error of ctx.
func (m *MemoryStore) Reset(ctx context.Context, asks []Ask) error {
	charges, err := m.charges(ctx, asks, func(*Ask) error { return nil })
	if err != nil {
		return err
	}
	for _, rule := range m.book.Reset(charges) {
		err = errors.Join(err, fmt.Errorf("rule %q: %w", rule, errOverflown))
	}
	return err
}

// Pardon ends the block of the key that each ask names, as [StorePardoner] says. If ctx has ended, it returns the error of ctx.
func (m *MemoryStore) Pardon(ctx context.Context, asks []Ask) error {
	charges, err := m.charges(ctx, asks, func(*Ask) error { return nil })
	if err == nil {
		m.book.Pardon(charges)
	}
	return err
}

// SetOverrides sets o for the limiters with this name, as [StoreOverrider] says. If ctx has ended, it returns the error of ctx.
func (m *MemoryStore) SetOverrides(ctx context.Context, limiter string, o []Override) error {
	if _, err := m.charges(ctx, nil, nil); err != nil {
		return err
	}
	if n, ok := m.overrides.Edit(limiter, entriesOf(o), wallOf(m.clock)); !ok {
		return &ConfigError{"overrides", n, "must be at most " + strconv.Itoa(override.MaxShared)}
	}
	return nil
}

// OverridesSince returns what has changed since that version, as [StoreOverrider] says, or the error of ctx if ctx has ended.
func (m *MemoryStore) OverridesSince(ctx context.Context, limiter string, since OverrideVersion) (c OverrideChange, err error) {
	if _, err := m.charges(ctx, nil, nil); err != nil {
		return c, err
	}
	c.Now = wallOf(m.clock)
	now, set, lifted, whole := m.overrides.Since(limiter, override.Version(since))
	c.Version, c.Set, c.Lifted, c.Whole = OverrideVersion(now), overridesOf(set), overridesOf(lifted), whole
	return c, nil
}

// Accepts returns nil if m can decide on an Ask with the fields of a; otherwise, it returns the reason why not.
func (m *MemoryStore) Accepts(a Ask) error {
	algorithm, ok := algorithms[a.Algorithm]
	switch {
	case !ok:
		return &ConfigError{"algorithm", a.Algorithm, "must be one of " + confmap.List(algorithmNames())}
	case a.Receipt != 0 && !ruleconfig.ValidSpan(a.HoldFor):
		return &ConfigError{"term", a.HoldFor, ruleconfig.SpanRange}
	case a.Algorithm == AlgorithmInFlight && a.Warmup != (Warmup{}):
		return &ConfigError{"warmup", a.Warmup, "must be left out: a rule that counts what is running has none"}
	}
	if err := errors.Join(algorithm.validate(a.Rate), errors.Join(atPath("warmup", a.Warmup.validate())...)); err != nil {
		return err
	}
	return a.Warmup.fits(a.Rate)
}

// charges calls check for each ask, and converts the asks to charges of the engine. It stops at the first error.
func (m *MemoryStore) charges(ctx context.Context, asks []Ask, check func(a *Ask) error) ([]engine.Charge, error) {
	if ctx != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if m.book == nil {
		return nil, &ConfigError{"store", "the zero value", "must be made by NewMemoryStore"}
	}
	charges := make([]engine.Charge, len(asks))
	for i, a := range asks {
		if err := check(&a); err != nil {
			return nil, err
		}
		warmup := a.Warmup.engine()
		if warmup != nil {
			warmup.Raise = true // raise From if it is too small for this Rate: not every caller has called Accepts
		}
		charges[i] = engine.Charge{Rule: a.Rule, Algorithm: string(a.Algorithm), Key: a.Key, Rate: engine.Rate(a.Rate.data()), Warmup: warmup,
			N: int64(a.N), Charged: int64(a.Charged), Shadow: a.Shadow, Look: a.Look, ID: a.Receipt, HoldFor: a.HoldFor,
			Penalty: penalty.Rule(a.Penalty), NoStrike: a.NoStrike}
	}
	return charges, nil
}

// takes returns the error of Take for the ask, or nil.
func (m *MemoryStore) takes(a *Ask) error {
	if a.N < 0 {
		return ErrInvalidCount
	}
	return m.Accepts(*a)
}

// decide lets the engine decide on the charges, as engine.Book.Take says, and returns the Result of each.
func (m *MemoryStore) decide(charges []engine.Charge, r engine.Record, look bool) (results []Result, found bool, err error) {
	if found, err = m.book.Take(charges, r, look); err != nil {
		return nil, false, err
	}
	results = make([]Result, len(charges))
	for i := range charges {
		fill(&results[i], &charges[i].Verdict)
		if results[i].Delay = charges[i].Delay; charges[i].Penalized {
			results[i].Reason = ReasonPenalty
		}
	}
	return results, found, nil
}
