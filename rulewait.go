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

// An asked is the answer to the head of a line that asks a store or a custom limiter.
type asked struct {
	rule string // the binding rule
	by   answerer
	res  Result
}

// behindAsking decides on d if others wait for a store or a custom limiter to grant them what d
// is for: they are served before. It returns the last answer to them, and the time until d is
// served, as far as that is known. A request that was granted before does not wait.
func (l *RateLimiter) behindAsking(ctx context.Context, d *decision) (last waitline.Denial, wait time.Duration, denied bool) {
	if l.asking.Len() == 0 || !d.asks(l) {
		return last, 0, false
	}
	now := l.time.Now()
	d.gather()
	if last, wait, denied = l.asking.Ahead(d.line, now, d.order.N); !denied || !d.rehearses() && l.recorded(ctx, d) {
		return last, 0, false
	}
	answer := last.Answer.(asked)
	for i, r := range d.rules {
		p := &d.parts[i]
		p.Verdict = engine.Verdict{Limit: -1, Left: -1} // it is not known what the rule would answer
		if r.Name == answer.rule {
			p.Limit, p.Left, p.RetryAfter = int64(answer.res.Limit), 0, max(wait, 1)
			p.ResetAfter = max(answer.res.ResetAfter-time.Duration(max(now, last.At).Since(last.At)), wait)
			d.origins[i].by = answer.by
		}
	}
	d.Outcome = engine.Outcome{Now: now}
	return last, wait, true
}

// countDenied adds the denial of d to the totals of the rules.
func (d *decision) countDenied() {
	for i, r := range d.rules {
		if p := &d.parts[i]; p.RetryAfter > 0 {
			r.totals.count(p.Shadow, false)
		}
	}
}

// refuse makes the answer that of a Wait that d has denied and that cannot wait, because of err.
func (w *ruleWait) refuse(d *decision, err error) *waitline.Denial {
	d.order.AskAgain, d.Late = false, false
	d.countDenied()
	res, problems := w.limiter.answered(w.ctx, d)
	w.res, w.err = res, errors.Join(err, problems)
	return nil
}

// waitAsking waits in line for the answer of a store or a custom limiter.
func (w *ruleWait) waitAsking(line keytable.Hash) (Result, error) {
	l := w.limiter
	ask := func(newcomer bool) (*waitline.Denial, bool) { return w.ask(newcomer), w.res.Allowed }
	err := l.asking.Wait(w.ctx, &l.time, line, int64(max(w.req.Cost, 1)), func() bool { return w.moves(line) }, ask)
	switch {
	case err != nil:
		return Result{}, err
	case w.res.Allowed:
		return w.hold(w.res, w.at, w.err)
	}
	return w.res, w.err
}

// moves reads the rules again if they have changed. It reports whether w, which stands in line,
// has to go to another one.
func (w *ruleWait) moves(line keytable.Hash) bool {
	version := w.limiter.waiters.Version()
	if version == w.version {
		return false
	}
	w.version, w.set = version, w.limiter.set.Load()
	d, err := w.prepared()
	defer d.free()
	return err != nil || d.line != line || !d.denies() || !d.asks(w.limiter)
}

// ask is one attempt to take the units. It makes the answer of Wait or, if the caller has to
// wait, returns the denial. A newcomer does not ask if others wait already.
func (w *ruleWait) ask(newcomer bool) *waitline.Denial {
	l := w.limiter
	w.res, w.err = Result{}, nil
	d, err := w.prepared()
	defer d.free()
	if err != nil {
		w.err = err
		return nil
	}
	d.order.AskAgain = true
	patience := w.patience(d)
	switch {
	case newcomer:
		if last, wait, behind := l.behindAsking(w.ctx, d); behind {
			if err := w.refusal(wait, wait, patience, true); err != nil {
				return w.refuse(d, err)
			}
			last.Due, last.Fresh = 0, nil // if they have gone when it gets there, it asks at once
			w.last = last
			return &last
		}
	case l.settings.store == nil && slices.ContainsFunc(d.rules[:max(d.custom, 0)], (*activeRule).enforces) && !l.recorded(w.ctx, d):
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

// outcome completes the answer of Wait by d, which is decided, or returns its denial. A caller that
// is no newcomer waits already.
func (w *ruleWait) outcome(d *decision, patience time.Duration, newcomer bool) *waitline.Denial {
	l, res := w.limiter, &w.res
	now, wait := d.Now, time.Duration(0)
	if d.held { // the custom limiter was asked later
		now = max(now, l.time.Now())
	}
	switch {
	case d.Late:
		wait = res.Delay
		engine.DenyDelays(d.parts, patience)
		d.Passes, res.Allowed = false, false
	case res.Allowed:
		if w.at = d.Now; d.custom >= 0 && d.parts[d.custom].Delay > 0 {
			w.at = now
		}
		return nil
	case now == keytable.End: // no wait ends
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
		Answer: asked{res: *res, by: d.origins[d.binding].by, rule: d.rules[d.binding].Name},
		// If its other rules deny, the request stands in line for their keys at once.
		Stands: l.settings.store == nil && d.custom >= 0 && d.origins[d.custom].by == 0,
	}
	return &w.last
}

// patience returns how long w can wait from now on. It limits the Delay of d to that.
func (w *ruleWait) patience(d *decision) time.Duration {
	patience := w.limiter.time.Patience(w.ctx)
	if patience < Never {
		d.order.Within = max(patience-1, 0)
	}
	return patience
}

// refusal returns the error for a request that is not served in time, or because too many
// callers wait already and it is a newcomer. wait is how long it takes with its Delay.
func (w *ruleWait) refusal(retryAfter, wait, patience time.Duration, newcomer bool) error {
	l := w.limiter
	err := waitError(Result{RetryAfter: retryAfter}, wait, patience)
	if err == nil && newcomer && l.waiters.All() >= l.settings.maxWaiters {
		err = ErrTooManyWaiters
	}
	return err
}

// fresh returns a function that makes a copy of the binding key of d as it is at due, once the
// request of d is served: its bucket is then empty, or its window has counted the request. It
// returns nil if the key is not that of a store.
func (l *RateLimiter) fresh(d *decision, due instant) func() engine.Future {
	r, o, n := d.rules[d.binding], d.origins[d.binding], d.order.N
	if o.by != byStore || r.Warmup != (Warmup{}) { // it is not known how old the key is
		return nil
	}
	return func() engine.Future {
		algorithm := algorithms[r.Algorithm]
		keys, err := algorithm.keys(&l.time, engine.Rates{Base: engine.Rate(o.rate), Windows: algorithm.windowed}, 1)
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

// denies reports whether one of the rules of d enforces.
func (d *decision) denies() bool {
	for _, r := range d.rules {
		if r.enforces() {
			return true
		}
	}
	return false
}

// resolved returns the rates that Resolve has returned, by the name of the rule.
func (d *decision) resolved() map[string]Rate {
	if d.kept != nil {
		return d.kept
	}
	kept := make(map[string]Rate)
	for i := range d.parts {
		if rate := d.parts[i].Want.Rate; rate != nil {
			kept[d.rules[i].Name] = Rate(*rate)
		}
	}
	for _, r := range d.exempt {
		if r.Resolve != nil {
			kept[r.Name] = Unlimited
		}
	}
	return kept
}

// asks reports whether d is decided by a store or a custom limiter, whose state cannot be
// looked at ahead of time.
func (d *decision) asks(l *RateLimiter) bool { return l.settings.store != nil || d.custom >= 0 }
