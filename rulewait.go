package ratelimit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// A lineAnswer is the last answer that a store or a custom limiter gave to the first request in a line (queue).
type lineAnswer struct {
	rule string   // name of the rule that the answer is from
	by   answerer // what answered for the rule: a store, a custom limiter or a policy
	res  Result
}

// needsCall reports whether a store or a custom limiter must be called to decide d.
func (l *RateLimiter) needsCall(d *decision) bool { return l.remote != nil || d.custom >= 0 }

// standBehind denies the decision d if callers already wait for a store or a custom limiter with the same keys. It
// does nothing if d is a new try of one of these waiting callers.
func (l *RateLimiter) standBehind(ctx context.Context, d *decision) (answered bool, err error) {
	if d.order.Mode != engine.ModeRetry {
		_, _, answered = l.denyBehindRetries(ctx, d)
	}
	return answered, nil
}

// denyBehindRetries denies d if callers wait for a store or a custom limiter to decide by the same keys: these
// callers are served first. last is the last denial of the first waiting caller, and wait is the expected time until d
// would be served. A request whose ID was granted before is not denied.
func (l *RateLimiter) denyBehindRetries(ctx context.Context, d *decision) (last waitline.Denial, wait time.Duration, denied bool) {
	if l.retries.Len() == 0 || !l.needsCall(d) {
		return last, 0, false
	}
	now := l.time.Now()
	d.gather()
	if last, wait, denied = l.retries.Ahead(d.waiting, now); !denied || d.order.Mode != engine.ModeDryRun && l.recorded(ctx, d) {
		return last, 0, false
	}
	answer := last.Answer.(lineAnswer)
	for i, r := range d.rules {
		p := &d.parts[i]
		p.Verdict = engine.Verdict{Limit: -1, Left: -1} // -1 means that the answer of this rule is not known
		if r.Name == answer.rule {
			p.Limit, p.Left, p.RetryAfter = int64(answer.res.Limit), 0, max(wait, 1)
			p.ResetAfter = max(answer.res.ResetAfter-time.Duration(max(now, last.At).Since(last.At)), wait)
			d.origins[i].by, d.origins[i].bar.Blocks = answer.by, answer.res.Reason == ReasonPenalty
		}
	}
	d.Outcome, d.uncounted, d.noStrike = engine.Outcome{Now: now}, true, true
	return last, wait, true
}

// refuse makes the denial in d and the error err the answer of Wait. It always returns nil, which ends the wait.
func (w *ruleWait) refuse(d *decision, err error) *waitline.Denial {
	d.order.Mode, d.Late, d.uncounted = engine.ModeTake, false, true
	res, problems := w.limiter.answered(w.ctx, d)
	w.res, w.err = res, errors.Join(err, problems)
	return nil
}

// waitAsking waits in a line (queue) until a store or a custom limiter grants the request. The decision w.d is not used meanwhile.
func (w *ruleWait) waitAsking(r waitline.Request) (Result, error) {
	w.drop()
	l := w.limiter
	w.waitAnswer = new(waitAnswer)
	ask := func(newcomer bool) (*waitline.Denial, bool) {
		denial := w.ask(newcomer) // w.ask sets w.res, so it must be called before w.res is read
		return denial, w.res.Allowed
	}
	err := l.retries.Wait(w.ctx, &l.time, r, func() bool { return w.moves(r.Set) }, ask)
	switch {
	case err != nil:
		return Result{}, err
	case w.res.Allowed:
		return w.hold(w.res, w.at, w.err)
	}
	return w.res, w.err
}

// moves reads the rules again if they have changed. It returns true if the request must no longer wait in this line (queue).
func (w *ruleWait) moves(line keytable.Hash) bool {
	version := w.limiter.waiters.Version()
	if version == w.version {
		return false
	}
	w.version, w.set, w.overrides = version, w.limiter.set.Load(), w.limiter.overrides.At(w.overrides.Doubt)
	d, err := w.prepared()
	defer w.drop()
	return err != nil || d.ruled.Block != nil || d.waiting.Set != line || !d.denies() || !w.limiter.needsCall(d)
}

// ask tries once to take the units. If the caller has to wait, ask returns the denial; otherwise it returns nil and sets
// the answer in w. If newcomer is set and callers wait already, ask calls neither the store nor the custom limiter.
func (w *ruleWait) ask(newcomer bool) *waitline.Denial {
	l := w.limiter
	w.res, w.err = Result{}, nil
	d, err := w.prepared()
	defer w.drop()
	if err != nil {
		w.err = err
		return nil
	}
	d.order.Mode = engine.ModeRetry
	patience := w.patience(d)
	switch {
	case newcomer:
		if last, wait, behind := l.denyBehindRetries(w.ctx, d); behind {
			if err := w.refusal(wait, wait, patience, true); err != nil {
				return w.refuse(d, err)
			}
			w.last = last
			return &last
		}
	case l.remote == nil && slices.ContainsFunc(d.rules[:max(d.custom, 0)], (*activeRule).enforces) && !l.recorded(w.ctx, d):
		switch refused, err := w.stand(d, true); {
		case errors.Is(err, waitline.ErrChanged):
			return &w.last
		case refused:
			return w.refuse(d, err)
		case err != nil:
			w.err = err
			return nil
		}
		patience = w.patience(d)
	}
	if w.res, w.err = l.decide(w.ctx, d); w.err != nil && w.res == (Result{}) {
		return nil
	}
	return w.outcome(d, patience, newcomer)
}

