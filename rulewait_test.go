package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// startRuleWait calls l.Wait in a new goroutine.
func startRuleWait(ctx context.Context, l *ratelimit.RateLimiter, req ratelimit.Request) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.res, w.err = l.Wait(ctx, req)
	}()
	return w
}

// inBubbles runs test in a synctest bubble with a RateLimiter of these rules: on a FakeClock and on
// the machine's clock, each with the state in this process and in a store.
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
				clock, advance := (*ratelimit.FakeClock)(nil), advanceMachine
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

// TestRuleWaitersAreServedInOrder proves that requests that wait for two rules are served one by
// one, in the order in which they came.
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
			require.False(t, ws[i].returned(), "waiter %d, one nanosecond early", i)
			advance(1)
			synctest.Wait()
			require.True(t, ws[i].returned(), "waiter %d", i)
			require.Equal(t, "b", ws[i].served(t).Rule)
			if i < 4 {
				require.False(t, ws[4].returned(), "the waiters are served one by one")
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
		require.False(t, w.returned())
		advance(sec)
		w.served(t)
	})
}

// TestRuleWaitFailsAtOnce proves when Wait of a RateLimiter returns an error at once, that it takes
// nothing then, and that a refused request counts as denied.
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
			{canceled(), req, ratelimit.Result{}, context.Canceled, "the caller has given up"},
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
			if res != (ratelimit.Result{}) { // the request was decided
				before[0].Denied++
				if row.req.Cost == 3 {
					before[1].Denied++
				}
			}
			require.Equal(t, before, l.Stats(), "%s: nothing is taken, and what is refused counts as denied", row.why)
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

// TestRuleWaitHonoursTheDelay proves that Wait charges a request at once and holds it for the Delay
// of a leaky bucket rule.
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
		before[0].Denied++
		require.Equal(t, before, l.Stats(), "what Wait refuses counts as denied")

		advance(sec)
		synctest.Wait()
		require.NotEqual(t, w.returned(), held.returned(), "requests leave the bucket one by one")
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
		enough, cancel := context.WithTimeout(t.Context(), minute)
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
			require.False(t, w.returned())
			require.NoError(t, row.change(l), row.why)
			synctest.Wait()
			require.True(t, w.returned(), row.why)
			w.served(t)
			require.Equal(t, began, time.Now())
		})
	}
	inBubbles(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, advance func(time.Duration)) {
		require.True(t, l.Allow("c", "/e").Allowed)
		w := startRuleWait(t.Context(), l, ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 1})
		synctest.Wait()
		advance(minute)
		require.NoError(t, l.UpdateRate("a", ratelimit.PerMinute(1)))
		synctest.Wait()
		advance(minute)
		synctest.Wait()
		require.True(t, w.returned(), "UpdateRate: at the new rate, a minute is enough")
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
			l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(6).WithBurst(1)}, ratelimit.WithStore(store),
				ratelimit.WithFailurePolicy(row.policy))
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

// TestRuleWaitForALeakyBucketThatIsFull proves that the wait for room and the Delay must both end
// before the deadline.
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

// TestRuleWaitForMoreThanTheLocalShare proves that a request for more than the local share is
// refused, with an error that says that the store might grant it.
func TestRuleWaitForMoreThanTheLocalShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore(t, nil)
		store.from(errsBefore)
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(10)}, ratelimit.WithStore(store),
			ratelimit.WithFailurePolicy(ratelimit.FailLocal(5)))
		res, err := l.Wait(t.Context(), ratelimit.Request{Cost: 3})
		require.ErrorIs(t, err, ratelimit.ErrExceedsLimit, "the local share never grants 3")
		require.ErrorIs(t, err, ratelimit.ErrStore, "but the store may")
		require.Equal(t, by("default", degraded(no(2, 2, ratelimit.Never, 0))), res)
	})
}

// TestRuleWaitThatProbesTheStore proves that the look that Wait makes before it charges can close
// the breaker of the store.
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
		advanceMachine(sec)
		store.do(sound, errsBefore)
		store.then = sound
		ctx, cancel := context.WithTimeout(t.Context(), minute)
		defer cancel()
		_, err := l.Wait(ctx, ratelimit.Request{Client: "c"})
		require.ErrorIs(t, err, ratelimit.ErrStore, "the look succeeds, the charge fails")
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "c"})
		require.NoError(t, err, "the look has closed the breaker, and one failure does not open it again")
		require.False(t, res.Degraded)
	})
}

