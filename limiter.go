package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// keyed has the methods that the five limiters share. S is the state of one key, and C the configuration for a rate.
type keyed[S any, C engine.Algorithm[S, C]] struct {
	engine  engine.Limiter[S, C] // decides if solo is nil; engine.Ready is false if solo is set, and in the zero value
	waiters waitline.Lines
	solo    *RateLimiter // decides, by its only rule, if there is a store or an observer; otherwise nil

	configure func(r Rate, t *engine.Timeline) (C, error) // makes the configuration for a rate; nil in the zero value
	changing  sync.Mutex                                  // held by SetRate
	rate      atomic.Pointer[Rate]
}

// init makes k ready for use. The error lists every mistake in r and opts.
func (k *keyed[S, C]) init(a Algorithm, r Rate, opts []Option, configure func(Rate, *engine.Timeline) (C, error)) error {
	set, err := newSettings(opts)
	t := newTimeline(set.clock)
	config, invalid := configure(r, &t)
	if err := errors.Join(invalid, err); err != nil {
		return err
	}
	k.configure = configure
	k.rate.Store(&r)
	if set.store != nil || set.observer != nil {
		k.solo, err = newSolo(a, r, set)
		return err
	}
	t.OnRestart(k.restart)
	k.engine.Init(t, config, set.maxKeys)
	k.waiters.Init(k.engine.Time(), set.maxWaiters, nil, nil)
	return nil
}

// restart forgets what all keys have used. It is called when a clock that was not set yet shows a valid time.
func (k *keyed[S, C]) restart() {
	k.changing.Lock()
	defer k.changing.Unlock()
	if config, err := k.configure(*k.rate.Load(), k.engine.Time()); err == nil {
		k.waiters.Restart(func() { k.engine.Restart(config) })
	}
}

// Take takes n units for key if the key has that many left; otherwise it takes none. A denial is a Result, not an
// error. With n 0, Take answers as Peek does.
//
// Take takes nothing and returns the zero Result with [ErrInvalidCount] if n is negative, and with the error of ctx if
// ctx has ended. ctx may be nil. With an error that matches [ErrStore], the Result is the answer of the
// [FailurePolicy]: act on [Result.Allowed] and log the error.
func (k *keyed[S, C]) Take(ctx context.Context, key string, n int) (res Result, err error) {
	if k.solo != nil {
		return k.takeSolo(ctx, key, n)
	}
	if err = k.refusal(ctx, n); err == nil {
		k.decide(key, int64(max(n, 1)), n > 0, &res)
	}
	return
}

// Peek returns what Allow would return, but takes nothing, so Remaining is not reduced. An [Observer] does not see it.
func (k *keyed[S, C]) Peek(key string) (res Result) {
	k.decide(key, 1, false, &res)
	return
}

// Reset forgets what key has used: the key is as if it had never been used. Callers in Wait for key are then served as
// if they had just come, in the same order. If the [Store] cannot be reached, the error matches [ErrStore].
//
// A key that was never used can be reset. But if the limiter is full, a new key shares a budget with others. If that
// budget denies the key, nothing changes and the error matches [ErrNotReset], see [WithMaxKeys].
func (k *keyed[S, C]) Reset(key string) error {
	if k.solo != nil {
		return k.solo.resetKeys(context.Background(), k.solo.set.Load().List, &Request{Client: key})
	}
	if !k.engine.Ready() {
		return errZeroLimiter
	}
	h := keytable.HashOf(key)
	done := false
	k.waiters.Adjust(func(instant) { done = k.engine.Reset(h) }, waitline.Key{Keys: &k.engine, Hash: h})
	if !done {
		return errOverflown
	}
	return nil
}

// SetRate changes the limit of all keys to r, for all of them at one instant between call and return. Callers in Wait
// are then served as if they had just come, in the same order; a caller whose units would come too late, or never, is
// refused at once. If r is invalid, SetRate changes nothing and returns an error that matches [ErrInvalidConfig].
//
// Every key keeps what it has used:
//
//   - A [TokenBucket] keeps the tokens of a key, as far as they fit the new burst: 90 of 100 become 50 of 50, and 30 of 100 become
//     30 of 50. With a larger burst, a full bucket stays full, and any other bucket fills up at the new rate.
//   - A [LeakyBucket] keeps the queue of a key. With a larger burst, a used queue gets no more room at once. With a smaller burst,
//     the room of the queue is the new burst minus the queued units, or none.
//   - The other limiters keep the count of a key: Remaining is the new limit minus the count, so a larger limit grants more at
//     once. If Per changes, the count goes into the window of the new length that is current at that instant. Units that are
//     older than the old Per do not count again.
func (k *keyed[S, C]) SetRate(r Rate) error {
	if k.configure == nil {
		return errZeroLimiter
	}
	k.engine.Time().Renew()
	k.changing.Lock()
	defer k.changing.Unlock()
	config, err := k.configure(r, k.engine.Time())
	if err != nil {
		return err
	}
	if k.solo != nil {
		if err = k.solo.UpdateRate(k.solo.set.Load().Default().Name, r); err == nil {
			k.rate.Store(&r)
		}
		return err
	}
	k.waiters.Change(func(now instant) { k.engine.SetConfig(config, now) })
	k.rate.Store(&r)
	return nil
}

