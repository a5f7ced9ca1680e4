package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// explained makes a RateLimiter on a FakeClock, and returns both.
func explained(
	t *testing.T, rules []ratelimit.Rule, fallback *ratelimit.Rule, opts ...ratelimit.Option,
) (*ratelimit.RateLimiter, *ratelimit.FakeClock) {
	clock := ratelimit.NewFakeClock(epoch)
	l, err := ratelimit.New(rules, fallback, append(opts, ratelimit.WithClock(clock))...)
	require.NoError(t, err)
	return l, clock
}

// TestExplain compares a whole Explanation of a request with several rules.
func TestExplain(t *testing.T) {
	l, _ := explained(t, []ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(3),
			Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(30), "staff": ratelimit.Unlimited}},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Algorithm: byWindow, Rate: ratelimit.PerSecond(100)},
		{Name: "trial", Endpoint: "/search", Mode: ratelimit.ModeShadow, Key: ratelimit.KeyOf(ratelimit.KeyUser, ratelimit.KeyIP),
			Algorithm: byLog, Rate: ratelimit.PerHour(1)},
	}, &ratelimit.Rule{Rate: ratelimit.PerSecond(1)})
	req := ratelimit.Request{Client: "alice", Endpoint: "/search", IP: "::1", Cost: 2}
	res, err := l.Check(t.Context(), req)
	require.NoError(t, err)
	require.True(t, res.Allowed)

	all := ratelimit.RuleExplanation{
		Name: "all", Match: "additional", Pattern: "*", KeyType: ratelimit.KeyGlobal, Algorithm: byWindow, Mode: ratelimit.ModeEnforce,
		Rate: ratelimit.PerSecond(100), RateFrom: "rule", AnsweredBy: "own", MaxIn: 200,
		Result: ratelimit.Result{Allowed: true, Limit: 100, Remaining: 98, ResetAfter: time.Second, Rule: "all"},
	}
	denied := by("/search", no(3, 1, 20*time.Second, 40*time.Second))
	want := ratelimit.Explanation{
		Request: req, Match: "exact", Pattern: "/search", Result: denied,
		Rules: []ratelimit.RuleExplanation{
			{
				Name: "/search", Match: "exact", Pattern: "/search", KeyType: ratelimit.KeyUser, Key: "alice", Algorithm: byTokens,
				Mode: ratelimit.ModeEnforce,
				Rate: ratelimit.PerMinute(3), RateFrom: "rule", AnsweredBy: "own", MaxIn: 6, Result: denied,
			},
			all,
			{
				Name: "trial", Match: "exact", Pattern: "/search", KeyType: "ip+user", Key: "3:::1alice", Algorithm: byLog, Mode: ratelimit.ModeShadow,
				Rate: ratelimit.PerHour(1), RateFrom: "rule", AnsweredBy: "unseen", MaxIn: 2,
				Result: ratelimit.Result{Limit: 1, Remaining: 1, RetryAfter: ratelimit.Never, Rule: "trial", Reason: ratelimit.ReasonLimit},
			},
		},
	}
	e, err := l.Explain(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, want, e, "the bucket has 1 of the 2 units")

	req.Tier = "paid"
	e, err = l.Explain(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, ratelimit.PerMinute(30), e.Rules[0].Rate)
	assert.EqualValues(t, "tier", e.Rules[0].RateFrom)
	assert.Equal(t, 60, e.Rules[0].MaxIn)

	req.Tier = "staff"
	e, err = l.Explain(t.Context(), req)
	require.NoError(t, err)
	all.Result.Remaining = 96
	assert.Equal(t, "all", e.Result.Rule)
	assert.Equal(t, []ratelimit.RuleExplanation{
		{
			Name: "/search", Match: "exact", Pattern: "/search", KeyType: ratelimit.KeyUser, Key: "alice", Algorithm: byTokens,
			Mode: ratelimit.ModeEnforce,
			Rate: ratelimit.Unlimited, RateFrom: "tier", AnsweredBy: "unlimited", MaxIn: -1,
			Result: ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1, Rule: "/search"},
		},
		all, want.Rules[2],
	}, e.Rules, "a rule that does not limit the request shows so")

	const unknown = "no rule here has a rate for the tier \"Paid\"\n"
	assert.NotContains(t, e.String(), "no rule here")
	req.Tier = "Paid"
	e, err = l.Explain(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, ratelimit.PerMinute(3), e.Rules[0].Rate)
	assert.True(t, strings.HasSuffix(e.String(), unknown), "%v", e)
	req.Tier = ""
	e, err = l.Explain(t.Context(), req)
	require.NoError(t, err)
	assert.NotContains(t, e.String(), "no rule here")
}

