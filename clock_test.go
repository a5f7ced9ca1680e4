package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	benbjohnson "github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// answers calls l, a new limiter of 3 a minute, at fixed instants, and returns its answers. advance
// moves the clock of l.
func answers(t *testing.T, l limiter, advance func(time.Duration)) (all []ratelimit.Result) {
	t.Helper()
	ask := func(n int) ratelimit.Result {
		res := take(t, l, "key", n)
		all = append(all, res)
		return res
	}
	ask(0)
	ask(2)
	advance(7 * sec)
	ask(1)
	res := ask(2)
	require.False(t, res.Allowed)
	advance(res.RetryAfter - 1)
	require.False(t, ask(2).Allowed, "one nanosecond early")
	advance(1)
	require.True(t, ask(2).Allowed, "exactly on time")
	ask(9)
	advance(2 * minute)
	require.Equal(t, 3, ask(0).Remaining, "as good as new")
	return append(all, l.Allow("key"), l.Peek("other"))
}

// TestBenbjohnsonMock proves that a limiter on a mock of github.com/benbjohnson/clock answers as it
// does on a FakeClock.
func TestBenbjohnsonMock(t *testing.T) {
	for _, row := range []struct {
		start time.Time
		why   string
	}{
		{epoch, "a usual start"},
		{time.Unix(0, 0), "where a new mock stands"},
		{epoch.AddDate(-100, 0, 0), "before 1970"},
	} {
		eachAlgorithm(t, func(t *testing.T, a algorithm) {
			mock := benbjohnson.NewMock()
			mock.Set(row.start)
			mocked := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(mock))
			fake := ratelimit.NewFakeClock(epoch)
			faked := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(fake))
			assert.Equal(t, answers(t, faked, fake.Advance), answers(t, mocked, mock.Add), row.why)
		})
	}
}

// TestBenbjohnsonMockBackwards proves that a limiter reads a mock that steps back as standing
// still.
func TestBenbjohnsonMockBackwards(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		mock := benbjohnson.NewMock()
		mock.Set(epoch)
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(mock))
		spend(t, l, "key", 3)
		want := l.Peek("key")
		mock.Add(-time.Hour)
		assert.Equal(t, behind(want, time.Hour), l.Peek("key"), "a clock that steps back is read as standing still until it has caught up")
		mock.Set(epoch)
		assert.Equal(t, want, l.Peek("key"), "what was stepped over is not earned twice")
	})
}

// TestMachineClocks proves that a limiter answers the same on clocks that run as on a FakeClock.
func TestMachineClocks(t *testing.T) {
	for _, row := range []struct {
		opts []ratelimit.Option
		why  string
	}{
		{nil, "without WithClock the machine's clock is read"},
		{[]ratelimit.Option{ratelimit.WithClock(benbjohnson.New())}, "a clock of benbjohnson's that runs"},
		{[]ratelimit.Option{ratelimit.WithClock(nowOnly{})}, "a clock without After"},
	} {
		eachInBubble(t, func(t *testing.T, a algorithm) {
			l := a.start(t, ratelimit.PerMinute(3), row.opts...)
			fake := ratelimit.NewFakeClock(epoch)
			faked := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(fake))
			assert.Equal(t, answers(t, faked, fake.Advance), answers(t, l, advanceMachine), row.why)
		})
	}
}

// TestAnswersDoNotDependOnTheDate proves that answers do not depend on the date: not at the Unix
// epoch, the zero Time, or beyond the range of nanoseconds since 1970.
func TestAnswersDoNotDependOnTheDate(t *testing.T) {
	for _, row := range []struct {
		start time.Time
		why   string
	}{
		{time.Unix(0, 0), "the Unix epoch"},
		{time.Unix(-60, 0), "the minute before it"},
		{time.Unix(-120, 0), "two minutes before it"},
		{time.Time{}, "the zero Time, in year 1"},
		{time.Time{}.AddDate(-5000, 0, 0), "before year 1"},
		{time.Date(9999, 12, 31, 23, 59, 0, 0, time.UTC), "the last minute of year 9999"},
		{time.Date(1677, 9, 21, 0, 12, 0, 0, time.UTC), "before the first instant that nanoseconds since 1970 can name"},
		{time.Date(2262, 4, 11, 23, 48, 0, 0, time.UTC), "after the last one"},
	} {
		eachAlgorithm(t, func(t *testing.T, a algorithm) {
			for _, offset := range []time.Duration{0, 1, 29*sec + 1, 52 * sec} { // from the start of the window
				want := ratelimit.NewFakeClock(epoch.Add(offset))
				usual := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(want))
				got := ratelimit.NewFakeClock(row.start.Add(offset))
				l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(got))
				assert.Equal(t, answers(t, usual, want.Advance), answers(t, l, got.Advance), row.why)
			}
		})
	}
}

