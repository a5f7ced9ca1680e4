package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// WithRequestIDs lets requests have an ID, see [Request.ID]. A client that has lost an answer sends the request again with the same ID. If
// the first request was granted less than ttl ago, the second gets the same Result and is not charged again; only ResetAfter and Delay are
// shorter by the time since then. If the first was denied, the second is decided like a new request. ttl is from a microsecond to 366 days.
//
// Two requests with one ID are the same only if their Client is equal, and the same rules charge the same keys for the
// same numbers of units. They are still the same if their Tier differs, or if a rule gets another Rate or a key is reset in
// between. They are different requests if a rule is new, or gets another Key, Algorithm or Mode in between.
//
// One grant answers at most 100 retries; any further retry is decided like a new request. So use IDs only where the
// work itself is done once for each ID. A limiter keeps as many grants as [WithMaxKeys] says and forgets the oldest
// ones first; a request whose grant is forgotten is charged again. A grant that is [Result.Degraded] is not kept.
//
// With a [Store], the store keeps the grants: it must be a [StoreReplayer], and a request with an ID cannot have a rule
// with a custom [Limiter]. The option has no effect on a limiter outside a [RateLimiter].
func WithRequestIDs(ttl time.Duration) Option {
	return option(!ruleconfig.ValidSpan(ttl), "requestIDs", ttl, ruleconfig.SpanRange, func(s *settings) { s.requestIDs = ttl })
}

// setRequestIDs prepares l for requests with an ID, if it has the option WithRequestIDs.
func (l *RateLimiter) setRequestIDs() error {
	set := &l.settings
	switch {
	case set.requestIDs == 0 || set.single:
	case l.remote == nil:
		l.records = replay.New(set.maxKeys)
	default:
		if _, l.remote.once = set.store.(StoreReplayer); !l.remote.once {
			return &ConfigError{"store", fmt.Sprintf("%T", set.store), "must have a method Once: requests have IDs"}
		}
	}
	return nil
}

// takesID returns an error if req has an ID that the limiter cannot use. The parameter take is true if req takes units.
func (l *RateLimiter) takesID(req *Request, take bool) error {
	if req.ID == "" || !take || l.records != nil || l.remote != nil && l.remote.once {
		return nil
	}
	return &ConfigError{"id", confmap.Describe(req.ID), "must be empty: the limiter has no WithRequestIDs"}
}

// identify sets d.id, by which the record of an earlier grant is found. In this process, it is a hash of Client, ID, the keys
// and the numbers of units. With a store, it is a hash of Client and ID only: the store compares the keys and numbers itself.
func (d *decision) identify() error {
	d.id = d.request.identity()
	switch {
	case d.records != nil:
	case d.custom >= 0:
		return &ConfigError{"id", confmap.Describe(d.request.ID),
			"must be empty: one of the rules has a limiter of its own, and others are in a store"}
	default:
		return nil
	}
	for i, r := range d.rules {
		d.id = r.identity(d.id, d.parts[i].Hash, d.parts[i].N)
	}
	if d.custom < 0 && d.order.Mode.Charges() {
		d.order.Record = (*recordedDecision)(d)
	}
	return nil
}

// replayPlain answers req, which has an ID, from the record of an earlier grant, and writes the answer to res. It
// returns false if there is no record. It is the fast path for a group g whose rules call no user code.
func (l *RateLimiter) replayPlain(g *ruleGroup, req *Request, res *Result) bool {
	if l.records == nil || l.settings.observer != nil || len(g.rules) > 2 || g.counted || len(req.Costs) > 0 {
		return false
	}
	l.time.Renew()
	id := req.identity()
	var parts [2]engine.Part
	for i, r := range g.rules {
		id = r.identity(id, r.key.hash(req), int64(max(req.Cost, 1)))
		parts[i].Shadow, parts[i].Advises = !r.enforces(), r.Mode == ModeAdvise
	}
	if !l.records.Find(id, l.time.Now(), parts[:len(g.rules)], true) {
		return false
	}
	for _, r := range g.rules {
		r.totals.Add(counters.Replayed, 1)
	}
	combine(g.rules, parts[:len(g.rules)], true, req, res)
	return true
}

