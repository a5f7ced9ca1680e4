package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
// they came, and wait on the limiter's clock. Nobody overtakes them: Allow and Take are
// decided as if all who wait had been served before. With a [Store], that is so within one
// process. For any other [Limiter], Wait calls Take again after each RetryAfter, in real time.
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
func (k *keyed[S, C]) Wait(ctx context.Context, key string, n int) (res Result, err error) {
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
	spots := [1]engine.Spot{{Keys: &k.engine, Hash: h}}
	w := waitline.Waiter{Set: h, Spots: spots[:], N: int64(n), Counted: true}
	if err = await(ctx, &k.waiters, &w); err == nil {
		err = hold(ctx, k.engine.Time(), w.At, spots[0].Delay)
	}
	if err == nil || w.Refused != nil {
		fill(&res, &spots[0].Verdict)
	}
	return res, err
}

// Wait waits until every rule for req has req.Cost units left, takes them from each, and
// returns. Requests that take from the same keys of the same rules are served in the order
// in which they came. The function [Wait] says when it fails, and [RateLimiter.Check] says
// which further errors there are.
//
// A request stops others only at the key that it lacks longest: while it waits for the budget
// of its own client, it does not hold up others at a budget that all share. If a rule has a
// [Store] or a custom [Limiter] decide, the first request in a line is decided again after
// each RetryAfter, and those behind it wait for that. A custom Limiter is asked when the other
// rules have granted the request: it waits for these in line, like any other. If the Limiter
// denies, they get their units back, and the request lines up again later.
//
// If the rules change, the requests that wait are matched with the new ones, in the order in
// which they came. [Rule.Resolve] is not called again.
//
// If the Result has a Delay, which a rule with [AlgorithmLeakyBucket] sets, Wait returns
// only after it, as Wait of a [LeakyBucket] does.
func (l *RateLimiter) Wait(ctx context.Context, req Request) (Result, error) {
	w := ruleWait{limiter: l, req: &req}
	if w.ctx = ctx; ctx == nil {
		w.ctx = context.Background()
	}
	for {
		w.version = l.waiters.Version() // before the rules are read
		if w.set = l.set.Load(); w.set == nil || req.Cost < 0 || w.ctx.Err() != nil || l.takesID(&req, true) != nil {
			return l.check(w.ctx, &req, true)
		}
		if res, err := w.wait(); !errors.Is(err, waitline.ErrChanged) {
			return res, err
		}
	}
}

// A ruleWait is one call of Wait of a RateLimiter.
type ruleWait struct {
	limiter *RateLimiter
	ctx     context.Context
	req     *Request
	set     *ruleSet
	version uint64          // Lines.Version, read before set
	kept    map[string]Rate // what Resolve has returned, by rule; nil until it was called
	last    waitline.Denial // by a store or a custom limiter

	// The answer of Wait, if that has asked a store or a custom limiter.
	res Result
	at  instant // when it was granted
	err error
}

// prepared returns a decision by the rules of w, with its spots.
func (w *ruleWait) prepared() (*decision, error) {
	d := newDecision(w.req, true)
	d.kept, d.records, d.ttl = w.kept, w.limiter.records, w.limiter.settings.requestIDs
	if w.limiter.settings.observer != nil {
		d.watch = startWatch(&w.limiter.time)
	}
	err := d.prepare(w.set)
	if err == nil {
		w.kept = d.resolved()
		d.gather()
	}
	return d, err
}

// wait waits by the rules in w.set.
func (w *ruleWait) wait() (Result, error) {
	l := w.limiter
	d, err := w.prepared()
	defer d.free()
	switch {
	case err != nil:
		return Result{}, err
	case !d.denies():
		return l.decide(w.ctx, d)
	case d.asks(l):
		return w.waitAsking(d.line)
	}
	refused, err := false, error(nil)
	if !l.replayed(d) {
		refused, err = w.stand(d, false)
	}
	if err != nil && !refused {
		return Result{}, err
	}
	res, problems := l.answered(w.ctx, d)
	if refused {
		return res, errors.Join(err, problems)
	}
	return w.hold(res, d.Now, problems)
}

// stand waits in line for the keys of d and charges them: with revocable, so that they can be given
// back. If refused is set, err comes with the answer in d. Otherwise err is that of a context that
// has ended, or says that no rules decide, or that others do now.
func (w *ruleWait) stand(d *decision, revocable bool) (refused bool, err error) {
	in := waitline.Waiter{Set: d.plain, Spots: d.spots, N: d.order.N, Counted: !revocable, Hold: revocable, Version: w.version, Owner: d}
	if !revocable {
		in.Record, d.waits = d.order.Record, true
	}
	err = await(w.ctx, &w.limiter.waiters, &in)
	if errors.Is(in.Refused, waitline.ErrReplayed) {
		d.Outcome = engine.Replayed(in.At)
		return false, nil
	}
	if err != nil && (in.Refused == nil || errors.Is(err, in.Refused)) {
		return false, err
	}
	waitline.Learn(d.parts, d.spots)
	d.Now, d.Passes = in.At, err == nil
	d.held = revocable && d.Passes
	return err != nil, err
}

