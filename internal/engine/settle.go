package engine

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Part is one rule in a decision: what it is asked, and its answer.
//
// A Part without Keys has its answer already, from a failure policy or another limiter. It
// takes part in the decision with that.
type Part struct {
	Keys   Keys          // the keys of the rule, or nil
	Hash   keytable.Hash // of the key that the request takes from
	Want   Wanted        // the rate to decide at
	Shadow bool          // never denies the request; charged if it grants and the request passes

	shard lockedShard // the key's shard while it is locked, otherwise nil

	Verdict               // the answer
	Delay   time.Duration // how long to hold the request, if it is granted
	Receipt Receipt       // of the charge, if Order.Revocable is set
	Err     error         // why the rule's own rate was used and not the one in Want, or nil
}

// An Order says what a decision is to do.
type Order struct {
	N         int64         // units, at least 1
	Within    time.Duration // a request with a longer Delay is not charged; see [AnyDelay]
	Take      bool          // whether to charge; otherwise, the decision only looks
	Revocable bool          // whether the caller may give units back: it settles each Part.Receipt
	Unsettled bool          // whether a grant is not counted yet: the caller says Keys.Confirm or Keys.Revoke
	AskAgain  bool          // whether a denied caller will try again, so that a denial is not counted
	Record    Record        // of grants of the same request; may be nil
	Rehearsal *Rehearsal    // if it is not nil, the decision changes nothing and is not counted
}

// A Record remembers that a request was granted. Its methods are called while the keys of the
// request are locked, so that nobody can decide on the same request in between.
type Record interface {
	// Find reports whether the request was granted before, so that it is not charged again. It
	// then writes the answers that the request had.
	Find(now keytable.Instant) bool

	// Keep notes that the request was charged. Its answers are written already.
	Keep(at keytable.Instant)
}

// AnyDelay is the value of Order.Within for a request that is charged whatever its Delay.
const AnyDelay time.Duration = math.MaxInt64

// An Outcome is the result of a decision. It and what it embeds have at most four fields: larger
// structs are returned through memory, which took a tenth of the time of a decision.
type Outcome struct {
	Now       keytable.Instant // the one reading of the clock
	DelayThen time.Duration    // if denied, and Order.AskAgain: the Delay when it would be granted
	Passes    bool             // whether all parts that are no shadows grant the request
	Uncharged                  // why nothing was charged although no part denies
}

// Uncharged says why a decision has charged nothing although no part denies the request.
type Uncharged struct {
	Queued   bool // nothing was decided, because callers wait for one of the keys
	Late     bool // it passes, but has a Delay beyond Order.Within
	Replayed bool // it passes because Order.Record has it, and is not charged again
}

// Replayed returns the Outcome of a request that was granted before, and is not charged again.
func Replayed(now keytable.Instant) Outcome {
	return Outcome{Now: now, Passes: true, Uncharged: Uncharged{Replayed: true}}
}

