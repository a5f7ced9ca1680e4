package confmap

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type (
	namedMap    map[string]any
	namedAnyMap map[any]any
	namedString string
)

func TestNodeOf(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want bool
		why  string
	}{
		{fields{"a": 1}, true, "a map as encoding/json makes it"},
		{map[any]any{"a": 1}, true, "a map as older YAML decoders make it"},
		{namedMap{"a": 1}, true, "of a named type"},
		{namedAnyMap{"a": 1}, true, "of a named type of the other kind"},
		{fields(nil), false, "a nil map"},
		{map[any]any(nil), false, "a nil map of the other kind"},
		{namedMap(nil), false, "a nil map of a named type"},
		{map[string]int{"a": 1}, true, "its values are no interfaces"},
		{map[namedString]any{"a": 1}, true, "its keys are of a named type"},
		{map[string]int(nil), false, "a nil map whose values are no interfaces"},
		{map[int]any{1: 1}, false, "its keys are no strings"},
		{&fields{"a": 1}, false, "a pointer to a map"},
		{[]any{"a", 1}, false, "a list"},
		{"a", false, "a string"},
		{nil, false, "nothing"},
	} {
		n, ok := NodeOf("at", tt.v)
		require.Equal(t, tt.want, ok, tt.why)
		if ok {
			require.Equal(t, "at", n.Path, tt.why)
			require.Equal(t, 1, n.Len(), tt.why)
			v, ok := n.Get("a")
			require.True(t, ok, tt.why)
			require.Equal(t, 1, v, tt.why)
			require.Equal(t, []string{"a"}, n.Names(), tt.why)
		}
	}
}

func TestNodeFields(t *testing.T) {
	for _, v := range []any{
		fields{"b": nil, "a": 1.5, "": "x"},
		map[namedString]any{"b": nil, "a": 1.5, "": "x"},
		map[any]any{"b": nil, "a": 1.5, "": "x"},
	} {
		n := nodeOf(t, v)
		require.Equal(t, []string{"", "a", "b"}, n.Names(), "sorted")
		got, ok := n.Get("b")
		require.True(t, ok, "nil is a value")
		require.Nil(t, got)
		_, ok = n.Get("c")
		require.False(t, ok)
		require.Equal(t, []string{"1.5", `"x"`, "nil", "nil"}, []string{n.Describe("a"), n.Describe(""), n.Describe("b"), n.Describe("c")})

		name, ok := n.First([]string{"c", "b", "a"})
		require.True(t, ok)
		require.Equal(t, "b", name)
		_, ok = n.First([]string{"c"})
		require.False(t, ok)
		for range n.all() {
			break // a caller may stop
		}
	}
	mixed := nodeOf(t, map[any]any{1: 1, true: 1, namedString("b"): 1, "a": 1})
	require.Equal(t, []string{"a"}, mixed.Names(), "keys that are strings")
	require.Equal(t, 4, mixed.Len())
}

func TestNodePaths(t *testing.T) {
	for _, tt := range []struct {
		path, name string
		want       string
		why        string
	}{
		{"", "limit", "limit", "of the whole config"},
		{"configs[3].algoConfig", "limit", "configs[3].algoConfig.limit", "of a map within it"},
		{"", "user_id-2", "user_id-2", "letters, digits, _ and -"},
		{"at", "a.b", `at["a.b"]`, "a dot"},
		{"at", "a b", `at["a b"]`, "a space"},
		{"at", "a\n", `at["a\n"]`, "a control character"},
		{"at", "é", `at["é"]`, "a letter that is not ASCII"},
		{"at", "", `at[""]`, "no name"},
		{"", "", `[""]`, "no name, of the whole config"},
		{"at", strings.Repeat("x", 40), "at." + strings.Repeat("x", 40), "the longest that stands as it is"},
		{"at", strings.Repeat("x", 41), `at["` + strings.Repeat("x", 41) + `"]`, "a longer one"},
		{"at", strings.Repeat("x", 99), `at["` + strings.Repeat("x", 55) + `..."]`, "one that is cut"},
	} {
		n := &Node{Path: tt.path}
		require.Equal(t, tt.want, n.Field(tt.name), tt.why)
	}
	n := Inline("tiers", "rate", "1/s")
	v, ok := n.Get("rate")
	require.True(t, ok)
	require.Equal(t, "1/s", v)
	require.Equal(t, "tiers", n.Field("rate"), "there is no such field in the config")
	require.Equal(t, "tiers", n.Field("burst"))
}

func TestNodeMisspelt(t *testing.T) {
	n := nodeOf(t, fields{})
	require.False(t, n.Misspelt("a"), "nothing is")
	n.misspelt("a")
	require.True(t, n.Misspelt("a"))
	require.True(t, n.Misspelt("b", "a"), "one of them")
	require.False(t, n.Misspelt("b", "c"))
	require.False(t, n.Misspelt())
}
