package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/override"
)

// overridden returns a limiter with a rule for each client, one for each address, and one that all share.
func overridden(t testing.TB) (*ratelimit.RateLimiter, *ratelimit.FakeClock) {
	clock := ratelimit.NewFakeClock(newYear)
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "client", Endpoint: "/", Rate: ratelimit.PerMinute(2)},
		{Name: "address", Endpoint: "*", Additional: true, Key: ratelimit.KeyIP, Rate: ratelimit.PerMinute(5)},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(1000)},
	}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return l, clock
}

func asked(t testing.TB, l *ratelimit.RateLimiter, client, ip string) ratelimit.Result {
	t.Helper()
	res, err := l.Check(t.Context(), ratelimit.Request{Client: client, Endpoint: "/", IP: ip})
	require.NoError(t, err)
	return res
}

// TestOverrideBlocks proves what a block answers, until when, and that no rule is asked.
func TestOverrideBlocks(t *testing.T) {
	l, clock := overridden(t)
	until := newYear.Add(time.Hour)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock, Until: until, Note: "ticket"}))
	for range 3 {
		blocked := ratelimit.Result{RetryAfter: time.Hour, ResetAfter: time.Hour, Reason: ratelimit.ReasonOverride}
		require.Equal(t, blocked, asked(t, l, "alice", "192.0.2.1"))
		require.Equal(t, blocked, l.Allow("alice", "/"))
		require.Equal(t, blocked, l.Allow("alice", "/nothing"), "also where only the rules for all apply")
	}
	for _, s := range l.Stats() {
		require.Zero(t, s.Allowed+s.Denied, "no rule is asked: %s", s.Rule)
	}
	require.True(t, asked(t, l, "bob", "192.0.2.1").Allowed, "others are not blocked")
	require.Equal(t, ratelimit.OverrideStats{Blocked: 9, Blocks: 1}, l.OverrideStats())
	clock.Set(until.Add(-1))
	require.Equal(t, time.Duration(1), asked(t, l, "alice", "").RetryAfter)
	clock.Set(until)
	require.True(t, asked(t, l, "alice", "").Allowed, "the block has ended")
	require.Zero(t, l.OverrideStats().Blocks)

	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock}))
	require.Equal(t, ratelimit.Never, asked(t, l, "alice", "").RetryAfter, "without Until, no wait is long enough")
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice"}))
	require.True(t, asked(t, l, "alice", "").Allowed, "it is lifted")
	all, err := l.Overrides(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

// TestOverrideBlocksWithoutRules proves that a block for all rules also denies where no rule applies.
func TestOverrideBlocksWithoutRules(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerMinute(1)}}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock}))
	require.False(t, l.Allow("alice", "/b").Allowed)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "bob", Effect: ratelimit.EffectBlock, Rules: []string{"/a"}}))
	require.True(t, l.Allow("bob", "/b").Allowed, "a block for one rule is not for other endpoints")
	require.False(t, l.Allow("bob", "/a").Allowed)
}

// TestOverrideBlocksDoubtfulAddresses asks for an endpoint without rules, from an exempt address in a network that is blocked. If the
// address may be that of a proxy, so that everybody could send requests from it, the block holds.
func TestOverrideBlocksDoubtfulAddresses(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/rule", Rate: ratelimit.PerHour(5)}}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Override(t.Context(),
		ratelimit.Override{IP: "10.1.2.3", Effect: ratelimit.EffectExempt}, ratelimit.Override{IP: "10.0.0.0/8", Effect: ratelimit.EffectBlock}))
	for _, endpoint := range []string{"/none", "/rule"} {
		req := ratelimit.Request{Client: "alice", Endpoint: endpoint, IP: "10.1.2.3"}
		res, err := l.Check(t.Context(), req)
		require.NoError(t, err)
		require.True(t, res.Allowed, endpoint)
		doubt := override.NewDoubt(t.Context(), false)
		res, err = l.Check(doubt, req)
		require.NoError(t, err)
		require.Equal(t, ratelimit.Result{RetryAfter: ratelimit.Never, ResetAfter: ratelimit.Never, Reason: ratelimit.ReasonOverride}, res, endpoint)
		require.True(t, doubt.Met(), endpoint)
	}
}

// TestOverrideExempts proves that exempt rules neither limit nor charge, and that others do.
func TestOverrideExempts(t *testing.T) {
	l, _ := overridden(t)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{IP: "10.0.0.0/8", Effect: ratelimit.EffectExempt, Rules: []string{"client", "address"}}))
	for range 20 {
		res := asked(t, l, "alice", "10.1.2.3")
		require.True(t, res.Allowed)
		require.Equal(t, "all", res.Rule)
	}
	stats := l.Stats()
	require.Zero(t, stats[0].Allowed+stats[1].Allowed, "they do not take part")
	require.EqualValues(t, 20, stats[2].Allowed)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "root", Effect: ratelimit.EffectExempt}))
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}, asked(t, l, "root", "192.0.2.1"), "no rule is left")
	require.EqualValues(t, 20, l.Stats()[2].Allowed)
	require.Equal(t, ratelimit.OverrideStats{Exempted: 21, Exemptions: 2}, l.OverrideStats())
}