// TestRuleWaitersHoldUpOnlyTheirOwnRules has alice wait an hour for a rule of her own. Bob is
// granted by the global rule, although alice will need it too.
func TestRuleWaitersHoldUpOnlyTheirOwnRules(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "own", Endpoint: "*", Rate: ratelimit.PerHour(1)},
		{Name: "global", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1)},
	}
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, rules, nil)
		require.True(t, l.Allow("alice", "/e").Allowed)
		alice := startRuleWait(t.Context(), l, ratelimit.Request{Client: "alice", Endpoint: "/e"})
		advanceMachine(sec)
		require.True(t, l.Allow("bob", "/e").Allowed, "the global rule has a unit, and alice does not wait for it")
		carol := startRuleWait(t.Context(), l, ratelimit.Request{Client: "carol", Endpoint: "/e"})
		synctest.Wait()
		res := l.Allow("dave", "/e")
		require.Equal(t, by("global", no(1, 0, 2*sec, 2*sec)), res, "a newcomer comes behind carol, and not behind alice")
		res = l.Allow("alice", "/e")
		require.Equal(t, "own", res.Rule, "the rule that is waited for")
		require.Equal(t, 2*time.Hour-sec, res.RetryAfter, "it counts the alice who waits")
		advanceMachine(sec)
		carol.served(t)
		require.False(t, alice.returned())
		advanceMachine(time.Hour)
		alice.served(t)
	})
}

// TestRuleWaitersFollowRuleChanges proves that waiting requests are matched with the new rules when
// rules change, in the order in which they came.
func TestRuleWaitersFollowRuleChanges(t *testing.T) {
	hourly := []ratelimit.Rule{{Name: "all", Endpoint: "/*", Rate: ratelimit.PerHour(1)}, {Name: "named", Rate: ratelimit.PerHour(1)}}
	for _, row := range []struct {
		change func(l *ratelimit.RateLimiter) error
		first  error // with which the waiter for /x ends at once; errFault if it goes on waiting
		second error // the same for the waiter for /y
		named  error // the same for the waiter for the rule "named"
		why    string
	}{
		{func(l *ratelimit.RateLimiter) error {
			return l.AddRule(ratelimit.Rule{Endpoint: "/y", Rate: ratelimit.PerSecond(1000)})
		}, errFault, nil, errFault, "/y does not wait behind /x any more"},
		{func(l *ratelimit.RateLimiter) error { return l.RemoveRule("all") }, nil, nil, errFault, "without a rule, both are served at once"},
		{func(l *ratelimit.RateLimiter) error { return l.RemoveRule("named") }, errFault, errFault, ratelimit.ErrUnknownRule,
			"a rule that is named is gone"},
		{func(l *ratelimit.RateLimiter) error { return l.UpdateRate("all", ratelimit.PerHour(2)) }, nil, errFault, errFault,
			"a higher rate serves the first"},
		{func(l *ratelimit.RateLimiter) error {
			return l.SetDefaultRule(ratelimit.Rule{Name: "d", Rate: ratelimit.PerHour(9)})
		}, errFault, errFault, errFault, "a rule that concerns nobody changes nothing"},
	} {
		synctest.Test(t, func(t *testing.T) {
			set := hourly
			if row.why == "a higher rate serves the first" {
				set = []ratelimit.Rule{{Name: "all", Endpoint: "/*", Rate: ratelimit.PerHour(1), Algorithm: ratelimit.AlgorithmFixedWindow}, hourly[1]}
			}
			l := newRules(t, set, nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
			ctx, cancel := context.WithCancel(t.Context())
			require.True(t, l.Allow("c", "/x").Allowed)
			checked(l.Check(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"named"}}))
			var ws []*waiter
			for _, req := range []ratelimit.Request{{Client: "c", Endpoint: "/x"}, {Client: "c", Endpoint: "/y"},
				{Client: "c", Rules: []string{"named"}}} {
				ws = append(ws, startRuleWait(ctx, l, req))
				synctest.Wait()
			}
			require.Equal(t, 3, l.InLine())
			require.NoError(t, row.change(l), row.why)
			synctest.Wait()
			for i, want := range []error{row.first, row.second, row.named} {
				require.Equal(t, !errors.Is(want, errFault), ws[i].returned(), "%s: waiter %d", row.why, i)
				if !errors.Is(want, errFault) {
					require.ErrorIs(t, ws[i].err, want, row.why)
				}
			}
			cancel()
			synctest.Wait()
			require.Zero(t, l.InLine())
		})
	}
}

