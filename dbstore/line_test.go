package dbstore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestLateCalls has calls whose time limit is over, or whose callers have left, when their transaction begins. The errors of callers
// who still wait match ErrStore, and say that nothing was charged.
func TestLateCalls(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		why      string
		late     bool
		left     bool
		number   uint64
		want     error
		answered bool
	}{
		{why: "in time"},
		{why: "left before it was sent", left: true, want: errNotMade},
		{why: "late before it was sent", late: true, want: errTimeout},
		{why: "late after other processes have changed the row", late: true, number: 7, want: errContended, answered: true},
	} {
		l := &line{busy: map[string]struct{}{"k": {}}, waiting: 1}
		c := &call{keys: []string{"k"}, number: row.number, left: row.left, deadline: now.Add(time.Hour), done: make(chan struct{})}
		if row.late {
			c.deadline = now.Add(-1)
		}
		f := &flight{groups: groupsOf([]*call{c})}
		l.leave(f)
		require.Equal(t, row.want != nil, len(f.groups) == 0, row.why)
		require.Equal(t, row.want != nil, c.ended, row.why)
		if require.ErrorIs(t, c.err, row.want, row.why); row.want == nil || row.left {
			continue
		}
		var failure *Error
		require.ErrorAs(t, c.err, &failure, row.why)
		require.ErrorIs(t, c.err, ratelimit.ErrStore, row.why)
		require.True(t, failure.NotDone(), row.why)
		require.Equal(t, row.answered, failure.Answered(), row.why)
		require.Equal(t, map[bool]string{true: "contended", false: "timeout"}[row.answered], failure.ErrorClass(), row.why)
		require.Zero(t, l.waiting, row.why)
		require.Empty(t, l.busy, row.why)
	}
}

// TestCallsThatWereNotMade asks for the end of a call that nobody made, because its caller had left, before and after that end. Both
// times the error is that of the caller's context, by which breakers tell that the store has not failed.
func TestCallsThatWereNotMade(t *testing.T) {
	for _, after := range []bool{false, true} {
		c := &call{done: make(chan struct{}), deadline: time.Now().Add(time.Hour)}
		var told []error
		tell := func(err error) { told = append(told, err) }
		if !after {
			(&leftError{context.Canceled, c}).Later(tell)
		}
		c.fail(errNotMade)
		if after {
			(&leftError{context.Canceled, c}).Later(tell)
		}
		require.Equal(t, []error{context.Canceled}, told)
	}
}

// TestRecordKeys has requests that differ in one part of an Ask. Each has a record of its own.
func TestRecordKeys(t *testing.T) {
	seen := make(map[string]ratelimit.Ask)
	for _, a := range []ratelimit.Ask{{}, {Rule: "r"}, {Key: "r"}, {Algorithm: "r"}} {
		for n := range 300 {
			for _, shadow := range []bool{false, true} {
				a.N, a.Shadow = n, shadow
				key := recordKey(&ratelimit.Attempt{Client: "alice", ID: "1"}, []ratelimit.Ask{a})
				other, twice := seen[key]
				require.False(t, twice, "%+v and %+v", other, a)
				seen[key] = a
			}
		}
	}
}
