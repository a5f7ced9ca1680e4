package confmap

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const sizeForm = "at is a map: must be smaller: at most 100 maps and lists within each other and, " +
	"over all configs, 524288 values, each map or list counting as 8"

func TestCopy(t *testing.T) {
	pointer := new(int)
	for _, tt := range []struct {
		v    any
		want fields
		why  string
	}{
		{fields{}, fields{}, "an empty map"},
		{fields{"a": 1, "b": nil, "c": "x", "d": pointer}, fields{"a": 1, "b": nil, "c": "x", "d": pointer}, "values"},
		{map[any]any{"a": 1}, fields{"a": 1}, "a map of the other kind"},
		{namedMap{"a": namedMap{"b": 1}}, fields{"a": namedMap{"b": 1}}, "named types within are kept"},
		{fields{"a": fields(nil), "b": []any(nil)}, fields{"a": fields(nil), "b": []any(nil)}, "nil maps and lists"},
		{fields{"a": []any{nil, 1, []int{2}}}, fields{"a": []any{nil, 1, []int{2}}}, "lists"},
		{fields{"a": map[any]any{1: nil, nil: 2}}, fields{"a": map[any]any{1: nil, nil: 2}}, "maps with keys of any kind"},
		{fields{"a": map[string]fields{"x": {"y": 1}, "z": nil}}, fields{"a": map[string]fields{"x": {"y": 1}, "z": nil}}, "maps of maps"},
		{fields{"a": [][]int{{1}, nil}}, fields{"a": [][]int{{1}, nil}}, "lists of lists"},
	} {
		r := reader()
		got, ok := r.Copy(nodeOf(t, tt.v))
		require.True(t, ok, tt.why)
		require.Equal(t, tt.want, got, tt.why)
		require.Empty(t, problems(r), tt.why)
	}
	r := reader()
	_, ok := r.Copy(nodeOf(t, map[any]any{"a": 1, 2: 3}))
	require.False(t, ok)
	require.Equal(t, "at[2] is 3: must have a string for its key", problems(r))
}

// TestCopyIsApart proves that a change of a map does not reach its copy, nor the other way round.
func TestCopyIsApart(t *testing.T) {
	made := func() fields {
		return fields{
			"map": fields{"x": 1}, "list": []any{fields{"y": 2}, 3}, "ints": []int{4}, "lists": [][]int{{5}},
			"maps": []fields{{"z": 8}}, "mixed": map[any]any{6: []any{7}},
		}
	}
	change := func(m fields) {
		m["map"].(fields)["x"] = 0
		m["list"].([]any)[0].(fields)["y"] = 0
		m["list"].([]any)[1] = 0
		m["ints"].([]int)[0] = 0
		m["lists"].([][]int)[0][0] = 0
		m["maps"].([]fields)[0]["z"] = 0
		m["mixed"].(map[any]any)[6].([]any)[0] = 0
		m["new"] = 0
	}
	original := made()
	copied, ok := reader().Copy(nodeOf(t, original))
	require.True(t, ok)
	change(copied)
	require.Equal(t, made(), original)
	copied, ok = reader().Copy(nodeOf(t, original))
	require.True(t, ok)
	change(original)
	require.Equal(t, made(), copied)
}

func TestCopyIsBounded(t *testing.T) {
	deep := func(levels int) any {
		var v any = 1
		for i := range levels {
			if i%2 == 0 {
				v = []any{v}
			} else {
				v = fields{"m": v}
			}
		}
		return v
	}
	itself := fields{}
	itself["m"] = itself
	twice := fields{}
	twice["l"], twice["r"] = twice, twice
	const limit = maxCopies * maxValues
	for _, tt := range []struct {
		v    any
		want bool
		why  string
	}{
		{fields{"a": deep(MaxDepth)}, true, "as deep as may be"},
		{fields{"a": deep(MaxDepth + 1)}, false, "a level deeper"},
		{fields{"a": deep(100_000)}, false, "far deeper"},
		{itself, false, "a map within itself"},
		{twice, false, "twice within itself"},
		{fields{"a": make([]int, limit-2*costOfList-1)}, true, "as large as may be"},
		{fields{"a": make([]int, limit-2*costOfList)}, false, "a value more"},
		{fields{"a": make([]any, limit/2), "b": make([]any, limit/2)}, false, "two large lists"},
		{fields{"a": []any{make([]any, limit)}}, false, "a large list in a small one"},
	} {
		r := reader()
		_, ok := r.Copy(nodeOf(t, tt.v))
		require.Equal(t, tt.want, ok, tt.why)
		want := ""
		if !tt.want {
			want = sizeForm
		}
		require.Equal(t, want, problems(r), tt.why)
	}
}

// TestCopiesAreBoundedTogether copies maps until there are too many.
func TestCopiesAreBoundedTogether(t *testing.T) {
	r, n := reader(), nodeOf(t, fields{"a": make([]int, 1000)})
	const cost = 2*costOfList + 1 + 1000
	for range maxCopies * maxValues / cost {
		_, ok := r.Copy(n)
		require.True(t, ok)
	}
	_, ok := r.Copy(n)
	require.False(t, ok)
	require.Equal(t, sizeForm, problems(r))
}
