package engine

import (
	"reflect"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Limiter decides for the keys of one limiter, which all have the same rate.
//
// The zero Limiter is not ready for use: call Init first.
type Limiter[S any, C Algorithm[S, C]] struct {
	time   Timeline
	table  *keytable.Table[S, C]
	config C // for SetConfig only; each shard has a copy, guarded by the shard's lock
}

// Init makes l ready to decide by config, on the clock of t. At most maxKeys keys have a state
// of their own.
func (l *Limiter[S, C]) Init(t Timeline, config C, maxKeys int) {
	l.time, l.config = t, config
	l.table = keytable.New[S](config, maxKeys)
}

// Time returns the limiter's timeline.
func (l *Limiter[S, C]) Time() *Timeline { return &l.time }

// Ready reports whether Init was called.
func (l *Limiter[S, C]) Ready() bool { return l.table != nil }

// Decide decides on n units, at least 1, for key, and takes them if they are granted and
// charge is set. It locks the key's shard, reads the clock once, finds the key's state and
// calls the algorithm's Step.
func (l *Limiter[S, C]) Decide(key string, n int64, charge bool) (v Verdict, delay time.Duration) {
	// The machine's clock never steps back. It is read before the lock is taken,
	// so that the lock is held for a shorter time; Latest then returns a later
	// reading if the shard has seen one. Any other clock is read under the lock.
	var now keytable.Instant
	if l.time.clock == nil {
		now = keytable.InstantAt(time.Since(l.time.start))
	} else {
		l.time.Renew()
	}
	h := keytable.HashOf(key)
	shard, state := l.table.Open(h)
	if l.time.clock == nil {
		now = shard.Latest(now)
	} else {
		now = l.time.nowLocked(shard)
	}
	if state != nil {
		v, delay = shard.Algorithm.Step(state, shard.Algorithm, now, n, charge)
	} else {
		owed, seen := shard.Owed(now)
		v, delay = shard.Algorithm.Step(owed, shard.Algorithm, seen, n, false)
		if v.RetryAfter == 0 && charge {
			v, delay = admit(shard, h, seen, n)
		}
		v.await(seen, now)
	}
	if charge {
		shard.Count(v.RetryAfter == 0)
	}
	shard.Unlock()
	return v, delay
}

// admit charges n units at now to the key with hash h, which has no state yet. It charges a
// new state of the key or, if the table has no room for one, the debt that the keys without
// a state share.
func admit[S any, C Algorithm[S, C]](shard *keytable.Shard[S, C], h keytable.Hash, now keytable.Instant, n int64) (Verdict, time.Duration) {
	state := shard.Newcomer(now)
	v, delay := shard.Algorithm.Step(state, shard.Algorithm, now, n, true)
	if shard.Keep(h, state, now) {
		return v, delay
	}
	owed, _ := shard.Owed(now)
	return shard.Algorithm.Step(owed, shard.Algorithm, now, n, true)
}

// Claim is one try of a waiter to take n units for the key with hash h. It takes them if they
// are granted, turn is set, and their Delay is at most patience. Otherwise it changes nothing.
func (l *Limiter[S, C]) Claim(h keytable.Hash, n int64, turn bool, patience time.Duration) (c Claim) {
	l.time.Renew()
	shard := l.table.Lock(h)
	defer shard.Unlock()
	c.Now = l.time.Now()
	if l.time.clock == nil {
		c.Now = shard.Latest(c.Now)
	}
	state, seen := shard.Find(h), c.Now
	known := state != nil
	if !known {
		state, seen = shard.Owed(c.Now)
	}
	c.Verdict, c.Delay = shard.Algorithm.Step(state, shard.Algorithm, seen, n, false)
	defer func() { c.await(seen, c.Now) }()
	switch {
	case c.RetryAfter == Never:
		return c
	case c.RetryAfter > 0:
		_, c.DelayThen = shard.Algorithm.Step(state, shard.Algorithm, seen.Add(c.RetryAfter), n, false)
		return c
	case !turn || c.Delay > patience:
		return c
	case known:
		c.Verdict, c.Delay = shard.Algorithm.Step(state, shard.Algorithm, seen, n, true)
	default:
		c.Verdict, c.Delay = admit(shard, h, seen, n)
	}
	c.Taken = true
	shard.Count(true)
	return c
}

// A Claim is the answer to one try of a waiter.
type Claim struct {
	Verdict
	Delay     time.Duration    // how long to hold the request, if it is granted
	Now       keytable.Instant // the reading of the clock that decided
	Taken     bool             // whether the units were taken
	DelayThen time.Duration    // if it is denied: the Delay that it would have after RetryAfter
}

// Reset makes the key with hash h as if it had never been used. It returns false if it cannot:
// the key has no state, and is denied because of the debt that such keys share.
func (l *Limiter[S, C]) Reset(h keytable.Hash) bool {
	now := l.time.Now()
	shard := l.table.Lock(h)
	defer shard.Unlock()
	if shard.Find(h) == nil {
		owed, seen := shard.Owed(now)
		v, _ := shard.Algorithm.Step(owed, shard.Algorithm, seen, 1, false)
		return v.RetryAfter == 0
	}
	shard.Reset(h)
	return true
}

// SetConfig makes config the configuration for all keys, at one instant between call and
// return. It returns false, and changes nothing, if config equals the one before. It must
// not be called concurrently.
func (l *Limiter[S, C]) SetConfig(config C) bool {
	from, now := l.config, l.time.Now()
	if reflect.DeepEqual(config, from) {
		return false
	}
	l.config = config
	l.table.Reconfigure(config, func(s *S, _ bool) {
		config.Carry(s, from, now)
		config.Resize(s, from)
	})
	return true
}

// Restart makes config the configuration and every key as if it had never been used. It must not
// be called concurrently with SetConfig.
func (l *Limiter[S, C]) Restart(config C) {
	l.config = config
	l.table.Restart(config)
}

// Len returns how many keys have a state.
func (l *Limiter[S, C]) Len() int { return l.table.Len() }

// Counts returns the totals of the limiter's decisions.
func (l *Limiter[S, C]) Counts() keytable.Counts { return l.table.Counts() }
