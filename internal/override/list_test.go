package override

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLists proves that each limiter has a list of its own, and what a reader gets while it has none.
func TestLists(t *testing.T) {
	var l Lists
	now, set, lifted, whole := l.Since("a", Version{})
	require.Equal(t, Version{}, now)
	require.Empty(t, set)
	require.Empty(t, lifted)
	require.False(t, whole, "the reader knows that there is nothing")
	_, _, _, whole = l.Since("a", Version{List: 1})
	require.True(t, whole, "the reader has a list that is gone")

	block := NewEntry(Override{Client: "c", Effect: Block})
	n, ok := l.Edit("a", []Entry{block}, time.Time{})
	require.Equal(t, 1, n)
	require.True(t, ok)
	first, set, _, whole := l.Since("a", Version{})
	require.Equal(t, []Entry{block}, set)
	require.True(t, whole)
	n, _ = l.Edit("a", []Entry{NewEntry(Override{Client: "d", Effect: Block})}, time.Time{})
	require.Equal(t, 2, n, "the list is kept")
	_, set, _, whole = l.Since("a", first)
	require.Len(t, set, 1)
	require.False(t, whole)

	now, _, _, _ = l.Since("b", Version{})
	require.Equal(t, Version{}, now, "another limiter")
}
