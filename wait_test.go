package ratelimit_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	benbjohnson "github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A waiter is a call of Wait in a goroutine of its own.
type waiter struct {
	done chan struct{} // closed once the call has returned
	res  ratelimit.Result
	err  error
}

// startWait calls Wait in a goroutine.
func startWait(ctx context.Context, l ratelimit.Limiter, key string, n int) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.res, w.err = ratelimit.Wait(ctx, l, key, n)
	}()
	return w
}

// over reports whether the call has returned.
func (w *waiter) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// served waits until the call has returned, which must have been granted.
func (w *waiter) served(t *testing.T) ratelimit.Result {
	t.Helper()
	<-w.done
	require.NoError(t, w.err)
	require.True(t, w.res.Allowed)
	return w.res
}

// waiting returns how many calls of l's Wait stand in line.
func waiting(l limiter) int { return l.(interface{ Waiting() int }).Waiting() }

// A source is a kind of clock, and the way to move it.
type source struct {
	name string
	make func() (opts []ratelimit.Option, advance func(time.Duration))
}

// sources are the kinds of clocks that Wait waits on. They are to be made in a
// synctest bubble, whose time is the machine's.
var sources = []source{
	{"FakeClock", func() ([]ratelimit.Option, func(time.Duration)) {
		c := ratelimit.NewFakeClock(epoch)
		return []ratelimit.Option{ratelimit.WithClock(c)}, c.Advance
	}},
	{"a mock of benbjohnson's", func() ([]ratelimit.Option, func(time.Duration)) {
		c := benbjohnson.NewMock()
		c.Set(epoch)
		return []ratelimit.Option{ratelimit.WithClock(c)}, c.Add
	}},
	{"a clock of the user's with After", func() ([]ratelimit.Option, func(time.Duration)) {
		c := &counting{FakeClock: ratelimit.NewFakeClock(epoch)}
		return []ratelimit.Option{ratelimit.WithClock(c)}, c.Advance
	}},
	{"no clock", func() ([]ratelimit.Option, func(time.Duration)) { return nil, pass }},
	{"a clock without After", func() ([]ratelimit.Option, func(time.Duration)) {
		return []ratelimit.Option{ratelimit.WithClock(nowOnly{})}, pass
	}},
	{"a clock of benbjohnson's that runs", func() ([]ratelimit.Option, func(time.Duration)) {
		return []ratelimit.Option{ratelimit.WithClock(benbjohnson.New())}, pass
	}},
}

// overSources runs test in a bubble for each of the five on each kind of clock.
func overSources(t *testing.T, test func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration))) {
	t.Helper()
	overAll(t, func(t *testing.T, a algorithm) { overSourcesOf(t, a, test) })
}

// overSourcesOf runs test in a bubble for a on each kind of clock.
func overSourcesOf(t *testing.T, a algorithm, test func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration))) {
	t.Helper()
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts, advance := s.make()
				test(t, a, opts, advance)
			})
		})
	}
}

func TestWaitReturnsAtTheGrant(t *testing.T) {
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(1), opts...)
		clock := ratelimit.NewFakeClock(epoch)
		twin := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
		for range 3 {
			clock.Advance(twin.Peek("key").RetryAfter)
			want := twin.Allow("key")
			w := startWait(t.Context(), l, "key", 1)
			synctest.Wait()
			if look := l.Peek("key"); !w.over() {
				require.Equal(t, 1, waiting(l))
				advance(look.RetryAfter - 1)
				synctest.Wait()
				require.False(t, w.over(), "one nanosecond early")
				advance(1)
				synctest.Wait()
			}
			require.True(t, w.over(), "exactly on time")
			require.Equal(t, want, w.served(t), "the answer is that of an ask at that instant")
			require.Zero(t, waiting(l))
		}
	})
}

func TestWaitForMoreThanOne(t *testing.T) {
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(5), opts...)
		startWait(t.Context(), l, "key", 3).served(t)
		w := startWait(t.Context(), l, "key", 4)
		synctest.Wait()
		require.False(t, w.over())
		assert.Equal(t, 2, l.Peek("key").Remaining, "a waiter holds nothing while it waits")
		res := take(t, l, "key", 4)
		advance(res.RetryAfter)
		synctest.Wait()
		assert.Less(t, l.Peek("key").Remaining, 4, "it has taken all at once")
		advance(time.Hour) // what a leaky bucket delays
		require.Equal(t, 5, w.served(t).Limit)
	})
}

