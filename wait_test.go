package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	benbjohnson "github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A clockKind makes clocks of one kind, each with a function that moves it.
type clockKind struct {
	name string
	make func() (opts []ratelimit.Option, advance func(time.Duration))
}

// clockKinds are the kinds of clocks that Wait must work on. Call make in a synctest bubble, where
// the machine's clock is that of the bubble.
var clockKinds = []clockKind{
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
	{"no clock", func() ([]ratelimit.Option, func(time.Duration)) { return nil, advanceMachine }},
	{"a clock without After", func() ([]ratelimit.Option, func(time.Duration)) {
		return []ratelimit.Option{ratelimit.WithClock(nowOnly{})}, advanceMachine
	}},
	{"a clock of benbjohnson's that runs", func() ([]ratelimit.Option, func(time.Duration)) {
		return []ratelimit.Option{ratelimit.WithClock(benbjohnson.New())}, advanceMachine
	}},
}

// eachAlgorithmAndClock runs test in a synctest bubble for each of the five on each kind of clock.
func eachAlgorithmAndClock(t *testing.T, test func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration))) {
	t.Helper()
	eachAlgorithm(t, func(t *testing.T, a algorithm) { eachClock(t, a, test) })
}

// eachClock runs test in a synctest bubble for the algorithm a on each kind of clock.
func eachClock(t *testing.T, a algorithm, test func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration))) {
	t.Helper()
	for _, s := range clockKinds {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts, advance := s.make()
				test(t, a, opts, advance)
			})
		})
	}
}

// nowOnly is the machine's clock without a method After.
type nowOnly struct{}

func (nowOnly) Now() time.Time { return time.Now() }

// counting is a clock that counts the calls of its After method.
type counting struct {
	*ratelimit.FakeClock
	alarms atomic.Int64
}

func (c *counting) After(d time.Duration) <-chan time.Time {
	c.alarms.Add(1)
	return c.FakeClock.After(d)
}

// TestWaitReturnsAtTheGrant proves that Wait returns exactly at the instant of the grant,
// with the answer that Allow would give then.
func TestWaitReturnsAtTheGrant(t *testing.T) {
	eachAlgorithmAndClock(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(1), opts...)
		clock := ratelimit.NewFakeClock(epoch)
		twin := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
		for range 3 {
			clock.Advance(twin.Peek("key").RetryAfter)
			want := twin.Allow("key")
			look := l.Peek("key")
			w := startWait(t.Context(), l, "key", 1)
			synctest.Wait()
			if look.RetryAfter += look.Delay; !w.returned() {
				require.Equal(t, 1, waiting(l))
				advance(look.RetryAfter - 1)
				synctest.Wait()
				require.False(t, w.returned(), "one nanosecond early")
				advance(1)
				synctest.Wait()
			}
			require.True(t, w.returned(), "exactly on time")
			require.Equal(t, want, w.served(t), "Wait answers what Allow answers at that instant")
			require.Zero(t, waiting(l))
		}
	})
}

// TestWaitForMoreThanOne proves that a waiter for several units takes none of them until it can
// take all.
func TestWaitForMoreThanOne(t *testing.T) {
	eachAlgorithmAndClock(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(5), opts...)
		startWait(t.Context(), l, "key", 3).served(t)
		res := take(t, l, "key", 4)
		require.Equal(t, 2, l.Peek("key").Remaining)
		w := startWait(t.Context(), l, "key", 4)
		synctest.Wait()
		require.False(t, w.returned())
		require.GreaterOrEqual(t, l.Peek("key").RetryAfter, res.RetryAfter, "a look comes behind the waiter")
		advance(res.RetryAfter)
		synctest.Wait()
		assert.Less(t, l.Peek("key").Remaining, 4, "the waiter has taken all four")
		advance(time.Hour) // longer than any Delay of a leaky bucket
		require.Equal(t, 5, w.served(t).Limit)
	})
}

