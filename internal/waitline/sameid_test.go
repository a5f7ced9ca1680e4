package waitline

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// maxAnswers is how many retries a grant answers in the tests of this file.
const maxAnswers = 3

// grants holds how many retries the grant of each request has answered.
type grants map[keytable.Hash]int

// A granted is the Record of one request.
type granted struct {
	in grants
	id keytable.Hash
}

func (g granted) Find(keytable.Instant) bool {
	n, ok := g.in[g.id]
	if !ok || n == maxAnswers {
		return false
	}
	g.in[g.id]++
	return true
}

func (g granted) Add(keytable.Instant) { g.in[g.id] = 0 }

// An attempt is one caller in a lineOfAttempts.
type attempt struct {
	w        *Waiter
	over     bool
	at       keytable.Instant
	replayed bool
}

// A lineOfAttempts is the model of Lines for callers with IDs: a list in order of arrival, from which
// each caller is taken at its grant, and then all others with its ID.
type lineOfAttempts struct {
	line []*attempt
	next keytable.Instant // when the next unit is there
	in   grants
}

// settle serves the callers that are due at the instant now.
func (m *lineOfAttempts) settle(now keytable.Instant) {
	for len(m.line) > 0 && m.next <= now {
		first, at := m.line[0], m.next
		m.line, m.next = m.line[1:], at.Add(time.Millisecond)
		first.over, first.at = true, at
		if first.w.Record == nil {
			continue
		}
		g := granted{m.in, first.w.ID}
		g.Add(at)
		m.line = slices.DeleteFunc(m.line, func(a *attempt) bool {
			if a.w.ID == first.w.ID && g.Find(at) {
				a.over, a.replayed, a.at = true, true, at
			}
			return a.over
		})
	}
}

// come has a caller arrive at the instant now.
func (m *lineOfAttempts) come(a *attempt, now keytable.Instant) {
	m.settle(now)
	switch {
	case a.w.Record != nil && granted{m.in, a.w.ID}.Find(now):
		a.over, a.replayed, a.at = true, true, now
	case len(m.line) == 0 && m.next <= now:
		a.over, a.at, m.next = true, now, now.Add(time.Millisecond)
		if a.w.Record != nil {
			granted{m.in, a.w.ID}.Add(now)
		}
	default:
		m.line = append(m.line, a)
	}
}

// ahead returns for how many units the line waits.
func (m *lineOfAttempts) ahead() (units int) {
	ids := make(map[keytable.Hash]bool)
	for _, a := range m.line {
		if a.w.Record == nil || !ids[a.w.ID] {
			units++
		}
		ids[a.w.ID] = true
	}
	return units
}

// TestAttemptsModel has callers with few IDs come and leave at random, and their line be made again. It
// compares what happens to each of them, and what newcomers are told, with the model.
func TestAttemptsModel(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, in := newRig(t, 1000), grants{}
		b.rematch = func(*Waiter) {}
		start := b.clock.now
		m, all := &lineOfAttempts{next: keytable.Start, in: grants{}}, []*attempt(nil)
		for step := range 60 {
			now := keytable.Start.Add(b.clock.now.Sub(start))
			switch do := r.IntN(10); {
			case do < 5:
				a := &attempt{w: &Waiter{wake: make(chan struct{}, 1)}}
				a.w.Set, a.w.Spots = b.spots("key")
				if id := r.IntN(4); id > 0 {
					a.w.ID = keytable.HashOf(strconv.Itoa(id))
					a.w.Record = granted{in, a.w.ID}
				}
				m.come(a, now)
				b.enter(a.w)
				all = append(all, a)
			case do < 7 && len(m.line) > 0:
				m.settle(now)
				if i := r.IntN(len(m.line) + 1); i < len(m.line) {
					require.True(t, b.leave(m.line[i].w, true))
					m.line = slices.Delete(m.line, i, i+1)
				}
			case do < 8:
				b.ChangeRules(func(keytable.Instant) {}, func(*Waiter) bool { return true })
			default:
				b.clock.now = b.clock.now.Add(time.Duration(r.IntN(4)) * time.Millisecond / 2)
			}
			now = keytable.Start.Add(b.clock.now.Sub(start))
			m.settle(now)
			want := time.Duration(-1)
			if n := m.ahead(); n > 0 {
				want = time.Duration(m.next.Add(time.Duration(n) * time.Millisecond).Since(now))
			}
			require.Equal(t, want, b.denied("key", 1), "seed %d, step %d", seed, step)
			require.Equal(t, len(m.line), b.Len(), "seed %d, step %d", seed, step)
			for i, a := range all {
				over := a.w.over.Load() && errors.Is(a.w.Refused, ErrReplayed) == a.replayed
				require.Equal(t, a.over, over, "seed %d, step %d, caller %d", seed, step, i)
				if a.over {
					require.Equal(t, a.at, a.w.At, "seed %d, step %d, caller %d", seed, step, i)
				}
			}
		}
		b.clock.now = b.clock.now.Add(time.Second)
		b.denied("key", 1)
		require.Zero(t, b.Len())
		require.Empty(t, b.attempts)
	}
}
