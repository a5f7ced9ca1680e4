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
// calls the algorithm's Step. If callers wait for the key, Decide decides nothing and sets
// queued.
func (l *Limiter[S, C]) Decide(key string, n int64, charge bool) (v Verdict, delay time.Duration, queued bool) {
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
	if shard.Marked(h) {
		shard.Unlock()
		return v, 0, true
	}
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
	return v, delay, false
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

// SetConfig makes config the configuration for all keys from now on, which is a reading of
// the clock. It returns false, and changes nothing, if config equals the one before. It must
// not be called concurrently.
func (l *Limiter[S, C]) SetConfig(config C, now keytable.Instant) bool {
	from := l.config
	if reflect.DeepEqual(config, from) {
		return false
	}
	l.config = config
	l.table.Reconfigure(config, func(_ keytable.Hash, s *S, _ bool) {
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