// TestOverrideRates proves that a rate applies to the keys of the client alone, and not to what all share.
func TestOverrideRates(t *testing.T) {
	l, _ := overridden(t)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectRate, Rate: ratelimit.PerMinute(4)}))
	for range 4 {
		require.True(t, asked(t, l, "alice", "192.0.2.1").Allowed)
	}
	res := asked(t, l, "alice", "192.0.2.1")
	require.False(t, res.Allowed)
	require.Equal(t, 4, res.Limit)
	require.Equal(t, 1000, asked(t, l, "bob", "192.0.2.2").Limit*0+1000)
	x, err := l.Explain(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", IP: "192.0.2.1"})
	require.NoError(t, err)
	require.Equal(t, ratelimit.RateFrom("override"), x.Rules[0].RateFrom)
	require.Equal(t, ratelimit.PerMinute(4), x.Rules[0].Override.Rate)
	require.Equal(t, ratelimit.RateFrom("rule"), x.Rules[2].RateFrom, "the rule that all share keeps its rate")

	require.NoError(t, l.UpdateRate("client", ratelimit.PerMinute(3)))
	require.Equal(t, 4, asked(t, l, "alice", "192.0.2.1").Limit, "a change of the rule does not change it")
}

// TestOverridePrecedence proves which override decides.
func TestOverridePrecedence(t *testing.T) {
	block, exempt := ratelimit.EffectBlock, ratelimit.EffectExempt
	for _, c := range []struct {
		why    string
		given  []ratelimit.Override
		ip     string
		limit  int // of the Result: -1 if exempt, 0 if blocked, 2 if no override decides
		client string
	}{
		{"one address in a blocked network", []ratelimit.Override{
			{IP: "203.0.113.0/24", Effect: block}, {IP: "203.0.113.9", Effect: exempt}}, "203.0.113.9", -1, ""},
		{"the others in it", []ratelimit.Override{
			{IP: "203.0.113.0/24", Effect: block}, {IP: "203.0.113.9", Effect: exempt}}, "203.0.113.8", 0, ""},
		{"a network around another one in it", []ratelimit.Override{
			{IP: "203.0.0.0/16", Effect: exempt}, {IP: "203.0.112.0/24", Effect: block}}, "203.0.113.9", -1, ""},
		{"the client before the address", []ratelimit.Override{
			{IP: "203.0.113.9", Effect: block}, {Client: "c", Effect: exempt}}, "203.0.113.9", -1, ""},
		{"a rule before all rules", []ratelimit.Override{
			{Client: "c", Effect: exempt}, {Client: "c", Effect: block, Rules: []string{"client"}}}, "", 0, ""},
		{"of equals the block", []ratelimit.Override{
			{Client: "c", Effect: exempt}, {Client: "c", Effect: block}}, "", 0, ""},
		{"an IPv4 address in IPv6", []ratelimit.Override{{IP: "203.0.113.9", Effect: block}}, "::ffff:203.0.113.9", 0, ""},
		{"an override in that form", []ratelimit.Override{{IP: "::ffff:203.0.113.9", Effect: block}}, "203.0.113.9", 0, ""},
		{"a zone", []ratelimit.Override{{IP: "fe80::1", Effect: block}}, "fe80::1%eth0", 0, ""},
		{"a network of the request, met in part by a block", []ratelimit.Override{{IP: "2001:db8::1", Effect: block}}, "2001:db8::/64", 0, ""},
		{"a network of the request, met in part by an exemption", []ratelimit.Override{{IP: "2001:db8::1", Effect: exempt}}, "2001:db8::/64", 2, ""},
		{"a network inside", []ratelimit.Override{{IP: "2001:db8::/32", Effect: exempt}}, "2001:db8::/64", -1, ""},
		{"all addresses of IPv6 are none of IPv4", []ratelimit.Override{{IP: "::/0", Effect: block}}, "203.0.113.9", 2, ""},
		{"no address", []ratelimit.Override{{IP: "0.0.0.0/0", Effect: block}, {IP: "::/0", Effect: block}}, "unknown", 2, ""},
		{"a client named like an address", []ratelimit.Override{{IP: "203.0.113.9", Effect: block}}, "", 2, "203.0.113.9"},
		{"a client named like the text for an address", []ratelimit.Override{{IP: "203.0.113.9", Effect: block}}, "", 2, "ip 203.0.113.9"},
	} {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "client", Endpoint: "/", Rate: ratelimit.PerMinute(2)}}, nil)
		require.NoError(t, err)
		require.NoError(t, l.Override(t.Context(), c.given...))
		if c.client == "" {
			c.client = "c"
		}
		assert.Equal(t, c.limit, asked(t, l, c.client, c.ip).Limit, c.why)
	}
}