// TestWaitThatFailsTakesNothing proves when Wait fails at once, and that it takes nothing then.
func TestWaitThatFailsTakesNothing(t *testing.T) {
	eachAlgorithmAndClock(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
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
			{canceled(), 1, ratelimit.Result{}, context.Canceled, "the caller has given up"},
			{canceled(), 0, ratelimit.Result{}, context.Canceled, "the caller has given up, and only looks"},
			{expired, 1, ratelimit.Result{}, context.DeadlineExceeded, "the deadline has passed"},
			{soon, 1, look, context.DeadlineExceeded, "the deadline lies a nanosecond before the grant"},
			{t.Context(), 2, never, ratelimit.ErrExceedsLimit, "more than the limit"},
			{t.Context(), math.MaxInt, never, ratelimit.ErrExceedsLimit, "the largest count"},
			{soon, 2, never, ratelimit.ErrExceedsLimit, "more than the limit: not even a later deadline would do"},
			{t.Context(), -1, ratelimit.Result{}, ratelimit.ErrInvalidCount, "a negative count"},
			{t.Context(), math.MinInt, ratelimit.Result{}, ratelimit.ErrInvalidCount, "the smallest count"},
			{t.Context(), 0, look, nil, "a look does not wait"},
			{nil, 0, look, nil, "a look needs no context"},
			{nil, 2, never, ratelimit.ErrExceedsLimit, "a count above the limit is refused without a context too"},
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
				assert.Equal(t, started, time.Now(), "%s: Wait returns at once", row.why)
				assert.Zero(t, waiting(l), row.why)
			}
		}
		_, err := l.Wait(soon, "key", 1)
		assert.NotErrorIs(t, err, ratelimit.ErrExceedsLimit, "with a later deadline it would be granted")
	})
}

// TestWaitGivenUp proves that a Wait whose context is cancelled takes nothing and leaves the line
// of waiters.
func TestWaitGivenUp(t *testing.T) {
	eachAlgorithmAndClock(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(1), opts...)
		spend(t, l, "key", 1)
		look := l.Peek("key")
		ctx, cancel := context.WithCancel(t.Context())
		w := startWait(ctx, l, "key", 1)
		synctest.Wait()
		advance(20 * sec)
		require.Greater(t, l.Peek("key").RetryAfter, look.RetryAfter-20*sec, "a look comes behind the waiter")
		look.RetryAfter -= 20 * sec
		look.ResetAfter -= 20 * sec
		require.False(t, w.returned())
		cancel()
		synctest.Wait()
		require.True(t, w.returned())
		assert.Equal(t, context.Canceled, w.err)
		assert.Equal(t, ratelimit.Result{}, w.res)
		assert.Zero(t, waiting(l))
		assert.Equal(t, look, l.Peek("key"), "nothing is taken")
		advance(look.RetryAfter)
		spend(t, l, "key", 1)
	})
}

// scripted is a custom limiter without a Wait method. It returns its answers one after the other,
// and panics after the last.
type scripted struct {
	answers []answer
	asked   []asking
}

type answer struct {
	res ratelimit.Result
	err error
}

type asking struct {
	key string
	n   int
	at  time.Time
}

func (s *scripted) Allow(string) ratelimit.Result { panic("Wait has no use for Allow") }

func (s *scripted) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	s.asked = append(s.asked, asking{key, n, time.Now()})
	if err := ctx.Err(); err != nil {
		return ratelimit.Result{}, err
	}
	next := s.answers[0]
	s.answers = s.answers[1:]
	return next.res, next.err
}

