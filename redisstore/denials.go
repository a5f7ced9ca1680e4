package redisstore

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// denials is the denial cache: the last known states of keys that had too little left.
// Further requests for such a key are denied in this process, without a call, for as long
// as the server would deny them.
//
// It holds states rather than verdicts, because a request for fewer units than were denied
// may be one that the server would grant. If other processes charge the key, it has less
// left than its state says, so a denial by that state is still right. Only a Reset, or
// units given back, make the state wrong; for that reason no state is believed for longer
// than limit.
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

// A stateName identifies a state, except for its algorithm.
type stateName struct{ rule, key string }

const (
	denialShards = 16

	// maxDenials is how many states a shard holds. When it is full, a new state replaces an
	// arbitrary one.
	maxDenials = 1024
)

// A denial is the last known state of one key.
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

// shard returns the shard for the state of a. It goes by the end of the key, where keys
// mostly differ.
func (d *denials) shard(a *ratelimit.Ask) *denialShard {
	sum := len(a.Key)
	for _, c := range []byte(a.Key[max(len(a.Key)-4, 0):]) {
		sum = 31*sum + int(c)
	}
	return &d.shards[sum%denialShards]
}

// denied reports whether a is certain to be denied, and if so sets res to the result.
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
	// Whether the request is denied is judged by the longest time that may have passed at
	// the server, and how long to wait by the shortest.
	now := c.clock()
	longest, shortest := now-held.sent+time.Microsecond-1, now-held.received
	if shortest <= d.limit && longest >= 0 {
		n := max(int64(a.N), 1)
		denied := held.state.deny(&held.plan, n, int64(longest/time.Microsecond), int64(shortest/time.Microsecond), res)
		if denied {
			c.stats.cacheHits.Add(1)
		}
		if denied || n > 1 { // a request for one unit may still be denied
			return denied
		}
	}
	delete(shard.held, id)
	d.size.Add(-1)
	return false
}

// learn stores the state that the call c has found its key in. The state is of use if a
// request was denied, or if another state of the key is stored. If a Reset was made after c
// was sent, the state is dropped.
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
		id = stateName{strings.Clone(a.Rule), strings.Clone(a.Key)} // the strings may be parts of large ones, which must not be kept alive
	}
	shard.held[id] = &denial{a.Algorithm, a.Rate, c.shared.plan, state, c.began, c.ended}
}

// resetCount returns how many Resets there have been.
func (d *denials) resetCount() int64 {
	if d == nil {
		return 0
	}
	return d.resets.Load()
}

// reset drops the states of asks, and those that calls under way will bring.
func (d *denials) reset(asks []ratelimit.Ask) {
	if d != nil {
		d.resets.Add(1)
		d.forget(asks)
	}
}

// forget drops the states of asks.
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
