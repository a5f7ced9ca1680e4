package waitline

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A spacing is the simplest Algorithm on which a caller can wait: after n units are taken, the next
// ones are there n times every later. At most limit units are granted at once.
type spacing struct {
	every time.Duration
	limit int64
}

type spaced struct{ last, next keytable.Instant }

func (a *spacing) Step(s *spaced, _ *spacing, now keytable.Instant, n int64, charge bool) (v engine.Verdict, _ time.Duration) {
	v.Limit, now = a.limit, max(now, s.last)
	switch {
	case n > a.limit:
		v.RetryAfter = engine.Never
	case now < s.next:
		v.RetryAfter = time.Duration(s.next.Since(now))
	case charge:
		s.last, s.next = now, now.Add(time.Duration(n)*a.every)
	}
	return v, 0
}

func (*spacing) Carry(*spaced, *spacing, keytable.Instant)    {}
func (*spacing) Resize(*spaced, *spacing, bool) bool          { return false }
func (*spacing) Fills(*spacing) bool                          { return false }
func (*spacing) Slower(*spacing) bool                         { return false }
func (*spacing) Charged(s *spaced) keytable.Instant           { return s.last }
func (*spacing) Reached(s *spaced) keytable.Instant           { return s.last }
func (*spacing) Clone(s *spaced) spaced                       { return *s }
func (*spacing) GiveBack(*spaced, engine.Returned)            {}
func (*spacing) Exceed(*spaced, keytable.Instant, int64)      {}
func (*spacing) Idle(s *spaced, now keytable.Instant) bool    { return now >= s.next }
func (*spacing) Inherit(s *spaced, _ keytable.Instant) spaced { return *s }

// handClock is a Clock that is set by hand.
type handClock struct{ now time.Time }

func (c *handClock) Now() time.Time { return c.now }

// A rig is Lines for a limiter that grants a unit every millisecond.
type rig struct {
	t     *testing.T
	clock *handClock
	keys  engine.Limiter[spaced, *spacing]
	asks  Retries
	Lines
}

func newRig(t *testing.T, limit int) *rig {
	b := &rig{t: t, clock: &handClock{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}}
	b.keys.Init(engine.NewTimeline(b.clock, nil), &spacing{time.Millisecond, 5}, 100)
	b.Init(b.keys.Time(), limit, &b.asks, nil)
	return b
}

// spots returns the spots of key.
func (b *rig) spots(key string) (keytable.Hash, []engine.Spot) {
	h := keytable.HashOf(key)
	return h, []engine.Spot{engine.SpotOf(&b.keys, h, 1)}
}

// comes returns a caller that has come for n units. The caller has no goroutine: the test makes the
// calls of that goroutine.
func (b *rig) comes(n int64, hold bool) *Waiter {
	w := &Waiter{Hold: hold, wake: make(chan struct{}, 1)}
	w.Set, w.Spots = b.spots("key")
	w.Spots[0].N = n
	b.enter(w)
	return w
}

// due returns when w has to look at the clock, or -1 if it does not.
func (b *rig) due(w *Waiter) time.Duration {
	if at := keytable.Instant(w.due.Load()); at != 0 {
		return at.Duration()
	}
	return -1
}

// denied returns the RetryAfter of a request for n units of key that does not wait, or -1 if no
// caller is ahead of it.
func (b *rig) denied(key string, n int64) time.Duration {
	set, spots := b.spots(key)
	spots[0].N = n
	if _, denied := b.Deny(set, spots, false); !denied {
		return -1
	}
	return spots[0].RetryAfter
}

// TestServing has callers come, be foretold, be served and leave.
func TestServing(t *testing.T) {
	const ms = time.Millisecond
	b := newRig(t, 100)
	require.True(t, b.comes(1, false).over.Load(), "nobody is ahead")
	require.EqualValues(t, -1, b.denied("key", 1))
	var all []*Waiter
	for i := range 20 {
		w := b.comes(1, false)
		all = append(all, w)
		due := time.Duration(i+1) * ms
		if due > alarmLead {
			due = -1
		}
		require.Equal(t, due, b.due(w), "caller %d", i)
	}
	require.EqualValues(t, -1, b.denied("another", 1), "it is another key")
	require.Equal(t, 21*ms, b.denied("key", 1))
	require.Equal(t, 21*ms, b.denied("key", 5))
	require.Equal(t, engine.Never, b.denied("key", 6))

	b.clock.now = b.clock.now.Add(3 * ms)
	b.serveDue(all[2])
	for i, w := range all {
		require.Equal(t, i < 3, w.over.Load(), "caller %d", i)
		if i < 3 {
			require.Equal(t, time.Duration(i+1)*ms, w.At.Duration(), "charged when it was due")
		}
	}
	require.Equal(t, 4*ms, b.due(all[3]))
	require.Empty(t, all[3].wake, "it has set its alarm already")

	require.True(t, b.leave(all[10], true))
	require.False(t, b.leave(all[10], true))
	require.False(t, b.leave(all[0], true), "it was served")
	require.Equal(t, 17*ms, b.denied("key", 1), "it counts those who are left")

	all[5].due.Store(uint64(keytable.Start.Add(2 * ms)))
	b.serveDue(all[5])
	require.EqualValues(t, -1, b.due(all[5]), "it was foretold too early, and is told when it is the head")
	require.False(t, all[5].over.Load())

	require.True(t, b.leave(all[3], true))
	require.Equal(t, 4*ms, b.due(all[4]), "the next one is the head")
	require.Len(t, all[4].wake, 1, "and comes earlier than it thought")

	b.clock.now = b.clock.now.Add(time.Second)
	require.EqualValues(t, -1, b.denied("key", 1), "all are served, and the line is gone")
	require.Zero(t, b.Len())
	require.Empty(t, b.lines)
	require.Empty(t, b.queues)
}

