package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/replay"
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
// Settle(ctx, []Ask) error makes the charge that the Receipt of an ask names one of N units, not
// Was. If N is less, the state is afterwards as if N had been charged at the time. This is done
// once: if the charge was settled before, its Term is over, or the state was reset or forgotten
// since, Settle gives nothing back and returns nil. So it may be repeated after an error. If N is
// more, N-Was units are charged now, also past the limit, in any of these cases too. Such a call
// is not repeated. An ask to Settle has no Term and no Shadow.
//
// Accepts(Ask) error returns why the Store cannot decide on asks of this Algorithm, Rate, Warmup,
// Look, Receipt and Term, or nil. It is called where Supports is, and before that. A Store without
// Accepts gets no ask with a Warmup, a Look or a Receipt.
//
// Once(ctx, Once, []Ask) ([]Result, bool, error) does what Take does, but charges the same request
// once. If asks with the same Rule, Key, Algorithm, N and Shadow, in any order, were granted less
// than the TTL of that call ago for the same Client and ID, Once charges nothing: it returns the
// Results that they had, with ResetAfter and Delay less the time since, and true. A Store may
// forget grants, the oldest first, and answers by one grant at most 100 times; the asks are then
// decided anew, and a grant takes the place of the one before. The charge and the memory of it
// must be one step: a call that comes at the same time is charged before it or not at all. A
// denial is not kept, and a Reset changes nothing. Every N is at least 1.
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

	// Warmup makes the limit of new state lower at first, as [Rule.Warmup] does for a key. State
	// that was charged with a Warmup and state that was charged without are not the same. Only a
	// Store that has Accepts gets an ask with one.
	Warmup Warmup

	// Look is true for an ask that takes nothing, and gets the answer that it would get if it
	// took N units: Remaining and ResetAfter are those after that. Either all asks of one call have
	// Look, or none has.
	Look bool

	// Receipt names the charge, so that Settle can give units of it back. It is a number that no
	// other charge of the state has had. If it is 0, the charge is final. A Store may let older
	// charges than the last 1,024 of a state become final.
	Receipt uint64

	// Term is for how long the charge can be given back, by the clock of the Store: from a
	// microsecond to 366 days.
	Term time.Duration

	// Was is for Settle only: the N of the ask that made the charge. N is then how many units
	// were used in the end.
	Was int
}

// A denier is a store that has the method Denied; see Store.
type denier interface{ Denied(a Ask) (Result, bool) }

// An accepter is a store that knows the fields of an Ask beyond Shadow; see Store.
type accepter interface{ Accepts(a Ask) error }

// A settler is a store whose charges can be given back; see Store.
type settler interface {
	accepter
	Settle(ctx context.Context, asks []Ask) error
}

// A MemoryStore is a [Store] that keeps its state in this process. It gives the same answers
// as a limiter without a Store. It is for tests of programs that use a Store, and for
// several limiters in one process that share state by [WithName].
//
// A MemoryStore is safe for concurrent use by multiple goroutines. It serves them one at a
// time.
type MemoryStore struct {
	book    *engine.Book // nil in the zero MemoryStore
	records *replay.Log
}

// NewMemoryStore returns an empty MemoryStore. It accepts the options [WithClock] and
// [WithMaxKeys], whose number is for each rule and algorithm: so many keys have states of their
// own, and so many charges with a Receipt can be given back. Any other option is an error,
// which matches [ErrInvalidConfig].
func NewMemoryStore(opts ...Option) (*MemoryStore, error) {
	set, err := newSettings(opts)
	if set.store != nil || set.name != "" || set.observer != nil || set.observeRequests || set.factory != nil || set.maxWaiters != defaultMaxWaiters || set.policy != FailLocal(1) || set.requestIDs != 0 {
		err = errors.Join(err, &ConfigError{"options", "others", "must be WithClock or WithMaxKeys"})
	}
	if err != nil {
		return nil, err
	}
	line, records := newTimeline(set.clock), replay.New(set.maxKeys)
	return &MemoryStore{engine.NewBook(&line, func(name string, r engine.Rate, w *engine.Warmup) (*engine.Ledger, error) {
		algorithm := algorithms[Algorithm(name)]
		keys, err := algorithm.keys(&line, engine.Rates{Base: r, MayGrow: true, Windows: algorithm.windowed, Warmup: w}, set.maxKeys)
		return engine.NewLedger(keys, set.maxKeys), err
	}, records.Clear), records}, nil
}

