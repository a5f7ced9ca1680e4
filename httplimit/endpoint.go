package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// A Router says which of its patterns matches a request, without serving it.
// [*http.ServeMux] is one.
type Router interface {
	// Handler returns the handler for r, and the pattern that has matched.
	// The pattern is empty if there is none.
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// unmatched is the endpoint of the requests that no pattern matches. The paths of these are
// texts of the client's, and would be an endlessness of endpoints.
const unmatched = "unmatched"

// Route returns a function for [Config.Endpoint] that names a request by the path of the
// pattern that matches it, such as "/users/{id}". m is the router that will serve the request;
// if it is nil or matches nothing, [http.Request.Pattern] counts, which is set within a
// router. Without a pattern, the name is "unmatched". It is never the path of the URL, which
// a client can spell in many ways.
func Route(m Router) func(*http.Request) string {
	return func(r *http.Request) string { return pathOf(patternOf(m, r)) }
}

// Pattern returns a function for [Config.Endpoint] that names a request by the whole pattern
// that matches it, such as "GET /users/{id}", with the method and host if it has them. It
// finds the pattern as [Route] does.
func Pattern(m Router) func(*http.Request) string {
	return func(r *http.Request) string {
		if pattern := patternOf(m, r); pattern != "" {
			return pattern
		}
		return unmatched
	}
}

// Fixed returns a function for [Config.Endpoint] that gives every request this name.
func Fixed(name string) func(*http.Request) string {
	return func(*http.Request) string { return name }
}

// patternOf returns the pattern that matches r, or an empty text.
func patternOf(m Router, r *http.Request) string {
	if m != nil {
		if _, pattern := m.Handler(r); pattern != "" {
			return pattern
		}
	}
	return r.Pattern
}

// pathOf returns the path of a pattern, which may have a method and a host before it.
func pathOf(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		return pattern[i:]
	}
	return unmatched
}

// routeOf is Route for a handler that will serve the request itself. What an outer router has
// matched does not count then.
func routeOf(m Router) func(*http.Request) string {
	return func(r *http.Request) string {
		_, pattern := m.Handler(r)
		return pathOf(pattern)
	}
}

// Check returns an error that names each rule whose Endpoint no route of mux gives, so that it
// limits nothing, as after a typing mistake. It is for a test. [Middleware.Handler] logs the
// same if its next handler is a Router and [Config.Endpoint] is nil.
//
// It asks mux for the rule's own text as a path, by the usual methods. Rules for a prefix are
// not checked, because a Router does not list its patterns. A rule that only a pattern with a
// host gives is named, unless the rule's text has the host too.
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

// gives reports whether endpoint names a request that matches a pattern of mux want. A pattern
// matches its own text as a path: "{id}" matches a wildcard.
func gives(mux Router, endpoint func(*http.Request) string, want string) bool {
	if want == unmatched {
		return true
	}
	asked, text := methods, want
	if method, rest, found := strings.Cut(want, " "); found {
		asked, text = []string{method}, strings.TrimLeft(rest, " \t")
	}
	host, path := "", text
	if i := strings.IndexByte(text, '/'); i > 0 {
		host, path = text[:i], text[i:]
	}
	path = strings.TrimSuffix(path, "{$}")
	for _, method := range asked {
		r := &http.Request{
			Method: method, Host: host, URL: &url.URL{Path: path}, RequestURI: path, Header: http.Header{},
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
		}
		_, r.Pattern = mux.Handler(r)
		if endpoint(r) == want {
			return true
		}
	}
	return false
}
