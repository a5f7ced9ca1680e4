package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// startRuleWait calls l.Wait in a goroutine.
func startRuleWait(ctx context.Context, l *ratelimit.RateLimiter, req ratelimit.Request) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.res, w.err = l.Wait(ctx, req)
	}()
	return w
}

// inBubbles runs test in a synctest bubble with a RateLimiter of these rules: on a
// FakeClock and on the machine's clock, each in this process and on a store.
func inBubbles(t *testing.T, rules []ratelimit.Rule, test func(t *testing.T, l *ratelimit.RateLimiter, advance func(time.Duration))) {
	t.Helper()
	for _, row := range []struct {
		name  string
		fake  bool
		store bool
	}{
		{"FakeClock", true, false}, {"machine", false, false}, {"store, FakeClock", true, true}, {"store, machine", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opts []ratelimit.Option
				clock, advance := (*ratelimit.FakeClock)(nil), pass
				if row.fake {
					clock = ratelimit.NewFakeClock(epoch)
					advance = clock.Advance
					opts = append(opts, ratelimit.WithClock(clock))
				}
				if row.store {
					opts = append(opts, ratelimit.WithStore(newFaultyStore(t, clock)))
				}
				test(t, newRules(t, rules, nil, opts...), advance)
			})
		})
	}
}

// TestRuleWaitersAreServedInOrder proves that requests that wait for two rules are served
// one by one, in the order in which they came.
func TestRuleWaitersAreServedInOrder(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "a", Endpoint: "/e", Rate: ratelimit.PerSecond(1).WithBurst(3)},
		{Name: "b", Endpoint: "/e", Rate: ratelimit.PerSecond(1), Key: ratelimit.KeyGlobal},
	}
	inBubbles(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, advance func(time.Duration)) {
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		first := startRuleWait(t.Context(), l, req)
		synctest.Wait()
		require.Equal(t, 0, first.served(t).Remaining, "rule b has none left")
		var ws []*waiter
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 5 {
			if i == 2 {
				ws = append(ws, startRuleWait(ctx, l, req))
			} else {
				ws = append(ws, startRuleWait(t.Context(), l, req))
			}
			synctest.Wait()
		}
		require.Equal(t, 5, l.InLine())
		cancel()
		synctest.Wait()
		require.Equal(t, context.Canceled, ws[2].err)
		require.Equal(t, ratelimit.Result{}, ws[2].res)
		for _, i := range []int{0, 1, 3, 4} {
			advance(sec - 1)
			synctest.Wait()
			require.False(t, ws[i].over(), "waiter %d, one nanosecond early", i)
			advance(1)
			synctest.Wait()
			require.True(t, ws[i].over(), "waiter %d", i)
			require.Equal(t, "b", ws[i].served(t).Rule)
			if i < 4 {
				require.False(t, ws[4].over(), "the waiters are served one by one")
			}
		}
		require.Zero(t, l.InLine())
		require.Equal(t, uint64(5), l.Stats()[0].Allowed, "a waiter's denied attempts are not counted")
		require.Zero(t, l.Stats()[1].Denied)
	})
}

// TestRuleWaitersForOtherKeysAreNotHeldUp proves that a waiting request does not hold up
// requests with other keys or rules.
func TestRuleWaitersForOtherKeysAreNotHeldUp(t *testing.T) {
	rules := []ratelimit.Rule{{Name: "a", Endpoint: "/e", Rate: ratelimit.PerSecond(1)}, {Name: "b", Rate: ratelimit.PerSecond(1)}}
	inBubbles(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, advance func(time.Duration)) {
		require.True(t, l.Allow("c", "/e").Allowed)
		w := startRuleWait(t.Context(), l, ratelimit.Request{Client: "c", Endpoint: "/e"})
		synctest.Wait()
		for _, req := range []ratelimit.Request{
			{Client: "d", Endpoint: "/e"}, {Client: "c", Rules: []string{"b"}}, {Client: "c", Endpoint: "/none"}, {Client: "c", Endpoint: "/none"},
		} {
			_, err := l.Wait(t.Context(), req)
			require.NoError(t, err)
		}
		require.False(t, w.over())
		advance(sec)
		w.served(t)
	})
}

