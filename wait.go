package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// Wait waits until l has n units left for key, takes them, and returns. With n 0, it returns the answer of l at once
// and takes nothing. If Wait fails, it has taken nothing; for the exception see [LeakyBucket.Wait].
//
// Wait fails at once, without waiting, if n is negative (the error matches [ErrInvalidCount]), if n is more than the limit
// ([ErrExceedsLimit]), if too many callers wait already ([ErrTooManyWaiters]), or if the units will not be there before the deadline of ctx
// ([context.DeadlineExceeded]). In the last three cases, the Result is the denial. If ctx ends during the wait, the error is that of ctx.
//
// A deadline is compared with the machine's clock. If the deadline has passed on that clock, but ctx has not ended, ctx
// must have been made with a fake clock: the deadline is then compared with the limiter's clock.
//
// The limiters of this package serve the callers that wait for one key in the order in which they came, and wait on the
// limiter's clock. No caller overtakes: Allow and Take decide as if the waiting callers had been served before. With a
// [Store], this holds within one process. For any other [Limiter], Wait calls Take after each RetryAfter, in real time.
func Wait(ctx context.Context, l Limiter, key string, n int) (Result, error) {
	switch l := l.(type) {
	case nil:
		return Result{}, &ConfigError{"limiter", nil, "must not be nil"}
	case interface {
		Wait(context.Context, string, int) (Result, error)
	}:
		return l.Wait(ctx, key, n)
	}
	ctx = orBackground(ctx)
	var machine engine.Timeline
	for {
		res, err := l.Take(ctx, key, n)
		if err != nil && !errors.Is(err, ErrStore) || res.Allowed || n == 0 {
			return res, err
		}
		if err := waitError(res, res.RetryAfter, machine.Patience(ctx)); err != nil {
			return res, err
		}
		// A RetryAfter of 0 becomes 1 ms: without a pause, this loop would call the Limiter again and again.
		if err := machine.Sleep(ctx, 0, max(res.RetryAfter, time.Millisecond), nil); err != nil {
			return Result{}, err
		}
	}
}

// Wait waits until key has n units left, takes them, and returns. Callers that wait for one key are served in the order
// in which they came. The function [Wait] says when it fails.
//
// Wait of a [LeakyBucket] returns only after the request's Delay. If the Delay would end after the deadline of ctx, it
// fails at once and takes nothing. But if ctx is canceled during the Delay, the units stay taken.
func (k *keyed[S, C]) Wait(ctx context.Context, key string, n int) (res Result, err error) {
	switch {
	case n == 0:
		return k.Take(ctx, key, 0)
	case k.solo != nil:
		return k.solo.Wait(ctx, Request{Client: key, Cost: n})
	}
	if err := k.refusal(ctx, n); err != nil {
		return Result{}, err
	}
	h := keytable.HashOf(key)
	spots := [1]engine.Spot{engine.SpotOf(&k.engine, h, int64(n))}
	w := waitline.Waiter{Set: h, Spots: spots[:], Counted: true}
	if err = await(ctx, &k.waiters, &w); err == nil {
		err = k.engine.Time().Hold(orBackground(ctx), w.At, spots[0].Delay)
	}
	if err == nil || w.Refused != nil {
		fill(&res, &spots[0].Verdict)
	}
	return res, err
}

// Wait waits until every rule for req has req.Cost units left, takes them from each, and returns. Requests that take
// from the same keys of the same rules are served in the order in which they came. The function [Wait] says when it
// fails, and [RateLimiter.Check] lists further errors.
//
// A waiting request delays other requests only at the key with the longest wait. While it waits for the budget of its
// own client, it does not hold up other clients at a budget that all of them share.
//
// If a [Store] or a custom [Limiter] decides for a rule, only the first request in a line (queue) is tried again after
// each RetryAfter; the requests behind it wait. A custom Limiter is asked last, when all other rules have granted the
// request. If the Limiter then denies it, the other rules get their units back, and the request waits in line again.
//
// If the rules change, the new rules apply to the waiting requests, in the order of their arrival; with a Store or
// a custom Limiter, the order may change. [Rule.Resolve] is not called again.
//
// If a rule with [AlgorithmLeakyBucket] sets a Delay, Wait returns only after the Delay, as Wait of a [LeakyBucket] does.
func (l *RateLimiter) Wait(ctx context.Context, req Request) (Result, error) {
	return l.wait(ctx, &req, nil, 0)
}

// wait does the work of Wait and ReserveWait. For ReserveWait, r becomes the reservation, and term says for how long its
// units can be given back. For Wait, r is nil.
func (l *RateLimiter) wait(ctx context.Context, req *Request, r *Reservation, term time.Duration) (res Result, err error) {
	w := new(ruleWait) // filled field by field: a literal would make the stack larger during the whole wait
	w.limiter, w.ctx, w.req, w.reserves, w.term = l, orBackground(ctx), req, r, term
	w.overrides.Doubt = override.DoubtOf(w.ctx)
	for w.load() {
		if res, err = w.wait(); !errors.Is(err, waitline.ErrChanged) {
			return res, err
		}
	}
	return l.check(w.ctx, req, engine.ModeTake)
}

