package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// maxTerm is the longest HoldFor of an ask (the time for which its charge can be given back), and the longest
// TTL of a request with an ID.
const maxTerm = 366 * 24 * time.Hour

// Accepts returns nil if the store can decide asks with the same Algorithm, Rate, Warmup, Receipt, HoldFor
// and Penalty as the given ask. Otherwise it returns an error that says why the store cannot decide them.
func (s *Store) Accepts(a ratelimit.Ask) error {
	if err := s.Supports(a.Algorithm, a.Rate); err != nil {
		return err
	}
	if err := checkWarmup(&a); err != nil {
		return err
	}
	if err := checkPenalty(&a); err != nil {
		return err
	}
	return checkTerm(&a)
}

func checkTerm(a *ratelimit.Ask) error {
	if a.Receipt != 0 && (a.HoldFor < time.Microsecond || a.HoldFor > maxTerm) {
		return &ratelimit.ConfigError{Field: "term", Value: a.HoldFor, Reason: "must be from a microsecond to 366 days"}
	}
	return nil
}

// Settle changes charges. The Receipt of each ask names an earlier charge of Charged units, and Settle changes
// this charge to N units; see [ratelimit.StoreSettler]. If N is at most Charged in all asks, units are given back
// only once, even if the call is repeated. So the caller may repeat a failed call of Settle, and Settle itself
// repeats its call to the server once if the connection broke. Settle fails with the same errors as [Store.Take],
// and with [ratelimit.ErrSettled] if an ask extends a charge of [ratelimit.AlgorithmInFlight] that has ended already.
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
		case a.N < 0 || a.Charged < 0:
			return ratelimit.ErrInvalidCount
		}
		p := &cachedPlan{plan: plan{kind: kind}}
		if a.N > a.Charged || a.N > 0 && kind == 'h' {
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
	return joinSettled(ctx, errs, items, parts)
}

// joinSettled joins the errors of the calls for several slots. Some of these calls extend the time for which a
// request counts as in flight. If such a call came after that time was over, and no call has failed, the result
// matches [ratelimit.ErrSettled].
func joinSettled(ctx context.Context, errs []error, items []item, parts [][]int) error {
	var over error
	for i, err := range errs {
		if errors.Is(err, ratelimit.ErrSettled) {
			over, errs[i] = ratelimit.ErrSettled, nil
		}
	}
	if err := joinFailures(ctx, errs, items, parts); err != nil {
		return err
	}
	return over
}

// The method settle changes charges. In each item, the field id names an earlier charge, and the field n is
// how many units this charge must have afterwards. The items must be in one slot.
func (s *Store) settle(ctx context.Context, items []item) error {
	call := s.newSettlement(len(items))
	for i := range items {
		if it := &items[i]; it.kind == 'h' {
			call.addHold(it, int64(it.ask.Charged), it.n)
		} else {
			call.add(it, 0, min(it.n, int64(it.ask.Charged)), &answer{})
		}
	}
	for i := range items {
		call.exceed(&items[i])
	}
	err := call.run(ctx, s.conn)
	var failed *Error
	if !call.exceeds && errors.As(err, &failed) && failed.Class == ClassConnection && ctx.Err() == nil {
		err = call.run(ctx, s.conn) // try once more: if the server has already run the first call, the second one changes nothing
	}
	return err
}

// A settlement collects the arguments of a script that gives units back.
type settlement struct {
	needs       family   // the Lua files that the keys need, in addition to the files that every such script contains
	keys, lists []string // the names of the keys, and of the lists with the receipts of the keys
	args, more  []any    // the arguments of settle.lua, and the further arguments of exceed.lua
	edges       []edged  // says which of the further arguments must contain the edges of calendar windows: when they begin and end
	exceeds     bool     // whether a charge gets more units than it had before
}

func (s *Store) newSettlement(n int) *settlement {
	return &settlement{keys: make([]string, 0, 2*n), lists: make([]string, 0, n), args: append(make([]any, 0, 1+7*n), s.env())}
}

// The method add adds a charge to the arguments of the script: the charge that the field id of the item names.
// The argument n is how many units were charged, or 0 if the script reads this number from the receipt. The
// argument stay is how many of these units remain charged. The last argument is an empty answer, except if a
// decision in several slots gives its own charge back: then it is the answer that reported the charge.
func (c *settlement) add(it *item, n, stay int64, a *answer) {
	c.keys, c.lists = append(c.keys, it.key.text), append(c.lists, receiptsKey(it.key.text))
	if it.warmup != "" {
		c.needs |= warms
	}
	c.needs |= familyOf[it.kind] &^ settling
	c.args = append(c.args, it.letter(), strconv.FormatUint(it.id, 10), n, stay, a.at, a.before, a.after)
}

// The method addHold adds a hold, which counts n units as in flight, to the arguments of the script. The field id of
// the item names the hold. If stay is 0, the script ends the hold. Otherwise the hold lasts for the Per of its rate
// from now on.
func (c *settlement) addHold(it *item, n, stay int64) {
	c.add(it, n, stay, &answer{at: strconv.FormatInt(it.unit, 10)})
}

// The method exceed adds to the arguments how many units the given item charges in addition to its earlier
// charge. The method add must be called for all items first.
func (c *settlement) exceed(it *item) {
	beyond := min(max(it.n-int64(it.ask.Charged), 0), maxNumber)
	if it.kind == 'h' {
		beyond = 0
	}
	c.exceeds = c.exceeds || beyond > 0
	if beyond > 0 && it.frame != "" {
		c.needs |= frames
		c.edges = addEdges(c.edges, it, len(c.more)/4+1, len(c.args)+len(c.more)+2)
	}
	if c.more = append(c.more, beyond, it.gain, it.length()); it.warmup != "" {
		c.more = append(c.more, it.warmup)
	} else {
		c.more = append(c.more, it.burst)
	}
}

func (c *settlement) run(ctx context.Context, on *conn) error {
	if len(c.keys) == 0 {
		return nil
	}
	script, args := settleScripts.of(c.needs), c.args
	if c.exceeds {
		script, args = exceedScripts.of(c.needs), slices.Concat(c.args, c.more)
	}
	over, err := on.runAt(ctx, script, append(c.keys, c.lists...), args, c.edges)
	if err == nil && over == int64(1) {
		return ratelimit.ErrSettled
	}
	return err
}
