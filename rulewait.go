package ratelimit

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Wait takes req.Cost units from each rule for req as soon as all have them, and
// returns when it did; see the function [Wait] for when it fails. Requests that take
// from the same keys of the same rules are served in the order in which they came.
//
// A [LeakyBucket]'s Delay is waited for too, as by its own Wait.
func (l *RateLimiter) Wait(ctx context.Context, req Request) (Result, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if l.set.Load() == nil || req.Cost < 0 || ctx.Err() != nil {
		return l.check(ctx, &req, true)
	}
	h, err := l.lineOf(&req)
	if err != nil {
		return Result{}, err
	}
	res, now, err := l.queue(ctx, h, &req)
	if res.Delay == 0 {
		return res, err
	}
	if err := l.time.sleep(ctx, now, res.Delay, nil); err != nil {
		return Result{}, err
	}
	res.Delay = 0
	return res, err
}

// lineOf returns the identity of the line that req waits in.
func (l *RateLimiter) lineOf(req *Request) (keytable.Hash, error) {
	d := newDecision(req, false, math.MaxInt64)
	defer d.free()
	d.set = l.set.Load()
	d.group = d.set.match(req.Endpoint)
	h := globalHash
	if err := d.prepare(); err != nil {
		return h, err
	}
	for i := range d.asks {
		a := &d.asks[i]
		h = h.With(a.rule.serial, a.hash)
	}
	return h, nil
}

// queue takes what req asks for in the order of arrival. It returns at which reading
// of the clock it did.
func (l *RateLimiter) queue(ctx context.Context, h keytable.Hash, req *Request) (Result, instant, error) {
	w := l.waiters.join(h)
	defer l.waiters.leave(w)
	for {
		if err := ctx.Err(); err != nil {
			return Result{}, 0, err
		}
		first, ahead := l.waiters.place(w)
		patience := l.time.patience(ctx)
		res, now, wait, err := l.claim(ctx, req, first, patience)
		undecided := err != nil && res == (Result{})
		if undecided || first && res.Allowed {
			return res, now, err
		}
		// Nobody is served before the one ahead is.
		if ahead > now {
			wait = max(wait, time.Duration(min(ahead.Since(now), math.MaxInt64)))
			res.RetryAfter = max(res.RetryAfter, wait)
		}
		if now == keytable.End {
			res.RetryAfter = Never // the clock can not be seen to move on
		}
		if refusal := impossible(res, wait, patience); refusal != nil {
			if err != nil { // it is by the failure policy's answer
				refusal = errors.Join(refusal, err)
			}
			return res, 0, refusal
		}
		if !first {
			select {
			case <-w.wake:
			case <-ctx.Done():
			}
			continue
		}
		l.waiters.expect(w, now.Add(wait))
		if err := l.time.sleep(ctx, now, res.RetryAfter, w.wake); err != nil {
			return Result{}, 0, err
		}
	}
}

// claim takes what req asks for, if it is the turn of who asks and if the Delay is
// within patience; else it looks. It returns at which reading of the clock that was,
// and how long the units, and then their Delay, are away.
func (l *RateLimiter) claim(ctx context.Context, req *Request, turn bool, patience time.Duration) (res Result, now instant, wait time.Duration, err error) {
	d := newDecision(req, turn, max(patience, 0))
	defer d.free()
	d.waits = true
	res, err = l.run(ctx, d)
	switch {
	case !res.Allowed:
		wait = saturated(res.RetryAfter, d.delayThen)
	case !turn || d.late:
		// Granted later, it would have to wait for less.
		wait = res.Delay
		res.Allowed, res.RetryAfter, res.Delay = false, max(res.Delay-d.within, 1), 0
	}
	return res, d.now, wait, err
}
