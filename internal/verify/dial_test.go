package verify

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A setMachine is a machine whose wall clock can be set. Its Dial is that of the months in UTC, on a timeline that runs by
// the monotonic clock.
type setMachine struct {
	t       *testing.T
	dial    *engine.Dial
	elapsed time.Duration // by the monotonic clock, since the start of the timeline
	wall    time.Time     // what the wall clock shows
	looks   int           // how often the clocks were read
	panics  bool          // whether reading the clocks panics
}

func newSetMachine(t *testing.T, wall string) *setMachine {
	w, err := calendar.New("month", 1, "")
	require.NoError(t, err)
	m := &setMachine{t: t}
	m.set(wall)
	line := engine.NewTimeline(ratelimit.NewFakeClock(m.wall), nil)
	m.dial = engine.NewDial(w.Calendar(), &line, func() (int64, time.Duration) {
		m.looks++
		if m.panics {
			panic("no time")
		}
		return m.wall.UnixNano(), m.elapsed
	})
	return m
}

// set sets the wall clock.
func (m *setMachine) set(wall string) {
	m.t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", wall)
	require.NoError(m.t, err)
	m.wall = at
}

// after lets the time d pass by both clocks. It returns the instant that is then reached.
func (m *setMachine) after(d time.Duration) keytable.Instant {
	m.elapsed, m.wall = m.elapsed+d, m.wall.Add(d)
	return keytable.InstantAt(m.elapsed)
}

// when returns the instant at which the wall clock will show this time.
func (m *setMachine) when(wall string) keytable.Instant {
	m.t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05", wall)
	require.NoError(m.t, err)
	return keytable.Start + keytable.Instant(m.elapsed+at.Sub(m.wall))
}

// requireWindow requires that the window that contains the instant now begins and ends at the given instants.
func (m *setMachine) requireWindow(now, begin, end keytable.Instant, why string) {
	m.t.Helper()
	b, e := m.dial.Window(now)
	require.Equal(m.t, [2]time.Duration{begin.Duration(), end.Duration()}, [2]time.Duration{b.Duration(), e.Duration()}, why)
}

// TestDialFollowsTheWallClock sets the wall clock, as a person or a suspended machine does. The windows of a calendar follow
// once more than a second has passed.
func TestDialFollowsTheWallClock(t *testing.T) {
	m := newSetMachine(t, "2026-03-31 23:00:00")
	march, end := m.when("2026-03-01 00:00:00"), m.when("2026-04-01 00:00:00")
	m.requireWindow(m.after(0), march, end, "the wall clock was not set")
	require.Equal(t, 1, m.looks)

	m.set("2026-04-01 01:00:00")
	m.requireWindow(m.after(time.Second), march, end, "within a second, the clocks are not compared")
	require.Equal(t, 1, m.looks)
	april := m.after(1)
	m.requireWindow(april, april, m.when("2026-05-01 00:00:00"), "units that were charged before belong to March")

	m.set("2026-03-31 23:30:00")
	m.requireWindow(m.after(2*time.Second), april, m.when("2026-05-01 00:00:00"), "April goes on if it began less than an hour later")

	m.set("2026-03-31 22:30:00")
	m.requireWindow(m.after(2*time.Second), m.when("2026-03-01 00:00:00"), m.when("2026-04-01 00:00:00"), "it is March again")

	m.set("2026-04-20 00:00:00")
	again := m.after(2 * time.Second)
	m.requireWindow(again, again, m.when("2026-05-01 00:00:00"), "and April")
	m.set("2026-04-20 12:00:00")
	m.requireWindow(m.after(2*time.Second), again, m.when("2026-05-01 00:00:00"), "the window that has begun keeps its begin")
}