// hold waits for the Delay of res, which was decided at the instant at.
func (w *ruleWait) hold(res Result, at instant, problems error) (Result, error) {
	if err := hold(w.ctx, &w.limiter.time, at, res.Delay); err != nil {
		return Result{}, err
	}
	res.Delay = 0
	return res, problems
}

// matchAgain matches a request that waits with the rules, which have changed.
func (l *RateLimiter) matchAgain(in *waitline.Waiter) {
	d := in.Owner.(*decision)
	d.kept = d.resolved()
	clear(d.parts)
	clear(d.origins)
	d.named, d.exempt, d.parts, d.origins = d.named[:0], d.exempt[:0], d.parts[:0], d.origins[:0]
	if in.Spots, in.Refused = nil, d.prepare(l.set.Load()); in.Refused != nil {
		return
	}
	line := d.line
	d.gather()
	if asks := d.asks(l) && d.denies(); asks != in.Hold || asks && d.line != line {
		in.Refused = waitline.ErrChanged
		return
	}
	in.Set, in.Spots = d.plain, d.spots
}

// meetsOthers reports whether a request that waits has other rules than when it was matched. It may
// say so of one that is exempt from a rule without need.
func (l *RateLimiter) meetsOthers(in *waitline.Waiter) bool {
	d := in.Owner.(*decision)
	now := newDecision(&d.request, true)
	defer now.free()
	return now.find(l.set.Load()) != nil || len(d.exempt) > 0 || !slices.Equal(d.rules, now.rules)
}

// gather makes the spots of d and the hashes of its lines: requests that take from the same keys
// of the same rules share a line.
func (d *decision) gather() {
	d.spots, d.line = waitline.Gather(d.spots[:0], d.parts), globalHash
	for i, r := range d.rules {
		if i <= d.custom {
			d.plain = d.line
		}
		if p := &d.parts[i]; !p.Shadow {
			d.line = d.line.With(r.serial, p.Hash)
		}
	}
	if d.custom < 0 {
		d.plain = d.line
	}
}

// behind decides on d, which found that others wait for one of its keys. It returns false if
// they have gone since: d is then decided as ever.
func (l *RateLimiter) behind(d *decision) bool {
	d.gather()
	for i := range d.spots {
		d.spots[i].Looks = !d.order.Take || d.rehearses()
	}
	counts := d.order.Take && !d.order.AskAgain && !d.rehearses()
	now, denied := l.waiters.Deny(d.plain, d.spots, d.order.N, counts && d.order.Record == nil)
	switch {
	case !denied:
		return false
	case d.order.Record != nil && d.order.Record.Find(now): // granted just now, as one of those who wait
		d.Outcome = engine.Replayed(now)
		return true
	}
	waitline.Learn(d.parts, d.spots)
	d.Outcome = engine.Outcome{Now: now}
	if counts && d.order.Record != nil {
		d.countDenied()
	}
	return true
}

// await waits in line as w, and returns the error for a refusal or that of ctx.
func await(ctx context.Context, lines *waitline.Lines, w *waitline.Waiter) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := lines.Wait(ctx, w); err != nil {
		return err
	}
	switch {
	case errors.Is(w.Refused, waitline.ErrNever):
		return ErrExceedsLimit
	case errors.Is(w.Refused, waitline.ErrLate):
		return errTooLate(w.Wait)
	case errors.Is(w.Refused, waitline.ErrFull):
		return ErrTooManyWaiters
	}
	return w.Refused
}

// hold waits until delay has passed since the instant at. It returns the error of ctx if ctx
// ends first.
func hold(ctx context.Context, t *engine.Timeline, at instant, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	now, end := t.Now(), at.Add(delay)
	if now >= end {
		return nil
	}
	return t.Sleep(ctx, now, now.Until(end), nil)
}

// waitError returns the error for a request that cannot be granted within patience, or nil.
// res is its denial, and wait the time until it could be granted.
func waitError(res Result, wait, patience time.Duration) error {
	switch {
	case res.RetryAfter == Never:
		return ErrExceedsLimit
	case wait >= patience:
		return errTooLate(wait)
	}
	return nil
}

// errTooLate is the error for a wait that does not end before the deadline.
func errTooLate(wait time.Duration) error {
	return fmt.Errorf("ratelimit: a wait of %v outlasts the deadline: %w", wait, context.DeadlineExceeded)
}
