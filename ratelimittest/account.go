package ratelimittest

import (
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An Account is a [Model] of one key whose charges can be changed afterwards, as a
// [ratelimit.Reservation] changes them. It keeps a list of all charges and of all changes of the
// rate. [Account.Settle] changes the number of units of one charge, and then computes the state of
// the key again by replaying the list from the start.
//
// Do not call SetRate on the Account of a leaky bucket: the Account does not convert the queue to the new rate.
type Account struct {
	keeper
	fresh  func() keeper // returns the model of a new key
	events []*Entry      // all charges and changes of the rate, in the order in which they were made
	line   line          // how full the queue of a leaky bucket is; unused for other algorithms
}

// An Entry is one charge in the list of an [Account]. [Account.Reserve] returns it, and
// [Account.Settle] changes it.
type Entry struct {
	at     time.Time
	n      int            // units charged
	forced bool           // charged even if it exceeded the limit
	rate   ratelimit.Rate // if not zero, the entry is not a charge, but a change of the rate to this value

	// The next two fields are set only if the key warms up, that is, if its limit grows with its age.
	price  func(n *big.Int) *big.Int // only for a bucket: returns what n units cost, in small equal parts of a token
	renews bool                      // whether the key was new before this charge
}

// A line says how full the queue of a leaky bucket is. This cannot be computed from the list of
// charges: if Settle lowers an earlier charge, later requests still leave after the Delay that they
// were told, so the queue does not get shorter.
type line struct {
	at    *big.Int // when the bucket had the level below, in nanoseconds since the start; nil for an empty queue
	level *big.Int // what was in the bucket at that instant, in small equal parts of a token
}

// NewAccount returns an Account without charges, for one key of a limiter with the given algorithm and
// rate. The parameter start is the instant at which the limiter was made.
func NewAccount(a ratelimit.Algorithm, start time.Time, r ratelimit.Rate) *Account {
	return newAccount(func() keeper { return algorithmNamed(a).model(start, r).(keeper) })
}

// newAccount returns an Account without charges. The given function makes the model of a new key.
func newAccount(fresh func() keeper) *Account {
	acc := &Account{fresh: fresh}
	acc.Reset()
	return acc
}

// Ask takes n units at the given time. If not all of them fit, or if n is 0, Ask takes nothing
// and only returns the state.
func (acc *Account) Ask(at time.Time, n int) ratelimit.Result {
	res, _ := acc.Reserve(at, n)
	return res
}

// Reserve does what Ask does, and also returns the entry of the charge, or nil if nothing was
// charged.
func (acc *Account) Reserve(at time.Time, n int) (ratelimit.Result, *Entry) {
	c := acc.entry(at, n)
	res := acc.lined(at, acc.keeper.Ask(at, n))
	if n == 0 || !res.Allowed {
		return res, nil
	}
	delay := res.Delay
	acc.add(c)
	res = acc.lined(at, res)
	res.Delay = delay
	return res, c
}

// Exceed charges n units at the given time, even if they exceed the limit.
func (acc *Account) Exceed(at time.Time, n int) {
	c := acc.entry(at, n)
	c.forced = true
	c.charge(acc.keeper)
	acc.add(c)
}

// model returns the model of a new key. For a leaky bucket that warms up, the model asks the account
// how full the queue is.
func (acc *Account) model() keeper {
	m := acc.fresh()
	if w, ok := m.(*warm); ok {
		if b, ok := w.full.(*bucket); ok && b.leaky {
			w.queued = func(u *big.Int) *big.Int { return acc.line.left(b, u) }
		}
	}
	return m
}

// entry returns an Entry for a charge of n units at the given time. It does not charge the units.
func (acc *Account) entry(at time.Time, n int) *Entry {
	c := &Entry{at: at, n: n}
	if m, ok := acc.keeper.(*warm); ok {
		u := m.past().instant(at)
		first := m.born(u)
		if c.renews = first == nil; acc.bucket() != nil {
			c.price = m.price(m.limit(first, u))
		}
	}
	return c
}

// The method charge charges the units of c to m, the model of the key, even if they exceed the limit. It also
// records the instant of the charge, even if c has 0 units. After that, no request counts at an earlier instant.
func (c *Entry) charge(m keeper) {
	h := m.past()
	h.last = h.instant(c.at)
	if w, ok := m.(*warm); ok {
		if c.renews {
			w.first = nil
		}
		if c.n > 0 && w.first == nil {
			w.first = h.last
		}
	}
	if c.n > 0 {
		g := grant{at: h.last, n: num(int64(c.n))}
		if c.price != nil {
			g.cost = c.price(g.n)
		}
		h.grants = append(h.grants, g)
	}
}

// bucket returns the bucket of the key, or nil if the algorithm of the key is not a bucket.
func (acc *Account) bucket() *bucket {
	m := acc.keeper
	if w, ok := m.(*warm); ok {
		m = w.full
	}
	b, _ := m.(*bucket)
	return b
}

// cost returns the cost of n units of the charge c in the bucket b, in small equal parts of a token.
func (c *Entry) cost(b *bucket, n int) *big.Int {
	if c.price != nil {
		return c.price(num(int64(n)))
	}
	return mul(num(int64(n)), b.per)
}

// Settle changes the charge c to n units, as if n units had been charged in the first place. If n
// is larger than the charge, Settle instead charges the difference at the given time, even if it
// exceeds the limit. back is the number of units that were given back.
func (acc *Account) Settle(at time.Time, c *Entry, n int) (back int) {
	was := c.n
	if n > was {
		acc.Exceed(at, n-was)
		return 0
	}
	last := true // whether every charge after c has been given back completely
	for i := len(acc.events) - 1; acc.events[i] != c; i-- {
		last = last && acc.events[i].n == 0
	}
	c.n = n
	acc.replay()
	if b := acc.bucket(); b != nil && b.leaky && last {
		acc.line.level = largest(num(0), sub(acc.line.level, sub(c.cost(b, was), c.cost(b, n))))
	}
	return was - n
}

// Units returns the number of units that were charged and not given back.
func (acc *Account) Units() (n int) {
	for _, c := range acc.events {
		n += c.n
	}
	return n
}

// SetRate changes the rate at the given time. Units that the key has used stay used.
func (acc *Account) SetRate(at time.Time, r ratelimit.Rate) {
	acc.events = append(acc.events, &Entry{at: at, rate: r})
	acc.keeper.SetRate(at, r)
}

// Reset forgets all charges and all changes of the rate.
func (acc *Account) Reset() {
	acc.keeper = acc.model()
	acc.events, acc.line = nil, line{}
}

// add appends c to the list. The caller has already charged c to the model.
func (acc *Account) add(c *Entry) {
	acc.events = append(acc.events, c)
	if b := acc.bucket(); b != nil && b.leaky {
		u := b.last
		acc.line = line{u, add(acc.line.left(b, u), c.cost(b, c.n))}
	}
}

// replay makes a new model and charges the whole list to it. If the key warms up (its limit grows with
// its age), each unit costs what it cost when it was first charged. The key's age starts again at a
// charge whose field renews is true. Charges of 0 units are replayed too: even they set the earliest
// instant at which the next request can count.
func (acc *Account) replay() {
	m := acc.model()
	_, warms := m.(*warm)
	for _, c := range acc.events {
		switch {
		case c.rate != (ratelimit.Rate{}):
			m.SetRate(c.at, c.rate)
		case c.n == 0 || c.forced || warms:
			c.charge(m)
		case !m.Ask(c.at, c.n).Allowed:
			panic("what was granted fits without the units that were given back")
		}
	}
	acc.keeper = m
}

// The method named "left" returns how much is still in the leaky bucket b at the instant u, in small equal parts
// of a token. The amount falls at the rate of the bucket.
func (l line) left(b *bucket, u *big.Int) *big.Int {
	if l.at == nil {
		return num(0)
	}
	return largest(num(0), sub(l.level, b.earned(l.at, u)))
}

// The method lined corrects res, the model's answer at the given time, if the key is a leaky bucket. After
// a Settle, only the account knows how full the queue still is. If res is allowed, its Delay becomes the
// time until the queue is empty. Its ResetAfter becomes at least as long as that time.
func (acc *Account) lined(at time.Time, res ratelimit.Result) ratelimit.Result {
	b := acc.bucket()
	if b == nil || !b.leaky || len(acc.events) == 0 {
		return res
	}
	u := b.instant(at)
	waits := ceilDiv(acc.line.left(b, u), b.requests)
	if res.Allowed {
		res.Delay = duration(waits)
	}
	if waits.Sign() > 0 {
		res.ResetAfter = max(res.ResetAfter, duration(add(waits, sub(u, b.since(at)))))
	}
	return res
}
