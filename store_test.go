package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestStoreIsAskedOnceForAllRules proves that a request makes one call of the store, and which asks
// it passes for its rules.
func TestStoreIsAskedOnceForAllRules(t *testing.T) {
	rate := ratelimit.PerMinute(5)
	rule := func(name string, key ratelimit.KeyType, algorithm ratelimit.Algorithm) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: "/e", Key: key, Algorithm: algorithm, Rate: rate}
	}
	shadow := rule("shadow", "", "")
	shadow.Mode = ratelimit.ModeShadow
	rules := []ratelimit.Rule{
		rule("user", ratelimit.KeyUser, ratelimit.AlgorithmTokenBucket),
		rule("endpoint", ratelimit.KeyEndpoint, ratelimit.AlgorithmFixedWindow),
		rule("pair", ratelimit.KeyUserEndpoint, ratelimit.AlgorithmSlidingWindowLog),
		rule("ip", ratelimit.KeyIP, ratelimit.AlgorithmSlidingWindowCounter),
		rule("global", ratelimit.KeyGlobal, ratelimit.AlgorithmLeakyBucket),
		shadow,
	}
	asks := func(prefix string, n int) []ratelimit.Ask {
		return []ratelimit.Ask{
			{Rule: prefix + "user", Key: "c", Client: "c", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: rate, N: n},
			{Rule: prefix + "endpoint", Key: "/e", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: rate, N: n},
			{Rule: prefix + "pair", Key: "1:c/e", Client: "c", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: rate, N: n},
			{Rule: prefix + "ip", Key: "192.0.2.1", Algorithm: ratelimit.AlgorithmSlidingWindowCounter, Rate: rate, N: n},
			{Rule: prefix + "global", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: rate, N: n},
			{Rule: prefix + "shadow", Key: "c", Client: "c", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: rate, N: n, Shadow: true},
		}
	}
	req := ratelimit.Request{Client: "c", Endpoint: "/e", IP: "192.0.2.1", Cost: 3}
	for _, row := range []struct {
		opts   []ratelimit.Option
		prefix string
		why    string
	}{
		{nil, "test:", "the name of newRules"},
		{[]ratelimit.Option{ratelimit.WithName("billing")}, "billing:", "a name goes before every rule's own"},
	} {
		store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
		l := newRules(t, rules, nil, append(row.opts, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))...)
		res, err := l.Check(t.Context(), req)
		require.NoError(t, err, row.why)
		require.True(t, res.Allowed)
		_, err = l.Peek(t.Context(), req)
		require.NoError(t, err, row.why)
		require.Equal(t, [][]ratelimit.Ask{asks(row.prefix, 3), asks(row.prefix, 0)}, store.calls, row.why)

		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}))
		own := asks(row.prefix, 0)
		require.Equal(t, [][]ratelimit.Ask{{own[0], own[2], own[5]}}, store.resets, "%s: a reset reaches the client's own state", row.why)
	}
}

