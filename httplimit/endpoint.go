package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// A Router finds the pattern that matches a request, without serving the request.
// [*http.ServeMux] is a Router.
type Router interface {
	// Handler returns the handler for r, and the pattern that matches r.
	// The pattern is empty if none matches.
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// unmatched is the endpoint of all requests that no pattern matches. The path of such a request is not used
// as its endpoint, because clients can send any path, and there would be no limit to the number of
// endpoints.
const unmatched = "unmatched"

// Route returns a function for [Config.Endpoint] that returns the path of the pattern that matches a
// request, such as "/users/{id}". m is the router that will serve the request. If m is nil or no pattern of
// m matches, the function uses [http.Request.Pattern], which an outer router may have set. Without any
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

// Fixed returns a function for [Config.Endpoint] that returns name for every request.
func Fixed(name string) func(*http.Request) string {
	return func(*http.Request) string { return name }
}

// patternOf returns the pattern of m that matches the request r. If there is none, it returns r.Pattern,
// which may be empty.
func patternOf(m Router, r *http.Request) string {
	if m != nil {
		if pattern := handlerPattern(m, r); pattern != "" {
			return pattern
		}
	}
	return r.Pattern
}

// handlerPattern returns the pattern that matches r. It gets this pattern from m.Handler, with one exception:
// if a ServeMux redirects a CONNECT request to the path with a slash at its end, m.Handler returns this path in
// place of a pattern. The client has chosen the path, so handlerPattern returns the pattern that matches it.
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

// pathOf returns the path of a pattern, without the method and the host. It returns unmatched if the
// pattern has no path.
func pathOf(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		return pattern[i:]
	}
	return unmatched
}

// routeOf returns a function that does what the function returned by Route(m) does, with one difference: it
// ignores a pattern that an outer router has set in the request. The router m is the next handler.
func routeOf(m Router) func(*http.Request) string {
	return func(r *http.Request) string {
		return pathOf(handlerPattern(m, r))
	}
}

// Check returns an error that names each rule whose Endpoint matches no route of mux. Such a rule
// limits nothing; usually, its Endpoint is misspelled. Call Check in a test. [Middleware.Handler] logs
// the same error if its next handler is a Router and [Config.Endpoint] is nil.
//
// For each rule, Check asks mux for the route of a request with the path in the Endpoint of the rule.
// If the Endpoint names no method, Check does so with each of the standard methods. It does not check a
// rule whose Endpoint is a prefix, because a Router cannot list its patterns. If the only route for the
// Endpoint "/users" has a host in its pattern, such as "example.com/users", Check does not find that
// route, and names the rule although the rule is right. It finds the route if the Endpoint includes the
// host.
func (m *Middleware) Check(mux Router) error {
	endpoint := m.config.Endpoint
	if endpoint == nil {
		endpoint = Route(nil)
	}
	var problems []error
	rules, _ := m.limiter.Rules()
	for _, rule := range rules {
		if rule.Endpoint != "" && !strings.HasSuffix(rule.Endpoint, "*") && !gives(mux, endpoint, rule.Endpoint) {
			problems = append(problems, fmt.Errorf("httplimit: rule %q limits nothing: no route gives its endpoint %q", rule.Name, rule.Endpoint))
		}
	}
	return errors.Join(problems...)
}

var methods = []string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace,
}

// gives reports whether the function endpoint returns want for some request to mux. To find out, it uses
// want as the path of a request: the path "/users/{id}" itself matches the pattern "/users/{id}".
func gives(mux Router, endpoint func(*http.Request) string, want string) bool {
	if want == unmatched {
		return true
	}
	asked, text := methods, want
	if method, rest, found := strings.Cut(want, " "); found {
		asked, text = []string{method}, strings.TrimLeft(rest, " \t")
	}
	host, target := "", text
	if i := strings.IndexByte(text, '/'); i > 0 {
		host, target = text[:i], text[i:]
	}
	target = strings.TrimSuffix(target, "{$}")
	for _, method := range asked {
		r := &http.Request{
			Method: method, Host: host, URL: &url.URL{Path: target}, RequestURI: target, Header: http.Header{},
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
		}
		_, r.Pattern = mux.Handler(r)
		if endpoint(r) == want {
			return true
		}
	}
	return false
}
