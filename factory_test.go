package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestFactoryCreates proves which limiter Create makes of each config.
func TestFactoryCreates(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	f := ratelimit.NewFactory(ratelimit.WithClock(clock))
	for _, tt := range []struct {
		algorithm string
		config    fields
		want      ratelimit.Limiter // of the type that Create must return
		first     ratelimit.Result
	}{
		{"TokenBucket", fields{"capacity": 3, "refillRatePerSecond": 0.5}, &ratelimit.TokenBucket{}, yes(3, 2, 2*sec)},
		{"FixedWindow", fields{"maxRequests": 3, "windowMs": 1000}, &ratelimit.FixedWindow{}, yes(3, 2, sec)},
		{"SlidingWindowLog", fields{"limit": 3, "windowSeconds": 1}, &ratelimit.SlidingWindowLog{}, yes(3, 2, sec)},
		{"SlidingWindowCounter", fields{"rate": "3/s"}, &ratelimit.SlidingWindowCounter{}, yes(3, 2, 2*sec)},
		{"LeakyBucket", fields{"capacity": 3, "leakRatePerSecond": 1}, &ratelimit.LeakyBucket{}, yes(3, 2, sec)},
	} {
		config := with(ruleOf(tt.algorithm, tt.config), fields{
			"name": 5, "key": 5, "mode": 5, "tiers": 5, "onStoreError": 5, // ignored
		})
		before := maps.Clone(config)
		l, err := f.Create(config)
		require.NoError(t, err)
		require.IsType(t, tt.want, l)
		require.Equal(t, tt.first, l.Allow("key"), tt.algorithm)
		require.Equal(t, before, config)

		other, err := f.Create(config)
		require.NoError(t, err)
		require.Equal(t, tt.first, other.Allow("key"), "%s: each limiter has state of its own", tt.algorithm)
	}
}

// TestFactoryWithoutConstructor proves what a zero and a nil Factory do.
func TestFactoryWithoutConstructor(t *testing.T) {
	config := ruleOf("FixedWindow", fields{"rate": "3/s"})
	var none *ratelimit.Factory
	l, err := none.Create(config)
	require.NoError(t, err)
	require.True(t, l.Allow("key").Allowed)
	require.EqualError(t, none.Register("Custom", buildSame), "ratelimit: factory is nil: must be made by NewFactory")

	var zero ratelimit.Factory
	l, err = zero.Create(config)
	require.NoError(t, err)
	require.True(t, l.Allow("key").Allowed)
	require.NoError(t, zero.Register("Custom", buildSame))
	l, err = zero.Create(ruleOf("CUSTOM", fields{}))
	require.NoError(t, err)
	require.Equal(t, sameLimiter{}, l)
	_, err = zero.Create(config)
	require.NoError(t, err, "the others are still there")
	_, err = none.Create(ruleOf("Custom", fields{}))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "but not elsewhere")
}

// buildSame is a BuildFunc that returns a sameLimiter.
func buildSame(fields, ratelimit.Env) (ratelimit.Limiter, error) { return sameLimiter{}, nil }

