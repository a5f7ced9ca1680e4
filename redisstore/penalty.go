package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// penaltyKey returns the name of the key in the server that has the strikes and the block of the given key. No state
// has such a name; see aheadKey.
func penaltyKey(key string) string { return key + ";p" }

// maxPenalty is the longest duration of a Penalty.
const maxPenalty = 366 * 24 * time.Hour

// penaltyOf returns the Penalty of the ask. A rule in shadow has none, because its denials deny nothing.
func penaltyOf(a *ratelimit.Ask) ratelimit.Penalty {
	if a.Shadow {
		return ratelimit.Penalty{}
	}
	return a.Penalty
}

// penalized reports whether the ask has a Penalty, which may be invalid.
func penalized(a *ratelimit.Ask) bool { return penaltyOf(a) != (ratelimit.Penalty{}) }

// checkPenalty returns an error if the store cannot apply the Penalty of the ask, and otherwise nil.
func checkPenalty(a *ratelimit.Ask) (err error) {
	p := a.Penalty
	switch {
	case p == ratelimit.Penalty{}:
		return nil
	case a.Algorithm == ratelimit.AlgorithmInFlight:
		return &ratelimit.ConfigError{Field: "penalty", Value: p, Reason: "must be left out: a rule that counts what is running has none"}
	case p.After < 1:
		err = unsupported("penalty.after", p.After, "must be at least 1")
	}
	check := func(field string, d time.Duration) {
		switch {
		case d < time.Microsecond || d > maxPenalty:
			err = errors.Join(err, unsupported(field, d, "must be from a microsecond to 366 days"))
		case d%time.Microsecond != 0:
			err = errors.Join(err, unsupported(field, d, "must be whole microseconds in a Redis store: its clock has no finer ones"))
		}
	}
	check("penalty.within", p.Within)
	check("penalty.for", p.For)
	if p.Most == 0 {
		return err
	}
	if check("penalty.most", p.Most); p.Most < p.For {
		err = errors.Join(err, unsupported("penalty.most", p.Most, "must be at least %v, which is how long the first block lasts", p.For))
	}
	return err
}

// strikes reports whether a denial of the ask by its own state is a strike, unless the call only looks.
func strikes(a *ratelimit.Ask) bool {
	return penalized(a) && !a.NoStrike && a.N > 0
}

// penaltyArgs appends the Penalty to the arguments of a script.
func penaltyArgs(args []any, p ratelimit.Penalty) []any {
	return append(args, p.After, p.Within.Microseconds(), p.For.Microseconds(), p.Most.Microseconds())
}

// addPenalties appends to keys and args what penalty.lua needs for those of the items that have a Penalty. If there are
// none, it appends nothing and returns penal = 0; otherwise penal is the family of penalty.lua. mode is that of the
// script for all items.
func addPenalties(items []item, mode int, keys []string, args []any) ([]string, []any, family) {
	n := 0
	for i := range items {
		it := &items[i]
		if !penalized(it.ask) {
			continue
		}
		n++
		keys = append(keys, penaltyKey(it.key.text))
		args = append(penaltyArgs(append(args, i+1), it.ask.Penalty), flag(it.strikes && mode&(looking|rehearsing) == 0))
	}
	if n == 0 {
		return keys, args, 0
	}
	return keys, append(args, n), penal
}

// strikeOthers counts the strikes of a request with an ID, for the keys in other slots than that of its record. The
// calls that have decided about these keys could not do so, because they did not know yet whether the record would
// answer. If a call fails, its strikes are not counted.
func (r *retryable) strikeOthers(ctx context.Context) {
	inParallel(len(r.others), func(i int) {
		var places []int
		var keys []string
		args := []any{r.store.env()}
		for _, place := range r.others[i] {
			if it, a := &r.items[place], &r.answers[place]; it.strikes && !a.granted && a.block == 0 {
				places, keys = append(places, place), append(keys, penaltyKey(it.key.text))
				args = penaltyArgs(args, it.ask.Penalty)
			}
		}
		if len(places) == 0 {
			return
		}
		reply, err := r.store.conn.run(ctx, strikesScript, keys, args)
		rests, _ := reply.([]any)
		if err != nil || len(rests) != len(places) {
			return
		}
		read := reader{items: rests}
		for _, place := range places {
			r.answers[place].blockFor(read.duration())
		}
	})
}

