package dbstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// maxUnits is the largest number of Requests in the Rate of a rule whose algorithm stores an entry for each unit or request in the row.
const maxUnits = 1000

// A Store is a [ratelimit.Store] that keeps its states in a database. Make one with [New], and give it to a limiter with
// [ratelimit.WithStore].
type Store struct {
	settings
	backend Backend
	line    line
	known   known
	time    atomic.Pointer[reading]
	stats   stats
}

var (
	_ ratelimit.StoreSupporter = (*Store)(nil)
	_ ratelimit.StoreSettler   = (*Store)(nil)
	_ ratelimit.StoreReplayer  = (*Store)(nil)
	_ ratelimit.StoreDenier    = (*Store)(nil)
	_ ratelimit.StorePardoner  = (*Store)(nil)
)

// New returns a Store that keeps its rows in b. New does not call b. The errors of New match [ratelimit.ErrInvalidConfig].
func New(b Backend, opts ...Option) (*Store, error) {
	set, err := newSettings(opts)
	if b == nil {
		err = errors.Join(err, configError("backend", nil, "must not be nil"))
	}
	if err != nil {
		return nil, err
	}
	s := &Store{settings: set, backend: b}
	s.line.store, s.line.busy, s.line.apart = s, make(map[string]struct{}), make(map[string]time.Time)
	return s, nil
}

// Supports returns nil if the store can decide with this algorithm and this rate, and otherwise an error that says why not. A
// [ratelimit.SlidingWindowLog] and [ratelimit.AlgorithmInFlight] may have at most 1,000 Requests: their row has an entry for each unit
// or request, and each grant writes the whole row.
func (s *Store) Supports(a ratelimit.Algorithm, r ratelimit.Rate) error {
	var field *ratelimit.ConfigError
	if err := s.Accepts(ratelimit.Ask{Algorithm: a, Rate: r}); errors.As(err, &field) {
		return fmt.Errorf("%s %s", field.Field, field.Reason)
	}
	return tooLarge(a, r)
}

// tooLarge returns an error if the rows of a rule with this algorithm and rate would be too large.
func tooLarge(a ratelimit.Algorithm, r ratelimit.Rate) error {
	if (a == ratelimit.AlgorithmSlidingWindowLog || a == ratelimit.AlgorithmInFlight) && r.Requests > maxUnits {
		return fmt.Errorf("requests must be at most %d for %s in a database: a row has an entry for each of them", maxUnits, a)
	}
	return nil
}

// Accepts returns nil if the store can decide on an Ask with the fields of a, and otherwise the reason why not.
func (s *Store) Accepts(a ratelimit.Ask) error { return new(ratelimit.MemoryStore).Accepts(a) }

// accepts returns the error with which Take refuses the ask a, or nil if the store can decide on a.
func (s *Store) accepts(a *ratelimit.Ask) error {
	if a.N < 0 {
		return ratelimit.ErrInvalidCount
	}
	if err := s.Accepts(*a); err != nil {
		return err
	}
	if err := tooLarge(a.Algorithm, a.Rate); err != nil {
		return configError("rate", a.Rate, err.Error())
	}
	return nil
}

// Take charges all asks or none, and returns one result for each; see [ratelimit.Store]. It returns within the time of
// [WithTimeout], or when ctx ends.
//
// An error of the database is an [*Error] and matches [ratelimit.ErrStore]. Other errors match [ratelimit.ErrInvalidConfig] or
// [ratelimit.ErrInvalidCount], or are the error of ctx.
func (s *Store) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	ctx, err := s.check(ctx, asks, s.accepts)
	switch {
	case err != nil:
		return nil, err
	case len(asks) == 0:
		return []ratelimit.Result{}, nil
	}
	for i := range asks {
		if asks[i].Look != asks[0].Look {
			return nil, configError("look", "true and false", "must be the same in all asks of one call")
		}
	}
	if len(asks) == 1 {
		if res, denied := s.Denied(asks[0]); denied {
			return []ratelimit.Result{res}, nil
		}
	}
	c, err := s.do(ctx, &call{what: takes, asks: asks})
	if err != nil {
		return nil, err
	}
	return c.results, nil
}

