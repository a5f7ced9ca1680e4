package confmap

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withTypo returns a node without fields, one of which was given misspelt.
func withTypo(name string) *Node {
	n := &Node{Path: "at", fields: fields{}}
	n.misspelt(name)
	return n
}

func TestChild(t *testing.T) {
	for _, tt := range []struct {
		n    *Node
		want string
		why  string
	}{
		{nodeOf(t, fields{"f": fields{"x": 1}}), "", "a map"},
		{nodeOf(t, fields{}), "at.f is missing: must be a map", "nothing"},
		{withTypo("f"), "", "nothing, but a misspelt name has been reported"},
		{nodeOf(t, fields{"f": nil}), "at.f is nil: must be a map", "nil"},
		{nodeOf(t, fields{"f": []any{}}), "at.f is a list: must be a map", "a list"},
	} {
		r := reader()
		child, ok := r.Child(tt.n, "f", "must be a map")
		require.Equal(t, tt.want, problems(r), tt.why)
		_, given := tt.n.Get("f")
		require.Equal(t, tt.want == "" && given, ok, tt.why)
		if ok {
			require.Equal(t, "at.f", child.Path)
			require.Equal(t, []string{"x"}, child.Names())
		}
	}
}

func TestText(t *testing.T) {
	long := strings.Repeat("x", MaxText)
	for _, tt := range []struct {
		config fields
		want   string
		err    string
		why    string
	}{
		{fields{"f": "x"}, "x", "", "a string"},
		{fields{"f": namedString("x")}, "x", "", "a string of a named type"},
		{fields{"f": ""}, "", "", "an empty string"},
		{fields{}, "", "", "nothing"},
		{fields{"f": long}, long, "", "the longest string"},
		{fields{"f": long + "x"}, "", `at.f is "` + strings.Repeat("x", 55) + `...": must be at most 1024 bytes long`, "a longer one"},
		{fields{"f": nil}, "", "at.f is nil: must be a string", "nil"},
		{fields{"f": json.Number("5")}, "", "at.f is 5: must be a string", "a json.Number"},
	} {
		r := reader()
		s, ok := r.Text(nodeOf(t, tt.config), "f")
		require.Equal(t, tt.want, s, tt.why)
		require.Equal(t, tt.err == "", ok, tt.why)
		require.Equal(t, tt.err, problems(r), tt.why)
	}
}

func TestChoice(t *testing.T) {
	names := []namedString{"user", "user_endpoint", "ip"}
	for _, tt := range []struct {
		n    *Node
		want namedString
		ok   bool
		err  string
		why  string
	}{
		{nodeOf(t, fields{"key": "ip"}), "ip", true, "", "as it is written"},
		{nodeOf(t, fields{"key": "UserEndpoint"}), "user_endpoint", true, "", "in another spelling"},
		{nodeOf(t, fields{"key": namedString("IP")}), "ip", true, "", "a string of a named type"},
		{nodeOf(t, fields{}), "", true, "", "nothing"},
		{withTypo("key"), "", false, "", "nothing, but a misspelt name"},
		{nodeOf(t, fields{"key": "usr"}), "", false, `at.key is "usr": unknown key; did you mean "user"?`, "a typing error"},
		{nodeOf(t, fields{"key": "x"}), "", false, `at.key is "x": must be one of three`, "another name"},
		{nodeOf(t, fields{"key": "ip" + strings.Repeat("-", MaxName-2)}), "ip", true, "", "the longest that is compared"},
		{nodeOf(t, fields{"key": "ip" + strings.Repeat("-", MaxName-1)}), "", false,
			`at.key is "ip` + strings.Repeat("-", 53) + `...": must be one of three`, "a longer one"},
		{nodeOf(t, fields{"key": 5}), "", false, "at.key is 5: must be one of three", "no string"},
	} {
		r := reader()
		chosen, ok := Choice(r, tt.n, "key", "must be one of three", names)
		require.Equal(t, tt.want, chosen, tt.why)
		require.Equal(t, tt.ok, ok, tt.why)
		require.Equal(t, tt.err, problems(r), tt.why)
	}
}

func TestNumber(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string // the number, or
		err  string
		why  string
	}{
		{5, "5", "", "an int"},
		{json.Number("0.1"), "0.1", "", "a json.Number"},
		{0, "", "at.f is 0: must be above 0", "zero"},
		{-0.5, "", "at.f is -0.5: must be above 0", "below zero"},
		{"5", "", `at.f is "5": must be a number, not a string: drop the quotes`, "in quotes"},
		{" -5e3 ", "", `at.f is " -5e3 ": must be a number, not a string: drop the quotes`, "in quotes, with spaces"},
		{"five", "", `at.f is "five": must be a number of units`, "a word"},
		{nil, "", "at.f is nil: must be a number of units", "nil"},
		{math.NaN(), "", "at.f is NaN: must be a number of units", "not a number"},
	} {
		r := reader()
		x, ok := r.Number(nodeOf(t, fields{"f": tt.v}), "f", "must be a number of units", "must be above 0")
		require.Equal(t, tt.err, problems(r), tt.why)
		require.Equal(t, tt.err == "", ok, tt.why)
		if ok {
			require.Equal(t, tt.want, x.String(), tt.why)
		} else {
			require.Zero(t, x, tt.why)
		}
	}
}

func TestCount(t *testing.T) {
	limit := strconv.Itoa(math.MaxInt)
	for _, tt := range []struct {
		v    any
		want int // or
		err  string
		why  string
	}{
		{1, 1, "", "the least"},
		{3.0, 3, "", "a whole float"},
		{json.Number("1e3"), 1000, "", "with an exponent"},
		{math.MaxInt, math.MaxInt, "", "the most"},
		{uint64(math.MaxInt) + 1, 0, "must be at most " + limit, "one more than the most"},
		{1e300, 0, "must be at most " + limit, "far more"},
		{json.Number("1e400"), 0, "must be at most " + limit, "beyond a float"},
		{0.5, 0, "must be a whole number, at least 1", "a half"},
		{json.Number("3.0000000000000000000001"), 0, "must be a whole number, at least 1", "nearly whole"},
		{0, 0, "must be at least 1", "none"},
		{-1, 0, "must be at least 1", "below none"},
		{true, 0, "must be a whole number, at least 1", "no number"},
	} {
		r := reader()
		require.Equal(t, tt.want, r.Count(nodeOf(t, fields{"f": tt.v}), "f"), tt.why)
		if tt.err != "" {
			tt.err = "at.f is " + Describe(tt.v) + ": " + tt.err
		}
		require.Equal(t, tt.err, problems(r), tt.why)
	}
}
