package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// WithRequestIDs lets requests have an ID, see [Request.ID]. A client that has lost an answer
// sends the request again with the same ID: if it was granted less than ttl ago, it gets the same
// Result, with ResetAfter and Delay less the time since, and is not charged again. If it was
// denied, it is decided anew. ttl is from a microsecond to 366 days.
//
// Two requests with one ID are the same only if their Client and their Cost are equal, and the
// same rules charge the same keys. A Tier, a Rate and a Reset change nothing; a rule that is new,
// or has another Key, Algorithm or Mode, makes another request of it.
//
// One grant answers at most 100 times, and the request is then decided anew: use IDs only where
// the work itself is done once for each ID. A limiter keeps the last grants, as many as
// [WithMaxKeys] says; a request whose grant it has forgotten is charged again. A grant that is
// [Result.Degraded] is not kept.
//
// With a [Store], the store keeps the grants. It must have the method Once, see [Store], and a
// request with an ID cannot have a rule with a custom [Limiter]. The option has no effect on a
// limiter by itself.
func WithRequestIDs(ttl time.Duration) Option {
	return option(!validSpan(ttl), "requestIDs", ttl, spanRange, func(s *settings) { s.requestIDs = ttl })
}

// spanRange says what validSpan asks of a TTL, a term or the time of a warm-up.
const spanRange = "must be from a microsecond to 366 days"

func validSpan(d time.Duration) bool { return d >= time.Microsecond && d <= 366*24*time.Hour }

// Once is what the method Once of a [Store] is told about a request beside its asks.
type Once struct {
	// Client and ID are those of the [Request].
	Client, ID string

	// TTL is for how long the answer is kept: from a microsecond to 366 days.
	TTL time.Duration

	// Look is true if nothing must change: no unit is taken, no answer kept or counted.
	Look bool
}

// An oncer is a store that keeps the answers to requests with an ID; see Store.
type oncer interface {
	Once(ctx context.Context, once Once, asks []Ask) (results []Result, replayed bool, err error)
}

// setRequestIDs prepares l for requests with an ID, if it has the option.
func (l *RateLimiter) setRequestIDs() error {
	set := &l.settings
	switch ok := false; {
	case set.requestIDs == 0 || set.solo:
	case set.store == nil:
		l.records = replay.New(set.maxKeys)
	default:
		if l.once, ok = set.store.(oncer); !ok {
			return &ConfigError{"store", fmt.Sprintf("%T", set.store), "must have a method Once: requests have IDs"}
		}
	}
	return nil
}

// takesID returns the error for a request that has an ID without the option, or nil.
func (l *RateLimiter) takesID(req *Request, take bool) error {
	if req.ID == "" || !take || l.records != nil || l.once != nil {
		return nil
	}
	return &ConfigError{"id", confmap.Describe(req.ID), "must be empty: the limiter has no WithRequestIDs"}
}

// identify finds out what the request of d, which has an ID, is recorded under in this process.
// Two requests have the same identity only if they are about the same keys.
func (d *decision) identify() error {
	switch {
	case d.records != nil:
	case d.custom >= 0:
		return &ConfigError{"id", confmap.Describe(d.request.ID), "must be empty: one of the rules has a limiter of its own, and others are in a store"}
	default:
		return nil
	}
	d.id = d.request.identity()
	for i, r := range d.rules {
		d.id = r.identity(d.id, d.parts[i].Hash)
	}
	if d.custom < 0 && !d.rehearses() {
		d.order.Record = d
	}
	return nil
}