// Rate returns the limit of each key: the rate of the constructor, or the last rate that SetRate has set.
func (k *keyed[S, C]) Rate() Rate {
	if k.configure == nil {
		return Rate{}
	}
	return *k.rate.Load()
}

// Len returns the number of keys that have state in this process. Some of these keys may be as if never used: the
// limiter forgets such keys only when it needs room for others, see [WithMaxKeys].
func (k *keyed[S, C]) Len() int {
	switch {
	case k.solo != nil:
		return k.solo.Stats()[0].LiveKeys
	case !k.engine.Ready():
		return 0
	}
	return k.engine.Len()
}

// refusal returns the error of Take for a request on which k cannot decide, or nil.
func (k *keyed[S, C]) refusal(ctx context.Context, n int) error {
	switch {
	case !k.engine.Ready():
		return errZeroLimiter
	case n < 0:
		return ErrInvalidCount
	case ctx != nil:
		return ctx.Err()
	}
	return nil
}

// decide decides whether key gets n units, at least 1, and takes them only if charge is true. It writes the answer to
// *res instead of returning it, because a returned Result would be copied by each caller.
func (k *keyed[S, C]) decide(key string, n int64, charge bool, res *Result) {
	if !k.engine.Ready() {
		k.decideSolo(key, int(n), charge, res)
		return
	}
	v, delay, queued := k.engine.Decide(key, n, charge)
	if queued {
		v, delay = k.decideBehind(key, n, charge)
	}
	res.Delay = delay
	fill(res, &v)
}

// decideBehind does what the method decide does, for a key that other callers wait for. These callers are served first.
func (k *keyed[S, C]) decideBehind(key string, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	h := keytable.HashOf(key)
	spots := [1]engine.Spot{engine.SpotOf(&k.engine, h, n)}
	for queued := true; queued; {
		if _, denied := k.waiters.Deny(h, spots[:], charge); denied {
			return spots[0].Verdict, 0
		}
		v, delay, queued = k.engine.Decide(key, n, charge) // Deny did not deny: no caller waits for the key any more
	}
	return v, delay
}

// decideSolo does what the method decide does, by the RateLimiter in k.solo. If k is the zero value, it denies every request.
func (k *keyed[S, C]) decideSolo(key string, n int, charge bool, res *Result) {
	switch {
	case k.solo == nil:
		res.RetryAfter, res.Reason = Never, ReasonLimit
	case charge && n == 1 && k.solo.settings.observer == nil: // an observer must see a Request.Cost of 1, but Allow sets none
		*res = k.solo.Allow(key, "")
	case charge:
		*res, _ = k.takeSolo(context.Background(), key, n)
	default:
		*res, _ = k.takeSolo(context.Background(), key, 0)
	}
}

// takeSolo does what Take does, by the RateLimiter in k.solo.
func (k *keyed[S, C]) takeSolo(ctx context.Context, key string, n int) (Result, error) {
	req := Request{Client: key, Cost: n}
	if n == 0 {
		return k.solo.Peek(ctx, req)
	}
	return k.solo.Check(ctx, req)
}

// newSolo returns a RateLimiter whose only rule, the default rule, has the algorithm a and the valid rate r. It decides for
// a limiter that has a store or an observer.
func newSolo(a Algorithm, r Rate, set settings) (*RateLimiter, error) {
	if err := set.named(); err != nil {
		return nil, err
	}
	if err := unsupported("rate", supportsOf(set.store), Ask{Algorithm: a, Rate: r}); err != nil {
		return nil, err
	}
	rule := Rule{Name: cmp.Or(set.name, string(a)), Algorithm: a, Rate: r}
	set.single, set.required = true, nil
	return newRateLimiter(nil, &rule, set, nil)
}
