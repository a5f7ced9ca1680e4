package confmap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	testSchema  = NewSchema([]string{"maxRequests", "key"}, map[string]string{"keyType": "key", "requests_per_window": "maxRequests"})
	otherSchema = NewSchema([]string{"rate", "burst"}, nil)
)

func TestSchema(t *testing.T) {
	for _, tt := range []struct{ name, want, why string }{
		{"maxRequests", "maxRequests", "its own name"},
		{"max_requests", "maxRequests", "in lower case"},
		{"MAX-REQUESTS", "maxRequests", "in upper case"},
		{"requestsPerWindow", "maxRequests", "an alias"},
		{"key_type", "key", "an alias in another spelling"},
		{"_k_e_y_" + strings.Repeat("-", MaxName-7), "key", "the longest name that is read"},
		{"_k_e_y_" + strings.Repeat("-", MaxName-6), "", "a longer one"},
		{"keys", "", "another name"},
		{"", "", "no name"},
		{"_-", "", "nothing but what is not read"},
	} {
		field, ok := testSchema.Field(tt.name)
		require.Equal(t, tt.want, field, tt.why)
		require.Equal(t, tt.want != "", ok, tt.why)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { testSchema.Field("MAX_REQUESTS") }))
}

func noHint(string, any) (reason string, meant []string) { return "", nil }

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		config any
		key    any    // the value of the field key
		path   string // its path
		err    string
		why    string
	}{
		{fields{"key": 1}, 1, "at.key", "", "its own name"},
		{fields{"KEY": 1}, 1, "at.KEY", "", "another spelling"},
		{fields{"key_type": 1}, 1, "at.key_type", "", "an alias"},
		{map[string]int{"Key": 1}, 1, "at.Key", "", "in a map of numbers"},
		{map[any]any{"Key": 1}, 1, "at.Key", "", "in a map of an old YAML decoder"},
		{map[namedString]any{"Key": 1}, 1, "at.Key", "", "in a map with keys of a named type"},
		{fields{"maxRequests": 1}, nil, "at.key", "", "missing"},
		{fields{"key": 1, "KEY": 2, "Key": 3, "keyType": 4}, 1, "at.key", "at.KEY is 2: must not stand beside key: give one of them\n" +
			"at.Key is 3: must not stand beside key: give one of them\n" +
			"at.keyType is 4: must not stand beside key: give one of them", "its own name comes first"},
		{fields{"Key": 1, "keyType": 2, "KEY": 3}, 3, "at.KEY", "at.Key is 1: must not stand beside KEY: give one of them\n" +
			"at.keyType is 2: must not stand beside KEY: give one of them", "and then the alphabet"},
		{fields{"rate": 1, "Burst": 2, "BURST": 3}, nil, "at.key",
			"at.BURST is 3: unknown field\nat.Burst is 2: unknown field\nat.rate is 1: unknown field", "fields that are dropped"},
	} {
		for range 20 { // maps have no order
			r, n := reader(), nodeOf(t, tt.config)
			n.Match(testSchema, otherSchema)
			n.Drop(otherSchema)
			r.Unknown(n, testSchema.Fields, noHint)
			v, ok := n.Get("key")
			require.Equal(t, tt.key, v, tt.why)
			require.Equal(t, tt.key != nil, ok, tt.why)
			require.Equal(t, ok, n.Has("key"), tt.why)
			require.Equal(t, tt.path, n.Field("key"), tt.why)
			require.Equal(t, tt.path, "at."+n.Written("key"), tt.why)
			require.Equal(t, tt.err, problems(r), tt.why)
		}
	}
}

func TestRename(t *testing.T) {
	n := nodeOf(t, fields{"RATE": 1, "burst": 2})
	n.Match(testSchema, otherSchema)
	n.Rename("rate", "maxRequests")
	v, _ := n.Get("maxRequests")
	require.Equal(t, 1, v)
	require.Equal(t, "at.RATE", n.Field("maxRequests"))
	require.False(t, n.Has("rate"))
	n.Rename("burst", "")
	require.False(t, n.Has("burst"))
}

// TestHint has hints that take the place of the default reason for an unknown field.
func TestHint(t *testing.T) {
	r, n := reader(), nodeOf(t, fields{"window": "1m", "key": 1, "Key": 2, "x": 3})
	n.Match(testSchema)
	r.Unknown(n, testSchema.Fields, func(name string, v any) (string, []string) {
		if name == "x" {
			return "", nil
		}
		return fmt.Sprint("hinted at ", v), []string{"maxRequests"}
	})
	require.Equal(t, "at.Key is 2: hinted at 2\nat.window is \"1m\": hinted at 1m\nat.x is 3: unknown field", problems(r))
	require.True(t, n.Misspelt("maxRequests"))
	require.False(t, n.Misspelt("key"))
}