// A recordedDecision is a decision that implements engine.Record. The engine calls its methods while keys are locked.
type recordedDecision decision

// Find looks for an earlier grant of the same request that can still be replayed, and copies its answers to d.
func (d *recordedDecision) Find(now instant) bool { return d.records.Find(d.id, now, d.parts, true) }

// Add records that d was granted.
func (d *recordedDecision) Add(at instant) {
	if d.waits {
		waitline.Learn(d.parts, d.spots)
	}
	d.records.Add(d.id, at, d.ttl, d.parts)
}

// replay answers d from the record of an earlier grant of the same request, if d is a dry run or has a custom limiter.
// In all other cases, replay does nothing: the engine (while the keys are locked) or the store looks for a record.
func (l *RateLimiter) replay(ctx context.Context, d *decision) (answered bool, err error) {
	switch {
	case d.request.ID == "":
		return false, nil
	case d.order.Mode == engine.ModeDryRun:
		return l.replayDry(ctx, d), nil
	case d.id.Hi != 0 && d.custom >= 0:
		return l.beginOrReplay(ctx, d)
	}
	return false, nil
}

// beginOrReplay answers d, which has a custom limiter, from the record of an earlier grant. If another caller is
// deciding on the same request, d waits for it. If there is no record, other callers wait until endAttempt is called.
func (l *RateLimiter) beginOrReplay(ctx context.Context, d *decision) (replayed bool, err error) {
	charged := slices.Clone(d.parts)
	now, replayed, err := d.records.Begin(ctx, d.id, l.time.Now, d.parts)
	if !replayed && err == nil {
		d.begun = true
		return false, nil
	}
	if d.held { // give back what Wait charged for all rules but the one with the custom limiter
		engine.RevokeAll(charged, d.Now)
		l.waiters.FreedParts(charged)
		d.held = false
	}
	d.Outcome = engine.Outcome{Now: now}
	if replayed {
		d.Outcome = engine.Replayed(now)
	}
	return replayed, err
}

// endAttempt ends what beginOrReplay has begun: now other callers may decide on the same request.
func (d *decision) endAttempt() {
	if d.begun {
		d.records.End(d.id)
	}
}

// recordCustomGrant records the grant of d if a custom limiter made it. A grant by the failure policy is not recorded.
func (d *decision) recordCustomGrant(res *Result) {
	if d.id.Hi != 0 && d.custom >= 0 && d.Passes && d.decided() && !d.Replayed && !res.Degraded {
		d.records.Add(d.id, d.Now, d.ttl, d.parts)
	}
}

// recorded reports whether a request with the ID of d was granted before. If so, d will get the answer of that grant and need not wait.
func (l *RateLimiter) recorded(ctx context.Context, d *decision) bool {
	switch {
	case d.request.ID == "" || !d.order.Mode.Takes():
		return false
	case l.remote != nil && l.remote.once:
		return l.remote.granted(ctx, d)
	}
	return d.records.Find(d.id, l.time.Now(), nil, false)
}

// replayDry does what replay does, for a dry run: it gives d the recorded answer and returns true if there is one.
// Nothing changes, and the circuit breakers do not learn how the call of the store ended.
func (l *RateLimiter) replayDry(ctx context.Context, d *decision) bool {
	now, c := l.time.Now(), l.remote
	if c == nil || !c.once {
		if !d.records.Find(d.id, now, d.parts, false) {
			return false
		}
	} else {
		parts := c.resolveAll(d) | c.recordPart(d)
		results, found, err := c.Look(ctx, parts, now, c.attemptOf(&d.request, true), asksFor(d))
		if err != nil || !found {
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