// load loads the rules and the overrides. If it returns false, the request is not to wait: Check answers it.
func (w *ruleWait) load() bool {
	w.version = w.limiter.waiters.Version() // read before the rules, so that a change in between is noticed
	w.limiter.overrides.Poll()
	w.set, w.overrides = w.limiter.set.Load(), w.limiter.overrides.At(w.overrides.Doubt)
	return w.set != nil && w.req.validate() == nil && w.ctx.Err() == nil && w.limiter.takesID(w.req, true) == nil
}

// A ruleWait is the state of one call of RateLimiter.Wait.
type ruleWait struct {
	limiter       *RateLimiter
	ctx           context.Context
	req           *Request
	set           *ruleSet
	overrides     override.At
	version       uint64          // the number that Lines.Version returned just before the field named set was loaded
	resolvedRates map[string]Rate // rates that Rule.Resolve returned, by the rule's name; nil until Resolve is called
	exempt        bool            // whether a rule applies, but does not limit the request
	reserves      *Reservation    // what ReserveWait returns once the units are taken; nil for Wait
	term          time.Duration   // for how long the units of that reservation can be given back

	d *decision // the decision on the request; to save memory, nil while the caller waits in line, unless the line uses it

	*waitAnswer // what a store or a custom limiter has answered; nil if none is asked
}

// A waitAnswer is the answer of a store or a custom limiter to a request that waits.
type waitAnswer struct {
	last waitline.Denial // the last denial

	// The answer that Wait returns.
	res Result
	at  instant // the time of the grant; the Delay of the Result begins here
	err error
}

// prepared returns a decision on w.req, ready to be made by the rules in w.set. The caller calls w.drop afterwards.
func (w *ruleWait) prepared() (*decision, error) {
	d := w.newDecision()
	w.d = d
	d.resolvedRates, d.records, d.ttl = w.resolvedRates, w.limiter.records, w.limiter.settings.requestIDs
	if w.limiter.settings.observer != nil {
		d.watch = w.limiter.time.StartWatch()
	}
	err := d.prepare(w.set, w.overrides)
	if err == nil {
		w.resolvedRates, w.exempt = d.allResolved(), len(d.exempt) > 0
		d.gather()
	}
	return d, err
}

// newDecision returns a decision on w.req. The rules of the decision are not set yet.
func (w *ruleWait) newDecision() *decision {
	d := newDecision(w.req, engine.ModeTake)
	d.term, d.order.Revocable, d.noStrike = w.term, w.term > 0, true
	return d
}

// drop gives the decision w.d back to the pool. It does nothing if w has no decision.
func (w *ruleWait) drop() {
	if w.d != nil {
		w.d.free()
		w.d = nil
	}
}

// wait waits until the rules in w.set grant or refuse the request. If these rules no longer apply, the error is ErrChanged.
func (w *ruleWait) wait() (Result, error) {
	d, err := w.prepared()
	defer w.drop()
	barred := err == nil && barredFor(d, &w.limiter.time) > 0
	if err != nil || barred || !d.denies() || w.limiter.needsCall(d) {
		return w.besideLines(d, barred, err)
	}
	refused, err := w.stand(d, false)
	return w.waited(refused, err)
}

// besideLines answers a request that need not stand in line for keys in memory, for one of four reasons: err is why d could
// not be prepared, d is barred (blocked), no rule of d denies, or a store or a custom limiter must be called.
func (w *ruleWait) besideLines(d *decision, barred bool, err error) (Result, error) {
	switch {
	case err != nil:
		return Result{}, err
	case barred:
		return w.waitBarred(d)
	case !d.denies():
		res, err := w.limiter.decide(w.ctx, d)
		w.keep(d, res)
		return res, err
	}
	return w.waitAsking(d.waiting)
}

// waited returns the answer of Wait. As a function of its own, it keeps its variables off the stack of a waiting caller.
func (w *ruleWait) waited(refused bool, err error) (Result, error) {
	if err != nil && !refused {
		return Result{}, err
	}
	res, problems := w.limiter.answered(w.ctx, w.d)
	if refused {
		return res, errors.Join(err, problems)
	}
	w.keep(w.d, res)
	return w.hold(res, w.d.Now, problems)
}

// keep fills the Reservation of w, if w has one, from the decision d with the answer res. It does nothing if d is a denial.
func (w *ruleWait) keep(d *decision, res Result) {
	if w.reserves != nil && res.Allowed {
		w.reserves.take(w.ctx, d, res)
	}
}

