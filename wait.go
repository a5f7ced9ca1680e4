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

// Wait waits until l has n units left for key, takes them, and returns. With n 0, it returns
// the answer of l at once and takes nothing. If Wait fails, it has taken nothing, but for
// one case: see Wait of [LeakyBucket].
//
// Wait fails at once, without waiting, if n is negative (the error matches
// [ErrInvalidCount]), if n is more than the limit ([ErrExceedsLimit]), or if the units will
// not be there before the deadline of ctx ([context.DeadlineExceeded]). In the last two
// cases, the Result is the denial. If ctx ends during the wait, the error is that of ctx.
//
// A deadline is compared with the machine's clock. If it has passed there although ctx has
// not ended, it belongs to a fake clock, and is compared with the limiter's clock.
//
// The limiters of this package serve the callers that wait for one key in the order in which
// they came, and wait on the limiter's clock. Allow and Take do not queue: they may take
// units that a caller of Wait is waiting for. For any other [Limiter], Wait calls Take again
// after each RetryAfter, in real time.
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
		if err := waitError(res, res.RetryAfter, real.Patience(ctx)); err != nil {
			return res, err
		}
		// A Limiter that denies without a RetryAfter is not called in a busy loop.
		if err := real.Sleep(ctx, 0, max(res.RetryAfter, time.Millisecond), nil); err != nil {
			return Result{}, err
		}
	}
}

// Wait waits until key has n units left, takes them, and returns. The callers that wait for
// one key are served in the order in which they came. The function [Wait] says when it
// fails.
//
// Wait of a [LeakyBucket] returns only after the request's Delay. If the Delay would end
// after the deadline of ctx, it fails at once and takes nothing. But if ctx is cancelled
// during the Delay, the units stay taken.
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

// Wait waits until every rule for req has req.Cost units left, takes them from each, and
// returns. Requests that take from the same keys of the same rules are served in the order
// in which they came. The function [Wait] says when it fails, and [RateLimiter.Check] says
// which further errors there are.
//
// If the Result has a Delay, which a rule with [AlgorithmLeakyBucket] sets, Wait returns
// only after it, as Wait of a [LeakyBucket] does.
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

// lineOf returns the hash of the line that req waits in: requests that take from the same
// keys of the same rules share a line.
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

// A try is one attempt of a waiter to take its units.
type try struct {
	res  Result
	err  error
	now  instant       // the reading of the clock that decided
	wait time.Duration // of a failed try: the time until the units are there and their Delay is over
}

// finish sets the wait of t, whose Result is that of the decision, and turns a Result whose
// units were not taken into a denial. delayThen is the Delay that a denied request would
// have when it is granted. patience is how long the waiter may wait.
func (t *try) finish(taken bool, delayThen, patience time.Duration) {
	switch res := &t.res; {
	case t.err != nil && *res == (Result{}): // nothing was decided
	case !res.Allowed:
		if t.now == keytable.End {
			res.RetryAfter = Never // the clock is at its last instant: no wait ends
		}
		if t.wait = Never; res.RetryAfter <= Never-delayThen {
			t.wait = res.RetryAfter + delayThen
		}
	case !taken:
		// The Delay is too long now. It becomes shorter with time.
		t.wait = res.Delay
		res.Allowed, res.RetryAfter, res.Delay = false, max(res.Delay-max(patience, 0), 1), 0
	}
}

// waitInLine joins the line for h and calls attempt, each time that it may help, until an
// attempt takes the units or it is known that none can. Then it waits for the Delay. attempt
// may take the units only if turn is set, which means that nobody in the line is ahead, and
// only if their Delay is at most patience.
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

// queue is waitInLine up to the Delay. Beside the answer, it returns the reading of the clock
// at which the units were taken.
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
		// This request is not served before the first one in the line.
		if ahead > a.now {
			a.wait = max(a.wait, time.Duration(min(ahead.Since(a.now), math.MaxInt64)))
			a.res.RetryAfter = max(a.res.RetryAfter, a.wait)
		}
		if refusal := waitError(a.res, a.wait, patience); refusal != nil {
			if a.err != nil { // the failure policy has denied the request
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

// waitError returns the error for a request that cannot be granted within patience, or nil.
// res is its denial, and wait the time until it could be granted.
func waitError(res Result, wait, patience time.Duration) error {
	switch {
	case res.RetryAfter == Never:
		return ErrExceedsLimit
	case wait > patience:
		return fmt.Errorf("ratelimit: a wait of %v outlasts the deadline: %w", wait, context.DeadlineExceeded)
	}
	return nil
}
