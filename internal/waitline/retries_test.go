package waitline

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// An asker is a caller in a Retries without a goroutine: the test makes the calls of that goroutine.
type asker struct {
	*Retrier
	placed bool             // whether it has called Place since it was last woken
	alarm  keytable.Instant // when it wakes up by itself; 0 if it does not
	asks   bool
}

// awake reports whether the goroutine of the caller would run at the instant now.
func (a *asker) awake(now keytable.Instant) bool {
	return a.asks || !a.placed || len(a.wake) > 0 || a.alarm != 0 && a.alarm <= now
}

// An askers is a Retries with its callers.
type askers struct {
	t   *testing.T
	r   *rand.Rand
	rs  Retries
	all []*asker
	now keytable.Instant
}

func keyNumber(i int) keytable.Hash { return keytable.HashOf("key " + strconv.Itoa(i)) }

// denial returns a denial by a random key.
func (m *askers) denial() Denial {
	return Denial{
		Due: m.now.Add(time.Duration(1+m.r.IntN(20)) * time.Millisecond), At: m.now,
		Key: keyNumber(m.r.IntN(3)), Alone: m.r.IntN(10) == 0,
	}
}

// step does one random thing.
func (m *askers) step() {
	do, i := m.r.IntN(12), 0
	if len(m.all) > 0 {
		i = m.r.IntN(len(m.all))
	} else {
		do = 0
	}
	switch {
	case do < 3:
		req := Request{Set: keytable.HashOf(strconv.Itoa(m.r.IntN(5))), N: 1 + m.r.Int64N(3)}
		if m.r.IntN(2) == 0 {
			req.ID = keytable.HashOf("id " + strconv.Itoa(m.r.IntN(3)))
		}
		m.all = append(m.all, &asker{Retrier: m.rs.Join(req, m.denial(), m.rs.wakes.Load()-m.r.Uint64N(2))})
	case do == 3:
		m.now = m.now.Add(time.Duration(m.r.IntN(10)) * time.Millisecond)
	case do == 4 && m.r.IntN(4) == 0:
		m.rs.Wake()
	case do == 5: // its context ends
		m.leaves(i, false)
	default:
		m.run(i)
	}
}

// leaves ends the wait of a caller.
func (m *askers) leaves(i int, served bool) {
	m.rs.Leave(m.all[i].Retrier, served)
	m.all = append(m.all[:i], m.all[i+1:]...)
}

// run runs the goroutine of a caller, if it is awake, until it asks or sleeps, or gets its answer.
func (m *askers) run(i int) {
	switch a := m.all[i]; {
	case !a.awake(m.now):
	case a.asks && m.r.IntN(3) == 0:
		m.leaves(i, true)
	case a.asks:
		a.asks, a.placed = false, false
		m.rs.Denied(a.Retrier, m.denial(), m.rs.wakes.Load()-m.r.Uint64N(2)*m.r.Uint64N(2))
	default:
		select {
		case <-a.wake:
		default:
		}
		p := m.rs.Place(a.Retrier, m.now)
		a.placed, a.asks, a.alarm = true, p.asks, p.due
		if p.answered {
			m.leaves(i, false)
		}
	}
}

// check checks that what the Retries holds fits together, and that somebody is awake, or will be, for
// each queue.
func (m *askers) check() {
	m.rs.mu.Lock()
	defer m.rs.mu.Unlock()
	byCaller, lines, callers := make(map[*Retrier]*asker), make(map[*retryQueue]int), 0
	for _, a := range m.all {
		byCaller[a.Retrier] = a
		if !a.answered {
			callers++
		}
	}
	require.Equal(m.t, callers, m.rs.Len())
	units := make(map[*retryQueue]int64)
	inLines := 0
	for set, l := range m.rs.lines {
		require.Equal(m.t, set, l.set)
		require.Same(m.t, m.rs.queues[l.queue.key], l.queue)
		require.Equal(m.t, byCaller[l.first].asks, l.inQueue == 0)
		lines[l.queue]++
		units[l.queue] += l.first.N
		sum := int64(0)
		for a := l.first; a != nil; a = a.after {
			inLines++
			sum += a.N
			require.True(m.t, a.after == nil || a.arrival < a.after.arrival)
		}
		require.Equal(m.t, []int64{sum}, l.units)
	}
	for id, all := range m.rs.attempts {
		require.NotEmpty(m.t, all)
		require.NotNil(m.t, all[0].line)
		require.Equal(m.t, id, all[0].attempt())
		callers -= len(all) - 1
	}
	require.Equal(m.t, callers, inLines, "all others are in a line")
	require.Len(m.t, lines, len(m.rs.queues))
	for _, q := range m.rs.queues {
		require.Equal(m.t, lines[q], len(q.lines)+q.asking)
		require.Equal(m.t, units[q], q.units)
		if len(q.lines) == 0 {
			continue
		}
		first := byCaller[q.lines[0].first]
		switch {
		case q.mayAsk(m.now):
			require.True(m.t, first.awake(m.now), "the first is forgotten")
		case q.asking == 0 && !first.awake(m.now):
			require.Equal(m.t, q.denial.Due, first.alarm, "the first sleeps too long")
		}
	}
}

// TestRetriesModel has callers join, ask, be served, be denied and leave at random. It checks after each
// step that nobody is forgotten, and lets all be served at the end.
func TestRetriesModel(t *testing.T) {
	for seed := range uint64(100) {
		m := &askers{t: t, r: rand.New(rand.NewPCG(seed, 1)), now: keytable.Start}
		m.rs.wakes.Store(2)
		for range 150 {
			m.step()
			m.check()
		}
		for len(m.all) > 0 && m.now < keytable.Start.Add(time.Minute) {
			m.now = m.now.Add(time.Millisecond)
			for i := range slices.Backward(m.all) {
				if a := m.all[i]; a.asks {
					m.leaves(i, true)
				} else {
					m.run(i)
				}
			}
			m.check()
		}
		require.Empty(t, m.all)
		require.Empty(t, m.rs.lines)
		require.Empty(t, m.rs.queues)
		require.Empty(t, m.rs.attempts)
	}
}

// TestJoiningBehindOneThatAsks proves that a caller which stands behind one that asks does not make the denial of that
// one out of date: a later caller still learns how long it must wait.
func TestJoiningBehindOneThatAsks(t *testing.T) {
	var rs Retries
	now := keytable.Start
	request := func(set string) Request {
		return Request{Set: keytable.HashOf(set), Keys: []keytable.Hash{keyNumber(0)}, N: 1}
	}
	first := rs.Join(request("1"), Denial{Due: now, At: now, RetryAfter: time.Hour, Key: keyNumber(0)}, 0)
	require.True(t, rs.Place(first, now).asks)
	d, wait, behind := rs.Ahead(request("2"), now)
	require.True(t, behind)
	require.Equal(t, time.Hour, wait)
	second := rs.Join(request("2"), d, 0)
	_, wait, behind = rs.Ahead(request("3"), now)
	require.True(t, behind)
	require.Equal(t, time.Hour, wait)
	require.False(t, rs.Place(second, now).asks)
	rs.Leave(first, true)
	require.True(t, rs.Place(second, now).asks, "after a grant, the next asks at once")
}