// TestStoreIsAskedForTheResolvedRate proves that an Ask has the rate of the request: that of the
// rule, of its tier, or of Resolve.
func TestStoreIsAskedForTheResolvedRate(t *testing.T) {
	rate, paid, vip := ratelimit.PerMinute(5), ratelimit.PerMinute(50), ratelimit.PerMinute(500)
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, []ratelimit.Rule{{
		Endpoint: "/e", Rate: rate, Tiers: map[string]ratelimit.Rate{"paid": paid},
		Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
			switch r.Client {
			case "vip":
				return vip, true
			case "broken":
				return ratelimit.Rate{Requests: -1, Per: minute}, true
			}
			return ratelimit.Rate{}, false
		},
	}}, nil, ratelimit.WithStore(store), ratelimit.WithName("test"), ratelimit.WithClock(store.clock))
	for _, row := range []struct {
		req  ratelimit.Request
		want ratelimit.Rate
		err  error
		why  string
	}{
		{ratelimit.Request{Client: "a"}, rate, nil, "the rule's own rate"},
		{ratelimit.Request{Client: "a", Tier: "gold"}, rate, nil, "the rule has no such tier"},
		{ratelimit.Request{Client: "a", Tier: "paid"}, paid, nil, "the tier's rate"},
		{ratelimit.Request{Client: "vip", Tier: "paid"}, vip, nil, "Resolve goes before the tier"},
		{ratelimit.Request{Client: "broken", Tier: "paid"}, rate, ratelimit.ErrInvalidConfig,
			"an invalid resolved rate is replaced by the rule's own"},
	} {
		row.req.Endpoint = "/e"
		res, err := l.Check(t.Context(), row.req)
		require.ErrorIs(t, err, row.err, row.why)
		require.NotErrorIs(t, err, ratelimit.ErrStore, row.why)
		require.Equal(t, row.want.Requests, res.Limit, row.why)
		require.Equal(t, row.want, store.calls[len(store.calls)-1][0].Rate, row.why)
	}
	require.Equal(t, 5, store.called(), "each decision is one call of the store")
}

// TestStoreKeysOfPairsAreInjective proves that no two pairs of a client and an endpoint
// have the same key in the store.
func TestStoreKeysOfPairsAreInjective(t *testing.T) {
	store := newFaultyStore(t, nil)
	l := newRules(t, nil, &ratelimit.Rule{Key: ratelimit.KeyUserEndpoint, Rate: ratelimit.PerMinute(1)}, ratelimit.WithStore(store))
	seen := map[string][2]string{}
	pieces := []string{"", "a", "b", ":", "1", "1:", "1:a", "a:", "ab", ":1", "\x00", "2:a", "11:", "a1:a"}
	for _, client := range pieces {
		for _, endpoint := range pieces {
			require.True(t, l.Allow(client, endpoint).Allowed, "%q %q shares its state with another pair", client, endpoint)
			ask := store.calls[len(store.calls)-1][0]
			other, taken := seen[ask.Key]
			require.False(t, taken, "%q %q has the key of %q", client, endpoint, other)
			seen[ask.Key] = [2]string{client, endpoint}
			require.Equal(t, client, ask.Client)
		}
	}
}

// A choosyStore supports every rate but one.
type choosyStore struct {
	*faultyStore
	refuse ratelimit.Rate
}

var errChoosy = errors.New("a rate of whole microseconds")

func (s *choosyStore) Supports(_ ratelimit.Algorithm, r ratelimit.Rate) error {
	if r == s.refuse {
		return errChoosy
	}
	return nil
}

