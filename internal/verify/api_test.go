package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A scripted is a custom limiter that answers as it is told.
type scripted struct {
	answer ratelimit.Result
	err    error
	taken  int
	rates  []ratelimit.Rate
	refuse error
	closed int
}

func (s *scripted) Allow(key string) ratelimit.Result {
	res, _ := s.Take(context.Background(), key, 1)
	return res
}

func (s *scripted) Take(_ context.Context, _ string, n int) (ratelimit.Result, error) {
	s.taken += n
	return s.answer, s.err
}

func (s *scripted) SetRate(r ratelimit.Rate) error {
	s.rates = append(s.rates, r)
	return s.refuse
}

func (s *scripted) Close() error {
	s.closed++
	return nil
}

// entryOf returns the entry of the rule with this name.
func entryOf(t *testing.T, each []ratelimit.Result, rule string) ratelimit.Result {
	t.Helper()
	for _, res := range each {
		if res.Rule == rule {
			return res
		}
	}
	require.Fail(t, "no entry", rule)
	return ratelimit.Result{}
}

// TestEachAnswer compares the entries of CheckAll with limiters by themselves, over random
// requests by rules that take part or not.
func TestEachAnswer(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	limits := map[string]ratelimit.Rate{"third": ratelimit.PerMinute(7), "first": ratelimit.PerMinute(3), "second": ratelimit.PerMinute(5)}
	models := make(map[string]*ratelimit.TokenBucket)
	l, err := ratelimit.New(nil, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	order := []string{"third", "first", "second"}
	for _, name := range []string{"first", "second", "third"} { // which is the order of locks, not that of rules
		require.NoError(t, l.AddRule(ratelimit.Rule{Name: name, Rate: limits[name]}))
		models[name], err = ratelimit.NewTokenBucket(limits[name], ratelimit.WithClock(clock))
		require.NoError(t, err)
	}
	var listed []ratelimit.Rule
	for _, name := range order {
		listed = append(listed, ratelimit.Rule{Name: name, Rate: limits[name]})
	}
	require.NoError(t, l.Replace(listed, nil))
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		clock.Advance(time.Duration(random.Int64N(int64(20 * time.Second))))
		n, key := 1+random.IntN(8), strconv.Itoa(random.IntN(3))
		_, each, err := l.CheckAll(t.Context(), ratelimit.Request{Client: key, Rules: []string{"first", "third", "second"}, Cost: n}, nil)
		require.NoError(t, err)
		require.Len(t, each, 3)
		passes := true
		for _, m := range models {
			passes = passes && m.Peek(key).Remaining >= n
		}
		for i, name := range order {
			require.Equal(t, name, each[i].Rule, "in the order of the rules")
			left := models[name].Peek(key).Remaining
			require.Equal(t, left >= n, each[i].Allowed, "what the rule alone would answer")
			if passes {
				_, err := models[name].Take(t.Context(), key, n)
				require.NoError(t, err)
				left -= n
			}
			require.Equal(t, left, each[i].Remaining)
		}
	}
}

// TestErrorsOfCustomLimiters proves what the error of a custom limiter costs the others.
func TestErrorsOfCustomLimiters(t *testing.T) {
	failure := errors.New("failure")
	for _, row := range []struct {
		policy  ratelimit.FailurePolicy
		mode    ratelimit.Mode
		err     error
		allowed bool
		left    int
		failed  uint64
	}{
		{ratelimit.FailurePolicy{}, "", failure, true, 4, 1},
		{ratelimit.FailOpen, "", failure, true, 4, 1},
		{ratelimit.FailClosed, "", failure, false, 5, 1},
		{ratelimit.FailClosed, ratelimit.ModeShadow, failure, true, 4, 1},
		{ratelimit.FailOpen, "", ratelimit.ErrInvalidCount, false, 5, 0},
	} {
		custom := &scripted{err: row.err}
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "ours", Endpoint: "/e", Rate: ratelimit.PerHour(5)},
			{Name: "custom", Endpoint: "/e", Limiter: custom, OnStoreError: row.policy, Mode: row.mode},
		}, nil, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))
		require.NoError(t, err)
		require.Equal(t, row.allowed, l.Allow("c", "/e").Allowed)
		ours, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"ours"}})
		require.NoError(t, err)
		require.Equal(t, row.left, ours.Remaining)
		require.Equal(t, row.failed, l.Stats()[1].Errors)
		require.Equal(t, row.failed, l.Stats()[1].Degraded)
	}

	custom := &scripted{answer: ratelimit.Result{Allowed: true, Limit: 9, Remaining: 9}}
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "ours", Endpoint: "/e", Rate: ratelimit.PerHour(1)},
		{Name: "custom", Endpoint: "/e", Limiter: custom},
	}, nil)
	require.NoError(t, err)
	for range 2 {
		_, each, err := l.CheckAll(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}, nil)
		require.NoError(t, err)
		require.Equal(t, 9, entryOf(t, each, "custom").Remaining)
	}
	require.Equal(t, 1, custom.taken, "where another rule denies, it is only looked at")
}