// TestExplainMatch proves how an Explanation names the way in which each rule was found.
func TestExplainMatch(t *testing.T) {
	l, _ := explained(t, []ratelimit.Rule{
		{Endpoint: "/a", Rate: ratelimit.PerSecond(1)},
		{Endpoint: "/a/*", Rate: ratelimit.PerSecond(1)},
		{Name: "named", Rate: ratelimit.PerSecond(1)},
		{Name: "more", Endpoint: "/a*", Additional: true, Rate: ratelimit.PerSecond(1)},
		{Name: "watch", Endpoint: "/b", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerSecond(1)},
	}, &ratelimit.Rule{Rate: ratelimit.PerSecond(1)})
	for _, c := range []struct {
		req            ratelimit.Request
		match, pattern string
		rules          string
		why            string
	}{
		{ratelimit.Request{Endpoint: "/a"}, "exact", "/a", "exact additional", "the endpoint itself"},
		{ratelimit.Request{Endpoint: "/a/b"}, "prefix", "/a/*", "prefix additional", "what it begins with"},
		{ratelimit.Request{Endpoint: "/c"}, "default", "", "default", "nothing else"},
		{ratelimit.Request{Endpoint: "/b"}, "default", "", "exact default", "a shadow rule is no match"},
		{ratelimit.Request{Endpoint: "/a", Rules: []string{"named"}}, "named", "", "named additional", "an additional rule stays"},
		{ratelimit.Request{Endpoint: "/a", Rules: []string{"/a"}}, "named", "", "named additional", "named, though the endpoint is the same"},
		{ratelimit.Request{Endpoint: "/a", Rules: []string{"more", "default"}}, "named", "", "named named", "both were asked for"},
	} {
		e, err := l.Explain(t.Context(), c.req)
		require.NoError(t, err)
		var rules []string
		for _, r := range e.Rules {
			rules = append(rules, r.Match)
		}
		assert.Equal(t, c.match, e.Match, c.why)
		assert.Equal(t, c.pattern, e.Pattern, c.why)
		assert.Equal(t, c.rules, strings.Join(rules, " "), c.why)
	}

	none, _ := explained(t, []ratelimit.Rule{{Name: "more", Endpoint: "*", Additional: true, Rate: ratelimit.PerSecond(1)}}, nil)
	e, err := none.Explain(t.Context(), ratelimit.Request{Endpoint: "/a"})
	require.NoError(t, err)
	assert.Equal(t, "none", e.Match, "only an additional rule")
	assert.Len(t, e.Rules, 1)
}