// behind adds ahead to the times in res: the answer on a clock that has stepped back by ahead.
func behind(res ratelimit.Result, ahead time.Duration) ratelimit.Result {
	if res.RetryAfter > 0 && res.RetryAfter < ratelimit.Never {
		res.RetryAfter += ahead
	}
	if res.ResetAfter > 0 {
		res.ResetAfter += ahead
	}
	return res
}

// TestClockBackwards proves that the time of a key never goes back. The last grant sets it. On a
// clock that shows an earlier time, a key answers as it does at its last grant, and the times in
// the answer also include the time until that grant.
func TestClockBackwards(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		raw, held := ratelimit.NewFakeClock(epoch), ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(raw))
		want := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(held))
		r := rand.New(rand.NewPCG(8, 1))
		granted := epoch
		for range 1000 {
			raw.Advance(time.Duration(r.Int64N(int64(600*ms))) - 250*ms)
			held.Set(raw.Now())
			if granted.After(raw.Now()) {
				held.Set(granted)
			}
			n := r.IntN(4)
			res := take(t, l, "key", n)
			require.Equal(t, behind(take(t, want, "key", n), held.Now().Sub(raw.Now())), res)
			if res.Allowed && n > 0 {
				granted = held.Now()
			}
		}
	})
}

// TestClockJumpsFar proves that jumps of centuries, forward and back, neither overflow nor grant a
// unit twice.
func TestClockJumpsFar(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(clock))
		spend(t, l, "key", 3)
		for _, row := range []struct {
			to    time.Time
			fresh bool
			why   string
		}{
			{epoch.AddDate(-1000, 0, 0), false, "a thousand years back: time stands still"},
			{epoch.AddDate(100, 0, 0), true, "a hundred years on"},
			{epoch, false, "back to where it began: time stands still"},
			{epoch.AddDate(1000, 0, 0), true, "beyond what a Duration can hold"},
			{epoch.AddDate(2000, 0, 0), false, "beyond the last instant that is told apart: nothing is granted by mistake"},
		} {
			clock.Set(row.to)
			if row.fresh {
				spend(t, l, "key", 3)
			}
			res := l.Allow("key")
			assert.False(t, res.Allowed, row.why)
			assert.Positive(t, res.RetryAfter, row.why)
		}
	})
}

// moody is a clock that calls the function mood before each reading, which may panic or end the
// goroutine.
type moody struct {
	*ratelimit.FakeClock
	mood atomic.Pointer[func()]
}

func (c *moody) Now() time.Time {
	if mood := c.mood.Load(); mood != nil {
		(*mood)()
	}
	return c.FakeClock.Now()
}

// TestClockThatPanics proves that a limiter still works after its clock has panicked, or has ended
// the goroutine, in the middle of a call.
func TestClockThatPanics(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for name, mood := range map[string]func(){
			"panics":             func() { panic("no time") },
			"ends the goroutine": runtime.Goexit,
		} {
			clock := &moody{FakeClock: ratelimit.NewFakeClock(epoch)}
			l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(clock))
			spend(t, l, "key", 1)
			before := l.Peek("key")
			for call, f := range map[string]func(){
				"Allow":         func() { l.Allow("key") },
				"Allow, unseen": func() { l.Allow("unseen") },
				"Take":          func() { _, _ = l.Take(t.Context(), "key", 2) },
				"Peek":          func() { l.Peek("key") },
				"Wait":          func() { _, _ = l.Wait(t.Context(), "key", 1) },
				"SetRate":       func() { _ = l.SetRate(ratelimit.PerMinute(99)) },
			} {
				clock.mood.Store(&mood)
				var returned bool
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { _ = recover() }()
					f()
					returned = true
				})
				wg.Wait()
				clock.mood.Store(nil)
				assert.False(t, returned, "%s does not return, because it reads the clock", call)
				assert.Equal(t, before, l.Peek("key"), "%s: nothing has changed while the clock %s", call, name)
				assert.Equal(t, ratelimit.PerMinute(3), l.Rate(), call)
				assert.Equal(t, 1, l.Len(), call)
				assert.Zero(t, waiting(l), call)
			}
			require.NoError(t, l.SetRate(ratelimit.PerMinute(4)))
			require.NoError(t, l.Reset("key"))
			spend(t, l, "key", 4)
			spend(t, l, "unseen", 4)
		}
	})
}

