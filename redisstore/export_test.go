package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
)

// WithClock has a store decide by c. Its keys are kept for an hour longer, as their
// expiry is by the server's clock. Times far ahead are not read as now: the kit's
// clock goes back for years, and the models stand still.
func WithClock(c ratelimit.Clock) Option {
	return func(s *settings) { s.now, s.pad, s.heals = c.Now, time.Hour, false }
}

// WithHealing has times far ahead read as now.
func WithHealing() Option { return func(s *settings) { s.heals = true } }

// KeyOf returns the key of the state of a.
func (s *Store) KeyOf(a ratelimit.Ask) string { return s.keyOf(&a).text }

// Slot returns the slot that the state of a is in.
func (s *Store) Slot(a ratelimit.Ask) int { return slot(s.keyOf(&a).tag) }

// CallsUnderWay returns how many flights have not ended.
func (s *Store) CallsUnderWay() int {
	n := s.conn.anyServer.underWay()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for _, l := range s.conn.masters {
		n += l.underWay()
	}
	return n
}

// Waiting returns how many callers wait for a call, of a single server.
func (s *Store) Waiting() int { return int(s.conn.anyServer.waiting.Load()) }

// Denials returns how many states of denied keys are held.
func (s *Store) Denials() int { return int(s.conn.denials.size.Load()) }

// The bounds of what is held.
const (
	MaxWaiting       = maxWaiting
	MaxJoined        = maxJoined
	MaxPipelineCalls = maxPipelineCalls
	MaxPipelines     = maxPipelines
	MaxDenials       = denialShards * maxDenials
)

// Exact is the arithmetic of the scripts.
func Exact() string { return exactLua }

// Client returns the client that s asks.
func (s *Store) Client() redis.UniversalClient { return s.conn.client.(redis.UniversalClient) }

// A Reply is what a script for one key has answered.
type Reply struct {
	Results []ratelimit.Result
	Taken   int64 // units ahead
	Fast    bool  // the script had no need of its general code
	plan    plan
	known   snapshot
}

// One charges costs of the key of a, one after the other, and up to ahead units more.
func (s *Store) One(ctx context.Context, a ratelimit.Ask, costs []int64, ahead, reserve int64) (r Reply, err error) {
	u, err := s.item(&a)
	if err != nil {
		return r, err
	}
	r.plan = u.plan
	reply, err := s.conn.run(ctx, oneScripts[u.kind], []string{u.key.text}, oneArgs(nil, s.env(), &u, costs, ahead, reserve))
	if err != nil {
		return r, err
	}
	_, r.Fast = reply.(string)
	r.Results, r.known, r.Taken, err = readOne(&u.plan, reply, costs, ahead, reserve)
	return r, err
}

// Fast charges asks, which are in one slot, and reports whether the script had no
// need of its general code.
func (s *Store) Fast(ctx context.Context, asks []ratelimit.Ask) (bool, error) {
	items := make([]item, len(asks))
	for i := range asks {
		var err error
		if items[i], err = s.item(&asks[i]); err != nil {
			return false, err
		}
	}
	reply, err := s.take(ctx, items, false)
	if err != nil {
		return false, err
	}
	results, err := fastResults(items, reply)
	return results != nil, err
}

// Deny answers n units if r makes certain that they are denied.
func (r *Reply) Deny(n int64, longest, shortest time.Duration) (ratelimit.Result, bool) {
	var res ratelimit.Result
	denied := r.known.deny(&r.plan, n, longest.Microseconds(), shortest.Microseconds(), &res)
	return res, denied
}

// Knows reports whether r says all that a decision depends on, or when one unit may
// be granted.
func (r *Reply) Knows() (all, one bool) { return r.known.known == 'l', r.known.known == 'd' }
