package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// maxTerm is the longest time for which a charge may be given back.
const maxTerm = 366 * 24 * time.Hour

// Accepts returns nil if the store can decide on asks like a, and otherwise an error that says
// why it cannot.
func (s *Store) Accepts(a ratelimit.Ask) error {
	if err := s.Supports(a.Algorithm, a.Rate); err != nil {
		return err
	}
	if err := checkWarmup(&a); err != nil {
		return err
	}
	return checkTerm(&a)
}

func checkTerm(a *ratelimit.Ask) error {
	if a.Receipt != 0 && (a.Term < time.Microsecond || a.Term > maxTerm) {
		return &ratelimit.ConfigError{Field: "term", Value: a.Term, Reason: "must be from a microsecond to 366 days"}
	}
	return nil
}

// Settle makes each charge that an ask names by its Receipt one of N units, not Was; see
// [ratelimit.Store]. What is given back is given back once, so a call that has failed may be
// repeated; Settle itself does so once if the connection broke. A call that charges units beyond
// Was is not repeated. It fails with the same errors as [Store.Take].
func (s *Store) Settle(ctx context.Context, asks []ratelimit.Ask) error {
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return err
	}
	items := make([]item, len(asks))
	for i := range asks {
		a := &asks[i]
		kind := algorithms[a.Algorithm]
		switch {
		case kind == 0:
			return noAlgorithm(a.Algorithm)
		case a.Receipt == 0:
			return &ratelimit.ConfigError{Field: "receipt", Value: 0, Reason: "must name the charge"}
		case a.N < 0 || a.Was < 0:
			return ratelimit.ErrInvalidCount
		}
		p := &cachedPlan{plan: plan{kind: kind}}
		if a.N > a.Was {
			if p, err = s.plans.planOf(a.Algorithm, a.Rate); err != nil {
				return err
			}
			if err = checkWarmup(a); err != nil {
				return err
			}
		}
		items[i] = item{ask: a, key: s.keyOf(a), cachedPlan: p, n: int64(a.N), id: a.Receipt, warmup: warmupOf(a, p.burst)}
	}
	defer s.conn.denials.reset(asks)
	parts := s.routing.parts(items)
	errs := make([]error, len(parts))
	inParallel(len(parts), func(i int) {
		some := make([]item, len(parts[i]))
		for j, place := range parts[i] {
			some[j] = items[place]
		}
		errs[i] = s.settle(ctx, some)
	})
	return joinFailures(ctx, errs, items, parts)
}

// settle makes the charges that items name by their ids charges of n units. The items are in one
// slot.
func (s *Store) settle(ctx context.Context, items []item) error {
	call := s.newSettlement(len(items))
	for i := range items {
		call.add(&items[i], 0, min(items[i].n, int64(items[i].ask.Was)), &answer{})
	}
	for i := range items {
		call.exceed(&items[i])
	}
	err := call.run(ctx, s.conn)
	var failed *Error
	if !call.exceeds && errors.As(err, &failed) && failed.Class == ClassConnection && ctx.Err() == nil {
		err = call.run(ctx, s.conn) // if the first was run, its charges are settled, and this one does nothing
	}
	return err
}

// A settlement is a call of the script that gives units back.
type settlement struct {
	warms       bool // whether there are keys that warm up
	keys, lists []string
	args, more  []any
	exceeds     bool // whether units beyond those that were charged are charged now
}

func (s *Store) newSettlement(n int) *settlement {
	return &settlement{keys: make([]string, 0, 2*n), lists: make([]string, 0, n), args: append(make([]any, 0, 1+7*n), s.env())}
}

// add adds a charge of n units by u, of which so many stay. a is the answer to the decision that
// made it, if the charge was denied by another part of that.
func (c *settlement) add(u *item, n, stay int64, a *answer) {
	c.keys, c.lists = append(c.keys, u.key.text), append(c.lists, receiptsKey(u.key.text))
	c.warms = c.warms || u.warmup != ""
	c.args = append(c.args, u.letter(), strconv.FormatUint(u.id, 10), n, stay, a.at, a.before, a.after)
}

// exceed adds the units that the ask of u, which was added, was not charged.
func (c *settlement) exceed(u *item) {
	beyond := min(max(u.n-int64(u.ask.Was), 0), maxNumber)
	c.exceeds = c.exceeds || beyond > 0
	if c.more = append(c.more, beyond, u.gain, u.unit); u.warmup != "" {
		c.more = append(c.more, u.warmup)
	} else {
		c.more = append(c.more, u.burst)
	}
}

func (c *settlement) run(ctx context.Context, on *conn) error {
	if len(c.keys) == 0 {
		return nil
	}
	script, args := settleScripts[c.warms], c.args
	if c.exceeds {
		script, args = exceedScripts[c.warms], slices.Concat(c.args, c.more)
	}
	_, err := on.run(ctx, script, append(c.keys, c.lists...), args)
	return err
}
