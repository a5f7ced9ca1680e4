package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// config returns a config of a token bucket.
func config(endpoint, rate string) map[string]any {
	return map[string]any{"endpoint": endpoint, "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": rate}}
}

func TestNewFromConfig(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l, err := ratelimit.NewFromConfig([]map[string]any{
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": map[string]any{"capacity": 10, "refillRatePerSecond": 1}},
		{"endpoint": "/login", "key": "user_endpoint", "algorithm": "FIXED_WINDOW", "algoConfig": map[string]any{"maxRequests": 3, "windowMs": 60_000}},
		{"endpoint": "/shadow", "mode": "shadow", "algorithm": "leaky-bucket", "algoConfig": map[string]any{"rate": "1/h"}},
	}, map[string]any{"algorithm": "SlidingLog", "algoConfig": map[string]any{"limit": 2, "windowMs": 1000}}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	require.Equal(t, by("/search", yes(10, 9, sec)), l.Allow("ann", "/search"))
	clock.Advance(500 * ms)
	require.Equal(t, by("/search", yes(10, 8, 1500*ms)), l.Allow("ann", "/search"))
	require.Equal(t, by("/login", yes(3, 2, 59500*ms)), l.Allow("ann", "/login"))
	require.Equal(t, by("default", yes(2, 1, sec)), l.Allow("bob", "/shadow"), "a shadow rule does not stand in for the default rule")
	require.Equal(t, by("default", yes(2, 1, sec)), l.Allow("ann", "/"))

	onlyDefault, err := ratelimit.NewFromConfig(nil, map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "1/h"}})
	require.NoError(t, err)
	assert.Equal(t, 1, onlyDefault.Allow("ann", "/").Limit)

	for _, tt := range []struct {
		configs []map[string]any
		opts    []ratelimit.Option
		want    string
		why     string
	}{
		{nil, nil, "ratelimit: configs is empty: must have at least one config, or there be a default config", "nothing at all"},
		{[]map[string]any{config("/a", "1/x")}, []ratelimit.Option{ratelimit.WithMaxKeys(0)},
			"ratelimit: maxKeys is 0: must be at least 1\nratelimit: configs[0].algoConfig.rate is \"1/x\": its time must be in ns, us, ms, s, m (minutes), h, d or w", "options and rules"},
	} {
		l, err := ratelimit.NewFromConfig(tt.configs, nil, tt.opts...)
		assert.Nil(t, l, tt.why)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
		assert.EqualError(t, err, tt.want, tt.why)
	}
}

// TestReloadKeepsCode reloads a limiter whose rules have code.
func TestReloadKeepsCode(t *testing.T) {
	configs := []map[string]any{config("/resolved", "10/h"), config("/custom", "10/h"), config("/plain", "10/h")}
	fallback := map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "10/h"}}
	rs, def, err := ratelimit.DecodeRules(configs, fallback)
	require.NoError(t, err)
	resolve := func(r ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(3), r.Client == "ann" }
	rs[0].Resolve, def.Resolve = resolve, resolve
	custom, err := ratelimit.NewTokenBucket(ratelimit.PerHour(7))
	require.NoError(t, err)
	rs[1].Limiter = custom
	l, _ := rules(t, rs, def)
	for _, endpoint := range []string{"/resolved", "/custom", "/plain", "/other"} {
		l.Allow("ann", endpoint)
	}

	changed := []map[string]any{config("/plain", "20/h"), config("/resolved", "20/h"), config("/custom", "20/h"), config("/new", "20/h")}
	require.NoError(t, l.Reload(changed, fallback))
	assert.Equal(t, 3, l.Allow("ann", "/resolved").Limit, "the code of the rule of that name")
	assert.Equal(t, 20, l.Allow("bob", "/resolved").Limit, "beside the new rate")
	assert.Equal(t, 20, l.Allow("ann", "/custom").Limit, "a limiter that code has given is told the new rate")
	assert.Equal(t, by("/plain", yes(20, 8, 36*mins)), l.Allow("ann", "/plain"))
	assert.Equal(t, by("/new", yes(20, 19, 3*mins)), l.Allow("ann", "/new"))
	assert.Equal(t, 3, l.Allow("ann", "/other").Limit)

	err = l.Reload([]map[string]any{config("/plain", "30/h"), config("/plain", "40/h"), {"endpoint": "/b"}}, nil)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, "configs[1].endpoint")
	require.ErrorContains(t, err, "configs[2].algorithm")
	assert.Equal(t, by("/plain", yes(20, 7, 39*mins)), l.Allow("ann", "/plain"), "what is refused changes nothing")
}