// TestWaitOnAnyLimiter proves how Wait waits for a limiter that has no Wait method: it calls Take
// again after each RetryAfter.
func TestWaitOnAnyLimiter(t *testing.T) {
	var (
		failed  = errors.New("no such tenant")
		store   = fmt.Errorf("reading: %w", ratelimit.ErrStore)
		granted = yes(5, 4, sec)
		retry   = func(d time.Duration) ratelimit.Result { return no(5, 0, d, minute) }
	)
	for _, row := range []struct {
		answers []answer
		n       int
		timeout time.Duration // of the context; 0 for none
		want    answer
		asked   []time.Duration // when Take is called, after the start
		lasts   time.Duration
		why     string
	}{
		{[]answer{{granted, nil}}, 1, 0, answer{granted, nil},
			[]time.Duration{0}, 0, "granted at once"},
		{[]answer{{retry(3 * sec), nil}, {retry(2 * sec), nil}, {granted, nil}}, 3, 0, answer{granted, nil},
			[]time.Duration{0, 3 * sec, 5 * sec}, 5 * sec, "asked again after each RetryAfter"},
		{[]answer{{retry(1), nil}, {granted, nil}}, 1, 0, answer{granted, nil},
			[]time.Duration{0, ms}, ms, "a pause is at least a millisecond"},
		{[]answer{{retry(0), nil}, {retry(0), nil}, {granted, nil}}, 1, 0, answer{granted, nil},
			[]time.Duration{0, ms, 2 * ms}, 2 * ms, "even if the denial says no time at all"},
		{[]answer{{retry(ratelimit.Never), nil}}, 9, 0, answer{retry(ratelimit.Never), ratelimit.ErrExceedsLimit},
			[]time.Duration{0}, 0, "what never fits is not asked for again"},
		{[]answer{{ratelimit.Result{}, failed}}, 1, 0, answer{ratelimit.Result{}, failed},
			[]time.Duration{0}, 0, "an error ends the wait"},
		{[]answer{{retry(sec), nil}, {retry(sec), failed}}, 1, 0, answer{retry(sec), failed},
			[]time.Duration{0, sec}, sec, "a later one too"},
		{[]answer{{retry(2 * sec), store}, {granted, nil}}, 1, 0, answer{granted, nil},
			[]time.Duration{0, 2 * sec}, 2 * sec, "a denial while the store fails is a denial"},
		{[]answer{{granted, store}}, 1, 0, answer{granted, store},
			[]time.Duration{0}, 0, "a grant while the store fails is a grant, and the error is there to be logged"},
		{[]answer{{retry(sec), nil}}, 0, 0, answer{retry(sec), nil},
			[]time.Duration{0}, 0, "a look does not wait"},
		{[]answer{{ratelimit.Result{}, ratelimit.ErrInvalidCount}}, -1, 0, answer{ratelimit.Result{}, ratelimit.ErrInvalidCount},
			[]time.Duration{0}, 0, "fewer than none is for the limiter to refuse"},
		{[]answer{{retry(3 * sec), nil}}, 1, 3*sec - 1, answer{retry(3 * sec), context.DeadlineExceeded},
			[]time.Duration{0}, 0, "the deadline lies before the grant"},
		{[]answer{{retry(3 * sec), nil}, {retry(3 * sec), nil}}, 1, 5 * sec, answer{retry(3 * sec), context.DeadlineExceeded},
			[]time.Duration{0, 3 * sec}, 3 * sec, "the deadline lies before the second grant"},
		{[]answer{{retry(0), nil}}, 1, ms / 2, answer{ratelimit.Result{}, context.DeadlineExceeded},
			[]time.Duration{0}, ms / 2, "the deadline passes during the pause"},
		{nil, 1, -sec, answer{ratelimit.Result{}, context.DeadlineExceeded},
			[]time.Duration{0}, 0, "the deadline has passed: the limiter takes nothing"},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &scripted{answers: row.answers}
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if row.timeout != 0 {
					ctx, cancel = context.WithTimeout(ctx, row.timeout)
				}
				defer cancel()
				started := time.Now()
				res, err := ratelimit.Wait(ctx, l, "key", row.n)
				assert.Equal(t, row.want.res, res)
				assert.ErrorIs(t, err, row.want.err)
				assert.Equal(t, row.lasts, time.Since(started))
				var want []asking
				for _, at := range row.asked {
					want = append(want, asking{"key", row.n, started.Add(at)})
				}
				assert.Equal(t, want, l.asked)
				assert.Empty(t, l.answers)
			})
		})
	}
}

// TestWaitOnAnyLimiterGivenUp proves that a Wait for a limiter without a Wait method ends with its
// context.
func TestWaitOnAnyLimiterGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{answers: []answer{{no(5, 0, minute, minute), nil}}}
		ctx, cancel := context.WithCancel(t.Context())
		w := startWait(ctx, l, "key", 1)
		synctest.Wait()
		require.False(t, w.returned())
		cancel()
		synctest.Wait()
		require.True(t, w.returned())
		assert.Equal(t, context.Canceled, w.err)
		assert.Equal(t, ratelimit.Result{}, w.res)
		assert.Len(t, l.asked, 1)
	})
}

