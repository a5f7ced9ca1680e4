package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Spot is one key that a caller waits for, with the Question of the caller and the Answer of the key.
// Package waitline chooses the instants at which a Spot decides.
type Spot struct {
	Keys Lockable // the keys of the rule or of the limiter
	Question
	revocable bool // whether a grant is counted only once it is confirmed by Keys.Confirm; it may also be revoked by Keys.Revoke

	Answer
}

// SpotOf returns a Spot for n units of the key with hash h. The Spot decides at the rate of the rule or
// of the limiter itself, and not at the rate of a tier or at a rate that a request asks for.
func SpotOf(keys Lockable, h keytable.Hash, n int64) Spot {
	return Spot{Keys: keys, Question: Question{Hash: h, N: n}}
}

// A Future is a copy of the state of a key. With it, package waitline computes when the key will have
// units for a further caller. For each caller that already waits, the package charges the copy at the
// instant at which this caller will get its units.
type Future interface {
	// Ahead decides on a request for n units at the instant in the parameter at, and returns the verdict
	// v. The result due is the earliest instant from then on at which the units are available. If the
	// units are never available, due is [keytable.End]. The result delay is the Delay of the request once
	// it is granted. Ahead charges nothing.
	Ahead(want Wanted, at keytable.Instant, n int64) (due keytable.Instant, v Verdict, delay time.Duration)

	// Charge takes n units from the copy at the given instant, if they are available then.
	Charge(want Wanted, at keytable.Instant, n int64)
}

// Lock locks the keys of the spots one after the other. All decisions must lock their keys in the same
// order. The parameter now is a reading of the clock. Lock returns the instant of the decision. If the
// clock is the machine's, this is the latest of the parameter now and the readings that earlier
// decisions have left in the locked shards (parts) of the tables. With any other clock, it is the
// parameter now.
func Lock(spots []Spot, now keytable.Instant) keytable.Instant {
	for i := range spots {
		s := &spots[i]
		s.shard, now, _ = s.Keys.lock(s.Hash, now)
	}
	return now
}

// Unlock unlocks the keys that Lock has locked. If the parameter counted is set, Unlock adds the
// answers to the totals of the rules. The parameter passed says whether the whole request passes.
func Unlock(spots []Spot, counted, passed bool) {
	for i := range spots {
		s := &spots[i]
		if s.shard == nil {
			continue
		}
		if s.Want.Rate != nil {
			s.Err = s.shard.refusal(s.Want)
		}
		s.shard.finish(0, s.tally(counted, passed, s.RetryAfter == 0, s.revocable))
		s.shard = nil
	}
}

// Ahead decides whether the key of the locked spot s has s.N units at the given instant, and stores the
// answer in s. It charges nothing. It returns the first instant at which the units are available, or
// [keytable.End] if they never are.
func (s *Spot) Ahead(at keytable.Instant) (due keytable.Instant) {
	due, s.Verdict, s.Delay = s.shard.ahead(s.Hash, s.Want, at, s.Units())
	return due
}

// Take charges s.N units at the given instant to the key of the locked spot s, if the units are available,
// and stores the answer in s. If one of the parameters reserves and revocable is set, the units get a
// receipt. If revocable is set and the units are granted, the caller must call Keys.Confirm or Keys.Revoke
// afterwards.
func (s *Spot) Take(at keytable.Instant, reserves, revocable bool) {
	do := Take
	if s.revocable = revocable; revocable || reserves {
		do = Hold
	}
	s.Verdict, s.Delay, s.Receipt = s.shard.step(s.Hash, s.Want, at, s.Units(), s.intent(do))
}

// Look decides whether the key of the locked spot s has s.N units at the given instant, and stores the
// answer in s. It changes nothing in the state of the key.
func (s *Spot) Look(at keytable.Instant) {
	s.Verdict, s.Delay, _ = s.shard.step(s.Hash, s.Want, at, s.Units(), Look)
}

// DelayAt returns the Delay that the request has if it is granted at the given instant. The spot s must
// be locked.
func (s *Spot) DelayAt(at keytable.Instant) time.Duration {
	return s.shard.delay(s.Hash, s.Want, at, s.Units())
}

// DenyDelay turns the answer of the spot s into a denial if its Delay is above 0 and at least the
// given limit. It leaves the answer of a rule in shadow as it is, because such a rule only observes.
func (s *Spot) DenyDelay(limit time.Duration) {
	if !s.Shadow && s.Delay > 0 && s.Delay >= limit {
		s.RetryAfter, s.Delay = max(s.Delay-limit, 1), 0
	}
}

// Mark notes in the table whether callers wait for the key of the locked spot s.
func (s *Spot) Mark(marked bool) { s.shard.mark(s.Hash, marked) }

