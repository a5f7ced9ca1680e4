package confmap

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnknown(t *testing.T) {
	known, elsewhere := []string{"capacity", "rate"}, []string{"endpoint", "rat"}
	for _, tt := range []struct {
		config any
		want   string // the problems
		typos  []string
		why    string
	}{
		{fields{}, "", nil, "no fields"},
		{fields{"rate": 1, "capacity": 2}, "", nil, "known fields"},
		{fields{"x": 1}, "at.x is 1: unknown field", nil, "an unknown field"},
		{fields{"y": 1, "a b": 2, "x": 3}, "at[\"a b\"] is 2: unknown field\nat.x is 3: unknown field\nat.y is 1: unknown field", nil,
			"in order"},
		{fields{"capcity": 1}, `at.capcity is 1: unknown field; did you mean "capacity"?`, []string{"capacity"}, "a typing error"},
		{fields{"Capacity": 1, "RA_TE": 2}, "", nil, "fields in other spellings"},
		{fields{"endpoint": 1}, "at.endpoint is 1: unknown field; it belongs there", nil, "a field of another map"},
		{fields{"rat": 1}, "at.rat is 1: unknown field; it belongs there", nil, "of another map, though it is nearly a known one"},
		{map[any]any{"rate": 1, 2: 3, true: nil}, "at[2] is 3: must have a string for its key\n" +
			"at[true] is nil: must have a string for its key", nil, "keys that are not strings"},
		{map[any]any{namedString("rate"): 1}, `at["rate"] is 1: must have a string for its key`, nil, "a key of a named type"},
		{map[any]any{int8(1): "b", 1: "a", "1": "c"}, "at.1 is \"c\": unknown field\n" +
			"at[1] is \"a\": must have a string for its key\nat[1] is \"b\": must have a string for its key", nil,
			"keys that look alike are in order of their types, strings first"},
	} {
		r, n := reader(), nodeOf(t, tt.config)
		n.Match(NewSchema(known, nil))
		r.Unknown(n, known, func(name string, _ any) (string, []string) {
			if slices.Contains(elsewhere, name) {
				return "unknown field; it belongs there", nil
			}
			return "", nil
		})
		require.Equal(t, tt.want, problems(r), tt.why)
		for _, name := range known {
			require.Equal(t, slices.Contains(tt.typos, name), n.Misspelt(name), "%s: %s", tt.why, name)
		}
	}
}

func TestStringKeys(t *testing.T) {
	for _, tt := range []struct {
		config any
		want   string
		why    string
	}{
		{fields{"x": 1}, "", "a map of strings"},
		{map[any]any{"x": 1}, "", "strings only"},
		{map[any]any{"x": 1, 2: 3, 1: 4}, "at[1] is 4: must have a string for its key\nat[2] is 3: must have a string for its key",
			"two that are not"},
		{map[any]any{nil: 1}, "at[nil] is 1: must have a string for its key", "nil"},
	} {
		r := reader()
		r.Reject("other", "wrong", "before")
		require.Equal(t, tt.want == "", r.StringKeys(nodeOf(t, tt.config)), tt.why)
		require.Equal(t, strings.TrimSuffix("other is wrong: before\n"+tt.want, "\n"), problems(r), tt.why)
	}
}

// TestManyStrays has more stray fields than are listed.
func TestManyStrays(t *testing.T) {
	for _, n := range []int{MaxProblems, MaxProblems + 1, 4*MaxProblems - 1, 4 * MaxProblems, 4*MaxProblems + 1, 10_000} {
		unknown, mixed := fields{"known": 1}, map[any]any{"known": 1}
		var lines, keys []string
		for i := range n {
			name := fmt.Sprintf("f%05d", i)
			unknown[name] = i
			mixed[[1]string{name}] = i // all look alike
			lines = append(lines, fmt.Sprintf("at.%s is %d: unknown field", name, i))
			keys = append(keys, "at[a list] is ")
		}
		end := ""
		if n > MaxProblems {
			end = fmt.Sprintf("\nand %d more", n-MaxProblems)
		}
		r := reader()
		node := nodeOf(t, unknown)
		node.Match(NewSchema([]string{"known"}, nil))
		r.Unknown(node, []string{"known"}, func(string, any) (string, []string) { return "", nil })
		require.Equal(t, strings.Join(lines[:MaxProblems], "\n")+end, problems(r), n)
		require.Equal(t, n, r.Found())

		r = reader()
		require.False(t, r.StringKeys(nodeOf(t, mixed)))
		got := strings.Split(problems(r), "\n")
		for i, prefix := range keys[:MaxProblems] {
			require.True(t, strings.HasPrefix(got[i], prefix), got[i])
		}
		require.Equal(t, n, r.Found())
	}
}

// TestShortlist compares a shortlist with a list of all strays that is sorted.
func TestShortlist(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n, different := random.IntN(8*MaxProblems), 1+random.IntN(2000)
		var l shortlist
		var all []stray
		for range n {
			s := stray{name: fmt.Sprint(random.IntN(different)), kind: string(rune('a' + random.IntN(3)))}
			l.add(s)
			all = append(all, s)
			require.Less(t, len(l.strays), 4*MaxProblems)
		}
		r := reader()
		slices.SortFunc(all, stray.compare)
		want := all[:min(n, MaxProblems)]
		require.True(t, slices.Equal(want, r.listed(&l)), "%d of %d", n, different)
		require.Equal(t, n-len(want), r.Found())
	}
}
