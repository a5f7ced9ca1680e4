package httplimit

import "net/http"

// maxKey is the length of the longest API key that is looked up.
const maxKey = 512

// APIKey returns a function for [Config.Client]: the client and its tier are those that lookup
// returns for the value of the header field, which is the key. A request has no such identity,
// and its address counts, if the field is missing, repeated or longer than 512 bytes, or if
// lookup returns false. A key that nobody has looked up would be a fresh budget for everybody
// who makes one up. APIKey panics if header is empty or lookup is nil.
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

// SkipPaths returns a function for [Config.Skip] that returns true for requests whose path is
// one of these, byte by byte, such as "/healthz".
func SkipPaths(exact ...string) func(*http.Request) bool {
	paths := make(map[string]bool, len(exact))
	for _, path := range exact {
		paths[path] = true
	}
	return func(r *http.Request) bool { return paths[r.URL.Path] }
}

// Preflight is a function for [Config.Skip] that returns true for the requests by which
// browsers ask whether a script of another origin may send one. Anybody can send as many of
// them as he likes, so they should cost nothing then.
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}