// TestRuleWaitersKeepTheirOrderWhenARuleIsAdded proves that a request that comes after a rule was
// added is served after those that already waited.
func TestRuleWaitersKeepTheirOrderWhenARuleIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		l := newRules(t, []ratelimit.Rule{{Name: "one", Endpoint: "/x", Rate: ratelimit.PerHour(1)}}, nil, ratelimit.WithClock(clock))
		require.True(t, l.Allow("c", "/x").Allowed)
		var ws []*waiter
		for i := range 3 {
			ws = append(ws, startRuleWait(t.Context(), l, ratelimit.Request{Client: "c", Endpoint: "/x"}))
			synctest.Wait()
			if i == 1 {
				require.NoError(t, l.AddRule(ratelimit.Rule{Name: "two", Endpoint: "/x", Rate: ratelimit.PerSecond(1000)}))
			}
		}
		for i := range 3 {
			clock.Advance(time.Hour)
			synctest.Wait()
			for j, w := range ws {
				require.Equal(t, j <= i, w.returned(), "after %d hours, waiter %d", i+1, j)
			}
		}
	})
}

// interfering is a context that calls f once, when its deadline is read.
type interfering struct {
	context.Context
	f func()
}

func (c *interfering) Deadline() (time.Time, bool) {
	if c.f != nil {
		f := c.f
		c.f = nil
		f()
	}
	return c.Context.Deadline()
}

// TestRequestsWithoutRulesNeverQueue adds a rule while a request is about to join a line. It proves
// that the request waits for the new rule, and that requests that match no rule are not held up.
func TestRequestsWithoutRulesNeverQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/x", Rate: ratelimit.PerHour(1)}}, nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		require.True(t, l.Allow("a", "/x").Allowed)
		ctx, cancel := context.WithCancel(t.Context())
		w := startRuleWait(&interfering{Context: ctx, f: func() {
			assert.NoError(t, l.RemoveRule("/x"))
			assert.NoError(t, l.AddRule(ratelimit.Rule{Name: "new", Endpoint: "/x", Rate: ratelimit.PerMinute(1)}))
			assert.True(t, l.Allow("a", "/x").Allowed)
		}}, l, ratelimit.Request{Client: "a", Endpoint: "/x"})
		synctest.Wait()
		require.False(t, w.returned(), "it waits by the rule that was added")
		require.Equal(t, by("new", no(1, 0, 2*minute, 2*minute)), l.Allow("a", "/x"))
		soon, stop := context.WithTimeout(t.Context(), ms)
		defer stop()
		for _, req := range []ratelimit.Request{{Client: "a", Endpoint: "/none"}, {Client: "b", Endpoint: "/none"}} {
			require.Equal(t, unlimited, checked(l.Wait(soon, req)))
			require.Equal(t, unlimited, l.Allow(req.Client, req.Endpoint))
		}
		cancel()
		synctest.Wait()
		require.True(t, w.returned())
	})
}

// TestRuleWaitCallsResolveOnce proves that a waiting request keeps the rate that Resolve returned
// at first, and that a line does not hold up a request that its rule does not limit.
func TestRuleWaitCallsResolveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		l := newRules(t, []ratelimit.Rule{{
			Name: "r", Endpoint: "/e", Rate: ratelimit.PerHour(9), Key: ratelimit.KeyGlobal,
			Tiers: map[string]ratelimit.Rate{"free": ratelimit.Unlimited},
			Resolve: func(req ratelimit.Request) (ratelimit.Rate, bool) {
				asked.Add(1)
				return ratelimit.PerMinute(1), req.Tier == ""
			},
		}}, nil)
		require.True(t, l.Allow("c", "/e").Allowed)
		asked.Store(0)
		w := startRuleWait(t.Context(), l, ratelimit.Request{Client: "c", Endpoint: "/e"})
		synctest.Wait()
		require.NoError(t, l.AddRule(ratelimit.Rule{Name: "other", Rate: ratelimit.PerHour(1)}))
		synctest.Wait()
		require.EqualValues(t, 1, asked.Load(), "Resolve is called when the request comes, and not again")
		free := ratelimit.Request{Client: "d", Endpoint: "/e", Tier: "free"}
		require.Equal(t, unlimited, checked(l.Check(t.Context(), free)), "a request that the rule exempts stands in no line")
		require.Equal(t, unlimited, checked(l.Wait(t.Context(), free)))
		require.False(t, l.Allow("d", "/e").Allowed)
		advanceMachine(minute)
		w.served(t)
	})
}

