package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A RedisWork says what a subject in Redis is asked. All of it is allowed.
type RedisWork struct {
	Keys    int // how many different keys, drawn uniformly
	Callers int // how many goroutines ask at once
}

// String returns the work as it is written in the name of a benchmark.
func (w RedisWork) String() string {
	return fmt.Sprintf("keys=%s/callers=%d", Count(w.Keys), w.Callers)
}

// A RedisSample is what a batch of asks has shown.
type RedisSample struct {
	PerSecond float64       // decisions; an error is none
	Errors    float64       // the share of asks that ended with an error
	Latency   time.Duration // of an ask, median
	Effort                  // of the server, for one decision
}

// A RedisRun is a subject in Redis under a work, ready to be timed.
type RedisRun struct {
	server *RedisServer
	client *redis.Client
	name   string
	ask    RedisAsk
	asks   [][]time.Duration // of each caller in a batch, how long each took
	keys   []*Keys           // of each caller
}

// NewRedisRun returns a run of s on a client of its own, with every key of w in the
// server.
func NewRedisRun(server *RedisServer, s RedisSpec, w RedisWork) (*RedisRun, error) {
	client := server.Client()
	ask, err := s.New(client, s.Limit(Workload{Keys: w.Keys, Outcome: Allowed}))
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", s.Name, err)
	}
	r := &RedisRun{server: server, client: client, name: s.Name, ask: ask, asks: make([][]time.Duration, w.Callers)}
	for i := range w.Callers {
		r.keys = append(r.keys, NewKeys(Varied, w.Keys, uint64(i)+1))
	}
	return r, r.fill(w)
}

// Close closes the client of r.
func (r *RedisRun) Close() { _ = r.client.Close() }

// fill asks once for each key, by all callers at once.
func (r *RedisRun) fill(w RedisWork) error {
	return r.each(func(caller int) error {
		for i := caller; i < w.Keys; i += w.Callers {
			if err := r.ask.granted(context.Background(), Varied.Key(i)); err != nil {
				return fmt.Errorf("bench: %s: %w", r.name, err)
			}
		}
		return nil
	})
}

// each runs f for every caller, all at once, and returns the first error.
func (r *RedisRun) each(f func(caller int) error) error {
	errs := make([]error, len(r.keys))
	var done sync.WaitGroup
	for i := range r.keys {
		done.Go(func() { errs[i] = f(i) })
	}
	done.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Time has all callers ask for as long as batch. It fails if an ask is denied,
// because the figures would then be those of other work.
func (r *RedisRun) Time(ctx context.Context, batch time.Duration) (RedisSample, error) {
	before, err := r.server.Effort(ctx)
	if err != nil {
		return RedisSample{}, err
	}
	failed := make([]int, len(r.keys))
	start := time.Now()
	err = r.each(func(i int) (err error) {
		r.asks[i], failed[i], err = r.call(r.keys[i], r.asks[i][:0], start.Add(batch))
		return err
	})
	took := time.Since(start)
	if err != nil {
		return RedisSample{}, err
	}
	after, err := r.server.Effort(ctx)
	return r.sample(took, failed, before, after), err
}

// call asks until end, at least once. It appends how long each ask took to asks. No
// subject has a context to watch, as under a limiter's Allow.
func (r *RedisRun) call(keys *Keys, asks []time.Duration, end time.Time) (_ []time.Duration, failed int, _ error) {
	for now := time.Now(); ; {
		key := strings.Clone(keys.Next()) // a limiter may hold on to it for a while
		allowed, err := r.ask(context.Background(), key)
		then := now
		now = time.Now()
		asks = append(asks, now.Sub(then))
		switch {
		case err != nil:
			failed++
		case !allowed:
			return nil, 0, fmt.Errorf("bench: %s: %w", r.name, errDenied)
		}
		if !now.Before(end) {
			return asks, failed, nil
		}
	}
}

// sample returns the figures of a batch.
func (r *RedisRun) sample(took time.Duration, failed []int, before, after Effort) RedisSample {
	var errors int
	for _, n := range failed {
		errors += n
	}
	all := slices.Concat(r.asks...)
	slices.Sort(all)
	decisions := len(all) - errors
	s := RedisSample{
		PerSecond: float64(decisions) / took.Seconds(),
		Errors:    float64(errors) / float64(len(all)),
		Latency:   all[len(all)/2],
	}
	if decisions > 0 {
		s.Scripts = (after.Scripts - before.Scripts) / time.Duration(decisions)
		s.Whole = (after.Whole - before.Whole) / time.Duration(decisions)
	}
	return s
}

// RedisBytes removes all keys of server and returns what one key of 24 bytes takes
// there after s has granted it so many units, one by one.
func RedisBytes(server *RedisServer, s RedisSpec, units int) (int64, error) {
	ctx := context.Background()
	if err := server.empty(ctx); err != nil {
		return 0, err
	}
	client := server.Client()
	defer func() { _ = client.Close() }()
	ask, err := s.New(client, s.Limit(Workload{Keys: 1, Outcome: Allowed}))
	if err != nil {
		return 0, fmt.Errorf("bench: %s: %w", s.Name, err)
	}
	for range units {
		if err := ask.granted(ctx, Varied.Key(0)); err != nil {
			return 0, fmt.Errorf("bench: %s: %w", s.Name, err)
		}
	}
	return server.bytes(ctx)
}