// TestFactoryRefuses proves which configs and options Create refuses.
func TestFactoryRefuses(t *testing.T) {
	var noStore ratelimit.Store
	store := ratelimit.WithStore(deadStore{})
	bucket := fields{"capacity": 1, "refillRatePerSecond": 1}
	for _, tt := range []struct {
		why    string
		opts   []ratelimit.Option
		config fields
		want   string
	}{
		{"nothing", nil, nil, "ratelimit: config is nil: must be a map that has algorithm and algoConfig"},
		{"paths begin at the config", nil, ruleOf("TokenBucket", fields{"capacity": 0, "refillRatePerSecond": -1}),
			"ratelimit: algoConfig.capacity is 0: must be at least 1\nratelimit: algoConfig.refillRatePerSecond is -1: must be above 0"},
		{"an unknown field", nil, with(ruleOf("TokenBucket", bucket), fields{"algorythm": 1, "a b": 2}),
			"ratelimit: [\"a b\"] is 2: unknown field\nratelimit: algorythm is 1: unknown field; did you mean \"algorithm\"?"},
		{"no algorithm", nil, fields{"algoConfig": bucket},
			`ratelimit: algorithm is missing: must be one of "FixedWindow", "InFlight", "LeakyBucket", "SlidingWindowCounter", ` +
				`"SlidingWindowLog", ` +
				`"TokenBucket"`},
		{"no algoConfig", nil, fields{"algorithm": "TokenBucket"}, "ratelimit: algoConfig is missing: must be a map that says what the limit is"},
		{"the options of the factory", []ratelimit.Option{ratelimit.WithMaxKeys(0), nil},
			ruleOf("TokenBucket", fields{"capacity": 0, "refillRatePerSecond": 1}),
			"ratelimit: algoConfig.capacity is 0: must be at least 1\nratelimit: maxKeys is 0: must be at least 1\nratelimit: options[1] is " +
				"<nil>: must not be nil"},
		{"the options alone", []ratelimit.Option{ratelimit.WithMaxKeys(0)}, ruleOf("TokenBucket", bucket),
			"ratelimit: maxKeys is 0: must be at least 1"},
		{"the options, for a custom algorithm", []ratelimit.Option{ratelimit.WithMaxKeys(0)}, ruleOf("Custom", fields{}),
			"ratelimit: maxKeys is 0: must be at least 1"},
		{"no store", []ratelimit.Option{ratelimit.WithStore(noStore)}, ruleOf("TokenBucket", bucket),
			"ratelimit: store is <nil>: must not be nil"},
		{"a store without a name", []ratelimit.Option{store}, ruleOf("TokenBucket", bucket),
			"ratelimit: name is missing: must be given: it is a part of every key in the store"},
		{"a store with a bad name", []ratelimit.Option{store}, with(ruleOf("TokenBucket", bucket), fields{"name": "a:b"}),
			`ratelimit: name is "a:b": must not have a ":"`},
		{"a store with no string for a name", []ratelimit.Option{store}, with(ruleOf("TokenBucket", bucket), fields{"name": 5}),
			`ratelimit: name is 5: must be a string`},
		{"a store for a custom algorithm", []ratelimit.Option{store}, with(ruleOf("Custom", fields{}), fields{"name": "a"}),
			`ratelimit: algorithm is "Custom": must be one of "FixedWindow", "InFlight", "LeakyBucket", "SlidingWindowCounter", ` +
				`"SlidingWindowLog", ` +
				`"TokenBucket": the state is in a store`},
	} {
		t.Run(tt.why, func(t *testing.T) {
			f := ratelimit.NewFactory(tt.opts...)
			if strings.Contains(tt.want, "Custom") || tt.config["algorithm"] == "Custom" {
				require.NoError(t, f.Register("Custom", buildSame))
			}
			l, err := f.Create(tt.config)
			require.EqualError(t, err, tt.want)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			require.Nil(t, l)
		})
	}
}

// A deadStore fails each call.
type deadStore struct{}

func (deadStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, ratelimit.ErrStore
}

func (deadStore) Reset(context.Context, []ratelimit.Ask) error { return ratelimit.ErrStore }

// TestFactoryNamesItsStoredLimiters proves that a limiter in a store gets its name from the Factory
// or from the config.
func TestFactoryNamesItsStoredLimiters(t *testing.T) {
	config := ruleOf("TokenBucket", fields{"rate": "1/s"})
	_, err := ratelimit.NewFactory(ratelimit.WithStore(deadStore{}), ratelimit.WithName("mine")).Create(config)
	require.NoError(t, err, "the factory's name")
	_, err = ratelimit.NewFactory(ratelimit.WithStore(deadStore{})).Create(with(config, fields{"name": "theirs"}))
	require.NoError(t, err, "the config's name")
}

