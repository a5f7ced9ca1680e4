package explained

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

// TestCopy copies each kind of field there and back.
func TestCopy(t *testing.T) {
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
	var out table
	Copy(&out, &in)
	require.Equal(t, table{err, []string{"x"}, []row{{"b", rate{2}}, {"c", rate{3}}}, &row{"a", rate{1}}}, out)

	var back list
	Copy(&back, &out)
	require.Equal(t, in, back)
	require.NotSame(t, in.First, back.First)

	Copy(&out, &list{All: []entry{}})
	require.Equal(t, table{}, out, "nothing of what was there before stays, and an empty list is nil")
	require.Panics(t, func() { Copy(&out, &struct{ Err error }{}) }, "a field is missing")
}