func TestWaitThatFailsTakesNothing(t *testing.T) {
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(1), opts...)
		spend(t, l, "key", 1)
		advance(10 * sec)
		look := l.Peek("key")
		require.False(t, look.Allowed)
		soon, cancel := context.WithTimeout(t.Context(), look.RetryAfter-1)
		defer cancel()
		expired, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		never := no(1, 0, ratelimit.Never, look.ResetAfter)
		started := time.Now()
		for _, row := range []struct {
			ctx  context.Context
			n    int
			want ratelimit.Result
			err  error
			why  string
		}{
			{over(), 1, ratelimit.Result{}, context.Canceled, "the caller has given up"},
			{over(), 0, ratelimit.Result{}, context.Canceled, "even on a look"},
			{expired, 1, ratelimit.Result{}, context.DeadlineExceeded, "the deadline has passed"},
			{soon, 1, look, context.DeadlineExceeded, "the deadline lies a nanosecond before the grant"},
			{t.Context(), 2, never, ratelimit.ErrExceedsLimit, "more than ever fits"},
			{t.Context(), math.MaxInt, never, ratelimit.ErrExceedsLimit, "the most"},
			{soon, 2, never, ratelimit.ErrExceedsLimit, "more than ever fits, which no deadline changes"},
			{t.Context(), -1, ratelimit.Result{}, ratelimit.ErrInvalidCount, "fewer than none"},
			{t.Context(), math.MinInt, ratelimit.Result{}, ratelimit.ErrInvalidCount, "the fewest"},
			{t.Context(), 0, look, nil, "a look does not wait"},
			{nil, 0, look, nil, "and needs no context"},
			{nil, 2, never, ratelimit.ErrExceedsLimit, "nor does a refusal"},
		} {
			for _, wait := range []func(context.Context, string, int) (ratelimit.Result, error){
				l.Wait,
				func(ctx context.Context, key string, n int) (ratelimit.Result, error) {
					return ratelimit.Wait(ctx, l, key, n)
				},
			} {
				got, err := wait(row.ctx, "key", row.n)
				assert.ErrorIs(t, err, row.err, row.why)
				assert.Equal(t, row.want, got, row.why)
				assert.Equal(t, look, l.Peek("key"), "%s: nothing is taken", row.why)
				assert.Equal(t, started, time.Now(), "%s: at once", row.why)
				assert.Zero(t, waiting(l), row.why)
			}
		}
		_, err := l.Wait(soon, "key", 1)
		assert.NotErrorIs(t, err, ratelimit.ErrExceedsLimit, "a later deadline would do")
	})
}

func TestWaitGivenUp(t *testing.T) {
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(1), opts...)
		spend(t, l, "key", 1)
		ctx, cancel := context.WithCancel(t.Context())
		w := startWait(ctx, l, "key", 1)
		synctest.Wait()
		advance(20 * sec)
		look := l.Peek("key")
		require.False(t, w.over())
		cancel()
		synctest.Wait()
		require.True(t, w.over())
		assert.Equal(t, context.Canceled, w.err)
		assert.Equal(t, ratelimit.Result{}, w.res)
		assert.Zero(t, waiting(l))
		assert.Equal(t, look, l.Peek("key"), "nothing is taken")
		advance(look.RetryAfter)
		spend(t, l, "key", 1)
	})
}

func TestADeadlineThatLeavesTimeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, a := range algorithms {
			l := a.start(t, ratelimit.PerMinute(1))
			spend(t, l, "key", 1)
			ctx, cancel := context.WithTimeout(t.Context(), l.Peek("key").RetryAfter+1)
			_, err := l.Wait(ctx, "key", 1)
			require.NoError(t, err, "%s: the grant lies a nanosecond before the deadline", a.name)
			cancel()
		}
	})
}

func TestADeadlineOfAMock(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
			mock := benbjohnson.NewMock()
			mock.Set(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)) // before the bubble's time
			l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(mock))
			spend(t, l, "key", 1)
			look := l.Peek("key")

			short, cancel := mock.WithTimeout(t.Context(), look.RetryAfter-1)
			res, err := l.Wait(short, "key", 1)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, look, res)
			assert.Equal(t, look, l.Peek("key"), "at once, and nothing is taken")

			long, cancel := mock.WithTimeout(t.Context(), look.RetryAfter+1)
			defer cancel()
			w := startWait(long, l, "key", 1)
			synctest.Wait()
			require.False(t, w.over())
			mock.Add(look.RetryAfter)
			w.served(t)
		})
	})
}