// TestOverrideErrors proves what is refused, and that nothing is set then.
func TestOverrideErrors(t *testing.T) {
	l, _ := overridden(t)
	good := ratelimit.Override{Client: "good", Effect: ratelimit.EffectBlock}
	for _, c := range []struct {
		o    ratelimit.Override
		want string
	}{
		{ratelimit.Override{Effect: "block"}, `overrides[1].client is "" and ip is "": must be set, or ip, and not both`},
		{ratelimit.Override{Client: "a", IP: "::1", Effect: "block"}, `overrides[1].client is "a" and ip is "::1": must be set, or ip, and not both`},
		{ratelimit.Override{Client: strings.Repeat("x", 4097), Effect: "block"}, `overrides[1].client is 4097 bytes: must have at most 4096 bytes`},
		{ratelimit.Override{IP: "10.0.0.1/8", Effect: "block"}, `overrides[1].ip is "10.0.0.1/8": has bits set beyond its length: 10.0.0.0/8 is the prefix of this length`},
		{ratelimit.Override{IP: "localhost", Effect: "block"}, `overrides[1].ip is "localhost": must be an address, such as "203.0.113.9", or a prefix, such as "10.0.0.0/8"`},
		{ratelimit.Override{Client: "a", Effect: "ban"}, `overrides[1].effect is "ban": must be one of "block", "exempt", "rate", "pardon", or "" to lift`},
		{ratelimit.Override{Client: "a", Effect: "block", Rules: []string{"cleint"}}, `overrides[1].rules: ratelimit: unknown rule "cleint"; did you mean "client"?`},
		{ratelimit.Override{Client: "a", Effect: "block", Until: newYear}, `overrides[1].until is 2026-01-01 00:00:00 +0000 UTC: must be in the future: it is 2026-01-01T00:00:00Z now`},
		{ratelimit.Override{Client: "a", Effect: "block", Rate: ratelimit.PerSecond(1)}, `overrides[1].rate is 1/s: must be zero, unless the effect is "rate"`},
		{ratelimit.Override{Client: "a", Effect: "rate", Rate: ratelimit.PerSecond(0)}, `overrides[1].rate.requests is 0: must be at least 1`},
		{ratelimit.Override{Client: "a", Effect: "rate", Rate: ratelimit.PerSecond(1), Rules: []string{"all"}}, `overrides[1].rules is "all": must have only rules whose keys belong to one client: others would get the rate, too`},
		{ratelimit.Override{Client: "a", Effect: "block", Note: strings.Repeat("n", 257)}, `overrides[1].note is 257 bytes: must have at most 256 bytes`},
		{ratelimit.Override{Client: "a", Until: newYear.Add(1)}, `must be zero, unless the effect is "block", "exempt" or "rate"`},
	} {
		err := l.Override(t.Context(), good, c.o)
		require.ErrorContains(t, err, c.want)
		require.True(t, errors.Is(err, ratelimit.ErrInvalidConfig) || errors.Is(err, ratelimit.ErrUnknownRule))
		all, err := l.Overrides(t.Context())
		require.NoError(t, err)
		require.Empty(t, all, "nothing is half set: %s", c.want)
	}
}

// TestPenalty proves when a block begins, how long it lasts, and how it grows.
func TestPenalty(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	l, err := ratelimit.New([]ratelimit.Rule{{
		Name: "login", Endpoint: "/", Rate: ratelimit.PerHour(1),
		Penalty: ratelimit.Penalty{After: 3, Within: time.Minute, For: 10 * time.Minute, Most: 30 * time.Minute},
	}}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	deny := func() ratelimit.Result {
		res := l.Allow("alice", "/")
		require.False(t, res.Allowed)
		return res
	}
	require.True(t, l.Allow("alice", "/").Allowed)
	block := func() time.Duration {
		require.Equal(t, ratelimit.ReasonLimit, deny().Reason)
		require.Equal(t, ratelimit.ReasonLimit, deny().Reason)
		res := deny()
		require.Equal(t, ratelimit.ReasonPenalty, res.Reason)
		return res.RetryAfter
	}
	require.Equal(t, time.Hour, block(), "the rule's own wait is longer than the block")
	clock.Advance(10*time.Minute - 1)
	require.Equal(t, ratelimit.ReasonPenalty, deny().Reason)
	clock.Advance(1)
	require.Equal(t, ratelimit.ReasonLimit, deny().Reason, "the block has ended")
	clock.Advance(time.Minute)
	require.EqualValues(t, 1, l.Stats()[0].Penalized)
	require.NoError(t, l.UpdateRate("login", ratelimit.PerDay(1)))
	require.NotZero(t, block())
	clock.Advance(20*time.Minute - 1)
	require.Equal(t, ratelimit.ReasonPenalty, deny().Reason, "it lasts twice as long")
	clock.Advance(1)
	block()
	clock.Advance(30*time.Minute - 1)
	require.Equal(t, ratelimit.ReasonPenalty, deny().Reason, "it lasts as long as Most")
	clock.Advance(1 + 30*time.Minute)
	block()
	clock.Advance(10 * time.Minute)
	require.Equal(t, ratelimit.ReasonLimit, deny().Reason, "after Most, it begins anew")
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "alice"}))
	require.True(t, l.Allow("alice", "/").Allowed)
	block()
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectPardon}))
	require.Equal(t, ratelimit.ReasonLimit, deny().Reason, "pardoned, but no budget given back")
}

