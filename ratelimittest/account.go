package ratelimittest

import (
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An Account is the [Model] of one key whose charges may be settled afterwards, as by a
// [ratelimit.Reservation]. It is the list of what was charged and when, and of the changes of the
// rate. [Account.Settle] changes the number of units in the list; the key is then what the list
// says, replayed from the start.
//
// The rate of a leaky bucket must not change.
type Account struct {
	keeper
	fresh  func() keeper // returns the model of a new key
	events []*Entry
	line   line // of a leaky bucket
}

// An Entry is what an [Account] was charged in one step.
type Entry struct {
	at     time.Time
	n      int
	forced bool           // whether it was charged whatever the limit
	rate   ratelimit.Rate // if not zero, the event is a change of the rate to this

	each   *big.Int // what a unit has cost a young bucket, in units of 1/per of a token; otherwise nil
	renews bool     // whether the key, which warms up, was new before it
}

// A line is what has not yet left a leaky bucket. It does not follow from the list: after a
// settlement, requests that were told a Delay keep their places.
type line struct {
	at, level *big.Int
}

// NewAccount returns the Account of a key of a limiter by this algorithm that was made at start.
func NewAccount(a ratelimit.Algorithm, start time.Time, r ratelimit.Rate) *Account {
	return newAccount(func() keeper { return algorithmNamed(a).model(start, r).(keeper) })
}

// newAccount returns the Account of a key that is as fresh returns it.
func newAccount(fresh func() keeper) *Account {
	acc := &Account{fresh: fresh}
	acc.Reset()
	return acc
}

// Ask takes n units at the instant at, or none, as that of [Model] does.
func (acc *Account) Ask(at time.Time, n int) ratelimit.Result {
	res, _ := acc.Reserve(at, n)
	return res
}

// Reserve does what Ask does, and returns the charge, or nil if there is none.
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

// Exceed charges n units at the instant at, whatever the limit.
func (acc *Account) Exceed(at time.Time, n int) {
	c := acc.entry(at, n)
	c.forced = true
	c.charge(acc.keeper)
	acc.add(c)
}

// model returns the model of a new key.
func (acc *Account) model() keeper {
	m := acc.fresh()
	if w, ok := m.(*warm); ok {
		if b, ok := w.full.(*bucket); ok && b.leaky {
			w.queued = func(u *big.Int) *big.Int { return acc.line.left(b, u) }
		}
	}
	return m
}

// entry returns a charge of n units at the instant at, which is not made yet.
func (acc *Account) entry(at time.Time, n int) *Entry {
	c := &Entry{at: at, n: n}
	if m, ok := acc.keeper.(*warm); ok {
		u := m.past().instant(at)
		first := m.born(u)
		if c.renews = first == nil; acc.bucket() != nil {
			c.each = m.weight(m.limit(first, u))
		}
	}
	return c
}

// charge makes the charge c of the key m, whatever the limit. One of no units moves the clock of the
// key.
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
		if c.each != nil {
			g.cost = mul(g.n, c.each)
		}
		h.grants = append(h.grants, g)
	}
}

// bucket returns the bucket that has the history, or nil if the key counts in windows.
func (acc *Account) bucket() *bucket {
	m := acc.keeper
	if w, ok := m.(*warm); ok {
		m = w.full
	}
	b, _ := m.(*bucket)
	return b
}

// cost returns what n units of c have cost b.
func (c *Entry) cost(b *bucket, n int) *big.Int {
	if c.each != nil {
		return mul(num(int64(n)), c.each)
	}
	return mul(num(int64(n)), b.per)
}

// Settle makes c, which was charged to the account, a charge of n units, not of as many as it was.
// If n is more, the others are charged now, at the instant at, whatever the limit. It returns how
// many units are given back.
func (acc *Account) Settle(at time.Time, c *Entry, n int) (back int) {
	was := c.n
	if n > was {
		acc.Exceed(at, n-was)
		return 0
	}
	last := true // whether no charge after it has units left
	for i := len(acc.events) - 1; acc.events[i] != c; i-- {
		last = last && acc.events[i].n == 0
	}
	c.n = n
	acc.replay()
	if b := acc.bucket(); b != nil && b.leaky && last {
		acc.line.level = largest(num(0), sub(acc.line.level, c.cost(b, was-n)))
	}
	return was - n
}

// Units returns how many units were charged, less those that were given back.
func (acc *Account) Units() (n int) {
	for _, c := range acc.events {
		n += c.n
	}
	return n
}

// SetRate changes the rate at the instant at. Units that the key has used stay used.
func (acc *Account) SetRate(at time.Time, r ratelimit.Rate) {
	acc.events = append(acc.events, &Entry{at: at, rate: r})
	acc.keeper.SetRate(at, r)
}

// Reset makes the key as good as new. The rate is the first one again.
func (acc *Account) Reset() {
	acc.keeper = acc.model()
	acc.events, acc.line = nil, line{}
}

// add notes the charge c, which the model has made.
func (acc *Account) add(c *Entry) {
	acc.events = append(acc.events, c)
	if b := acc.bucket(); b != nil && b.leaky {
		u := b.last
		acc.line = line{u, add(acc.line.left(b, u), c.cost(b, c.n))}
	}
}

// replay makes the model anew from the list. A charge of no units moves the clock of the key, as it
// did when it was made. Units of a key that warms up cost what they did then, and it was new where
// it was so then.
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

// left returns what of l has not left by u.
func (l line) left(b *bucket, u *big.Int) *big.Int {
	if l.at == nil {
		return num(0)
	}
	return largest(num(0), sub(l.level, b.earned(l.at, u)))
}

// lined returns res, an answer at the instant at, with the Delay and the ResetAfter of the line of a
// leaky bucket.
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