// wallSteps is a clock with a monotonic reading whose wall time can be set.
type wallSteps struct {
	now  time.Time // with a monotonic reading
	wall int64     // seconds by which the wall time was moved
}

// Now returns a Time as the machine's clock does after its wall time was set: the wall time has
// moved, the monotonic reading has not.
func (c *wallSteps) Now() time.Time {
	now := c.now
	// The first word of a Time with a monotonic reading has a flag, 33 bits of
	// seconds and 30 bits of nanoseconds.
	*(*uint64)(unsafe.Pointer(&now)) += uint64(c.wall) << 30
	return now
}

// TestWallClockSteps proves that a limiter follows the monotonic reading of a clock and not
// the wall time, which may be set.
func TestWallClockSteps(t *testing.T) {
	base := time.Now()
	base = base.Add(-time.Duration(base.UnixNano() % int64(minute))) // the edge of a window
	clock := &wallSteps{base, -3600}
	require.Equal(t, base.Add(-time.Hour).UnixNano(), clock.Now().UnixNano(), "the wall time steps")
	require.Zero(t, clock.Now().Sub(base), "the monotonic reading does not")

	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		steady, steps := &wallSteps{base, 0}, &wallSteps{base, 0}
		want := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(steady))
		got := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(steps))
		walls := []int64{3600, -86400, 30, 1e9, 0, -1, 7}
		assert.Equal(t,
			answers(t, want, func(d time.Duration) { steady.now = steady.now.Add(d) }),
			answers(t, got, func(d time.Duration) {
				steps.now = steps.now.Add(d)
				steps.wall, walls = walls[0], walls[1:]
			}), "the answers do not depend on the wall time")
	})
}

// rung returns the Time that the alarm c has sent, or the zero Time if the alarm has not rung.
func rung(c <-chan time.Time) time.Time {
	select {
	case at := <-c:
		return at
	default:
		return time.Time{}
	}
}

// TestFakeClockMoves proves that a FakeClock shows exactly the time that it is set or advanced to,
// in either direction.
func TestFakeClockMoves(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	for _, row := range []struct {
		move func()
		want time.Time
		why  string
	}{
		{func() {}, epoch, "it stands where it was started"},
		{func() { clock.Advance(sec) }, epoch.Add(sec), "it advances"},
		{func() { clock.Advance(1) }, epoch.Add(sec + 1), "by a nanosecond"},
		{func() { clock.Advance(0) }, epoch.Add(sec + 1), "by nothing"},
		{func() { clock.Advance(-time.Hour) }, epoch.Add(sec + 1 - time.Hour), "backwards"},
		{func() { clock.Set(time.Unix(-5, 0)) }, time.Unix(-5, 0), "it can be set, before 1970 too"},
		{func() { clock.Set(time.Time{}) }, time.Time{}, "it can be set to the zero Time"},
		{func() { clock.Set(epoch) }, epoch, "it can be set forward again"},
	} {
		row.move()
		assert.Equal(t, row.want, clock.Now(), row.why)
		assert.Equal(t, row.want, clock.Now(), "it stands still")
	}
}

// TestFakeClockAfter proves that an alarm of a FakeClock rings exactly once, when the clock
// reaches its instant.
func TestFakeClockAfter(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	assert.Equal(t, epoch, rung(clock.After(0)), "an alarm after no time rings at once")
	assert.Equal(t, epoch, rung(clock.After(-sec)), "an alarm in the past rings at once")

	inASecond, inAMinute, again := clock.After(sec), clock.After(minute), clock.After(sec)
	require.Equal(t, 3, clock.Alarms())
	clock.Advance(sec - 1)
	assert.Zero(t, rung(inASecond), "one nanosecond early")
	clock.Advance(1)
	assert.Equal(t, epoch.Add(sec), rung(inASecond), "exactly on time")
	assert.Equal(t, epoch.Add(sec), rung(again), "two alarms for one instant both ring")
	assert.Zero(t, rung(inAMinute), "not yet")
	assert.Zero(t, rung(inASecond), "an alarm rings once")

	clock.Advance(-30 * sec)
	clock.Advance(30 * sec)
	assert.Zero(t, rung(inASecond), "not even when its instant comes again")
	clock.Advance(-time.Hour)
	clock.Advance(time.Hour + minute - sec - 1)
	assert.Zero(t, rung(inAMinute), "a clock that went back has to reach the instant")
	clock.Set(epoch.Add(24 * time.Hour))
	assert.Equal(t, epoch.Add(24*time.Hour), rung(inAMinute), "the channel receives the time that the clock was set to")
	assert.Zero(t, clock.Alarms())

	clock.After(sec)
	clock.Advance(sec) // returns although nothing receives from the channel
	assert.Zero(t, clock.Alarms())
}