// A waited is what Wait has returned, and when.
type waited struct {
	res ratelimit.Result
	err error
	at  time.Duration
}

// waitOf begins a Wait of the client, which may last for the time patience (0: for ever).
func waitOf(l *ratelimit.RateLimiter, client string, patience time.Duration) chan waited {
	c, start := make(chan waited, 1), time.Now()
	go func() {
		ctx, cancel := context.Background(), func() {}
		if patience > 0 {
			ctx, cancel = context.WithTimeout(ctx, patience)
		}
		defer cancel()
		res, err := l.Wait(ctx, ratelimit.Request{Client: client, Endpoint: "/"})
		c <- waited{res, err, time.Since(start)}
	}()
	synctest.Wait()
	return c
}

// TestWaitBlocked proves that callers who wait are decided on anew when an override is for them: one who is blocked fails at
// once, or waits for the end of the block or until it is lifted; one who is exempt is served at once; others are not affected.
func TestWaitBlocked(t *testing.T) {
	block := func(until time.Duration) ratelimit.Override {
		o := ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock}
		if until > 0 {
			o.Until = time.Now().Add(until)
		}
		return o
	}
	for _, c := range []struct {
		why      string
		patience time.Duration
		do       func(l *ratelimit.RateLimiter) error
		at       time.Duration
		err      error
		reason   ratelimit.Reason
	}{
		{"nobody sets an override", 0, func(*ratelimit.RateLimiter) error { return nil }, 30 * time.Second, nil, ""},
		{"a block for ever", 0, func(l *ratelimit.RateLimiter) error { return l.Override(t.Context(), block(0)) }, 0, ratelimit.ErrExceedsLimit, "override"},
		{"a block beyond the deadline", time.Minute, func(l *ratelimit.RateLimiter) error {
			return l.Override(t.Context(), block(time.Hour))
		}, 0, context.DeadlineExceeded, "override"},
		{"a block that ends before", 2 * time.Minute, func(l *ratelimit.RateLimiter) error {
			return l.Override(t.Context(), block(time.Minute))
		}, time.Minute, nil, ""},
		{"an exemption", 0, func(l *ratelimit.RateLimiter) error {
			return l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectExempt})
		}, 0, nil, ""},
		{"a rate", 0, func(l *ratelimit.RateLimiter) error {
			return l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectRate, Rate: ratelimit.PerMinute(60)})
		}, 30 * time.Second, nil, ""}, // what is used drains at the slower rate until the next grant, as after a change of the tier
		{"a block that is lifted", 0, func(l *ratelimit.RateLimiter) error {
			if err := l.Override(t.Context(), block(time.Hour)); err != nil {
				return err
			}
			time.Sleep(40 * time.Second)
			return l.Override(t.Context(), ratelimit.Override{Client: "alice"})
		}, 40 * time.Second, nil, ""},
		{"a block that ends, by ReserveWait after it began", 0, func(l *ratelimit.RateLimiter) error {
			return l.Override(t.Context(), block(45*time.Second))
		}, 45 * time.Second, nil, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, err := ratelimit.New([]ratelimit.Rule{{Name: "client", Endpoint: "/", Rate: ratelimit.PerMinute(2)}}, nil)
			require.NoError(t, err)
			for _, client := range []string{"alice", "bob"} {
				require.True(t, l.Allow(client, "/").Allowed)
				require.True(t, l.Allow(client, "/").Allowed)
			}
			alice, bob := waitOf(l, "alice", c.patience), waitOf(l, "bob", 0)
			require.NoError(t, c.do(l), c.why)
			got := <-alice
			assert.Equal(t, c.at, got.at, c.why)
			assert.Equal(t, c.reason, got.res.Reason, c.why)
			assert.Equal(t, c.err == nil, got.res.Allowed, c.why)
			if c.err != nil {
				assert.ErrorIs(t, got.err, c.err, c.why)
			}
			assert.Equal(t, 30*time.Second, max((<-bob).at, 30*time.Second), "others are not affected: %s", c.why)
		})
	}
}

