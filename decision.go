package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// An ask is the part of one rule in a decision.
type ask struct {
	rule    *activeRule
	states  states // where the rule's state is now; nil if something else answers
	hash    keytable.Hash
	wish    wish
	rate    Rate        // what wish comes to, if a store is to be asked
	shard   lockedShard // while it is locked
	verdict verdict
	delay   time.Duration
	taken   bool    // whether the units are taken
	then    instant // when they were, if they may have to be given back
	source  Source  // empty if it was not asked
	err     error   // why wish was not granted
}

// A decision is one request and what its rules say to it. It is used again, so
// that deciding allocates nothing.
type decision struct {
	request Request
	n       int64
	take    bool          // or look
	within  time.Duration // how long a Delay may be
	waits   bool          // whether it is asked again if it is denied, which then is no decision

	set    *ruleSet
	group  *ruleGroup
	rules  []*activeRule // those of a request that names them
	asks   []ask         // in the order of locks; a custom limiter's comes last
	custom *ask          // the last of asks, if a custom limiter is to be asked
	now    instant       // the reading of the clock, once there is one

	passes    bool          // whether all that enforce do
	late      bool          // whether nothing was taken because a Delay is too long
	delayThen time.Duration // of a denied request, if it is made again when it would pass
	failed    error         // why the store did not answer
}

var decisions = sync.Pool{New: func() any { return new(decision) }}

// newDecision returns a decision on req.
func newDecision(req *Request, take bool, within time.Duration) *decision {
	d := decisions.Get().(*decision)
	d.request, d.n, d.take, d.within = *req, int64(max(req.Cost, 1)), take, within
	return d
}

// free hands d back. It must not be used after.
func (d *decision) free() {
	clear(d.rules)
	clear(d.asks)
	*d = decision{rules: d.rules[:0], asks: d.asks[:0]}
	decisions.Put(d)
}

// prepare finds the rules that apply, and asks code for the rates that it sets.
func (d *decision) prepare() error {
	rules := d.group.rules
	if len(d.request.Rules) > 0 {
		for _, name := range d.request.Rules {
			r := d.set.byName[name]
			if r == nil {
				return fmt.Errorf("%w %q", ErrUnknownRule, name)
			}
			d.rules = append(d.rules, r)
		}
		sortBySerial(d.rules)
		d.rules = slices.Compact(d.rules)
		rules = d.rules
	}
	var custom *activeRule
	for _, r := range rules {
		if r.Limiter == nil {
			d.add(r)
			continue
		}
		if custom != nil {
			return &ConfigError{"rules", fmt.Sprintf("%q and %q", custom.Name, r.Name), "must have one limiter of one's own among them"}
		}
		custom = r
	}
	if custom != nil {
		d.add(custom)
		d.custom = &d.asks[len(d.asks)-1]
	}
	return nil
}

// add makes r one of the rules that are asked.
func (d *decision) add(r *activeRule) {
	a := ask{rule: r, states: r.states}
	if r.states != nil {
		a.source = SourceMemory
	}
	a.hash = r.hash(d.request.Client, d.request.Endpoint, d.request.IP)
	a.wish.tier = d.request.Tier
	if r.Resolve != nil {
		a.wish.rate, a.wish.resolved = r.Resolve(d.request)
	}
	d.asks = append(d.asks, a)
}

// decide asks the states in this process: it locks all, reads the clock once,
// evaluates all, and takes from all or none.
func (d *decision) decide(t *timeline) {
	if t.clock == nil {
		d.now = keytable.InstantAt(time.Since(t.start))
	}
	for i := range d.asks {
		if a := &d.asks[i]; a.states != nil {
			a.shard, d.now = a.states.lock(a.hash, d.now)
		}
	}
	if t.clock != nil {
		d.now = t.nowLocked(d)
	} else {
		d.latest()
	}
	intent := toLook
	if d.take {
		intent = toAsk
	}
	d.passes = true
	last := len(d.asks) - 1
	for i := range d.asks {
		a := &d.asks[i]
		if i == last && d.mayTake(a) {
			// It has the last word: if it denies, nobody has taken anything.
			intent = toTake
		}
		if a.states != nil {
			var err error
			a.verdict, a.delay, err = a.states.step(a.shard, a.hash, &a.wish, d.now, d.n, intent)
			if err != nil {
				a.err = err // else it is what was wrong when the store was to be asked
			}
			a.taken = intent == toTake && a.verdict.retryAfter == 0
		}
		if a.rule.enforces() && a != d.custom {
			d.passes = d.passes && a.verdict.retryAfter == 0
			d.late = d.late || a.delay > d.within
		}
	}
	d.late = d.late && d.passes
	if d.take && !d.late && (d.passes || !d.waits) {
		d.settle()
	}
	if !d.passes && d.waits {
		d.lookAhead()
	}
	d.Unlock()
}