// TestWaitWithoutContext proves that a nil context never ends.
func TestWaitWithoutContext(t *testing.T) {
	var none context.Context
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{answers: []answer{{no(5, 0, minute, minute), nil}, {yes(5, 4, sec), nil}}}
		res, err := ratelimit.Wait(none, l, "key", 1)
		require.NoError(t, err)
		require.Equal(t, yes(5, 4, sec), res)

		for _, a := range algorithms {
			l := a.start(t, ratelimit.PerMinute(1))
			for range 2 {
				res, err := ratelimit.Wait(none, l, "key", 1)
				require.NoError(t, err)
				require.True(t, res.Allowed)
			}
		}
	})
}

// TestWaitWithoutLimiter proves that Wait refuses a nil limiter and zero limiters.
func TestWaitWithoutLimiter(t *testing.T) {
	res, err := ratelimit.Wait(t.Context(), nil, "key", 1)
	assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	assert.Equal(t, ratelimit.Result{}, res)
	for _, l := range []limiter{
		new(ratelimit.TokenBucket), new(ratelimit.FixedWindow), new(ratelimit.SlidingWindowLog),
		new(ratelimit.SlidingWindowCounter), new(ratelimit.LeakyBucket),
	} {
		for _, n := range []int{-1, 0, 1} {
			res, err := ratelimit.Wait(t.Context(), l, "key", n)
			assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%T", l)
			assert.Equal(t, ratelimit.Result{}, res, "%T", l)
		}
	}
}

// patient is a custom limiter with a Wait method.
type patient struct{ scripted }

func (*patient) Wait(_ context.Context, key string, n int) (ratelimit.Result, error) {
	return ratelimit.Result{Allowed: true, Rule: key, Remaining: n}, ratelimit.ErrStore
}

// TestWaitCallsTheLimitersWait proves that Wait calls the Wait method of a limiter that has one.
func TestWaitCallsTheLimitersWait(t *testing.T) {
	res, err := ratelimit.Wait(t.Context(), new(patient), "key", 7)
	assert.Equal(t, ratelimit.Result{Allowed: true, Rule: "key", Remaining: 7}, res)
	assert.Equal(t, ratelimit.ErrStore, err)
}

// TestClockMoveBeforeTheAlarmIsNotLost moves the clock by exactly the needed time after a waiter
// was denied and before it sets its alarm, and proves that the waiter wakes. If a move were lost,
// all goroutines would wait for ever, and the bubble would fail.
func TestClockMoveBeforeTheAlarmIsNotLost(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, s := range clockKinds[:2] {
			t.Run(s.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					opts, advance := s.make()
					l := a.start(t, ratelimit.PerMinute(1), opts...)
					spend(t, l, "key", 1)
					r := rand.New(rand.NewPCG(1, 2))
					for range 300 {
						left := l.Peek("key").RetryAfter
						w := startWait(t.Context(), l, "key", 1)
						for left > 0 {
							d := min(left, 1+time.Duration(r.Int64N(int64(minute))))
							advance(d)
							left -= d
						}
						w.served(t)
					}
				})
			})
		}
	})
}

// nudged is a clock that moves right before or after its next calls, as if another goroutine moved
// it at the worst moment.
type nudged struct {
	*ratelimit.FakeClock
	before, after []time.Duration
}

// nudge makes the next of moves, if there is one.
func (c *nudged) nudge(moves *[]time.Duration) {
	if len(*moves) > 0 {
		d := (*moves)[0]
		*moves = (*moves)[1:]
		c.Advance(d)
	}
}

func (c *nudged) Now() time.Time {
	c.nudge(&c.before)
	defer c.nudge(&c.after)
	return c.FakeClock.Now()
}

func (c *nudged) After(d time.Duration) <-chan time.Time {
	if d < 0 {
		panic("an alarm in the past")
	}
	c.nudge(&c.before)
	defer c.nudge(&c.after)
	return c.FakeClock.After(d)
}

