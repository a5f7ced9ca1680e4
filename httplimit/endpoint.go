package httplimit

import (
	"net/http"
	"path"
	"strings"
)

// A Router finds the pattern that matches a request, without serving the request.
// [*http.ServeMux] is a Router.
type Router interface {
	// Handler returns the handler for r, and the pattern that matches r.
	// The pattern is empty if no pattern matches.
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// unmatched is the endpoint of all requests that no pattern matches. The path of such a request is not used
// as its endpoint, because clients can send any path, and there would be no limit to the number of
// endpoints.
const unmatched = "unmatched"

// Route returns a function for [Config.Endpoint] that returns the path of the pattern that matches a
// request, such as "/users/{id}". The parameter m is the router that will serve the request. If m is nil or no
// pattern of m matches, the function uses [http.Request.Pattern], which an outer router may have set. Without any
// pattern, the function returns "unmatched". It never returns the path of the URL, because a client can
// write the same path in many ways.
func Route(m Router) func(*http.Request) string {
	return func(r *http.Request) string { return pathOf(patternOf(m, r)) }
}

// Pattern returns a function for [Config.Endpoint] that returns the whole pattern that matches a
// request, such as "GET /users/{id}", with the method and the host if the pattern has them. The
// function finds the pattern as [Route] does.
func Pattern(m Router) func(*http.Request) string {
	return func(r *http.Request) string {
		if pattern := patternOf(m, r); pattern != "" {
			return pattern
		}
		return unmatched
	}
}

// Fixed returns a function for [Config.Endpoint] that returns the given name for every request.
func Fixed(name string) func(*http.Request) string {
	return func(*http.Request) string { return name }
}

// patternOf returns the pattern of m that matches the request r. If no pattern of m matches, it returns
// r.Pattern, which may be empty.
func patternOf(m Router, r *http.Request) string {
	if m != nil {
		if pattern := handlerPattern(m, r); pattern != "" {
			return pattern
		}
	}
	return r.Pattern
}

// handlerPattern returns the pattern that m.Handler returns for r, with one exception. If a ServeMux redirects
// a CONNECT request from a path such as /a to /a/, m.Handler returns the path /a/ in place of a pattern. Since
// clients can send any path, handlerPattern then returns the pattern that matches a request for /a/.
func handlerPattern(m Router, r *http.Request) string {
	_, pattern := m.Handler(r)
	if r.Method == http.MethodConnect && r.URL != nil && pattern == path.Clean("/"+r.URL.Path)+"/" {
		to, asked := *r.URL, *r
		to.Path, to.RawPath = pattern, ""
		asked.URL = &to
		_, pattern = m.Handler(&asked)
	}
	return pattern
}

// pathOf returns the path of a pattern, without the method and the host. It returns "unmatched" if the
// pattern has no path.
func pathOf(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		return pattern[i:]
	}
	return unmatched
}

// routeOf returns a function that returns the path of the pattern of m that matches a request. Unlike Route, it
// ignores a pattern that an outer router has set in the request. The router m is the next handler.
func routeOf(m Router) func(*http.Request) string {
	return func(r *http.Request) string {
		return pathOf(handlerPattern(m, r))
	}
}