// TestForetellingIsLinear has many callers come and go. It proves that the copies of states cost at
// most about 64 steps for each caller, however many there are.
func TestForetellingIsLinear(t *testing.T) {
	b := newRig(t, 10_000)
	b.comes(1, false)
	var all []*Waiter
	for range 5000 {
		all = append(all, b.comes(1, false))
	}
	b.denied("key", 1)
	made := b.Walked()
	require.LessOrEqual(t, made, 5000)
	for range 100 {
		require.Equal(t, 5001*time.Millisecond, b.denied("key", 1))
	}
	require.Equal(t, made, b.Walked(), "nothing has changed")
	for i := len(all) - 1; i > 0; i-- {
		b.leave(all[i], true)
		retry := b.denied("key", 1)
		require.GreaterOrEqual(t, retry, time.Duration(i+1)*time.Millisecond)
		require.LessOrEqual(t, retry, time.Duration(i+1+i/stale+1)*time.Millisecond, "one in 64 may count still")
		if i <= stale {
			require.Equal(t, time.Duration(i+1)*time.Millisecond, retry, "few are foretold exactly")
		}
	}
	require.LessOrEqual(t, b.Walked(), (stale+3)*len(all))
}

// TestHoldersCountOnce has a caller that waits both in Lines and in Retries. It proves that the caller
// counts once towards the limit.
func TestHoldersCountOnce(t *testing.T) {
	b := newRig(t, 2)
	b.comes(1, false)
	a := b.asks.Join(Request{Set: keytable.HashOf("set"), N: 1}, Denial{}, 0)
	held := b.comes(1, true)
	require.NoError(t, held.Refused)
	require.NoError(t, b.comes(1, false).Refused)
	require.Equal(t, 2, b.All())
	require.Equal(t, ErrFull, b.comes(1, false).Refused)
	b.leave(held, true)
	b.asks.Leave(a, false)
	require.Equal(t, 1, b.All())
	require.Equal(t, ErrNever, b.comes(6, false).Refused)
}

// A weight is an item in the heaps of TestHeap.
type weight struct{ w, at int }

func (w *weight) before(other *weight) bool { return w.w < other.w }
func (w *weight) index() *int               { return &w.at }

// TestHeap compares a heap with a sorted list.
func TestHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h heap[*weight]
	var all []*weight
	for range 5000 {
		switch do := r.IntN(5); {
		case do < 2 || len(all) == 0:
			w := &weight{w: r.Int()}
			h.push(w)
			all = append(all, w)
		case do < 3:
			w := all[r.IntN(len(all))]
			w.w = r.Int()
			h.fix(w)
		default:
			i := r.IntN(len(all))
			h.remove(all[i])
			h.remove(all[i]) // it is gone
			all = slices.Delete(all, i, i+1)
		}
		require.Len(t, h, len(all))
		for i, w := range h {
			require.Equal(t, i+1, w.at)
		}
		if len(all) > 0 {
			require.Equal(t, slices.MinFunc(all, func(a, b *weight) int { return a.w - b.w }).w, h[0].w)
		}
	}
}

// TestSleepKeepsWakeUps ends the wait of a caller when he has seen that it is not over, just before he sleeps. He must not sleep
// then, so sleep must not drop the wake-up.
func TestSleepKeepsWakeUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRig(t, 100)
		b.comes(5, false)
		b.comes(1, false)
		w := b.comes(1, false)
		w.nudge()
		require.False(t, w.finished())
		require.Empty(t, w.wake)
		w.due.Store(0) // he has no alarm
		w.over.Store(true)
		w.nudge()
		require.NoError(t, b.sleep(t.Context(), w))
		require.True(t, w.finished())
	})
}

// TestList compares a list with a slice.
func TestList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var l list[*Retrier]
	var all []*Retrier
	for range 5000 {
		if r.IntN(2) == 0 || len(all) == 0 {
			a := new(Retrier)
			l.append(a)
			all = append(all, a)
		} else {
			i := r.IntN(len(all))
			l.remove(all[i])
			require.Nil(t, all[i].ahead)
			require.Nil(t, all[i].after)
			all = slices.Delete(all, i, i+1)
		}
		require.Equal(t, len(all), l.size)
		var last *Retrier
		i := 0
		for a := l.first; a != nil; a = a.after {
			require.Same(t, all[i], a)
			require.Equal(t, last, a.ahead)
			last = a
			i++
		}
		require.Equal(t, len(all), i)
		require.Equal(t, last, l.last)
	}
}
