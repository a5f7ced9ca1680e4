package confmap

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestEqual proves that values are compared by what they mean in a config: a number by its
// value, a map or list by its values.
func TestEqual(t *testing.T) {
	type object = map[string]any
	self := object{}
	self["self"] = self
	for _, row := range []struct {
		a, b any
		want bool
		why  string
	}{
		{10, int64(10), true, "two types of integers"},
		{10, uint8(10), true, "without a sign"},
		{10, 10.0, true, "what a JSON decoder makes of it"},
		{10, json.Number("10"), true, "and one that keeps the text"},
		{10, json.Number("1e1"), true, "in other words"},
		{0.1, json.Number("0.10"), true, "a fraction"},
		{float32(0.1), 0.1, true, "a float of fewer digits"},
		{math.Copysign(0, -1), 0, true, "there is one zero"},
		{int64(math.MaxInt64), float64(math.MaxInt64), false, "which a float64 cannot hold"},
		{10, -10, false, "the sign counts"},
		{10, 11, false, "another number"},
		{10, "10", false, "a text is no number"},
		{"10", json.Number("10"), false, "nor the other way round"},
		{time.Second, 1_000_000_000, false, "a Duration has a unit"},
		{time.Second, time.Second, true, "the same Duration"},
		{math.Inf(1), math.Inf(1), true, "no number of a config, but the same"},
		{nil, nil, true, "nothing"},
		{nil, 0, false, "nothing is not 0"},
		{0, nil, false, "nor is 0 nothing"},
		{true, true, true, "a bool"},
		{"a", "b", false, "two texts"},
		{object{"a": 1, "b": "x"}, object{"b": "x", "a": 1.0}, true, "the order of fields does not matter"},
		{object{"a": 1}, map[string]int{"a": 1}, true, "nor the type of a map"},
		{object{"a": 1}, map[any]any{"a": 1}, true, "nor that of its keys"},
		{object{"a": 1}, map[any]any{1: 1}, false, "another key"},
		{object{"a": 1}, object{"a": 1, "b": 2}, false, "one field more"},
		{object{"a": nil}, object{"b": nil}, false, "another field"},
		{object{"a": nil}, object{"a": nil}, true, "a field that is nil"},
		{object{}, object(nil), false, "an empty map is given, a nil map is not"},
		{[]any{1, "x"}, []any{1.0, "x"}, true, "a list"},
		{[]any{1, 2}, []int{1, 2}, true, "of another type"},
		{[]any{1, 2}, []any{2, 1}, false, "its order matters"},
		{[]any{1}, []any{1, 2}, false, "its length matters"},
		{[]any{}, []any(nil), false, "an empty list is given, a nil list is not"},
		{[]any{}, object{}, false, "a list is no map"},
		{object{"a": []any{object{"b": 1}}}, object{"a": []any{object{"b": 1.0}}}, true, "deep inside"},
		{object{"a": []any{object{"b": 1}}}, object{"a": []any{object{"b": 2}}}, false, "deep inside"},
		{func() {}, func() {}, false, "functions cannot be compared"},
		{self, self, false, "a map that contains itself"},
	} {
		assert.Equal(t, row.want, Equal(row.a, row.b), "%v and %v: %s", row.a == nil, row.b == nil, row.why)
		assert.Equal(t, row.want, Equal(row.b, row.a), "the other way round: %s", row.why)
	}
}

// TestSame proves that values whose type has no == are told apart by the pointers in them.
func TestSame(t *testing.T) {
	type holder struct {
		list []int
		more any
		two  [2]func()
	}
	one, other := new(int), new(int)
	list, m, f, g := []int{1, 2}, map[string]int{}, func() { *one++ }, func() { *other++ }
	for _, row := range []struct {
		a, b any
		want bool
		why  string
	}{
		{nil, nil, true, "nothing"},
		{nil, one, false, "nothing and a pointer"},
		{one, one, true, "a pointer"},
		{one, other, false, "another pointer to an equal value"},
		{1, int64(1), false, "another type"},
		{list, list, true, "a list"},
		{list, list[:1], false, "a part of it"},
		{list, []int{1, 2}, false, "an equal list"},
		{m, m, true, "a map"},
		{m, map[string]int{}, false, "an equal map"},
		{f, f, true, "a function"},
		{f, g, false, "another function"},
		{holder{list, m, [2]func(){f, g}}, holder{list, m, [2]func(){f, g}}, true, "all fields"},
		{holder{list, m, [2]func(){f, g}}, holder{list, m, [2]func(){f, f}}, false, "deep inside"},
		{holder{list, list, [2]func(){}}, holder{list, m, [2]func(){}}, false, "another type inside"},
		{holder{list, nil, [2]func(){}}, holder{list, m, [2]func(){}}, false, "nothing inside"},
	} {
		assert.Equal(t, row.want, Same(row.a, row.b), row.why)
		assert.Equal(t, row.want, Same(row.b, row.a), "the other way round: %s", row.why)
	}
}