// Future returns a copy of the state that the key of the locked spot s has at the given instant.
func (s *Spot) Future(at keytable.Instant) Future { return s.shard.future(s.Hash, at) }

// finish converts the durations in the verdict v. Before the call, they count from the instant in the
// parameter from. After the call, they count from the instant in the parameter at, which is not later
// than from. finish returns the instant at which the request is granted, and the Delay that the request
// then has. The parameter delay is the Delay of a request that is granted at the instant in the parameter
// from. For any other instant, finish calls the function step, which returns the Delay.
func (v *Verdict) finish(
	at, from keytable.Instant, delay time.Duration, step func(at keytable.Instant) time.Duration,
) (keytable.Instant, time.Duration) {
	due := from
	if v.RetryAfter > 0 {
		due = from.Add(v.RetryAfter)
	}
	gap := from.Since(at)
	if v.ResetAfter > 0 { // 0 stays 0: the key counts as unused, at whichever instant
		v.ResetAfter = time.Duration(min(uint64(v.ResetAfter)+min(gap, uint64(Never)), uint64(Never)))
	}
	switch wait := due.Since(at); {
	case v.RetryAfter == Never || due == keytable.End || wait >= uint64(Never):
		v.RetryAfter = Never // an Instant cannot be later than keytable.End
		return keytable.End, 0
	case v.RetryAfter > 0:
		delay = step(due)
		fallthrough
	default:
		v.RetryAfter = time.Duration(wait)
	}
	return due, delay
}

func (s *ratedShard[S, C]) ahead(
	h keytable.Hash, want Wanted, at keytable.Instant, n int64,
) (due keytable.Instant, v Verdict, delay time.Duration) {
	shard := (*tableShard[S, C])(s)
	from, state := at, shard.Find(h)
	if state == nil {
		state, from = shard.Owed(at)
	}
	if p := s.Algorithm.planOf(state); p != nil {
		from = max(from, p.config.Reached(&state.state))
	}
	if v, delay, _ = s.step(h, want, from, n, Look); v.RetryAfter == 0 {
		return at, v, delay
	}
	due, delay = v.finish(at, from, delay, func(at keytable.Instant) time.Duration { return s.delay(h, want, at, n) })
	return due, v, delay
}

func (s *ratedShard[S, C]) delay(h keytable.Hash, want Wanted, at keytable.Instant, n int64) time.Duration {
	_, delay, _ := s.step(h, want, at, n, Look)
	return delay
}

func (s *ratedShard[S, C]) mark(h keytable.Hash, marked bool) { (*tableShard[S, C])(s).Mark(h, marked) }

func (s *ratedShard[S, C]) future(h keytable.Hash, at keytable.Instant) Future {
	f := &ratedFuture[S, C]{plans: s.Algorithm}
	shard := (*tableShard[S, C])(s)
	if state := shard.Find(h); state != nil {
		if p := s.Algorithm.planOf(state); p != nil {
			f.state = *s.Algorithm.copyOf(state)
		}
	} else {
		owed, seen := shard.Owed(at)
		f.state = s.Algorithm.Inherit(owed, seen)
	}
	return f
}

// A ratedFuture is the Future of a key of a rule.
type ratedFuture[S any, C Algorithm[S, C]] struct {
	plans *ratePlans[S, C]
	state ratedState[S]
}

func (f *ratedFuture[S, C]) Ahead(want Wanted, at keytable.Instant, n int64) (due keytable.Instant, v Verdict, delay time.Duration) {
	from := at
	if p := f.plans.planOf(&f.state); p != nil {
		from = max(at, p.config.Reached(&f.state.state))
	}
	s := f.state
	v, delay = f.step(&s, want, from, n, false)
	due, delay = v.finish(at, from, delay, func(at keytable.Instant) time.Duration {
		_, delay := f.step(&s, want, at, n, false)
		return delay
	})
	return due, v, delay
}

func (f *ratedFuture[S, C]) Charge(want Wanted, at keytable.Instant, n int64) {
	f.step(&f.state, want, at, n, true)
}

// step decides on n units with the state s, which is f.state or a copy of it. If the units are granted and
// charge is set, it takes them from s. It is called only for rules in which a denied request never changes
// the rate of its key (Rates.Learns is not set).
func (f *ratedFuture[S, C]) step(s *ratedState[S], want Wanted, at keytable.Instant, n int64, charge bool) (Verdict, time.Duration) {
	p, _ := f.plans.pick(want)
	renewed := false
	if from := f.plans.planOf(s); from != nil && !from.equals(p) {
		to := *s
		if v, delay := f.plans.stepCopy(&to, s, from, p, at, n); !charge || v.RetryAfter != 0 {
			return v, delay
		}
		slowest := f.plans.slowestAfter(s, from, p, at)
		if slow := f.plans.slower(s, from, p, at); slow != p {
			p.config.Carry(&s.state, from.config, at)
		}
		p.config.Resize(&s.state, from.config, false)
		keepSlowest(s, p, slowest)
	} else {
		renewed = charge && f.plans.renewed(s, p, at)
	}
	v, delay := p.config.Step(&s.state, p.config, at, n, charge)
	if charge && v.RetryAfter == 0 {
		s.tag = s.tag.withPlan(p.id)
		if renewed {
			keepSlowest(s, p, p)
		}
	}
	return v, delay
}

