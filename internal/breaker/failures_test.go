package breaker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A classed is an error with a class. It may blame parts, and may be an answer of a healthy store.
type classed struct {
	error
	class    string
	parts    []int
	answered bool
}

func (e *classed) ErrorClass() string { return e.class }
func (e *classed) Parts() []int       { return e.parts }
func (e *classed) Answered() bool     { return e.answered }

// TestFailures proves which calls count as failures of which part, and with which class.
func TestFailures(t *testing.T) {
	s, cause := New(MaxParts, func(err error) error { return err }), errors.New("down")
	now := func() keytable.Instant { return 0 }
	call := func(ctx context.Context, parts uint64, err error) {
		t.Helper()
		_ = s.Guard(ctx, Pass{parts: parts}, now, func() error { return err })
	}
	left, cancel := context.WithCancel(t.Context())
	cancel()
	call(t.Context(), 1, nil)
	call(left, 1, cause)
	require.Empty(t, s.Stats().Failures, "a call that succeeds, or whose caller has left, is no failure")

	call(t.Context(), 1, cause)
	call(t.Context(), 1, fmt.Errorf("a call: %w", &classed{error: cause, class: "dial"}))
	call(t.Context(), 1|1<<63, &classed{error: cause, class: "dial"})
	call(t.Context(), 1|1<<5|1<<7, &classed{error: cause, class: "read_1", parts: []int{7}})
	call(t.Context(), 1, &classed{error: cause, class: "oom", answered: true})
	for _, class := range []string{"", "Dial", "a key: 7", strings.Repeat("x", 33)} {
		call(t.Context(), 1<<2, &classed{error: cause, class: class})
	}
	require.Panics(t, func() { _ = s.Guard(t.Context(), Pass{parts: 1 << 3}, now, func() error { panic("a bug") }) })
	require.Equal(t, []Failure{
		{0, "dial", 2}, {0, "oom", 1}, {0, "other", 1}, {2, "other", 4}, {3, "panic", 1}, {7, "read_1", 1}, {63, "dial", 1},
	}, s.Stats().Failures)
}

// TestFailuresAreBounded proves that a store cannot make up names of classes without end.
func TestFailuresAreBounded(t *testing.T) {
	var f failures
	for i := range 1000 {
		f.add(1, fmt.Sprint("class", i))
	}
	f.add(1, "class0")
	all := f.list()
	require.Len(t, all, maxClasses+1)
	require.Contains(t, all, Failure{0, "class0", 2})
	require.Contains(t, all, Failure{0, otherClass, 1000 - maxClasses})
}