// Once does what Take does, for a request with the ID once.ID. If the same request, with the same asks, was granted less than once.TTL
// ago, Once charges nothing, and returns the results of that grant and true; see [ratelimit.StoreReplayer].
func (s *Store) Once(ctx context.Context, once ratelimit.Attempt, asks []ratelimit.Ask) ([]ratelimit.Result, bool, error) {
	switch {
	case once.ID == "":
		return nil, false, configError("id", `""`, "must not be empty")
	case !ruleconfig.ValidSpan(once.TTL):
		return nil, false, configError("ttl", once.TTL, ruleconfig.SpanRange)
	}
	ctx, err := s.check(ctx, asks, func(a *ratelimit.Ask) error {
		if a.Look && a.N >= 0 {
			return configError("look", true, "must be false: Once has a Look of its own")
		}
		return s.accepts(a)
	})
	if err != nil || len(asks) == 0 {
		return nil, false, err
	}
	c, err := s.do(ctx, &call{what: onces, asks: asks, once: once})
	if err != nil {
		return nil, false, err
	}
	return c.results, c.replayed, nil
}

// Settle changes earlier charges. Each ask names a charge by its Receipt, and Settle changes this charge to N units; see
// [ratelimit.StoreSettler]. It fails with the same errors as [Store.Take]. The error [ratelimit.ErrSettled] means that a charge of
// [ratelimit.AlgorithmInFlight] has already ended.
func (s *Store) Settle(ctx context.Context, asks []ratelimit.Ask) error {
	ctx, err := s.check(ctx, asks, func(a *ratelimit.Ask) error {
		switch {
		case a.Receipt == 0:
			return configError("receipt", 0, "must name the charge")
		case a.N < 0 || a.Charged < 0:
			return ratelimit.ErrInvalidCount
		case a.N > a.Charged:
			return s.accepts(&ratelimit.Ask{Algorithm: a.Algorithm, Rate: a.Rate, Warmup: a.Warmup})
		case a.Warmup != (ratelimit.Warmup{}):
			return s.Accepts(ratelimit.Ask{Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerSecond(1 << 30), Warmup: a.Warmup})
		}
		return nil
	})
	if err != nil || len(asks) == 0 {
		return err
	}
	s.forget(asks)
	_, err = s.do(ctx, &call{what: settles, asks: asks})
	return err
}

// Reset deletes the states of the asks, so that their keys count as unused. It also forgets the denials that were counted for a
// Penalty, and ends blocks. It deletes broken rows, too. It fails with the same errors as [Store.Take].
func (s *Store) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	return s.clear(ctx, resets, asks)
}

// Pardon ends the block of the key that each ask names, and forgets the denials of the key that were counted for the Penalty; see
// [ratelimit.StorePardoner]. It fails with the same errors as [Store.Take].
func (s *Store) Pardon(ctx context.Context, asks []ratelimit.Ask) error {
	return s.clear(ctx, pardons, asks)
}

func (s *Store) clear(ctx context.Context, what verb, asks []ratelimit.Ask) error {
	ctx, err := s.check(ctx, asks, func(*ratelimit.Ask) error { return nil })
	if err != nil || len(asks) == 0 {
		return err
	}
	s.forget(asks)
	_, err = s.do(ctx, &call{what: what, asks: asks})
	return err
}

// forget drops what the Store remembers of the rows of the asks. So the method Denied does not deny a request for these keys until the
// database has denied one again.
func (s *Store) forget(asks []ratelimit.Ask) {
	for i := range asks {
		s.known.forget(keyOf(&asks[i]))
	}
}