// A limiterShard is a shard of a limiter's table with the methods of lockedShard, which decisions call
// while a key is locked.
type limiterShard[S any, C Algorithm[S, C]] keytable.Shard[S, C]

func (l *Limiter[S, C]) lock(h keytable.Hash, now keytable.Instant) (lockedShard, keytable.Instant, bool) {
	shard := l.table.Lock(h)
	if l.time.clock == nil {
		now = shard.Latest(now)
	}
	return (*limiterShard[S, C])(shard), now, shard.Marked(h)
}

func (s *limiterShard[S, C]) step(
	h keytable.Hash, _ Wanted, now keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, _ Receipt) {
	shard := (*keytable.Shard[S, C])(s)
	state := shard.Find(h)
	if state != nil {
		v, delay = s.Algorithm.Step(state, s.Algorithm, now, n, do == Take)
		return v, delay, 0
	}
	state, seen := shard.Owed(now)
	v, delay = s.Algorithm.Step(state, s.Algorithm, seen, n, false)
	if v.RetryAfter == 0 && do == Take {
		v, delay = admit(shard, h, seen, n)
	}
	v.await(seen, now)
	return v, delay, 0
}

func (s *limiterShard[S, C]) ahead(
	h keytable.Hash, _ Wanted, at keytable.Instant, n int64,
) (due keytable.Instant, v Verdict, delay time.Duration) {
	shard := (*keytable.Shard[S, C])(s)
	state, from := shard.Find(h), at
	if state == nil {
		state, from = shard.Owed(at)
	}
	from = max(from, s.Algorithm.Reached(state))
	if v, delay = s.Algorithm.Step(state, s.Algorithm, from, n, false); v.RetryAfter == 0 {
		return at, v, delay
	}
	due, delay = v.finish(at, from, delay, func(at keytable.Instant) time.Duration {
		_, delay := s.Algorithm.Step(state, s.Algorithm, at, n, false)
		return delay
	})
	return due, v, delay
}

func (s *limiterShard[S, C]) delay(h keytable.Hash, want Wanted, at keytable.Instant, n int64) time.Duration {
	_, delay, _ := s.step(h, want, at, n, Look)
	return delay
}

func (s *limiterShard[S, C]) future(h keytable.Hash, at keytable.Instant) Future {
	f := &limiterFuture[S, C]{config: s.Algorithm}
	shard := (*keytable.Shard[S, C])(s)
	if state := shard.Find(h); state != nil {
		f.state = s.Algorithm.Clone(state)
	} else {
		owed, seen := shard.Owed(at)
		f.state = s.Algorithm.Inherit(owed, seen)
	}
	return f
}

func (s *limiterShard[S, C]) mark(h keytable.Hash, marked bool) {
	(*keytable.Shard[S, C])(s).Mark(h, marked)
}

func (s *limiterShard[S, C]) finish(now keytable.Instant, t keytable.Tally) {
	(*keytable.Shard[S, C])(s).Finish(now, t)
}

func (s *limiterShard[S, C]) chargeAndUnlock(
	h keytable.Hash, _ string, now keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, id Receipt) {
	v, delay, id = s.step(h, Wanted{}, now, n, do)
	shard := (*keytable.Shard[S, C])(s)
	shard.Count(v.RetryAfter == 0)
	shard.Unlock()
	return v, delay, id
}

func (*limiterShard[S, C]) refusal(Wanted) error { return nil }

// A limiterFuture computes how a key of a limiter will answer at later times. It implements the interface Future.
type limiterFuture[S any, C Algorithm[S, C]] struct {
	config C
	state  S
}

func (f *limiterFuture[S, C]) Ahead(_ Wanted, at keytable.Instant, n int64) (due keytable.Instant, v Verdict, delay time.Duration) {
	from := max(at, f.config.Reached(&f.state))
	v, delay = f.config.Step(&f.state, f.config, from, n, false)
	due, delay = v.finish(at, from, delay, func(at keytable.Instant) time.Duration {
		_, delay := f.config.Step(&f.state, f.config, at, n, false)
		return delay
	})
	return due, v, delay
}

func (f *limiterFuture[S, C]) Charge(_ Wanted, at keytable.Instant, n int64) {
	f.config.Step(&f.state, f.config, at, n, true)
}