// Settle decides by all parts at once. It locks their keys in the order of parts, which must be
// the same in all decisions. It reads the clock once and asks all parts. If every part that is
// no shadow grants the request, it charges every part that grants it; otherwise it charges
// none. Then it tells each shard the reading, so that no later decision of the shard goes by an
// earlier one. If callers wait for a key of a part that is no shadow, Settle decides nothing
// and sets Queued in the Outcome. If order.Record has the request, it charges nothing
// either.
//
// began is a reading of the machine's clock that was made for this decision, or 0 if there is
// none. It is not used if t has another clock.
func Settle(t *Timeline, parts []Part, order *Order, began keytable.Instant) Outcome {
	t.Renew()
	now, last := began, -1 // last is the index of the last part that is no shadow
	if t.clock == nil && now == 0 {
		now = keytable.InstantAt(time.Since(t.start))
	}
	queued := false
	for i := range parts {
		p, marked := &parts[i], false
		if p.Keys != nil {
			p.shard, now, marked = p.Keys.lock(p.Hash, now)
		}
		if !p.Shadow {
			last = i
			queued = queued || marked
		}
	}
	latest := now
	if t.clock != nil && (!queued || order.Record != nil) {
		now, latest = readLocked(t, parts), 0
	}
	if queued || order.Record != nil {
		if found := order.Record != nil && order.Record.Find(now); found || queued {
			unlock(parts)
			return Outcome{Now: now, Passes: found, Uncharged: Uncharged{Replayed: found, Queued: !found}}
		}
	}

	ask, take := Look, Take
	if order.Take {
		ask = Probe
	}
	switch {
	case order.Rehearsal != nil:
		ask, take = Look, Rehearse
	case order.Revocable:
		take = Hold
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
				// All parts before it grant the request. So if this part
				// grants it, all do, and if it denies it, none is charged:
				// it can be charged in the same step.
				do, taken = take, i
			}
			p.Verdict, p.Delay, p.Receipt = p.shard.step(p.Hash, p.Want, now, order.N, do)
		}
		passes = passes && p.RetryAfter == 0
		late = late || p.Delay > order.Within
	}
	late = late && passes

	out := Outcome{Now: now, Passes: passes, Uncharged: Uncharged{Late: late}}
	if order.AskAgain && !passes {
		out.DelayThen = delayThen(parts, now, order.N)
	}
	charge := order.Take && passes && !late
	kept := -1
	if charge && order.Record != nil {
		kept = len(parts) - 1 // until then, one of the keys is locked
	}
	counted := order.Rehearsal == nil && (charge || order.Take && !passes && !order.AskAgain)
	for i := range parts {
		p := &parts[i]
		if p.shard == nil {
			continue
		}
		switch {
		case charge && i != taken && (p.Shadow || p.RetryAfter == 0):
			p.Verdict, p.Delay, p.Receipt = p.shard.step(p.Hash, p.Want, now, order.N, take)
		case p.Shadow:
			p.Verdict, p.Delay, _ = p.shard.step(p.Hash, p.Want, now, order.N, ask)
		}
		if order.Rehearsal != nil {
			order.Rehearsal.rehearsed(i, p, now, order)
		}
		if p.Want.Rate != nil {
			if err := p.shard.refusal(p.Want); err != nil {
				p.Err = err
			}
		}
		if i == kept {
			order.Record.Keep(now)
		}
		p.shard.finish(latest, tally(counted, passes, p.RetryAfter == 0, p.Shadow, order.Unsettled))
		p.shard = nil
	}
	return out
}

// unlock unlocks the keys of parts, which nothing was decided about.
func unlock(parts []Part) {
	for i := range parts {
		if p := &parts[i]; p.shard != nil {
			p.shard.finish(0, keytable.Uncounted)
			p.shard = nil
		}
	}
}

// DenyDelays makes the verdicts of parts denials where their Delay is not below most.
func DenyDelays(parts []Part, most time.Duration) {
	for i := range parts {
		if p := &parts[i]; !p.Shadow && p.Delay > 0 && p.Delay >= most {
			p.RetryAfter, p.Delay = max(p.Delay-most, 1), 0
		}
	}
}

// readLocked reads the clock while the keys of all parts are locked. If the clock panics,
// readLocked unlocks them, and the decision is not counted.
func readLocked(t *Timeline, parts []Part) keytable.Instant {
	panicked := true
	defer func() {
		if panicked {
			unlock(parts)
		}
	}()
	now := t.Now()
	panicked = false
	return now
}

// tally returns what a decision counts as in the totals of a rule. counted says whether it is
// counted at all, passes whether the request passes, and granted whether this rule alone would
// grant it. Of one that is not settled, grants are counted later.
func tally(counted, passes, granted, shadow, unsettled bool) keytable.Tally {
	switch {
	case !counted, granted && unsettled, granted && !passes: // in the last case only other rules have denied it
		return keytable.Uncounted
	case granted:
		return keytable.Allowed
	case shadow:
		return keytable.Shadowed
	}
	return keytable.Denied
}

// delayThen returns the Delay that a denied request would have at the instant at which it would
// be granted.
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
			_, d, _ := p.shard.step(p.Hash, p.Want, now.Add(wait), n, Look)
			delay = max(delay, d)
		}
	}
	return delay
}
