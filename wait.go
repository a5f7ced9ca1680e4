package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
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
// they came, and wait on the limiter's clock. Allow and Take do not queue: one that
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
	var real timeline
	for {
		res, err := l.Take(ctx, key, n)
		if err != nil && !errors.Is(err, ErrStore) || res.Allowed || n == 0 {
			return res, err
		}
		if err := impossible(res, res.RetryAfter, real.patience(ctx)); err != nil {
			return res, err
		}
		// A Limiter that denies without saying for how long is not to
		// be asked without pause.
		if err := real.sleep(ctx, 0, max(res.RetryAfter, time.Millisecond), nil); err != nil {
			return Result{}, err
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

// Wait takes n units for key as soon as they are to be had, in the order of
// arrival among the waiters of key; see the function [Wait] for when it fails.
//
// A LeakyBucket's Wait returns after the request's Delay. It fails uncharged if
// the Delay outlasts ctx's deadline; but if ctx is cancelled during the Delay, the
// request keeps its place in the bucket.
func (k *keyed[S, C]) Wait(ctx context.Context, key string, n int) (Result, error) {
	if k.outside != nil {
		return k.outside.wait(ctx, key, n)
	}
	if err := k.refusal(ctx, n); err != nil {
		return Result{}, err
	}
	if n == 0 {
		return k.Peek(key), nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	res, now, err := k.queue(ctx, keytable.HashOf(key), int64(n))
	if err != nil || res.Delay == 0 {
		return res, err
	}
	if err := k.time.sleep(ctx, now, res.Delay, nil); err != nil {
		return Result{}, err
	}
	res.Delay = 0
	return res, nil
}

// queue takes n units in the order of arrival. It returns at which reading of the
// clock it took them.
func (k *keyed[S, C]) queue(ctx context.Context, h keytable.Hash, n int64) (Result, instant, error) {
	w := k.waiters.join(h)
	defer k.waiters.leave(w)
	for {
		if err := ctx.Err(); err != nil {
			return Result{}, 0, err
		}
		first, ahead := k.waiters.place(w)
		patience := k.time.patience(ctx)
		res, now, wait := k.claim(h, n, first, patience)
		if first && res.Allowed {
			return res, now, nil
		}
		// Nobody is served before the one ahead is.
		if ahead > now {
			wait = max(wait, time.Duration(min(ahead.Since(now), math.MaxInt64)))
			res.RetryAfter = max(res.RetryAfter, wait)
		}
		if err := impossible(res, wait, patience); err != nil {
			return res, 0, err
		}
		if !first {
			select {
			case <-w.wake:
			case <-ctx.Done():
			}
			continue
		}
		k.waiters.expect(w, now.Add(wait))
		if err := k.time.sleep(ctx, now, res.RetryAfter, w.wake); err != nil {
			return Result{}, 0, err
		}
	}
}

// claim looks whether n units are to be had, and takes them if so, if it is the
// turn of who asks, and if the Delay is within patience. It returns at which
// reading of the clock that was and how long the units, and then their Delay, are
// away.
func (k *keyed[S, C]) claim(h keytable.Hash, n int64, turn bool, patience time.Duration) (res Result, now instant, wait time.Duration) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	now = k.time.now()
	if k.time.clock == nil {
		now = shard.Latest(now)
	}
	state, seen := shard.Find(h), now
	known := state != nil
	if !known {
		state, seen = shard.Owed(now)
	}
	v, delay := shard.Algorithm.step(state, shard.Algorithm, seen, n, false)
	v.fill(&res)
	res.Delay = delay
	if !res.Allowed {
		if now == keytable.End {
			res.RetryAfter = Never // the clock can not be seen to move on
		}
		if res.RetryAfter == Never {
			return res, now, Never
		}
		_, delay := shard.Algorithm.step(state, shard.Algorithm, seen.Add(res.RetryAfter), n, false)
		return res, now, saturated(res.RetryAfter, delay)
	}
	if !turn || res.Delay > patience {
		// Granted later, it would have to wait for less.
		res.Allowed, res.RetryAfter, res.Delay = false, max(delay-max(patience, 0), 1), 0
		return res, now, delay
	}
	if known {
		v, res.Delay = shard.Algorithm.step(state, shard.Algorithm, seen, n, true)
	} else {
		v, res.Delay = admit(shard, h, seen, n)
	}
	v.fill(&res)
	shard.Count(true)
	return res, now, 0
}

// saturated returns a + b, or Never if that is beyond what a Duration can hold.
func saturated(a, b time.Duration) time.Duration {
	if a > Never-b {
		return Never
	}
	return a + b
}
