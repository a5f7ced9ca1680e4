package waitline

import (
	"math/bits"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// copies is a forecast: it holds copies of the states of keys. Waiting callers are charged to these
// copies in advance, to compute when a later caller will be served. The copies are made when they are
// first needed. They stay exact as long as each caller is served at the instant that was computed for it.
// The zero value holds no copies.
type copies struct {
	keys []engine.Future // the copied states, one for each key; nil for a key whose state is not copied here
	made bool            // whether the field keys is filled
	size int             // number of waiting callers that are charged to the copies

	// wrong counts the events that the copies do not reflect: a caller that is charged to them has left
	// without being served, or was served at another instant, or another caller took units.
	wrong int

	// The callers with the numbers above sumFrom and up to sumTo, in order of arrival, are charged as
	// one sum: it is not known when each of them will be served. Of a large sum, only the first part
	// is charged, and the field later is the time that the rest would take. This time is added to each
	// instant that is computed from the copies.
	sumFrom, sumTo uint64
	later          time.Duration
}

// stale limits the work for one request. At most 64 callers are charged to the copies one by one, and
// all further callers are charged as one sum. The copies are dropped when they are no longer exact enough:
// when the number of events that they do not reflect is at least a 64th of the number of callers.
const stale = 64

func (c *copies) drop() { *c = copies{} }

// changed notes an event that the copies do not reflect, see the field wrong. If there are too many
// such events, changed drops the copies.
func (c *copies) changed() {
	c.wrong++
	c.check()
}

// left notes that the forecast is wrong for n of the waiting callers that are charged to the copies. These callers have left
// without being served, or they will not be served at the instants that were computed for them.
func (c *copies) left(n int) {
	c.size -= n
	c.wrong += n
	c.check()
}

// uncharge notes that a caller that is charged to the copies leaves its line. The parameter arrival is
// the number of this caller in order of arrival, and foretold is the instant that was computed for it,
// or 0. The last two parameters say whether the caller was served, and at which instant.
func (c *copies) uncharge(arrival uint64, foretold keytable.Instant, served bool, at keytable.Instant) {
	if !served {
		c.left(1)
		return
	}
	c.size--
	known := foretold != 0 && !c.inSum(arrival)
	if known && (at > foretold || at < foretold && c.wrong == 0) {
		c.wrong++
	}
	c.check()
}

// check drops the copies in two cases: too many events have happened that the copies do not reflect, or
// callers are charged as one sum and are now few enough to be charged one by one.
func (c *copies) check() {
	if c.wrong > 0 && stale*c.wrong >= c.size || c.sumTo != 0 && c.size <= stale {
		c.drop()
	}
}

// inSum reports whether the caller with the given number in order of arrival is charged together with
// others, as one sum.
func (c *copies) inSum(arrival uint64) bool { return arrival > c.sumFrom && arrival <= c.sumTo }

// ahead computes when a request for n units of one key can be granted. The copy of the key's state is
// c.keys[k]. The request arrives at the instant in the parameter "at". The first result is the earliest
// instant, but none before the arrival, at which the copy has n units. The second result is the denial that
// the request gets when it arrives. The third result is the Delay that the request gets when it is granted.
func (c *copies) ahead(k int, want engine.Wanted, at keytable.Instant, n int64) (keytable.Instant, engine.Verdict, time.Duration) {
	if c.later == 0 {
		return c.keys[k].Ahead(want, at, n)
	}
	due, v, delay := c.keys[k].Ahead(want, at-min(at, keytable.Instant(c.later)), n)
	if due == keytable.End || due.Add(c.later) == keytable.End {
		v.RetryAfter = engine.Never
		return keytable.End, v, 0
	}
	due = max(due.Add(c.later), at)
	v.RetryAfter = time.Duration(min(due.Since(at), uint64(engine.Never)))
	return due, v, delay
}

// charge takes the units of a request from all copies at the given instant. The slice spots has an
// element for each key of the request. The slice amounts has the number of units for each key that can
// deny. If amounts is nil, the request takes the units that the spots ask for.
func (c *copies) charge(spots []engine.Spot, at keytable.Instant, amounts []int64) {
	at -= min(at, keytable.Instant(c.later))
	for k, s := range enforcing(spots) {
		if n := amountOf(s, k, amounts); n > 0 && c.keys[k] != nil {
			c.keys[k].Charge(s.Want, at, n)
		}
	}
}

// amountOf returns how many units the method charge takes from one key of a request. The parameter s is
// this key in the request, and k is its index among the keys that can deny.
func amountOf(s *engine.Spot, k int, amounts []int64) int64 {
	if amounts == nil {
		return s.N
	}
	return amounts[k]
}

// ready returns the earliest instant at which all copies have the units of a request, but no instant before
// the given one. The slice spots has an element for each key of the request, and amounts has the
// number of units for each key that can deny, as for the method charge.
func (c *copies) ready(spots []engine.Spot, at keytable.Instant, amounts []int64) keytable.Instant {
	from := at
	for k, s := range enforcing(spots) {
		if c.keys[k] != nil {
			due, _, _ := c.ahead(k, s.Want, from, max(amountOf(s, k, amounts), 1))
			at = max(at, due)
		}
	}
	return at
}

// add counts one more waiting caller, and charges its units to all copies at the given instant. It passes its
// parameters to the method charge.
func (c *copies) add(spots []engine.Spot, at keytable.Instant, amounts []int64) {
	c.size++
	c.charge(spots, at, amounts)
}

// sum charges several callers to the copies as one sum. For each key in spots that can deny, the slice units has
// the number of units that these callers want together. Nothing is charged before the given instant.
//
// sum charges the units in rounds. One round takes from a key no more units than the key grants at once. In each
// round, the same fraction of the units of every key is taken: if it is 10 of 100 units of one key, it is 3 of 30
// units of another. After a few rounds, the time between two rounds is assumed to stay the same. sum then charges
// no further rounds, but computes how long they take, and stores this time in the field later.
func (c *copies) sum(spots []engine.Spot, at keytable.Instant, callers int, units []int64) {
	c.size += callers
	// These variables describe the key that needs the most rounds: its largest amount in one round, its amount in
	// all rounds together, and the number of rounds.
	most, of, rounds := int64(1), int64(0), int64(0)
	for k, s := range enforcing(spots) {
		if c.keys[k] == nil || units[k] <= 0 {
			continue
		}
		_, v, _ := c.ahead(k, s.Want, at, 1)
		limit := min(max(v.Limit, 1), units[k])
		if needs := (units[k]-1)/limit + 1; needs > rounds || needs == rounds && limit < most {
			most, of, rounds = limit, units[k], needs
		}
	}
	if rounds == 0 {
		return
	}
	first, later := slices.Clone(units), slices.Clone(units) // the amounts of the first round, and of each later round
	for k, n := range units {
		later[k] = share(max(n, 0), most, of)
		first[k] = max(n-(rounds-1)*later[k], 0)
	}
	take := func(amounts []int64) bool {
		if at = c.ready(spots, at, amounts); at == keytable.End {
			return false
		}
		c.charge(spots, at, amounts)
		return true
	}
	if !take(first) {
		return
	}
	const steady = 4 // after this many rounds, the time between two rounds is assumed to be constant
	for i := int64(1); i < rounds; i++ {
		before := at
		if !take(later) {
			return
		}
		if i == steady && rounds > i+1 {
			c.later = time.Duration(saturated(at.Since(before), uint64(rounds-i-1)))
			return
		}
	}
}

// share returns how many of the n units of a key are taken in one round, if a round takes the same fraction of the
// units of each key. Of another key, one round takes the amount in the parameter "most", and all rounds together
// take the amount in the parameter "of". So the result is n·most/of, rounded up. If one round takes 10 of the 100
// units of the other key, it takes 3 of 30. The result must be below 2^63.
func share(n, most, of int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(most))
	quotient, rest := bits.Div64(hi, lo, uint64(of))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

// saturated returns the product a*b, or the longest Duration if the product is larger.
func saturated(a, b uint64) uint64 {
	if a != 0 && b > uint64(engine.Never)/a {
		return uint64(engine.Never)
	}
	return a * b
}

// copyOf returns a copy of the state that the key k has at the instant now.
func copyOf(k Key, now keytable.Instant) engine.Future {
	spot := [1]engine.Spot{engine.SpotOf(k.Keys, k.Hash, 1)}
	engine.Lock(spot[:], now)
	f := spot[0].Future(now)
	engine.Unlock(spot[:], false, false)
	return f
}

// A run is the group of callers at the front of a line that will take units of one key next. The queue of the
// key holds a copy of the key's state (the field tail), and the callers in the run are charged to this copy in
// advance.
type run struct {
	size  int    // number of callers in the run
	units int64  // the sum of the units that these callers wait for
	upTo  uint64 // the number of the last caller in the run, in order of arrival
}

func (r *run) covers(w *Waiter) bool { return r.size > 0 && w.arrival <= r.upTo }

// extend adds callers to p.run (the callers at the front of a line who are the next to take units of the key of p).
// The added callers want the given number of units together, and the last of them is the caller w.
func (p *place) extend(callers int, units int64, w *Waiter) {
	p.run.size += callers
	p.run.units += units
	p.run.upTo = w.arrival
	p.queue.callers += callers
	p.queue.units += units
}

// leaves takes the caller w out of p.run (the callers at the front of a line who are the next to take units of
// the key of p). The caller w must be one of them.
func (p *place) leaves(w *Waiter) {
	n := w.spotOf(p.queue.key)[0].N
	p.run.size--
	p.run.units -= n
	p.queue.callers--
	p.queue.units -= n
}

// endRun empties p.run (the callers at the front of a line who are the next to take units of the key of p).
func (p *place) endRun() {
	if p.run.size == 0 {
		return
	}
	p.queue.callers -= p.run.size
	p.queue.units -= p.run.units
	if p.queue.tail.made {
		p.queue.tail.left(p.run.size)
	}
	p.run = run{}
}
