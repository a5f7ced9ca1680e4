package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A RedisWork describes the calls to a limiter that keeps its state in Redis. The limit is so high
// that all of the calls are allowed.
type RedisWork struct {
	Keys       int  // number of different keys; each call chooses a key at random
	Callers    int  // number of goroutines that call at once
	Cancelable bool // whether each call has its own context that can be canceled, like a request to a server
}

// String returns the RedisWork as it appears in the name of a benchmark.
func (w RedisWork) String() string {
	text := fmt.Sprintf("keys=%s/callers=%d", Count(w.Keys), w.Callers)
	if w.Cancelable {
		text += "/ctx=cancelable"
	}
	return text
}

// The method named "call" calls the function ask for the key. If w.Cancelable is true, this function
// gets a context that can be canceled.
func (w RedisWork) call(ask StoreAsk, key string) (allowed bool, err error) {
	if !w.Cancelable {
		return ask(context.Background(), key)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return ask(ctx, key)
}

// A RedisSample holds the figures of one batch of calls.
type RedisSample struct {
	PerSecond float64       // decisions a second; a call with an error made no decision
	Errors    float64       // the share of calls that returned an error
	Latency   time.Duration // the median time of a call
	Effort                  // how much processor time the server needs for each decision
}

// A RedisRun is a limiter with its state in Redis that is ready to be timed. It also has the
// RedisWork that describes the calls.
type RedisRun struct {
	server *RedisServer
	client *redis.Client
	name   string
	work   RedisWork
	ask    StoreAsk
	asks   [][]time.Duration // how long the calls of each caller took in the last batch
	keys   []*Keys           // a generator of keys for each caller
}

// NewRedisRun makes the limiter that s describes, and returns it as a RedisRun, ready to be timed
// with the calls that w describes. The RedisRun has a Redis client of its own. NewRedisRun makes a
// call for every key of w, so that the server already has a state for each key.
func NewRedisRun(server *RedisServer, s RedisSpec, w RedisWork) (*RedisRun, error) {
	client := server.Client()
	ask, err := s.New(client, s.Limit(Workload{Keys: w.Keys, Outcome: Allowed}))
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", s.Name, err)
	}
	r := &RedisRun{server: server, client: client, name: s.Name, work: w, ask: ask, asks: make([][]time.Duration, w.Callers)}
	for i := range w.Callers {
		r.keys = append(r.keys, NewKeys(Varied, w.Keys, uint64(i)+1))
	}
	return r, r.fill(w)
}

// Close closes the client of the run.
func (r *RedisRun) Close() { _ = r.client.Close() }

// fill makes one call for each key of the workload w. The keys are divided among the callers.
func (r *RedisRun) fill(w RedisWork) error {
	return atOnce(len(r.keys), func(caller int) error {
		for i := caller; i < w.Keys; i += w.Callers {
			if err := r.ask.granted(context.Background(), Varied.Key(i)); err != nil {
				return fmt.Errorf("bench: %s: %w", r.name, err)
			}
		}
		return nil
	})
}

// Time lets all callers make calls until the given duration is over. The limit of a RedisWork is so
// high that every call must be allowed. If a call is denied, Time returns an error.
func (r *RedisRun) Time(ctx context.Context, batch time.Duration) (RedisSample, error) {
	before, err := r.server.Effort(ctx)
	if err != nil {
		return RedisSample{}, err
	}
	failed := make([]int, len(r.keys))
	start := time.Now()
	err = atOnce(len(r.keys), func(i int) (err error) {
		ask := func(key string) error {
			allowed, err := r.work.call(r.ask, key)
			switch {
			case err != nil:
				failed[i]++
			case !allowed:
				return fmt.Errorf("bench: %s: %w", r.name, errDenied)
			}
			return nil
		}
		r.asks[i], err = repeat(ask, r.keys[i], r.asks[i][:0], start.Add(batch))
		return err
	})
	took := time.Since(start)
	if err != nil {
		return RedisSample{}, err
	}
	after, err := r.server.Effort(ctx)
	return r.sample(took, failed, before, after), err
}

// sample returns the figures of a batch of calls. The parameter took is the duration of the batch.
// The parameter failed holds the number of errors for each caller. The last two parameters are the
// processor time of the server before and after the batch.
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

// RedisBytes returns the number of bytes that one key of 24 bytes takes in the server. It removes
// all keys from the server, and then lets the limiter s grant the given number of units to one key,
// one unit in each call.
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