// panicking is a context whose Done panics.
type panicking struct{ context.Context }

func (panicking) Done() <-chan struct{} { panic("no channel") }

// TestPanickingContextLeavesTheLine proves that a request whose context panics leaves the line of
// waiters.
func TestPanickingContextLeavesTheLine(t *testing.T) {
	rules := []ratelimit.Rule{{Name: "a", Endpoint: "/e", Rate: ratelimit.PerMinute(1)}}
	inBubbles(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, advance func(time.Duration)) {
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		require.True(t, l.Allow("c", "/e").Allowed)
		require.Panics(t, func() { _, _ = l.Wait(panicking{t.Context()}, req) })
		require.Zero(t, l.InLine())
		w := startRuleWait(t.Context(), l, req)
		synctest.Wait()
		advance(minute)
		w.served(t)
	})
}

// TestOneWaiterAsksTheStore proves that one of many waiters calls the store at a time, that
// requests behind them are answered without a call, and that a new rule applies to all of them.
func TestOneWaiterAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: must(ratelimit.NewMemoryStore())}
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithStore(store), ratelimit.WithName("n"))
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		require.True(t, l.Allow("c", "/e").Allowed)
		store.calls.Store(0)
		var ws []*waiter
		for range 5 {
			ws = append(ws, startRuleWait(t.Context(), l, req))
			synctest.Wait()
		}
		require.EqualValues(t, 1, store.calls.Load(), "only the first has asked")
		require.Equal(t, by("default", no(1, 0, 6*minute, minute*6)), l.Allow("c", "/e"), "a newcomer comes behind all five")
		require.EqualValues(t, 1, store.calls.Load())
		require.True(t, l.Allow("d", "/e").Allowed, "another key has no line")
		for i := range ws {
			advanceMachine(minute)
			synctest.Wait()
			require.True(t, ws[i].returned())
		}
		require.LessOrEqual(t, store.calls.Load(), int64(2+2*5), "the head asks when it is due, and the next one at once")
		require.Zero(t, l.InLine())
	})
}

// A countingStore counts the calls of its Take.
type countingStore struct {
	ratelimit.Store
	calls atomic.Int64
}

func (s *countingStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.calls.Add(1)
	return s.Store.Take(ctx, asks)
}

// A gatedStore holds back the answers of Take while it is closed.
type gatedStore struct {
	ratelimit.Store

	mu   sync.Mutex
	free int           // calls that are not held back
	gate chan struct{} // nil if open
}

// close holds back the answers of all calls but the next free ones, until open is called.
func (s *gatedStore) close(free int) (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.free, s.gate = free, gate
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gate = nil
		close(gate)
	}
}

func (s *gatedStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	results, err := s.Store.Take(ctx, asks)
	s.mu.Lock()
	gate := s.gate
	if s.free--; s.free >= 0 {
		gate = nil
	}
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return results, err
}

// onGatedStore returns a RateLimiter of one request an hour on a gatedStore, whose only unit it
// takes for the client of req.
func onGatedStore(t *testing.T) (l *ratelimit.RateLimiter, store *gatedStore, req ratelimit.Request) {
	t.Helper()
	store = &gatedStore{Store: must(ratelimit.NewMemoryStore())}
	l = newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(1)}, ratelimit.WithStore(store), ratelimit.WithName("n"))
	require.True(t, l.Allow("c", "/e").Allowed)
	return l, store, ratelimit.Request{Client: "c", Endpoint: "/e"}
}