// TestDialSetBackByAnHour sets the wall clock back so that it will show the begin of the current window once more, in an
// hour and in a nanosecond less.
func TestDialSetBackByAnHour(t *testing.T) {
	for _, less := range []time.Duration{0, 1} {
		m := newSetMachine(t, "2026-04-02 00:00:00")
		april := m.when("2026-04-01 00:00:00")
		m.requireWindow(m.after(0), april, m.when("2026-05-01 00:00:00"), "April")
		m.set("2026-03-31 22:59:58")
		m.wall = m.wall.Add(less)
		if now := m.after(2 * time.Second); less == 0 {
			m.requireWindow(now, m.when("2026-03-01 00:00:00"), m.when("2026-04-01 00:00:00"), "an hour back")
		} else {
			m.requireWindow(now, april, m.when("2026-05-01 00:00:00"), "less than an hour back")
		}
	}
}

// TestDialIgnoresJitter has clocks that move against each other by less than a millisecond, and by a millisecond.
func TestDialIgnoresJitter(t *testing.T) {
	m := newSetMachine(t, "2026-03-31 23:00:00")
	march, end := m.when("2026-03-01 00:00:00"), m.when("2026-04-01 00:00:00")
	m.requireWindow(m.after(0), march, end, "at first")
	for _, jitter := range []time.Duration{time.Millisecond - 1, -2*time.Millisecond + 2} {
		m.wall = m.wall.Add(jitter)
		m.requireWindow(m.after(2*time.Second), march, end, "less than a millisecond")
	}
	m.wall = m.wall.Add(-1)
	m.requireWindow(m.after(2*time.Second), march, end+keytable.Instant(time.Millisecond), "a millisecond")
	require.Equal(t, 4, m.looks)
}

// TestDialOfOldInstants asks for windows before the current one, as settling a reservation does. That moves no edge and
// keeps the current window.
func TestDialOfOldInstants(t *testing.T) {
	m := newSetMachine(t, "2026-04-15 00:00:00")
	now := m.after(0)
	march, april, may := m.when("2026-03-01 00:00:00"), m.when("2026-04-01 00:00:00"), m.when("2026-05-01 00:00:00")
	m.requireWindow(now, april, may, "April")
	m.requireWindow(april-1, march, april, "the last instant of March")
	m.requireWindow(march, march, april, "the first instant of March")
	m.requireWindow(march-1, m.when("2026-02-01 00:00:00"), march, "the last instant of February")
	looks := m.looks
	m.requireWindow(now, april, may, "April still")
	require.Equal(t, looks, m.looks, "April is the window that is found without a look at the clocks")
	m.requireWindow(m.after(31*24*time.Hour), may, m.when("2026-06-01 00:00:00"), "time passes")
	m.requireWindow(may, may, m.when("2026-06-01 00:00:00"), "at its begin, a window has begun")
	m.requireWindow(may-1, april, may, "requests that began in April may still come")
}

// TestDialAfterAPause has no request for months. Then the window begins at its edge, and not with the request.
func TestDialAfterAPause(t *testing.T) {
	m := newSetMachine(t, "2026-01-15 00:00:00")
	m.requireWindow(m.after(0), m.when("2026-01-01 00:00:00"), m.when("2026-02-01 00:00:00"), "January")
	july := m.when("2026-07-01 00:00:00")
	m.requireWindow(m.after(170*24*time.Hour), july, m.when("2026-08-01 00:00:00"), "August has not begun")
}

// TestDialSetForwardInAPause sets the wall clock forward when the current window has already ended.
func TestDialSetForwardInAPause(t *testing.T) {
	m := newSetMachine(t, "2026-03-31 23:00:00")
	april := m.when("2026-04-01 00:00:00")
	m.requireWindow(m.after(0), m.when("2026-03-01 00:00:00"), april, "March")
	m.after(2 * time.Hour)
	m.wall = m.wall.Add(24 * time.Hour)
	m.requireWindow(m.after(0), april, m.when("2026-05-01 00:00:00"), "April began where March ended, not a day before")
}

