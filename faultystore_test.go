package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A fault is what goes wrong in one call of a faultyStore.
type fault int

const (
	sound      fault = iota // nothing
	errsBefore              // it fails, and has taken nothing
	errsAfter               // it fails, but has taken
	hangs                   // it waits for the end of ctx or a release, and has taken nothing
	loses                   // it answers, but has lost all state before
	miscounts               // it answers too few
	overcounts              // it answers too many
	panics                  // it panics
)

// errFault is what a faultyStore fails with.
var errFault = errors.New("connection refused")

// A faultyStore is a MemoryStore between which and its users something goes wrong, by
// a script.
type faultyStore struct {
	clock *ratelimit.FakeClock // nil: the machine's

	mu       sync.Mutex
	memory   *ratelimit.MemoryStore
	script   []fault // of the next calls
	then     fault   // of all that follow
	calls    [][]ratelimit.Ask
	resets   [][]ratelimit.Ask
	resetErr error

	release chan struct{} // closed to end what hangs
}

// newFaultyStore returns a store that answers.
func newFaultyStore(t *testing.T, clock *ratelimit.FakeClock) *faultyStore {
	t.Helper()
	s := &faultyStore{clock: clock, release: make(chan struct{})}
	s.lose(t)
	return s
}

// lose makes s forget everything.
func (s *faultyStore) lose(t *testing.T) {
	memory, err := newMemory(s.clock)
	if t != nil {
		require.NoError(t, err)
	}
	s.memory = memory
}

// newMemory returns a MemoryStore on clock, or the machine's if it is nil.
func newMemory(clock *ratelimit.FakeClock) (*ratelimit.MemoryStore, error) {
	if clock == nil {
		return ratelimit.NewMemoryStore()
	}
	return ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
}

// next returns what is to happen in this call.
func (s *faultyStore) next(asks []ratelimit.Ask) (fault, *ratelimit.MemoryStore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, slices.Clone(asks))
	f := s.then
	if len(s.script) > 0 {
		f, s.script = s.script[0], s.script[1:]
	}
	if f == loses {
		s.lose(nil)
	}
	return f, s.memory
}

func (s *faultyStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	f, memory := s.next(asks)
	switch f {
	case errsBefore:
		return nil, errFault
	case errsAfter:
		if _, err := memory.Take(ctx, asks); err != nil {
			return nil, err
		}
		return nil, errFault
	case hangs:
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.release:
			return nil, errFault
		}
	case panics:
		panic(errFault)
	}
	results, err := memory.Take(ctx, asks)
	switch f {
	case miscounts:
		results = results[:len(results)-1]
	case overcounts:
		results = append(results, ratelimit.Result{Allowed: true})
	}
	return results, err
}

func (s *faultyStore) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets = append(s.resets, slices.Clone(asks))
	if s.resetErr != nil {
		return s.resetErr
	}
	return s.memory.Reset(ctx, asks)
}

// do makes these the faults of the next calls.
func (s *faultyStore) do(script ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// from makes f the fault of all calls from now on.
func (s *faultyStore) from(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.then = nil, f
}

// called returns how often the store has been asked, and forgets it.
func (s *faultyStore) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.calls)
	s.calls = nil
	return n
}

// newRules returns a RateLimiter that must be possible.
func newRules(t testing.TB, rules []ratelimit.Rule, defaultRule *ratelimit.Rule, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	t.Helper()
	l, err := ratelimit.New(rules, defaultRule, opts...)
	require.NoError(t, err)
	return l
}

// named is res as the answer of the rule of this name.
func named(rule string, res ratelimit.Result) ratelimit.Result {
	res.Rule = rule
	return res
}

// degraded is res as the answer of a failure policy.
func degraded(res ratelimit.Result) ratelimit.Result {
	res.Degraded = true
	return res
}

// byName is an algorithm of the five, as a rule names it.
var byName = map[string]ratelimit.Algorithm{
	"token bucket":           ratelimit.AlgorithmTokenBucket,
	"fixed window":           ratelimit.AlgorithmFixedWindow,
	"sliding window log":     ratelimit.AlgorithmSlidingWindowLog,
	"sliding window counter": ratelimit.AlgorithmSlidingWindowCounter,
	"leaky bucket":           ratelimit.AlgorithmLeakyBucket,
}
