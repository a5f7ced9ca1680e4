package accesslog

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

// Routes finds the endpoint of a request as httplimit does by default: the endpoint is the path of the pattern that matches
// the request, such as "/users/{id}". The patterns have the syntax of [http.ServeMux].
type Routes struct {
	mux      *http.ServeMux
	known    map[string]bool   // the patterns that noMethod has
	noMethod *http.ServeMux    // the patterns of mux without their methods, for logs that have no methods
	kept     map[string]string // endpoints of some requests
	key      []byte
}

// maxRoutesKept is the largest number of requests whose endpoints Routes keeps.
const maxRoutesKept = 1 << 16

// Add adds a pattern, such as "/users/{id}" or "POST /login".
func (r *Routes) Add(pattern string) (err error) {
	if r.mux == nil {
		r.mux, r.noMethod = http.NewServeMux(), http.NewServeMux()
		r.known, r.kept = make(map[string]bool), make(map[string]string)
	}
	if err := handle(r.mux, pattern); err != nil {
		return err
	}
	path := strings.TrimLeft(pattern[strings.IndexAny(pattern, " \t")+1:], " \t")
	if !r.known[path] {
		r.known[path] = true
		_ = handle(r.noMethod, path) // fails if two patterns conflict without their methods; the earlier one stays then
	}
	return nil
}

// handle adds a pattern to a ServeMux. If the pattern is wrong or conflicts with another one, the ServeMux panics, and
// handle returns an error.
func handle(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			text, _, _ := strings.Cut(fmt.Sprint(reason), "\n")
			text = strings.TrimPrefix(text, fmt.Sprintf("parsing %q: ", pattern))
			err = fmt.Errorf("%q is no pattern of http.ServeMux: %s", pattern, text)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

// The type request has the parts of an HTTP request that select its route.
type request struct {
	method, host, target []byte // the method is empty if the log does not have it
}

// endpoint returns the endpoint of a request. If no pattern matches the request, the endpoint is "unmatched".
func (r *Routes) endpoint(q *request) string {
	r.key = append(append(append(r.key[:0], q.method...), ' '), q.host...)
	r.key = append(append(r.key, ' '), q.target...)
	if name, ok := r.kept[string(r.key)]; ok {
		return name
	}
	asked := &http.Request{Method: string(q.method), Host: string(q.host)}
	mux := r.mux
	if asked.Method == "" {
		asked.Method, mux = http.MethodGet, r.noMethod
	}
	name := "unmatched"
	if u, err := url.ParseRequestURI(string(q.target)); err == nil {
		asked.URL = u
		name = httplimit.Route(mux)(asked)
	}
	if len(r.kept) >= maxRoutesKept {
		clear(r.kept)
	}
	r.kept[string(r.key)] = name
	return name
}

// methodIn returns the method of a request line, such as GET, or nothing if text is no request line.
func methodIn(text []byte) []byte {
	if i := bytes.IndexByte(text, ' '); i > 0 && text[0] != '/' {
		return text[:i]
	}
	return nil
}

// withoutQuery removes the query from a path. If the text is a URL, withoutQuery returns only the path of the URL. It returns
// any other text unchanged.
func withoutQuery(text []byte) []byte {
	if len(text) > 0 && text[0] == '/' || bytes.Contains(text, []byte("://")) && bytes.IndexByte(text, ' ') < 0 {
		return pathIn(text)
	}
	return text
}
