package engine

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A fallback is the Keys of a rule whose state is in a store. It decides while the store fails. It
// keeps two states for each key. It grants units only if both states have that many left, and charges
// them to both.
//
//   - The embedded Keys have the state that agrees with the last answer of the store. Each answer
//     of the store replaces this state, see Remember. The embedded Keys also count the decisions of
//     the rule.
//   - The Keys in the field granted have only what was granted without the store. No answer of the
//     store changes it. So however often the store fails, this process grants in any interval no more
//     than the rates of these Keys allow.
//
// A fallback does not redefine the methods for callers that wait for a key, because no caller waits for
// a key of a fallback. It does not redefine the method Place either: while the store fails, an
// explanation of a decision only says that the failure policy has answered, and not where the key is
// stored.
type fallback struct {
	Keys
	granted Keys
	time    *Timeline
}

// NewFallback returns the Keys that decide for a rule with the rates r while its store fails. They keep two
// states for each key, for at most maxKeys keys. NewFallback calls the function open twice, to make the Keys
// for each of the two states.
func NewFallback(
	t *Timeline, r Rates, maxKeys int, open func(t *Timeline, r Rates, maxKeys int) (Keys, error),
) (Keys, error) {
	said, err := open(t, r, maxKeys)
	if err != nil {
		return nil, err
	}
	granted, err := open(t, r.withoutWarmup(), maxKeys)
	return &fallback{Keys: said, granted: granted, time: t}, err
}

// withoutWarmup returns the rates r without the lower limit for new keys. A key that is first seen
// while the store fails may be old: the store may have known it for a long time.
func (r Rates) withoutWarmup() Rates {
	r.Warmup = nil
	return r
}

func (f *fallback) Decide(
	h keytable.Hash, tier string, n int64, began keytable.Instant,
) (v Verdict, delay time.Duration, now keytable.Instant, queued bool) {
	f.time.Renew()
	if now = began; now == 0 && f.time.clock == nil {
		now = keytable.InstantAt(time.Since(f.time.start))
	}
	shard, now := f.lockBoth(h, now)
	if f.time.clock != nil {
		now = f.time.nowLocked(shard)
	}
	v, delay, _ = shard.chargeAndUnlock(h, tier, now, n, Take)
	return v, delay, now, false
}

func (f *fallback) Hold(
	h keytable.Hash, tier string, n int64, term time.Duration,
) (v Verdict, delay time.Duration, id Receipt, queued bool) {
	parts := [1]Part{{Keys: f, Question: Question{Hash: h, Want: Wanted{Tier: tier}, N: n}}}
	out := DecideAll(f.time, parts[:], &Order{Within: AnyDelay, Revocable: true}, 0)
	f.SetTerm(parts[0].Receipt, out.Now.Add(term), out.Now)
	return parts[0].Verdict, parts[0].Delay, parts[0].Receipt, out.Queued
}

func (f *fallback) Ask(h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent) (Verdict, time.Duration, Receipt) {
	shard, _, _ := f.lock(h, now)
	defer shard.finish(0, keytable.Uncounted)
	return shard.step(h, want, now, n, do)
}

// A charge of both states has two receipts (numbers by which it can be given back). The caller gets the
// receipt of the Keys in the field granted. That receipt stores the number of the second receipt, which
// the embedded Keys issued. The second receipt is called its twin.

// twin returns the second receipt of a charge, which the embedded Keys issued, or 0 if there is none.
// The parameter id is the first receipt of this charge, which the Keys in the field granted issued.
func (f *fallback) twin(id Receipt) Receipt {
	if id == 0 {
		return 0
	}
	r := f.granted.issued()
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.named(id); e != nil {
		return e.twin
	}
	return 0
}

// pair records that two receipts belong to one charge. The Keys in the field f.granted issued the receipt in the
// parameter granted, and the embedded Keys issued the receipt in the parameter said. If the parameter granted is
// 0, the charge cannot be given back. pair then ends the other receipt, so that its units stay charged.
func (f *fallback) pair(h keytable.Hash, granted, said Receipt) {
	if granted == 0 {
		f.Keys.issued().settle(0, h, said, 0, 0)
		return
	}
	r := f.granted.issued()
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.named(granted); e != nil {
		e.twin = said
	}
}

func (f *fallback) SetTerm(id Receipt, until, now keytable.Instant) {
	f.Keys.SetTerm(f.twin(id), until, now)
	f.granted.SetTerm(id, until, now)
}

func (f *fallback) Settle(h keytable.Hash, id Receipt, actual int64, now keytable.Instant) (back int64) {
	said := f.Keys.Settle(h, f.twin(id), actual, now)
	return max(said, f.granted.Settle(h, id, actual, now))
}

func (f *fallback) Exceed(h keytable.Hash, want Wanted, now keytable.Instant, n int64) Receipt {
	f.Keys.Exceed(h, want, now, n)
	return f.granted.Exceed(h, want, now, n)
}

func (f *fallback) Confirm(h keytable.Hash, id Receipt, n int64, now keytable.Instant) {
	f.Keys.Confirm(h, f.twin(id), n, now)
	f.granted.Settle(h, id, n, now)
}

