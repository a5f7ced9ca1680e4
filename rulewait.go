package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// A ruleWait is one call of Wait of a RateLimiter.
type ruleWait struct {
	limiter *RateLimiter
	ctx     context.Context
	req     *Request
	set     *ruleSet
	version uint64          // Lines.Version, read before set
	kept    map[string]Rate // what Resolve has returned, by rule; nil until it was called
}

// prepared returns a decision by the rules of w, and the line that it waits in.
func (w *ruleWait) prepared() (d *decision, line keytable.Hash, err error) {
	d = newDecision(w.req, true)
	d.kept = w.kept
	if w.limiter.settings.observer != nil {
		d.watch = startWatch(&w.limiter.time)
	}
	if err = d.prepare(w.set); err != nil {
		return d, line, err
	}
	w.kept = d.resolved()
	return d, d.gather(), nil
}

// wait waits by the rules in w.set.
func (w *ruleWait) wait() (Result, error) {
	l := w.limiter
	d, line, err := w.prepared()
	defer d.free()
	switch {
	case err != nil:
		return Result{}, err
	case !d.denies():
		return l.decide(w.ctx, d)
	case d.asks(l):
		return w.waitAsking(line)
	}
	in := waitline.Waiter{Set: line, Spots: d.spots, N: d.order.N, Counted: true, Version: w.version, Owner: d}
	err = await(w.ctx, &l.waiters, &in)
	if err != nil && (in.Refused == nil || errors.Is(err, in.Refused)) {
		return Result{}, err // the context has ended, or no rules decide
	}
	d.learn()
	d.Now, d.Passes = in.At, err == nil
	res, problems := l.answered(w.ctx, d)
	if err == nil {
		return w.hold(res, in.At, problems)
	}
	return res, errors.Join(err, problems)
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
	in.Set, in.Spots = keytable.Hash{}, nil
	if in.Refused = d.prepare(l.set.Load()); in.Refused != nil {
		return
	}
	if d.asks(l) && d.denies() {
		in.Refused = waitline.ErrChanged
		return
	}
	in.Set = d.gather()
	in.Spots = d.spots
}

// asks reports whether d is decided by a store or a custom limiter, whose state cannot be
// looked at ahead of time.
func (d *decision) asks(l *RateLimiter) bool { return l.settings.store != nil || d.custom >= 0 }

// gather makes the spots of d, and returns the hash of its line: requests that take from the
// same keys of the same rules share a line.
func (d *decision) gather() keytable.Hash {
	h := globalHash
	d.spots = d.spots[:0]
	for i, r := range d.rules {
		p := &d.parts[i]
		if p.Keys != nil {
			d.spots = append(d.spots, engine.Spot{Keys: p.Keys, Hash: p.Hash, Want: p.Want, Shadow: p.Shadow})
		}
		if !p.Shadow {
			h = h.With(r.serial, p.Hash)
		}
	}
	return h
}

// learn copies the answers of the spots of d to its parts.
func (d *decision) learn() {
	spots := d.spots
	for i := range d.parts {
		if p := &d.parts[i]; p.Keys != nil {
			p.Verdict, p.Delay, p.Err = spots[0].Verdict, spots[0].Delay, spots[0].Err
			spots = spots[1:]
		}
	}
}

// behind decides on d, which found that others wait for one of its keys. It returns false if
// they have gone since: d is then decided as ever.
func (l *RateLimiter) behind(d *decision) bool {
	now, denied := l.waiters.Deny(d.gather(), d.spots, d.order.N, d.order.Take && !d.order.AskAgain)
	if denied {
		d.learn()
		d.Outcome = engine.Outcome{Now: now}
	}
	return denied
}

// freed has those decided on again who wait for keys of d, which d has given units back to.
func (l *RateLimiter) freed(d *decision) {
	for i := range d.parts {
		if p := &d.parts[i]; p.Keys != nil && !p.Shadow {
			l.waiters.Freed(p.Keys, p.Hash)
		}
	}
}

// An asked is the answer to the head of a line that asks a store or a custom limiter.
type asked struct {
	rule string // the binding rule
	by   answerer
	res  Result
}

