package ratelimit

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// told reports whether w has been told to ask again.
func (w *waiter) told() bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

func TestWhoIsToldToAskAgain(t *testing.T) {
	var ws waiters
	one, two := keytable.Hash{Hi: 1}, keytable.Hash{Hi: 2}
	first, second, other := ws.join(one), ws.join(one), ws.join(two)
	for _, row := range []struct {
		event                func()
		first, second, other bool
		why                  string
	}{
		{func() {}, false, false, false, "nobody, unasked"},
		{func() { ws.wake(one) }, true, false, false, "the first in the key's line"},
		{func() { ws.wake(one); ws.wake(one) }, true, false, false, "once, even if told twice before it listens"},
		{func() { ws.wakeAll() }, true, false, true, "the first of every line"},
		{func() { ws.wake(keytable.Hash{Hi: 3}) }, false, false, false, "nobody, where there is no line"},
		{func() { ws.leave(first) }, false, true, false, "the next, once the first has left"},
		{func() { ws.leave(second) }, false, false, false, "nobody, once all have left"},
		{func() { ws.leave(other) }, false, false, false, "nor then"},
	} {
		row.event()
		assert.Equal(t, row.first, first.told(), row.why)
		assert.Equal(t, row.second, second.told(), row.why)
		assert.Equal(t, row.other, other.told(), row.why)
		assert.False(t, first.told(), "%s: once", row.why)
	}
	assert.Empty(t, ws.lines, "no line is kept without waiters")
}

func TestWhenTheFirstExpectsToBeServed(t *testing.T) {
	var ws waiters
	h := keytable.Hash{Hi: 1}
	first, second := ws.join(h), ws.join(h)
	place := func(w *waiter, wantFirst bool, wantAhead instant, why string) {
		t.Helper()
		isFirst, ahead := ws.place(w)
		assert.Equal(t, wantFirst, isFirst, why)
		assert.Equal(t, wantAhead, ahead, why)
	}
	place(first, true, 0, "nobody is ahead of the first")
	place(second, false, 0, "the first has not asked yet")
	ws.expect(first, 500)
	place(second, false, 500, "the second is not served before the first")
	place(first, true, 0, "what the first expects is nothing to itself")
	third := ws.join(h)
	place(third, false, 500, "nor is the third")
	ws.leave(first)
	place(second, true, 0, "the second has become the first")
	place(third, false, 0, "and has not asked yet: what the one before expected says nothing")
	ws.leave(second)
	ws.leave(third)
}
