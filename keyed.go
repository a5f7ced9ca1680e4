package ratelimit

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// An instant is a reading of a limiter's clock.
type instant = keytable.Instant

// An algorithm is a configuration that decides on states S. C is the
// configuration's own type, a pointer.
//
// The five algorithms implement it, each in a file of its own.
type algorithm[S, C any] interface {
	// step takes n units, at least 1, for the key with state s, or explains
	// why not. It changes s only if it grants them and charge is set. A now
	// before the last charge counts as that. What s owes drains at the pace of
	// pace: the configuration itself, but for a debt that keys of several rates
	// share. delay is how long to hold what is granted.
	step(s *S, pace C, now instant, n int64, charge bool) (v verdict, delay time.Duration)

	// carry makes s, which drained at the pace of from until now, a state that
	// drains at the pace of this configuration. What is owed stays owed.
	carry(s *S, from C, now instant)

	// resize makes s, a state of the limit of from and the pace of this
	// configuration, one of its limit too. The key keeps what it has used: it
	// may have more than before only because a higher limit leaves more beside
	// that.
	resize(s *S, from C)

	// slower reports whether a debt drains slower than under the configuration
	// than.
	slower(than C) bool

	// charged returns the instant at which s was charged last.
	charged(s *S) instant

	// giveBack takes back a charge of n units, of which charged was then, as
	// far as they have not drained.
	giveBack(s *S, then instant, n int64)

	keytable.Algorithm[S]
}

// A verdict is what a step finds. It is handed over in registers, for which a
// Result is too large.
type verdict struct {
	limit      int64         // units that could ever be granted at once
	left       int64         // units that would be granted now, after this decision
	retryAfter time.Duration // 0 if granted
	resetAfter time.Duration
}

// fill makes res say what v does.
func (v verdict) fill(res *Result) {
	res.Allowed = v.retryAfter == 0
	res.Limit = int(v.limit)
	res.Remaining = int(v.left)
	res.RetryAfter = v.retryAfter
	res.ResetAfter = v.resetAfter
}

// keyed makes a limiter of an algorithm: it has the clock, the table of states
// and the waiters. Its methods are those of the five limiters.
type keyed[S any, C algorithm[S, C]] struct {
	table     *keytable.Table[S, C] // nil in the zero value, which denies everything
	time      timeline
	configure func(r Rate, start time.Time) (C, error)
	waiters   waiters
	outside   *outside // decides in place of table, if there is a store or an observer

	changing sync.Mutex // held by SetRate
	rate     atomic.Pointer[Rate]
	config   C // guarded by changing; each shard has its own copy, guarded by its lock
}

// init makes k ready for use.
func (k *keyed[S, C]) init(a Algorithm, r Rate, opts []Option, configure func(Rate, time.Time) (C, error)) error {
	set, err := newSettings(opts)
	k.time = newTimeline(set.clock)
	config, invalid := configure(r, k.time.start)
	if err := errors.Join(invalid, err); err != nil {
		return err
	}
	if set.store != nil || set.observer != nil {
		k.configure = configure
		k.rate.Store(&r)
		k.outside, err = newOutside(a, r, set)
		return err
	}
	k.table = keytable.New[S](config, set.maxKeys)
	k.configure, k.config = configure, config
	k.rate.Store(&r)
	return nil
}