// TestExplainBadInput proves which requests Explain refuses.
func TestExplainBadInput(t *testing.T) {
	l, _ := explained(t, []ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerSecond(1)}}, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		req  ratelimit.Request
		want string
		is   error
		why  string
	}{
		{t.Context(), ratelimit.Request{Endpoint: "/a", Cost: -1}, "ratelimit: count must not be negative", ratelimit.ErrInvalidCount,
			"a negative cost"},
		{t.Context(), ratelimit.Request{Endpoint: "/a", Cost: math.MinInt}, "ratelimit: count must not be negative", ratelimit.ErrInvalidCount,
			"the most negative one"},
		{t.Context(), ratelimit.Request{Rules: []string{"/b"}}, `ratelimit: unknown rule "/b"; did you mean "/a"?`, ratelimit.ErrUnknownRule,
			"a rule that is not there"},
		{ended, ratelimit.Request{Endpoint: "/a"}, "context canceled", context.Canceled, "an ended context"},
	} {
		e, err := l.Explain(c.ctx, c.req)
		assert.Equal(t, ratelimit.Explanation{}, e, c.why)
		assert.ErrorIs(t, err, c.is, c.why)
		_, same := l.Check(c.ctx, c.req)
		assert.EqualError(t, err, same.Error(), "%s: as Check", c.why)
		assert.EqualError(t, err, c.want, c.why)
	}
	require.NoError(t, l.RemoveRule("/a"))
	_, err := l.Explain(t.Context(), ratelimit.Request{Rules: []string{"/a"}})
	require.ErrorIs(t, err, ratelimit.ErrUnknownRule, "the rule has gone")

	var nobody context.Context // nil counts as context.Background()
	e, err := l.Explain(nobody, ratelimit.Request{Client: "alice"})
	require.NoError(t, err)
	free := ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}
	assert.Equal(t, ratelimit.Explanation{Request: ratelimit.Request{Client: "alice"}, Match: "none", Result: free}, e)

	var zero ratelimit.RateLimiter
	e, err = zero.Explain(t.Context(), ratelimit.Request{Client: "alice"})
	require.NoError(t, err)
	assert.Equal(t, ratelimit.Explanation{Request: ratelimit.Request{Client: "alice"}, Match: "none", Result: free}, e)
	_, err = zero.Explain(t.Context(), ratelimit.Request{Cost: -1})
	require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
}

// TestExplainTwoCustomLimiters proves that Explain refuses a request that has two rules with custom
// limiters, as Check does.
func TestExplainTwoCustomLimiters(t *testing.T) {
	inner := tokenOf(t, ratelimit.PerSecond(1))
	l, _ := explained(t, []ratelimit.Rule{{Name: "a", Endpoint: "/a", Limiter: inner}, {Name: "b", Endpoint: "/b", Limiter: inner}}, nil)
	_, err := l.Explain(t.Context(), ratelimit.Request{Rules: []string{"a", "b"}})
	_, same := l.Check(t.Context(), ratelimit.Request{Rules: []string{"a", "b"}})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, same.Error())
}

// tokenOf returns a token bucket of the rate r.
func tokenOf(t *testing.T, r ratelimit.Rate) *ratelimit.TokenBucket {
	l, err := ratelimit.NewTokenBucket(r)
	require.NoError(t, err)
	return l
}

