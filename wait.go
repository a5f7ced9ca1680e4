package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// Wait takes n units for key as soon as l has them, and returns when it did. A
// failed Wait has taken nothing, with one exception that [LeakyBucket] has.
//
// It fails at once, without waiting, if n is negative ([ErrInvalidCount]), if n is
// more than the limit ([ErrExceedsLimit]), or if the units will not be there
// before ctx's deadline (an error that matches [context.DeadlineExceeded]); the
// Result is then the denial. It returns ctx's error if ctx ends while it waits. A
// deadline is one of the machine's time, or, if that has passed it although ctx has
// not ended, of the limiter's clock.
//
// The limiters of this package serve the waiters of one key in the order in which
// they came, and wait on the limiter's clock. Allow and Take do not queue: a call that
// comes in between may take what it finds. Any other Limiter is asked again after
// each RetryAfter, on real time.
func Wait(ctx context.Context, l Limiter, key string, n int) (Result, error) {
	switch l := l.(type) {
	case nil:
		return Result{}, &ConfigError{"limiter", nil, "must not be nil"}
	case interface {
		Wait(ctx context.Context, key string, n int) (Result, error)
	}:
		return l.Wait(ctx, key, n)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	var real engine.Timeline
	for {
		res, err := l.Take(ctx, key, n)
		if err != nil && !errors.Is(err, ErrStore) || res.Allowed || n == 0 {
			return res, err
		}
		if err := impossible(res, res.RetryAfter, real.Patience(ctx)); err != nil {
			return res, err
		}
		// A Limiter that denies without saying for how long is not to
		// be asked without pause.
		if err := real.Sleep(ctx, 0, max(res.RetryAfter, time.Millisecond), nil); err != nil {
			return Result{}, err
		}
	}
}

// Wait takes n units for key as soon as they are to be had, in the order of
// arrival among the waiters of key; see the function [Wait] for when it fails.
//
// A LeakyBucket's Wait returns after the request's Delay. It fails uncharged if
// the Delay outlasts ctx's deadline; but if ctx is cancelled during the Delay, the
// request keeps its place in the bucket.
func (k *keyed[S, C]) Wait(ctx context.Context, key string, n int) (Result, error) {
	if k.solo != nil {
		return k.solo.wait(ctx, key, n)
	}
	if err := k.refusal(ctx, n); err != nil {
		return Result{}, err
	}
	if n == 0 {
		return k.Peek(key), nil
	}
	h := keytable.HashOf(key)
	return waitInLine(ctx, k.engine.Time(), &k.waiters, h, func(_ context.Context, turn bool, patience time.Duration) try {
		c := k.engine.Claim(h, int64(n), turn, patience)
		t := try{now: c.Now}
		fill(&t.res, &c.Verdict)
		t.res.Delay = c.Delay
		t.finish(c.Taken, c.DelayThen, patience)
		return t
	})
}

// Wait takes req.Cost units from each rule for req as soon as all have them, and
// returns when it did; see the function [Wait] for when it fails. Requests that take
// from the same keys of the same rules are served in the order in which they came.
//
// A [LeakyBucket]'s Delay is waited for too, as by its own Wait.
func (l *RateLimiter) Wait(ctx context.Context, req Request) (Result, error) {
	if l.set.Load() == nil || req.Cost < 0 || ctx != nil && ctx.Err() != nil {
		return l.check(ctx, &req, true)
	}
	h, err := l.lineOf(&req)
	if err != nil {
		return Result{}, err
	}
	return waitInLine(ctx, &l.time, &l.waiters, h, func(ctx context.Context, turn bool, patience time.Duration) try {
		d := newDecision(&req, turn)
		defer d.free()
		d.order.Within, d.order.AskAgain = max(patience, 0), true
		var t try
		t.res, t.err = l.run(ctx, d)
		t.now = d.Now
		t.finish(turn && !d.Late, d.DelayThen, patience)
		return t
	})
}

// lineOf returns the identity of the line that req waits in.
func (l *RateLimiter) lineOf(req *Request) (keytable.Hash, error) {
	d := newDecision(req, false)
	defer d.free()
	h := globalHash
	if err := d.prepare(l.set.Load()); err != nil {
		return h, err
	}
	for i, r := range d.rules {
		h = h.With(r.serial, d.parts[i].Hash)
	}
	return h, nil
}

// A try is one attempt of a waiter to take what it wants.
type try struct {
	res  Result
	err  error
	now  instant       // the reading of the clock that it was made at
	wait time.Duration // if it failed: how long the units, and after them their Delay, are away
}

// finish makes t, which has a Result, an attempt that succeeded if and only if the units
// were taken. delayThen is the Delay of a denied attempt when it would be granted, and
// patience is how long the waiter may wait.
func (t *try) finish(taken bool, delayThen, patience time.Duration) {
	switch res := &t.res; {
	case !res.Allowed:
		if t.now == keytable.End {
			res.RetryAfter = Never // the clock cannot be seen to move on
		}
		if t.wait = Never; res.RetryAfter <= Never-delayThen {
			t.wait = res.RetryAfter + delayThen
		}
	case !taken:
		// Granted later, it would have to wait for less.
		t.wait = res.Delay
		res.Allowed, res.RetryAfter, res.Delay = false, max(res.Delay-max(patience, 0), 1), 0
	}
}

// waitInLine makes attempts, in the order of arrival in the line for h, until one
// succeeds or it is known that none can, and then waits for the Delay. attempt takes the
// units only if turn is set, and only with a Delay that is within patience.
func waitInLine(ctx context.Context, t *engine.Timeline, lines *waitline.Lines, h keytable.Hash,
	attempt func(ctx context.Context, turn bool, patience time.Duration) try) (Result, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	res, now, err := queue(ctx, t, lines, h, attempt)
	if res.Delay == 0 {
		return res, err
	}
	if err := t.Sleep(ctx, now, res.Delay, nil); err != nil {
		return Result{}, err
	}
	res.Delay = 0
	return res, err
}

// queue is waitInLine without the Delay. It returns the reading of the clock at which the
// units were taken.
func queue(ctx context.Context, t *engine.Timeline, lines *waitline.Lines, h keytable.Hash,
	attempt func(ctx context.Context, turn bool, patience time.Duration) try) (Result, instant, error) {
	w := lines.Join(h)
	defer lines.Leave(w)
	for {
		if err := ctx.Err(); err != nil {
			return Result{}, 0, err
		}
		turn, ahead := lines.Place(w)
		patience := t.Patience(ctx)
		a := attempt(ctx, turn, patience)
		if undecided := a.err != nil && a.res == (Result{}); undecided || turn && a.res.Allowed {
			return a.res, a.now, a.err
		}
		// Nobody is served before the one ahead is.
		if ahead > a.now {
			a.wait = max(a.wait, time.Duration(min(ahead.Since(a.now), math.MaxInt64)))
			a.res.RetryAfter = max(a.res.RetryAfter, a.wait)
		}
		if refusal := impossible(a.res, a.wait, patience); refusal != nil {
			if a.err != nil { // the denial is the failure policy's
				refusal = errors.Join(refusal, a.err)
			}
			a.res.Delay = 0
			return a.res, 0, refusal
		}
		if !turn {
			select {
			case <-w.Wakes():
			case <-ctx.Done():
			}
			continue
		}
		lines.Expect(w, a.now.Add(a.wait))
		if err := t.Sleep(ctx, a.now, a.res.RetryAfter, w.Wakes()); err != nil {
			return Result{}, 0, err
		}
	}
}

// impossible returns why a request that was answered by res, and will be granted
// after wait, is not worth waiting for, or nil.
func impossible(res Result, wait, patience time.Duration) error {
	switch {
	case res.RetryAfter == Never:
		return ErrExceedsLimit
	case wait > patience:
		return fmt.Errorf("ratelimit: a wait of %v outlasts the deadline: %w", wait, context.DeadlineExceeded)
	}
	return nil
}
