package ratelimit_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// inBubble runs test in a synctest bubble, in which a call that hangs is a deadlock and fails
// the test at once.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			test(t)
		}()
		<-done
	})
}

// A gauge is a custom limiter with a rate. It remembers the rates that it is told, and that it
// was closed.
type gauge struct {
	custom
	told   []ratelimit.Rate
	closed int
	tell   func(r ratelimit.Rate) error // called by SetRate, if it is not nil
	close  func()                       // called by Close, if it is not nil
}

func (g *gauge) SetRate(r ratelimit.Rate) error {
	g.told = append(g.told, r)
	if g.tell != nil {
		return g.tell(r)
	}
	return nil
}

func (g *gauge) Close() error {
	g.closed++
	if g.close != nil {
		g.close()
	}
	return errFault
}

func newGauge() *gauge { return &gauge{custom: answering(yes(7, 3, sec), nil)} }

// gauges returns a factory with the algorithm Gauge, and the gauges that it has made. hook is
// called each time before one is made, if it is not nil.
func gauges(t *testing.T, hook func(config map[string]any) error) (*ratelimit.Factory, *[]*gauge) {
	made := new([]*gauge)
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Gauge", func(config map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		if hook != nil {
			if err := hook(config); err != nil {
				return nil, err
			}
		}
		*made = append(*made, newGauge())
		return (*made)[len(*made)-1], nil
	}))
	return factory, made
}

// gaugeConfig returns the config of a rule of the algorithm Gauge.
func gaugeConfig(endpoint string, limit any) map[string]any {
	return map[string]any{"endpoint": endpoint, "algorithm": "Gauge", "algoConfig": map[string]any{"limit": limit}}
}

// closed returns how often each of made was closed.
func closed(made []*gauge) (times []int) {
	for _, g := range made {
		times = append(times, g.closed)
	}
	return times
}

// names returns the names of the rules of l, the default rule last.
func names(l *ratelimit.RateLimiter) (names []string) {
	rules, defaultRule := l.Rules()
	for _, r := range rules {
		names = append(names, r.Name)
	}
	if defaultRule != nil {
		names = append(names, defaultRule.Name)
	}
	return names
}

// TestBuildFuncThatChangesRules proves that a BuildFunc may change the rules while a change of
// them calls it: its own change comes first, and it is called once.
func TestBuildFuncThatChangesRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		factory, made := gauges(t, func(map[string]any) error {
			if l == nil {
				return nil
			}
			return l.AddRule(ratelimit.Rule{Name: fmt.Sprintf("inner%d", len(names(l))), Rate: ratelimit.PerHour(1)})
		})
		l = newRules(t, nil, nil, ratelimit.WithFactory(factory))
		require.NoError(t, l.SetConfig(gaugeConfig("/a", 1)))
		require.Equal(t, []string{"inner0", "/a"}, names(l), "the inner change is made before the outer one")
		require.NoError(t, l.SetConfig(gaugeConfig("/a", 2)))
		require.Equal(t, []string{"inner0", "/a", "inner2"}, names(l))
		require.NoError(t, l.Reload([]map[string]any{gaugeConfig("/a", 3), gaugeConfig("/b", 3)}, nil))
		require.Equal(t, []string{"/a", "/b"}, names(l), "a Reload replaces what its own BuildFuncs have added")
		require.Equal(t, []int{1, 1, 0, 0}, closed(*made))
	})
}

// TestSupportsThatChangesRules proves that Supports of a store may change the rules while a
// change of them calls it.
func TestSupportsThatChangesRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		asked := 0
		store := &askedStore{faultyStore: newFaultyStore(t, nil), supports: func(ratelimit.Algorithm, ratelimit.Rate) error {
			if asked++; l != nil && asked < 10 {
				return errors.Join(l.RemoveRule("gone"), l.AddRule(ratelimit.Rule{Name: fmt.Sprint("inner", asked), Rate: ratelimit.PerHour(asked)}))
			}
			return nil
		}}
		rule := ratelimit.Rule{Name: "gone", Rate: ratelimit.PerHour(1)}
		first := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"))
		require.Equal(t, 1, asked)
		asked, l = 8, first
		require.NoError(t, l.AddRule(ratelimit.Rule{Name: "outer", Rate: ratelimit.PerHour(100)}))
		require.Equal(t, []string{"inner9", "outer"}, names(l))
		require.Equal(t, 10, asked, "once for each rate")
	})
}

