package verify

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/ratefield"
)

// exhausted is ratefield.Exhausted by the parser of httpsfv.
func exhausted(lines []string, most int64) (seconds int64, ok bool) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return 0, false
	}
	for _, member := range list {
		item, isItem := member.(httpsfv.Item)
		if !isItem {
			return 0, false
		}
		switch item.Value.(type) {
		case string, httpsfv.Token:
		default:
			return 0, false
		}
		number := func(key string) int64 {
			value, _ := item.Params.Get(key)
			if n, isInteger := value.(int64); isInteger && n >= 0 {
				return n
			}
			return -1
		}
		left := number("t")
		if left < 0 {
			left = max(number("w"), 0)
		}
		if (number("r") == 0 || number("a") == 0) && left <= most {
			seconds = max(seconds, left)
		}
	}
	return seconds, true
}

// compareFields compares the two parsers.
func compareFields(t *testing.T, lines []string) {
	t.Helper()
	const most = 1000
	want, wantOK := exhausted(lines, most)
	got, gotOK := ratefield.Exhausted(lines, most)
	require.Equal(t, wantOK, gotOK, "%q", lines)
	require.Equal(t, want, got, "%q", lines)
}

// fieldSeeds are fields with items of each type, and nearly so.
var fieldSeeds = []string{
	`"default";r=0;t=30`, `default;a=0;w=30, "b" ; r=0`, `"a";r=0;t=5,"b";r=9;t=99, c;r=0;t=30`, `"a\"\\";pk=:sdfjLJUOUH==:;r=0;t=7`,
	`"a";x=?1;y=?0;z=@-5;d=-1.125;e=%"f%c3%a0";*-_.9=tok/en:*;r=0;t=3`, `limit=100, remaining=0, reset=30`, `("a" "b";c);r=0;t=9`, `100;w=60`,
	`"a";r=0;t=999999999999999`, `"a";r=0;t=9999999999999999`, `"a";r=0.0;t=3, *;a=-0;t=2`, "\"a\",\t \"b\" ", `"a";r=0;t=1234567890123.1`, `"a";r=0;t=30;t=x;r`,
}

// TestFields compares the parsers on fields that are made of the pieces of others.
func TestFields(t *testing.T) {
	pieces := []string{
		`"a"`, "b", "*", ";", "; ", "r", "a", "t", "w", "=", "0", "-", "1", "30", "999999999999999", ".", ".5", ",", ", ", " ", "\t", `"`, `\`, ":", ":YQ==:", ":Y",
		"?1", "?", "@7", "@", `%"`, "%c3%a0", "(", ")", "\x00", "ü", ";r=0", ";t=30", ";a=0", ";w=7", ";r=0;t=30", "x", "_", "/", "|",
	}
	random := rand.New(rand.NewPCG(7, 7))
	ok, positive := 0, 0
	for range scaled(300_000) {
		var lines []string
		for range 1 + random.IntN(2) {
			var b strings.Builder
			for range random.IntN(8) {
				b.WriteString(pieces[random.IntN(len(pieces))])
			}
			lines = append(lines, b.String())
		}
		compareFields(t, lines)
		if n, valid := ratefield.Exhausted(lines, 1000); valid {
			ok++
			if n > 0 {
				positive++
			}
		}
	}
	t.Logf("%d valid, %d with a hold", ok, positive)
	require.Greater(t, positive, scaled(300_000)/2000)
	for _, seed := range fieldSeeds {
		for i := range seed { // each seed, cut off everywhere and with each byte changed
			compareFields(t, []string{seed[:i], seed[i:]})
			compareFields(t, []string{seed[:i]})
			for _, c := range []byte(` ";=,0a-.:\?%`) {
				compareFields(t, []string{seed[:i] + string(c) + seed[i+1:]})
			}
		}
	}
}

// FuzzField compares the parsers on any field of two lines.
func FuzzField(f *testing.F) {
	for _, seed := range fieldSeeds {
		f.Add(seed, "")
		f.Add(seed, `"z";r=0;t=4`)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		compareFields(t, []string{first, second})
		compareFields(t, []string{first})
	})
}
