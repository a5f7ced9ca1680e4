package connectlimit_test

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit/connectlimit"
)

// TestAPIKey proves which header fields identify a client by its key.
func TestAPIKey(t *testing.T) {
	client := connectlimit.APIKey("x-api-key", func(key string) (client, tier string, ok bool) { return "c:" + key, "paid", key != "unknown" })
	longest := strings.Repeat("k", 512)
	for _, row := range []struct {
		why    string
		values []string
		want   string
	}{
		{"one key", []string{"k-1"}, "c:k-1"},
		{"the longest key", []string{longest}, "c:" + longest},
		{"a key that is too long", []string{longest + "k"}, ""},
		{"no key", nil, ""},
		{"an empty key", []string{""}, ""},
		{"two keys", []string{"k-1", "k-1"}, ""},
	} {
		name, tier, ok := client(&connectlimit.Call{Header: http.Header{"X-Api-Key": row.values}})
		assert.Equal(t, row.want, name, row.why)
		assert.Equal(t, row.want != "", ok, row.why)
		assert.Equal(t, ok, tier == "paid", row.why)
	}
	_, _, ok := client(&connectlimit.Call{Header: http.Header{"X-Api-Key": {"unknown"}}})
	assert.False(t, ok, "lookup decides")
	assert.Panics(t, func() { connectlimit.APIKey("", func(string) (client, tier string, ok bool) { return }) })
	assert.Panics(t, func() { connectlimit.APIKey("X-API-Key", nil) })
}

// TestSkipProcedures proves that only the procedures with exactly these names are skipped.
func TestSkipProcedures(t *testing.T) {
	skip := connectlimit.SkipProcedures("/grpc.health.v1.Health/Check", "/a.B/C")
	for procedure, want := range map[string]bool{
		"/grpc.health.v1.Health/Check": true, "/a.B/C": true, "/grpc.health.v1.Health/Watch": false, "/a.B/C/D": false, "": false,
	} {
		assert.Equal(t, want, skip(&connectlimit.Call{Spec: connect.Spec{Procedure: procedure}}), procedure)
	}
}