// TestStoreThatDoesNotSupportARate proves that a rate that the store does not support is refused
// wherever a rate can be given.
func TestStoreThatDoesNotSupportARate(t *testing.T) {
	good, bad := ratelimit.PerMinute(5), ratelimit.Rate{Requests: 7, Per: minute}
	newStore := func() *choosyStore {
		return &choosyStore{faultyStore: newFaultyStore(t, ratelimit.NewFakeClock(epoch)), refuse: bad}
	}
	for _, a := range algorithms {
		store := newStore()
		opts := []ratelimit.Option{ratelimit.WithStore(store), ratelimit.WithName("n"), ratelimit.WithClock(store.clock)}
		l, err := a.make(bad, opts...)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, a.name)
		require.ErrorContains(t, err, errChoosy.Error(), a.name)
		require.Nil(t, l)
		l = a.start(t, good, opts...)
		require.ErrorIs(t, l.SetRate(bad), ratelimit.ErrInvalidConfig, a.name)
		require.Equal(t, good, l.Rate(), a.name)
		spend(t, l, "key", 1)
		require.Equal(t, good, store.calls[0][0].Rate, a.name)
	}

	rule := func(name string, r ratelimit.Rate) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: "/e", Rate: r}
	}
	tiered := rule("tiered", good)
	tiered.Tiers = map[string]ratelimit.Rate{"paid": bad}
	for _, rules := range [][]ratelimit.Rule{{rule("a", bad)}, {rule("a", good), rule("b", bad)}, {tiered}} {
		_, err := ratelimit.New(rules, nil, ratelimit.WithStore(newStore()), ratelimit.WithName("test"))
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.ErrorContains(t, err, errChoosy.Error())
	}
	_, err := ratelimit.New(nil, &ratelimit.Rule{Rate: bad}, ratelimit.WithStore(newStore()), ratelimit.WithName("test"))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)

	store := newStore()
	resolved := rule("resolved", good)
	resolved.Endpoint = "/resolved"
	resolved.Resolve = func(ratelimit.Request) (ratelimit.Rate, bool) { return bad, true }
	l := newRules(t, []ratelimit.Rule{rule("a", good), resolved}, nil, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	for _, row := range []struct {
		change func() error
		why    string
	}{
		{func() error { return l.AddRule(rule("b", bad)) }, "AddRule"},
		{func() error { return l.UpdateRate("a", bad) }, "UpdateRate"},
		{func() error { return l.SetDefaultRule(ratelimit.Rule{Rate: bad}) }, "SetDefaultRule"},
		{func() error { return l.Replace([]ratelimit.Rule{rule("c", good), rule("a", bad)}, nil) }, "Replace"},
	} {
		require.ErrorIs(t, row.change(), ratelimit.ErrInvalidConfig, row.why)
		store.called()
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
		require.NoError(t, err, row.why)
		require.Equal(t, by("a", yes(5, 4, 12*sec)), res, "%s: nothing is changed", row.why)
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}))
	}
	res, err := l.Check(t.Context(), ratelimit.Request{Endpoint: "/resolved"})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "a rate that Resolve returns is checked too")
	require.ErrorContains(t, err, errChoosy.Error())
	require.Equal(t, by("resolved", yes(5, 4, 12*sec)), res, "the rate that is not supported is not used")
}

// TestStoreResetReachesTheShare proves that Reset also clears the local share of the key.
func TestStoreResetReachesTheShare(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(5)}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	for range 3 {
		l.Allow("c", "")
		l.Allow("d", "")
	}
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: ""}))
	store.from(errsBefore)
	require.Equal(t, by("default", degraded(yes(5, 4, 12*sec))), l.Allow("c", ""), "the local share of the key is as good as new")
	require.Equal(t, by("default", degraded(yes(5, 1, 48*sec))), l.Allow("d", ""), "the share of another key is not")
}

// TestStoreResetThatFails proves that Reset returns the failure of the store, and works once the
// store does.
func TestStoreResetThatFails(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(5)}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	require.True(t, l.Allow("c", "").Allowed)
	store.resetErr = errFault
	err := l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: ""})
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.ErrorIs(t, err, errFault)
	store.resetErr = nil
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: ""}))
	require.Equal(t, 4, l.Allow("c", "").Remaining)
}