// TestWaitPenalty proves that a caller of Wait whose key is blocked by a Penalty waits for the end of the block, and that a
// Wait is no strike.
func TestWaitPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "login", Endpoint: "/", Rate: ratelimit.PerMinute(6).WithBurst(1),
			Penalty: ratelimit.Penalty{After: 2, Within: time.Minute, For: 5 * time.Minute}}}, nil)
		require.NoError(t, err)
		require.True(t, l.Allow("alice", "/").Allowed)
		for range 3 {
			got := <-waitOf(l, "alice", time.Second)
			require.ErrorIs(t, got.err, context.DeadlineExceeded)
			require.Equal(t, ratelimit.ReasonLimit, got.res.Reason, "to wait is no strike")
		}
		require.Equal(t, ratelimit.ReasonLimit, l.Allow("alice", "/").Reason)
		require.Equal(t, ratelimit.ReasonPenalty, l.Allow("alice", "/").Reason)
		got := <-waitOf(l, "alice", time.Minute)
		require.ErrorIs(t, got.err, context.DeadlineExceeded)
		require.Equal(t, ratelimit.ReasonPenalty, got.res.Reason)
		got = <-waitOf(l, "alice", 0)
		require.NoError(t, got.err)
		require.Equal(t, 5*time.Minute, got.at)

		l.Allow("alice", "/")
		require.Equal(t, ratelimit.ReasonPenalty, l.Allow("alice", "/").Reason)
		waits := waitOf(l, "alice", 0)
		time.Sleep(20 * time.Second)
		require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectPardon}))
		require.Equal(t, 20*time.Second, (<-waits).at, "a pardon ends the wait")
	})
}

// TestOverridesElsewhere proves that overrides hold for reservations, retries, all results, looks and reloads.
func TestOverridesElsewhere(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	rules := []ratelimit.Rule{{Name: "client", Endpoint: "/", Rate: ratelimit.PerMinute(5)}, {Name: "other", Endpoint: "/", Rate: ratelimit.PerMinute(9)}}
	l, err := ratelimit.New(rules, nil, ratelimit.WithClock(clock), ratelimit.WithRequestIDs(time.Hour))
	require.NoError(t, err)
	ctx, req := t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
	res, err := l.Check(ctx, req)
	require.NoError(t, err)
	require.True(t, res.Allowed)
	require.NoError(t, l.Override(ctx, ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock}))
	for _, ask := range []func() (ratelimit.Result, error){
		func() (ratelimit.Result, error) { return l.Check(ctx, req) }, // although its ID was granted
		func() (ratelimit.Result, error) { return l.Peek(ctx, req) },
		func() (ratelimit.Result, error) {
			res, all, err := l.CheckAll(ctx, req, nil)
			require.Empty(t, all, "no rule was asked")
			return res, err
		},
		func() (ratelimit.Result, error) {
			r, err := l.Reserve(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"}, time.Minute)
			require.NoError(t, r.Settle(1))
			return r.Result(), err
		},
		func() (ratelimit.Result, error) {
			x, err := l.Explain(ctx, req)
			require.Equal(t, "alice", x.Override.Client)
			require.Contains(t, x.String(), "denied for ever\nby the block of client \"alice\"")
			return x.Result, err
		},
	} {
		res, err := ask()
		require.NoError(t, err)
		require.Equal(t, ratelimit.Result{RetryAfter: ratelimit.Never, ResetAfter: ratelimit.Never, Reason: ratelimit.ReasonOverride}, res)
	}
	require.NoError(t, l.Override(ctx, ratelimit.Override{Client: "alice"}, ratelimit.Override{Client: "alice", Effect: ratelimit.EffectExempt,
		Rules: []string{"client"}}))
	_, all, err := l.CheckAll(ctx, req, nil)
	require.NoError(t, err)
	require.Equal(t, -1, all[0].Limit, "exempt from the first rule")
	require.Equal(t, 7, all[1].Remaining, "the retry is another request: by the other rule alone")
	require.NoError(t, l.Replace(rules[1:], nil))
	require.Equal(t, "other", asked(t, l, "alice", "").Rule, "an override for a rule that is removed has no effect")
	require.NoError(t, l.Replace(rules, nil))
	_, all, err = l.CheckAll(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"}, nil)
	require.NoError(t, err)
	require.Equal(t, -1, all[0].Limit, "it applies again when there is such a rule")
	require.NoError(t, l.ReloadOverrides(ratelimit.Override{Client: "bob", Effect: ratelimit.EffectBlock}))
	require.NoError(t, l.ReloadOverrides())
	found, err := l.Overrides(ctx)
	require.NoError(t, err)
	require.Len(t, found, 1, "those of a file are replaced, those of code stay")
}

// TestSharedOverrides proves that two limiters with one store obey the overrides that either of them sets: the one at once,
// the other within a second of its next decision. A failing store changes nothing.
func TestSharedOverrides(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	faulty := &brokenOverrides{MemoryStore: store}
	limiter := func() *ratelimit.RateLimiter {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "client", Endpoint: "/", Rate: ratelimit.PerMinute(2)}}, nil,
			ratelimit.WithClock(clock), ratelimit.WithStore(faulty), ratelimit.WithName("shop"), ratelimit.WithOverrides())
		require.NoError(t, err)
		return l
	}
	a, b := limiter(), limiter()
	require.True(t, asked(t, b, "alice", "").Allowed)
	require.NoError(t, a.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: "block", Until: newYear.Add(time.Hour)}))
	require.Equal(t, ratelimit.ReasonOverride, asked(t, a, "alice", "").Reason, "who sets it obeys at once")

	eventually := func(l *ratelimit.RateLimiter, reason ratelimit.Reason, why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			res, err := l.Peek(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/"})
			require.NoError(t, err)
			return res.Reason == reason
		}, 10*time.Second, time.Millisecond, why)
	}
	clock.Advance(time.Second + 1)
	asked(t, b, "alice", "") // begins to read
	eventually(b, ratelimit.ReasonOverride, "the other obeys after its next decision")

	faulty.down.Store(true)
	err = b.Override(t.Context(), ratelimit.Override{Client: "bob", Effect: "block"})
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.True(t, asked(t, b, "bob", "").Allowed, "nothing is set")
	_, err = b.Overrides(t.Context())
	require.ErrorIs(t, err, ratelimit.ErrStore)
	clock.Advance(time.Minute)
	require.Equal(t, ratelimit.ReasonOverride, asked(t, b, "alice", "").Reason, "the last copy holds")
	faulty.down.Store(false)

	require.NoError(t, b.Override(t.Context(), ratelimit.Override{Client: "alice"}))
	clock.Advance(time.Second + 1)
	asked(t, a, "alice", "")
	eventually(a, "", "it is lifted")

	var many []ratelimit.Override
	for i := range 10_001 {
		many = append(many, ratelimit.Override{Client: fmt.Sprint(i), Effect: "block"})
	}
	err = a.Override(t.Context(), many...)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, "overrides is 10001: must be at most 10000")
	all, err := a.Overrides(t.Context())
	require.NoError(t, err)
	require.Empty(t, all, "nothing is half set")
	require.NoError(t, a.Override(t.Context(), many[:10_000]...))
	all, err = b.Overrides(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 10_000)
}

