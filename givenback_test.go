package ratelimit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A revoker is a RateLimiter of the rule "ours" and of a custom limiter that does something and
// then denies.
type revoker struct {
	*ratelimit.RateLimiter
	clock  *ratelimit.FakeClock
	during func()
	answer ratelimit.Result
}

func newRevoker(t *testing.T, ours ratelimit.Rule, opts ...ratelimit.Option) *revoker {
	r := &revoker{clock: ratelimit.NewFakeClock(epoch), answer: no(1, 0, mins, mins)}
	ours.Name = "ours"
	r.RateLimiter = newRules(t, []ratelimit.Rule{ours, {Name: "custom", Limiter: custom(func(context.Context, string, int) (ratelimit.Result, error) {
		r.during()
		return r.answer, nil
	})}}, nil, append(opts, ratelimit.WithClock(r.clock))...)
	return r
}

// take asks the rule "ours" alone.
func (r *revoker) take(t *testing.T, client string, n int) ratelimit.Result {
	return check(t, r.RateLimiter, ratelimit.Request{Client: client, Rules: []string{"ours"}, Cost: n})
}

// revoked asks both rules for n units for a, which the custom limiter denies after during.
func (r *revoker) revoked(t *testing.T, n int, during func()) {
	r.during = during
	require.False(t, check(t, r.RateLimiter, ratelimit.Request{Client: "a", Rules: []string{"ours", "custom"}, Cost: n}).Allowed)
}

// more takes single units until one is denied, and returns how many were granted.
func (r *revoker) more(t *testing.T, client string) (n int) {
	for r.take(t, client, 1).Allowed {
		n++
	}
	return n
}

// TestGivenBackForgivesNothingElse proves, for what may happen while a custom limiter decides,
// that its denial gives back what that request took and nothing that others took.
func TestGivenBackForgivesNothingElse(t *testing.T) {
	t.Run("evicted", func(t *testing.T) {
		r := newRevoker(t, ratelimit.Rule{Rate: ratelimit.PerSecond(1).WithBurst(10)}, ratelimit.WithMaxKeys(1))
		r.revoked(t, 4, func() {
			r.clock.Advance(1)
			require.True(t, r.take(t, "x", 10).Allowed, "of the shared budget")
			r.clock.Advance(4 * sec)
			require.True(t, r.take(t, "b", 1).Allowed, "b has the slot of a now, and owes what x took")
		})
		require.Equal(t, 4, r.more(t, "x"), "4 s after 10 of burst 10 at 1/s")
	})
	t.Run("a lower rate", func(t *testing.T) {
		r := newRevoker(t, ratelimit.Rule{Rate: ratelimit.PerSecond(5)})
		r.revoked(t, 5, func() {
			r.clock.Advance(sec)
			require.True(t, r.take(t, "a", 5).Allowed, "all were back")
			require.NoError(t, r.UpdateRate("ours", ratelimit.PerHour(5)))
		})
		require.Zero(t, r.more(t, "a"), "at the same instant")
	})
	overAll(t, func(t *testing.T, a algorithm) {
		r := newRevoker(t, ratelimit.Rule{Endpoint: "/a", Algorithm: byName[a.name], Rate: ratelimit.PerHour(8)})
		r.revoked(t, 5, func() {
			require.NoError(t, r.Reset(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/a"}))
			require.True(t, r.take(t, "a", 8).Allowed)
		})
		require.Zero(t, r.more(t, "a"), "8 later units after a Reset")
	})
	t.Run("a place in a queue", func(t *testing.T) {
		r := newRevoker(t, ratelimit.Rule{Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(10)})
		var told ratelimit.Result
		r.revoked(t, 3, func() { told = r.take(t, "a", 2) })
		require.Equal(t, 3*sec, told.Delay)
		next := r.take(t, "a", 1)
		require.Equal(t, 5*sec, next.Delay, "nobody leaves with the two that keep their place")
		require.Equal(t, 7, next.Remaining, "but there is room for three more")
		r.revoked(t, 3, func() {})
		require.Equal(t, 6*sec, r.take(t, "a", 1).Delay, "if nothing came after it, the queue is as if it had not been")
	})
}

// TestGivenBackExactly proves that a key is as if the denied charge had not been made.
func TestGivenBackExactly(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		rule := ratelimit.Rule{Endpoint: "/a", Algorithm: byName[a.name], Rate: ratelimit.PerMinute(9)}
		r, other := newRevoker(t, rule), newRevoker(t, rule)
		for _, x := range []*revoker{r, other} {
			x.take(t, "a", 2)
			x.clock.Advance(sec)
		}
		r.revoked(t, 3, func() { r.revoked(t, 1, func() {}) })
		require.Equal(t, other.take(t, "a", 1), r.take(t, "a", 1))
		r.revoked(t, 6, func() {})
		require.Equal(t, other.more(t, "a"), r.more(t, "a"))
		stats := func(x *revoker) ratelimit.RuleStats { return x.Stats()[0] }
		require.Equal(t, stats(other), stats(r), "what was given back is not counted as allowed")
	})
}

// TestGivenBackByAPanic proves that a panic of a custom limiter gives back, and that a grant
// keeps.
func TestGivenBackByAPanic(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		r := newRevoker(t, ratelimit.Rule{Algorithm: byName[a.name], Rate: ratelimit.PerHour(5)})
		both := ratelimit.Request{Client: "a", Rules: []string{"ours", "custom"}, Cost: 2}
		r.during = func() { panic("custom") }
		require.PanicsWithValue(t, "custom", func() { _, _ = r.Check(t.Context(), both) })
		require.Equal(t, 5, check(t, r.RateLimiter, ratelimit.Request{Client: "a", Rules: []string{"ours"}, Cost: 1}).Remaining+1)
		r.during, r.answer = func() {}, yes(9, 9, 0)
		require.True(t, check(t, r.RateLimiter, both).Allowed)
		require.Equal(t, 2, r.more(t, "a"))
	})
}

// TestOverflowedCountsChargesOnly proves that the answers of a healthy store, which a rule with
// one key cannot all remember, are not counted as overflow.
func TestOverflowedCountsChargesOnly(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(10)}, ratelimit.WithStore(store),
		ratelimit.WithName("n"), ratelimit.WithMaxKeys(1), ratelimit.WithClock(clock))
	require.NoError(t, err)
	for i := range 100 {
		require.True(t, l.Allow(fmt.Sprint(i), "/").Allowed)
	}
	require.Equal(t, []ratelimit.RuleStats{{Rule: "default", Allowed: 100, LiveKeys: 1}}, l.Stats())
}
