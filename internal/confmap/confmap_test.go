package confmap

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fields is a map as encoding/json decodes it.
type fields = map[string]any

// reader returns a Reader whose errors have a line with the field, its value and the reason.
func reader() *Reader {
	return NewReader(
		func(field, value, reason string) error { return fmt.Errorf("%s is %s: %s", field, value, reason) },
		func(n int) error { return fmt.Errorf("and %d more", n) },
	)
}

// nodeOf returns the map v at the path "at".
func nodeOf(t *testing.T, v any) *Node {
	t.Helper()
	n, ok := NodeOf("at", v)
	require.True(t, ok)
	return n
}

// problems returns the problems that r has found, a line each.
func problems(r *Reader) string {
	if err := r.Err(); err != nil {
		return err.Error()
	}
	return ""
}

func TestReaderListsProblems(t *testing.T) {
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "f%d is v: r\n", i)
		}
		return b.String()
	}
	for _, tt := range []struct {
		rejected, skipped int
		want              string
		why               string
	}{
		{0, 0, "", "no problem"},
		{1, 0, lines(1), "one problem"},
		{MaxProblems, 0, lines(MaxProblems), "as many as are listed"},
		{MaxProblems + 1, 0, lines(MaxProblems) + "and 1 more", "one more than are listed"},
		{MaxProblems + 900, 0, lines(MaxProblems) + "and 900 more", "many more"},
		{2, 5, lines(2) + "and 5 more", "some that were not even reported"},
		{MaxProblems + 1, 5, lines(MaxProblems) + "and 6 more", "both"},
	} {
		r := reader()
		for i := range tt.rejected {
			r.Reject(fmt.Sprint("f", i), "v", "r")
		}
		r.skip(tt.skipped)
		require.Equal(t, tt.rejected+tt.skipped, r.Found(), tt.why)
		require.Equal(t, strings.TrimSuffix(tt.want, "\n"), problems(r), tt.why)
		require.Equal(t, strings.TrimSuffix(tt.want, "\n"), problems(r), "%s, asked again", tt.why)
	}
}

func TestReaderKeepsErrors(t *testing.T) {
	first, last := errors.New("first"), errors.New("last")
	r := NewReader(func(string, string, string) error { return first }, func(int) error { return last })
	r.Report(errors.ErrUnsupported)
	r.Reject("f", "v", "r")
	require.ErrorIs(t, r.Err(), errors.ErrUnsupported)
	require.ErrorIs(t, r.Err(), first)
	require.NotErrorIs(t, r.Err(), last)
	r.skip(1)
	require.ErrorIs(t, r.Err(), last)
}