// A brokenOverrides is a MemoryStore whose overrides fail while it is down.
type brokenOverrides struct {
	*ratelimit.MemoryStore
	down atomic.Bool
}

func (s *brokenOverrides) SetOverrides(ctx context.Context, limiter string, o []ratelimit.Override) error {
	if s.down.Load() {
		return errors.New("down")
	}
	return s.MemoryStore.SetOverrides(ctx, limiter, o)
}

func (s *brokenOverrides) OverridesSince(
	ctx context.Context, limiter string, since ratelimit.OverrideVersion,
) (ratelimit.OverrideChange, error) {
	if s.down.Load() {
		return ratelimit.OverrideChange{}, errors.New("down")
	}
	return s.MemoryStore.OverridesSince(ctx, limiter, since)
}

// TestOverrideLongest proves that a request which several blocks deny is denied until the last of them ends, and that an
// exemption denies nothing where no rule applies.
func TestOverrideLongest(t *testing.T) {
	l, clock := overridden(t)
	block := func(rule string, lasts time.Duration) ratelimit.Override {
		return ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock, Rules: []string{rule}, Until: clock.Now().Add(lasts)}
	}
	require.NoError(t, l.Override(t.Context(), block("client", time.Hour), block("address", 2*time.Hour), block("all", time.Minute)))
	require.Equal(t, 2*time.Hour, asked(t, l, "alice", "").RetryAfter)
	require.NoError(t, l.Override(t.Context(),
		ratelimit.Override{IP: "2001:db8::1", Effect: ratelimit.EffectBlock, Rules: []string{"client"}},
		ratelimit.Override{IP: "2001:db8::1", Effect: ratelimit.EffectExempt, Rules: []string{"address"}}))
	res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/x", IP: "2001:db8::/64"})
	require.NoError(t, err)
	require.Equal(t, 5, res.Limit, "an exemption of one address is not one of its network")
	none, err := ratelimit.New([]ratelimit.Rule{{Name: "client", Endpoint: "/a", Rate: ratelimit.PerMinute(2)}}, nil)
	require.NoError(t, err)
	require.NoError(t, none.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectExempt}))
	require.True(t, none.Allow("alice", "/b").Allowed)
}

// TestOverrideReplaces proves which override takes the place of which, and what is lifted.
func TestOverrideReplaces(t *testing.T) {
	l, _ := overridden(t)
	set := func(effect string, rules ...string) {
		require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: effect, Rules: rules, Note: "n"}))
	}
	count := func() int {
		all, err := l.Overrides(t.Context())
		require.NoError(t, err)
		return len(all)
	}
	set("block", "client", "all")
	set("block", "all", "client", "all")
	require.Equal(t, 1, count(), "the same rules as a set")
	set("exempt", "client", "all")
	set("block", "client")
	set("block")
	require.Equal(t, 4, count())
	set("", "all", "client")
	require.Equal(t, 2, count(), "those with these rules")
	set("")
	require.Zero(t, count(), "all of this client")
	set("")
}