// TestSetRateThatChangesRules proves that SetRate of a custom limiter may change the rules while
// a change of them calls it, and that the rule and its limiter end with the same rate.
func TestSetRateThatChangesRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGauge()
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: g, Rate: ratelimit.PerHour(1)}}, nil)
		inner := 0
		g.tell = func(ratelimit.Rate) error {
			if inner++; inner == 1 {
				return errors.Join(l.UpdateRate("/a", ratelimit.PerHour(2)), l.SetDefaultRule(ratelimit.Rule{Rate: ratelimit.PerHour(9)}))
			}
			return nil
		}
		require.NoError(t, l.UpdateRate("/a", ratelimit.PerHour(5)))
		require.Equal(t, []ratelimit.Rate{ratelimit.PerHour(5), ratelimit.PerHour(2), ratelimit.PerHour(5)}, g.told,
			"the inner change has told another rate, so the outer one tells its own again")
		rules, _ := l.Rules()
		require.Equal(t, ratelimit.PerHour(5), rules[0].Rate)
		require.Equal(t, []string{"/a", "default"}, names(l))
	})
}

// TestSetRateThatNeverRests proves that a SetRate which changes its own rule each time makes the
// change fail, and not go on for ever.
func TestSetRateThatNeverRests(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGauge()
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: g, Rate: ratelimit.PerHour(1)}}, nil)
		g.tell = func(r ratelimit.Rate) error {
			if r == ratelimit.PerHour(5) {
				return l.UpdateRate("/a", ratelimit.PerHour(2))
			}
			return nil
		}
		err := l.UpdateRate("/a", ratelimit.PerHour(5))
		require.EqualError(t, err, "ratelimit: rules is changed 100 times: must not be changed by each SetRate that the change calls")
		rules, _ := l.Rules()
		require.Equal(t, ratelimit.PerHour(2), rules[0].Rate)
		require.Equal(t, ratelimit.PerHour(2), g.told[len(g.told)-1], "the limiter has the rate of its rule")
	})
}

// TestResolveAndCloseThatChangeRules proves that Resolve may change the rules in a decision, and
// Close in a change, whose rules are in force by then.
func TestResolveAndCloseThatChangeRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		factory, made := gauges(t, nil)
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/r", Rate: ratelimit.PerHour(3)}}, nil, ratelimit.WithFactory(factory))
		rule := ratelimit.Rule{Endpoint: "/r", Rate: ratelimit.PerHour(3), Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
			_ = l.RemoveRule("/r")
			return ratelimit.Rate{}, false
		}}
		require.NoError(t, l.SetRule(rule))
		require.Equal(t, "/r", l.Allow("c", "/r").Rule, "a decision goes by the rules that it began with")
		require.Equal(t, unlimited, l.Allow("c", "/r"))

		require.NoError(t, l.SetConfig(gaugeConfig("/a", 1)))
		(*made)[0].close = func() {
			require.Empty(t, names(l), "the change is made")
			require.NoError(t, l.AddRule(ratelimit.Rule{Name: "by Close", Rate: ratelimit.PerHour(1)}))
			panic(errFault)
		}
		require.NoError(t, l.RemoveRule("/a"), "neither the error nor the panic of Close undoes it")
		require.Equal(t, []string{"by Close"}, names(l))
		require.Equal(t, []int{1}, closed(*made))
	})
}

// TestHooksThatPanic proves that the panic of a hook reaches the caller of the change, that
// nothing has changed, and that nothing is left locked.
func TestHooksThatPanic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, other := newGauge(), newGauge()
		l := newRules(t, []ratelimit.Rule{
			{Endpoint: "/other", Limiter: other, Rate: ratelimit.PerHour(1)},
			{Endpoint: "/a", Limiter: g, Rate: ratelimit.PerHour(1)},
		}, nil)
		g.tell = func(r ratelimit.Rate) error {
			if r == ratelimit.PerHour(5) {
				panic(errFault)
			}
			return nil
		}
		rules, _ := l.Rules()
		changed := []ratelimit.Rule{rules[0], rules[1]}
		changed[0].Rate, changed[1].Rate = ratelimit.PerHour(5), ratelimit.PerHour(5)
		require.PanicsWithValue(t, errFault, func() { _ = l.Replace(changed, nil) })
		after, _ := l.Rules()
		require.Equal(t, ratelimit.PerHour(1), after[0].Rate)
		require.Equal(t, []ratelimit.Rate{ratelimit.PerHour(5), ratelimit.PerHour(1)}, other.told, "a rate that was told is taken back")
		require.NoError(t, l.UpdateRate("/a", ratelimit.PerHour(6)), "nothing is left locked")
	})
}

