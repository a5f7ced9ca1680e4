package httplimit

import "net/http"

// maxKey is the maximum length in bytes of an API key.
const maxKey = 512

// APIKey returns a function for [Config.Client] that identifies clients by an API key in this header
// field. The function lookup returns the client and the tier for a key. If lookup returns false, or the
// field is missing, repeated or longer than 512 bytes, the address identifies the client.
//
// The function lookup must return false for unknown keys. Otherwise a client could get a new budget with
// each key that it invents. APIKey panics if header is empty or lookup is nil.
func APIKey(header string, lookup func(key string) (client, tier string, ok bool)) func(*http.Request) (client, tier string, ok bool) {
	if header == "" || lookup == nil {
		panic("httplimit: APIKey needs the name of a header field and a lookup")
	}
	header = http.CanonicalHeaderKey(header)
	return func(r *http.Request) (client, tier string, ok bool) {
		values := r.Header[header]
		if len(values) != 1 || values[0] == "" || len(values[0]) > maxKey {
			return "", "", false
		}
		return lookup(values[0])
	}
}

// SkipPaths returns a function for [Config.Skip] that returns true for requests whose URL path equals
// one of these paths exactly, such as "/healthz".
func SkipPaths(exact ...string) func(*http.Request) bool {
	paths := make(map[string]bool, len(exact))
	for _, path := range exact {
		paths[path] = true
	}
	return func(r *http.Request) bool { return paths[r.URL.Path] }
}

// Preflight is a function for [Config.Skip] that returns true for CORS preflight requests, with which
// browsers ask whether a script of another origin may send a request. With this Skip, preflight requests
// are not limited at all, so the server should answer them cheaply.
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}
