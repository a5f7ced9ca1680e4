package confmap

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestTextOf(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string
		ok   bool
		why  string
	}{
		{"x", "x", true, "a string"},
		{"", "", true, "an empty one"},
		{namedString("x"), "x", true, "of a named type"},
		{json.Number("5"), "", false, "a number"},
		{[]byte("x"), "", false, "bytes"},
		{'x', "", false, "a rune"},
		{nil, "", false, "nothing"},
	} {
		s, ok := TextOf(tt.v)
		require.Equal(t, tt.ok, ok, tt.why)
		require.Equal(t, tt.want, s, tt.why)
	}
}

func TestDescribe(t *testing.T) {
	type named int16
	for _, tt := range []struct {
		v    any
		want string
		why  string
	}{
		{nil, "nil", "nothing"},
		{"a\n", `"a\n"`, "a string"},
		{namedString("x"), `"x"`, "a string of a named type"},
		{true, "true", "a bool"},
		{named(-5), "-5", "an integer of a named type"},
		{0.1, "0.1", "a float"},
		{float32(0.1), "0.1", "a short float"},
		{math.Inf(-1), "-Inf", "infinity"},
		{float32(math.NaN()), "NaN", "not a number"},
		{json.Number("1.50"), "1.5", "a json.Number"},
		{json.Number("x"), `"x"`, "a json.Number that is no number"},
		{time.Minute, "1m0s", "a time.Duration"},
		{fields{}, "a map", "a map"},
		{fields(nil), "nil", "a nil map"},
		{[]any{}, "a list", "a list"},
		{[]any(nil), "nil", "a nil list"},
		{[0]int{}, "a list", "an array"},
		{struct{ X int }{}, "a struct { X int }", "a struct"},
		{new(int), "a *int", "a pointer"},
		{complex(1, 0), "a complex128", "a complex number"},
		{struct {
			ALongNameOfAField    int
			AnotherNameOfAField  int
			AndAThirdNameOfAType int
		}{}, "a struct { ALongNameOfAField int; AnotherNameOfAField int...", "a type with a long name"},
	} {
		require.Equal(t, tt.want, Describe(tt.v), tt.why)
		require.LessOrEqual(t, len(Describe(tt.v)), MaxValue, tt.why)
	}
}

func TestQuote(t *testing.T) {
	for _, tt := range []struct {
		s    string
		want string
		why  string
	}{
		{"", `""`, "an empty string"},
		{`a"b\`, `"a\"b\\"`, "with a quote and a backslash"},
		{"\x00\xff\u2028", `"\x00\xff\u2028"`, "nothing printable"},
		{strings.Repeat("x", 55), `"` + strings.Repeat("x", 55) + `"`, "the longest that is not cut"},
		{strings.Repeat("x", 56), `"` + strings.Repeat("x", 55) + `..."`, "a longer one"},
		{strings.Repeat("é", 28), `"` + strings.Repeat("é", 27) + `..."`, "no letter is cut in two"},
		{strings.Repeat("x", 54) + "\x00", `"` + strings.Repeat("x", 54) + `..."`, "nor an escape"},
	} {
		require.Equal(t, tt.want, Quote(tt.s), tt.why)
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		s := randomText(random, 80)
		quoted := Quote(s)
		require.LessOrEqual(t, len(quoted), MaxValue, "%q", s)
		if whole := strconv.Quote(s); len(whole) < MaxValue-len("...") {
			require.Equal(t, whole, quoted)
		}
		beginning, err := strconv.Unquote(quoted)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(s, beginning) || strings.HasPrefix(s, strings.TrimSuffix(beginning, "...")), "%q", s)
	}
}

func TestTruncate(t *testing.T) {
	for _, tt := range []struct {
		s     string
		limit int
		want  string
		why   string
	}{
		{"", 5, "", "an empty string"},
		{"abcde", 5, "abcde", "the longest that is not cut"},
		{"abcdef", 5, "ab...", "a longer one"},
		{"abcéf", 5, "ab...", "a letter that would be cut after its first byte"},
		{"éaéaéa", 6, "éa...", "a letter that would be cut in two"},
		{"a\nb\tc", 9, "a b c", "what is not printable"},
		{"a\u2028b", 9, "a b", "a line separator"},
		{"a\nbcdef", 5, "a ...", "both"},
	} {
		require.Equal(t, tt.want, Truncate(tt.s, tt.limit), tt.why)
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 10_000 {
		s, limit := randomText(random, 80), 3+random.IntN(80)
		got := Truncate(strings.ToValidUTF8(s, "?"), limit)
		require.LessOrEqual(t, len(got), limit, "%q", s)
		require.Equal(t, -1, strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", s)
	}
}

// randomText returns a text of limited length, from letters, control characters and invalid UTF-8.
func randomText(random *rand.Rand, limit int) string {
	var b strings.Builder
	for n := random.IntN(limit + 1); b.Len() < n; {
		switch random.IntN(5) {
		case 0:
			b.WriteByte(byte(random.IntN(256)))
		case 1:
			b.WriteRune(rune(random.IntN(unicode.MaxRune + 1)))
		default:
			b.WriteByte(byte('a' + random.IntN(26)))
		}
	}
	return b.String()
}
