package ratelimit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

func TestFailLocalOfNobodyIsRefused(t *testing.T) {
	bad := ratelimit.FailLocal(0)
	worse := ratelimit.FailLocal(-1)
	good := ratelimit.Rule{Name: "good", Endpoint: "/e", Rate: ratelimit.PerMinute(5)}
	with := func(r ratelimit.Rule, p ratelimit.FailurePolicy) ratelimit.Rule {
		r.OnStoreError = p
		return r
	}
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithStore(store)}} {
		_, err := ratelimit.New([]ratelimit.Rule{with(good, bad)}, nil, opts...)
		require.EqualError(t, err, "ratelimit: rules[0].onStoreError is local:0: must have at least 1 replica", "a rule")
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		_, err = ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(5), OnStoreError: worse}, opts...)
		require.EqualError(t, err, "ratelimit: defaultRule.onStoreError is local:-1: must have at least 1 replica", "the default rule")
		_, err = ratelimit.New(nil, nil, append(opts, ratelimit.WithFailurePolicy(bad))...)
		require.EqualError(t, err, "ratelimit: failurePolicy is local:0: must have at least 1 replica", "an option")

		l := newRules(t, []ratelimit.Rule{good}, nil, append(opts, ratelimit.WithClock(store.clock))...)
		require.True(t, l.Allow("c", "/e").Allowed)
		before := l.Stats()
		added := with(good, bad)
		added.Name = "added"
		for _, row := range []struct {
			change func() error
			why    string
		}{
			{func() error { return l.AddRule(added) }, "AddRule"},
			{func() error { return l.SetDefaultRule(with(ratelimit.Rule{Rate: ratelimit.PerMinute(5)}, bad)) }, "SetDefaultRule"},
			{func() error { return l.Replace([]ratelimit.Rule{with(good, bad)}, nil) }, "Replace"},
			{func() error { return l.Replace(nil, &added) }, "Replace with a default rule"},
		} {
			require.ErrorIs(t, row.change(), ratelimit.ErrInvalidConfig, row.why)
			require.Equal(t, before, l.Stats(), "%s: nothing is changed", row.why)
			res, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
			require.NoError(t, err, row.why)
			require.Equal(t, named("good", yes(5, 4, 12*sec)), res, row.why)
			require.Equal(t, ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}, l.Allow("c", "/other"), "%s: no default rule", row.why)
		}
		require.NoError(t, l.Reset("c", "/e"))
	}
}

func TestFailurePolicyIsAValue(t *testing.T) {
	for _, row := range []struct {
		p    ratelimit.FailurePolicy
		want string
		why  string
	}{
		{ratelimit.FailurePolicy{}, "inherit", "the zero value"},
		{ratelimit.FailOpen, "open", "as a config has it"},
		{ratelimit.FailClosed, "closed", "as a config has it"},
		{ratelimit.FailLocal(1), "local:1", "as a config has it"},
		{ratelimit.FailLocal(4), "local:4", "as a config has it"},
	} {
		require.Equal(t, row.want, row.p.String(), row.why)
	}
	known := map[ratelimit.FailurePolicy]bool{ratelimit.FailLocal(4): true}
	require.True(t, known[ratelimit.FailLocal(4)], "policies compare")
	require.NotEqual(t, ratelimit.FailLocal(4), ratelimit.FailLocal(3))
}