// TestRuleWaitFailsAtOnce proves when a RateLimiter's Wait returns an error without
// waiting, and that it takes and counts nothing then.
func TestRuleWaitFailsAtOnce(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "a", Endpoint: "/e", Rate: ratelimit.PerMinute(2)},
		{Name: "b", Endpoint: "/e", Rate: ratelimit.PerMinute(4), Algorithm: ratelimit.AlgorithmFixedWindow},
	}
	inBubbles(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, _ func(time.Duration)) {
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		costing := func(n int) ratelimit.Request { r := req; r.Cost = n; return r }
		_, err := l.Check(t.Context(), costing(2))
		require.NoError(t, err)
		look := checked(l.Peek(t.Context(), req))
		require.Equal(t, "a", look.Rule)
		before := l.Stats()
		soon, cancel := context.WithTimeout(t.Context(), look.RetryAfter-1)
		defer cancel()
		expired, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		never := look
		never.RetryAfter = ratelimit.Never
		began := time.Now()
		for _, row := range []struct {
			ctx  context.Context
			req  ratelimit.Request
			want ratelimit.Result
			err  error
			why  string
		}{
			{over(), req, ratelimit.Result{}, context.Canceled, "the caller has given up"},
			{expired, req, ratelimit.Result{}, context.DeadlineExceeded, "the deadline has passed"},
			{soon, req, look, context.DeadlineExceeded, "the deadline lies a nanosecond before the grant"},
			{t.Context(), costing(3), never, ratelimit.ErrExceedsLimit, "more than one rule ever grants"},
			{soon, costing(3), never, ratelimit.ErrExceedsLimit, "more than one rule ever grants, whatever the deadline"},
			{t.Context(), costing(-1), ratelimit.Result{}, ratelimit.ErrInvalidCount, "a negative cost"},
			{nil, costing(3), never, ratelimit.ErrExceedsLimit, "a refusal needs no context"},
			{t.Context(), ratelimit.Request{Rules: []string{"none"}}, ratelimit.Result{}, ratelimit.ErrUnknownRule, "an unknown rule"},
		} {
			res, err := l.Wait(row.ctx, row.req)
			require.ErrorIs(t, err, row.err, row.why)
			require.Equal(t, row.want, res, row.why)
			require.Equal(t, began, time.Now(), "%s: Wait returns at once", row.why)
			require.Equal(t, before, l.Stats(), "%s: nothing is taken or counted", row.why)
			require.Zero(t, l.InLine(), row.why)
		}
		w := startRuleWait(t.Context(), l, req)
		synctest.Wait()
		res, err := l.Wait(soon, req)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the waiter ahead is not served by then")
		require.False(t, res.Allowed)
		require.Equal(t, began, time.Now())
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}))
		w.served(t)
	})
}

