package redisstore

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// Denials is what the server last said of keys that had too little left. What is
// asked for such a key is denied here, without a call, for as long as the server
// would deny it.
//
// It holds states, not verdicts: an ask for fewer units than were denied may be one
// that the server has to decide. A key that is charged by others has less than its
// state says, so what is denied by that is denied. Only a Reset, or what is given
// back, is not seen at once: no state is believed for longer than limit.
type denials struct {
	limit  time.Duration
	size   atomic.Int64
	resets atomic.Int64
	shards [denialShards]denialShard
}

type denialShard struct {
	mu   sync.Mutex
	held map[stateName]*denial
}

// A name is that of a state, but for the algorithm.
type stateName struct{ rule, key string }

const (
	denialShards = 16

	// maxDenials is how many states a shard holds; another takes the place of
	// any of them.
	maxDenials = 1024
)

// A denial is the state of one key.
type denial struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate
	plan      plan
	state     snapshot

	// The server was in the state at one instant between these two.
	sent, received time.Duration
}

func newDenials(set *settings) *denials {
	if set.denials <= 0 {
		return nil
	}
	return &denials{limit: set.denials}
}

// shard returns where the state of a is held. Keys mostly differ at the end.
func (d *denials) shard(a *ratelimit.Ask) *denialShard {
	sum := len(a.Key)
	for _, c := range []byte(a.Key[max(len(a.Key)-4, 0):]) {
		sum = 31*sum + int(c)
	}
	return &d.shards[sum%denialShards]
}

// denied answers a by res without a call, and reports whether it is sure to be denied.
func (c *conn) denied(a *ratelimit.Ask, res *ratelimit.Result) bool {
	d := c.denials
	if d == nil || d.size.Load() == 0 || a.N < 0 {
		return false
	}
	shard, id := d.shard(a), stateName{a.Rule, a.Key}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	held := shard.held[id]
	if held == nil || held.algorithm != a.Algorithm || held.rate != a.Rate {
		return false
	}
	// What is denied is judged by the latest that it may be at the server, and
	// how long to wait by the earliest.
	now := c.clock()
	early, late := now-held.sent+time.Microsecond-1, now-held.received
	if late <= d.limit && early >= 0 {
		n := max(int64(a.N), 1)
		denied := held.state.deny(&held.plan, n, int64(early/time.Microsecond), int64(late/time.Microsecond), res)
		if denied {
			c.stats.cacheHits.Add(1)
		}
		if denied || n > 1 { // one unit may still be denied
			return denied
		}
	}
	delete(shard.held, id)
	d.size.Add(-1)
	return false
}

// learn notes the state that c has found a key in. It is of use if something has
// been denied, or if another state of the key is known. A Reset may have been made
// since c was sent.
func (d *denials) learn(c *call, state snapshot, denied bool) {
	if d == nil || !denied && d.size.Load() == 0 || c.resets != d.resets.Load() {
		return
	}
	a := c.shared.ask
	shard, id := d.shard(a), stateName{a.Rule, a.Key}
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.held[id] == nil {
		if !denied {
			return
		}
		if shard.held == nil {
			shard.held = make(map[stateName]*denial)
		}
		if len(shard.held) == maxDenials {
			for other := range shard.held {
				delete(shard.held, other)
				d.size.Add(-1)
				break
			}
		}
		d.size.Add(1)
	}
	if shard.held[id] == nil {
		id = stateName{strings.Clone(a.Rule), strings.Clone(a.Key)} // a caller may have cut them from much
	}
	shard.held[id] = &denial{a.Algorithm, a.Rate, c.shared.plan, state, c.began, c.ended}
}

// seen returns how many Resets there have been.
func (d *denials) resetCount() int64 {
	if d == nil {
		return 0
	}
	return d.resets.Load()
}

// reset drops what is known of the states of asks, and what calls under way learn.
func (d *denials) reset(asks []ratelimit.Ask) {
	if d != nil {
		d.resets.Add(1)
		d.forget(asks)
	}
}

// forget drops what is known of the states of asks.
func (d *denials) forget(asks []ratelimit.Ask) {
	if d == nil || d.size.Load() == 0 {
		return
	}
	for i := range asks {
		shard, id := d.shard(&asks[i]), stateName{asks[i].Rule, asks[i].Key}
		shard.mu.Lock()
		if shard.held[id] != nil {
			delete(shard.held, id)
			d.size.Add(-1)
		}
		shard.mu.Unlock()
	}
}