// TestExplainCustom proves that Explain calls a custom limiter with a count of 0, whatever the cost
// of the request is.
func TestExplainCustom(t *testing.T) {
	inner := tokenOf(t, ratelimit.PerHour(5))
	l, _ := explained(t, []ratelimit.Rule{
		{Name: "inner", Endpoint: "/a", Limiter: inner},
		{Name: "more", Endpoint: "/a", Rate: ratelimit.PerHour(3)},
	}, nil)
	e, err := l.Explain(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/a", Cost: 2})
	require.NoError(t, err)
	want := ratelimit.RuleExplanation{
		Name: "inner", Match: "exact", Pattern: "/a", KeyType: ratelimit.KeyUser, Key: "alice", Mode: ratelimit.ModeEnforce,
		RateFrom: "limiter", AnsweredBy: "limiter", MaxIn: -1,
		Result: ratelimit.Result{Allowed: true, Limit: 5, Remaining: 5, Rule: "inner"},
	}
	assert.Equal(t, want, e.Rules[0])
	assert.Equal(t, 1, e.Result.Remaining)
	assert.Equal(t, 5, inner.Peek("alice").Remaining, "nothing was taken")
	assert.Zero(t, inner.Len())

	e, err = l.Explain(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/a", Cost: 4})
	require.NoError(t, err)
	assert.Equal(t, want, e.Rules[0], "another rule denies, and it is asked all the same")
	assert.Equal(t, ratelimit.Never, e.Result.RetryAfter)
}

// TestExplainFailingCustom proves what Explain says if a custom limiter returns an error.
func TestExplainFailingCustom(t *testing.T) {
	dead := errors.New("dead")
	custom := askedLimiter(func(context.Context, string, int) (ratelimit.Result, error) { return ratelimit.Result{}, dead })
	l, _ := explained(t, []ratelimit.Rule{
		{Name: "inner", Endpoint: "/a", Limiter: custom, OnStoreError: ratelimit.FailClosed},
		{Name: "more", Endpoint: "/a", Rate: ratelimit.PerHour(3)},
	}, nil)
	before := l.Stats()
	for _, cost := range []int{1, 4} { // the other rule denies a cost of 4
		e, err := l.Explain(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/a", Cost: cost})
		if cost == 1 {
			require.ErrorIs(t, err, ratelimit.ErrStore)
			require.ErrorIs(t, e.Rules[0].Err, dead)
			require.EqualError(t, e.Rules[0].Err, err.Error())
		}
		assert.EqualValues(t, "policy", e.Rules[0].AnsweredBy)
		assert.False(t, e.Rules[0].Result.Allowed)
		assert.True(t, e.Rules[0].Result.Degraded)
	}
	assert.Equal(t, before, l.Stats(), "nothing is counted")
}

// An askedLimiter is a custom limiter that is a function.
type askedLimiter func(ctx context.Context, key string, n int) (ratelimit.Result, error)

func (f askedLimiter) Allow(key string) ratelimit.Result {
	res, _ := f(context.Background(), key, 1)
	return res
}

func (f askedLimiter) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	return f(ctx, key, n)
}

// TestExplainInvalidResolve proves that Explain reports an invalid rate that Resolve returns, and
// shows the rate that is used.
func TestExplainInvalidResolve(t *testing.T) {
	l, _ := explained(t, []ratelimit.Rule{{
		Endpoint: "/a", Rate: ratelimit.PerHour(3), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(9)},
		Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.Rate{Requests: -1, Per: 1}, true },
	}}, nil)
	req := ratelimit.Request{Client: "alice", Endpoint: "/a", Tier: "paid"}
	e, err := l.Explain(t.Context(), req)
	_, same := l.Check(t.Context(), req)
	require.EqualError(t, err, same.Error())
	assert.EqualValues(t, "rule", e.Rules[0].RateFrom, "the rule decides by its own rate")
	assert.Equal(t, ratelimit.PerHour(3), e.Rules[0].Rate)
	require.EqualError(t, e.Rules[0].Err, err.Error())
}

// A plainStore is a store without optional methods. It records the asks it gets.
type plainStore struct {
	inner *ratelimit.MemoryStore
	asks  []ratelimit.Ask
	err   error
}

func (s *plainStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.asks = append(s.asks, asks...)
	if s.err != nil {
		return nil, s.err
	}
	return s.inner.Take(ctx, asks)
}

func (s *plainStore) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	return s.inner.Reset(ctx, asks)
}

// TestExplainOnAStoreWithoutLook proves that Explain works only for a cost of 1 if the store does
// not accept an Ask with Look.
func TestExplainOnAStoreWithoutLook(t *testing.T) {
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
	require.NoError(t, err)
	store := &plainStore{inner: memory}
	l, _ := explained(t, []ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerHour(3)}}, nil, ratelimit.WithStore(store),
		ratelimit.WithName("n"))
	req := ratelimit.Request{Client: "alice", Endpoint: "/a"}
	e, err := l.Explain(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, []ratelimit.Ask{{Rule: "n:/a", Key: "alice", Client: "alice", Algorithm: byTokens, Rate: ratelimit.PerHour(3)}},
		store.asks)
	assert.EqualValues(t, "store", e.Rules[0].AnsweredBy)
	res, err := l.Check(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, res.Remaining, e.Result.Remaining)
	assert.Zero(t, e.Result.ResetAfter, "that of before the charge")

	req.Cost = 2
	e, err = l.Explain(t.Context(), req)
	assert.Equal(t, ratelimit.Explanation{}, e)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, "ratelimit: store is *ratelimit_test.plainStore: must accept an Ask with Look to explain a cost above 1: it "+
		"has no method Accepts")
}

