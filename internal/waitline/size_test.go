package waitline

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A counted is a spacing that counts how often it is asked, and how often a state is copied.
type counted struct {
	spacing
	steps, clones *int
}

func (a *counted) Step(s *spaced, c *counted, now keytable.Instant, n int64, charge bool) (engine.Verdict, time.Duration) {
	*a.steps++
	return a.spacing.Step(s, &c.spacing, now, n, charge)
}

func (a *counted) Clone(s *spaced) spaced {
	*a.clones++
	return *s
}

func (*counted) Carry(*spaced, *counted, keytable.Instant) {}
func (*counted) Resize(*spaced, *counted, bool) bool       { return false }
func (*counted) Fills(*counted) bool                       { return false }
func (*counted) Slower(*counted) bool                      { return false }

// A crowd is Lines for callers that need a unit of a key of their own and one of a key that all share.
type crowd struct {
	Lines
	clock         *handClock
	own, shared   engine.Limiter[spaced, *counted]
	steps, clones int // of the shared key
}

func newCrowd(own, shared time.Duration) *crowd {
	c := &crowd{clock: &handClock{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}}
	t := engine.NewTimeline(c.clock, nil)
	var others [2]int
	c.own.Init(t, &counted{spacing{own, 1}, &others[0], &others[1]}, 1<<17)
	c.shared.Init(t, &counted{spacing{shared, 1}, &c.steps, &c.clones}, 1)
	c.Init(c.own.Time(), 1<<20, nil, nil)
	return c
}

func (c *crowd) spots(client int) (keytable.Hash, []engine.Spot) {
	h := keytable.HashOf(fmt.Sprint(client))
	return h, []engine.Spot{engine.SpotOf(&c.own, h, 1), engine.SpotOf(&c.shared, keytable.HashOf("all"), 1)}
}

// comes has a caller of this client wait.
func (c *crowd) comes(client int) {
	w := &Waiter{wake: make(chan struct{}, 1)}
	w.Set, w.Spots = c.spots(client)
	c.enter(w)
}

// denied returns the RetryAfter of a client that does not wait.
func (c *crowd) denied(client int) time.Duration {
	set, spots := c.spots(client)
	if _, denied := c.Deny(set, spots, false); !denied {
		return -1
	}
	return max(spots[0].RetryAfter, spots[1].RetryAfter)
}

// TestWorkForAUnitDoesNotGrow has clients wait by a limit of their own and by one that all share, which
// serves half of what all clients could have. It proves that a unit of the shared key costs the same
// number of steps however many clients wait, that the rate of the shared key is served, and that a
// newcomer is foretold in a bounded number of steps.
func TestWorkForAUnitDoesNotGrow(t *testing.T) {
	for _, clients := range []int{100, 1000, 5000} {
		c := newCrowd(time.Second, 2*time.Second/time.Duration(clients))
		for i := range 2 * clients {
			c.comes(i % clients)
		}
		waiting, served := 2*clients, 0
		c.steps = 0
		for i := range 100 { // 2 s in all; each client that is served comes again
			c.clock.now = c.clock.now.Add(20 * time.Millisecond)
			before := c.steps
			require.Positive(t, c.denied(-1-i))
			now := waiting - c.Len()
			require.LessOrEqual(t, c.steps-before, 12*now+8*stale, "%d clients, round %d", clients, i)
			served += now
			for k := range now {
				c.comes((served + k) % clients)
			}
			waiting = c.Len()
		}
		require.GreaterOrEqual(t, served, clients-1, "%d clients: 2 s at half of their number a second", clients)
		require.LessOrEqual(t, c.steps, 20*served+100*8*stale, "%d clients", clients)
	}
}

// TestSharedKeyIsCopiedOnce has many lines wait that need one key. It proves that its state, which may
// be large, is not copied for each of them.
func TestSharedKeyIsCopiedOnce(t *testing.T) {
	c := newCrowd(time.Hour, time.Millisecond)
	for i := range 1000 {
		c.comes(i % 500)
		c.clock.now = c.clock.now.Add(time.Millisecond)
	}
	require.Equal(t, 500, c.Len(), "the first caller of each client is served")
	c.clones = 0
	for i := range 1000 {
		c.comes(i % 500)
	}
	require.Positive(t, c.denied(7))
	require.LessOrEqual(t, c.clones, 2)
}

// TestLongLinesAreForetoldBySums has more callers wait than are charged one by one. It proves that the
// instants are right for callers that want one unit each, also when units come back.
func TestLongLinesAreForetoldBySums(t *testing.T) {
	b := newRig(t, 100_000)
	b.comes(1, false)
	for range 20_000 {
		b.comes(1, false)
	}
	key := Key{&b.keys, keytable.HashOf("key")}
	for range 3 {
		b.Adjust(func(keytable.Instant) {}, key) // drops what was computed
		walked := b.Walked()
		require.Equal(t, 20_001*time.Millisecond, b.denied("key", 1))
		require.LessOrEqual(t, b.Walked(), walked+stale)
	}
	b.clock.now = b.clock.now.Add(19_950 * time.Millisecond)
	require.Equal(t, 51*time.Millisecond, b.denied("key", 1))
	require.Equal(t, 50, b.Len())
}

// TestLongQueuesAreForetoldBySums does so for a key that many lines wait for.
func TestLongQueuesAreForetoldBySums(t *testing.T) {
	c := newCrowd(time.Millisecond, time.Second)
	c.comes(0)
	for i := range 3000 {
		c.comes(i + 1)
	}
	require.Equal(t, 3001*time.Second, c.denied(-1))
	c.clock.now = c.clock.now.Add(time.Minute)
	require.Equal(t, 2941*time.Second, c.denied(-2))
	c.Freed(Key{&c.shared, keytable.HashOf("all")})
	require.Equal(t, 2941*time.Second, c.denied(-3))
}
