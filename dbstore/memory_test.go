package dbstore_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
)

// A memory is a Backend in memory.
type memory struct {
	clock ratelimit.Clock

	mu   sync.Mutex
	rows map[string][]byte

	calls, changed, writes, largest int

	// before is called at the begin of each Swap, and after at its end, without a lock. An error of before means that nothing is
	// done, and after replaces the answer by its error.
	before, after func(ctx context.Context, groups []dbstore.Group) error
}

func newMemory(c ratelimit.Clock) *memory { return &memory{clock: c, rows: make(map[string][]byte)} }

func (m *memory) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	if m.before != nil {
		if err := m.before(ctx, groups); err != nil {
			return time.Time{}, err
		}
	}
	at := m.swap(now, groups)
	if m.after != nil {
		if err := m.after(ctx, groups); err != nil {
			return time.Time{}, err
		}
	}
	return at, nil
}

func (m *memory) swap(now time.Time, groups []dbstore.Group) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.clock.Now()
	off := !now.IsZero() && (now.After(at) || at.Sub(now) > dbstore.MaxBehind)
	m.calls++
	rows := 0
	for i := range groups {
		g := &groups[i]
		g.Done = !off
		for j := range g.Changes {
			c := &g.Changes[j]
			rows++
			old, ok := m.rows[string(c.Key)]
			if c.Value = slices.Clone(old); c.Read || ok != (c.Old != nil) || !bytes.Equal(old, c.Old) {
				g.Done = false
			}
		}
		for _, c := range g.Changes {
			switch {
			case !g.Done:
				m.changed++
			case c.New == nil:
				delete(m.rows, string(c.Key))
			case !bytes.Equal(c.New, c.Old):
				m.rows[string(c.Key)] = slices.Clone(c.New)
				m.writes++
			}
		}
	}
	m.largest = max(m.largest, rows)
	return at
}

// set changes the row of the only key, or all rows, by the function change.
func (m *memory) set(change func(key string, row []byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, row := range m.rows {
		if m.rows[key] = change(key, slices.Clone(row)); m.rows[key] == nil {
			delete(m.rows, key)
		}
	}
}

func newStore(t *testing.T, b dbstore.Backend, opts ...dbstore.Option) *dbstore.Store {
	t.Helper()
	s, err := dbstore.New(b, opts...)
	require.NoError(t, err)
	return s
}

var errLost = errors.New("the answer is lost")

// restless is a Backend that repeats and reorders: other processes change rows before a Swap. It never fails.
type restless struct {
	*memory
	mu   sync.Mutex
	rand *rand.Rand
}

// Swap first fails the groups by chance, as if another process had changed a row and changed it back.
func (r *restless) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	r.mu.Lock()
	dice := r.rand.IntN(8)
	r.mu.Unlock()
	if dice > 2 {
		return r.memory.Swap(ctx, now, groups)
	}
	for i := range groups {
		for j := range groups[i].Changes {
			groups[i].Changes[j].Read = true
		}
	}
	return r.memory.Swap(ctx, now, groups)
}
