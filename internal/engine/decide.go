package engine

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Part is one rule in a decision by [DecideAll]: what DecideAll asks the keys of the rule, and what
// they answer.
//
// If the field Keys is nil, the Part already has its answer before the decision, from a failure policy
// or from another limiter. DecideAll then uses that answer.
type Part struct {
	Keys Keys // the keys of the rule, or nil
	Question
	Answer
}

// A Question says for which key, and at which rate, a rule or a limiter decides on a request.
type Question struct {
	Hash    keytable.Hash // the hash of the key that the request charges
	Want    Wanted        // the rate to decide at
	N       int64         // how many units the request asks for; 0 asks whether one unit would be granted, and charges nothing
	Ends    bool          // whether units come back when running work ends, maybe sooner than RetryAfter says, see [NewInFlight]
	Shadow  bool          // whether the rule only observes: its denial stops no request. A grant charges its key if the request passes
	Advises bool          // for a rule in shadow: whether the caller is told of its denials; tally then counts them as Advised

	shard lockedShard // the part of the table with the state of the key, while it is locked; otherwise nil
}

// An Answer is what a rule or a limiter answers to a [Question].
type Answer struct {
	Verdict
	Delay   time.Duration // how long to delay the request, if it is granted
	Receipt Receipt       // the number by which the charged units can be given back; 0 if they cannot be given back
	Err     error         // why the rule could not use the rate in Question.Want, and used its own rate instead; nil if it could
}

// Units returns the number of units to decide on: q.N, or 1 if q.N is 0.
func (q *Question) Units() int64 { return max(q.N, 1) }

// intent returns the Intent with which the keys are asked the question q. If q asks for units, the result
// is the parameter do, the Intent of the whole decision. If q asks for no units, the result is Look, which
// charges nothing.
func (q *Question) intent(do Intent) Intent {
	if q.N > 0 {
		return do
	}
	return Look
}

// ask asks the key of the part p, which is locked, whether it grants the request, and stores the answer in p.
func (p *Part) ask(now keytable.Instant, do Intent) {
	p.Verdict, p.Delay, p.Receipt = p.shard.step(p.Hash, p.Want, now, p.Units(), p.intent(do))
}

// An Order says how DecideAll decides on one request.
type Order struct {
	Within    time.Duration // the longest Delay that the caller accepts: a request with a longer Delay is not charged, see [AnyDelay]
	Mode      Mode          // whether the decision charges, and whether it is counted
	Revocable bool          // whether the units can be given back later: if so, each charged Part gets a Receipt
	Unsettled bool          // whether the caller calls Keys.Confirm or Keys.Revoke after a grant; DecideAll then does not count the grant
	Record    Record        // finds an earlier grant of the same request; may be nil
	Found     []Found       // further results for each part, which DecideAll appends if Mode is ModeDryRun; otherwise nil
}

// A Mode says whether a decision charges, and whether it is counted.
type Mode uint8

// The values of a Mode.
const (
	ModeTake   Mode = iota // charges the request if it passes, and counts the answer
	ModeRetry              // charges as ModeTake does, but does not count a denial: the caller waits and tries again
	ModeDryRun             // gives the answer of ModeTake, and changes nothing
	ModeLook               // tells whether the request would be granted, and changes nothing
)

// Takes reports whether a decision in the mode m returns the answer as it is after the charge, so that
// Verdict.Left counts only the units that remain after the charge. A dry run gives the same answer,
// although a dry run charges nothing.
func (m Mode) Takes() bool { return m != ModeLook }

// Charges reports whether a decision in the mode m charges the units that are granted.
func (m Mode) Charges() bool { return m <= ModeRetry }

// A Record remembers that a request was granted, so that a retry of this request is not charged again.
// DecideAll calls Find and Add while the keys of the request are locked. So no other goroutine decides
// on the same request between these two calls.
type Record interface {
	// Find reports whether the request was granted earlier. If so, it writes the answers that were given
	// then into the parts, and the request is not charged again.
	Find(now keytable.Instant) bool

	// Add records that the request was charged at the given instant. DecideAll calls Add when the parts
	// have their final answers.
	Add(at keytable.Instant)
}

// AnyDelay is a value for Order.Within. With AnyDelay, a request is charged however long its Delay is.
const AnyDelay time.Duration = math.MaxInt64

// An Outcome is the result of a decision by DecideAll. An Outcome and the structs in it have at most
// four fields each, because the compiler returns a struct with more fields in memory instead of in
// registers. In a measurement, this made a decision a tenth slower.
type Outcome struct {
	Now       keytable.Instant // the instant at which all parts were decided
	DelayThen time.Duration    // for a denial in ModeRetry: the Delay that the request will have once it is granted
	Passes    bool             // whether every part that is not in shadow grants the request
	Uncharged                  // why the request was not charged, although no part denies it
}