// TestStrikesConcurrent proves that 10,000 denials at once begin one block, of the length of the first.
func TestStrikesConcurrent(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "r", Endpoint: "/", Rate: ratelimit.PerDay(1),
		Penalty: ratelimit.Penalty{After: 1, Within: time.Hour, For: time.Minute, Most: 24 * time.Hour}}}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	l.Allow("alice", "/")
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for range 100 {
				l.Allow("alice", "/")
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, l.Stats()[0].Penalized)
	clock.Advance(time.Minute)
	require.Equal(t, ratelimit.ReasonPenalty, l.Allow("alice", "/").Reason)
	clock.Advance(2*time.Minute - 1)
	require.Equal(t, ratelimit.ReasonPenalty, l.Allow("alice", "/").Reason)
	require.EqualValues(t, 2, l.Stats()[0].Penalized, "the second one lasts twice as long")
}

// TestStrikesInStore proves which asks of a MemoryStore are strikes.
func TestStrikesInStore(t *testing.T) {
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(ratelimit.NewFakeClock(newYear)))
	require.NoError(t, err)
	ask := ratelimit.Ask{Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerDay(1), N: 1,
		Penalty: ratelimit.Penalty{After: 1, Within: time.Hour, For: time.Minute}}
	take := func(change func(a *ratelimit.Ask)) ratelimit.Result {
		a := ask
		change(&a)
		res, err := store.Take(t.Context(), []ratelimit.Ask{a})
		require.NoError(t, err)
		return res[0]
	}
	require.True(t, take(func(*ratelimit.Ask) {}).Allowed)
	require.Equal(t, ratelimit.ReasonLimit, take(func(a *ratelimit.Ask) { a.Look = true }).Reason)
	require.Equal(t, ratelimit.ReasonLimit, take(func(a *ratelimit.Ask) { a.NoStrike = true }).Reason)
	require.Equal(t, ratelimit.ReasonLimit, take(func(a *ratelimit.Ask) { a.N = 0 }).Reason)
	require.Equal(t, ratelimit.ReasonLimit, take(func(a *ratelimit.Ask) { a.Shadow = true }).Reason)
	require.Equal(t, ratelimit.ReasonLimit, take(func(a *ratelimit.Ask) { a.NoStrike = true }).Reason, "none of these is a strike")
	require.Equal(t, ratelimit.ReasonPenalty, take(func(*ratelimit.Ask) {}).Reason)
	require.Equal(t, ratelimit.ReasonPenalty, take(func(a *ratelimit.Ask) { a.Look = true }).Reason)
	require.NoError(t, store.Pardon(t.Context(), []ratelimit.Ask{ask}))
	require.Equal(t, ratelimit.ReasonLimit, take(func(a *ratelimit.Ask) { a.Look = true }).Reason)
	require.Equal(t, ratelimit.ReasonPenalty, take(func(*ratelimit.Ask) {}).Reason)
	require.NoError(t, store.Reset(t.Context(), []ratelimit.Ask{ask}))
	require.True(t, take(func(*ratelimit.Ask) {}).Allowed)
}

// TestSharedOverridesAreRead proves that a limiter reads the overrides of others also where a rule has a Penalty, and that an
// override which it has set itself is gone when the store was emptied.
func TestSharedOverridesAreRead(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	store := &emptied{}
	empty := func() {
		s, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		store.now.Store(s)
	}
	empty()
	limiter := func() *ratelimit.RateLimiter {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "client", Endpoint: "/", Rate: ratelimit.PerMinute(1000),
			Penalty: ratelimit.Penalty{After: 1, Within: time.Second, For: time.Second}}}, nil,
			ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("shop"), ratelimit.WithOverrides())
		require.NoError(t, err)
		return l
	}
	a, b := limiter(), limiter()
	until := func(l *ratelimit.RateLimiter, reason ratelimit.Reason, why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			clock.Advance(2 * time.Second)
			return asked(t, l, "alice", "").Reason == reason
		}, 10*time.Second, time.Millisecond, why)
	}
	require.NoError(t, a.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock}))
	until(b, ratelimit.ReasonOverride, "the other reads it")
	empty()
	until(b, "", "the list is gone")
	until(a, "", "also for who has set it")
	require.NoError(t, a.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock}))
	empty() // before a has read again
	until(a, "", "the list is gone before it was read")
}

// An emptied is a store whose content can be replaced.
type emptied struct {
	now atomic.Pointer[ratelimit.MemoryStore]
}

func (s *emptied) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	return s.now.Load().Take(ctx, asks)
}

func (s *emptied) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	return s.now.Load().Reset(ctx, asks)
}

func (s *emptied) Accepts(a ratelimit.Ask) error { return s.now.Load().Accepts(a) }