// TestRatesOfCustomLimiters proves when a custom limiter is told the rate of its rule, and that
// all changes which would need it are errors if it cannot be told.
func TestRatesOfCustomLimiters(t *testing.T) {
	one, five := ratelimit.PerHour(1), ratelimit.PerHour(5)
	deaf := answering(yes(7, 3, sec), nil)
	for _, row := range []struct {
		change func(l *ratelimit.RateLimiter, r ratelimit.Rule) error
		told   []ratelimit.Rate
		why    string
	}{
		{func(l *ratelimit.RateLimiter, _ ratelimit.Rule) error { return l.UpdateRate("/a", five) }, []ratelimit.Rate{five}, "UpdateRate"},
		{func(l *ratelimit.RateLimiter, r ratelimit.Rule) error { return l.SetRule(r) }, []ratelimit.Rate{five}, "SetRule"},
		{func(l *ratelimit.RateLimiter, r ratelimit.Rule) error { return l.Replace([]ratelimit.Rule{r}, nil) }, []ratelimit.Rate{five}, "Replace"},
		{func(l *ratelimit.RateLimiter, _ ratelimit.Rule) error { return l.SetConfig(config("/a", "5/h")) }, []ratelimit.Rate{five}, "SetConfig"},
		{func(l *ratelimit.RateLimiter, _ ratelimit.Rule) error {
			return l.Reload([]map[string]any{config("/a", "5/h")}, nil)
		}, []ratelimit.Rate{five}, "Reload"},
		{func(l *ratelimit.RateLimiter, _ ratelimit.Rule) error { return l.UpdateRate("/a", one) }, []ratelimit.Rate{one}, "UpdateRate to the same rate: the limiter may have another one"},
	} {
		g := newGauge()
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: g, Rate: one}}, nil)
		require.NoError(t, row.change(l, ratelimit.Rule{Endpoint: "/a", Limiter: g, Rate: five}), row.why)
		require.Equal(t, row.told, g.told, row.why)
		rules, _ := l.Rules()
		require.Equal(t, row.told[0], rules[0].Rate, row.why)

		g.tell = func(ratelimit.Rate) error { return errFault }
		err := l.UpdateRate("/a", ratelimit.PerHour(7))
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%s: a rate that it refuses", row.why)
		require.ErrorIs(t, err, errFault, row.why)
		rules, _ = l.Rules()
		require.Equal(t, row.told[0], rules[0].Rate, row.why)

		require.EqualError(t, l.UpdateRate("/a", ratelimit.Rate{}), `ratelimit: rules["/a"].rate.requests is 0: must be at least 1
ratelimit: rules["/a"].rate.per is 0s: must be longer than zero`, "no rate")
		for _, invalid := range []ratelimit.Rate{{Requests: -1, Per: sec}, ratelimit.Unlimited} {
			require.ErrorIs(t, l.UpdateRate("/a", invalid), ratelimit.ErrInvalidConfig, invalid)
			require.ErrorIs(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: g, Rate: invalid}), ratelimit.ErrInvalidConfig, invalid)
		}
		require.Len(t, g.told, 2, "%s: an invalid rate is not told", row.why)

		l = newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: deaf, Rate: one}}, nil)
		err = row.change(l, ratelimit.Rule{Endpoint: "/a", Limiter: deaf, Rate: five})
		require.EqualError(t, err, `ratelimit: rules["/a"].limiter is ratelimit_test.custom: must have a method SetRate(Rate) error: the rule gets another rate`, row.why)
	}

	g, next := newGauge(), newGauge()
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: g, Rate: one}}, nil)
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: g}))
	rules, _ := l.Rules()
	require.Equal(t, one, rules[0].Rate, "a rule that gives no rate keeps that which its limiter has")
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: g, Rate: one}))
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: next, Rate: five}))
	require.Empty(t, g.told, "the same rate is not told")
	require.Empty(t, next.told, "nor is a limiter that is new: it has its own")
}