// TestExplainStoreDown proves that Explain answers by the failure policy while the store fails, and
// that the breaker counts neither its successes nor its failures.
func TestExplainStoreDown(t *testing.T) {
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
	require.NoError(t, err)
	dead := errors.New("dead")
	store := &plainStore{inner: memory, err: dead}
	l, clock := explained(t, []ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerHour(3)}}, nil, ratelimit.WithStore(store),
		ratelimit.WithName("n"))
	req := ratelimit.Request{Client: "alice", Endpoint: "/a"}
	explain := func() ratelimit.Explanation {
		e, err := l.Explain(t.Context(), req)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.ErrorIs(t, e.Rules[0].Err, dead)
		require.EqualValues(t, "policy", e.Rules[0].AnsweredBy)
		return e
	}
	for range 20 {
		explain()
	}
	assert.Equal(t, ratelimit.StoreStats{}, l.StoreStats(), "20 failures would open a breaker")
	assert.Len(t, store.asks, 20)
	for range 5 {
		before := explain()
		res, err := l.Check(t.Context(), req)
		require.ErrorIs(t, err, dead)
		assert.Equal(t, before.Result, res)
	}
	assert.Equal(t, 1, l.StoreStats().Open)
	asked := len(store.asks)
	explain()
	assert.Len(t, store.asks, asked, "while the breaker is open, the store is not called")
	clock.Advance(time.Second)
	store.err = nil
	e, err := l.Explain(t.Context(), req)
	require.NoError(t, err)
	assert.EqualValues(t, "store", e.Rules[0].AnsweredBy)
	assert.Equal(t, 1, l.StoreStats().Open, "the probe is left to Check")
}

// TestExplainWhileOthersWait proves that Explain answers as Check would while others wait, and
// takes none of their units.
func TestExplainWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{
			{Endpoint: "/a", Rate: ratelimit.PerSecond(1), Tiers: map[string]ratelimit.Rate{"large": ratelimit.PerSecond(2).WithBurst(1)}},
			{Name: "watch", Endpoint: "/a", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerSecond(2)},
			{Name: "free", Endpoint: "/a", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(100)},
		}, nil)
		require.NoError(t, err)
		req := ratelimit.Request{Client: "alice", Endpoint: "/a"}
		_, err = l.Check(t.Context(), req)
		require.NoError(t, err)
		var waiting sync.WaitGroup
		for range 2 {
			waiting.Go(func() {
				res, err := l.Wait(t.Context(), req)
				assert.NoError(t, err)
				assert.True(t, res.Allowed)
			})
		}
		synctest.Wait()
		for _, tier := range []string{"", "large", ""} {
			req.Tier = tier
			before := l.Stats()
			e, err := l.Explain(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, before, l.Stats())
			res, each, err := l.CheckAll(t.Context(), req, nil)
			require.NoError(t, err)
			assert.False(t, res.Allowed)
			assert.Equal(t, res, e.Result)
			assert.Equal(t, []ratelimit.Result{e.Rules[0].Result, e.Rules[2].Result}, each)
			assert.EqualValues(t, "own", e.Rules[0].AnsweredBy)
			assert.EqualValues(t, "own", e.Rules[1].AnsweredBy)
		}
		waiting.Wait()
	})
}

