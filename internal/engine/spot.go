package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Spot is one key that a caller waits for, or that a caller asks for while others wait. It
// is a [Part] for package waitline, which decides at instants that it has foretold.
type Spot struct {
	Keys   Lockable      // the keys of the rule, or the limiter
	Hash   keytable.Hash // of the key
	Want   Wanted        // the rate to decide at
	Shadow bool          // never denies; charged if it grants and the request passes
	Looks  bool          // whether nothing of the key changes, not even by a denial at another rate

	shard lockedShard // the key's shard while it is locked, otherwise nil
	held  bool        // whether the charge is counted by Keys.Confirm

	Verdict               // the answer
	Delay   time.Duration // how long to hold the request when it is granted
	Receipt Receipt       // of the charge, if it may be given back
	Err     error         // why the rule's own rate was used and not the one in Want, or nil
}

// A Future is a copy of the state of a key. It is charged ahead of time, to foretell when the
// key has units for a caller that comes later.
type Future interface {
	// Ahead returns the instant, not before at, from which on n units are there, or
	// [keytable.End] if they never are. v is the verdict, counted from at, and delay
	// the Delay of the request when it is granted.
	Ahead(want Wanted, at keytable.Instant, n int64) (due keytable.Instant, v Verdict, delay time.Duration)

	// Charge takes n units at the instant at.
	Charge(want Wanted, at keytable.Instant, n int64)
}

// Lock locks the keys of spots, in this order, which must be the one of all decisions. now is
// a reading of the clock. Lock returns the instant that the decision is for: with the
// machine's clock, the latest reading that any of the shards has seen.
func Lock(spots []Spot, now keytable.Instant) keytable.Instant {
	for i := range spots {
		s := &spots[i]
		s.shard, now, _ = s.Keys.lock(s.Hash, now)
	}
	return now
}

// Unlock unlocks the keys that Lock has locked. If counted is set, it adds the verdicts to the
// totals of the rules, as those of a decision that has passed or has not.
func Unlock(spots []Spot, counted, passed bool) {
	for i := range spots {
		s := &spots[i]
		if s.shard == nil {
			continue
		}
		if s.Want.Rate != nil {
			s.Err = s.shard.refusal(s.Want)
		}
		s.shard.finish(0, tally(counted, passed, s.RetryAfter == 0, s.Shadow, s.held))
		s.shard = nil
	}
}

// Ahead sets the verdict of s, which is locked, to that for n units at the instant at. It
// returns the instant from which on they are there, or [keytable.End] if they never are.
func (s *Spot) Ahead(at keytable.Instant, n int64) (due keytable.Instant) {
	do := Probe
	if s.Looks {
		do = Look
	}
	due, s.Verdict, s.Delay = s.shard.ahead(s.Hash, s.Want, at, n, do)
	return due
}

// Take takes n units at the instant at from the key of s, which is locked, if they are there. If
// revocable is set, the caller says Keys.Confirm or Keys.Revoke.
func (s *Spot) Take(at keytable.Instant, n int64, revocable bool) {
	do := Take
	if s.held = revocable; revocable {
		do = Hold
	}
	s.Verdict, s.Delay, s.Receipt = s.shard.step(s.Hash, s.Want, at, n, do)
}

// Look sets the verdict of s, which is locked, to that for n units at the instant at.
func (s *Spot) Look(at keytable.Instant, n int64) {
	s.Verdict, s.Delay, _ = s.shard.step(s.Hash, s.Want, at, n, Look)
}

// DelayAt returns the Delay that n units have, if they are there, at the instant at. The key
// of s is locked.
func (s *Spot) DelayAt(at keytable.Instant, n int64) time.Duration {
	return s.shard.delay(s.Hash, s.Want, at, n)
}

// DenyDelay makes the verdict of s a denial if its Delay is not below most.
func (s *Spot) DenyDelay(most time.Duration) {
	if !s.Shadow && s.Delay > 0 && s.Delay >= most {
		s.RetryAfter, s.Delay = max(s.Delay-most, 1), 0
	}
}