// TestToldRatesAreTakenBack proves that limiters which were told the rates of a change that
// fails get their rates before.
func TestToldRatesAreTakenBack(t *testing.T) {
	g, refusing := newGauge(), newGauge()
	refusing.tell = func(ratelimit.Rate) error { return errFault }
	bucket, err := ratelimit.NewTokenBucket(ratelimit.PerHour(3))
	require.NoError(t, err)
	one, five := ratelimit.PerHour(1), ratelimit.PerHour(5)
	rules := func(r ratelimit.Rate) []ratelimit.Rule {
		return []ratelimit.Rule{{Endpoint: "/g", Limiter: g, Rate: r}, {Endpoint: "/bucket", Limiter: bucket, Rate: r}, {Endpoint: "/no", Limiter: refusing, Rate: r}}
	}
	l := newRules(t, rules(one), nil)
	require.ErrorIs(t, l.Replace(rules(five), nil), errFault)
	require.Equal(t, []ratelimit.Rate{five, one}, g.told, "the rate of its rule")
	require.Equal(t, ratelimit.PerHour(3), bucket.Rate(), "the rate that it had")
	require.ErrorIs(t, l.Replace(append(rules(five)[:2], ratelimit.Rule{}), nil), ratelimit.ErrInvalidConfig)
	require.Len(t, g.told, 2, "nothing is told if anything else is wrong")
}

// TestReloadBuildsWhatHasChanged proves that a limiter is made once for an algoConfig, whatever
// the types of its numbers, and that one which is dropped is closed, once.
func TestReloadBuildsWhatHasChanged(t *testing.T) {
	factory, made := gauges(t, func(config map[string]any) error {
		if config["limit"] == "bad" {
			return errFault
		}
		return nil
	})
	l, err := ratelimit.NewFromConfig([]map[string]any{gaugeConfig("/a", 10)}, gaugeConfig("", 10), ratelimit.WithFactory(factory))
	require.NoError(t, err)
	require.Len(t, *made, 2)
	for _, limit := range []any{10, int64(10), uint8(10), 10.0, float32(10)} {
		require.NoError(t, l.Reload([]map[string]any{gaugeConfig("/a", limit)}, gaugeConfig("", limit)))
		require.Len(t, *made, 2, "%T: it has not changed", limit)
	}
	require.NoError(t, l.Reload([]map[string]any{gaugeConfig("/a", 11)}, gaugeConfig("", 10)))
	require.Equal(t, []int{1, 0, 0}, closed(*made), "the one that has changed")
	require.ErrorIs(t, l.Reload([]map[string]any{gaugeConfig("/a", 12), gaugeConfig("/b", "bad")}, nil), errFault)
	require.Equal(t, []int{1, 0, 0, 1}, closed(*made), "what was made for a Reload that fails")
	require.ErrorIs(t, l.Reload([]map[string]any{gaugeConfig("/a", 12), {"endpoint": "/b"}}, nil), ratelimit.ErrInvalidConfig)
	require.ErrorIs(t, l.SetConfig(map[string]any{"endpoint": "*x", "algorithm": "Gauge", "algoConfig": map[string]any{}}), ratelimit.ErrInvalidConfig)
	require.Equal(t, []int{1, 0, 0, 1, 1, 1}, closed(*made))
	require.NoError(t, l.SetConfig(gaugeConfig("/a", 11)))
	require.NoError(t, l.RemoveRule("/a"))
	require.NoError(t, l.RemoveRule("default"))
	require.Equal(t, []int{1, 1, 1, 1, 1, 1}, closed(*made), "with their rules")

	_, err = ratelimit.NewFromConfig([]map[string]any{gaugeConfig("/a", 10)}, nil, ratelimit.WithFactory(factory), ratelimit.WithRequiredRules("b"))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	_, _, err = ratelimit.DecodeRules([]map[string]any{gaugeConfig("/a", 10)}, nil, ratelimit.WithFactory(factory), ratelimit.WithMaxKeys(0))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	_, err = factory.Create(map[string]any{"algorithm": "Gauge", "algoConfig": map[string]any{}, "burst": 1})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	for _, g := range *made {
		require.Equal(t, 1, g.closed, "what was made for nothing")
	}
}