// Uncharged says why a decision charged nothing although no part denies the request. All fields are
// false if the request was charged or denied.
type Uncharged struct {
	Queued   bool // DecideAll decided nothing, because earlier callers wait for a key of the request
	Late     bool // the rules would grant the request, but only with a Delay longer than Order.Within
	Replayed bool // Order.Record says that the request was granted earlier: it passes and is not charged again
}

// Replayed returns the Outcome of a request that was granted earlier and is not charged again.
func Replayed(now keytable.Instant) Outcome {
	return Outcome{Now: now, Passes: true, Uncharged: Uncharged{Replayed: true}}
}

// DecideAll decides on one request by the rules of all parts. It locks the keys of the parts in the
// order of the slice, reads the clock once, and asks all parts. If every part that is not in shadow
// grants the request, DecideAll charges each part that grants it. Otherwise it charges none. (A part in
// shadow only observes: its denial stops no request.) All decisions must have their parts in the same
// order. Otherwise two decisions could each hold a lock that the other one waits for.
//
// If order.Record has the request already, DecideAll charges nothing and sets Replayed in the Outcome.
// Otherwise, if callers wait for a key of a part that is not in shadow, DecideAll decides nothing and
// sets Queued in the Outcome.
//
// If the Timeline uses the machine's clock, the parameter began is a reading of this clock that the
// caller has made for this decision, or 0. DecideAll passes the reading to the locked part (shard) of
// each table of keys, so that no later decision there uses an earlier instant. If the Timeline uses
// another clock, DecideAll ignores the parameter.
func DecideAll(t *Timeline, parts []Part, order *Order, began keytable.Instant) Outcome {
	t.Renew()
	AdmitAll(parts)
	now, last, queued, resolved := lockAll(t, parts, began)
	if t.clock != nil && (!queued || order.Record != nil) {
		now = readLocked(t, parts)
	}
	if queued || order.Record != nil {
		if found := order.Record != nil && order.Record.Find(now); found || queued {
			unlock(parts)
			return Outcome{Now: now, Passes: found, Uncharged: Uncharged{Replayed: found, Queued: !found}}
		}
	}
	if !resolved && order.usual() {
		return Outcome{Now: now, Passes: takeAll(parts, order, now, last)}
	}
	passes, late := askAll(parts, order, now)
	out := Outcome{Now: now, Passes: passes, Uncharged: Uncharged{Late: late}}
	if order.Mode == ModeRetry && !passes {
		out.DelayThen = delayThen(parts, now)
	}
	finishAll(parts, order, &out)
	return out
}

// usual reports whether DecideAll may decide with the order o by the fast function takeAll, in place of
// askAll and finishAll. The caller must also check that no part has a rate in the field Want.Rate.
func (o *Order) usual() bool {
	return o.Mode == ModeTake && o.Within == AnyDelay && o.Record == nil && !o.Unsettled
}

// lockAll locks the keys of all parts, and returns four results:
//
//   - now is the instant to decide at, if the clock is the machine's clock.
//   - last is the index of the last part that is not in shadow, or -1 if all parts are in shadow.
//   - queued says whether callers wait for the key of a part that is not in shadow.
//   - resolved says whether a part has a Want.Rate, a rate for this request only.
func lockAll(t *Timeline, parts []Part, began keytable.Instant) (now keytable.Instant, last int, queued, resolved bool) {
	now, last = began, -1
	if t.clock == nil && now == 0 {
		now = keytable.InstantAt(time.Since(t.start))
	}
	for i := range parts {
		p, marked := &parts[i], false
		if p.Keys != nil {
			p.shard, now, marked = p.Keys.lock(p.Hash, now)
		}
		resolved = resolved || p.Want.Rate != nil
		if !p.Shadow {
			last = i
			queued = queued || marked
		}
	}
	return now, last, queued, resolved
}

// takeAll does the work of askAll and finishAll in fewer calls. It may be called only if order.usual
// returns true. If all parts before the part with the index last grant the request, takeAll charges
// this last part without asking it first. It counts the answer of a part and unlocks its key in the
// same call that charges the part. The result passes reports whether the request passes.
//
// All keys are locked when takeAll begins, and each key stays locked until its part is charged or
// denied. So other decisions see either all charges of takeAll or none.
func takeAll(parts []Part, order *Order, now keytable.Instant, last int) (passes bool) {
	take := order.take()
	passes = true
	for i := range parts {
		p := &parts[i]
		if p.Shadow {
			continue
		}
		if p.shard != nil {
			if i == last && passes && p.N > 0 {
				p.Verdict, p.Delay, p.Receipt = p.shard.chargeAndUnlock(p.Hash, p.Want.Tier, now, p.N, take)
				p.shard = nil
			} else {
				// This is p.ask(now, Look), written out. The compiler does not inline ask, and a call of ask took 3 % of the
				// decision's time.
				p.Verdict, p.Delay, p.Receipt = p.shard.step(p.Hash, p.Want, now, p.Units(), Look)
			}
		}
		passes = passes && p.RetryAfter == 0
	}
	for i := range parts {
		p := &parts[i]
		switch {
		case p.shard == nil:
			continue
		case p.Shadow:
			do := Look
			if passes {
				do = take
			}
			p.ask(now, do)
		case passes && p.N > 0:
			p.Verdict, p.Delay, p.Receipt = p.shard.chargeAndUnlock(p.Hash, p.Want.Tier, now, p.N, take)
			p.shard = nil
			continue
		}
		p.shard.finish(now, p.tally(true, passes, p.RetryAfter == 0, false))
		p.shard = nil
	}
	return passes
}