// TestExplainText compares the text of explanations.
func TestExplainText(t *testing.T) {
	l, clock := explained(t, []ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(3)},
		{Name: "trial", Endpoint: "/search", Mode: ratelimit.ModeShadow, Algorithm: byLog, Rate: ratelimit.PerHour(1)},
	}, nil)
	text := func(req ratelimit.Request) string {
		e, err := l.Explain(t.Context(), req)
		require.NoError(t, err)
		return e.String()
	}
	alice := ratelimit.Request{Client: "alice", Endpoint: "/search", Cost: 3}
	for range 2 {
		_, err := l.Check(t.Context(), alice)
		require.NoError(t, err)
	}
	clock.Advance(5 * time.Second)
	assert.Equal(t, ""+
		`"alice" for "/search", cost 3: denied for 55s by rule "/search" (exact "/search")`+"\n"+
		`rule              match  key           algorithm         rate  from  state   limit  left  retry after  reset after  at most`+"\n"+
		`"/search"         exact  user "alice"  TokenBucket       3/m   rule  own     3      0     55s          55s          6 in 1m0s`+"\n"+
		`"trial" (shadow)  exact  user "alice"  SlidingWindowLog  1/h   rule  unseen  1      1     never        0s           2 in 1h0m0s`+"\n",
		text(alice))
	alice.Cost = 4
	assert.True(t, strings.HasPrefix(text(alice), `"alice" for "/search", cost 4: denied for ever by rule "/search"`), text(alice))
	assert.Equal(t, `"\x00\xff\n" for "", cost 1: allowed, no limit applies (none)`+"\n", text(ratelimit.Request{Client: "\x00\xff\n"}))
	long := text(ratelimit.Request{Client: strings.Repeat("a", 1<<20), Endpoint: "/search"})
	assert.Less(t, len(long), 2000, "a long key is cut")
}

