package confmap

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFold(t *testing.T) {
	long := strings.Repeat("x", MaxName)
	for _, tt := range []struct {
		name, want string
		why        string
	}{
		{"", "", "no name"},
		{"tokenbucket", "tokenbucket", "as it is"},
		{"TokenBucket", "tokenbucket", "upper case"},
		{"TOKEN_bucket", "tokenbucket", "with _"},
		{"token-bucket", "tokenbucket", "with -"},
		{"_-", "", "nothing else"},
		{"a b", "a b", "a space stays"},
		{"\u212aelvin É", "\u212aelvin É", "only the letters from A to Z have a lower case"},
		{long + "yz", long, "no more is looked at"},
		{"-" + long, long[1:], "also of one with what is left out"},
	} {
		require.Equal(t, tt.want, Fold(tt.name), tt.why)
	}
}

func TestNearest(t *testing.T) {
	algorithms := []namedString{"FixedWindow", "LeakyBucket", "SlidingWindowCounter", "SlidingWindowLog", "TokenBucket"}
	short := []namedString{"ip", "user", "used", namedString(strings.Repeat("x", 50)), namedString(strings.Repeat("y", 51))}
	for _, tt := range []struct {
		name  string
		names []namedString
		want  namedString
		why   string
	}{
		{"TokenBuckt", algorithms, "TokenBucket", "a letter is missing"},
		{"TokennBucket", algorithms, "TokenBucket", "one is too many"},
		{"TokenBuckat", algorithms, "TokenBucket", "one is wrong"},
		{"TokenBukcet", algorithms, "TokenBucket", "two are in the wrong order"},
		{"token_bukcet", algorithms, "TokenBucket", "in another spelling"},
		{"TokenBucket", algorithms, "TokenBucket", "no error"},
		{"SlidngWindwLg", algorithms, "SlidingWindowLog", "three errors in thirteen letters"},
		{"bucket", algorithms, "LeakyBucket", "the first that it is a part of"},
		{"leak", algorithms, "LeakyBucket", "a part of four letters"},
		{"log", algorithms, "", "a part, but too short"},
		{"window", algorithms, "FixedWindow", "a part of three"},
		{"xxxxxxxxxx", algorithms, "", "nothing alike"},
		{"", algorithms, "", "no name"},
		{"_", algorithms, "", "nothing that counts"},
		{"TokenBucket" + strings.Repeat("-", 40), algorithms, "", "too long to be compared"},
		{"usr", short, "user", "one error in three letters"},
		{"endpnt", []namedString{"endpoint"}, "endpoint", "two errors in six letters"},
		{"xndpnt", []namedString{"endpoint"}, "", "three errors in six letters"},
		{"userxx", short, "user", "two letters too many"},
		{"usex", short, "user", "the first of two as near"},
		{"xy", short, "", "two errors in two letters"},
		{"i", short, "ip", "one error in one letter"},
		{"q", short, "", "one letter, wrong and one missing"},
		{strings.Repeat("x", 48) + "z", short, namedString(strings.Repeat("x", 50)), "the longest that is compared"},
		{strings.Repeat("y", 50), short, namedString(strings.Repeat("y", 51)), "a longer one, of which it is a part"},
		{strings.Repeat("y", 49) + "z", short, "", "which is not compared letter by letter"},
		{"user", nil, "", "no names"},
	} {
		require.Equal(t, tt.want, Nearest(tt.name, tt.names), tt.why)
	}
}

// TestTypingErrors compares the number of errors with the slow way to count them.
func TestTypingErrors(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
		why  string
	}{
		{"", "", 0, "nothing"},
		{"", "abc", 3, "all are missing"},
		{"abc", "", 3, "all are too many"},
		{"abc", "abd", 1, "a wrong letter"},
		{"abc", "acb", 1, "two in the wrong order"},
		{"abcd", "badc", 2, "twice"},
		{"ca", "abc", 3, "a letter between two in the wrong order is not counted with them"},
		{strings.Repeat("a", 50), strings.Repeat("b", 50), 50, "the longest"},
	} {
		require.Equal(t, tt.want, typingErrors(tt.a, tt.b), tt.why)
	}
	random := rand.New(rand.NewPCG(13, 14))
	word := func() string {
		b := make([]byte, random.IntN(6))
		for i := range b {
			b[i] = "abc"[random.IntN(3)]
		}
		return string(b)
	}
	for range 5000 {
		a, b := word(), word()
		require.Equal(t, slowTypingErrors(a, b), typingErrors(a, b), "%q %q", a, b)
		require.Equal(t, typingErrors(a, b), typingErrors(b, a), "%q %q", a, b)
	}
}

// slowTypingErrors tries each error at the end of a and b.
func slowTypingErrors(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	i, j := len(a)-1, len(b)-1
	wrong := 1
	if a[i] == b[j] {
		wrong = 0
	}
	fewest := min(slowTypingErrors(a[:i], b)+1, slowTypingErrors(a, b[:j])+1, slowTypingErrors(a[:i], b[:j])+wrong)
	if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
		fewest = min(fewest, slowTypingErrors(a[:i-1], b[:j-1])+1)
	}
	return fewest
}

// TestDidYouMean proves that only a name that is near is suggested.
func TestDidYouMean(t *testing.T) {
	names := []string{"login", "search"}
	require.Equal(t, `; did you mean "login"?`, DidYouMean("lgoin", names))
	require.Empty(t, DidYouMean("checkout", names))
}
