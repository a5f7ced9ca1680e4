package engine

import (
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Warmup says how the limit of a new key grows: From units at the key's first charge, and the
// full limit once Over has passed since then.
type Warmup struct {
	From  int64         // at least 1; a limit below it does not grow
	Over  time.Duration // above 0
	Least bool          // whether From is taken for more where it would grant a new key nothing
}

// A Portion is the part of its limit that a young key has: Units in place of Of.
//
// Invariant: 1 <= Units <= Of.
type Portion struct {
	Units int64 // what the key has
	Of    int64 // the limit
}

// A Grower is an [Algorithm] whose keys can be young.
type Grower[S, C any] interface {
	Algorithm[S, C]

	// StepYoung is Step for a key that has only this portion of the limit. now is not
	// before what Reached returns. Of a denial, RetryAfter says only that it is one. The
	// Limit and the ResetAfter of v are those of Step.
	StepYoung(s *S, pace C, p Portion, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration)
}

// A Warm is the state of a key whose limit grows: a state of the algorithm, and the key's age.
type Warm[S any] struct {
	state S
	first keytable.Instant // of the first charge since the key was new; 0 if there was none
}

// A WarmConfig is an [Algorithm] whose keys are young at first: the limit of a key grows with
// the time since its first charge. A key is new again once it has been as good as new for Over.
//
// Granted is monotone: a request that is granted to a key at some instant is granted at any
// later one, up to the instant at which the key is new again, if nothing was charged meanwhile.
type WarmConfig[S any, C Grower[S, C]] struct {
	full  C     // decides once the key has the full limit
	from  int64 // units at first
	limit int64 // units in the end
	over  time.Duration
}

// NewWarm returns the WarmConfig of keys that have the limit of full, which is so many units, in
// the end. least is how many of them a key must have for one unit to be granted.
func NewWarm[S any, C Grower[S, C]](full C, w Warmup, limit, least int64) *WarmConfig[S, C] {
	return &WarmConfig[S, C]{full: full, from: min(max(w.From, least), limit), limit: limit, over: w.Over}
}

// Step decides on n units at now. While the key is young, it has only a portion of the limit.
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

// stepYoung is Step for a key that has not the full limit yet. known says whether it was charged
// since it was new.
func (c *WarmConfig[S, C]) stepYoung(s *Warm[S], pace *WarmConfig[S, C], known bool, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration) {
	age := time.Duration(0)
	if known {
		age = time.Duration(now.Since(min(s.first, now)))
	}
	v, delay = c.full.StepYoung(&s.state, pace.full, c.portion(age), now, n, charge)
	most := v.ResetAfter
	switch {
	case known:
		most = max(v.ResetAfter, c.over-age)
	case charge && v.RetryAfter == 0:
		s.first = max(now, 1)
		most = max(v.ResetAfter, c.over)
	}
	if v.RetryAfter != 0 {
		v.RetryAfter = c.retryAfter(s, pace, known, age, most, now, n)
	}
	v.ResetAfter = most
	return v, delay
}

// retryAfter returns how long it takes until n units are granted, which are denied now. If they
// ever are, they are after most. A key that was not charged does not grow.
func (c *WarmConfig[S, C]) retryAfter(s *Warm[S], pace *WarmConfig[S, C], known bool, age, most time.Duration, now keytable.Instant, n int64) time.Duration {
	granted := func(wait time.Duration) bool {
		p := c.portion(age)
		if known {
			p = c.portion(time.Duration(min(uint64(age)+uint64(wait), uint64(c.over))))
		}
		v, _ := c.full.StepYoung(&s.state, pace.full, p, now.Add(wait), n, false)
		return v.RetryAfter == 0
	}
	if !granted(most) {
		return Never
	}
	denied := time.Duration(0)
	for most-denied > 1 {
		if middle := denied + (most-denied)/2; granted(middle) {
			most = middle
		} else {
			denied = middle
		}
	}
	return most
}

// portion returns what a key of this age has of the limit.
func (c *WarmConfig[S, C]) portion(age time.Duration) Portion {
	if age >= c.over {
		return Portion{c.limit, c.limit}
	}
	hi, lo := bits.Mul64(uint64(c.limit-c.from), uint64(age))
	grown, _ := bits.Div64(hi, lo, uint64(c.over)) // fits: age < over
	return Portion{c.from + int64(grown), c.limit}
}

// forgotten reports whether s, which was charged, has been as good as new for so long that it is
// new again.
func (c *WarmConfig[S, C]) forgotten(s *Warm[S], now keytable.Instant) bool {
	return now >= keytable.Instant(c.over) && c.full.Idle(&s.state, now-keytable.Instant(c.over))
}

// Forget makes s new if it is so by time.
func (c *WarmConfig[S, C]) Forget(s *Warm[S], now keytable.Instant) {
	if s.first != 0 && c.forgotten(s, now) {
		s.first = 0
	}
}

// Unused reports whether s was not charged since it was new.
func (c *WarmConfig[S, C]) Unused(s *Warm[S], now keytable.Instant) bool {
	return s.first == 0 || c.forgotten(s, now)
}

// Idle reports whether s equals the state of a key that has never been used.
func (c *WarmConfig[S, C]) Idle(s *Warm[S], now keytable.Instant) bool {
	if s.first == 0 {
		return c.full.Idle(&s.state, now)
	}
	return c.forgotten(s, now)
}

// Inherit returns the state of a key that leaves the shared debt s: it owes the debt, and is new.
func (c *WarmConfig[S, C]) Inherit(s *Warm[S], now keytable.Instant) Warm[S] {
	return Warm[S]{state: c.full.Inherit(&s.state, now)}
}

// Renew makes s a new key that owes what it owes. A debt that keys share does not age.
func (c *WarmConfig[S, C]) Renew(s *Warm[S]) { s.first = 0 }

// Carry brings s to the rate of c. Its age stays.
func (c *WarmConfig[S, C]) Carry(s *Warm[S], from *WarmConfig[S, C], now keytable.Instant) {
	from.Forget(s, now)
	c.full.Carry(&s.state, from.full, now)
}

// Age gives s, which owes nothing, the age of a key that grows for rest yet or, if rest is 0,
// that of known, which may be nil. It returns false if the key is new.
func (c *WarmConfig[S, C]) Age(s, known *Warm[S], rest time.Duration, now keytable.Instant) bool {
	switch s.first = 0; {
	case rest > c.over && known != nil && !c.Unused(known, now): // it rests for what it owes
		s.first = min(known.first, now)
	case rest > 0:
		s.first = max(now-min(keytable.Instant(max(c.over-rest, 0)), now), 1)
	case known != nil && !c.Unused(known, now):
		s.first = min(known.first, now)
	}
	return s.first != 0
}

// Exceed charges n units at now, past the limit. They cost what units cost a key of that age.
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
	c.Owe(s, now, b.Times(c.weight(b, s, now), n))
}

