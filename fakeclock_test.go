package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// waits are the ways to wait on a FakeClock. Each function returns a limiter's method Wait. The first unit is there at once, and
// another one after each second.
var waits = map[string]func(t *testing.T, clock *ratelimit.FakeClock) func(context.Context) error{
	"a limiter": func(t *testing.T, clock *ratelimit.FakeClock) func(context.Context) error {
		l, err := ratelimit.NewTokenBucket(ratelimit.Rate{Requests: 1, Per: sec}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		return func(ctx context.Context) error {
			_, err := l.Wait(ctx, "alice", 1)
			return err
		}
	},
	"the delay of a leaky bucket": func(t *testing.T, clock *ratelimit.FakeClock) func(context.Context) error {
		l, err := ratelimit.NewLeakyBucket(ratelimit.Rate{Requests: 1, Per: sec, Burst: 9}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		return func(ctx context.Context) error {
			_, err := l.Wait(ctx, "alice", 1)
			return err
		}
	},
	"rules in this process": func(t *testing.T, clock *ratelimit.FakeClock) func(context.Context) error {
		return waitOfRules(t, ratelimit.Rule{}, ratelimit.WithClock(clock))
	},
	"a reservation": func(t *testing.T, clock *ratelimit.FakeClock) func(context.Context) error {
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Per: sec}}, ratelimit.WithClock(clock))
		return func(ctx context.Context) error {
			_, err := l.ReserveWait(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"}, minute)
			return err
		}
	},
	"a store": func(t *testing.T, clock *ratelimit.FakeClock) func(context.Context) error {
		store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		return waitOfRules(t, ratelimit.Rule{}, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("x"))
	},
	"a custom limiter": func(t *testing.T, clock *ratelimit.FakeClock) func(context.Context) error {
		l, err := ratelimit.NewTokenBucket(ratelimit.Rate{Requests: 1, Per: sec}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		asks := custom(l.Take)
		return waitOfRules(t, ratelimit.Rule{Limiter: asks}, ratelimit.WithClock(clock))
	},
}

// waitOfRules returns the method Wait of a RateLimiter with one rule.
func waitOfRules(t *testing.T, rule ratelimit.Rule, opts ...ratelimit.Option) func(context.Context) error {
	t.Helper()
	if rule.Limiter == nil {
		rule.Rate = ratelimit.Rate{Requests: 1, Per: sec}
	}
	l := newRules(t, nil, &rule, opts...)
	return func(ctx context.Context) error {
		_, err := l.Wait(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"})
		return err
	}
}

// TestBlockUntil moves the clock as soon as BlockUntil says that all callers wait, and each move serves one. It needs no bubble.
func TestBlockUntil(t *testing.T) {
	for name, start := range waits {
		t.Run(name, func(t *testing.T) {
			const callers = 5
			clock := ratelimit.NewFakeClock(epoch)
			wait := start(t, clock)
			require.NoError(t, wait(t.Context()), "the first unit is there")
			served := make(chan error, callers)
			for range callers {
				go func() { served <- wait(context.Background()) }()
			}
			for n := callers; n > 0; n-- {
				clock.BlockUntil(n)
				clock.Advance(sec)
				require.NoError(t, <-served)
			}
			clock.BlockUntil(0)
			assert.Zero(t, clock.Alarms())
		})
	}
}

// blocked reports whether BlockUntil(n) still waits when no goroutine of the bubble can go on. Its goroutine ends when a
// channel of After makes it return, so the test moves the clock afterwards.
func blocked(clock *ratelimit.FakeClock, n int) bool {
	returned := make(chan struct{})
	go func() {
		clock.BlockUntil(n)
		close(returned)
	}()
	synctest.Wait()
	select {
	case <-returned:
		return false
	default:
	}
	for range n {
		clock.After(1) // these callers let BlockUntil return
	}
	<-returned
	clock.Advance(1)
	return true
}

// TestBlockUntilCounts proves that each caller counts as one, from the time when it is in line until it is served, or until its
// context ends.
func TestBlockUntilCounts(t *testing.T) {
	for name, start := range waits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := ratelimit.NewFakeClock(epoch)
				wait := start(t, clock)
				require.True(t, blocked(clock, 1), "nobody waits")
				require.NoError(t, wait(t.Context()))
				require.True(t, blocked(clock, 1), "a caller that was served at once does not wait")

				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan error, 4)
				for n := range 3 {
					go func() { served <- wait(ctx) }()
					synctest.Wait()
					require.False(t, blocked(clock, n+1))
					require.True(t, blocked(clock, n+2))
				}
				clock.Advance(sec)
				require.NoError(t, <-served)
				require.True(t, blocked(clock, 3), "one was served")
				require.False(t, blocked(clock, 2), "two still wait")
				cancel()
				require.Error(t, <-served)
				require.Error(t, <-served)
				require.True(t, blocked(clock, 1), "their contexts have ended")

				late, cancel := context.WithDeadline(t.Context(), time.Now().Add(1))
				defer cancel()
				require.Error(t, wait(late))
				require.True(t, blocked(clock, 1), "a caller that is refused at once does not wait")
			})
		})
	}
}

// TestBlockUntilAfterMove proves that BlockUntil does not count callers whose time has come, even if their goroutines have not run.
func TestBlockUntilAfterMove(t *testing.T) {
	const callers = 40
	clock := ratelimit.NewFakeClock(epoch)
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Per: sec}}, ratelimit.WithClock(clock))
	require.True(t, l.Allow("alice", "/").Allowed)
	served := make(chan error, callers)
	for range callers {
		go func() {
			_, err := l.Wait(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/"})
			served <- err
		}()
	}
	clock.BlockUntil(callers)
	for left := callers - 4; left >= 0; left -= 4 {
		clock.Advance(4 * sec)
		clock.BlockUntil(left)
		require.Equal(t, uint64(1+callers-left), l.Stats()[0].Allowed, "BlockUntil returns when four more were served")
	}
	for range callers {
		require.NoError(t, <-served)
	}
}

// TestBlockUntilAfter proves that a channel of After counts until it receives the time, and that an alarm that rings at once does not.
func TestBlockUntilAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		clock.After(0)
		require.True(t, blocked(clock, 1))
		clock.After(sec)
		clock.After(minute)
		require.False(t, blocked(clock, 2))
		clock.Advance(sec)
		require.True(t, blocked(clock, 2))
		require.False(t, blocked(clock, 1))
		clock.BlockUntil(-1)

		var zero ratelimit.FakeClock
		zero.BlockUntil(0)
	})
}