// outcome stores the decision d as the answer of Wait. If the caller has to wait, outcome returns the denial instead.
func (w *ruleWait) outcome(d *decision, patience time.Duration, newcomer bool) *waitline.Denial {
	l, res := w.limiter, &w.res
	now, wait := d.Now, time.Duration(0)
	if d.held { // Wait has charged the other rules at d.Now; the call of the custom limiter since then has taken time
		now = max(now, l.time.Now())
	}
	switch {
	case d.Late:
		wait = res.Delay
		engine.DenyDelays(d.parts, patience)
		d.Passes, res.Allowed = false, false
	case res.Allowed:
		w.keep(d, *res)
		if w.at = d.Now; d.custom >= 0 && d.parts[d.custom].Delay > 0 {
			w.at = now
		}
		return nil
	case now == keytable.End: // the clock shows the last instant that it can show, so no wait would end
		res.RetryAfter, wait = Never, Never
		d.parts[d.binding].RetryAfter = Never
	default:
		if wait = Never; res.RetryAfter <= Never-d.DelayThen {
			wait = res.RetryAfter + d.DelayThen
		}
	}
	if err := w.refusal(res.RetryAfter, wait, patience, newcomer); err != nil {
		return w.refuse(d, err)
	}
	due := now.Add(max(res.RetryAfter, time.Millisecond))
	w.last = waitline.Denial{
		Due: due, At: now, RetryAfter: res.RetryAfter, Fresh: l.fresh(d, due),
		Answer: lineAnswer{res: *res, by: d.origins[d.binding].by, rule: d.rules[d.binding].Name},
		Key:    d.waiting.Keys[waitline.PlaceOf(d.parts, d.binding)], Index: waitline.PlaceOf(d.parts, d.binding),
		Alone: d.origins[d.binding].by != byStore || d.custom >= 0,
		// There is a custom limiter, but it was not asked, as a rule in this process has denied: wait for the key of that rule.
		Stands: l.remote == nil && d.custom >= 0 && d.origins[d.custom].by == 0,
	}
	return &w.last
}

// waitBarred waits until no Override or Penalty blocks the request of d, or until the overrides change. It then returns
// ErrChanged, and its caller decides again. If the request cannot wait so long, waitBarred returns the denial.
func (w *ruleWait) waitBarred(d *decision) (Result, error) {
	l := w.limiter
	changed := l.overrides.Changed()
	rest := barredFor(d, &l.time) // read after the call of Changed, so that no change in between is missed
	if rest == 0 || l.overrides.Set() != w.overrides.Set {
		return Result{}, waitline.ErrChanged
	}
	err := waitError(Result{RetryAfter: rest}, rest, l.time.Patience(w.ctx))
	if n := l.overrides.Barred.Add(1); err == nil && n > int64(l.settings.maxWaiters) {
		err = ErrTooManyWaiters
	}
	defer l.overrides.Barred.Add(-1)
	if err != nil {
		res, problem := l.decide(w.ctx, d)
		if res.Allowed { // the block has just been lifted
			w.keep(d, res)
			return w.hold(res, d.Now, problem)
		}
		return res, errors.Join(err, problem)
	}
	if err := l.time.Sleep(w.ctx, l.time.Now(), rest, changed); err != nil {
		return Result{}, err
	}
	return Result{}, waitline.ErrChanged
}

// patience returns how long the caller can still wait before its deadline, and makes d refuse a Delay that is longer.
func (w *ruleWait) patience(d *decision) time.Duration {
	patience := w.limiter.time.Patience(w.ctx)
	if patience < Never {
		d.order.Within = max(patience-1, 0)
	}
	return patience
}

// refusal returns an error if a denied request cannot wait: if it can never be granted, if it cannot be granted before its
// deadline, or if it is new and too many callers wait. The parameter wait is the time until the request may proceed.
func (w *ruleWait) refusal(retryAfter, wait, patience time.Duration, newcomer bool) error {
	err := waitError(Result{RetryAfter: retryAfter}, wait, patience)
	if err == nil && newcomer && w.limiter.waiters.All() >= w.limiter.settings.maxWaiters {
		err = ErrTooManyWaiters
	}
	return err
}

// fresh returns a function that makes a forecast for the key that denied d. It assumes that a grant at the instant due leaves the key with
// an empty bucket, or with a window that has only the units of d. fresh returns nil if no store decided, or if the rule has a Warmup.
func (l *RateLimiter) fresh(d *decision, due instant) func() engine.Future {
	r, o, n := d.rules[d.binding], d.origins[d.binding], d.parts[d.binding].N
	if o.by != byStore || r.Warmup != (Warmup{}) { // with a Warmup, the limit depends on the age of the key, which only the store knows
		return nil
	}
	return func() engine.Future {
		algorithm := algorithms[r.Algorithm]
		keys, err := algorithm.keys(&l.time, engine.Rates{Base: engine.Rate(o.rate.data()), Windows: algorithm.windowed}, 1)
		if err != nil {
			return nil
		}
		if !algorithm.windowed {
			n = int64(o.rate.burst())
		}
		f := keys.Fresh()
		f.Charge(engine.Wanted{}, due, n)
		return f
	}
}
