package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
)

// WithClock makes a store decide by c. Keys still expire by the server's clock, so they are
// kept for an hour longer. States far ahead are not moved to now, because the clock of the
// kit goes back by years, and its models do not move them either.
func WithClock(c ratelimit.Clock) Option {
	return func(s *settings) { s.now, s.wall, s.pad, s.heals = c.Now, c.Now, time.Hour, false }
}

// WithProcessClock makes a store find the windows of calendars by c, as the clock of this process.
func WithProcessClock(c ratelimit.Clock) Option { return func(s *settings) { s.wall = c.Now } }

// WithHealing moves states far ahead to now, also under WithClock.
func WithHealing() Option { return func(s *settings) { s.heals = true } }

// WithLeaseTerm sets how long units are kept that no request spends.
func WithLeaseTerm(d time.Duration) Option { return func(s *settings) { s.leaseTerm = d } }

// KeyOf returns the key under which the state of a is stored.
func (s *Store) KeyOf(a ratelimit.Ask) string { return s.keyOf(&a).text }

// Slot returns the slot that holds the state of a.
func (s *Store) Slot(a ratelimit.Ask) int { return slot(s.keyOf(&a).tag) }

// CallsUnderWay returns how many pipelines have not ended.
func (s *Store) CallsUnderWay() int {
	n := s.conn.anyServer.underWay()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for _, l := range s.conn.masters {
		n += l.underWay()
	}
	return n
}

// Waiting returns how many callers wait for a call. The store must be on a single server.
func (s *Store) Waiting() int { return int(s.conn.anyServer.waiting.Load()) }

// Denials returns how many states the denial cache holds.
func (s *Store) Denials() int { return int(s.conn.denials.size.Load()) }

// The bounds of what a store keeps in this process.
const (
	MaxWaiting       = maxWaiting
	MaxJoined        = maxJoined
	MaxPipelineCalls = maxPipelineCalls
	MaxPipelines     = maxPipelines
	MaxDirect        = maxDirect
	MaxDenials       = denialShards * maxDenials
)

// Exact returns the arithmetic of the scripts, as Lua text.
func Exact() string { return exactLua }

// Client returns the client of s.
func (s *Store) Client() redis.UniversalClient { return s.conn.client.(redis.UniversalClient) }

// A Reply is the reply of a script for one key.
type Reply struct {
	Results []ratelimit.Result
	Taken   int64 // units taken ahead
	Fast    bool  // whether the fast path decided
	plan    plan
	known   snapshot
}

// One charges costs of the key of a, one after the other, and then takes up to ahead units
// more.
func (s *Store) One(ctx context.Context, a ratelimit.Ask, costs []int64, ahead, reserve int64) (r Reply, err error) {
	it, err := s.item(&a)
	if err != nil {
		return r, err
	}
	r.plan = it.plan
	reply, err := s.conn.run(ctx, oneScripts[it.kind], []string{it.key.text}, oneArgs(nil, s.env(), &it, costs, ahead, reserve))
	if err != nil {
		return r, err
	}
	_, r.Fast = reply.(string)
	r.Results, r.known, r.Taken, err = readOne(&it.plan, reply, costs, ahead, reserve)
	return r, err
}

// Joined decides about callers of the key of a, which has a Penalty, in one call of the server. Each caller wants one of
// the costs. It reports whether the fast path of the script decided.
func (s *Store) Joined(ctx context.Context, a ratelimit.Ask, costs []int64) (results []ratelimit.Result, fast bool, err error) {
	it, err := s.item(&a)
	if err != nil {
		return nil, false, err
	}
	shared := shared{item: it, costs: costs}
	args := append(oneArgs(nil, s.env(), &it, costs, 0, 0), shared.tail()...)
	reply, err := s.conn.run(ctx, penalOneScripts()[it.kind], []string{it.key.text, penaltyKey(it.key.text)}, args)
	if err != nil {
		return nil, false, err
	}
	_, fast = reply.(string)
	results, _, _, err = readOne(&it.plan, reply, costs, 0, 0)
	return results, fast, err
}

// Fast charges asks, which are in one slot, and reports whether the fast path of the script
// decided.
func (s *Store) Fast(ctx context.Context, asks []ratelimit.Ask) (bool, error) {
	items := make([]item, len(asks))
	for i := range asks {
		var err error
		if items[i], err = s.item(&asks[i]); err != nil {
			return false, err
		}
	}
	reply, err := s.take(ctx, items, 0)
	if err != nil {
		return false, err
	}
	results, err := fastResults(items, reply)
	return results != nil, err
}

// TakePart charges asks, which are in one slot, as a part of a decision that another slot may still deny.
func (s *Store) TakePart(ctx context.Context, asks []ratelimit.Ask) error {
	items := make([]item, len(asks))
	for i := range asks {
		var err error
		if items[i], err = s.item(&asks[i]); err != nil {
			return err
		}
	}
	_, err := s.take(ctx, items, returnable)
	return err
}

// Deny reports whether r makes it certain that n units are denied, and if so returns the
// result. Between shortest and longest has passed since r.
func (r *Reply) Deny(n int64, longest, shortest time.Duration) (ratelimit.Result, bool) {
	var res ratelimit.Result
	denied := r.known.deny(&r.plan, n, longest.Microseconds(), shortest.Microseconds(), &res)
	return res, denied
}

// Knows reports whether r says everything that a decision depends on, and whether it says
// only when one unit may be granted.
func (r *Reply) Knows() (all, one bool) { return r.known.known == 'l', r.known.known == 'd' }