// TestRuleWaitHonoursTheDelay proves that Wait holds a request for the Delay of a leaky
// bucket rule, charged from the start.
func TestRuleWaitHonoursTheDelay(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "leaky", Endpoint: "/e", Rate: ratelimit.PerSecond(1).WithBurst(5), Algorithm: ratelimit.AlgorithmLeakyBucket},
		{Name: "b", Endpoint: "/e", Rate: ratelimit.PerMinute(9)},
	}
	inBubbles(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, advance func(time.Duration)) {
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		startRuleWait(t.Context(), l, req).served(t)
		w := startRuleWait(t.Context(), l, req)
		held := startRuleWait(t.Context(), l, req)
		synctest.Wait()
		require.Equal(t, 2, checked(l.Peek(t.Context(), req)).Remaining, "all are charged at once")
		require.Equal(t, 3*sec, checked(l.Peek(t.Context(), req)).Delay)

		began := time.Now()
		before := l.Stats()
		soon, cancel := context.WithTimeout(t.Context(), 3*sec-1)
		res, err := l.Wait(soon, req)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "the Delay outlasts the deadline")
		require.False(t, res.Allowed)
		require.Equal(t, 1*time.Nanosecond, res.RetryAfter, "a nanosecond later the Delay would not outlast it")
		require.Equal(t, began, time.Now(), "Wait fails at once")
		require.Equal(t, 2, checked(l.Peek(t.Context(), req)).Remaining, "nothing is charged")
		require.Equal(t, before, l.Stats())

		advance(sec)
		synctest.Wait()
		require.NotEqual(t, w.over(), held.over(), "requests leave the bucket one by one")
		advance(sec)
		synctest.Wait()
		require.Zero(t, w.served(t).Delay, "Wait has waited out the Delay")
		held.served(t)

		ctx, cancel := context.WithCancel(t.Context())
		left := checked(l.Peek(t.Context(), req)).Remaining
		gone := startRuleWait(ctx, l, req)
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Equal(t, context.Canceled, gone.err)
		require.Equal(t, left-1, checked(l.Peek(t.Context(), req)).Remaining, "a request that is cancelled during its Delay stays charged")
		enough, cancel := context.WithTimeout(t.Context(), mins)
		defer cancel()
		w = startRuleWait(enough, l, req)
		synctest.Wait()
		advance(10 * sec)
		w.served(t)
	})
}

// TestRuleWaitersAreWoken proves that changes of the rules wake waiting requests.
func TestRuleWaitersAreWoken(t *testing.T) {
	rules := []ratelimit.Rule{{Name: "a", Endpoint: "/e", Rate: ratelimit.PerHour(1)}}
	for _, row := range []struct {
		change func(l *ratelimit.RateLimiter) error
		why    string
	}{
		{func(l *ratelimit.RateLimiter) error {
			return l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
		}, "Reset"},
		{func(l *ratelimit.RateLimiter) error { return l.RemoveRule("a") }, "RemoveRule"},
		{func(l *ratelimit.RateLimiter) error { return l.Replace(nil, nil) }, "Replace"},
	} {
		inBubbles(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, _ func(time.Duration)) {
			require.True(t, l.Allow("c", "/e").Allowed)
			began := time.Now()
			w := startRuleWait(t.Context(), l, ratelimit.Request{Client: "c", Endpoint: "/e"})
			synctest.Wait()
			require.False(t, w.over())
			require.NoError(t, row.change(l), row.why)
			synctest.Wait()
			require.True(t, w.over(), row.why)
			w.served(t)
			require.Equal(t, began, time.Now())
		})
	}
	inBubbles(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, advance func(time.Duration)) {
		require.True(t, l.Allow("c", "/e").Allowed)
		w := startRuleWait(t.Context(), l, ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 1})
		synctest.Wait()
		advance(mins)
		require.NoError(t, l.UpdateRate("a", ratelimit.PerMinute(1)))
		synctest.Wait()
		advance(mins)
		synctest.Wait()
		require.True(t, w.over(), "UpdateRate: at the new rate, a minute is enough")
		w.served(t)
	})
}

// TestZeroRateLimiterWaits proves that Wait of the zero RateLimiter returns at once.
func TestZeroRateLimiterWaits(t *testing.T) {
	res, err := new(ratelimit.RateLimiter).Wait(t.Context(), ratelimit.Request{})
	require.NoError(t, err)
	require.Equal(t, unlimited, res)
}