// started returns l, or nil if err says that it could not be started.
func started[L any](l *L, err error) (*L, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Take takes n units for key, all or nothing; with n 0 it looks, as Peek does. It
// takes nothing if n is negative or ctx is over. A nil ctx is never over.
func (k *keyed[S, C]) Take(ctx context.Context, key string, n int) (res Result, err error) {
	if k.outside != nil {
		return k.outside.take(ctx, key, n)
	}
	if err = k.refusal(ctx, n); err == nil {
		k.decide(key, int64(max(n, 1)), n > 0, &res)
	}
	return
}

// Peek answers as Allow would, takes nothing and leaves Remaining unreduced.
func (k *keyed[S, C]) Peek(key string) (res Result) {
	k.decide(key, 1, false, &res)
	return
}

// Reset makes key as good as new and asks its first waiter to try again.
func (k *keyed[S, C]) Reset(key string) error {
	if k.outside != nil {
		return k.outside.reset(key)
	}
	if k.table == nil {
		return errZeroLimiter
	}
	h := keytable.HashOf(key)
	s := k.table.Lock(h)
	s.Reset(h)
	s.Unlock()
	k.waiters.wake(h)
	return nil
}

// SetRate changes the rate for all keys at one instant between call and return,
// and asks the first waiter of each key to try again. Its errors match
// [ErrInvalidConfig] and change nothing.
//
// Every key keeps what it has used. A bucket keeps the tokens that it has, or, of a
// smaller burst, what is left beside those used; it earns the rest of a larger one.
// A window or log keeps its count, so a larger limit leaves more at once; with
// another Per the count goes into the window that holds then, and units that had
// left a log do not come back.
func (k *keyed[S, C]) SetRate(r Rate) error {
	if k.configure == nil {
		return errZeroLimiter
	}
	config, err := k.configure(r, k.time.start)
	if err != nil {
		return err
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	if k.outside != nil {
		if err = k.outside.setRate(r); err == nil {
			k.rate.Store(&r)
		}
		return err
	}
	from, now := k.config, k.time.now()
	k.rate.Store(&r)
	if reflect.DeepEqual(config, from) {
		return nil
	}
	k.config = config
	k.table.Reconfigure(config, func(s *S, _ bool) {
		config.carry(s, from, now)
		config.resize(s, from)
	})
	k.waiters.wakeAll()
	return nil
}

// Rate returns the rate in force.
func (k *keyed[S, C]) Rate() Rate {
	if k.configure == nil {
		return Rate{}
	}
	return *k.rate.Load()
}

// Len returns how many keys the limiter keeps state for: those that are not as
// good as new, and some that are and have not been forgotten yet.
func (k *keyed[S, C]) Len() int {
	switch {
	case k.outside != nil:
		return k.outside.len()
	case k.table == nil:
		return 0
	}
	return k.table.Len()
}

// refusal returns why a request is not decided at all, or nil.
func (k *keyed[S, C]) refusal(ctx context.Context, n int) error {
	switch {
	case k.table == nil:
		return errZeroLimiter
	case n < 0:
		return ErrInvalidCount
	case ctx != nil:
		return ctx.Err()
	}
	return nil
}

// decide takes n units, at least 1, for key, charges them if told to, and puts the
// answer where res points: a Result that is returned is copied by each caller. This
// is the way of every decision: a shard's lock, one reading of the clock, the key's
// state, the algorithm's step.
func (k *keyed[S, C]) decide(key string, n int64, charge bool, res *Result) {
	if k.table == nil {
		k.decideOutside(key, int(n), charge, res)
		return
	}
	// The machine's clock never steps back, so it is read before the lock, and
	// the shard keeps the order of time. Any other is read under the lock.
	var now instant
	if k.time.clock == nil {
		now = keytable.InstantAt(time.Since(k.time.start))
	}
	h := keytable.HashOf(key)
	shard := k.table.Lock(h)
	if k.time.clock == nil {
		now = shard.Latest(now)
	} else {
		now = k.time.nowLocked(shard)
	}
	var v verdict
	if state := shard.Find(h); state != nil {
		v, res.Delay = shard.Algorithm.step(state, shard.Algorithm, now, n, charge)
	} else {
		owed, now := shard.Owed(now)
		v, res.Delay = shard.Algorithm.step(owed, shard.Algorithm, now, n, false)
		if v.retryAfter == 0 && charge {
			v, res.Delay = admit(shard, h, now, n)
		}
	}
	if charge {
		shard.Count(v.retryAfter == 0)
	}
	shard.Unlock()
	v.fill(res)
}

// decideOutside is decide for a limiter that has no table.
func (k *keyed[S, C]) decideOutside(key string, n int, charge bool, res *Result) {
	switch {
	case k.outside == nil:
		res.RetryAfter = Never
	case charge && n == 1 && k.outside.limiter.settings.observer == nil: // who is told of a cost of 1
		*res = k.outside.limiter.Allow(key, "")
	case charge:
		*res, _ = k.outside.take(context.Background(), key, n)
	default:
		*res, _ = k.outside.take(context.Background(), key, 0)
	}
}

// admit charges n units at now to the key with hash h, which has no state yet: to a
// state of its own, or, at the bound on keys, to what it shares with others.
func admit[S any, C algorithm[S, C]](shard *keytable.Shard[S, C], h keytable.Hash, now instant, n int64) (verdict, time.Duration) {
	state := shard.Newcomer(now)
	v, delay := shard.Algorithm.step(state, shard.Algorithm, now, n, true)
	if shard.Keep(h, state, now) {
		return v, delay
	}
	owed, now := shard.Owed(now)
	return shard.Algorithm.step(owed, shard.Algorithm, now, n, true)
}
