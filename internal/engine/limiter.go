package engine

import (
	"reflect"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Limiter decides on requests for keys that all have the same rate.
//
// The zero Limiter is not ready for use: call Init first.
type Limiter[S any, C Algorithm[S, C]] struct {
	time   Timeline
	table  *keytable.Table[S, C]
	config C // used only by the methods SetConfig and Restart; decisions use the copy in a shard (part) of the table, under its lock
}

// Init prepares the limiter to decide by the given config, with the clock of the timeline t. At most
// maxKeys keys have a state of their own.
func (l *Limiter[S, C]) Init(t Timeline, config C, maxKeys int) {
	l.time, l.config = t, config
	l.table = keytable.New[S](config, maxKeys)
}

// Time returns the limiter's timeline, which reads the limiter's clock.
func (l *Limiter[S, C]) Time() *Timeline { return &l.time }

// Ready reports whether Init was called.
func (l *Limiter[S, C]) Ready() bool { return l.table != nil }

// Decide decides on n units, at least 1, for the given key. If the units are granted and the parameter
// charge is set, Decide takes them. It locks the part of the table (the shard) that has the key, reads
// the clock once, finds the key's state and calls the method Step of the algorithm. If callers wait for
// the key, Decide decides nothing and sets queued.
func (l *Limiter[S, C]) Decide(key string, n int64, charge bool) (v Verdict, delay time.Duration, queued bool) {
	// If the field clock is nil, the limiter uses the machine's clock, which never steps back. This clock is
	// read here, before the lock is taken, so that the lock is held for a shorter time. If the shard has seen
	// a later reading meanwhile, that reading counts. Any other clock is read below, under the lock.
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

// admit charges n units at the instant now to the key with hash h, which has no state yet. The units
// are charged to a new state of the key. If the table is full, they are charged to the debt that all
// keys without a state share.
func admit[S any, C Algorithm[S, C]](shard *keytable.Shard[S, C], h keytable.Hash, now keytable.Instant, n int64) (Verdict, time.Duration) {
	state := shard.Newcomer(now)
	v, delay := shard.Algorithm.Step(state, shard.Algorithm, now, n, true)
	if shard.Insert(h, state, now) {
		return v, delay
	}
	owed, _ := shard.Owed(now)
	return shard.Algorithm.Step(owed, shard.Algorithm, now, n, true)
}

// Reset forgets everything that the key with hash h has used, and returns true. A key that has no
// state of its own shares one debt with all other such keys, and Reset does not change this debt. If
// the debt denies a request for one unit, Reset returns false.
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

// SetConfig sets the configuration of all keys. The change takes effect at the instant now. SetConfig
// returns false, and changes nothing, if config equals the present configuration. It must not be called
// concurrently.
func (l *Limiter[S, C]) SetConfig(config C, now keytable.Instant) bool {
	from := l.config
	if reflect.DeepEqual(config, from) {
		return false
	}
	l.config = config
	l.table.Reconfigure(config, func(_ keytable.Hash, s *S, _ bool) {
		config.Carry(s, from, now)
		config.Resize(s, from, false)
	})
	return true
}

// Restart gives all keys the given configuration and forgets their states, so that every key counts as
// never used. It must not be called concurrently with SetConfig.
func (l *Limiter[S, C]) Restart(config C) {
	l.config = config
	l.table.Restart(config)
}

// Len returns how many keys have a state.
func (l *Limiter[S, C]) Len() int { return l.table.Len() }

// Counts returns the totals of the limiter's decisions, such as how many requests it has granted.
func (l *Limiter[S, C]) Counts() keytable.Counts { return l.table.Counts() }
