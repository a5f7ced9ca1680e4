package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// penaltyKey returns the name of the key in the server that has the strikes (the denials counted for a Penalty) and the
// block of the given key. No state has such a name: in the name of a state, a semicolon is written as a % and two digits.
func penaltyKey(key string) string { return key + ";p" }

// maxPenalty is the longest duration that a field of a Penalty may have.
const maxPenalty = 366 * 24 * time.Hour

// penaltyOf returns the Penalty of the ask. For a rule in shadow mode, it returns no Penalty: such a rule only observes,
// so it must not block anybody.
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

// strikes reports whether a denial of the ask is a strike: whether it counts toward the number of denials after which the
// Penalty blocks the key. In two more cases a denial is no strike, but they are tested elsewhere: the script tests whether a
// block has denied the ask, and addPenalties tests whether the call only looks.
func strikes(a *ratelimit.Ask) bool {
	return penalized(a) && !a.NoStrike && a.N > 0
}

// penaltyArgs appends the fields of the Penalty to args, the arguments of a script; durations are in microseconds.
func penaltyArgs(args []any, p ratelimit.Penalty) []any {
	return append(args, p.After, p.Within.Microseconds(), p.For.Microseconds(), p.Most.Microseconds())
}

// addPenalties appends to keys and args what the Lua file penalty.lua needs for the items that have a Penalty. It also
// returns the set of Lua files that contains only penalty.lua. If no item has a Penalty, it appends nothing and returns 0.
// The parameter mode is the sum of the modes of the script.
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

// strikeOthers is called when a request with an ID is denied. It looks at the keys that are not in the Cluster slot of
// the record (the stored answers to the request), and counts their denials as strikes (toward a Penalty). The calls that
// decided on these keys could not count the denials, because they did not know yet whether there was a record. (If there is
// one, the request gets the answers in the record, and no denial counts.) If a call of strikeOthers to the server fails, the
// strikes of this call are not counted.
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

// deleteKeys deletes keys in the server. For each ask, it calls the function in the last parameter with the name of the ask's
// state, and deletes the keys that the function returns. It also drops what this process's denial cache has about the states.
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

// A block describes the time for which a Penalty blocks a key, as far as the denial of one request shows it.
type block struct {
	n            int64         // how many units the request wanted, or 1 if it wanted none
	rest         int64         // how long the block still lasts, in microseconds
	retry, reset time.Duration // the RetryAfter and the ResetAfter of the denial
}

// recordBlock records in s that a request for n units was denied because its key is blocked. The answer to this request is a.
func (s *snapshot) recordBlock(a *answer, n int64) {
	s.known, s.block = 'b', block{max(n, 1), inMicros(a.block), a.retry, a.reset}
}

// deny reports whether the server would certainly deny n units because of the block, and if so stores the denial in *res.
// It returns false if the recorded denial was for another number of units, because the RetryAfter depends on this number.
// In this comparison, each n above the limit counts as limit+1. The time since the recorded denial is between shortest and
// longest, in microseconds.
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

// learnDenial stores the answer a in the denial cache if a block denies the item. It also stores the denial of an
// item that has no Penalty and wants at most one unit. The call that brought the answer was made between began and
// ended. The parameter resets is the count of resets before the call: if the count has grown since then, learnDenial
// stores nothing, because one of these resets may have ended the denial.
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

// blockFor changes the answer, a denial, to a denial by a block that lasts for the duration rest from now. If rest is 0, it
// changes nothing.
func (a *answer) blockFor(rest time.Duration) {
	if rest == 0 {
		return
	}
	a.block, a.left, a.leftBefore, a.delay = rest, 0, 0, 0
	a.retry, a.reset, a.resetBefore = max(a.retry, rest), max(a.reset, rest), max(a.resetBefore, rest)
}

// verdict returns the first number of the answer, as scripts write it: 1 for a grant, 0 for a denial, and for a denial by
// a block how many microseconds the block still lasts, plus 1.
func (a *answer) verdict() string {
	switch {
	case a.granted:
		return "1"
	case a.block > 0:
		return fmt.Sprint(inMicros(a.block) + 1)
	}
	return "0"
}
