package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	benbjohnson "github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A source is a kind of clock, with the way to make one and to move it.
type source struct {
	name string
	make func() (opts []ratelimit.Option, advance func(time.Duration))
}

// sources are the kinds of clocks that Wait waits on. They must be made in a synctest
// bubble, where the machine's time is the bubble's.
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

// nowOnly is a Clock that runs by itself and has no After method.
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
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(1), opts...)
		clock := ratelimit.NewFakeClock(epoch)
		twin := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
		for range 3 {
			clock.Advance(twin.Peek("key").RetryAfter)
			want := twin.Allow("key")
			look := l.Peek("key")
			w := startWait(t.Context(), l, "key", 1)
			synctest.Wait()
			if look.RetryAfter += look.Delay; !w.over() {
				require.Equal(t, 1, waiting(l))
				advance(look.RetryAfter - 1)
				synctest.Wait()
				require.False(t, w.over(), "one nanosecond early")
				advance(1)
				synctest.Wait()
			}
			require.True(t, w.over(), "exactly on time")
			require.Equal(t, want, w.served(t), "Wait answers what Allow answers at that instant")
			require.Zero(t, waiting(l))
		}
	})
}

// TestWaitForMoreThanOne proves that a waiter for several units takes none of them until it
// can take all.
func TestWaitForMoreThanOne(t *testing.T) {
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(5), opts...)
		startWait(t.Context(), l, "key", 3).served(t)
		res := take(t, l, "key", 4)
		require.Equal(t, 2, l.Peek("key").Remaining)
		w := startWait(t.Context(), l, "key", 4)
		synctest.Wait()
		require.False(t, w.over())
		require.GreaterOrEqual(t, l.Peek("key").RetryAfter, res.RetryAfter, "a look comes behind the waiter")
		advance(res.RetryAfter)
		synctest.Wait()
		assert.Less(t, l.Peek("key").Remaining, 4, "the waiter has taken all four")
		advance(time.Hour) // longer than any Delay of a leaky bucket
		require.Equal(t, 5, w.served(t).Limit)
	})
}

// TestWaitThatFailsTakesNothing proves when Wait returns without waiting, and that it takes
// nothing then.
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
			{over(), 0, ratelimit.Result{}, context.Canceled, "the caller has given up, and only looks"},
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

// TestWaitGivenUp proves that a Wait whose context is cancelled takes nothing and leaves
// the line.
func TestWaitGivenUp(t *testing.T) {
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
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

// scripted is a user's limiter without a Wait method. It gives its answers one after
// the other, and panics when it has none left.
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

// TestWaitOnAnyLimiter proves how Wait drives a limiter that has no Wait method: it calls
// Take again after each RetryAfter.
func TestWaitOnAnyLimiter(t *testing.T) {
	var (
		failed  = errors.New("no such tenant")
		store   = fmt.Errorf("reading: %w", ratelimit.ErrStore)
		granted = yes(5, 4, sec)
		retry   = func(d time.Duration) ratelimit.Result { return no(5, 0, d, mins) }
	)
	for _, row := range []struct {
		answers []answer
		n       int
		timeout time.Duration // of the context, if not zero
		want    answer
		asked   []time.Duration // since the start
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

// TestWaitOnAnyLimiterGivenUp proves that such a Wait ends with its context.
func TestWaitOnAnyLimiterGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{answers: []answer{{no(5, 0, mins, mins), nil}}}
		ctx, cancel := context.WithCancel(t.Context())
		w := startWait(ctx, l, "key", 1)
		synctest.Wait()
		require.False(t, w.over())
		cancel()
		synctest.Wait()
		require.True(t, w.over())
		assert.Equal(t, context.Canceled, w.err)
		assert.Equal(t, ratelimit.Result{}, w.res)
		assert.Len(t, l.asked, 1)
	})
}

// TestWaitWithoutContext proves that a nil context is never over.
func TestWaitWithoutContext(t *testing.T) {
	var none context.Context
	synctest.Test(t, func(t *testing.T) {
		l := &scripted{answers: []answer{{no(5, 0, mins, mins), nil}, {yes(5, 4, sec), nil}}}
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

// TestWaitWithoutLimiter proves that Wait refuses a nil limiter and limiters that no
// constructor made.
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

// patient is a user's limiter with a Wait method of its own.
type patient struct{ scripted }

func (*patient) Wait(_ context.Context, key string, n int) (ratelimit.Result, error) {
	return ratelimit.Result{Allowed: true, Rule: key, Remaining: n}, ratelimit.ErrStore
}

// TestWaitCallsALimitersOwn proves that Wait calls the Wait method of a limiter that has
// one.
func TestWaitCallsALimitersOwn(t *testing.T) {
	res, err := ratelimit.Wait(t.Context(), new(patient), "key", 7)
	assert.Equal(t, ratelimit.Result{Allowed: true, Rule: "key", Remaining: 7}, res)
	assert.Equal(t, ratelimit.ErrStore, err)
}
