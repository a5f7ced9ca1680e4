package engine

import (
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Warmup says how the limit of a new key grows. At the first charge of the key, the limit is From
// units. It grows to the full limit in the time Over.
type Warmup struct {
	From  int64         // limit of a new key in units, at least 1; if the full limit is less, a new key has the full limit
	Over  time.Duration // how long the limit grows, above 0
	Raise bool          // if From is too small to grant a single unit: true raises From until it grants one unit, false is an error
}

// A Portion is the fraction of the full limit that a young key has: a key whose limit still grows.
type Portion = exact.Portion

// A Grower is an [Algorithm] whose keys can be young: they then have a lower limit, which grows.
type Grower[S, C any] interface {
	Algorithm[S, C]

	// StepYoung does what Step does, for a key that has only the portion p of the full limit. The
	// instant now must not be before the result of Reached(s). If the units are denied, v.RetryAfter is
	// above 0 but does not tell how long to wait. v.Limit and v.ResetAfter are as in Step.
	StepYoung(s *S, pace C, p Portion, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration)
}

// A Warm is the state of a key whose limit grows: the algorithm's own state, and when the growth began.
type Warm[S any] struct {
	state S
	first keytable.Instant // the instant of the key's first charge, when its limit began to grow; 0 if the key is new
}

// A WarmConfig is an [Algorithm] with keys that are young at first: the limit of a key grows with the
// time since its first charge. When a key has owed nothing for the duration in the field over, it is
// new again.
//
// A request that would be granted at some instant would also be granted at any later instant, as
// long as the key is not charged and does not become new again. The methods WarmConfig.retryAfter and
// ratePlans.firstGrant search for instants by bisection and rely on this.
type WarmConfig[S any, C Grower[S, C]] struct {
	full  C     // the configuration for keys with the full limit
	from  int64 // the limit of a new key, in units
	limit int64 // the full limit, in units
	over  time.Duration
}

// NewWarm returns the WarmConfig of keys whose limit grows, as the Warmup w says, to the full limit.
// The parameter full is the configuration for keys with the full limit, and the parameter limit is the
// full limit in units. The parameter minUnits is the smallest limit at which a key is granted one unit.
func NewWarm[S any, C Grower[S, C]](full C, w Warmup, limit, minUnits int64) *WarmConfig[S, C] {
	return &WarmConfig[S, C]{full: full, from: min(max(w.From, minUnits), limit), limit: limit, over: w.Over}
}

// Step decides on n units at the instant now. A young key (one whose limit still grows) has only a portion
// of the full limit.
func (c *WarmConfig[S, C]) Step(s *Warm[S], pace *WarmConfig[S, C], now keytable.Instant, n int64, charge bool) (Verdict, time.Duration) {
	last := c.full.Reached(&s.state)
	if now < last {
		return StepAhead(c, s, pace, last, now, n, charge)
	}
	known := s.first != 0 && (now.Since(last) < uint64(c.over) || !c.forgotten(s, now))
	if known && now >= s.first.Add(c.over) {
		return c.full.Step(&s.state, pace.full, now, n, charge)
	}
	return c.stepYoung(s, pace, known, now, n, charge)
}

// stepYoung does what Step does, for a key that does not have the full limit yet. The parameter known
// says whether the limit has begun to grow. The growth begins with the first charge of the key.
func (c *WarmConfig[S, C]) stepYoung(
	s *Warm[S], pace *WarmConfig[S, C], known bool, now keytable.Instant, n int64, charge bool,
) (v Verdict, delay time.Duration) {
	age := time.Duration(0)
	if known {
		age = time.Duration(now.Since(min(s.first, now)))
	}
	v, delay = c.full.StepYoung(&s.state, pace.full, c.portion(age), now, n, charge)
	reset := v.ResetAfter
	switch {
	case known:
		reset = max(v.ResetAfter, c.over-age)
	case charge && v.RetryAfter == 0:
		s.first = max(now, 1)
		reset = max(v.ResetAfter, c.over)
	}
	if v.RetryAfter != 0 {
		v.RetryAfter = c.retryAfter(s, pace, known, age, reset, now, n)
	}
	v.ResetAfter = reset
	return v, delay
}

// retryAfter returns how long it takes until n units, which are denied at the instant now, are granted.
// If the units are denied even after the duration in the parameter longest, the result is Never. If the
// parameter known is not set, the limit has not begun to grow. The parameter age is the time since the
// first charge of the key.
func (c *WarmConfig[S, C]) retryAfter(
	s *Warm[S], pace *WarmConfig[S, C], known bool, age, longest time.Duration, now keytable.Instant, n int64,
) time.Duration {
	granted := func(wait time.Duration) bool {
		p := c.portion(age)
		if known {
			p = c.portion(time.Duration(min(uint64(age)+uint64(wait), uint64(c.over))))
		}
		v, _ := c.full.StepYoung(&s.state, pace.full, p, now.Add(wait), n, false)
		return v.RetryAfter == 0
	}
	if !granted(longest) {
		return Never
	}
	denied := time.Duration(0)
	for longest-denied > 1 {
		if middle := denied + (longest-denied)/2; granted(middle) {
			longest = middle
		} else {
			denied = middle
		}
	}
	return longest
}

// portion returns the portion of the full limit that a key has at the given age, the time since its first
// charge.
func (c *WarmConfig[S, C]) portion(age time.Duration) Portion {
	if age >= c.over {
		return Portion{Units: c.limit, Of: c.limit}
	}
	hi, lo := bits.Mul64(uint64(c.limit-c.from), uint64(age))
	grown, _ := bits.Div64(hi, lo, uint64(c.over)) // the quotient fits, because age < over
	return Portion{Units: c.from + int64(grown), Of: c.limit}
}

// forgotten reports whether s, the state of a key that was charged, has owed nothing for the duration
// c.over. The key is then new again.
func (c *WarmConfig[S, C]) forgotten(s *Warm[S], now keytable.Instant) bool {
	return now >= keytable.Instant(c.over) && c.full.Idle(&s.state, now-keytable.Instant(c.over))
}

// Forget makes s the state of a new key if the key with the state s has owed nothing for the duration
// c.over.
func (c *WarmConfig[S, C]) Forget(s *Warm[S], now keytable.Instant) {
	if s.first != 0 && c.forgotten(s, now) {
		s.first = 0
	}
}

// Unused reports whether s is the state of a new key. A key is new if it was never charged, or if it
// has owed nothing for the duration c.over.
func (c *WarmConfig[S, C]) Unused(s *Warm[S], now keytable.Instant) bool {
	return s.first == 0 || c.forgotten(s, now)
}

// Idle reports whether a decision by the state s is the same as for a key that was never used.
func (c *WarmConfig[S, C]) Idle(s *Warm[S], now keytable.Instant) bool {
	if s.first == 0 {
		return c.full.Idle(&s.state, now)
	}
	return c.forgotten(s, now)
}

// Inherit returns the first state of a key that has shared the debt s with other keys, and now gets a slot
// of its own in the table. The key owes that debt, and counts as new.
func (c *WarmConfig[S, C]) Inherit(s *Warm[S], now keytable.Instant) Warm[S] {
	return Warm[S]{state: c.full.Inherit(&s.state, now)}
}

// Renew makes s the state of a new key with the same debt as before. It is called for the debt that all
// keys without a slot in the table share. These keys always count as new.
func (c *WarmConfig[S, C]) Renew(s *Warm[S]) { s.first = 0 }

// Carry converts the state s from the rate of the old configuration (from) to the rate of the
// configuration c, at the instant now. The key keeps its age.
func (c *WarmConfig[S, C]) Carry(s *Warm[S], from *WarmConfig[S, C], now keytable.Instant) {
	from.Forget(s, now)
	c.full.Carry(&s.state, from.full, now)
}

// Age sets the age of s, the state of a key that owes nothing. The age is the time since the first
// charge of the key. The parameter known is an earlier state of the key, or nil. The parameter rest is
// how long it takes until the key owes nothing and has the full limit, or 0 if this is not known. Age
// chooses the age as follows:
//
//   - If rest is above 0 and at most c.over, the key has the full limit after the duration rest.
//   - If rest has another value, and known is the state of a key that is not new, s gets the same age
//     as known.
//   - If rest is longer than c.over, and known is nil or the state of a new key, the age is 0.
//   - Otherwise, the key is new, and Age returns false.
func (c *WarmConfig[S, C]) Age(s, known *Warm[S], rest time.Duration, now keytable.Instant) bool {
	switch s.first = 0; {
	case rest > c.over && known != nil && !c.Unused(known, now):
		// The limit of a key is full after the duration c.over at the latest. So rest is the time until the debt has
		// drained, and does not tell the age.
		s.first = min(known.first, now)
	case rest > 0:
		s.first = max(now-min(keytable.Instant(max(c.over-rest, 0)), now), 1)
	case known != nil && !c.Unused(known, now):
		s.first = min(known.first, now)
	}
	return s.first != 0
}

// Exceed charges n units at the instant now, even beyond the limit. They cost as much as n granted units
// cost at that instant.
func (c *WarmConfig[S, C]) Exceed(s *Warm[S], now keytable.Instant, n int64) {
	now = max(now, c.full.Reached(&s.state))
	if c.Unused(s, now) {
		s.first = max(now, 1)
	}
	b := c.Arithmetic()
	if b == nil {
		c.full.Exceed(&s.state, now, n)
		return
	}
	c.Owe(s, now, b.Cost(c.portionAt(s, now), n))
}

// Owe adds the given amount to the debt of the state s at the instant now.
func (c *WarmConfig[S, C]) Owe(s *Warm[S], now keytable.Instant, more exact.Level) {
	any(c.full).(Debtor[S]).Owe(&s.state, now, more)
}

// portionAt returns the portion of the limit that a key with the state s has at the given instant, which is
// not before the first charge.
func (c *WarmConfig[S, C]) portionAt(s *Warm[S], at keytable.Instant) Portion {
	return c.portion(time.Duration(min(at.Since(min(s.first, at)), uint64(c.over))))
}

// Begin records in the state s that the window of the last charge began at the given instant. It does nothing
// if windows do not begin with the first charge of a key.
func (c *WarmConfig[S, C]) Begin(s *Warm[S], at keytable.Instant) {
	if first, ok := any(c.full).(beginner[S]); ok {
		first.Begin(&s.state, at)
	}
}

// Portion returns the portion of the limit that the key with the state s had at its last charge.
func (c *WarmConfig[S, C]) Portion(s *Warm[S]) Portion { return c.portionAt(s, c.Charged(s)) }

// GiveBack subtracts the units that the parameter back describes from the state s. If these units were
// the whole first charge of the key, the age of the key counts from its next charge.
func (c *WarmConfig[S, C]) GiveBack(s *Warm[S], back Returned) {
	if back.First && max(back.At, 1) == s.first {
		s.first = back.Next
	}
	c.full.GiveBack(&s.state, back)
}

// Debt returns what the state s owes at the instant now, or at its last charge if that charge is after
// now.
func (c *WarmConfig[S, C]) Debt(s *Warm[S], now keytable.Instant) exact.Level {
	return any(c.full).(Debtor[S]).Debt(&s.state, now)
}

// Arithmetic returns the Bucket that computes with the debts, or nil if the algorithm counts in
// windows.
func (c *WarmConfig[S, C]) Arithmetic() *exact.Bucket {
	if d, ok := any(c.full).(Debtor[S]); ok {
		return d.Arithmetic()
	}
	return nil
}

// Resize converts the state s from the limit of the old configuration (from) to the limit of the
// configuration c.
func (c *WarmConfig[S, C]) Resize(s *Warm[S], from *WarmConfig[S, C], ahead bool) (lost bool) {
	return c.full.Resize(&s.state, from.full, ahead)
}

// Fills reports whether a change from the limit of the old configuration (from) to the limit of the
// configuration c may make a used key seem unused.
func (c *WarmConfig[S, C]) Fills(from *WarmConfig[S, C]) bool { return c.full.Fills(from.full) }

// Slower reports whether a debt drains more slowly at the rate of the configuration c than at the rate
// of the given configuration.
func (c *WarmConfig[S, C]) Slower(than *WarmConfig[S, C]) bool { return c.full.Slower(than.full) }

// Charged returns the instant of the last charge of the state s.
func (c *WarmConfig[S, C]) Charged(s *Warm[S]) keytable.Instant { return c.full.Charged(&s.state) }

// Reached returns the earliest instant at which Step can decide by the state s.
func (c *WarmConfig[S, C]) Reached(s *Warm[S]) keytable.Instant { return c.full.Reached(&s.state) }

// Clone returns a copy of the state s. The copy shares no memory with s.
func (c *WarmConfig[S, C]) Clone(s *Warm[S]) Warm[S] {
	return Warm[S]{c.full.Clone(&s.state), s.first}
}

// aging has the methods of an algorithm whose keys are young at first (their limit still grows). Only
// [WarmConfig] implements it; the comments of its methods say what they do.
type aging[S any] interface {
	Unused(s *S, now keytable.Instant) bool
	Forget(s *S, now keytable.Instant)
	Renew(s *S)
	Age(s, known *S, rest time.Duration, now keytable.Instant) bool
	Portion(s *S) Portion
}

func (k *ratedKeys[S, C]) Warm(w Warmup) error {
	k.changing.Lock()
	defer k.changing.Unlock()
	r := k.plans.Load().rates
	if *r.Warmup == w {
		return nil
	}
	r.Warmup = &w
	return k.renewLocked(r, func(*ratePlans[S, C]) {})
}

// firstGrant returns how long a request for n units must wait until it is granted. The request is denied at
// the instant now, and the limit of its key may still grow. The state of the key is s; it was last written at
// the plan (rate) in the parameter from. The request has the plan p. firstGrant writes copies of s to the
// memory that the parameter to points to. After the duration in the parameter most, the key owes nothing, and
// either has the full limit or counts as new. If the units are denied even then, the result is Never.
func (ps *ratePlans[S, C]) firstGrant(
	to, s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant, n int64, most time.Duration,
) time.Duration {
	granted := func(wait time.Duration) bool {
		at := now.Add(wait)
		*to = *s
		if slow := ps.slower(to, from, p, at); slow != p {
			p.config.Carry(&to.state, slow.config, at)
		}
		p.config.Resize(&to.state, from.config, false)
		v, _ := p.config.Step(&to.state, p.config, at, n, false)
		return v.RetryAfter == 0
	}
	// At some time the key may become new again, and its limit falls back to that of a new key. So a
	// request that is granted before this time may be denied after it. A binary search works only if
	// that cannot happen, so the time before and the time after are searched separately.
	unused := func(wait time.Duration) bool { return from.ages.Unused(&s.state, now.Add(wait)) }
	denied := time.Duration(0)
	if before := firstWait(0, most, unused) - 1; before > 0 {
		if granted(before) {
			return firstWait(0, before, granted)
		}
		denied = before
	}
	if !granted(most) {
		return Never
	}
	return firstWait(denied, most, granted)
}

// firstWait searches by bisection for the shortest duration for which the function in the parameter
// holds returns true. The result is above the duration in the parameter no, and at most the duration in
// the parameter yes. The function must return true for the duration yes, and for all durations from the
// result up to it. firstWait does not call the function for the durations no and yes themselves.
func firstWait(no, yes time.Duration, holds func(time.Duration) bool) time.Duration {
	for yes-no > 1 {
		if middle := no + (yes-no)/2; holds(middle) {
			yes = middle
		} else {
			no = middle
		}
	}
	return yes
}
