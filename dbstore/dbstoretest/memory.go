package dbstoretest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
)

// A Memory is a [dbstore.Backend] that keeps its rows in this process. Use it to test code that calls a Backend. To test a program with
// limits, [ratelimit.MemoryStore] is simpler.
type Memory struct {
	clock ratelimit.Clock

	mu    sync.Mutex
	rows  map[string][]byte // guarded by mu
	stats Stats             // guarded by mu
}

// Stats are totals of a [Memory].
type Stats struct {
	Calls   int // calls of Swap
	Writes  int // rows that were written, not counting deletions
	Refused int // rows of groups that were not done
	Largest int // the largest number of rows in one call
}

// NewMemory returns an empty Memory that takes its time from c.
func NewMemory(c ratelimit.Clock) *Memory { return &Memory{clock: c, rows: make(map[string][]byte)} }

// Swap does what [dbstore.Backend] says. It panics if a key occurs twice in one call, because no Store may make such a call.
func (m *Memory) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, dbstore.NotDone(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at, rows := m.clock.Now(), 0
	timely := now.IsZero() || !now.After(at) && at.Sub(now) <= dbstore.MaxBehind
	m.stats.Calls++
	keys := make(map[string]bool)
	for i := range groups {
		m.swap(&groups[i], timely)
		for _, c := range groups[i].Changes {
			if rows++; keys[string(c.Key)] {
				panic("dbstoretest: a key is twice in one call of Swap")
			}
			keys[string(c.Key)] = true
		}
	}
	m.stats.Largest = max(m.stats.Largest, rows)
	return at, nil
}

// swap handles one group of a call. If the parameter timely is false, the Store has decided for a wrong time, and swap only reads the
// rows. The caller holds m.mu.
func (m *Memory) swap(g *dbstore.Group, timely bool) {
	g.Done = timely
	for i := range g.Changes {
		c := &g.Changes[i]
		old, ok := m.rows[string(c.Key)]
		c.Value = slices.Clone(old)
		g.Done = g.Done && !c.Read && ok == (c.Old != nil) && bytes.Equal(old, c.Old)
	}
	for _, c := range g.Changes {
		switch {
		case !g.Done:
			m.stats.Refused++
		case c.New == nil:
			delete(m.rows, string(c.Key))
		case !bytes.Equal(c.New, c.Old):
			m.rows[string(c.Key)] = slices.Clone(c.New)
			m.stats.Writes++
		}
	}
}

// Edit replaces the value of each row by what the function change returns: nil deletes the row.
func (m *Memory) Edit(change func(key string, value []byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, value := range m.rows {
		if m.rows[key] = change(key, slices.Clone(value)); m.rows[key] == nil {
			delete(m.rows, key)
		}
	}
}

// Rows returns a copy of all rows.
func (m *Memory) Rows() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := make(map[string][]byte, len(m.rows))
	for key, value := range m.rows {
		rows[key] = slices.Clone(value)
	}
	return rows
}

// Stats returns the totals of m.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}