// TestRegister proves which names Register accepts, and how configs may spell them.
func TestRegister(t *testing.T) {
	f := ratelimit.NewFactory()
	require.NoError(t, f.Register("My_Own", buildSame))
	for _, tt := range []struct {
		name  string
		build ratelimit.BuildFunc
		want  string
		why   string
	}{
		{"", buildSame, `ratelimit: algorithm is "": must be a name`, "no name"},
		{"_-", buildSame, `ratelimit: algorithm is "_-": must be a name`, "nothing but what is not read"},
		{strings.Repeat("x", 101), buildSame, `ratelimit: algorithm is "` + strings.Repeat("x", 55) + `...": must be at most 100 bytes long`,
			"too long"},
		{"Other", nil, "ratelimit: build is nil: must be a function that makes a limiter", "no function"},
		{"TokenBucket", buildSame, `ratelimit: algorithm is "TokenBucket": must be another name: this one is that of "TokenBucket"`,
			"one of the five"},
		{"token-bucket", buildSame, `ratelimit: algorithm is "token-bucket": must be another name: this one is that of "TokenBucket"`,
			"in another spelling"},
		{"FIXED_WINDOW_COUNTER", buildSame, `ratelimit: algorithm is "FIXED_WINDOW_COUNTER": must be another name: this one is that of ` +
			`"FixedWindow"`, "by another name"},
		{"myOwn", buildSame, `ratelimit: algorithm is "myOwn": must be another name: this one is that of "My_Own"`, "registered before"},
	} {
		err := f.Register(tt.name, tt.build)
		require.EqualError(t, err, tt.want, tt.why)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
	}
	for _, spelling := range []string{"My_Own", "MyOwn", "MY_OWN", "my-own"} {
		r := decoded(t, ruleOf(spelling, fields{"x": 1}), ratelimit.WithFactory(f))
		require.Equal(t, ratelimit.Algorithm("My_Own"), r.Algorithm)
		require.Equal(t, sameLimiter{}, r.Limiter)
		algoConfig, l := ratelimit.CustomOf(r)
		require.Equal(t, fields{"x": 1}, algoConfig)
		require.Equal(t, r.Limiter, l)
	}
	_, _, err := ratelimit.DecodeRules([]fields{ruleOf("MyOwm", fields{}), ruleOf("x", fields{})}, nil, ratelimit.WithFactory(f))
	require.EqualError(t, err, `ratelimit: configs[0].algorithm is "MyOwm": unknown algorithm; did you mean "My_Own"?`+
		"\n"+`ratelimit: configs[1].algorithm is "x": unknown algorithm: must be one of "FixedWindow", "InFlight", "LeakyBucket", `+
		`"SlidingWindowCounter", `+
		`"SlidingWindowLog", "TokenBucket", "My_Own"`+
		"\n"+`ratelimit: configs[1].endpoint is "/a": is that of configs[0]: rules that share an endpoint need names`)
}

// TestBuildEnv proves what a BuildFunc gets in its Env.
func TestBuildEnv(t *testing.T) {
	var got []ratelimit.Env
	build := func(_ fields, env ratelimit.Env) (ratelimit.Limiter, error) {
		got = append(got, env)
		return sameLimiter{}, nil
	}
	clock := ratelimit.NewFakeClock(epoch)
	for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithClock(clock), ratelimit.WithMaxKeys(7)}} {
		f := ratelimit.NewFactory(opts...)
		require.NoError(t, f.Register("Custom", build))
		_, err := f.Create(ruleOf("Custom", fields{}))
		require.NoError(t, err)
		_, _, err = ratelimit.DecodeRules([]fields{ruleOf("Custom", fields{})}, nil, append(opts, ratelimit.WithFactory(f))...)
		require.NoError(t, err)
	}
	require.Len(t, got, 4)
	require.Equal(t, 1<<20, got[0].MaxKeys)
	require.NotNil(t, got[0].Clock)
	before := time.Now()
	require.False(t, got[0].Clock.Now().Before(before), "the machine's clock")
	require.Equal(t, got[0], got[1])
	require.Equal(t, ratelimit.Env{Clock: clock, MaxKeys: 7}, got[2])
	require.Equal(t, got[2], got[3])
}

