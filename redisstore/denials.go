package redisstore

import (
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
	held map[stateID]*denial
}

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

// shard returns the shard for the state with this identity.
func (d *denials) shard(id stateID) *denialShard { return &d.shards[id[0]%denialShards] }

// denied reports whether a is certain to be denied, and if so sets res to the result.
func (c *conn) denied(a *ratelimit.Ask, res *ratelimit.Result) bool {
	d := c.denials
	if d == nil || d.size.Load() == 0 || a.N < 0 {
		return false
	}
	id := stateIDOf(a)
	shard := d.shard(id)
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
		if denied && !a.Look {
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
	id := stateIDOf(a)
	shard := d.shard(id)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.held[id] == nil {
		if !denied {
			return
		}
		if shard.held == nil {
			shard.held = make(map[stateID]*denial)
		}
		d.makeRoom(shard, c.ended)
		d.size.Add(1)
	}
	shard.held[id] = &denial{a.Algorithm, a.Rate, c.shared.plan, state, c.began, c.ended}
}

// makeRoom makes room for one state in shard at now, a time of the clock of the conn. It looks at
// two states in no particular order, and drops those that are not believed any more, so that all
// of these are dropped in the end. If shard is full, it drops one in any case.
func (d *denials) makeRoom(shard *denialShard, now time.Duration) {
	looked := 0
	for id, other := range shard.held {
		if stale := now-other.received > d.limit; stale || len(shard.held) == maxDenials {
			delete(shard.held, id)
			d.size.Add(-1)
		}
		if looked++; looked == 2 {
			return
		}
	}
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
		id := stateIDOf(&asks[i])
		shard := d.shard(id)
		shard.mu.Lock()
		if shard.held[id] != nil {
			delete(shard.held, id)
			d.size.Add(-1)
		}
		shard.mu.Unlock()
	}
}