// TestStoreOptions proves which options a limiter in a store needs or refuses.
func TestStoreOptions(t *testing.T) {
	var none *ratelimit.MemoryStore
	store := newFaultyStore(t, nil)
	for _, row := range []struct {
		opts []ratelimit.Option
		want string
		why  string
	}{
		{[]ratelimit.Option{ratelimit.WithStore(store)},
			`ratelimit: name is "": must be set by WithName: it tells the limiters in a store apart`, "a store without a name"},
		{[]ratelimit.Option{ratelimit.WithStore(nil)}, "ratelimit: store is <nil>: must not be nil", "a nil store"},
		{[]ratelimit.Option{ratelimit.WithStore(none)}, "ratelimit: store is <nil>: must not be nil", "a store that is a nil pointer"},
		{[]ratelimit.Option{ratelimit.WithName("")}, `ratelimit: name is "": must not be empty or have a ":"`, "an empty name"},
		{[]ratelimit.Option{ratelimit.WithName("a:b")}, `ratelimit: name is "a:b": must not be empty or have a ":"`,
			"a name with the character that ends a name"},
		{[]ratelimit.Option{ratelimit.WithFailurePolicy(ratelimit.FailLocal(0))},
			"ratelimit: failurePolicy is local:0: must have at least 1 replica", "a share for no replica"},
	} {
		for _, a := range algorithms {
			l, err := a.make(ratelimit.PerMinute(5), row.opts...)
			require.EqualError(t, err, row.want, "%s: %s", a.name, row.why)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, row.why)
			require.Nil(t, l)
		}
	}
	rule := &ratelimit.Rule{Rate: ratelimit.PerMinute(5)}
	_, err := ratelimit.New(nil, rule, ratelimit.WithStore(store))
	require.EqualError(t, err, `ratelimit: name is "": must be set by WithName: it tells the limiters in a store apart`)
	_, err = ratelimit.New(nil, rule, ratelimit.WithStore(store), ratelimit.WithName("a:b"))
	require.EqualError(t, err, `ratelimit: name is "a:b": must not be empty or have a ":"`, "one problem is said once")
	_, err = ratelimit.NewFromConfig(nil, map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "5/m"}},
		ratelimit.WithStore(store))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "two services on one server share nothing by accident")
	for _, a := range algorithms {
		l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithName("n"))
		require.Equal(t, 4, l.Allow("key").Remaining, "%s: without a store, a name changes nothing", a.name)
	}
}

// TestStoreDenialIsNoFailure proves that denials never open the breaker.
func TestStoreDenialIsNoFailure(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	require.True(t, l.Allow("c", "").Allowed)
	for range 20 {
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "c"})
		require.NoError(t, err)
		require.Equal(t, by("default", no(1, 0, minute, minute)), res)
	}
	assert.Equal(t, 21, store.called(), "the store is asked each time")
	assert.Equal(t, []ratelimit.RuleStats{{Rule: "default", Allowed: 1, Denied: 20, LiveKeys: 1}}, l.Stats())
}

// TestStoreIsNotCalledWithoutNeed proves that the store is not called for requests that are refused
// or match no rule.
func TestStoreIsNotCalledWithoutNeed(t *testing.T) {
	store := newFaultyStore(t, nil)
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/e", Rate: ratelimit.PerMinute(1)}}, nil, ratelimit.WithStore(store))
	for _, row := range []struct {
		ctx context.Context
		req ratelimit.Request
		err error
		why string
	}{
		{t.Context(), ratelimit.Request{Endpoint: "/other"}, nil, "no rule applies"},
		{t.Context(), ratelimit.Request{Endpoint: "/e", Cost: -1}, ratelimit.ErrInvalidCount, "a negative cost"},
		{t.Context(), ratelimit.Request{Rules: []string{"none"}}, ratelimit.ErrUnknownRule, "an unknown rule"},
		{canceled(), ratelimit.Request{Endpoint: "/e"}, context.Canceled, "the caller has given up"},
	} {
		_, err := l.Check(row.ctx, row.req)
		require.ErrorIs(t, err, row.err, row.why)
		_, err = l.Peek(row.ctx, row.req)
		require.ErrorIs(t, err, row.err, row.why)
		require.Zero(t, store.called(), row.why)
	}
}

// A denyingStore is a MemoryStore that counts calls of Take. Its method Denied denies some asks
// without a call of Take.
type denyingStore struct {
	*ratelimit.MemoryStore
	denies func(a ratelimit.Ask) bool
	asked  int
	seen   []ratelimit.Ask
}

func (s *denyingStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.asked++
	return s.MemoryStore.Take(ctx, asks)
}

func (s *denyingStore) Denied(a ratelimit.Ask) (ratelimit.Result, bool) {
	s.seen = append(s.seen, a)
	if s.denies == nil || !s.denies(a) {
		return ratelimit.Result{}, false
	}
	return ratelimit.Result{Limit: a.Rate.Requests, RetryAfter: time.Minute, ResetAfter: time.Hour}, true
}

