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

	taken bool           // whether the key was charged
	tally keytable.Tally // what the decision counts as
	shard lockedShard    // while it is locked

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
// fit if every part that is no shadow fits, or else none.
//
// began is a reading of the machine's clock that was made for this decision, or 0; it is
// not used if t has another clock.
func Settle(t *Timeline, parts []Part, order Order, began keytable.Instant) (out Outcome) {
	last := lock(t, parts, began, &out)

	// Of those that may deny, the last one may take at once if all others grant:
	// if it denies, nobody has taken anything.
	ask := Look
	if order.Take {
		ask = Probe
	}
	out.Passes = true
	for i := range parts {
		p := &parts[i]
		if p.Shadow {
			continue
		}
		do := ask
		if i == last && out.Passes && order.Take && order.Within == AnyDelay {
			do = Take
		}
		p.step(out.Now, order.N, do)
		out.Passes = out.Passes && p.RetryAfter == 0
		out.Late = out.Late || p.Delay > order.Within
	}
	out.Late = out.Late && out.Passes

	charge := order.Take && out.Passes && !out.Late
	count := charge || order.Take && !out.Passes && !order.AskAgain
	for i := range parts {
		p := &parts[i]
		switch {
		case charge && !p.taken && (p.Shadow || p.RetryAfter == 0):
			p.step(out.Now, order.N, Take)
		case p.Shadow:
			p.step(out.Now, order.N, ask)
		}
		if count {
			p.count(out.Passes)
		}
		if order.Revocable && p.taken {
			p.Then = p.Keys.charged(p.shard, p.Hash)
		}
	}
	if order.AskAgain && !out.Passes {
		out.DelayThen = delayThen(parts, out.Now, order.N)
	}
	unlock(t, parts, out.Now)
	return out
}

// lock locks the keys of parts and notes in out the reading of the clock that is then the
// time. It returns the index of the last part that is no shadow, or -1.
func lock(t *Timeline, parts []Part, began keytable.Instant, out *Outcome) (last int) {
	last = -1
	if t.clock == nil {
		if out.Now = began; began == 0 {
			out.Now = keytable.InstantAt(time.Since(t.start))
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.Keys != nil {
			p.shard, out.Now = p.Keys.lock(p.Hash, out.Now)
		}
		if !p.Shadow {
			last = i
		}
	}
	if t.clock != nil {
		out.Now = readLocked(t, parts)
	}
	return last
}

// readLocked reads the clock while all parts are locked. A clock that panics leaves them
// unlocked, and the decision is counted nowhere.
func readLocked(t *Timeline, parts []Part) keytable.Instant {
	panicked := true
	defer func() {
		if panicked {
			unlock(t, parts, 0)
		}
	}()
	now := t.Now()
	panicked = false
	return now
}

// unlock counts the decision and unlocks all parts. Where the machine's clock was read
// before they were locked, it tells each shard of the latest reading that any of them has
// seen.
func unlock(t *Timeline, parts []Part, now keytable.Instant) {
	if t.clock != nil {
		now = 0
	}
	for i := range parts {
		if p := &parts[i]; p.shard != nil {
			p.shard.Finish(now, p.tally)
			p.shard = nil
		}
	}
}

// step has the part's keys asked, if it has any.
func (p *Part) step(now keytable.Instant, n int64, do Intent) {
	if p.Keys == nil {
		return
	}
	p.Verdict, p.Delay = p.Keys.step(p.shard, p.Hash, p.Want, now, n, do)
	if p.Want.Rate != nil {
		p.Err = p.Keys.refusal(p.shard, p.Want)
	}
	p.taken = do == Take && p.RetryAfter == 0
}

// count notes what the decision counts as in the totals of the part's rule.
func (p *Part) count(passes bool) {
	switch {
	case p.RetryAfter == 0:
		if passes { // otherwise only other rules have denied
			p.tally = keytable.Allowed
		}
	case p.Shadow:
		p.tally = keytable.Shadowed
	default:
		p.tally = keytable.Denied
	}
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
		if p := &parts[i]; p.Keys != nil && !p.Shadow {
			_, d := p.Keys.step(p.shard, p.Hash, p.Want, now.Add(wait), n, Look)
			delay = max(delay, d)
		}
	}
	return delay
}
