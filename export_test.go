package ratelimit

import "github.com/ratelimit-go/ratelimit/internal/keytable"

// Waiting returns how many calls of Wait stand in line, for whatever key. It
// panics if a line is not whole.
func (k *keyed[S, C]) Waiting() (n int) {
	k.waiters.mu.Lock()
	defer k.waiters.mu.Unlock()
	for hash, l := range k.waiters.lines {
		var ahead *waiter
		for w := l.first; w != nil; w = w.after {
			if w.ahead != ahead || w.line != l || w.hash != hash {
				panic("a waiter stands in a wrong place")
			}
			ahead = w
			n++
		}
		if ahead == nil || l.last != ahead {
			panic("a line has a wrong end")
		}
	}
	return n
}

// Alarms returns how many alarms the clock has yet to ring.
func (c *FakeClock) Alarms() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.alarms)
}

// Counts returns how many decisions the limiter has made.
func (k *keyed[S, C]) Counts() keytable.Counts { return k.table.Counts() }
