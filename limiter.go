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

// A Limiter grants or denies units to keys, such as clients. Each key has a budget of its
// own. [TokenBucket], [FixedWindow], [SlidingWindowLog], [SlidingWindowCounter] and
// [LeakyBucket] are Limiters. The package ratelimittest checks a Limiter that you write.
//
// A key may have any bytes. The empty key is a key like any other. A Limiter is safe for
// concurrent use by multiple goroutines.
type Limiter interface {
	// Allow takes one unit for key if the key has one left. A denial changes nothing.
	Allow(key string) Result

	// Take takes n units for key if the key has that many left; otherwise it
	// takes none. With n 0, it takes nothing and returns the answer that one
	// unit would get; Remaining still counts that unit.
	//
	// If n is negative, Take returns the zero Result and [ErrInvalidCount]. If
	// ctx has ended, it returns the zero Result and the error of ctx. In both
	// cases it takes nothing.
	Take(ctx context.Context, key string, n int) (Result, error)
}

// keyed is what the five limiters embed: with an algorithm's state S and configuration C, it
// has the methods that all limiters share.
type keyed[S any, C engine.Algorithm[S, C]] struct {
	engine  engine.Limiter[S, C] // decides; not ready if solo is set, or in the zero value
	waiters waitline.Lines
	solo    *solo // decides in place of engine if there is a store or an observer

	configure func(r Rate, start time.Time) (C, error) // nil in the zero value
	changing  sync.Mutex                               // held by SetRate
	rate      atomic.Pointer[Rate]
}