// TestFactoryOptions proves that a RateLimiter takes the options of its Factory, and refuses
// options that differ from them.
func TestFactoryOptions(t *testing.T) {
	clock, other := ratelimit.NewFakeClock(epoch), ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	custom := ruleOf("Custom", fields{})
	one := fields{"algorithm": "FixedWindow", "rate": "1/h"}
	var env ratelimit.Env
	factory := func(opts ...ratelimit.Option) ratelimit.Option {
		f := ratelimit.NewFactory(opts...)
		require.NoError(t, f.Register("Custom", func(_ fields, e ratelimit.Env) (ratelimit.Limiter, error) {
			env = e
			return sameLimiter{}, nil
		}))
		return ratelimit.WithFactory(f)
	}
	for _, tt := range []struct {
		why  string
		opts []ratelimit.Option
		want ratelimit.Env
	}{
		{"those of the Factory", []ratelimit.Option{factory(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(7))},
			ratelimit.Env{Clock: clock, MaxKeys: 7}},
		{"those of the limiter", []ratelimit.Option{ratelimit.WithClock(clock), factory(), ratelimit.WithMaxKeys(7)},
			ratelimit.Env{Clock: clock, MaxKeys: 7}},
		{"one of each", []ratelimit.Option{factory(ratelimit.WithMaxKeys(7)), ratelimit.WithClock(clock)},
			ratelimit.Env{Clock: clock, MaxKeys: 7}},
		{"the same in both", []ratelimit.Option{factory(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(7)), ratelimit.WithClock(clock),
			ratelimit.WithMaxKeys(7)}, ratelimit.Env{Clock: clock, MaxKeys: 7}},
	} {
		env = ratelimit.Env{}
		_, err := ratelimit.NewFromConfig([]fields{custom}, nil, tt.opts...)
		require.NoError(t, err, tt.why)
		require.Equal(t, tt.want, env, tt.why)
	}
	l, err := ratelimit.NewFromConfig(nil, one, factory(ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("shared")))
	require.NoError(t, err)
	require.True(t, l.Allow("alice", "/").Allowed)
	l, err = ratelimit.NewFromConfig(nil, one, ratelimit.WithStore(store), ratelimit.WithName("shared"))
	require.NoError(t, err)
	require.False(t, l.Allow("alice", "/").Allowed, "the first one had the store of its Factory")
	l, err = ratelimit.NewFromConfig(nil, one, factory(ratelimit.WithClock(clock)))
	require.NoError(t, err)
	require.True(t, l.Allow("alice", "/").Allowed)
	clock.Advance(time.Hour)
	require.True(t, l.Allow("alice", "/").Allowed, "all rules have its clock")

	for _, tt := range []struct {
		why  string
		f    ratelimit.Option
		opts []ratelimit.Option
		want string
	}{
		{"everything differs", factory(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(7), ratelimit.WithStore(store), ratelimit.WithName("f"),
			ratelimit.WithFailurePolicy(ratelimit.FailOpen)),
			[]ratelimit.Option{ratelimit.WithClock(other), ratelimit.WithMaxKeys(8), ratelimit.WithStore(deadStore{}), ratelimit.WithName("l"),
				ratelimit.WithFailurePolicy(ratelimit.FailClosed)},
			"factory.clock is a *ratelimit.FakeClock: must not differ from that of the limiter, which is a *ratelimit.FakeClock\n" +
				"factory.maxKeys is 7: must not differ from that of the limiter, which is 8\n" +
				"factory.store is a *ratelimit.MemoryStore: must not differ from that of the limiter, which is a ratelimit_test.deadStore\n" +
				"factory.name is \"f\": must not differ from that of the limiter, which is \"l\"\n" +
				"factory.failurePolicy is open: must not differ from that of the limiter, which is closed"},
		{"the options of either are bad", factory(ratelimit.WithMaxKeys(0), nil), []ratelimit.Option{ratelimit.WithMaxKeys(-1)},
			"maxKeys is -1: must be at least 1\nfactory.maxKeys is 0: must be at least 1\nfactory.options[1] is <nil>: must not be nil"},
		{"a Factory in a Factory", factory(factory()), nil, "factory.factory is set: must not be an option of a Factory"},
	} {
		_, err := ratelimit.New(nil, nil, append(tt.opts, tt.f)...)
		require.EqualError(t, err, "ratelimit: "+strings.ReplaceAll(tt.want, "\n", "\nratelimit: "), tt.why)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
	}
	_, err = ratelimit.NewFactory(factory()).Create(one)
	require.EqualError(t, err, "ratelimit: factory is set: must not be an option of a Factory")
}

// A funcLimiter, a mapLimiter, a sliceLimiter and a chanLimiter are Limiters of types that have a
// nil value. Such a nil value is not equal to a nil Limiter.
type (
	funcLimiter  func()
	mapLimiter   map[string]int
	sliceLimiter []int
	chanLimiter  chan int
)