// TestZeroFakeClock proves that the zero FakeClock works, and that it shows the zero Time.
func TestZeroFakeClock(t *testing.T) {
	var clock ratelimit.FakeClock
	assert.Equal(t, time.Time{}, clock.Now())
	alarm := clock.After(sec)
	clock.Advance(sec)
	assert.Equal(t, time.Time{}.Add(sec), clock.Now())
	assert.Equal(t, time.Time{}.Add(sec), rung(alarm))

	var other ratelimit.FakeClock
	other.Advance(-sec)
	assert.Equal(t, time.Time{}.Add(-sec), other.Now())
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(new(ratelimit.FakeClock)))
		spend(t, l, "key", 3)
		denied(t, l, "key")
	})
}

// TestFakeClockConcurrently proves that no move and no alarm of a FakeClock is lost when
// several goroutines use it.
func TestFakeClockConcurrently(t *testing.T) {
	const callers, each = 4, 500
	clock := ratelimit.NewFakeClock(epoch)
	var wg sync.WaitGroup
	alarms := make([][]<-chan time.Time, callers)
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				clock.Advance(ms)
				alarms[c] = append(alarms[c], clock.After(time.Duration(i)*ms))
				if now := clock.Now(); now.Before(epoch.Add(time.Duration(i+1) * ms)) {
					t.Errorf("a move is lost: %v", now)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, epoch.Add(callers*each*ms), clock.Now(), "no move is lost")
	clock.Advance(each * ms)
	for _, own := range alarms {
		for _, alarm := range own {
			require.NotZero(t, rung(alarm), "an alarm is lost")
		}
	}
	assert.Zero(t, clock.Alarms())
}