// replayPlain writes the answer to req, which has an ID, to res, if the rules are plain and there is
// a record. It does what a decision would do, and costs less.
func (l *RateLimiter) replayPlain(ctx context.Context, req *Request, res *Result) bool {
	set := l.set.Load()
	if set == nil || l.records == nil || l.settings.observer != nil || len(req.Rules) > 0 || ctx != nil && ctx.Err() != nil {
		return false
	}
	g := set.match(req.Endpoint)
	if !g.plain || len(g.rules) > 2 {
		return false
	}
	l.time.Renew()
	id := req.identity()
	var parts [2]engine.Part
	for i, r := range g.rules {
		id = r.identity(id, r.key.hash(req))
		parts[i].Shadow = !r.enforces()
	}
	if !l.records.Find(id, l.time.Now(), parts[:len(g.rules)], true) {
		return false
	}
	for _, r := range g.rules {
		r.totals.replayed.Add(1)
	}
	combine(g.rules, parts[:len(g.rules)], true, res)
	return true
}

// Find makes the answers of the record of d those of d, if there is a record that still answers.
func (d *decision) Find(now instant) bool { return d.records.Find(d.id, now, d.parts, true) }

// Keep records that d was granted. It is called while the keys of d are locked.
func (d *decision) Keep(at instant) {
	if d.waits {
		waitline.Learn(d.parts, d.spots)
	}
	d.records.Keep(d.id, at, d.ttl, d.parts)
}

// replayed reports whether d, which is not decided yet, gets the answer of a record.
func (l *RateLimiter) replayed(d *decision) bool {
	if d.order.Record == nil {
		return false
	}
	l.time.Renew()
	now := l.time.Now()
	if !d.Find(now) {
		return false
	}
	d.Outcome = engine.Replayed(now)
	return true
}

// countReplayed counts that d got the answer of a record.
func (d *decision) countReplayed() {
	for i, r := range d.rules {
		r.totals.replayed.Add(1)
		d.origins[i].by, d.parts[i].Err = byReplay, nil
	}
	for _, r := range d.exempt {
		r.totals.replayed.Add(1)
	}
}

// takeOff reports whether d, which a custom limiter decides on, gets the answer of a record.
// Otherwise nobody else decides on the same request until land is called. If somebody does so
// already, takeOff waits.
func (l *RateLimiter) takeOff(ctx context.Context, d *decision) (found bool, land func(), err error) {
	asked := slices.Clone(d.parts)
	now, found, err := d.records.Begin(ctx, d.id, l.time.Now, d.parts)
	if !found && err == nil {
		return false, func() { d.records.Land(d.id) }, nil
	}
	if d.held { // Wait has charged the other rules
		answers := d.parts
		d.parts = asked
		d.settle(false)
		l.waiters.Freed(d.parts)
		d.parts, d.held = answers, false
	}
	d.Outcome = engine.Outcome{Now: now}
	if found {
		d.Outcome = engine.Replayed(now)
	}
	return found, nil, err
}

// keepLanded records that d was granted by a custom limiter, and not by its failure policy.
func (d *decision) keepLanded(res *Result) {
	if d.id.Hi != 0 && d.custom >= 0 && d.Passes && d.decided() && !d.Replayed && !res.Degraded {
		d.records.Keep(d.id, d.Now, d.ttl, d.parts)
	}
}

// recorded reports whether the request of d was granted before, so that it does not wait.
func (l *RateLimiter) recorded(ctx context.Context, d *decision) bool {
	switch {
	case d.request.ID == "" || !d.order.Take:
		return false
	case l.once == nil:
		return d.records.Find(d.id, l.time.Now(), nil, false)
	}
	asks := l.asksFor(d)
	pass, err := l.breakers.Admit(l.partsOf(asks)|l.recordPart(d), l.time.Now())
	if err != nil {
		return false
	}
	_, found, err := l.askOnce(ctx, pass, d, asks, true)
	return err == nil && found
}

// asksFor returns the asks for d, which is not decided yet.
func (l *RateLimiter) asksFor(d *decision) []Ask {
	asks := make([]Ask, len(d.rules))
	for i, r := range d.rules {
		l.resolve(r, &d.parts[i], &d.origins[i], Ask{})
		asks[i] = r.ask(&d.request, d.origins[i].rate)
		asks[i].N = int(d.order.N)
	}
	return asks
}

