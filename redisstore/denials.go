package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// denials is the denial cache. It holds the last known states of keys for which requests were denied. For
// as long as the server would deny a request for such a key, this process denies it without a call.
//
// The cache holds states rather than results, because a request for fewer units than the denied one may be
// granted. If other processes charge the key meanwhile, even fewer units remain than the state shows, so a
// denial by the state is still right. A denial is wrong only if the key was reset, or if units were given back to
// the key. For that reason, a state is used for no longer than the duration in the field limit.
type denials struct {
	limit  time.Duration
	size   atomic.Int64 // the number of states in all shards
	resets atomic.Int64 // how many times the method reset was called
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

// A denial holds the last known state of one key for which a request was denied.
type denial struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate
	plan      plan
	state     snapshot

	// The fields warmup and penalty are copied from the request (ratelimit.Ask) that was denied. If the request has a Penalty,
	// the server must count each denial, so the state is kept only if it says that the key is blocked.
	warmup  ratelimit.Warmup
	penalty ratelimit.Penalty

	// The server had this state at some instant between sent and received, which are readings of
	// conn.clock.
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

// denied reports whether the denial cache shows that the server would certainly deny the request a. If so, it stores
// the denial in *res.
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
	if held == nil || held.algorithm != a.Algorithm || held.rate != a.Rate || held.warmup != a.Warmup || held.penalty != penaltyOf(a) {
		return false
	}
	// It is not known exactly how much time has passed since the server had this state. Whether to deny
	// is computed with the longest possible time, and how long the caller must wait with the shortest.
	now := c.clock()
	longest, shortest := now-held.sent+time.Microsecond-1, now-held.received
	if shortest <= d.limit && longest >= 0 {
		n := max(int64(a.N), 1)
		denied := held.state.deny(&held.plan, n, int64(longest/time.Microsecond), int64(shortest/time.Microsecond), res)
		if denied && !a.Look {
			c.stats.cacheHits.Add(1)
		}
		if denied || n > 1 { // if n > 1, keep the state even without a denial, because it may still deny a request for one unit
			return denied
		}
	}
	delete(shard.held, id)
	d.size.Add(-1)
	return false
}

// The method learn stores the state that the key had after the call c. It does so if c has denied a request,
// or if the cache already holds a state of the key. If the method reset was called after c was sent, learn
// stores nothing, because the state may be older than the Reset.
func (d *denials) learn(c *call, state snapshot, denied bool) {
	if d == nil || !denied && d.size.Load() == 0 || c.resets != d.resets.Load() {
		return
	}
	a := c.shared.ask
	d.keep(stateIDOf(a), &denial{
		algorithm: a.Algorithm, rate: a.Rate, penalty: penaltyOf(a), plan: c.shared.plan, state: state, sent: c.began, received: c.ended,
	}, denied)
}

// keep stores the last known state of the key with this identity. If no request was denied (denied is false), it stores
// the state only in place of an older one.
func (d *denials) keep(id stateID, known *denial, denied bool) {
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
		d.makeRoom(shard, known.received)
		d.size.Add(1)
	}
	shard.held[id] = known
}

// makeRoom makes room for one more state in a shard. It looks at two arbitrary states and drops each of them
// that has expired, so that over time all expired states are dropped. If the shard is full, it drops at least
// one state. The argument now is the time by the clock of the conn.
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

// resetCount returns how many times the method reset was called.
func (d *denials) resetCount() int64 {
	if d == nil {
		return 0
	}
	return d.resets.Load()
}

// reset drops the cached states of the keys that the asks name, and prevents calls that are under way from storing
// older states again.
func (d *denials) reset(asks []ratelimit.Ask) {
	if d != nil {
		d.resets.Add(1)
		d.forget(asks)
	}
}

// forget drops the cached states of the keys that the asks name.
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