// check returns the context for a call: ctx, or a background context if ctx is nil. It returns an error if New has not made the Store,
// if ctx has ended, or if the function valid returns an error for one of the asks.
func (s *Store) check(ctx context.Context, asks []ratelimit.Ask, valid func(*ratelimit.Ask) error) (context.Context, error) {
	if s == nil || s.backend == nil {
		return nil, configError("store", "the zero value", "must be made by New")
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for i := range asks {
		if err := valid(&asks[i]); err != nil {
			return nil, err
		}
	}
	return ctx, nil
}

// do makes the call c, and waits until it has ended.
func (s *Store) do(ctx context.Context, c *call) (*call, error) {
	s.stats.decisions.Add(1)
	c.keys = make([]string, len(c.asks), len(c.asks)+1)
	for i := range c.asks {
		c.keys[i] = keyOf(&c.asks[i])
	}
	if c.what == onces {
		c.keys = append(c.keys, recordKey(&c.once, c.asks))
	}
	c.done, c.deadline = make(chan struct{}), time.Now().Add(s.timeout)
	if err := s.line.add(c); err != nil {
		return nil, err
	}
	return c, s.wait(ctx, c)
}

// guess returns a time that the database has certainly reached when the clock of this process shows now. The result known is false if
// no call has told the time of the database yet.
func (s *Store) guess(now time.Time) (at time.Time, known bool) {
	r := s.time.Load()
	if r == nil {
		return at, false
	}
	return r.earliest(now), true
}

// learnTime stores what a call of the Backend has told about the time of the database.
func (s *Store) learnTime(r reading) { s.time.Store(&r) }

// recall fills in the values of the rows of g, as the Store has seen them last. If the Store remembers nothing of a row, recall guesses
// that the database does not have the row.
func (s *Store) recall(g *group, now time.Time) {
	for key, r := range g.rows {
		if !r.seen {
			v, ok := s.known.get(key, now)
			r.old, r.seen, r.guessed = v.bytes, true, !ok
		}
	}
}

// reads returns the changes that only ask for the values of the rows of g.
func (g *group) reads() []Change {
	changes := make([]Change, len(g.keys))
	for i, key := range g.keys {
		changes[i] = Change{Key: []byte(key), Read: true}
	}
	return changes
}

// changes returns the changes that the last decisions have made to the rows of g.
func (g *group) changes() []Change {
	changes := make([]Change, 0, len(g.keys))
	for _, key := range g.keys {
		if r := g.rows[key]; r.used {
			changes = append(changes, Change{Key: []byte(key), Old: r.old, New: r.new, Expires: r.expires})
		}
	}
	return changes
}

// learn stores the values that the rows of g now have, according to the answer of the database (swapped). The parameter decided is false
// if the call has only read the rows. If another process had changed a row first, learn counts a miss.
func (s *Store) learn(g *group, swapped *Group, read reading, decided bool) {
	denied := make(map[string]bool)
	for _, c := range g.calls {
		for i := range c.results {
			if swapped.Done && !c.results[i].Allowed && c.what == takes {
				denied[c.keys[i]] = true
			}
		}
	}
	missed := false
	for i := range swapped.Changes {
		c := &swapped.Changes[i]
		r := g.rows[string(c.Key)]
		v := value{bytes: c.New, denied: denied[r.key], reading: read}
		if !swapped.Done {
			if v.bytes = c.Value; decided && !r.guessed && !bytes.Equal(c.Value, c.Old) {
				v.missed, missed = read.received, true
			}
		}
		if r.old, r.seen, r.guessed = v.bytes, true, false; !r.record {
			s.known.put(r.key, v)
		}
	}
	if missed {
		s.stats.misses.Add(1)
		g.misses++
	}
}

// Denied reports whether the store knows, without a call of the database, that the ask would be denied, and that the denial would change
// nothing in its row. In that case it also returns the result of the denial. See [WithDenialCache].
func (s *Store) Denied(a ratelimit.Ask) (res ratelimit.Result, denied bool) {
	if s == nil || s.backend == nil || s.denials == 0 || a.N < 0 {
		return res, false
	}
	key, now := keyOf(&a), s.now()
	v, ok := s.known.get(key, now)
	if !ok || !v.denied || v.bytes == nil || now.Sub(v.received) > s.denials {
		return res, false
	}
	d := deciders.Get().(*decider)
	defer deciders.Put(d)
	// Only two bounds of the present time of the database are known. The request must be denied at both of them. Denied returns the result
	// for the earlier bound, which has the longer RetryAfter.
	for _, at := range []time.Time{v.latest(now), v.earliest(now)} {
		c := &call{what: takes, asks: []ratelimit.Ask{a}, keys: []string{key}}
		g := groupsOf([]*call{c})[0]
		g.rows[key].old = v.bytes
		if d.decide(g, at, s.clock == nil); c.err != nil || c.results[0].Allowed || !bytes.Equal(g.rows[key].new, v.bytes) {
			return ratelimit.Result{}, false
		}
		res = c.results[0]
	}
	s.stats.cached.Add(1)
	return res, true
}
