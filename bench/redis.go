package bench

import (
	"context"
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

// A RedisSpec describes a limiter that keeps its state in Redis.
type RedisSpec struct {
	Name  string                                           // what follows "algo=" in the name of a benchmark
	Limit func(Workload) Limit                             // returns the limiter's configuration for a workload
	New   func(c *redis.Client, l Limit) (StoreAsk, error) // returns a new limiter that uses the client c
}

// RedisSpecs returns the limiters with their state in Redis, in the order of the report. This
// module appears twice: as a limiter with a store, and as a store that is called directly.
func RedisSpecs() []RedisSpec {
	return []RedisSpec{
		{"limiter", bucketLimit, newStoredLimiter()},
		{"store", bucketLimit, newStore(ratelimit.AlgorithmTokenBucket)},
		{"redis_rate", bucketLimit, newRedisRate},
		{"throttled", bucketLimit, newRedisThrottled},
		{"ulule", windowLimit, newRedisUlule},
	}
}

// RedisStates returns the limiters whose memory in Redis is compared. These are all algorithms of
// this module with a store, and the peers (limiters of other modules). All of them have a limit of
// 1000 units an hour.
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

// newStoredLimiter returns a function for the field RedisSpec.New. That function makes a
// TokenBucket that keeps its state in a store with the given options. If the TokenBucket decides a
// call without its store, for example after a timeout, the call returns an error.
func newStoredLimiter(opts ...redisstore.Option) func(*redis.Client, Limit) (StoreAsk, error) {
	return func(c *redis.Client, l Limit) (StoreAsk, error) {
		limiter, err := storedBucket(c, l, opts...)
		if err != nil {
			return nil, err
		}
		return takeStored(limiter), nil
	}
}

// openStore returns a store that calls Redis through the client c. The store and the client have
// the same timeout.
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

// newStore returns a function for the field RedisSpec.New. That function makes a store with the
// given options. Each call for a key then requests one unit from this store, by the given
// algorithm.
func newStore(a ratelimit.Algorithm, opts ...redisstore.Option) func(*redis.Client, Limit) (StoreAsk, error) {
	return func(c *redis.Client, l Limit) (StoreAsk, error) {
		store, err := openStore(c, opts...)
		return func(ctx context.Context, key string) (bool, error) {
			results, err := store.Take(ctx, []ratelimit.Ask{l.ask(a, key)})
			return err == nil && results[0].Allowed, err
		}, err
	}
}

// ask returns an ask (a request to a store) for one unit of the key, with the given algorithm and
// the rule name "store".
func (l Limit) ask(a ratelimit.Algorithm, key string) ratelimit.Ask {
	return ratelimit.Ask{Rule: "store", Key: key, Client: key, Algorithm: a, Rate: l.bucket(), N: 1}
}

// newRedisRate makes a limiter of github.com/go-redis/redis_rate, which runs the algorithm GCRA in
// a script.
func newRedisRate(c *redis.Client, l Limit) (StoreAsk, error) {
	limiter := redisrate.NewLimiter(c)
	quota := redisrate.Limit{Rate: l.Rate, Period: l.Per, Burst: l.Burst}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key, quota)
		return err == nil && res.Allowed == 1, err
	}, nil
}

// newRedisThrottled makes the GCRA limiter of github.com/throttled/throttled. The limiter reads the
// state and decides. Then it replaces the state, unless another caller has changed the state in the
// meantime. After ten failed attempts it returns an error.
func newRedisThrottled(c *redis.Client, l Limit) (StoreAsk, error) {
	store, err := goredisstore.NewCtx(c, "throttled:")
	if err != nil {
		return nil, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(l.Rate, l.Per),
		MaxBurst: l.Burst - 1, // MaxBurst does not count the first unit of a burst
	})
	return func(ctx context.Context, key string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return err == nil && !limited, err
	}, err
}

// newRedisUlule makes a limiter of github.com/ulule/limiter, which counts in fixed windows in a
// script. A window begins with the key's first call.
func newRedisUlule(c *redis.Client, l Limit) (StoreAsk, error) {
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

// storedAllow calls Allow of a TokenBucket with a store, as most callers do.
type storedAllow struct{ *ratelimit.TokenBucket }

func (s storedAllow) Allow(key string) bool { return s.TokenBucket.Allow(key).Allowed }

// storedAsk calls Take of a store with the same asks (requests for units) each time, and ignores
// the key.
type storedAsk struct {
	store *redisstore.Store
	ctx   context.Context
	asks  []ratelimit.Ask
}

func (s *storedAsk) Allow(string) bool {
	results, err := s.store.Take(s.ctx, s.asks)
	return err != nil || results[0].Allowed // true for an error, because an error is not a denial
}

// DeniedByStore returns two subjects: a limiter with a store, and a store that is called directly.
// Each has used the only unit of key number 0, so that further calls for this key are denied for
// days.
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
