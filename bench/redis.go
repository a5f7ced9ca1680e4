package bench

import (
	"context"
	"errors"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// A RedisAsk reports whether one unit for key is granted, by state that is in
// Redis. With an error nothing was decided.
type RedisAsk func(ctx context.Context, key string) (allowed bool, err error)

// errDenied means that an ask was denied where all are to be allowed.
var errDenied = errors.New("denied")

// granted returns why a unit for key is not granted, or nil.
func (ask RedisAsk) granted(ctx context.Context, key string) error {
	allowed, err := ask(ctx, key)
	if err == nil && !allowed {
		err = errDenied
	}
	return err
}

// A RedisSpec names a limiter with its state in Redis and makes it.
type RedisSpec struct {
	Name  string                                           // the algo= of a benchmark
	Limit func(Workload) Limit                             // what it is configured with
	New   func(c *redis.Client, l Limit) (RedisAsk, error) // makes it on a client of its own
}

// RedisSpecs returns the limiters with their state in Redis, in the order in
// which they are shown. This module is there as its users have it, a limiter with
// a store, and without the limiter.
func RedisSpecs() []RedisSpec {
	return []RedisSpec{
		{"limiter", bucketLimit, newStoredLimiter()},
		{"store", bucketLimit, newStore(ratelimit.AlgorithmTokenBucket)},
		{"redis_rate", bucketLimit, newRedisRate},
		{"throttled", bucketLimit, newRedisThrottled},
		{"ulule", windowLimit, newRedisUlule},
	}
}

// RedisStates returns what differs in what a key takes in Redis: each algorithm of
// this module in a store, and the peers. All are limited to a thousand an hour.
func RedisStates() []RedisSpec {
	bucket := func(Workload) Limit { return Limit{Rate: 1000, Per: time.Hour, Burst: 1000} }
	window := func(Workload) Limit { return Limit{Rate: 1000, Per: time.Hour} }
	state := func(a ratelimit.Algorithm, limit func(Workload) Limit) RedisSpec {
		return RedisSpec{string(a), limit, newStore(a)}
	}
	return []RedisSpec{
		state(ratelimit.AlgorithmTokenBucket, bucket),
		state(ratelimit.AlgorithmFixedWindow, window),
		state(ratelimit.AlgorithmSlidingWindowLog, window),
		state(ratelimit.AlgorithmSlidingWindowCounter, window),
		state(ratelimit.AlgorithmLeakyBucket, bucket),
		{"redis_rate", bucket, newRedisRate},
		{"throttled", bucket, newRedisThrottled},
		{"ulule", window, newRedisUlule},
	}
}

// errDegraded means that a limiter has answered without its store.
var errDegraded = errors.New("bench: decided without the store")

// newStoredLimiter returns what makes a TokenBucket on a store with the options. An
// answer that is not the store's is no decision.
func newStoredLimiter(opts ...redisstore.Option) func(*redis.Client, Limit) (RedisAsk, error) {
	return func(c *redis.Client, l Limit) (RedisAsk, error) {
		limiter, err := storedBucket(c, l, opts...)
		return func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Take(ctx, key, 1)
			if err == nil && res.Degraded {
				err = errDegraded
			}
			return res.Allowed, err
		}, err
	}
}

// openStore returns a store on c that waits as long as c does.
func openStore(c *redis.Client, opts ...redisstore.Option) (*redisstore.Store, error) {
	return redisstore.New(c, append([]redisstore.Option{redisstore.WithTimeout(redisTimeout)}, opts...)...)
}

func storedBucket(c *redis.Client, l Limit, opts ...redisstore.Option) (*ratelimit.TokenBucket, error) {
	store, err := openStore(c, opts...)
	if err != nil {
		return nil, err
	}
	return ratelimit.NewTokenBucket(l.bucket(), l.options(ratelimit.WithStore(store), ratelimit.WithName("bench"))...)
}

// newStore returns what makes a store with the options and asks it for one unit by
// a.
func newStore(a ratelimit.Algorithm, opts ...redisstore.Option) func(*redis.Client, Limit) (RedisAsk, error) {
	return func(c *redis.Client, l Limit) (RedisAsk, error) {
		store, err := openStore(c, opts...)
		return func(ctx context.Context, key string) (bool, error) {
			results, err := store.Take(ctx, []ratelimit.Ask{l.ask(a, key)})
			return err == nil && results[0].Allowed, err
		}, err
	}
}

// ask returns the ask for one unit for key, under a name that is no limiter's.
func (l Limit) ask(a ratelimit.Algorithm, key string) ratelimit.Ask {
	return ratelimit.Ask{Rule: "store", Key: key, Client: key, Algorithm: a, Rate: l.bucket(), N: 1}
}

// newRedisRate makes github.com/go-redis/redis_rate: GCRA in a script.
func newRedisRate(c *redis.Client, l Limit) (RedisAsk, error) {
	limiter := redisrate.NewLimiter(c)
	quota := redisrate.Limit{Rate: l.Rate, Period: l.Per, Burst: l.Burst}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key, quota)
		return err == nil && res.Allowed == 1, err
	}, nil
}

// newRedisThrottled makes GCRA of github.com/throttled/throttled: it reads, decides
// and swaps, and gives up with an error when it has lost that race ten times.
func newRedisThrottled(c *redis.Client, l Limit) (RedisAsk, error) {
	store, err := goredisstore.NewCtx(c, "throttled:")
	if err != nil {
		return nil, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(l.Rate, l.Per),
		MaxBurst: l.Burst - 1, // it allows one more
	})
	return func(ctx context.Context, key string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	}, err
}

// newRedisUlule makes github.com/ulule/limiter: a fixed window in a script, that
// opens with the key's first ask.
func newRedisUlule(c *redis.Client, l Limit) (RedisAsk, error) {
	store, err := ululeredis.NewStore(c)
	if err != nil {
		return nil, err
	}
	limiter := ulule.New(store, ulule.Rate{Period: l.Per, Limit: int64(l.Rate)})
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Get(ctx, key)
		return err == nil && !res.Reached, err
	}, nil
}

// storedAllow asks a TokenBucket with a store as most callers do.
type storedAllow struct{ *ratelimit.TokenBucket }

func (s storedAllow) Allow(key string) bool { return s.TokenBucket.Allow(key).Allowed }

// storedAsk asks a store again and again with what was prepared once, whatever the
// key.
type storedAsk struct {
	store *redisstore.Store
	ctx   context.Context
	asks  []ratelimit.Ask
}

func (s *storedAsk) Allow(string) bool {
	results, err := s.store.Take(s.ctx, s.asks)
	return err != nil || results[0].Allowed // an error is no denial
}

// DeniedByStore returns a limiter with a store, and such a store asked directly,
// both of which have nothing left for a long time and one key, number 0.
func DeniedByStore(s *RedisServer, opts ...redisstore.Option) (limiter, store Subject, err error) {
	l := bucketLimit(Workload{Keys: 1, Outcome: Denied})
	bucket, err := storedBucket(s.Client(), l, opts...)
	if err != nil {
		return nil, nil, err
	}
	direct, err := openStore(s.Client(), opts...)
	if err != nil {
		return nil, nil, err
	}
	asks := []ratelimit.Ask{l.ask(ratelimit.AlgorithmTokenBucket, Varied.Key(0))}
	limiter, store = storedAllow{bucket}, &storedAsk{direct, context.Background(), asks}
	Fill(limiter, Varied, 1)
	Fill(store, Varied, 1)
	return limiter, store, nil
}