// TestResetsOfRequests proves which keys a Reset leaves alone.
func TestResetsOfRequests(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "user", Endpoint: "/e", Rate: ratelimit.PerHour(2)},
		{Name: "pair", Endpoint: "/e", Rate: ratelimit.PerHour(2), Key: ratelimit.KeyUserEndpoint},
		{Name: "tenant", Endpoint: "/e", Rate: ratelimit.PerHour(2), Key: ratelimit.KeyAttr("tenant")},
		{Name: "global", Endpoint: "/e", Rate: ratelimit.PerHour(2), Key: ratelimit.KeyGlobal},
		{Name: "named", Rate: ratelimit.PerHour(2)},
	}
	tenant := map[string]string{"tenant": "t"}
	for _, row := range []struct {
		req  ratelimit.Request
		want []int // what each rule has left
		err  error
	}{
		{ratelimit.Request{Client: "c", Endpoint: "/e"}, []int{2, 2, 1, 1, 1}, nil},
		{ratelimit.Request{Attrs: tenant, Endpoint: "/e"}, []int{1, 1, 2, 1, 1}, nil},
		{ratelimit.Request{Client: "c"}, []int{2, 1, 1, 1, 2}, nil},
		{ratelimit.Request{Rules: []string{"global"}}, []int{1, 1, 1, 2, 1}, nil},
		{ratelimit.Request{Endpoint: "/e"}, []int{1, 1, 1, 1, 1}, ratelimit.ErrNotReset},
		{ratelimit.Request{Rules: []string{"pair"}, Client: "c"}, []int{1, 1, 1, 1, 1}, ratelimit.ErrNotReset},
	} {
		l, err := ratelimit.New(rules, nil, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))
		require.NoError(t, err)
		all := ratelimit.Request{Client: "c", Endpoint: "/e", Attrs: tenant, Rules: []string{"user", "pair", "tenant", "global", "named"}}
		res, err := l.Check(t.Context(), all)
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.ErrorIs(t, l.Reset(t.Context(), row.req), row.err)
		all.Cost = 3 // which is denied
		_, each, err := l.CheckAll(t.Context(), all, nil)
		require.NoError(t, err)
		var left []int
		for _, res := range each {
			left = append(left, res.Remaining)
		}
		require.Equal(t, row.want, left)
	}

	l, err := ratelimit.New(rules[:1], nil, ratelimit.WithMaxKeys(1), ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))
	require.NoError(t, err)
	for _, client := range []string{"a", "b", "b"} {
		require.True(t, l.Allow(client, "/e").Allowed)
	}
	require.ErrorIs(t, l.Reset(t.Context(), ratelimit.Request{Client: "b", Endpoint: "/e"}), ratelimit.ErrNotReset)
	bucket, err := ratelimit.NewTokenBucket(ratelimit.PerHour(1), ratelimit.WithMaxKeys(1), ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))
	require.NoError(t, err)
	require.True(t, bucket.Allow("a").Allowed)
	require.NoError(t, bucket.Reset("b"))
	require.True(t, bucket.Allow("b").Allowed)
	require.ErrorIs(t, bucket.Reset("b"), ratelimit.ErrNotReset)
	require.NoError(t, bucket.Reset("a"))
}