func (f *fallback) Revoke(
	h keytable.Hash, id Receipt, want Wanted, then keytable.Instant, n int64,
) (v Verdict, delay time.Duration) {
	v, delay = f.Keys.Revoke(h, f.twin(id), want, then, n)
	granted, other := f.granted.Revoke(h, id, want, then, n)
	delay = v.restrict(&granted, max(delay, other))
	return v, delay
}

func (f *fallback) Reset(h keytable.Hash, want Wanted) bool {
	granted := f.granted.Reset(h, want)
	return f.Keys.Reset(h, want) && granted
}

func (f *fallback) Admit(r *Rate) error {
	return cmp.Or(f.Keys.Admit(r), f.granted.Admit(r)) // call both: each has rates of its own, and must forget the unused ones
}

func (f *fallback) Change(r Rates) (func(now keytable.Instant), error) {
	said, err := f.Keys.Change(r)
	granted, other := f.granted.Change(r.withoutWarmup())
	if err = errors.Join(err, other); err != nil {
		return nil, err
	}
	return func(now keytable.Instant) {
		said(now)
		granted(now)
	}, nil
}

func (f *fallback) Restart() {
	f.Keys.Restart()
	f.granted.Restart()
}

// A fallbackShard implements lockedShard for a key of a fallback. Such a key has two states, one in the embedded Keys and one in
// granted. Both are locked.
type fallbackShard struct {
	lockedShard
	granted lockedShard
	keys    *fallback
}

// fallbackShards keeps unused values of the type *fallbackShard, so that a decision allocates nothing.
var fallbackShards = sync.Pool{New: func() any { return new(fallbackShard) }}

func (f *fallback) lock(h keytable.Hash, now keytable.Instant) (lockedShard, keytable.Instant, bool) {
	s, now := f.lockBoth(h, now)
	return s, now, false
}

// lockBoth does what the method lock does: it locks both states of the key with hash h. But its first result has the
// type *fallbackShard, whose method Unlock the method Decide needs.
func (f *fallback) lockBoth(h keytable.Hash, now keytable.Instant) (*fallbackShard, keytable.Instant) {
	s := fallbackShards.Get().(*fallbackShard)
	s.keys = f
	s.lockedShard, now, _ = f.Keys.lock(h, now)
	s.granted, now, _ = f.granted.lock(h, now)
	return s, now
}

// Unlock unlocks both states of the key, and counts no answer. It is called if the clock panics while the key
// is locked.
func (s *fallbackShard) Unlock() { s.finish(0, keytable.Uncounted) }

func (s *fallbackShard) finish(now keytable.Instant, t keytable.Tally) {
	s.granted.finish(now, keytable.Uncounted)
	s.lockedShard.finish(now, t)
	*s = fallbackShard{}
	fallbackShards.Put(s)
}

// step charges both states of the key or none. It first looks at the state in s.granted. If that state has
// the units, step charges the other state and, if the other state grants them, s.granted too. The verdict v
// is the answer to a request that needs the units of both.
func (s *fallbackShard) step(
	h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, id Receipt) {
	granted, other, _ := s.granted.step(h, want, now, n, Look)
	ask := do
	if granted.RetryAfter != 0 {
		ask = Look
	}
	v, delay, said := s.lockedShard.step(h, want, now, n, ask)
	if ask != Look && v.RetryAfter == 0 {
		if granted, other, id = s.granted.step(h, want, now, n, do); do == Hold {
			s.keys.pair(h, id, said)
		}
	}
	delay = v.restrict(&granted, max(delay, other))
	return v, delay, id
}

func (s *fallbackShard) revoked(h keytable.Hash, want Wanted, now keytable.Instant, n int64) (v Verdict, delay time.Duration) {
	v, delay = s.lockedShard.revoked(h, want, now, n)
	granted, other := s.granted.revoked(h, want, now, n)
	delay = v.restrict(&granted, max(delay, other))
	return v, delay
}

func (s *fallbackShard) chargeAndUnlock(
	h keytable.Hash, tier string, now keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, id Receipt) {
	v, delay, id = s.step(h, Wanted{Tier: tier}, now, n, do)
	s.finish(now, new(Question).tally(true, true, v.RetryAfter == 0, false))
	return v, delay, id
}

func (s *fallbackShard) refusal(want Wanted) error {
	return cmp.Or(s.lockedShard.refusal(want), s.granted.refusal(want))
}

// restrict merges another verdict into v: v becomes the answer to a request that needs the units of both.
// The parameter delay is the longer Delay of the two. The result is the Delay of the request, which is 0 if
// v is a denial.
func (v *Verdict) restrict(other *Verdict, delay time.Duration) time.Duration {
	v.Left = min(v.Left, other.Left)
	v.RetryAfter = max(v.RetryAfter, other.RetryAfter)
	v.ResetAfter = max(v.ResetAfter, other.ResetAfter)
	if v.RetryAfter != 0 {
		return 0
	}
	return delay
}
