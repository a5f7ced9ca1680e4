package waitline

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// told reports whether w has been told to try again.
func (w *Waiter) told() bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

func TestWhoIsWoken(t *testing.T) {
	var ls Lines
	one, two := keytable.Hash{Hi: 1}, keytable.Hash{Hi: 2}
	first, second, other := ls.Join(one), ls.Join(one), ls.Join(two)
	for _, row := range []struct {
		event                func()
		first, second, other bool
		why                  string
	}{
		{func() {}, false, false, false, "nobody, unasked"},
		{func() { ls.Wake(one) }, true, false, false, "the first in the key's line"},
		{func() { ls.Wake(one); ls.Wake(one) }, true, false, false, "once, even if told twice before it listens"},
		{func() { ls.WakeAll() }, true, false, true, "the first of every line"},
		{func() { ls.Wake(keytable.Hash{Hi: 3}) }, false, false, false, "nobody, where there is no line"},
		{func() { ls.Leave(first) }, false, true, false, "the next, once the first has left"},
		{func() { ls.Leave(second) }, false, false, false, "nobody, once all have left"},
		{func() { ls.Leave(other) }, false, false, false, "nor then"},
	} {
		row.event()
		assert.Equal(t, row.first, first.told(), row.why)
		assert.Equal(t, row.second, second.told(), row.why)
		assert.Equal(t, row.other, other.told(), row.why)
		assert.False(t, first.told(), "%s: once", row.why)
	}
	assert.Empty(t, ls.lines, "no line is kept without waiters")
}

func TestWhenTheFirstExpectsToBeServed(t *testing.T) {
	var ls Lines
	h := keytable.Hash{Hi: 1}
	first, second := ls.Join(h), ls.Join(h)
	place := func(w *Waiter, wantFirst bool, wantAhead keytable.Instant, why string) {
		t.Helper()
		isFirst, ahead := ls.Place(w)
		assert.Equal(t, wantFirst, isFirst, why)
		assert.Equal(t, wantAhead, ahead, why)
	}
	place(first, true, 0, "nobody is ahead of the first")
	place(second, false, 0, "the first has not asked yet")
	ls.Expect(first, 500)
	place(second, false, 500, "the second is not served before the first")
	place(first, true, 0, "what the first expects is nothing to itself")
	third := ls.Join(h)
	place(third, false, 500, "nor is the third")
	ls.Leave(first)
	place(second, true, 0, "the second has become the first")
	place(third, false, 0, "and has not asked yet: what the one before expected says nothing")
	ls.Leave(second)
	ls.Leave(third)
}
