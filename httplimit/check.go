package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/ratelimit-go/ratelimit"
)

// Check returns an error that names each rule whose Endpoint matches no route of mux. Such a rule limits
// nothing; usually, its Endpoint is misspelled. Call Check in a test. If the next handler is a Router and
// [Config.Endpoint] is nil, [Middleware.Handler] makes the same check and logs its error. After a change of
// the rules, the first request makes the check for the new Endpoints. [Middleware.CheckRules] finds such a
// rule before a changed file is applied.
//
// For each rule, Check asks mux for the route of a request with the path in the Endpoint of the rule. If
// the Endpoint names no method, Check asks about each of the standard methods. It does not check a rule
// whose Endpoint is a prefix, because a Router cannot list its patterns. If the only route for the
// Endpoint "/users" has a host in its pattern, such as "example.com/users", Check does not find that
// route, and names the rule by mistake. With the Endpoint "example.com/users", it finds the route.
func (m *Middleware) Check(mux Router) error { return m.CheckRules(mux)(m.limiter.Rules()) }

// CheckRules returns a function that checks the rules that it gets, as [Middleware.Check] checks the rules of
// the limiter. Set it as the field Check of a Watcher of the package configfile: the Watcher then refuses a
// file with a rule that would limit nothing.
func (m *Middleware) CheckRules(mux Router) func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
	return func(rules []ratelimit.Rule, _ *ratelimit.Rule) error { return m.idle(mux, rules, nil) }
}

// idle returns the error of Check for the given rules. It does not check a rule whose Endpoint is a key of
// the map known, because an earlier call has checked it.
func (m *Middleware) idle(mux Router, rules []ratelimit.Rule, known map[string]string) error {
	endpoint := m.config.Endpoint
	if endpoint == nil {
		endpoint = Route(nil)
	}
	var problems []error
	for _, rule := range rules {
		if _, ok := known[rule.Endpoint]; ok || rule.Endpoint == "" || strings.HasSuffix(rule.Endpoint, "*") {
			continue
		}
		if !gives(mux, endpoint, rule.Endpoint) {
			problems = append(problems, limitsNothing(&rule))
		}
	}
	return errors.Join(problems...)
}

// limitsNothing returns the error for a rule whose Endpoint no route gives.
func limitsNothing(rule *ratelimit.Rule) error {
	return fmt.Errorf("httplimit: rule %q limits nothing: no route gives its endpoint %q", rule.Name, rule.Endpoint)
}

// checked lists the Routers that were passed to Middleware.Handler, so that new rules can be checked with them.
// The zero checked is ready for use.
type checked struct {
	mu      sync.Mutex
	routers []checkedRouter // guarded by mu
}

// A checkedRouter is a Router, and the Endpoints of the rules that were checked with it.
type checkedRouter struct {
	mux   Router
	known map[string]string // for each Endpoint at the last check, the name of a rule that has it; nil before the first check
}

// checkHandler logs which of the current rules limit nothing in mux. It also stores mux for checkAgain, which
// checks later rules.
func (m *Middleware) checkHandler(mux Router) {
	m.checked.mu.Lock()
	m.checked.routers = append(m.checked.routers, checkedRouter{mux: mux})
	m.checked.mu.Unlock()
	m.checkAgain(m.policies())
}

// checkAgain logs which of the rules in p limit nothing. It skips a rule if a rule had the same Endpoint at the
// last check.
func (m *Middleware) checkAgain(p *policies) {
	var due []checkedRouter
	m.checked.mu.Lock()
	for i := range m.checked.routers {
		c := &m.checked.routers[i]
		due = append(due, *c)
		c.known = p.endpoints
	}
	m.checked.mu.Unlock() // a Router is code of the user, which is called without a lock
	for _, c := range due {
		m.logs.check(m.idle(c.mux, p.rules, c.known))
	}
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