// Pardon ends the blocks of the states that the asks name, and forgets their strikes; see [ratelimit.StorePardoner].
// It fails with the same errors as [Store.Take].
func (s *Store) Pardon(ctx context.Context, asks []ratelimit.Ask) error {
	return s.deleteKeys(ctx, asks, func(key string) []string { return []string{penaltyKey(key)} })
}

// deleteKeys deletes the keys that the function of returns for the name of each ask's state, and drops what this process
// knows about denials of these states.
func (s *Store) deleteKeys(ctx context.Context, asks []ratelimit.Ask, of func(key string) []string) error {
	items := make([]item, len(asks))
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return err
	}
	for i := range asks {
		if algorithms[asks[i].Algorithm] == 0 {
			return noAlgorithm(asks[i].Algorithm)
		}
		items[i].key = s.keyOf(&asks[i])
	}
	defer s.conn.denials.reset(asks)
	parts := s.routing.parts(items)
	errs := make([]error, len(parts))
	inParallel(len(parts), func(i int) {
		var keys []string
		for _, place := range parts[i] {
			keys = append(keys, of(items[place].key.text)...)
		}
		errs[i] = s.conn.del(ctx, keys)
	})
	return joinFailures(ctx, errs, items, parts)
}

// A block is what is known about the block of a key from the denial of a request for some units.
type block struct {
	n            int64         // how many units the request wanted, or 1 if it wanted none
	rest         int64         // how long the block still lasts, in microseconds
	retry, reset time.Duration // the RetryAfter and the ResetAfter of the denial
}

// recordBlock records in s that a block has denied n units, as the answer a says.
func (s *snapshot) recordBlock(a *answer, n int64) {
	s.known, s.block = 'b', block{max(n, 1), inMicros(a.block), a.retry, a.reset}
}

// deny reports whether the block certainly still denies n units, and if so stores the denial in *res. The arguments are
// those of snapshot.deny.
func (b *block) deny(p *plan, n, longest, shortest int64, res *ratelimit.Result) bool {
	if min(n, p.limit+1) != b.n || longest >= b.rest {
		return false
	}
	*res = ratelimit.Result{Limit: int(p.limit), RetryAfter: b.retry, ResetAfter: b.reset, Reason: ratelimit.ReasonPenalty}
	for _, d := range []*time.Duration{&res.RetryAfter, &res.ResetAfter} {
		if *d != ratelimit.Never {
			*d -= time.Duration(shortest) * time.Microsecond
		}
	}
	return true
}

// learnDenial stores that the answer a denies the item, if a block does so, or if it is a denial of one unit that is no
// strike. The call that has brought the answer was made between began and ended, and resets is the number of resets
// before it; see the method learn.
func (d *denials) learnDenial(it *item, a *answer, began, ended time.Duration, resets int64) {
	if d == nil || resets != d.resets.Load() {
		return
	}
	known := &denial{
		algorithm: it.ask.Algorithm, rate: it.ask.Rate, warmup: it.ask.Warmup, penalty: penaltyOf(it.ask), plan: it.plan,
		sent: began, received: ended,
	}
	switch {
	case a.block > 0:
		known.state.recordBlock(a, it.n)
	case !a.granted && it.n <= 1 && !penalized(it.ask):
		known.state.recordDenial(a)
	}
	if known.state.known != 0 {
		d.keep(stateIDOf(it.ask), known, true)
	}
}

// blockFor changes the answer, which is a denial, to that of a block that lasts for the time rest from now, unless rest
// is 0.
func (a *answer) blockFor(rest time.Duration) {
	if rest == 0 {
		return
	}
	a.block, a.left, a.leftBefore, a.delay = rest, 0, 0, 0
	a.retry, a.reset, a.resetBefore = max(a.retry, rest), max(a.reset, rest), max(a.resetBefore, rest)
}

// verdict returns the first number of the answer, as scripts write it.
func (a *answer) verdict() string {
	switch {
	case a.granted:
		return "1"
	case a.block > 0:
		return fmt.Sprint(inMicros(a.block) + 1)
	}
	return "0"
}