// init makes k ready for use. The error is everything that is wrong with r and opts, joined.
func (k *keyed[S, C]) init(a Algorithm, r Rate, opts []Option, configure func(Rate, time.Time) (C, error)) error {
	set, err := newSettings(opts)
	t := newTimeline(set.clock)
	config, invalid := configure(r, t.Start())
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

// restart makes every key as new, after the clock was set to a usual time.
func (k *keyed[S, C]) restart() {
	k.changing.Lock()
	defer k.changing.Unlock()
	if config, err := k.configure(*k.rate.Load(), k.engine.Time().Start()); err == nil {
		k.waiters.Restart(func() { k.engine.Restart(config) })
	}
}

// Take takes n units for key if the key has that many left; otherwise it takes none. A
// denial is a Result, not an error. With n 0, Take answers as Peek does.
//
// Take takes nothing and returns the zero Result with [ErrInvalidCount] if n is negative,
// and with the error of ctx if ctx has ended. ctx may be nil. With an error that matches
// [ErrStore], the Result is the answer of the [FailurePolicy]: the caller should act on
// [Result.Allowed] and log the error.
func (k *keyed[S, C]) Take(ctx context.Context, key string, n int) (res Result, err error) {
	if k.solo != nil {
		return k.solo.take(ctx, key, n)
	}
	if err = k.refusal(ctx, n); err == nil {
		k.decide(key, int64(max(n, 1)), n > 0, &res)
	}
	return
}

// Peek returns what Allow would return now, but takes nothing: Remaining still counts the
// unit that Allow would have taken. An [Observer] does not see it.
func (k *keyed[S, C]) Peek(key string) (res Result) {
	k.decide(key, 1, false, &res)
	return
}

// Reset forgets what key has used: the key is as if it had never been used. The callers of
// Wait for key are then served as if they came now, in the same order. If the [Store] cannot
// be reached, the error matches [ErrStore].
//
// A key that was never used can be reset. But if the limiter has no room for its state, and
// it is denied because of the budget that such keys share, nothing changes and the error
// matches [ErrNotReset]; see [WithMaxKeys].
func (k *keyed[S, C]) Reset(key string) error {
	if k.solo != nil {
		l := k.solo.limiter
		return l.resetKeys(context.Background(), l.set.Load().rules, &Request{Client: key})
	}
	if !k.engine.Ready() {
		return errZeroLimiter
	}
	k.engine.Time().Renew()
	h := keytable.HashOf(key)
	done := false
	k.waiters.Change(func(instant) { done = k.engine.Reset(h) }, func(w *waitline.Waiter) bool { return w.Set == h })
	if !done {
		return errOverflown
	}
	return nil
}

// SetRate changes the limit of all keys to r. It takes effect for all of them at one instant
// between call and return. The callers of Wait are then served as if they came now, in the same
// order: one whose units would come too late, or never, is refused at once. If r is invalid, SetRate
// returns an error that matches [ErrInvalidConfig] and changes nothing.
//
// Every key keeps what it has used. If a bucket gets a larger burst, its key has no more
// tokens than before, and earns the rest at the new rate. If it gets a smaller burst, the
// key has at most the new burst less the tokens that it has used. Windows and logs keep
// their counts: Remaining is the new limit less the count, so a larger limit grants more at
// once. If Per changes, the count goes into the window of the new length that is current at
// that instant. Units that are older than the old Per do not count again.
func (k *keyed[S, C]) SetRate(r Rate) error {
	if k.configure == nil {
		return errZeroLimiter
	}
	k.engine.Time().Renew()
	k.changing.Lock()
	defer k.changing.Unlock()
	config, err := k.configure(r, k.engine.Time().Start())
	if err != nil {
		return err
	}
	if k.solo != nil {
		if err = k.solo.limiter.UpdateRate(k.solo.rule, r); err == nil {
			k.rate.Store(&r)
		}
		return err
	}
	k.waiters.Change(func(now instant) { k.engine.SetConfig(config, now) }, nil)
	k.rate.Store(&r)
	return nil
}

// Rate returns the limit of each key: that of the constructor, or the last one that SetRate
// has set.
func (k *keyed[S, C]) Rate() Rate {
	if k.configure == nil {
		return Rate{}
	}
	return *k.rate.Load()
}

// Len returns the number of keys that the limiter keeps state for in this process. Some of
// them may be as if they had never been used, because the limiter forgets such keys only
// when it needs the room, see [WithMaxKeys].
func (k *keyed[S, C]) Len() int {
	switch {
	case k.solo != nil:
		return k.solo.limiter.Stats()[0].LiveKeys
	case !k.engine.Ready():
		return 0
	}
	return k.engine.Len()
}

// refusal returns the error for a request that is not decided at all, or nil.
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

// decide decides on n units, at least 1, for key, and takes them only if charge is set. It
// writes the answer to res, because each caller would copy a Result that it returns.
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

// decideBehind is decide for a key that others wait for: they are served before.
func (k *keyed[S, C]) decideBehind(key string, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	h := keytable.HashOf(key)
	spots := [1]engine.Spot{{Keys: &k.engine, Hash: h}}
	for queued := true; queued; {
		if _, denied := k.waiters.Deny(h, spots[:], n, charge); denied {
			return spots[0].Verdict, 0
		}
		v, delay, queued = k.engine.Decide(key, n, charge) // they have gone since
	}
	return v, delay
}

// decideSolo is decide for a limiter that has a solo, and for the zero value, which denies
// everything.
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

// A solo is a RateLimiter with one rule. It decides for a limiter outside a RateLimiter that
// has a store or an observer, so that there is one way to call these.
type solo struct {
	limiter *RateLimiter
	rule    string
}

// newSolo returns the solo for a limiter of algorithm a at the rate r, which is valid.
func newSolo(a Algorithm, r Rate, set settings) (*solo, error) {
	if err := set.named(); err != nil {
		return nil, err
	}
	if err := unsupported(supportsOf(set.store), Ask{Algorithm: a, Rate: r}); err != nil {
		return nil, err
	}
	rule := Rule{Name: set.name, Algorithm: a, Rate: r}
	if rule.Name == "" {
		rule.Name = string(a)
	}
	set.solo, set.required = true, nil
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