// TestRuleWaitWhileTheStoreFails proves how long Wait takes under each failure policy.
func TestRuleWaitWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		for _, row := range []struct {
			policy ratelimit.FailurePolicy
			lasts  time.Duration
			err    error
			why    string
		}{
			{ratelimit.FailOpen, 0, ratelimit.ErrStore, "an open policy serves at once"},
			{ratelimit.FailLocal(1), 10 * sec, ratelimit.ErrStore, "the local share serves when it has a unit"},
			{ratelimit.FailClosed, 3 * sec, nil, "under a closed policy, Wait tries the store again each second"},
		} {
			store := newFaultyStore(t, nil)
			l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(6).WithBurst(1)}, ratelimit.WithStore(store), ratelimit.WithFailurePolicy(row.policy))
			if row.policy == ratelimit.FailLocal(1) {
				require.True(t, l.Allow("c", "/e").Allowed)
			}
			store.from(errsBefore)
			if row.policy == ratelimit.FailClosed {
				store.do(errsBefore, errsBefore, errsBefore)
				store.then = sound
			}
			began := time.Now()
			res, err := l.Wait(t.Context(), req)
			require.ErrorIs(t, err, row.err, row.why)
			require.True(t, res.Allowed, row.why)
			require.Equal(t, row.err != nil, res.Degraded, row.why)
			require.Equal(t, row.lasts, time.Since(began), row.why)
		}
	})
}

// TestRuleWaitForALeakyBucketThatIsFull proves that both the wait for room and the Delay
// count towards the deadline.
func TestRuleWaitForALeakyBucketThatIsFull(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "leaky", Endpoint: "/e", Rate: ratelimit.PerSecond(1).WithBurst(5), Algorithm: ratelimit.AlgorithmLeakyBucket},
		{Name: "b", Endpoint: "/e", Rate: ratelimit.PerMinute(9)},
	}
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, rules, nil)
		five := startLeaky(t, 5, ratelimit.WithObserver(new(record)))
		req := ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 5}
		checked(l.Check(t.Context(), req))
		take(t, five, "c", 5)
		req.Cost = 1
		for _, row := range []struct {
			name string
			wait func(ctx context.Context) (ratelimit.Result, error)
		}{
			{"rule", func(ctx context.Context) (ratelimit.Result, error) { return l.Wait(ctx, req) }},
			{"limiter", func(ctx context.Context) (ratelimit.Result, error) { return five.Wait(ctx, "c", 1) }},
		} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 5*sec-1)
			res, err := row.wait(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, "%s: it takes a second until there is room, and four more for the Delay", row.name)
			require.Equal(t, sec, res.RetryAfter)
			require.Equal(t, began, time.Now(), "%s: Wait fails at once", row.name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*sec+1)
		defer cancel()
		began := time.Now()
		_, err := l.Wait(ctx, req)
		require.NoError(t, err)
		require.Equal(t, 5*sec, time.Since(began))
	})
}

// TestRuleWaitForMoreThanTheShare proves that a request that is larger than the local share
// is refused, with an error that says that the store might grant it.
func TestRuleWaitForMoreThanTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore(t, nil)
		store.from(errsBefore)
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(10)}, ratelimit.WithStore(store), ratelimit.WithFailurePolicy(ratelimit.FailLocal(5)))
		res, err := l.Wait(t.Context(), ratelimit.Request{Cost: 3})
		require.ErrorIs(t, err, ratelimit.ErrExceedsLimit, "the local share never grants 3")
		require.ErrorIs(t, err, ratelimit.ErrStore, "but the store may")
		require.Equal(t, by("default", degraded(no(2, 2, ratelimit.Never, 0))), res)
	})
}

// TestRuleWaitThatProbesTheStore proves that the look that Wait makes before it charges
// ends the pause of the store's breaker.
func TestRuleWaitThatProbesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore(t, nil)
		l := newRules(t, nil, &ratelimit.Rule{
			Rate: ratelimit.PerSecond(10), Algorithm: ratelimit.AlgorithmLeakyBucket,
		}, ratelimit.WithStore(store))
		store.from(errsBefore)
		for range 5 {
			l.Allow("c", "")
		}
		pass(sec)
		store.do(sound, errsBefore)
		store.then = sound
		ctx, cancel := context.WithTimeout(t.Context(), mins)
		defer cancel()
		_, err := l.Wait(ctx, ratelimit.Request{Client: "c"})
		require.ErrorIs(t, err, ratelimit.ErrStore, "the look succeeds, the charge fails")
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "c"})
		require.NoError(t, err, "the look has closed the breaker, and one failure does not open it again")
		require.False(t, res.Degraded)
	})
}
