package dbstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/dbstore/dbstoretest"
)

// A memory is a Backend in memory that calls a function before each Swap. If that returns an error, nothing is done.
type memory struct {
	*dbstoretest.Memory
	before func(ctx context.Context, groups []dbstore.Group) error
}

func newMemory(c ratelimit.Clock) *memory { return &memory{Memory: dbstoretest.NewMemory(c)} }

func (m *memory) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	if m.before != nil {
		if err := m.before(ctx, groups); err != nil {
			return time.Time{}, err
		}
	}
	return m.Memory.Swap(ctx, now, groups)
}

// patient makes a Store wait long, so that a slow machine fails no test.
var patient = dbstore.WithTimeout(time.Minute)

func newStore(t *testing.T, b dbstore.Backend, opts ...dbstore.Option) *dbstore.Store {
	t.Helper()
	s, err := dbstore.New(b, opts...)
	require.NoError(t, err)
	return s
}

var errLost = errors.New("the answer is lost")

// restless is a Backend whose rows other processes change before a Swap, and change back.
type restless struct {
	*memory
	mu   sync.Mutex
	rand *rand.Rand
}

func (r *restless) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	r.mu.Lock()
	dice := r.rand.IntN(8)
	r.mu.Unlock()
	for i := range groups {
		for j := range groups[i].Changes {
			if dice <= 2 {
				groups[i].Changes[j].Read = true
			}
		}
	}
	return r.memory.Swap(ctx, now, groups)
}