// TestExplainJSON compares the JSON of an Explanation, and proves that it reads back equal.
func TestExplainJSON(t *testing.T) {
	l, _ := explained(t, []ratelimit.Rule{
		{Endpoint: "/a", Key: ratelimit.KeyAttr("tenant"), Algorithm: byLeak, Rate: ratelimit.PerMinute(3).WithBurst(2)},
		{Name: "inner", Endpoint: "*", Additional: true, Limiter: askedLimiter(func(context.Context, string, int) (ratelimit.Result, error) {
			return ratelimit.Result{}, errors.New("dead")
		})},
		{Name: "free", Endpoint: "/a", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerSecond(1),
			Tiers: map[string]ratelimit.Rate{"t": ratelimit.Unlimited}},
	}, nil)
	req := ratelimit.Request{Client: "alice", Endpoint: "/a", IP: "::1", Tier: "t", Attrs: map[string]string{"tenant": "acme"},
		Rules: []string{"/a"}, Cost: 2}
	e, failed := l.Explain(t.Context(), req)
	require.ErrorIs(t, failed, ratelimit.ErrStore)
	data, err := json.Marshal(e)
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"request": {"client": "alice", "endpoint": "/a", "ip": "::1", "tier": "t", "attrs": {"tenant": "acme"}, "rules": ["/a"], "cost": 2},
		"match": "named",
		"result": {"allowed": true, "limit": 2, "remaining": 0, "resetAfter": "40s", "rule": "/a", "degraded": true},
		"rules": [
			{"name": "/a", "match": "named", "pattern": "/a", "keyType": "attr:tenant", "key": "acme", "algorithm": "LeakyBucket", "mode": "enforce",
			 "rate": "3/m burst 2", "rateFrom": "rule", "answeredBy": "unseen",
			 "result": {"allowed": true, "limit": 2, "remaining": 0, "resetAfter": "40s", "rule": "/a"}, "maxIn": 5},
			{"name": "inner", "match": "additional", "pattern": "*", "keyType": "user", "key": "alice", "mode": "enforce",
			 "rateFrom": "limiter", "answeredBy": "policy",
			 "result": {"allowed": true, "limit": -1, "remaining": -1, "rule": "inner", "degraded": true}, "maxIn": -1,
			 "error": "rules[\"inner\"].limiter: ratelimit: store failed: dead"}
		]}`, string(data))
	var back ratelimit.Explanation
	require.NoError(t, json.Unmarshal(data, &back))
	require.EqualError(t, back.Rules[1].Err, e.Rules[1].Err.Error())
	back.Rules[1].Err = e.Rules[1].Err
	assert.Equal(t, e, back)

	req.Cost, req.Rules = 9, nil
	e, _ = l.Explain(t.Context(), req)
	data, err = json.Marshal(&e)
	require.NoError(t, err)
	assert.Contains(t, string(data), `"retryAfter":"never"`)
	assert.Contains(t, string(data), `"rate":"unlimited"`)
	require.NoError(t, json.Unmarshal(data, &back))
	assert.Equal(t, e.Result, back.Result)
	assert.Equal(t, e.Rules[2], back.Rules[2])

	for _, bad := range []string{``, `[]`, `{"match": 1}`, `{"result": {"retryAfter": "soon"}}`, `{"rules": [{"rate": "many"}]}`,
		`{"rules": [1]}`, `{"result": 1}`} {
		kept := back
		require.ErrorContains(t, back.UnmarshalJSON([]byte(bad)), "ratelimit: not an explanation: ", bad)
		assert.Equal(t, kept, back, bad)
	}
}

// TestExplainWindows has rules whose windows are those of a calendar, or begin with the first use.
func TestExplainWindows(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Date(2026, 3, 15, 12, 0, 0, 0, time.UTC))
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "month", Endpoint: "/a", Algorithm: ratelimit.AlgorithmFixedWindow,
			Rate:  ratelimit.Rate{Requests: 2, Window: ratelimit.Calendar("month", "Europe/Berlin")},
			Tiers: map[string]ratelimit.Rate{"later": {Requests: 1, Window: ratelimit.Monthly(28, "Europe/Berlin")}}},
		{Name: "day", Endpoint: "/a", Algorithm: ratelimit.AlgorithmFixedWindow,
			Rate: ratelimit.Rate{Requests: 2, Per: 24 * time.Hour, Window: "first"}},
	}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	req := ratelimit.Request{Client: "alice", Endpoint: "/a"}
	require.True(t, l.Allow(req.Client, req.Endpoint).Allowed)
	clock.Advance(time.Hour)
	e, err := l.Explain(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, strings.TrimPrefix(`