// lookAhead finds the Delay of the request, which is denied, when it would pass. It
// must be called with all shards locked.
func (d *decision) lookAhead() {
	var wait time.Duration
	for i := range d.asks {
		if a := &d.asks[i]; a.rule.enforces() {
			wait = max(wait, a.verdict.retryAfter)
		}
	}
	if wait == Never {
		return
	}
	for i := range d.asks {
		if a := &d.asks[i]; a.states != nil && a.rule.enforces() {
			_, delay, _ := a.states.step(a.shard, a.hash, &a.wish, d.now.Add(wait), d.n, toLook)
			d.delayThen = max(d.delayThen, delay)
		}
	}
}

// mayTake reports whether a, the last to be asked, may take what it has at once.
func (d *decision) mayTake(a *ask) bool {
	return d.take && d.passes && a.states != nil && a.rule.enforces() && d.within == math.MaxInt64
}

// settle takes from all states if all that enforce have what was asked for, and
// counts who denies.
func (d *decision) settle() {
	for i := range d.asks {
		switch a := &d.asks[i]; {
		case a.states == nil:
		case a.verdict.retryAfter == 0 && d.passes:
			if !a.taken {
				a.verdict, a.delay, _ = a.states.step(a.shard, a.hash, &a.wish, d.now, d.n, toTake)
			}
			a.shard.Count(true)
			if d.custom != nil {
				a.then = a.states.charged(a.shard, a.hash)
			}
		case a.verdict.retryAfter == 0:
		case a.rule.enforces():
			a.shard.Count(false)
		default:
			a.shard.CountShadowed()
		}
	}
}

// latest tells all locked shards of the latest reading that any of them has seen.
func (d *decision) latest() {
	for i := range d.asks {
		if s := d.asks[i].shard; s != nil {
			s.Latest(d.now)
		}
	}
}

// Unlock unlocks all shards.
func (d *decision) Unlock() {
	for i := range d.asks {
		if a := &d.asks[i]; a.shard != nil {
			a.shard.Unlock()
			a.shard = nil
		}
	}
}

// setResult makes res the answer to a.
func (a *ask) setResult(res Result, from Source) {
	a.verdict = verdict{int64(res.Limit), int64(res.Remaining), res.RetryAfter, res.ResetAfter}
	a.delay, a.source = res.Delay, from
	switch {
	case res.Allowed:
		a.verdict.retryAfter = 0
	case res.RetryAfter <= 0:
		// Who denies without saying for how long is not to be asked without pause.
		a.verdict.retryAfter = time.Millisecond
	}
}

// count counts a decision of r, whose states do not.
func (t *totals) count(r *activeRule, allowed bool) {
	switch {
	case allowed:
		t.allowed.Add(1)
	case r.enforces():
		t.denied.Add(1)
	default:
		t.shadowed.Add(1)
	}
}

// result returns the answer to the request, and the ask that it is the answer of:
// nil if none of the rules enforces.
func (d *decision) result() (res Result, binding *ask) {
	res = unlimited
	for i := range d.asks {
		a := &d.asks[i]
		if !a.rule.enforces() || a.source == "" {
			continue
		}
		if binding == nil || d.binds(a, binding) {
			binding = a
		}
		if a.verdict.left >= 0 && (res.Remaining < 0 || int(a.verdict.left) < res.Remaining) {
			res.Remaining = int(a.verdict.left)
		}
		res.Delay = max(res.Delay, a.delay)
		res.Degraded = res.Degraded || a.source == SourcePolicy
	}
	if binding == nil {
		return res, nil
	}
	res.Allowed = d.passes
	res.Limit = int(binding.verdict.limit)
	res.RetryAfter = binding.verdict.retryAfter
	res.ResetAfter = binding.verdict.resetAfter
	res.Rule = binding.rule.Name
	if !res.Allowed {
		res.Delay = 0
	}
	return res, binding
}

// binds reports whether a binds rather than b: of a denied request the one that is
// to be waited for longest, of a granted one that with least left, and else the
// earlier rule.
func (d *decision) binds(a, b *ask) bool {
	switch {
	case !d.passes && a.verdict.retryAfter != b.verdict.retryAfter:
		return a.verdict.retryAfter > b.verdict.retryAfter
	case d.passes && a.verdict.left != b.verdict.left:
		// Where no limit applies, left is -1, which is more than any.
		return uint64(a.verdict.left) < uint64(b.verdict.left)
	}
	return a.rule.index < b.rule.index
}

// problems returns why something in the decision is not as was asked for, or nil.
func (d *decision) problems() error {
	err := d.failed
	for i := range d.asks {
		if a := &d.asks[i]; a.err != nil {
			path := "rules[" + strconv.Quote(a.rule.Name) + "].resolve"
			err = errors.Join(append([]error{err}, at(path, a.err)...)...)
		}
	}
	return err
}