// askAll asks all parts that are not in shadow (a part in shadow only observes). The result passes
// reports whether all of these parts grant the request. The result late reports whether they all grant
// it, but at least one of them with a Delay above order.Within.
func askAll(parts []Part, order *Order, now keytable.Instant) (passes, late bool) {
	passes = true
	for i := range parts {
		p := &parts[i]
		if p.Shadow {
			continue
		}
		if p.shard != nil {
			p.ask(now, Look)
		}
		passes = passes && p.RetryAfter == 0
		late = late || p.Delay > order.Within
	}
	return passes, late && passes
}

// take returns the Intent with which a key is charged: it says whether the charge is real, and whether it can
// be given back later.
func (o *Order) take() Intent {
	switch {
	case o.Mode == ModeDryRun:
		return DryRun
	case o.Revocable:
		return Hold
	}
	return Take
}

// finishAll ends a decision after askAll. If the request passes, is not late and is to be charged (see
// [Mode.Takes]), finishAll charges each part that grants it. In a dry run, finishAll charges only
// copies of the states. If the request is not charged, finishAll asks the parts in shadow (which only
// observe), because askAll has not asked them. In the end, it counts the answers and unlocks all keys.
func finishAll(parts []Part, order *Order, out *Outcome) {
	take := order.take()
	charge := order.Mode.Takes() && out.Passes && !out.Late
	recorded := -1
	if charge && order.Record != nil {
		recorded = len(parts) - 1 // the request is recorded while the key of the last part is still locked
	}
	counted := order.Mode.Charges() && (charge || !out.Passes && order.Mode == ModeTake)
	for i := range parts {
		p := &parts[i]
		if p.shard == nil {
			continue
		}
		switch {
		case charge:
			p.ask(out.Now, take)
		case p.Shadow:
			p.ask(out.Now, Look)
		}
		if order.Mode == ModeDryRun {
			order.find(i, p, out.Now)
		}
		if p.Want.Rate != nil {
			if err := p.shard.refusal(p.Want); err != nil {
				p.Err = err
			}
		}
		if i == recorded {
			order.Record.Add(out.Now)
		}
		p.shard.finish(out.Now, p.tally(counted, out.Passes, p.RetryAfter == 0, order.Unsettled))
		p.shard = nil
	}
}

// unlock unlocks the keys of all parts and counts no answers.
func unlock(parts []Part) {
	for i := range parts {
		if p := &parts[i]; p.shard != nil {
			p.shard.finish(0, keytable.Uncounted)
			p.shard = nil
		}
	}
}

// DenyDelays turns the answer of a part into a denial if its Delay is above 0 and at least the
// given limit. It leaves the answers of parts in shadow as they are, because these parts only observe.
func DenyDelays(parts []Part, limit time.Duration) {
	for i := range parts {
		if p := &parts[i]; !p.Shadow && p.Delay > 0 && p.Delay >= limit {
			p.RetryAfter, p.Delay = max(p.Delay-limit, 1), 0
		}
	}
}

// readLocked reads the clock while the keys of all parts are locked. If the clock panics, readLocked
// unlocks the keys and counts no answers.
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

// tally says how the answer of a rule to the question q is counted. It returns the total to which this
// answer adds 1, such as keytable.Allowed, or keytable.Uncounted. It has these parameters:
//
//   - counted: whether the decision is counted at all
//   - passes: whether the request passes
//   - granted: whether this rule grants the request
//   - unsettled: whether Keys.Confirm counts a grant later, so that it is not counted now
func (q *Question) tally(counted, passes, granted, unsettled bool) keytable.Tally {
	switch {
	case !counted, granted && unsettled, granted && !passes: // in the last case, this rule grants the request and another denies it
		return keytable.Uncounted
	case granted:
		return keytable.Allowed
	case q.Advises:
		return keytable.Advised
	case q.Shadow:
		return keytable.Shadowed
	}
	return keytable.Denied
}

// delayThen returns the Delay that a denied request will have once all parts grant it.
func delayThen(parts []Part, now keytable.Instant) (delay time.Duration) {
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
			delay = max(delay, p.shard.delay(p.Hash, p.Want, now.Add(wait), p.Units()))
		}
	}
	return delay
}
