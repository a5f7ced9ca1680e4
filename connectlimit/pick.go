package connectlimit

import (
	"net/http"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

// APIKey returns a function for Config.Client that identifies clients by an API key in this header field. If lookup
// returns false, or the field is missing, repeated or longer than 512 bytes, the address identifies the client. The
// function lookup must return false for unknown keys. APIKey panics if header is empty or lookup is nil.
func APIKey(header string, lookup func(key string) (client, tier string, ok bool)) func(*Call) (client, tier string, ok bool) {
	pick := httplimit.APIKey(header, lookup)
	return func(c *Call) (client, tier string, ok bool) { return pick(&http.Request{Header: c.Header}) }
}

// SkipProcedures returns a function for Config.Skip that returns true for calls of these procedures, such as
// "/grpc.health.v1.Health/Check".
func SkipProcedures(exact ...string) func(*Call) bool {
	procedures := make(map[string]bool, len(exact))
	for _, procedure := range exact {
		procedures[procedure] = true
	}
	return func(c *Call) bool { return procedures[c.Spec.Procedure] }
}
