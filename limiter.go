package ratelimit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// A Limiter grants units to keys. Each key has a budget of its own.
//
// A key is any sequence of bytes; the empty key is a key like any other. The
// algorithms of this package and a user's own are all Limiters, and the package
// ratelimittest checks that they keep what is promised here.
type Limiter interface {
	// Allow takes one unit for key if it is to be had now, and reports
	// whether it was.
	Allow(key string) Result

	// Take takes n units for key, all or nothing. It takes nothing and
	// returns the zero Result if n is negative, with [ErrInvalidCount], or
	// if ctx is over, with its error. With n 0 it looks: it answers as for
	// one unit, takes nothing and leaves Remaining unreduced.
	Take(ctx context.Context, key string, n int) (Result, error)
}

// keyed makes a limiter of an algorithm. Its methods are those of the five limiters,
// which embed it.
type keyed[S any, C engine.Algorithm[S, C]] struct {
	engine  engine.Limiter[S, C] // decides; not ready in the zero value, or if there is solo
	waiters waitline.Lines
	solo    *solo // decides in place of engine if there is a store or an observer

	configure func(r Rate, start time.Time) (C, error) // nil in the zero value
	start     time.Time                                // of the limiter, by its clock

	changing sync.Mutex // held by SetRate
	rate     atomic.Pointer[Rate]
}

// init makes k ready for use.
func (k *keyed[S, C]) init(a Algorithm, r Rate, opts []Option, configure func(Rate, time.Time) (C, error)) error {
	set, err := newSettings(opts)
	t := newTimeline(set.clock)
	config, invalid := configure(r, t.Start())
	if err := errors.Join(invalid, err); err != nil {
		return err
	}
	k.configure, k.start = configure, t.Start()
	k.rate.Store(&r)
	if set.store != nil || set.observer != nil {
		k.solo, err = newSolo(a, r, set)
		return err
	}
	k.engine.Init(t, config, set.maxKeys)
	return nil
}

// Take takes n units for key, all or nothing; with n 0 it looks, as Peek does. It
// takes nothing if n is negative or ctx is over. A nil ctx is never over.
func (k *keyed[S, C]) Take(ctx context.Context, key string, n int) (res Result, err error) {
	if k.solo != nil {
		return k.solo.take(ctx, key, n)
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

// Reset makes key as good as new and wakes its first waiter, who tries again.
func (k *keyed[S, C]) Reset(key string) error {
	if k.solo != nil {
		return k.solo.reset(key)
	}
	if !k.engine.Ready() {
		return errZeroLimiter
	}
	h := keytable.HashOf(key)
	k.engine.Reset(h)
	k.waiters.Wake(h)
	return nil
}

// SetRate changes the rate for all keys at one instant between call and return, and
// wakes the first waiter of each key, who tries again. Its errors match
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
	config, err := k.configure(r, k.start)
	if err != nil {
		return err
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	if k.solo != nil {
		if err = k.solo.setRate(r); err == nil {
			k.rate.Store(&r)
		}
		return err
	}
	changed := k.engine.SetConfig(config)
	k.rate.Store(&r)
	if changed {
		k.waiters.WakeAll()
	}
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
	case k.solo != nil:
		return k.solo.len()
	case !k.engine.Ready():
		return 0
	}
	return k.engine.Len()
}

// refusal returns why a request is not decided at all, or nil.
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

// decide takes n units, at least 1, for key, charges them if charge is set, and puts the
// answer where res points: a Result that is returned would be copied by each caller on
// the way.
func (k *keyed[S, C]) decide(key string, n int64, charge bool, res *Result) {
	if !k.engine.Ready() {
		k.decideSolo(key, int(n), charge, res)
		return
	}
	var v engine.Verdict
	v, res.Delay = k.engine.Decide(key, n, charge)
	fill(res, &v)
}

// decideSolo is decide for a limiter that has a store or an observer, and for the zero
// value.
func (k *keyed[S, C]) decideSolo(key string, n int, charge bool, res *Result) {
	switch {
	case k.solo == nil:
		res.RetryAfter = Never
	case charge && n == 1 && k.solo.limiter.settings.observer == nil: // the observer must see a cost of 1
		*res = k.solo.limiter.Allow(key, "")
	case charge:
		*res, _ = k.solo.take(context.Background(), key, n)
	default:
		*res, _ = k.solo.take(context.Background(), key, 0)
	}
}

// A solo is a RateLimiter of one rule, behind a limiter that has a store or an observer.
type solo struct {
	limiter *RateLimiter
	rule    string
}

// newSolo returns a limiter of algorithm a at the rate r, which is valid.
func newSolo(a Algorithm, r Rate, set settings) (*solo, error) {
	if set.store != nil && set.name == "" {
		return nil, &ConfigError{"name", `""`, "must be set by WithName: it tells the limiters in a store apart"}
	}
	if supports := supportsOf(set.store); supports != nil {
		if err := supports(a, r); err != nil {
			return nil, &ConfigError{"rate", r, notSupported + err.Error()}
		}
	}
	rule := Rule{Name: set.name, Algorithm: a, Rate: r}
	if rule.Name == "" {
		rule.Name = string(a)
	}
	set.solo = true
	l, err := newRateLimiter(nil, &rule, set, nil)
	if err != nil {
		return nil, err
	}
	return &solo{l, rule.Name}, nil
}

func (s *solo) take(ctx context.Context, key string, n int) (Result, error) {
	req := Request{Client: key, Cost: n}
	if n == 0 {
		return s.limiter.Peek(ctx, req)
	}
	return s.limiter.Check(ctx, req)
}

func (s *solo) wait(ctx context.Context, key string, n int) (Result, error) {
	if n == 0 {
		return s.take(ctx, key, 0)
	}
	return s.limiter.Wait(ctx, Request{Client: key, Cost: n})
}

func (s *solo) reset(key string) error { return s.limiter.Reset(key, "") }

func (s *solo) setRate(r Rate) error { return s.limiter.UpdateRate(s.rule, r) }

func (s *solo) len() int { return s.limiter.Stats()[0].LiveKeys }