// TestClockMoveAtAnyMomentIsNotLost moves the clock right before or after each call that Wait makes
// to it, and proves that Wait returns. If it did not, the bubble would fail.
func TestClockMoveAtAnyMomentIsNotLost(t *testing.T) {
	const whole, half = minute, 30 * sec
	for _, row := range []struct {
		before, after []time.Duration
		why           string
	}{
		{nil, []time.Duration{whole}, "after the reading that denied"},
		{nil, []time.Duration{0, whole}, "after the alarm is set"},
		{nil, []time.Duration{0, 0, whole}, "after the clock is read again"},
		{nil, []time.Duration{half, half}, "on both sides of setting the alarm"},
		{nil, []time.Duration{half, 0, half}, "after both readings"},
		{nil, []time.Duration{whole - 1, 1}, "all but a nanosecond, and then that nanosecond"},
		{[]time.Duration{0, whole}, nil, "before the alarm is set"},
		{[]time.Duration{0, half, half}, nil, "before the alarm is set and before the clock is read again"},
		{[]time.Duration{0, half, 0, half}, nil, "before the alarm is set, and before it is set again"},
		{nil, []time.Duration{6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec},
			"at each of ten moments"},
		{nil, []time.Duration{2 * whole}, "by more than needed"},
		{nil, []time.Duration{-half, half, whole}, "first back, then forward"},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := &nudged{FakeClock: ratelimit.NewFakeClock(epoch)}
			l := algorithm{"token bucket", tokenBucket}.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
			spend(t, l, "key", 1)
			clock.before, clock.after = row.before, row.after
			_, err := l.Wait(t.Context(), "key", 1) // if all goroutines wait for ever, the bubble fails
			require.NoError(t, err, row.why)
		})
	}
}

// TestWaitSucceedsJustBeforeTheDeadline proves that Wait succeeds if the grant comes one
// nanosecond before the deadline.
func TestWaitSucceedsJustBeforeTheDeadline(t *testing.T) {
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

// TestWaitReadsDeadlinesOnTheMock proves that Wait compares the deadline of a mock's context with
// the time of the mock, not of the machine.
func TestWaitReadsDeadlinesOnTheMock(t *testing.T) {
	eachInBubble(t, func(t *testing.T, a algorithm) {
		mock := benbjohnson.NewMock()
		mock.Set(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)) // earlier than the time of the bubble
		l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(mock))
		spend(t, l, "key", 1)
		look := l.Peek("key")

		short, cancel := mock.WithTimeout(t.Context(), look.RetryAfter-1)
		res, err := l.Wait(short, "key", 1)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, look, res)
		assert.Equal(t, look, l.Peek("key"), "Wait fails at once, and nothing is taken")

		long, cancel := mock.WithTimeout(t.Context(), look.RetryAfter+1)
		defer cancel()
		w := startWait(long, l, "key", 1)
		synctest.Wait()
		require.False(t, w.returned())
		mock.Add(look.RetryAfter)
		w.served(t)
	})
}

// TestWaitLeavesNoAlarm proves that a Wait has no alarm on the clock after it has ended, however it
// ended.
func TestWaitLeavesNoAlarm(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, row := range []struct {
			end func(l limiter, clock *ratelimit.FakeClock, cancel context.CancelFunc)
			why string
		}{
			{func(_ limiter, _ *ratelimit.FakeClock, cancel context.CancelFunc) { cancel() }, "its caller gives up"},
			{func(l limiter, _ *ratelimit.FakeClock, _ context.CancelFunc) { _ = l.Reset("key") }, "its key is reset"},
			{func(_ limiter, clock *ratelimit.FakeClock, _ context.CancelFunc) { clock.Advance(time.Hour) }, "it is served"},
		} {
			synctest.Test(t, func(t *testing.T) {
				clock := ratelimit.NewFakeClock(epoch)
				l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
				spend(t, l, "key", 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := startWait(ctx, l, "key", 1)
				synctest.Wait()
				require.False(t, w.returned())
				require.Equal(t, 1, clock.Alarms(), row.why)
				row.end(l, clock, cancel)
				synctest.Wait()
				require.True(t, w.returned(), row.why)
				assert.Zero(t, clock.Alarms(), row.why)
				assert.Zero(t, waiting(l), row.why)
			})
		}
	})
}

// A hasty clock advances by an hour each time it is read.
type hasty struct {
	*ratelimit.FakeClock
	alarms atomic.Int64
}

func (c *hasty) Now() time.Time {
	c.Advance(time.Hour)
	return c.FakeClock.Now()
}