"alice" for "/a", cost 1: allowed, 0 left by rule "month" (exact "/a")
rule     match  key           algorithm    rate                   from  state  limit  left  retry after  reset after  at most
"month"  exact  user "alice"  FixedWindow  2/month Europe/Berlin  rule  own    2      0     0s           393h0m0s     2 in each window
"day"    exact  user "alice"  FixedWindow  2/d from first         rule  own    2      0     0s           23h0m0s      4 in 24h0m0s
`, "\n"), e.String())
	require.Equal(t, 6, e.Rules[0].MaxIn, "743 hours can touch February and the months around it")
	text, err := json.Marshal(e)
	require.NoError(t, err)
	require.Contains(t, string(text), `"maxIn":6,"rate":"2/month Europe/Berlin"`)
	require.Contains(t, string(text), `"maxIn":4,"rate":"2/d from first"`)
	var again ratelimit.Explanation
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, e, again)

	req.Tier = "later" // the unit counts until the month ends in which it was granted
	e, err = l.Explain(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, ratelimit.Rate{Requests: 1, Window: "month from day 28 Europe/Berlin"}, e.Rules[0].Rate)
	left := 393 * time.Hour
	require.Equal(t, by("month", no(1, 0, left, left)), e.Rules[0].Result)
	require.Equal(t, 3, e.Rules[0].MaxIn, "if the clocks are set on the 27th, a window is shorter than 28 days")
}

// TestExplainRecordedRequest proves that Explain shows the recorded answer of a request ID, and
// that explanations do not count towards the hundred answers of a record.
func TestExplainRecordedRequest(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/pay", Rate: ratelimit.PerHour(10)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/pay", Cost: 4, ID: "7f3a"}
		e, err := l.Explain(t.Context(), req)
		require.NoError(t, err)
		require.False(t, e.Recorded)
		require.Equal(t, 6, e.Result.Remaining)
		check(t, l, req)
		clock.Advance(6 * minute)
		before := l.Stats()
		for range 150 {
			e, err = l.Explain(t.Context(), req)
			require.NoError(t, err)
			require.True(t, e.Recorded)
			require.Equal(t, by("/pay", yes(10, 6, 18*minute)), e.Result)
			require.EqualValues(t, "replay", e.Rules[0].AnsweredBy)
		}
		require.Equal(t, before, l.Stats())
		require.Contains(t, e.String(), `allowed, 6 left by rule "/pay" (exact "/pay"), as before by its ID`)
		text, err := json.Marshal(e)
		require.NoError(t, err)
		var read ratelimit.Explanation
		require.NoError(t, json.Unmarshal(text, &read))
		require.Equal(t, e, read)
		for range 100 {
			require.Equal(t, e.Result, check(t, l, req))
		}
		e, err = l.Explain(t.Context(), req)
		require.NoError(t, err)
		require.False(t, e.Recorded, "it has answered a hundred times")
		require.Equal(t, 3, check(t, l, req).Remaining, "so it is charged again")
	})
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/pay", Rate: ratelimit.PerHour(10)}}, nil)
	_, err := l.Explain(t.Context(), ratelimit.Request{Endpoint: "/pay", ID: "7f3a"})
	require.EqualError(t, err, `ratelimit: id is "7f3a": must be empty: the limiter has no WithRequestIDs`)
}

// TestResultPrints compares the words of results, as fmt prints them.
func TestResultPrints(t *testing.T) {
	for _, row := range []struct {
		res  ratelimit.Result
		want string
	}{
		{ratelimit.Result{}, "no answer"},
		{ratelimit.Result{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: 10 * time.Second, Rule: "/x"},
			`allowed, 2 of 3 remain, reset after 10s, by rule "/x"`},
		{ratelimit.Result{Limit: 100, RetryAfter: 600 * time.Millisecond, ResetAfter: time.Minute},
			"denied, 0 of 100 remain, retry after 600ms, reset after 1m0s"},
		{ratelimit.Result{Limit: 3, Remaining: 3, RetryAfter: ratelimit.Never}, "denied, 3 of 3 remain, no wait is long enough"},
		{ratelimit.Result{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 2 * time.Second, Delay: time.Second, Degraded: true},
			"allowed, 4 of 5 remain, reset after 2s, delay 1s, by a failure policy"},
		{ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1, Rule: "a\n"}, `allowed, no limit applies, by rule "a\n"`},
		{ratelimit.Result{Limit: 5, ResetAfter: time.Second}, "denied, 0 of 5 remain, retry after 0s, reset after 1s"},
	} {
		for _, verb := range []string{"%v", "%+v", "%s"} {
			assert.Equal(t, row.want, fmt.Sprintf(verb, row.res))
		}
		assert.Equal(t, "["+row.want+"]", fmt.Sprint([]ratelimit.Result{row.res}))
		text, err := json.Marshal(row.res)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(text), `{"Allowed":`), "JSON has the fields: %s", text)
	}
	l, _ := explained(t, []ratelimit.Rule{{Endpoint: "/x", Rate: ratelimit.PerHour(2)}}, nil)
	assert.Equal(t, `allowed, 1 of 2 remain, reset after 30m0s, by rule "/x"`, fmt.Sprint(l.Allow("alice", "/x")))
}
