package ratelimit

import (
	"reflect"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// states are the keys of one rule and what each has used. Its methods say nothing
// of the algorithm, so that rules of several can take part in one decision.
//
// A decision of several rules locks the keys of all, in the order of their making,
// reads the clock, asks all, and takes from all if it takes from any.
type states interface {
	// decide takes n units at the rule's own rate. It is the short way of the
	// commonest decision: one rule, one rate, nobody to tell.
	decide(h keytable.Hash, n int64) (verdict, time.Duration)

	// lock returns the shard of h, locked. now is a reading of the machine's
	// clock, if that is what the limiter reads, and is returned as the latest
	// one that the shard has seen.
	lock(h keytable.Hash, now instant) (lockedShard, instant)

	// step takes n units from the key, whose shard is s, at the rate that w
	// asks for, or that of the rule if w is nil; err says why w is not granted.
	step(s lockedShard, h keytable.Hash, w *wish, now instant, n int64, do intent) (v verdict, delay time.Duration, err error)

	// charged returns the instant at which the key, whose shard is s, was
	// charged last.
	charged(s lockedShard, h keytable.Hash) instant

	// giveBack takes back what was taken when charged was then, and answers as
	// for a look at that instant.
	giveBack(h keytable.Hash, then instant, n int64) (verdict, time.Duration)

	// remember makes the key one that has remaining units left.
	remember(h keytable.Hash, w *wish, remaining int64)

	// reset makes the key as good as new.
	reset(h keytable.Hash)

	// change returns a function that makes r the rates in force, or the
	// problem with them.
	change(r rates) (func(now instant), error)

	len() int
	counts() keytable.Counts
}

// A lockedShard is a shard of any rule.
type lockedShard interface {
	Latest(now instant) instant
	Count(allowed bool)
	CountShadowed()
	Unlock()
}

// An intent is what a step is to do.
type intent uint8

const (
	toLook intent = iota // change nothing
	toAsk                // change nothing but the rate that the key is at
	toTake               // charge the key, if there is enough
)

// engine implements states for one algorithm.
type engine[S any, C algorithm[S, C]] struct {
	time      *timeline
	table     *keytable.Table[planned[S], *plans[S, C]]
	configure func(Rate) (C, error)
	plans     *plans[S, C] // guarded by RateLimiter.changing; each shard has its own
}

// engineOf returns what makes the states of a rule of one algorithm.
func engineOf[S any, C algorithm[S, C]](configure func(Rate, time.Time) (C, error)) func(t *timeline, r rates, maxKeys int) (states, error) {
	return func(t *timeline, r rates, maxKeys int) (states, error) {
		e := &engine[S, C]{time: t, configure: func(r Rate) (C, error) { return configure(r, t.start) }}
		var err error
		if e.plans, err = newPlans[S](r, e.configure); err != nil {
			return nil, err
		}
		e.table = keytable.New[planned[S]](e.plans, maxKeys)
		return e, nil
	}
}

func (e *engine[S, C]) decide(h keytable.Hash, n int64) (v verdict, delay time.Duration) {
	var now instant
	if e.time.clock == nil {
		now = keytable.InstantAt(time.Since(e.time.start))
	}
	shard := e.table.Lock(h)
	if e.time.clock == nil {
		now = shard.Latest(now)
	} else {
		now = e.time.nowLocked(shard)
	}
	ps := shard.Algorithm
	if state := shard.Find(h); state != nil {
		v, delay = ps.step(shard, state, ps.base, now, n, true, true)
	} else {
		v, delay = takeUnseen(shard, h, ps.base, now, n)
	}
	shard.Count(v.retryAfter == 0)
	shard.Unlock()
	return v, delay
}

// takeUnseen takes n units at now for the key with hash h, which has no state yet.
func takeUnseen[S any, C algorithm[S, C]](shard *keytable.Shard[planned[S], *plans[S, C]], h keytable.Hash, p *plan[C], now instant, n int64) (verdict, time.Duration) {
	owed, seen := shard.Owed(now)
	v, delay := shard.Algorithm.stepShared(shard, owed, p, seen, n, false)
	if v.retryAfter != 0 {
		return v, delay
	}
	state := shard.Newcomer(seen)
	if from := shard.Algorithm.of(state); from != nil && from != p {
		p.config.carry(&state.state, from.config, seen)
	}
	v, delay = p.config.step(&state.state, p.config, seen, n, true)
	state.plan = p.id
	if shard.Keep(h, state, seen) {
		return v, delay
	}
	return shard.Algorithm.stepShared(shard, owed, p, seen, n, true)
}

func (e *engine[S, C]) lock(h keytable.Hash, now instant) (lockedShard, instant) {
	shard := e.table.Lock(h)
	if e.time.clock == nil {
		now = shard.Latest(now)
	}
	return shard, now
}

func (e *engine[S, C]) step(s lockedShard, h keytable.Hash, w *wish, now instant, n int64, do intent) (v verdict, delay time.Duration, err error) {
	shard := s.(*keytable.Shard[planned[S], *plans[S, C]])
	ps := shard.Algorithm
	p := ps.base
	if w != nil {
		p, err = ps.pick(w)
	}
	if state := shard.Find(h); state != nil {
		v, delay = ps.step(shard, state, p, now, n, do == toTake, do != toLook)
	} else if do == toTake {
		v, delay = takeUnseen(shard, h, p, now, n)
	} else {
		owed, seen := shard.Owed(now)
		v, delay = ps.stepShared(shard, owed, p, seen, n, false)
	}
	return v, delay, err
}

// chargedTo returns the state that the key is charged to.
func (e *engine[S, C]) chargedTo(shard *keytable.Shard[planned[S], *plans[S, C]], h keytable.Hash) *planned[S] {
	state := shard.Find(h)
	if state == nil {
		state, _ = shard.Owed(0)
	}
	return state
}

func (e *engine[S, C]) charged(s lockedShard, h keytable.Hash) instant {
	shard := s.(*keytable.Shard[planned[S], *plans[S, C]])
	state := e.chargedTo(shard, h)
	return shard.Algorithm.of(state).config.charged(&state.state)
}

func (e *engine[S, C]) giveBack(h keytable.Hash, then instant, n int64) (verdict, time.Duration) {
	shard := e.table.Lock(h)
	defer shard.Unlock()
	state, p := e.chargedTo(shard, h), shard.Algorithm.base
	if at := shard.Algorithm.of(state); at != nil { // else it was reset meanwhile
		p = at
		p.config.giveBack(&state.state, then, n)
		shard.CountGivenBack()
	}
	return p.config.step(&state.state, p.config, then, n, false)
}

func (e *engine[S, C]) remember(h keytable.Hash, w *wish, remaining int64) {
	now := e.time.now()
	shard := e.table.Lock(h)
	defer shard.Unlock()
	p, _ := shard.Algorithm.pick(w)
	s := shard.Scratch(planned[S]{})
	v, _ := p.config.step(&s.state, p.config, now, 1, false)
	if used := v.limit - remaining; used > 0 {
		p.config.step(&s.state, p.config, now, used, true)
		s.plan = p.id
	}
	switch state := shard.Find(h); {
	case state != nil:
		*state = *s
	case s.plan != 0:
		shard.Keep(h, s, now)
	}
}

func (e *engine[S, C]) reset(h keytable.Hash) {
	shard := e.table.Lock(h)
	shard.Reset(h)
	shard.Unlock()
}

func (e *engine[S, C]) change(r rates) (func(now instant), error) {
	ps, err := newPlans[S](r, e.configure)
	if err != nil {
		return nil, err
	}
	return func(now instant) {
		old := e.plans
		if reflect.DeepEqual(r, old.rates) {
			return
		}
		e.plans = ps
		moves := ps.moves(old)
		e.table.Reconfigure(ps, func(s *planned[S], shared bool) { ps.renumber(s, old, moves, now, shared) })
	}, nil
}

func (e *engine[S, C]) len() int                { return e.table.Len() }
func (e *engine[S, C]) counts() keytable.Counts { return e.table.Counts() }