// Owe adds more to the debt of s at now.
func (c *WarmConfig[S, C]) Owe(s *Warm[S], now keytable.Instant, more exact.Level) {
	any(c.full).(Debtor[S]).Owe(&s.state, now, more)
}

// weight returns what a unit costs s at at, which is not before its first charge.
func (c *WarmConfig[S, C]) weight(b *exact.Bucket, s *Warm[S], at keytable.Instant) exact.Level {
	p := c.portion(time.Duration(min(at.Since(min(s.first, at)), uint64(c.over))))
	return b.Weight(p.Units, p.Of)
}

// Cost returns what each unit that s was charged last has cost.
func (c *WarmConfig[S, C]) Cost(s *Warm[S]) exact.Level {
	b := c.Arithmetic()
	if b == nil {
		return exact.Level{Whole: 1}
	}
	return c.weight(b, s, c.Charged(s))
}

// GiveBack takes units off the state. If those were the first that the key was charged, and none
// of them stays, the key is as old as its next charge.
func (c *WarmConfig[S, C]) GiveBack(s *Warm[S], back Returned) {
	if back.First && max(back.At, 1) == s.first {
		s.first = back.Next
	}
	c.full.GiveBack(&s.state, back)
}

// Debt returns what s owes at now or, if that is later, at its last charge.
func (c *WarmConfig[S, C]) Debt(s *Warm[S], now keytable.Instant) exact.Level {
	return any(c.full).(Debtor[S]).Debt(&s.state, now)
}

// Arithmetic returns the arithmetic of the debts, or nil if the algorithm counts in windows.
func (c *WarmConfig[S, C]) Arithmetic() *exact.Bucket {
	if d, ok := any(c.full).(Debtor[S]); ok {
		return d.Arithmetic()
	}
	return nil
}

// Resize brings s from the limit of from to that of c.
func (c *WarmConfig[S, C]) Resize(s *Warm[S], from *WarmConfig[S, C]) {
	c.full.Resize(&s.state, from.full)
}

// Fills reports whether a change from the limit of from may make a key as good as new.
func (c *WarmConfig[S, C]) Fills(from *WarmConfig[S, C]) bool { return c.full.Fills(from.full) }

// Slower reports whether a debt drains more slowly under c than under than.
func (c *WarmConfig[S, C]) Slower(than *WarmConfig[S, C]) bool { return c.full.Slower(than.full) }

// Charged returns the instant at which s was charged last.
func (c *WarmConfig[S, C]) Charged(s *Warm[S]) keytable.Instant { return c.full.Charged(&s.state) }

// Reached returns the instant that the clock of s stands at.
func (c *WarmConfig[S, C]) Reached(s *Warm[S]) keytable.Instant { return c.full.Reached(&s.state) }

// Clone returns a copy of s that shares no memory with it.
func (c *WarmConfig[S, C]) Clone(s *Warm[S]) Warm[S] {
	return Warm[S]{c.full.Clone(&s.state), s.first}
}

// An aging algorithm has keys that are young at first: it is a [WarmConfig].
type aging[S any] interface {
	Unused(s *S, now keytable.Instant) bool
	Forget(s *S, now keytable.Instant)
	Renew(s *S)
	Age(s, known *S, rest time.Duration, now keytable.Instant) bool
	Cost(s *S) exact.Level
}

func (k *ratedKeys[S, C]) Warm(w Warmup) error {
	old := k.plans
	r := old.rates
	if *r.Warmup == w {
		return nil
	}
	r.Warmup = &w
	ps, err := newRatePlans[S](r, k.configure, k.refusals, &k.held)
	if err != nil {
		return err
	}
	k.plans = ps
	k.table.Reconfigure(ps, func(_ keytable.Hash, s *ratedState[S], _ bool) {
		if from := old.planOf(s); from != nil {
			to, err := ps.planFor(from.rate)
			if err != nil {
				to = ps.base
			}
			s.under(to.id)
		}
	})
	return nil
}