// A tally grants so many units, ever.
type tally struct{ limit, used int }

func (c *tally) Allow(key string) ratelimit.Result {
	res, _ := c.Take(context.Background(), key, 1)
	return res
}

func (c *tally) Take(_ context.Context, _ string, n int) (ratelimit.Result, error) {
	if c.used+n > c.limit {
		return ratelimit.Result{Limit: c.limit, Remaining: c.limit - c.used, RetryAfter: ratelimit.Never}, nil
	}
	c.used += n
	return ratelimit.Result{Allowed: true, Limit: c.limit, Remaining: c.limit - c.used}, nil
}

// TestReloadOfCustomAlgorithms keeps a limiter that would be made of the same config.
func TestReloadOfCustomAlgorithms(t *testing.T) {
	factory := ratelimit.NewFactory()
	made := 0
	require.NoError(t, factory.Register("Tally", func(c map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		made++
		return &tally{limit: c["limit"].(int)}, nil
	}))
	config := func(limit int) []map[string]any {
		return []map[string]any{{"endpoint": "/", "algorithm": "tally", "algoConfig": map[string]any{"limit": limit}}}
	}
	l, err := ratelimit.NewFromConfig(config(5), nil, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	require.Equal(t, 4, l.Allow("ann", "/").Remaining)
	require.NoError(t, l.Reload(config(5), nil))
	require.Equal(t, 3, l.Allow("ann", "/").Remaining, "the same config: the same limiter")
	require.NoError(t, l.Reload(config(6), nil))
	require.Equal(t, 5, l.Allow("ann", "/").Remaining, "another config: another limiter")
	require.NoError(t, l.Reload([]map[string]any{{"endpoint": "/", "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "2/h"}}}, nil))
	require.Equal(t, by("/", yes(2, 1, 30*mins)), l.Allow("ann", "/"), "an algorithm of this package in place of it")

	_, err = ratelimit.NewFromConfig(config(5), nil)
	require.ErrorContains(t, err, `unknown algorithm`, "without the factory nobody knows it")
	_, err = ratelimit.NewFromConfig(config(5), nil, ratelimit.WithFactory(nil))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
}

// TestFactoryWithAStore makes two limiters that share what is in a store.
func TestFactoryWithAStore(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	factory := ratelimit.NewFactory(ratelimit.WithStore(store), ratelimit.WithClock(clock))
	bucket := map[string]any{"rate": "3/h"}
	_, err = factory.Create(map[string]any{"algorithm": "TokenBucket", "algoConfig": bucket})
	require.ErrorContains(t, err, "ratelimit: name is missing", "a limiter in a store needs a name")
	for left := 2; left >= 0; left-- {
		l, err := factory.Create(map[string]any{"name": "mail", "algorithm": "TokenBucket", "algoConfig": bucket})
		require.NoError(t, err)
		require.Equal(t, yes(3, left, time.Duration(3-left)*20*mins), l.Allow("ann"))
	}
	named := ratelimit.NewFactory(ratelimit.WithStore(store), ratelimit.WithClock(clock), ratelimit.WithName("mail"))
	l, err := named.Create(map[string]any{"algorithm": "TokenBucket", "algoConfig": bucket})
	require.NoError(t, err)
	require.Equal(t, no(3, 0, 20*mins, time.Hour), l.Allow("ann"), "of the same name")
}