// behindAsking decides on d if others wait for a store or a custom limiter to grant them what d
// is for: they are served before. It returns the last answer to them, and the time until d is
// served, as far as that is known.
func (l *RateLimiter) behindAsking(d *decision) (last waitline.Denial, wait time.Duration, denied bool) {
	if l.asking.Len() == 0 || !d.asks(l) {
		return last, 0, false
	}
	now := l.time.Now()
	at, last, behind := l.asking.Ahead(d.gather(), now, d.order.N)
	if !behind {
		return last, 0, false
	}
	answer := last.Answer.(asked)
	switch wait = answer.res.RetryAfter; { // if the head is asking
	case at == 0: // a Reset or other rules have made the answer out of date
		wait = time.Millisecond
	case at > now:
		wait = time.Duration(min(at.Since(now), uint64(Never)))
	}
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

// refused is the answer to a Wait that d has denied and that cannot wait, because of err.
func (l *RateLimiter) refused(ctx context.Context, d *decision, err error) (Result, error) {
	d.order.AskAgain, d.Late = false, false
	d.countDenied()
	res, problems := l.answered(ctx, d)
	return res, errors.Join(err, problems)
}

// waitAsking waits for the answer of a store or a custom limiter.
func (w *ruleWait) waitAsking(line keytable.Hash) (res Result, err error) {
	l, at := w.limiter, instant(0)
	ended := l.asking.Wait(w.ctx, &l.time, line, int64(max(w.req.Cost, 1)), func() bool { return w.moves(line) }, func(newcomer bool) (d *waitline.Denial, served bool) {
		res, at, d, err = w.ask(newcomer)
		return d, res.Allowed
	})
	switch {
	case ended != nil:
		return Result{}, ended
	case res.Allowed:
		return w.hold(res, at, err)
	}
	return res, err
}

// moves reads the rules again if they have changed. It reports whether w, which stands in line,
// has to go to another one.
func (w *ruleWait) moves(line keytable.Hash) bool {
	version := w.limiter.waiters.Version()
	if version == w.version {
		return false
	}
	w.version, w.set = version, w.limiter.set.Load()
	d, now, err := w.prepared()
	defer d.free()
	return err != nil || now != line || !d.denies() || !d.asks(w.limiter)
}

// ask is one attempt to take the units. It returns the answer of Wait or, if the caller has to
// wait, the denial; at is the instant of a grant. A newcomer does not ask if others wait already.
func (w *ruleWait) ask(newcomer bool) (res Result, at instant, again *waitline.Denial, err error) {
	l := w.limiter
	patience := l.time.Patience(w.ctx)
	d, _, err := w.prepared()
	defer d.free()
	if err != nil {
		return Result{}, 0, nil, err
	}
	d.order.AskAgain = true
	if patience < Never {
		d.order.Within = max(patience-1, 0)
	}
	if newcomer {
		if last, wait, behind := l.behindAsking(d); behind {
			if err := w.refusal(wait, wait, patience); err != nil {
				res, err := l.refused(w.ctx, d, err)
				return res, 0, nil, err
			}
			// If they have gone when it gets there, it is the head, and asks at once.
			return Result{}, 0, &waitline.Denial{At: last.At, Answer: last.Answer}, nil
		}
	}
	if res, err = l.decide(w.ctx, d); err != nil && res == (Result{}) {
		return res, 0, nil, err
	}
	now, wait := d.Now, time.Duration(0)
	switch {
	case d.Late:
		wait = res.Delay
		for i := range d.parts {
			if p := &d.parts[i]; !p.Shadow && p.Delay > d.order.Within {
				p.RetryAfter, p.Delay = max(p.Delay-patience, 1), 0
			}
		}
		d.Passes = false
	case res.Allowed:
		return res, now, nil, err
	case now == keytable.End: // no wait ends
		res.RetryAfter, wait = Never, Never
		d.parts[d.binding].RetryAfter = Never
	default:
		if wait = Never; res.RetryAfter <= Never-d.DelayThen {
			wait = res.RetryAfter + d.DelayThen
		}
	}
	if refusal := w.refusal(res.RetryAfter, wait, patience); refusal != nil {
		res, err := l.refused(w.ctx, d, refusal)
		return res, 0, nil, err
	}
	answer := asked{res: res, by: d.origins[d.binding].by, rule: d.rules[d.binding].Name}
	due := now.Add(max(res.RetryAfter, time.Millisecond))
	return Result{}, 0, &waitline.Denial{Due: due, At: now, Answer: answer, Fresh: l.fresh(d, due)}, nil
}

// refusal returns the error for a request that is not served in time, or because too many
// callers wait already. wait is how long it takes with its Delay.
func (w *ruleWait) refusal(retryAfter, wait, patience time.Duration) error {
	l := w.limiter
	err := waitError(Result{RetryAfter: retryAfter}, wait, patience)
	if err == nil && l.asking.Len()+l.waiters.Len() >= l.settings.maxWaiters {
		err = ErrTooManyWaiters
	}
	return err
}

// fresh returns a function that makes a copy of the binding key of d as it is at due, once the
// request of d is served: its bucket is then empty, or its window has counted the request. It
// returns nil if the key is not that of a store.
func (l *RateLimiter) fresh(d *decision, due instant) func() engine.Future {
	r, o, n := d.rules[d.binding], d.origins[d.binding], d.order.N
	if o.by != byStore {
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