func (s *emptied) SetOverrides(ctx context.Context, limiter string, o []ratelimit.Override) error {
	return s.now.Load().SetOverrides(ctx, limiter, o)
}

func (s *emptied) OverridesSince(
	ctx context.Context, limiter string, since ratelimit.OverrideVersion,
) (ratelimit.OverrideChange, error) {
	return s.now.Load().OverridesSince(ctx, limiter, since)
}

// TestBlockedLeaveNothing proves that a blocked request, also beside a rate and a Resolve, does not change the decisions that are
// made after it.
func TestBlockedLeaveNothing(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "client", Endpoint: "/", Rate: ratelimit.PerMinute(1000)},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(10_000)},
	}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Override(t.Context(),
		ratelimit.Override{Client: "alice", Effect: ratelimit.EffectRate, Rate: ratelimit.PerMinute(5), Rules: []string{"client"}},
		ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock, Rules: []string{"all"}}))
	for range 200 {
		require.Equal(t, ratelimit.ReasonOverride, asked(t, l, "alice", "").Reason)
		res, _, err := l.CheckAll(t.Context(), ratelimit.Request{Client: "bob", Endpoint: "/"}, nil)
		require.NoError(t, err)
		require.Equal(t, 1000, res.Limit)
	}
}

// TestOverrideLayers proves which of equal overrides of code and of a file decides, whichever was set last.
func TestOverrideLayers(t *testing.T) {
	l, _ := overridden(t)
	rate := func(n int) ratelimit.Override {
		return ratelimit.Override{Client: "alice", Effect: ratelimit.EffectRate, Rate: ratelimit.PerMinute(n)}
	}
	require.NoError(t, l.ReloadOverrides(rate(3)))
	require.NoError(t, l.Override(t.Context(), rate(4)))
	for range 2 {
		require.Equal(t, 4, asked(t, l, "alice", "").Limit, "that of code")
		require.NoError(t, l.ReloadOverrides(rate(3)))
	}
}

// TestPardonErrors proves that a pardon stands alone and in no file, and that a store which cannot pardon changes nothing here.
func TestPardonErrors(t *testing.T) {
	l, _ := overridden(t)
	err := l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: "pardon"}, ratelimit.Override{Client: "bob", Effect: "block"})
	require.ErrorContains(t, err, `overrides[1].effect is "block": must not be given together with a pardon, which is done at once`)
	err = l.ReloadOverrides(ratelimit.Override{Client: "alice", Effect: "pardon"})
	require.ErrorContains(t, err, `overrides[0].effect is "pardon": must be one of "block", "exempt", "rate"`)
	store := &emptied{}
	s, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	store.now.Store(s)
	l, err = ratelimit.New([]ratelimit.Rule{{Name: "r", Endpoint: "/", Rate: ratelimit.PerDay(1),
		Penalty: ratelimit.Penalty{After: 1, Within: time.Hour, For: time.Hour}}}, nil, ratelimit.WithStore(store), ratelimit.WithName("n"))
	require.NoError(t, err)
	err = l.Override(nil, ratelimit.Override{Client: "alice", Effect: "pardon"}) //nolint:staticcheck // a nil context is allowed
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.ErrorContains(t, err, "it has no method Pardon")
}

// TestOverridesReadOutOfOrder proves that an answer of the store which comes late neither undoes a newer one nor adds what was
// lifted since.
func TestOverridesReadOutOfOrder(t *testing.T) {
	v := func(n uint64) override.Version { return override.Version{List: 7, Number: n} }
	for _, c := range []struct {
		now, from, to override.Version
		whole, want   bool
		why           string
	}{
		{v(1), v(1), v(3), false, true, "the changes since the copy's version"},
		{v(2), v(1), v(3), false, true, "they have those that the copy has already"},
		{v(4), v(1), v(3), false, false, "the copy is newer"},
		{v(1), v(2), v(3), false, false, "the copy lacks what came before"},
		{v(2), override.Version{}, v(3), true, true, "a whole newer list"},
		{v(4), override.Version{}, v(3), true, false, "a whole older list"},
		{v(4), override.Version{List: 6, Number: 9}, v(3), true, false, "an older list, read since one that is gone"},
		{override.Version{List: 6, Number: 9}, override.Version{List: 6, Number: 9}, v(3), true, true, "another list"},
		{override.Unknown, override.Unknown, v(3), true, true, "the first read after a failed one"},
	} {
		require.Equal(t, c.want, c.now.Permits(c.from, c.to, c.whole), c.why)
	}
}

// TestOverridesAreCopies proves that a caller may change the Overrides that it gets.
func TestOverridesAreCopies(t *testing.T) {
	l, _ := overridden(t)
	rule := l.Stats()[0].Rule
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock, Rules: []string{rule}}))
	for range 2 {
		all, err := l.Overrides(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, []string{rule}, all[0].Rules)
		all[0].Rules[0] = "changed"
	}
}