// stand waits in line (a queue) for the keys of the decision d, which is w.d, and charges them. If revocable is set,
// the charges can be given back. If refused is true, w.d has the denial, and err says why the caller cannot wait. If
// refused is false and err is not nil, nothing was decided: ctx has ended, the new rules refuse the request, or the
// error is ErrChanged. A request without an ID waits without w.d, to save memory; stand then makes w.d again.
func (w *ruleWait) stand(d *decision, revocable bool) (refused bool, err error) {
	engine.AdmitAll(d.parts)
	in := new(waitline.Waiter) // filled field by field, see RateLimiter.wait
	in.Set, in.Spots, in.Counted, in.Hold, in.Reserves = d.memoryLine, d.spots, !revocable, revocable, w.term > 0
	watch := d.watch
	if in.Version, in.Owner = w.version, w; !revocable {
		if in.Record, in.ID, d.waits = d.order.Record, d.id, true; in.Record == nil {
			in.Spots = waitline.Copy(d.spots)
			w.drop()
		}
	}
	err = await(w.ctx, &w.limiter.waiters, in)
	if errors.Is(in.Refused, waitline.ErrReplayed) {
		d.Outcome = engine.Replayed(in.At)
		return false, nil
	}
	if err != nil && (in.Refused == nil || errors.Is(err, in.Refused)) {
		return false, err
	}
	if d = w.d; d == nil {
		var problem error
		if d, problem = w.prepared(); problem != nil {
			return false, problem
		}
		d.watch = watch
	}
	waitline.Learn(d.parts, in.Spots)
	d.Now, d.Passes = in.At, err == nil
	d.held = revocable && d.Passes
	return err != nil, err
}

// hold waits until the Delay of res has passed since the grant. It returns the answer of Wait.
func (w *ruleWait) hold(res Result, at instant, problems error) (Result, error) {
	if err := w.limiter.time.Hold(w.ctx, at, res.Delay); err != nil {
		return Result{}, err
	}
	res.Delay = 0
	return res, problems
}

// rematch finds the rules for a waiting request again, because the rules have changed.
func (l *RateLimiter) rematch(in *waitline.Waiter) {
	w := in.Owner.(*ruleWait)
	w.set, w.overrides = l.set.Load(), l.overrides.At(w.overrides.Doubt)
	d := w.d
	if d == nil {
		d = w.newDecision()
		defer d.free()
	}
	d.resolvedRates = w.resolvedRates
	clear(d.parts)
	clear(d.origins)
	d.named, d.exempt, d.parts, d.origins = d.named[:0], d.exempt[:0], d.parts[:0], d.origins[:0]
	if in.Spots, in.Refused = nil, d.prepare(w.set, w.overrides); in.Refused != nil {
		return
	}
	if d.ruled.Block != nil { // ErrChanged ends the wait in line; Wait then waits elsewhere for the end of the block
		in.Refused = waitline.ErrChanged
		return
	}
	line := d.waiting.Set
	d.gather()
	if calls := l.needsCall(d) && d.denies(); calls != in.Hold || calls && d.waiting.Set != line {
		in.Refused = waitline.ErrChanged
		return
	}
	w.exempt = len(d.exempt) > 0
	if in.Set, in.Spots, in.ID = d.memoryLine, d.spots, d.id; w.d == nil {
		in.Spots = waitline.Copy(d.spots)
	}
}

// meetsOthers reports whether a change of the rules has changed which rules apply to a waiting request. It may also
// return true without such a change if a rule applies but does not limit the request.
func (l *RateLimiter) meetsOthers(in *waitline.Waiter) bool {
	w := in.Owner.(*ruleWait)
	before, now := newDecision(w.req, engine.ModeTake), newDecision(w.req, engine.ModeTake)
	defer before.free()
	defer now.free()
	return w.exempt || before.find(w.set) != nil || now.find(l.set.Load()) != nil || !slices.Equal(before.rules, now.rules)
}

// denyBehindWaiters denies the decision d, because other callers wait for one of its keys and are served first. If no
// caller waits any more, it returns false, and d must be decided in the usual way.
func (l *RateLimiter) denyBehindWaiters(d *decision) bool {
	d.gather()
	record := d.order.Record
	now, denied := l.waiters.Deny(d.memoryLine, d.spots, d.order.Mode == engine.ModeTake && record == nil)
	switch {
	case !denied:
		return false
	case record != nil && record.Find(now): // a waiting caller with the same request ID has just been granted
		d.Outcome = engine.Replayed(now)
		return true
	}
	waitline.Learn(d.parts, d.spots)
	d.Outcome, d.uncounted, d.noStrike = engine.Outcome{Now: now}, record != nil, true
	return true
}

// await puts w in line (a queue) and waits until w is served. The error is that of ctx, or says why w cannot wait.
func await(ctx context.Context, lines *waitline.Lines, w *waitline.Waiter) error {
	if err := lines.Wait(orBackground(ctx), w); err != nil {
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

// waitError returns an error if a denied request is never granted, or only after the duration patience; otherwise nil.
func waitError(res Result, wait, patience time.Duration) error {
	switch {
	case res.RetryAfter == Never:
		return ErrExceedsLimit
	case wait >= patience:
		return errTooLate(wait)
	}
	return nil
}

// errTooLate returns the error for a wait that would not end before the deadline.
func errTooLate(wait time.Duration) error {
	return fmt.Errorf("ratelimit: a wait of %v outlasts the deadline: %w", wait, context.DeadlineExceeded)
}
