package engine

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Part is what one rule has to say in a decision.
//
// A Part without Keys takes part with the Verdict that it already has: something else
// has answered for its rule.
type Part struct {
	Keys   Keys          // those of the rule, or nil
	Hash   keytable.Hash // of the key
	Want   Wanted        // the rate to decide at
	Shadow bool          // it never denies the others, and is charged if it fits and they allow

	shard lockedShard // that of the key, while it is locked

	Verdict                  // the answer
	Delay   time.Duration    // how long to hold the request, if it is granted
	Then    keytable.Instant // when the key was charged, if Order.Revocable
	Err     error            // why the wanted rate was not granted
}

// An Order is what a decision is to do.
type Order struct {
	N         int64         // units, at least 1
	Within    time.Duration // a request with a longer Delay is not charged; see [AnyDelay]
	Take      bool          // or only look
	Revocable bool          // whether what is taken may be given back
	AskAgain  bool          // whether a denial is no decision, as the caller will ask again
}

// AnyDelay is an Order's Within where any Delay will do.
const AnyDelay time.Duration = math.MaxInt64

// An Outcome is what a decision comes to.
type Outcome struct {
	Now       keytable.Instant // the one reading of the clock
	DelayThen time.Duration    // of a denial that is asked again: the Delay when it would pass
	Passes    bool             // whether all rules that are no shadows grant the request
	Late      bool             // whether it passes, but was not charged as a Delay is too long
}

// Settle decides by all parts at once. It locks their keys, in the order of parts, which
// must be the same in all decisions; reads the clock once; asks all; and charges all that
// fit if every part that is no shadow fits, or else none. Each shard then learns of the
// reading, so that time follows the order of its lock.
//
// began is a reading of the machine's clock that was made for this decision, or 0; it is
// not used if t has another clock.
func Settle(t *Timeline, parts []Part, order Order, began keytable.Instant) Outcome {
	now, last := began, -1 // last is the last part that is no shadow
	if t.clock == nil && now == 0 {
		now = keytable.InstantAt(time.Since(t.start))
	}
	for i := range parts {
		p := &parts[i]
		if p.Keys != nil {
			p.shard, now = p.Keys.lock(p.Hash, now)
		}
		if !p.Shadow {
			last = i
		}
	}
	latest := now
	if t.clock != nil {
		now, latest = readLocked(t, parts), 0
	}

	ask := Look
	if order.Take {
		ask = Probe
	}
	passes, late, taken := true, false, -1
	for i := range parts {
		p := &parts[i]
		if p.Shadow {
			continue
		}
		if p.shard != nil {
			do := ask
			if i == last && passes && order.Take && order.Within == AnyDelay {
				// If it denies now, no part has taken anything; if it grants, all do.
				do, taken = Take, i
			}
			p.Verdict, p.Delay = p.shard.step(p.Hash, p.Want, now, order.N, do)
		}
		passes = passes && p.RetryAfter == 0
		late = late || p.Delay > order.Within
	}
	late = late && passes

	out := Outcome{Now: now, Passes: passes, Late: late}
	if order.AskAgain && !passes {
		out.DelayThen = delayThen(parts, now, order.N)
	}
	charge := order.Take && passes && !late
	counted := charge || order.Take && !passes && !order.AskAgain
	for i := range parts {
		p := &parts[i]
		if p.shard == nil {
			continue
		}
		switch {
		case charge && i != taken && (p.Shadow || p.RetryAfter == 0):
			p.Verdict, p.Delay = p.shard.step(p.Hash, p.Want, now, order.N, Take)
		case p.Shadow:
			p.Verdict, p.Delay = p.shard.step(p.Hash, p.Want, now, order.N, ask)
		}
		if p.Want.Rate != nil {
			p.Err = p.shard.refusal(p.Want)
		}
		if order.Revocable && charge && p.RetryAfter == 0 {
			p.Then = p.shard.charged(p.Hash)
		}
		p.shard.finish(latest, tally(counted, passes, p.RetryAfter == 0, p.Shadow))
		p.shard = nil
	}
	return out
}

// readLocked reads the clock while all parts are locked. A clock that panics leaves them
// unlocked, and the decision is counted nowhere.
func readLocked(t *Timeline, parts []Part) keytable.Instant {
	panicked := true
	defer func() {
		for i := range parts {
			if p := &parts[i]; panicked && p.shard != nil {
				p.shard.finish(0, keytable.Uncounted)
			}
		}
	}()
	now := t.Now()
	panicked = false
	return now
}

// tally returns what a decision counts as in the totals of a rule, if it is counted at
// all. passes says whether the request does, and granted whether the rule alone would
// grant it.
func tally(counted, passes, granted, shadow bool) keytable.Tally {
	switch {
	case !counted || granted && !passes: // only other rules have denied it
		return keytable.Uncounted
	case granted:
		return keytable.Allowed
	case shadow:
		return keytable.Shadowed
	}
	return keytable.Denied
}

// delayThen returns the Delay that a denied request would have at the instant at which
// it would be granted.
func delayThen(parts []Part, now keytable.Instant, n int64) (delay time.Duration) {
	var wait time.Duration
	for i := range parts {
		if p := &parts[i]; !p.Shadow {
			wait = max(wait, p.RetryAfter)
		}
	}
	if wait == Never {
		return 0
	}
	for i := range parts {
		if p := &parts[i]; p.shard != nil && !p.Shadow {
			_, d := p.shard.step(p.Hash, p.Want, now.Add(wait), n, Look)
			delay = max(delay, d)
		}
	}
	return delay
}