// TestDialOfAllTime has a wall clock at the ends of what an int64 of nanoseconds can say.
func TestDialOfAllTime(t *testing.T) {
	m := newSetMachine(t, "2026-03-31 23:00:00")
	m.wall = time.Unix(0, math.MaxInt64-1)
	begin, end := m.dial.Window(keytable.End)
	require.Equal(t, keytable.Start+1, end, "the last window ends where an int64 ends")
	require.Less(t, begin, keytable.Start)

	m = newSetMachine(t, "2026-03-31 23:00:00")
	m.wall = time.Unix(0, math.MinInt64)
	begin, end = m.dial.Window(0)
	require.Equal(t, keytable.Start, begin, "the first window begins where an int64 begins")
	require.Less(t, keytable.Start, end)

	m = newSetMachine(t, "2026-03-31 23:00:00")
	m.wall = time.Unix(0, math.MinInt64)
	m.requireWindow(keytable.End, m.when("1969-12-01 00:00:00"), keytable.End, "the last instant is in 1969, and no instant is in 1970")

	m = newSetMachine(t, "2026-03-31 23:00:00")
	m.wall = time.Unix(0, math.MaxInt64)
	m.requireWindow(0, 0, m.when("1970-01-01 00:00:00"), "the first instant is in 1969, and December begins before it")
}

// A clockFunc is a Clock.
type clockFunc func() time.Time

func (f clockFunc) Now() time.Time { return f() }

// TestDialReadsTheClock has a clock with a monotonic time, and the machine's clock in a bubble of the package synctest, in
// which time passes only as the test says.
func TestDialReadsTheClock(t *testing.T) {
	w, err := calendar.New("day", 1, "")
	require.NoError(t, err)
	requireDay := func(line engine.Timeline, began, now time.Time) {
		t.Helper()
		d := line.Dial(w.Calendar())
		require.Same(t, d, line.Dial(w.Calendar()), "all configurations with one calendar share one Dial")
		begin, end := d.Window(keytable.InstantAt(now.Sub(began)))
		midnight := now.UTC().Truncate(24 * time.Hour) // of a time.Time without a monotonic time
		require.Equal(t, time.Duration(midnight.UnixNano()-began.UnixNano()), begin.Duration())
		require.Equal(t, 24*time.Hour, begin.Until(end))
	}
	began := time.Now() // has a monotonic time
	now := began
	line := engine.NewTimeline(clockFunc(func() time.Time { return now }), nil)
	now = began.Add(3*time.Second + 7)
	requireDay(line, began, now)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		line := engine.NewTimeline(nil, nil)
		time.Sleep(25*time.Hour + 7)
		requireDay(line, began, time.Now())
	})
}

// TestDialOfASteadyClock has a clock without a monotonic time, whose edges never move: after the first look for a window,
// the clock is not read.
func TestDialOfASteadyClock(t *testing.T) {
	w, err := calendar.New("day", 1, "")
	require.NoError(t, err)
	midnight, reads := time.Unix(86400*20000, 0), 0
	line := engine.NewTimeline(clockFunc(func() time.Time { reads++; return midnight.Add(time.Hour) }), nil)
	d := line.Dial(w.Calendar())
	for _, hours := range []int{0, 1, 22, 23, 500, 0, -1, -2} {
		begin, end := d.Window(keytable.InstantAt(time.Duration(hours) * time.Hour))
		day := (hours + 25) / 24 // from 1
		require.Equal(t, time.Duration(24*day-25)*time.Hour, begin.Duration(), hours)
		require.Equal(t, time.Duration(24*day-1)*time.Hour, end.Duration(), hours)
	}
	require.Equal(t, 1, reads, "to make the timeline")
}

// TestDialOfAClockThatPanics has a clock that panics when its Dial reads it. The window that was found stays, and the Dial
// is not locked.
func TestDialOfAClockThatPanics(t *testing.T) {
	m := newSetMachine(t, "2026-03-31 23:00:00")
	march, april := m.when("2026-03-01 00:00:00"), m.when("2026-04-01 00:00:00")
	m.panics = true
	m.requireWindow(m.after(0), march, april, "by the start of the timeline, if no window was found before")
	m.panics = false
	m.wall = m.wall.Add(10 * time.Minute)
	april -= keytable.Instant(10 * time.Minute)
	m.requireWindow(m.after(2*time.Second), march, april, "set forward by ten minutes")
	m.panics = true
	m.requireWindow(m.after(2*time.Second), march, april, "as it was found before")
}