// Take charges all asks or none and returns a Result for each, as [Store] says. If it
// returns an error, it has charged nothing. The error matches [ErrInvalidConfig] for an
// unknown algorithm, an invalid rate or an invalid Term, [ErrInvalidCount] for a negative N, or
// is that of ctx if ctx has ended.
func (m *MemoryStore) Take(ctx context.Context, asks []Ask) ([]Result, error) {
	charges, err := m.charges(ctx, asks, func(a *Ask) error {
		if a.N < 0 {
			return ErrInvalidCount
		}
		return m.Accepts(*a)
	})
	if err == nil && slices.ContainsFunc(asks, func(a Ask) bool { return a.Look != asks[0].Look }) {
		err = &ConfigError{"look", "true and false", "must be the same in all asks of one call"}
	}
	if err == nil {
		_, err = m.book.Take(charges, nil, false)
	}
	if err != nil {
		return nil, err
	}
	return resultsOf(charges), nil
}

// resultsOf returns the answers to charges.
func resultsOf(charges []engine.Charge) []Result {
	results := make([]Result, len(charges))
	for i := range charges {
		fill(&results[i], &charges[i].Verdict)
		results[i].Delay = charges[i].Delay
	}
	return results
}

// Accepts returns nil if m can decide on asks like a, and otherwise what is wrong with a.
func (m *MemoryStore) Accepts(a Ask) error {
	algorithm, ok := algorithms[a.Algorithm]
	switch {
	case !ok:
		return &ConfigError{"algorithm", a.Algorithm, "must be one of " + confmap.List(algorithmNames())}
	case a.Receipt != 0 && !validSpan(a.Term):
		return &ConfigError{"term", a.Term, spanRange}
	}
	if err := errors.Join(algorithm.validate(a.Rate), errors.Join(atPath("warmup", a.Warmup.validate())...)); err != nil {
		return err
	}
	return a.Warmup.fits(a.Rate)
}

// Settle makes each charge that an ask names one of N units, as [Store] says. If it returns an
// error, it has changed nothing. The error matches [ErrInvalidConfig] for an ask without a
// Receipt or with an invalid Warmup and, if N is more than Was, for an unknown algorithm or an
// invalid rate, [ErrInvalidCount] for an N or Was that is negative, or is that of ctx if ctx has
// ended.
func (m *MemoryStore) Settle(ctx context.Context, asks []Ask) error {
	charges, err := m.charges(ctx, asks, func(a *Ask) error {
		switch {
		case a.Receipt == 0:
			return &ConfigError{"receipt", 0, "must name the charge"}
		case a.N < 0 || a.Was < 0:
			return ErrInvalidCount
		case a.N > a.Was:
			return m.Accepts(Ask{Algorithm: a.Algorithm, Rate: a.Rate, Warmup: a.Warmup})
		}
		return errors.Join(atPath("warmup", a.Warmup.validate())...)
	})
	if err == nil {
		err = m.book.Settle(charges)
	}
	return err
}

// Reset makes the state that each ask names as if it had never been used. If ctx has ended,
// it changes nothing and returns the error of ctx.
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

// charges returns asks, each of which check has found right, as the engine has them.
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
			warmup.Least = true // Accepts has looked at the rate of the ask; the Book may have others
		}
		charges[i] = engine.Charge{Rule: a.Rule, Algorithm: string(a.Algorithm), Key: a.Key, Rate: engine.Rate(a.Rate), Warmup: warmup,
			N: int64(a.N), Was: int64(a.Was), Shadow: a.Shadow, Look: a.Look, ID: a.Receipt, Term: a.Term}
	}
	return charges, nil
}
