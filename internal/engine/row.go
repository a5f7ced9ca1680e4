package engine

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/packed"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

// A row is what a Book knows about one key of a rule, as bytes: its rate, its state, the charges that can still be given back,
// and the denials that are counted for a Penalty. A store in a database keeps rows. To decide, it loads the rows of a request
// into a Book, lets the Book decide, and dumps them again. Each Book of such a store must have a Timeline that starts at the Unix
// epoch, so that an instant in a row means the same in all Books.

// maxWindow is the largest number of bytes of a Rate.Window in a row.
const maxWindow = 1 << 10

// A loaded is a key whose row was loaded into a Book.
type loaded struct {
	ruleName
	hash keytable.Hash
}

// Load reads what b has to know about the key of the Charge c from the given row, which [Book.Dump] has returned. The Book must
// know nothing about the key before the call. Load returns [packed.ErrBroken] if no Dump can have returned the row. The caller
// must then call Forget.
//
// If the parameter heal is set, Load repairs the row of a key that was charged while the clock showed a wrong time, far in the
// future. It moves the last charge of such a key back to now. To find such keys, Load computes how long a new key that used its
// whole limit now would need to become unused again. If the last charge of the key is at least that long after now, the clock was
// wrong.
func (b *Book) Load(c *Charge, row []byte, heal bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := loaded{c.name(), keytable.HashOf(c.Key)}
	b.loaded = append(b.loaded, at)
	f, now := packed.Read(row), b.time.Now()
	var hasState, hasStrikes bool
	packed.Flags(f, &hasState, &hasStrikes)
	if hasStrikes {
		var keep keytable.Instant
		t := b.strikes[at.ruleName]
		if t == nil {
			t = penalty.New(c.Penalty, b.maxKeys)
			b.strikes[at.ruleName] = t
		}
		packed.Instant(f, &keep)
		t.Pack(at.hash, f)
		if heal {
			t.Heal(at.hash, now)
		}
		b.keep[at] = keep
	}
	if !hasState {
		return f.Err()
	}
	var rate Rate
	packRate(f, &rate)
	if !f.OK() {
		return f.Err()
	}
	keys := b.rules[at.ruleName]
	if keys == nil {
		var err error
		if keys, err = b.open(c.Algorithm, rate, c.Warmup); err != nil {
			return packed.ErrBroken
		}
		b.rules[at.ruleName] = keys
	}
	return keys.Keys.(rower).load(keys, at.hash, &rate, f, now, heal)
}

// Dump returns what b knows about the key of the Charge c, as a row for [Book.Load], or nil if b knows nothing about the key. The
// row can be deleted at the instant in the result keep: from then on, the key gets the same answers without the row.
func (b *Book) Dump(c *Charge) (row []byte, keep keytable.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := loaded{c.name(), keytable.HashOf(c.Key)}
	b.loaded = append(b.loaded, at)
	keys, t := b.rules[at.ruleName], b.strikes[at.ruleName]
	hasState, hasStrikes := keys != nil && keys.Keys.(rower).has(at.hash), t.Has(at.hash)
	if !hasState && !hasStrikes {
		return nil, 0
	}
	f := packed.Write(nil)
	packed.Flags(f, &hasState, &hasStrikes)
	if hasStrikes {
		if keep = b.keep[at]; c.Penalty.After > 0 && !c.Shadow {
			keep = t.Idle(at.hash)
		}
		packed.Instant(f, &keep)
		t.Pack(at.hash, f)
	}
	if hasState {
		keep = max(keep, keys.Keys.(rower).dump(keys, at.hash, f, b.time.Now()))
	}
	return f.Bytes(), keep
}

// ChargedAt reports whether b has a state of the key of the Charge c, and the key was last charged at c.Rate, or at a rate at which
// the rule decides the same.
func (b *Book) ChargedAt(c *Charge) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.rules[c.name()]
	return keys != nil && keys.Keys.(rower).chargedAt(keytable.HashOf(c.Key), c.Rate)
}

// Forget makes b forget all keys that were loaded or dumped since the last call of Forget. It also calls the function onRestart
// that was given to [NewBook]. What b knows of the rules, such as their rates, stays.
func (b *Book) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, at := range b.loaded {
		if keys := b.rules[at.ruleName]; keys != nil && (i == 0 || at.ruleName != b.loaded[i-1].ruleName) {
			keys.Keys.(rower).empty()
			keys.forget()
		}
		b.strikes[at.ruleName].Forget(at.hash)
	}
	b.loaded = b.loaded[:0]
	clear(b.keep)
	b.onRestart()
}

// packRate writes the rate r to f, or reads it from f.
func packRate(f *packed.Form, r *Rate) {
	packed.Number(f, &r.Requests, 1, math.MaxInt)
	packed.Number(f, &r.Per, 0, time.Duration(math.MaxInt64))
	packed.Number(f, &r.Burst, 0, math.MaxInt)
	packed.Text(f, &r.Window, maxWindow)
}