// Mark notes whether callers wait for the key of s, which is locked.
func (s *Spot) Mark(marked bool) { s.shard.mark(s.Hash, marked) }

// Future returns a copy of the state of the key of s, which is locked.
func (s *Spot) Future(at keytable.Instant) Future { return s.shard.future(s.Hash, at) }

// finish completes v, the verdict for a request at the instant from, as which at counts: v then
// counts from at. step returns the Delay that the request would have at another instant.
func (v *Verdict) finish(at, from keytable.Instant, delay time.Duration, step func(at keytable.Instant) time.Duration) (keytable.Instant, time.Duration) {
	due := from
	if v.RetryAfter > 0 {
		due = from.Add(v.RetryAfter)
	}
	gap := from.Since(at)
	if v.ResetAfter > 0 { // 0 stays: the key is as new already
		v.ResetAfter = time.Duration(min(uint64(v.ResetAfter)+min(gap, uint64(Never)), uint64(Never)))
	}
	switch wait := due.Since(at); {
	case v.RetryAfter == Never || due == keytable.End || wait >= uint64(Never):
		v.RetryAfter = Never // no instant after the last one can be told apart
		return keytable.End, 0
	case v.RetryAfter > 0:
		delay = step(due)
		fallthrough
	default:
		v.RetryAfter = time.Duration(wait)
	}
	return due, delay
}

func (s *ratedShard[S, C]) ahead(h keytable.Hash, want Wanted, at keytable.Instant, n int64, do Intent) (due keytable.Instant, v Verdict, delay time.Duration) {
	shard := (*tableShard[S, C])(s)
	from, state := at, shard.Find(h)
	if state == nil {
		state, from = shard.Owed(at)
	}
	if p := s.Algorithm.planOf(state); p != nil {
		from = max(from, p.config.Reached(&state.state))
	}
	if v, delay, _ = s.step(h, want, from, n, do); v.RetryAfter == 0 {
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
			f.state = ratedState[S]{state: p.config.Clone(&state.state), plan: p.id}
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

// step decides on n units at the rate that want asks for, by the copy s of f.state or by that
// itself, as step of ratePlans does.
func (f *ratedFuture[S, C]) step(s *ratedState[S], want Wanted, at keytable.Instant, n int64, charge bool) (Verdict, time.Duration) {
	p, _ := f.plans.pick(want)
	if from := f.plans.planOf(s); from != nil && from != p {
		if p.config.Fills(from.config) {
			to := *s
			if v, delay := f.plans.stepCut(&to, from, p, at, n); !charge || v.RetryAfter != 0 {
				return v, delay
			}
		}
		if slow := f.plans.slower(s, from, p, at); slow != p {
			p.config.Carry(&s.state, from.config, at)
		}
		p.config.Resize(&s.state, from.config)
		s.plan = p.id
	}
	v, delay := p.config.Step(&s.state, p.config, at, n, charge)
	if charge && v.RetryAfter == 0 {
		s.plan = p.id
	}
	return v, delay
}

// A limiterShard is a shard of a limiter's table with the methods of a lockedShard.
type limiterShard[S any, C Algorithm[S, C]] keytable.Shard[S, C]

func (l *Limiter[S, C]) lock(h keytable.Hash, now keytable.Instant) (lockedShard, keytable.Instant, bool) {
	shard := l.table.Lock(h)
	if l.time.clock == nil {
		now = shard.Latest(now)
	}
	return (*limiterShard[S, C])(shard), now, shard.Marked(h)
}

func (s *limiterShard[S, C]) step(h keytable.Hash, _ Wanted, now keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration, _ Receipt) {
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

func (s *limiterShard[S, C]) ahead(h keytable.Hash, _ Wanted, at keytable.Instant, n int64, _ Intent) (due keytable.Instant, v Verdict, delay time.Duration) {
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

func (*limiterShard[S, C]) refusal(Wanted) error { return nil }

// A limiterFuture is the Future of a key of a limiter.
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