func (funcLimiter) Allow(string) (res ratelimit.Result)  { return }
func (mapLimiter) Allow(string) (res ratelimit.Result)   { return }
func (sliceLimiter) Allow(string) (res ratelimit.Result) { return }
func (chanLimiter) Allow(string) (res ratelimit.Result)  { return }

func (funcLimiter) Take(context.Context, string, int) (res ratelimit.Result, err error)  { return }
func (mapLimiter) Take(context.Context, string, int) (res ratelimit.Result, err error)   { return }
func (sliceLimiter) Take(context.Context, string, int) (res ratelimit.Result, err error) { return }
func (chanLimiter) Take(context.Context, string, int) (res ratelimit.Result, err error)  { return }

// A funcClock is a Clock of a function type. A nil funcClock is not a nil Clock.
type funcClock func() time.Time

func (f funcClock) Now() time.Time { return f() }

// TestTypedNilsAreRefused proves that a nil value of any type is refused as a limiter, clock, store
// or observer.
func TestTypedNilsAreRefused(t *testing.T) {
	for kind, l := range map[string]ratelimit.Limiter{
		"pointer": (*ratelimit.TokenBucket)(nil), "func": funcLimiter(nil), "map": mapLimiter(nil), "slice": sliceLimiter(nil),
		"chan": chanLimiter(nil),
	} {
		_, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/a", Limiter: l}}, nil)
		require.EqualError(t, err, "ratelimit: rules[0].limiter is <nil>: must not be a nil "+kind)
		f := ratelimit.NewFactory()
		require.NoError(t, f.Register("Custom", func(fields, ratelimit.Env) (ratelimit.Limiter, error) { return l, nil }))
		_, err = f.Create(ruleOf("Custom", fields{}))
		require.EqualError(t, err, `ratelimit: algorithm is "Custom": its BuildFunc returned neither a limiter nor an error`, kind)
	}
	_, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/a", Limiter: mapLimiter{}}}, nil)
	require.NoError(t, err, "an empty map is not nil")
	_, err = ratelimit.NewTokenBucket(ratelimit.PerSecond(1), ratelimit.WithClock(funcClock(nil)))
	require.EqualError(t, err, "ratelimit: clock is <nil>: must not be nil")
}

var errTenant = errors.New("no such tenant")