// A rower is the Keys of a rule that can write what they know about one key to a row, and read it back.
type rower interface {
	// has reports whether the key with hash h has a state.
	has(h keytable.Hash) bool

	// chargedAt reports whether the key with hash h has a state, and was last charged at the rate r, or at a rate at which the
	// rule decides the same.
	chargedAt(h keytable.Hash, r Rate) bool

	// dump writes the state of the key with hash h to f. The Ledger l has the open charges of this key. The row can be deleted
	// at the instant in the result keep: from then on, a key without a state gets the same answers.
	dump(l *Ledger, h keytable.Hash, f *packed.Form, now keytable.Instant) (keep keytable.Instant)

	// load reads the state of the key with hash h from f. The caller has already read the rate from f. load adds the charges of
	// the key that can still be given back to the Ledger l. If the parameter heal is set, and the last charge of the state is
	// too far ahead of the instant now, load moves the state back, so that the last charge was made now, see [Book.Load].
	load(l *Ledger, h keytable.Hash, rate *Rate, f *packed.Form, now keytable.Instant, heal bool) error

	// empty forgets the states of all keys, and their receipts.
	empty()
}

// A packer is an [Algorithm] that can write the state of a key to a row.
type packer[S any] interface {
	// Pack writes the state s to f, or reads it from f. When it reads, it accepts each state that Step, Carry, Resize, GiveBack
	// and Exceed can produce. It accepts no state with which one of these methods could fail.
	Pack(s *S, f *packed.Form)
}

// Pack writes the state s to f, or reads it from f.
func (c *WarmConfig[S, C]) Pack(s *Warm[S], f *packed.Form) {
	packed.Instant(f, &s.first)
	any(c.full).(packer[S]).Pack(&s.state, f)
}

func (k *ratedKeys[S, C]) has(h keytable.Hash) bool {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	s := shard.Find(h)
	return s != nil && s.tag.plan() != 0
}

func (k *ratedKeys[S, C]) chargedAt(h keytable.Hash, r Rate) bool {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	s := shard.Find(h)
	if s == nil {
		return false
	}
	_, same, err := shard.Algorithm.configured(r)
	p := shard.Algorithm.planOf(s)
	return err == nil && p != nil && p.rate == same
}

func (k *ratedKeys[S, C]) dump(l *Ledger, h keytable.Hash, f *packed.Form, now keytable.Instant) (keep keytable.Instant) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	ps, s := shard.Algorithm, shard.Find(h)
	p := ps.planOf(s)
	packRate(f, &p.rate)
	slow := ps.slowestOf(s, p)
	slows := slow != p
	packed.Flags(f, &slows)
	if slows {
		packRate(f, &slow.rate)
	}
	if f.Section(); p.holds != nil {
		p.holds.pack(&s.state, f, l.naming(h))
	} else {
		any(p.config).(packer[S]).Pack(&s.state, f)
		k.receipts.get().dump(s.tag.chain(), h, f, l.naming(h))
	}
	now = max(now, p.config.Reached(&s.state))
	return now.Add(untilNew(s, p, slow, now)).Add(ps.rates.Warmup.length())
}

// length returns the time in which the limit of a new key grows, or 0 if w is nil.
func (w *Warmup) length() time.Duration {
	if w == nil {
		return 0
	}
	return w.Over
}

func (k *ratedKeys[S, C]) load(l *Ledger, h keytable.Hash, rate *Rate, f *packed.Form, now keytable.Instant, heal bool) error {
	if err := k.Admit(rate); err != nil {
		return err
	}
	ps := k.plans.Load()
	p, err := ps.find(*rate, true)
	if err != nil {
		return packed.ErrBroken
	}
	slow, slows := p, false
	if packed.Flags(f, &slows); slows {
		var other Rate
		packRate(f, &other)
		if !f.OK() {
			return f.Err()
		}
		if slow, err = ps.find(other, true); err != nil || !slow.config.Slower(p.config) {
			return packed.ErrBroken
		}
	}
	if f.Section(); heal {
		f.Back(k.tooFarAhead(p, f.Bytes(), now))
	}
	s := new(ratedState[S])
	keepSlowest(s, p, slow)
	if p.holds != nil {
		p.holds.unpack(&s.state, f, func(id uint64, e *receipt) { l.reopen(h, id, e, f) })
	} else {
		any(p.config).(packer[S]).Pack(&s.state, f)
		link := k.receipts.get().load(h, f, p.arithmetic(), func(id uint64, e *receipt) { l.reopen(h, id, e, f) })
		s.tag = s.tag.withChain(link)
	}
	if err := f.Err(); err != nil {
		return err
	}
	shard := k.table.Lock(h)
	defer shard.Unlock()
	shard.Offer(h, s, 0) // no used key is idle at instant 0, so Offer evicts none
	return nil
}

// tooFarAhead returns how many nanoseconds the last charge in the row is ahead of the instant now, if that is too far ahead as
// [Book.Load] defines it. Otherwise it returns 0. The parameter p is the plan (rate) of the state in the row.
func (k *ratedKeys[S, C]) tooFarAhead(p *ratePlan[S, C], row []byte, now keytable.Instant) uint64 {
	var s, fresh S
	f := packed.Read(row)
	if p.holds != nil {
		p.holds.unpack(&s, f, func(uint64, *receipt) {})
	} else {
		any(p.config).(packer[S]).Pack(&s, f)
	}
	reached := p.config.Reached(&s)
	if !f.OK() || reached <= now {
		return 0
	}
	v, _ := p.config.Step(&fresh, p.config, now, 1, false)
	p.config.Exceed(&fresh, now, v.Limit)
	if v, _ = p.config.Step(&fresh, p.config, now, 1, false); reached.Since(now) < uint64(v.ResetAfter) {
		return 0
	}
	return reached.Since(now)
}

func (k *ratedKeys[S, C]) empty() {
	k.table.Restart(k.plans.Load())
	k.receipts.made.Store(nil)
}