// recalled reports whether the request of d, which is for Explain, was granted before by its ID. If
// so, it makes that answer the one of d. Nothing changes, and the breakers do not learn of it.
func (l *RateLimiter) recalled(ctx context.Context, d *decision) bool {
	now := l.time.Now()
	switch {
	case d.request.ID == "":
		return false
	case l.once == nil:
		if !d.records.Find(d.id, now, d.parts, false) {
			return false
		}
	default:
		asks := l.asksFor(d)
		if l.breakers.Refusal(l.partsOf(asks)|l.recordPart(d), now) != nil {
			return false
		}
		results, found, err := l.once.Once(ctx, l.onceFor(d, true), asks)
		if complete(results, asks, err) != nil || !found {
			return false
		}
		for i := range results {
			setResult(&d.parts[i], results[i])
		}
	}
	for i := range d.origins {
		d.origins[i].by = byReplay
	}
	d.Outcome = engine.Replayed(now)
	return true
}

// recordPart returns the part of the store that has the record of d, as a bit, as far as that is
// known. It is the part with the states of the client.
func (l *RateLimiter) recordPart(d *decision) uint64 {
	client := d.request.Client
	if d.request.ID == "" || !d.order.Take || client == "" || len(d.rules) == 0 {
		return 0
	}
	return l.partsOf([]Ask{{Rule: d.rules[0].remote.name, Key: client, Client: client, Algorithm: d.rules[0].Algorithm}})
}

// takeFor calls Take of the store for d, or Once if the request has an ID. If take is false, the
// asks take nothing.
func (l *RateLimiter) takeFor(ctx context.Context, pass breaker.Pass, d *decision, take bool, asks []Ask) (results []Result, err error) {
	if d.request.ID == "" || !take {
		return l.takeFrom(ctx, pass, asks)
	}
	results, d.Replayed, err = l.askOnce(ctx, pass, d, asks, false)
	return results, err
}

// onceFor returns what the store is told about the request of d.
func (l *RateLimiter) onceFor(d *decision, look bool) Once {
	return Once{Client: d.request.Client, ID: d.request.ID, TTL: l.settings.requestIDs, Look: look}
}

// askOnce calls Once of the store, which pass allows.
func (l *RateLimiter) askOnce(ctx context.Context, pass breaker.Pass, d *decision, asks []Ask, look bool) (results []Result, replayed bool, err error) {
	err = l.guarded(ctx, pass, func() error {
		results, replayed, err = l.once.Once(ctx, l.onceFor(d, look), asks)
		return complete(results, asks, err)
	})
	return results, replayed && err == nil, err
}

// Once takes asks as Take does, for the request that once names. If the same asks were granted
// less than its TTL ago for the same request, it takes nothing, and returns the results that they
// had, and true: see [Store]. The error also matches [ErrInvalidConfig] for an invalid TTL or an
// empty ID, and [ErrInvalidCount] for an ask of no units.
func (m *MemoryStore) Once(ctx context.Context, once Once, asks []Ask) (results []Result, replayed bool, err error) {
	switch {
	case once.ID == "":
		return nil, false, &ConfigError{"id", `""`, "must not be empty"}
	case !validSpan(once.TTL):
		return nil, false, &ConfigError{"ttl", once.TTL, spanRange}
	}
	charges, err := m.charges(ctx, asks, func(a *Ask) error {
		switch {
		case a.N < 1:
			return ErrInvalidCount
		case a.Look:
			return &ConfigError{"look", true, "must be false: Once has a Look of its own"}
		}
		return m.Accepts(*a)
	})
	if err != nil || len(asks) == 0 {
		return nil, false, err
	}
	r := replay.NewRecord(m.records, once.Client, once.ID, once.TTL, once.Look, charges)
	replayed, err = m.book.Take(charges, r, once.Look)
	if err != nil {
		return nil, false, err
	}
	return resultsOf(charges), replayed, nil
}
