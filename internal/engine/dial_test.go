package engine

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A setClock has a monotonic clock and a wall clock that can be set, as a machine has them.
type setClock struct {
	base    time.Time
	elapsed time.Duration // by the monotonic clock
	ahead   time.Duration // by how much the wall clock was set forward; whole seconds
}

// Now returns the reading of both clocks. The first field of a time.Time with a monotonic reading has the seconds of the wall
// clock above 30 bits of nanoseconds.
func (c *setClock) Now() time.Time {
	t := c.base.Add(c.elapsed)
	*(*uint64)(unsafe.Pointer(&t)) += uint64(c.ahead/time.Second) << 30
	return t
}

// setTo sets the wall clock to the given time, up to a second later.
func (c *setClock) setTo(t *testing.T, text string) {
	at, err := time.Parse(time.DateTime, text)
	require.NoError(t, err)
	c.ahead = 0
	c.ahead = at.Sub(c.Now().Truncate(time.Second).Round(0))
	require.Equal(t, text, c.Now().UTC().Format(time.DateTime))
}

// TestDialFollowsTheWallClock sets the wall clock, as a person or a suspended machine does. The windows of a calendar follow
// once more than a second has passed.
func TestDialFollowsTheWallClock(t *testing.T) {
	clock := &setClock{base: time.Now()}
	clock.setTo(t, "2026-03-31 23:00:00")
	line := NewTimeline(clock, nil)
	w, err := calendar.New("month", 1, "")
	require.NoError(t, err)
	d := line.Dial(w.Calendar())
	require.Same(t, d, line.Dial(w.Calendar()))
	now := func(elapsed time.Duration) keytable.Instant {
		clock.elapsed += elapsed
		return line.Now()
	}
	until := func(text string) keytable.Instant { // the instant at which the wall clock will show this time
		at, err := time.Parse(time.DateTime, text)
		require.NoError(t, err)
		return keytable.Start + keytable.Instant(clock.elapsed+at.Sub(clock.Now().Round(0)))
	}

	march, end := d.Window(now(0))
	require.Equal(t, until("2026-03-01 00:00:00"), march)
	require.Equal(t, until("2026-04-01 00:00:00"), end)

	clock.setTo(t, "2026-04-01 01:00:00")
	begin, still := d.Window(now(time.Second))
	require.Equal(t, march, begin, "within a second, the clocks are not compared")
	require.Equal(t, end, still)
	april := now(1)
	begin, end = d.Window(april)
	require.Equal(t, april, begin, "units that were charged before belong to March")
	require.Equal(t, until("2026-05-01 00:00:00"), end)

	clock.setTo(t, "2026-03-31 23:30:00")
	begin, end = d.Window(now(2 * time.Second))
	require.Equal(t, april, begin, "April goes on if it began less than an hour later")
	require.Equal(t, until("2026-05-01 00:00:00"), end)

	clock.setTo(t, "2026-03-31 22:30:00")
	begin, end = d.Window(now(2 * time.Second))
	require.Equal(t, until("2026-03-01 00:00:00"), begin, "it is March again")
	require.Equal(t, until("2026-04-01 00:00:00"), end)
}