// TestSharedLimitersAreClosedLast proves that a limiter which several rules or RateLimiters have
// is closed when the last one drops it.
func TestSharedLimitersAreClosedLast(t *testing.T) {
	factory, made := gauges(t, nil)
	rules, _, err := ratelimit.DecodeRules([]map[string]any{gaugeConfig("/a", 10)}, nil, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	first, second := newRules(t, rules, nil), newRules(t, rules, nil)
	twin := rules[0]
	twin.Endpoint = "/twin"
	require.NoError(t, first.AddRule(twin))
	require.NoError(t, first.RemoveRule("/a"))
	require.NoError(t, first.RemoveRule("/twin"))
	require.Zero(t, (*made)[0].closed, "the other RateLimiter has it")
	mine := newGauge()
	require.NoError(t, second.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: mine}))
	require.Equal(t, 1, (*made)[0].closed)
	require.NoError(t, second.RemoveRule("/a"))
	require.Zero(t, mine.closed, "a limiter that no BuildFunc has made is not closed")

	once := newGauge()
	require.NoError(t, factory.Register("One", func(map[string]any, ratelimit.Env) (ratelimit.Limiter, error) { return once, nil }))
	config := func(limit int) []map[string]any {
		return []map[string]any{{"endpoint": "/a", "algorithm": "One", "algoConfig": map[string]any{"limit": limit}}}
	}
	l, err := ratelimit.NewFromConfig(config(1), nil, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	require.NoError(t, l.Reload(config(2), nil))
	require.Zero(t, once.closed, "the BuildFunc has returned the same limiter again")
	require.NoError(t, l.RemoveRule("/a"))
	require.Equal(t, 1, once.closed)
}

// An uncomparable is a limiter of a type that has no ==.
type uncomparable struct {
	limits []int
	custom
}

// TestReloadOfUncomparableLimiters proves that limiters whose type has no == are kept and
// replaced like others.
func TestReloadOfUncomparableLimiters(t *testing.T) {
	made := 0
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Struct", func(c map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		made++
		return uncomparable{limits: []int{c["limit"].(int)}, custom: answering(yes(c["limit"].(int), 0, 0), nil)}, nil
	}))
	require.NoError(t, factory.Register("Func", func(c map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		made++
		return answering(yes(c["limit"].(int), 0, 0), nil), nil
	}))
	for _, name := range []string{"Struct", "Func"} {
		config := func(limit int) []map[string]any {
			return []map[string]any{{"endpoint": "/a", "algorithm": name, "algoConfig": map[string]any{"limit": limit}}}
		}
		made = 0
		l, err := ratelimit.NewFromConfig(config(1), nil, ratelimit.WithFactory(factory))
		require.NoError(t, err)
		require.NoError(t, l.Reload(config(1), nil))
		require.Equal(t, 1, made, "%s: it has not changed", name)
		require.NoError(t, l.Reload(config(2), nil))
		require.Equal(t, 2, made, name)
		require.Equal(t, 2, l.Allow("c", "/a").Limit, name)
		mine := uncomparable{limits: []int{9}, custom: answering(yes(9, 0, 0), nil)}
		require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: mine}))
		require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: mine}))
		require.NoError(t, l.Reload(config(3), nil))
		require.Equal(t, 9, l.Allow("c", "/a").Limit, "%s: code has given it", name)
		require.Equal(t, 2, made, "%s: and no other one is made", name)
	}
}

// TestLimiterThatChangesWhileAConfigIsRead proves that a rule gets the limiter of its own config,
// though another change has dropped the one that it would have kept.
func TestLimiterThatChangesWhileAConfigIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		factory, made := gauges(t, func(config map[string]any) error {
			if l != nil && config["limit"] == 5 {
				return l.SetConfig(gaugeConfig("/a", 6))
			}
			return nil
		})
		l = newRules(t, nil, nil, ratelimit.WithFactory(factory))
		require.NoError(t, l.SetConfig(gaugeConfig("/a", 1)))
		require.NoError(t, l.Reload([]map[string]any{gaugeConfig("/a", 1), gaugeConfig("/b", 5)}, nil))
		require.Equal(t, []int{1, 1, 0, 0}, closed(*made), "those of 1, of 6, of 5, and of 1 again")
		rules, _ := l.Rules()
		assert.Same(t, (*made)[3], rules[0].Limiter)
		assert.Same(t, (*made)[2], rules[1].Limiter)
	})
}

// An askedStore is a store whose Supports is a function.
type askedStore struct {
	*faultyStore
	supports func(a ratelimit.Algorithm, r ratelimit.Rate) error
}

func (s *askedStore) Supports(a ratelimit.Algorithm, r ratelimit.Rate) error { return s.supports(a, r) }
