package prommetrics_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A failing is a store that fails until it is well.
type failing struct {
	memory *ratelimit.MemoryStore
	well   atomic.Bool
	calls  atomic.Int64
}

func newFailing(t testing.TB) *failing {
	t.Helper()
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	return &failing{memory: memory}
}

func (s *failing) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.calls.Add(1)
	if !s.well.Load() {
		return nil, errors.New("connection refused")
	}
	return s.memory.Take(ctx, asks)
}

func (s *failing) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	return s.memory.Reset(ctx, asks)
}