func (c *hasty) After(d time.Duration) <-chan time.Time {
	c.alarms.Add(1)
	return c.FakeClock.After(d)
}

// TestWaitOnAClockThatMovesWhenRead proves that Wait does not loop for ever on a clock that moves
// whenever it is read: it sets 100 alarms and then waits for one.
func TestWaitOnAClockThatMovesWhenRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &hasty{FakeClock: ratelimit.NewFakeClock(epoch)}
		l := algorithms[0].start(t, ratelimit.Rate{Requests: 1, Per: 200 * 365 * 24 * time.Hour}, ratelimit.WithClock(clock))
		spend(t, l, "key", 1)
		ctx, cancel := context.WithCancel(t.Context())
		w := startWait(ctx, l, "key", 1)
		synctest.Wait()
		require.False(t, w.returned())
		require.Equal(t, int64(100), clock.alarms.Load(), "after 100 alarms Wait stops following the clock")
		cancel()
		synctest.Wait()
		require.True(t, w.returned())
	})
}

// TestWaitAtTheEndOfTime proves that Wait fails at once if the clock is at the last instant that a
// limiter can represent.
func TestWaitAtTheEndOfTime(t *testing.T) {
	for _, a := range algorithms {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
		clock.Advance(ratelimit.Never)
		clock.Advance(time.Hour)
		spend(t, l, "key", 1)
		res, err := l.Wait(t.Context(), "key", 1)
		assert.ErrorIs(t, err, ratelimit.ErrExceedsLimit, "%s: no later instant can be told apart", a.name)
		assert.Equal(t, ratelimit.Never, res.RetryAfter)
	}
}

// TestWaitChargesBeforeTheDelay proves that Wait for a leaky bucket charges the request before it
// waits out the Delay, and has left the line of waiters by then.
func TestWaitChargesBeforeTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		l := startLeaky(t, 5, ratelimit.WithClock(clock))
		q := line(t, l, "key", 1, 1, 1)
		require.Equal(t, 1, q.served(t), "the first leaves at once")
		require.Equal(t, delayed(3*sec, peeked(5, 2, 3*sec)), l.Peek("key"), "all three have been charged")
		require.Zero(t, waiting(l), "a request that only waits out its Delay does not block the line")
		clock.Advance(sec - 1)
		require.Equal(t, 1, q.served(t), "one nanosecond early")
		clock.Advance(1)
		require.Equal(t, 2, q.served(t))
		clock.Advance(sec)
		require.Equal(t, 3, q.served(t))
		for i, want := range []ratelimit.Result{
			yes(5, 4, 1*sec), yes(5, 3, 2*sec), yes(5, 2, 3*sec),
		} {
			assert.Equal(t, want, q.waiters[i].res, "the decision's Result, with no Delay left")
		}
		require.Equal(t, delayed(sec, peeked(5, 4, sec)), l.Peek("key"), "they were charged once")
	})
}

// TestWaitRefusesADelayBeyondTheDeadline proves that Wait fails at once and charges nothing if the
// Delay would end after the deadline.
func TestWaitRefusesADelayBeyondTheDeadline(t *testing.T) {
	for _, row := range []struct {
		use      int           // units taken before
		n        int           // units waited for
		deadline time.Duration // from now
		lasts    time.Duration // how long Wait takes if it is granted; -1 if it fails
		why      string
	}{
		{0, 1, 1, 0, "an empty bucket delays nothing"},
		{3, 1, 3*sec + 1, 3 * sec, "the Delay ends a nanosecond before the deadline"},
		{3, 1, 3*sec - 1, -1, "the Delay outlasts the deadline by a nanosecond"},
		{3, 1, 1, -1, "the Delay outlasts the deadline by far"},
		{5, 1, 5*sec + 1, 5 * sec, "a second until there is room, then four until it leaves"},
		{5, 1, 5*sec - 1, -1, "there is room in time, but its Delay ends too late"},
		{5, 1, sec + 1, -1, "there is room in time, but its Delay ends far too late"},
		{5, 1, sec - 1, -1, "there is no room in time"},
		{5, 3, 5*sec + 1, 5 * sec, "three seconds until there is room, then two until they leave"},
		{5, 3, 5*sec - 1, -1, "there is room for all in time, but their Delay ends too late"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := startLeaky(t, 5)
			if row.use > 0 {
				require.True(t, take(t, l, "key", row.use).Allowed)
			}
			look, started := l.Peek("key"), time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
			defer cancel()
			res, err := l.Wait(ctx, "key", row.n)
			if row.lasts >= 0 {
				require.NoError(t, err, row.why)
				require.Equal(t, row.lasts, time.Since(started), row.why)
				require.Zero(t, res.Delay, row.why)
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded, row.why)
			assert.Equal(t, started, time.Now(), "%s: it fails at once", row.why)
			assert.False(t, res.Allowed, row.why)
			assert.Positive(t, res.RetryAfter, row.why)
			assert.Equal(t, look, l.Peek("key"), "%s: nothing is charged", row.why)
			assert.Zero(t, waiting(l), row.why)
		})
	}
}