// TestClockSetLater is a regression test for issue 10. The clock of a limiter shows the zero Time,
// or another time outside 1678-2262, when the limiter is made, and is then set to today. The
// limiter must answer as one made today: it grants all of 20,000 requests at its rate, and its
// windows are aligned.
func TestClockSetLater(t *testing.T) {
	today := epoch.Add(17*sec + 1)
	for _, start := range []time.Time{{}, time.Date(1677, 12, 31, 23, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		eachAlgorithm(t, func(t *testing.T, a algorithm) {
			for _, per := range []time.Duration{minute, 7*sec + 13} {
				r := ratelimit.Rate{Requests: 3, Per: per}
				late, right := ratelimit.NewFakeClock(start), ratelimit.NewFakeClock(today)
				l := a.start(t, r, ratelimit.WithClock(late), ratelimit.WithMaxKeys(2))
				want := a.start(t, r, ratelimit.WithClock(right), ratelimit.WithMaxKeys(2))
				for _, key := range []string{"key", "b", "c", "d"} { // with room for two keys, the others share a debt
					for l.Allow(key).Allowed {
					}
				}
				late.Set(today)
				require.Equal(t, want.Allow("key"), l.Allow("key"), "as new at the first reading of today")
				require.Equal(t, want.Len(), l.Len())
				for range 40 {
					require.Equal(t, want.Allow("key"), l.Allow("key"))
					late.Advance(per / 7)
					right.Advance(per / 7)
				}
				late.Set(start)
				right.Set(start)
				require.Equal(t, want.Allow("key"), l.Allow("key"), "back outside: the origin stays")
			}
		})
	}
	clock := new(ratelimit.FakeClock)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	rules := []ratelimit.Rule{
		{Name: "a", Endpoint: "*", Rate: ratelimit.PerSecond(1)},
		{Name: "b", Endpoint: "*", Rate: ratelimit.PerSecond(1), Algorithm: ratelimit.AlgorithmFixedWindow,
			Tiers: map[string]ratelimit.Rate{"t": ratelimit.PerSecond(2)}},
	}
	for _, l := range []*ratelimit.RateLimiter{
		newRules(t, rules[:1], nil, ratelimit.WithClock(clock)),
		newRules(t, rules, nil, ratelimit.WithClock(clock)),
		newRules(t, rules, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("n")),
	} {
		clock.Set(time.Time{})
		l.Allow("alice", "/")
		clock.Set(today)
		for range 20_000 {
			require.True(t, l.Allow("alice", "/").Allowed)
			require.False(t, l.Allow("alice", "/").Allowed)
			clock.Advance(sec)
		}
	}
}

// TestClockSetLaterConcurrently sets the clock while many goroutines decide. They may be granted
// the limit once before the clock is set and once after it.
func TestClockSetLaterConcurrently(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := new(ratelimit.FakeClock)
		l := a.start(t, ratelimit.PerHour(5), ratelimit.WithClock(clock))
		var granted atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for j := range 200 {
					if i == 0 && j == 100 {
						clock.Set(epoch)
					}
					if l.Allow("key").Allowed {
						granted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		assert.GreaterOrEqual(t, granted.Load(), int64(5))
		denied(t, l, "key")
	})
}

// TestWaitOnAClockSetLater proves that alarms on a clock that was set later ring at the right
// time.
func TestWaitOnAClockSetLater(t *testing.T) {
	eachInBubble(t, func(t *testing.T, a algorithm) {
		clock := new(ratelimit.FakeClock)
		l := a.start(t, ratelimit.Rate{Requests: 1, Per: time.Hour}, ratelimit.WithClock(clock))
		clock.Set(epoch)
		spend(t, l, "key", 1)
		wait := l.Peek("key").RetryAfter
		done := make(chan error, 1)
		go func() { _, err := l.Wait(t.Context(), "key", 1); done <- err }()
		synctest.Wait()
		clock.Advance(wait - 1)
		synctest.Wait()
		require.Empty(t, done, "a nanosecond early")
		clock.Advance(1)
		synctest.Wait()
		require.Len(t, done, 1)
		require.NoError(t, <-done)
	})
}

// TestRetryAfterWhenTheClockHasSteppedBack is a regression test for issue 10. On a clock that shows
// a time before the last grant of a key, RetryAfter and ResetAfter must be measured on that clock.
func TestRetryAfterWhenTheClockHasSteppedBack(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, shared := range []bool{false, true} {
			clock := ratelimit.NewFakeClock(epoch.Add(20 * sec))
			l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
			if shared {
				spend(t, l, "other", 3) // takes the only slot, so that "key" has none
			}
			spend(t, l, "key", 3)
			now := l.Peek("key")
			for _, gap := range []time.Duration{1, 10 * sec, time.Hour} {
				clock.Set(epoch.Add(20*sec - gap))
				res := l.Peek("key")
				require.Equal(t, behind(now, gap), res)
				clock.Advance(res.RetryAfter - 1)
				denied(t, l, "key")
				require.Equal(t, time.Duration(1), l.Peek("key").RetryAfter)
				clock.Advance(1)
				require.True(t, l.Peek("key").Allowed, "granted at RetryAfter, not later")
			}
		}
		clock := ratelimit.NewFakeClock(epoch.Add(20 * sec))
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(clock))
		spend(t, l, "key", 1)
		clock.Advance(-10 * sec)
		res := l.Allow("key")
		require.True(t, res.Allowed)
		clock.Advance(res.ResetAfter - 1)
		require.Equal(t, time.Duration(1), l.Peek("key").ResetAfter, "the gap is part of ResetAfter also of a grant")
		clock.Advance(1)
		require.Zero(t, l.Peek("key").ResetAfter)
	})
}

// TestResetAfterTheClockWasSet proves that waiters are served if the clock was at the zero time,
// was then set, and Reset is the first call after that: setting the clock makes all keys new.
func TestResetAfterTheClockWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := new(bare)
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithClock(clock))
		require.True(t, l.Allow("c", "/e").Allowed)
		ctx, cancel := context.WithCancel(t.Context())
		var ws []*waiter
		for range 3 {
			ws = append(ws, startRuleWait(ctx, l, ratelimit.Request{Client: "c", Endpoint: "/e"}))
			synctest.Wait()
		}
		clock.set(epoch)
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "other"}))
		synctest.Wait()
		ws[0].served(t)
		require.Equal(t, 2, l.InLine())
		cancel()
		synctest.Wait()
	})
}

// A bare clock shows the time that the test sets. It has no method but Now.
type bare struct{ now atomic.Pointer[time.Time] }

func (c *bare) set(t time.Time) { c.now.Store(&t) }

func (c *bare) Now() time.Time {
	if now := c.now.Load(); now != nil {
		return *now
	}
	return time.Time{}
}