// TestNewWaiterWhileTheFirstAsksTheStore proves that a request that comes while the first waiter
// calls the store is not refused: it waits until its turn comes.
func TestNewWaiterWhileTheFirstAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store, req := onGatedStore(t)
		var ws []*waiter
		for range 2 {
			ws = append(ws, startRuleWait(t.Context(), l, req))
			synctest.Wait()
		}
		open := store.close(1)
		advanceMachine(time.Hour)
		synctest.Wait()
		ws[0].served(t)
		require.Equal(t, by("default", no(1, 0, 2*time.Hour, 2*time.Hour)), l.Allow("c", "/e"), "behind the head, which asks")
		ws = append(ws, startRuleWait(t.Context(), l, req))
		synctest.Wait()
		require.Equal(t, by("default", no(1, 0, 3*time.Hour, 3*time.Hour)), l.Allow("c", "/e"), "behind both")
		open()
		for _, w := range ws[1:] {
			synctest.Wait()
			require.False(t, w.returned())
			advanceMachine(time.Hour)
			synctest.Wait()
			w.served(t)
		}
	})
}

// TestResetWhileAWaiterAsksTheStore proves that a Reset serves a caller even if the store has
// denied it before the Reset and the answer arrives after it. The caller is a new one, or the first
// waiter.
func TestResetWhileAWaiterAsksTheStore(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, store, req := onGatedStore(t)
			open := store.close(0)
			if waits {
				open()
			}
			w := startRuleWait(t.Context(), l, req)
			synctest.Wait()
			if waits { // it is woken, and denied again
				open = store.close(0)
				require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "other", Endpoint: "/e"}))
				synctest.Wait()
				require.Equal(t, by("default", no(1, 0, ms, time.Hour)), l.Allow("c", "/e"), "nothing is known until the head has asked")
			}
			require.NoError(t, l.Reset(t.Context(), req))
			open()
			synctest.Wait()
			w.served(t)
			require.Zero(t, l.InLine())
		})
	}
}

// TestStoreWaitersKeepTheirOrderWhenRulesChange proves that waiters for a store keep their order
// when other rules change, and that still only one of them calls the store.
func TestStoreWaitersKeepTheirOrderWhenRulesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Store: must(ratelimit.NewMemoryStore())}
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithStore(store), ratelimit.WithName("n"))
		require.True(t, l.Allow("c", "/e").Allowed)
		var ws []*waiter
		for range 20 {
			ws = append(ws, startRuleWait(t.Context(), l, ratelimit.Request{Client: "c", Endpoint: "/e"}))
			synctest.Wait()
		}
		store.calls.Store(0)
		require.NoError(t, l.AddRule(ratelimit.Rule{Endpoint: "/other", Rate: ratelimit.PerMinute(1)}))
		synctest.Wait()
		require.EqualValues(t, 1, store.calls.Load(), "the head asks by the new rules")
		for i, w := range ws {
			require.Equal(t, len(ws)-i, l.InLine())
			advanceMachine(minute)
			synctest.Wait()
			w.served(t)
		}
	})
}

// TestRuleWaiterGetsUnitsAfterAPanic proves that a waiter gets the unit that another request holds
// while its custom limiter decides, if that limiter panics.
func TestRuleWaiterGetsUnitsAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := newRules(t, []ratelimit.Rule{
			{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(1)},
			{Endpoint: "/custom", Limiter: custom(func(context.Context, string, int) (ratelimit.Result, error) {
				<-release
				panic("the limiter")
			})},
		}, nil)
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			l.Allow("c", "/custom")
		}()
		synctest.Wait()
		w := startRuleWait(t.Context(), l, ratelimit.Request{Client: "d", Endpoint: "/e"})
		synctest.Wait()
		require.False(t, w.returned())
		close(release)
		require.Equal(t, "the limiter", <-panicked)
		synctest.Wait()
		w.served(t)
	})
}

// TestRuleWaitWithAnInvalidResolvedRate has Resolve return an invalid rate for a client with a
// tier. Each try of Wait uses the rate of the rule, and the error says why.
func TestRuleWaitWithAnInvalidResolvedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := ratelimit.NewMemoryStore()
		require.NoError(t, err)
		rule := ratelimit.Rule{
			Endpoint: "/", Rate: ratelimit.PerHour(1), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(1000)},
			Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(-1), true },
		}
		l := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithStore(m), ids())
		for i, id := range []string{"", "", "a", "b"} {
			start := time.Now()
			res, err := l.Wait(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Tier: "paid", ID: id})
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			require.True(t, res.Allowed)
			require.Equal(t, 1, res.Limit)
			if i > 0 {
				require.Equal(t, time.Hour, time.Since(start))
			}
		}
	})
}