// TestRequestCancelledDuringItsDelayStaysCharged proves that a request that is cancelled during its
// Delay stays charged, and that the requests behind it are not served earlier.
func TestRequestCancelledDuringItsDelayStaysCharged(t *testing.T) {
	leaky := algorithm{"leaky bucket", leakyBucket}
	eachClock(t, leaky, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := startLeaky(t, 5, opts...)
		q := line(t, l, "key", 1, 1, 1)
		require.Equal(t, 1, q.served(t))
		look := l.Peek("key")
		q.giveUp(t, 1)
		assert.Equal(t, look, l.Peek("key"), "the request stays charged")
		assert.Equal(t, 3*sec, l.Peek("key").Delay, "the Delay of the next request counts it")
		advance(2*sec - 1)
		require.Equal(t, 1, q.served(t), "the request behind it does not move up")
		advance(1)
		require.Equal(t, 2, q.served(t))
	})
}

// TestLeakyBucketWaitersKeepTheirOrder proves that waiters for a full leaky bucket wait for room
// one after the other, and then for their Delay. A third waiter, whose deadline comes before the
// first may leave, fails at once.
func TestLeakyBucketWaitersKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLeaky(t, 2)
		require.True(t, take(t, l, "key", 2).Allowed)
		q := line(t, l, "key", 1, 1)
		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*sec-1)
		defer cancel()
		_, err := l.Wait(ctx, "key", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, started, time.Now())

		for i := range 2 {
			advanceMachine(time.Duration(2+i)*sec - 1 - time.Since(started))
			require.Equal(t, i, q.served(t), "one nanosecond early")
			advanceMachine(1)
			require.Equal(t, i+1, q.served(t))
		}
	})
}

// TestRefusedDelayHasARetryAfter proves that a Wait that fails because of the Delay returns a
// RetryAfter after which the Delay would end in time.
func TestRefusedDelayHasARetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLeaky(t, 5)
		spend(t, l, "key", 3)
		before := l.Peek("key")
		ctx, cancel := context.WithTimeout(t.Context(), before.Delay/3)
		defer cancel()
		res, err := l.Wait(ctx, "key", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		want := before
		want.Allowed, want.Delay, want.RetryAfter, want.Reason = false, 0, before.Delay-before.Delay/3, ratelimit.ReasonLimit
		require.Equal(t, want, res, "after that long, the Delay would end at the deadline")
		require.Equal(t, before, l.Peek("key"), "nothing was taken")
	})
}

// TestNoWakeUpIsLost resets a key while a caller is about to wait for it, again and again. A caller who is in no line any more
// has been served, so none may sleep then.
func TestNoWakeUpIsLost(t *testing.T) {
	const waits = 20_000
	synctest.Test(t, func(t *testing.T) {
		l := must(ratelimit.NewTokenBucket(ratelimit.PerHour(1)))
		ctx, cancel := context.WithCancel(t.Context())
		var returned atomic.Int64
		go func() {
			for ctx.Err() == nil {
				_, _ = l.Wait(ctx, "key", 1)
				returned.Add(1)
			}
		}()
		for resets := 0; returned.Load() < waits; resets++ {
			_ = l.Reset("key")
			if resets%10_000 == 0 {
				synctest.Wait()
				require.Equal(t, 1, l.Waiting(), "the caller sleeps, so he must be in a line; %d waits have returned", returned.Load())
			}
		}
		cancel()
	})
}
