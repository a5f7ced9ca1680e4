package mirror

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A name is a text with a type of its own, as the root package has them.
type name string

// An entry has fields like those of the type row, but other types, and in another order.
type entry struct {
	Rate struct{ N int }
	Name name
}

type row struct {
	Name string
	Rate rate
}

type rate struct{ N int }

// TestTo copies each kind of field there and back.
func TestTo(t *testing.T) {
	type list struct {
		First *entry
		All   []entry
		Texts []string
		Err   error
	}
	type table struct {
		Err   error
		Texts []string
		All   []row
		First *row
	}
	err := errors.New("refused")
	in := list{&entry{rate{1}, "a"}, []entry{{rate{2}, "b"}, {rate{3}, "c"}}, []string{"x"}, err}
	out := To[table](in)
	require.Equal(t, table{err, []string{"x"}, []row{{"b", rate{2}}, {"c", rate{3}}}, &row{"a", rate{1}}}, out)

	back := To[list](out)
	require.Equal(t, in, back)
	require.NotSame(t, in.First, back.First)

	require.Equal(t, table{}, To[table](list{All: []entry{}}), "an empty list is nil")
	require.Panics(t, func() { To[table](struct{ Err error }{}) }, "a field is missing")

	require.Equal(t, &row{"a", rate{1}}, To[*row](in.First))
	require.Nil(t, To[*row]((*entry)(nil)))
	require.Equal(t, []row{{"b", rate{2}}, {"c", rate{3}}}, To[[]row](in.All))
	require.Nil(t, To[[]row]([]entry{}))
}