// TestBuildFails proves how the error or the panic of a BuildFunc is reported.
func TestBuildFails(t *testing.T) {
	field := &ratelimit.ConfigError{Field: "tenant", Value: 5, Reason: "must be known"}
	for _, tt := range []struct {
		why   string
		build ratelimit.BuildFunc
		want  string
		is    error
	}{
		{"an error", func(fields, ratelimit.Env) (ratelimit.Limiter, error) { return nil, fmt.Errorf("asked: %w", errTenant) },
			`algoConfig is refused by "Custom": asked: no such tenant`, errTenant},
		{"an error of several lines", func(fields, ratelimit.Env) (ratelimit.Limiter, error) {
			return nil, errors.Join(errTenant, errors.New("\x00"))
		}, `algoConfig is refused by "Custom": no such tenant  `, errTenant},
		{"a long error", func(fields, ratelimit.Env) (ratelimit.Limiter, error) {
			return nil, errors.New(strings.Repeat("é", 1000))
		},
			`algoConfig is refused by "Custom": ` + strings.Repeat("é", 248) + "...", ratelimit.ErrInvalidConfig},
		{"a field", func(fields, ratelimit.Env) (ratelimit.Limiter, error) { return nil, field },
			"algoConfig.tenant is 5: must be known", field},
		{"fields of a limiter within", func(_ fields, env ratelimit.Env) (ratelimit.Limiter, error) {
			return ratelimit.NewTokenBucket(ratelimit.Rate{}, ratelimit.WithClock(env.Clock))
		}, "algoConfig.requests is 0: must be at least 1\nalgoConfig.per is 0s: must be longer than zero", ratelimit.ErrInvalidConfig},
		{"a field, and more to say", func(fields, ratelimit.Env) (ratelimit.Limiter, error) {
			return nil, fmt.Errorf("%w (%w)", field, errTenant)
		},
			`algoConfig is refused by "Custom": ratelimit: tenant is 5: must be known (no such tenant)`, errTenant},
		{"a limiter within that another factory refuses", func(_ fields, _ ratelimit.Env) (ratelimit.Limiter, error) {
			inner := ratelimit.NewFactory()
			err := inner.Register("Inner", func(fields, ratelimit.Env) (ratelimit.Limiter, error) { return nil, errTenant })
			if err != nil {
				return nil, err
			}
			return inner.Create(ruleOf("Inner", fields{}))
		}, `algoConfig.algoConfig is refused by "Inner": no such tenant`, errTenant},
		{"a panic", func(c fields, _ ratelimit.Env) (ratelimit.Limiter, error) { panic(errTenant) },
			`algorithm is "Custom": its BuildFunc panicked: no such tenant`, errTenant},
		{"a panic of the runtime", func(c fields, _ ratelimit.Env) (ratelimit.Limiter, error) { _ = c["x"].(string); return nil, nil },
			`algorithm is "Custom": its BuildFunc panicked: interface conversion: interface {} is nil, not string`, ratelimit.ErrInvalidConfig},
		{"nothing", func(fields, ratelimit.Env) (ratelimit.Limiter, error) { return nil, nil },
			`algorithm is "Custom": its BuildFunc returned neither a limiter nor an error`, ratelimit.ErrInvalidConfig},
		{"a nil pointer", func(fields, ratelimit.Env) (ratelimit.Limiter, error) { return (*ratelimit.TokenBucket)(nil), nil },
			`algorithm is "Custom": its BuildFunc returned neither a limiter nor an error`, ratelimit.ErrInvalidConfig},
	} {
		t.Run(tt.why, func(t *testing.T) {
			f := ratelimit.NewFactory()
			require.NoError(t, f.Register("Custom", tt.build))
			l, err := f.Create(ruleOf("Custom", fields{}))
			require.Nil(t, l)
			require.EqualError(t, err, "ratelimit: "+strings.ReplaceAll(tt.want, "\n", "\nratelimit: "))
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			require.ErrorIs(t, err, tt.is)
			var first *ratelimit.ConfigError
			require.ErrorAs(t, err, &first)
			require.True(t, strings.HasPrefix(tt.want, first.Field+" is "), first.Field)

			_, _, err = ratelimit.DecodeRules([]fields{ruleOf("Custom", fields{})}, nil, ratelimit.WithFactory(f))
			require.EqualError(t, err, "ratelimit: configs[0]."+strings.ReplaceAll(tt.want, "\n", "\nratelimit: configs[0]."))
			require.ErrorIs(t, err, tt.is)
		})
	}
}

// TestFactoryIsConcurrent uses one Factory from several goroutines, for the race detector.
func TestFactoryIsConcurrent(t *testing.T) {
	f := ratelimit.NewFactory()
	require.NoError(t, f.Register("Nested", func(c fields, _ ratelimit.Env) (ratelimit.Limiter, error) {
		return f.Create(c["inner"].(fields)) // works, because no lock is held
	}))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprint("Custom", i)
			for range 50 {
				_, err := f.Create(ruleOf("Nested", fields{"inner": ruleOf("TokenBucket", fields{"rate": "1/s"})}))
				assert.NoError(t, err)
				_, err = f.Create(ruleOf(name, fields{}))
				assert.Error(t, err)
			}
			assert.NoError(t, f.Register(name, buildSame))
			_, err := f.Create(ruleOf(name, fields{}))
			assert.NoError(t, err)
		})
	}
	all.Wait()
}

// TestFactoryWithAStore proves that two limiters that a Factory makes with one store and one name
// share their state.
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
		require.Equal(t, yes(3, left, time.Duration(3-left)*20*minute), l.Allow("ann"))
	}
	named := ratelimit.NewFactory(ratelimit.WithStore(store), ratelimit.WithClock(clock), ratelimit.WithName("mail"))
	l, err := named.Create(map[string]any{"algorithm": "TokenBucket", "algoConfig": bucket})
	require.NoError(t, err)
	require.Equal(t, no(3, 0, 20*minute, time.Hour), l.Allow("ann"), "of the same name")
}