func newDenyingStore(t *testing.T) *denyingStore {
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	return &denyingStore{MemoryStore: memory}
}

// TestKnownDenialSkipsTheStore proves that a request of one plain rule is denied and counted
// without a call of Take if the store's method Denied answers it.
func TestKnownDenialSkipsTheStore(t *testing.T) {
	store := newDenyingStore(t)
	store.denies = func(a ratelimit.Ask) bool { return a.Key == "alice" }
	limiter, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/search", Rate: ratelimit.PerMinute(5)}}, nil, ratelimit.WithStore(store),
		ratelimit.WithName("test"))
	require.NoError(t, err)
	want := ratelimit.Result{Limit: 5, RetryAfter: time.Minute, ResetAfter: time.Hour, Rule: "/search", Reason: ratelimit.ReasonLimit}
	assert.Equal(t, want, limiter.Allow("alice", "/search"))
	res, err := limiter.Check(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/search", Cost: 3})
	assert.NoError(t, err)
	assert.Equal(t, want, res)
	assert.Zero(t, store.asked)
	assert.Equal(t, []int{1, 3}, []int{store.seen[0].N, store.seen[1].N})
	assert.Equal(t, "alice", store.seen[0].Client)

	assert.True(t, limiter.Allow("bob", "/search").Allowed)
	assert.Equal(t, 1, store.asked)
	assert.True(t, limiter.Allow("alice", "/other").Allowed, "without a rule the store is not asked")
	stats := limiter.Stats()
	assert.EqualValues(t, 2, stats[0].Denied)
	assert.EqualValues(t, 1, stats[0].Allowed)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	res, err = limiter.Check(ctx, ratelimit.Request{Client: "alice", Endpoint: "/search"})
	assert.Equal(t, context.Canceled, err)
	assert.Zero(t, res)
}

// TestKnownDenialOfALimiterSkipsTheStore proves the same for a limiter in a store.
func TestKnownDenialOfALimiterSkipsTheStore(t *testing.T) {
	store := newDenyingStore(t)
	store.denies = func(a ratelimit.Ask) bool { return a.N == 4 || a.Key == "alice" }
	limiter, err := ratelimit.NewFixedWindow(ratelimit.PerDay(5), ratelimit.WithStore(store), ratelimit.WithName("api"))
	require.NoError(t, err)
	assert.Equal(t, time.Minute, limiter.Allow("alice").RetryAfter)
	res, err := limiter.Take(context.Background(), "bob", 4)
	assert.NoError(t, err)
	assert.Equal(t, time.Minute, res.RetryAfter)
	assert.Zero(t, store.asked)
	assert.True(t, limiter.Allow("bob").Allowed)
	assert.Equal(t, 1, store.asked)
}

// TestDeniedIsAskedForOnePlainRule proves that Denied is called neither for several rules nor for a
// rule that is not plain.
func TestDeniedIsAskedForOnePlainRule(t *testing.T) {
	deny := func(ratelimit.Ask) bool { return true }
	rules := map[string][]ratelimit.Rule{
		"several": {{Name: "a", Endpoint: "/", Rate: ratelimit.PerMinute(5)}, {Name: "b", Endpoint: "/", Rate: ratelimit.PerMinute(5)}},
		"tiers":   {{Endpoint: "/", Rate: ratelimit.PerMinute(5), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(9)}}},
		"shadow":  {{Endpoint: "/", Rate: ratelimit.PerMinute(5), Mode: ratelimit.ModeShadow}},
	}
	for name, rules := range rules {
		store := newDenyingStore(t)
		store.denies = deny
		limiter, err := ratelimit.New(rules, nil, ratelimit.WithStore(store), ratelimit.WithName("test"))
		require.NoError(t, err)
		assert.True(t, limiter.Allow("alice", "/").Allowed, name)
		assert.Equal(t, 1, store.asked, name)
		assert.Empty(t, store.seen, name)
	}
}