// TestHooksOfChanges proves what a change tells custom limiters, and which it closes.
func TestHooksOfChanges(t *testing.T) {
	one, five := ratelimit.PerHour(1), ratelimit.PerHour(5)
	var l *ratelimit.RateLimiter
	var made []*scripted
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Scripted", func(map[string]any, ratelimit.Env) (ratelimit.Limiter, error) {
		made = append(made, new(scripted))
		if l == nil {
			return made[len(made)-1], nil
		}
		return made[len(made)-1], l.SetDefaultRule(ratelimit.Rule{Rate: one}) // hangs if a lock is held
	}))
	config := func(limit any) map[string]any {
		return map[string]any{"endpoint": "/made", "algorithm": "Scripted", "algoConfig": map[string]any{"limit": limit}}
	}
	told, refusing := new(scripted), &scripted{refuse: errors.New("refused")}
	rules := func(r ratelimit.Rate) []ratelimit.Rule {
		return []ratelimit.Rule{{Endpoint: "/told", Limiter: told, Rate: r}, {Endpoint: "/refusing", Limiter: refusing, Rate: r}}
	}
	var err error
	l, err = ratelimit.New(rules(one), nil, ratelimit.WithFactory(factory), ratelimit.WithRequiredRules("/told"))
	require.NoError(t, err)
	require.ErrorIs(t, l.Replace(rules(five), nil), refusing.refuse)
	require.Equal(t, []ratelimit.Rate{five, one}, told.rates, "it is told, and the change fails")
	require.ErrorIs(t, l.RemoveRule("/told"), ratelimit.ErrInvalidConfig)
	require.NoError(t, l.UpdateRate("/told", five))
	require.Equal(t, []ratelimit.Rate{five, one, five}, told.rates)

	require.NoError(t, l.SetConfig(config(1)))
	require.NoError(t, l.SetConfig(config(1.0)))
	require.Len(t, made, 1, "the config has not changed")
	require.Zero(t, made[0].closed)
	require.NoError(t, l.SetConfig(config(2)))
	require.Len(t, made, 2)
	require.Equal(t, 1, made[0].closed, "no rule has it")
	require.ErrorIs(t, l.Reload([]map[string]any{config(3)}, nil), ratelimit.ErrInvalidConfig, "a required rule is not among them")
	require.Equal(t, []int{0, 1}, []int{made[1].closed, made[2].closed}, "what was made for a change that failed")

	shared, _, err := ratelimit.DecodeRules([]map[string]any{config(4)}, nil, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	first, err := ratelimit.New(shared, nil)
	require.NoError(t, err)
	_, err = ratelimit.New(shared, nil)
	require.NoError(t, err)
	require.NoError(t, first.RemoveRule("/made"))
	require.Zero(t, made[3].closed, "another RateLimiter has it")
}

// A changing is a store whose Supports changes the rules, once.
type changing struct {
	ratelimit.Store
	change func() error
}

func (s *changing) Supports(ratelimit.Algorithm, ratelimit.Rate) error {
	change := s.change
	s.change = nil
	if change == nil {
		return nil
	}
	return change()
}

// TestHooksInsideHooks proves that Supports can change the rules, whose change comes first.
func TestHooksInsideHooks(t *testing.T) {
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	store := &changing{Store: memory}
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "old", Rate: ratelimit.PerHour(1)}}, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"))
	require.NoError(t, err)
	store.change = func() error {
		return errors.Join(l.RemoveRule("old"), l.AddRule(ratelimit.Rule{Name: "inner", Rate: ratelimit.PerHour(1)}))
	}
	require.NoError(t, l.AddRule(ratelimit.Rule{Name: "outer", Rate: ratelimit.PerHour(1)}))
	rules, _ := l.Rules()
	require.Len(t, rules, 2)
	require.Equal(t, []string{"inner", "outer"}, []string{rules[0].Name, rules[1].Name})
}
