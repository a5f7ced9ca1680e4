package httplimit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"github.com/ratelimit-go/ratelimit"
)

// A Config says who the client is, what it asks for, and what is answered. The zero Config is safe: the
// address of the connection counts, nothing is skipped, and no header is believed.
//
// The functions are called for each request, without a lock, and must be safe for concurrent
// use by multiple goroutines. If one of them panics, nothing has been charged; but after a panic of
// Count, which is called when the request was handled, the request stays charged.
type Config struct {
	// Client says who the client is, and on which plan, by what was verified, such as a
	// session, a checked token or a known API key. If it is nil, or returns an
	// empty client or false, the address counts. See [APIKey].
	Client func(*http.Request) (client, tier string, ok bool)

	// Proxies says whose forwarding headers to believe. The zero Proxies
	// believes nobody's.
	Proxies Proxies

	// IPv6Bits is how many bits of an IPv6 address count, from 32 to 128.
	// 0 means 64. All addresses that begin with the same bits are one client.
	IPv6Bits int

	// Endpoint names the request for rules with an Endpoint. If it is nil, the
	// name is that of [Route] for the next handler, such as "/users/{id}".
	Endpoint func(*http.Request) string

	// Prepare may change what is asked, such as the Cost, the Attrs or the
	// Rules. It must not read the body.
	Prepare func(*http.Request, *ratelimit.Request)

	// Skip returns true for a request that passes unlimited and unmarked, such
	// as one of [SkipPaths]. If it is nil, no request does.
	Skip func(*http.Request) bool

	// Count returns true if a request that was answered with this status counts,
	// and the units of the others are given back, such as of those with a status
	// below 400. The status is the first final one; 200 if the handler sets none,
	// 101 if it takes the connection over, and 500 if it panics. The units are
	// taken when the request comes, so requests at the same time cannot exceed the
	// limit. Header fields say what was left then. Units can be given back for 10
	// minutes. If Count is nil, all requests count. It is not about Allow.
	Count func(r *http.Request, status int) bool

	// Headers says which header fields tell clients of their limits.
	Headers Headers

	// ShowShared shows the rules by KeyGlobal and KeyEndpoint to clients too.
	// They tell each client what all others do.
	ShowShared bool

	// Denied answers a denied request. The header fields are set already. If it
	// is nil, [Problem] answers. One that answers in another way should leave
	// gRPC requests to Problem.
	Denied func(http.ResponseWriter, *http.Request, *Info)

	// Error returns true if a request that could not be decided on passes, such
	// as after a reload has removed a rule that Prepare names. If it is nil or
	// returns false, the status is 500. It is not about a store that cannot be
	// reached: then [ratelimit.Rule.OnStoreError] decides.
	Error func(*http.Request, error) bool

	// Log gets at most one line a minute of each kind of trouble, without
	// identities. If it is nil, [slog.Default] does.
	Log *slog.Logger
}

// Proxies are the reverse proxies, load balancers and CDNs that stand before this server, and
// whose forwarding header says who the client is. Trusted and Hops exclude each other. The
// zero Proxies believes no header.
type Proxies struct {
	// Trusted are the addresses of the proxies. Such a peer is believed, and
	// such an entry of X-Forwarded-For is skipped: the client is the last
	// address in it that is not trusted. No client may have an address in here.
	Trusted []netip.Prefix

	// Unix believes peers that come by a unix socket, as it believes Trusted.
	Unix bool

	// Hops is how many proxies every request has passed. The client is that
	// entry of X-Forwarded-For, counted from the right. The peer's address is
	// not checked, so no client must be able to reach the server by another way.
	Hops int

	// Header is the header field to read in place of X-Forwarded-For. It has
	// one address, as CF-Connecting-IP has, and the proxy must overwrite what
	// a client sends in it.
	Header string
}

// New returns a Middleware that limits requests by l. The error lists everything that is
// wrong with l and c, and matches [ratelimit.ErrInvalidConfig].
func New(l *ratelimit.RateLimiter, c Config) (*Middleware, error) {
	problems := append(limiterProblems(l, c.Endpoint == nil), c.Proxies.problems()...)
	if c.IPv6Bits != 0 && (c.IPv6Bits < 32 || c.IPv6Bits > 128) {
		problems = append(problems, wrong("ipv6Bits", c.IPv6Bits, "must be from 32 to 128, or 0 for 64"))
	}
	if c.Headers < HeadersDraft11 || c.Headers > HeadersNone {
		problems = append(problems, wrong("headers", int(c.Headers), "must be HeadersDraft11, HeadersDelta, HeadersEpoch or HeadersNone"))
	}
	if c.Count != nil && l != nil {
		problems = append(problems, countProblems(l)...)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return newMiddleware(l, c), nil
}

// wrong returns the error for one field.
func wrong(field string, value any, reason string) error {
	return &ratelimit.ConfigError{Field: field, Value: value, Reason: reason}
}

// limiterProblems returns what keeps l from limiting anything. routed says that endpoints are
// named by Route.
func limiterProblems(l *ratelimit.RateLimiter, routed bool) (problems []error) {
	if l == nil {
		return []error{wrong("limiter", "nil", "must be one that ratelimit.New has made")}
	}
	rules, defaultRule := l.Rules()
	if len(rules) == 0 && defaultRule == nil {
		return []error{wrong("limiter", "without rules", "must have at least one rule, or it limits nothing")}
	}
	for _, r := range rules {
		if routed && strings.Contains(r.Endpoint, " ") {
			problems = append(problems, wrong(fmt.Sprintf("rules[%q].endpoint", r.Name), r.Endpoint,
				`must be the path of a route alone, such as "/users/{id}", or set Config.Endpoint to Pattern`))
		}
	}
	return problems
}

// maxHops is how many entries of a forwarding header are looked at.
const maxHops = 64

// problems returns everything that is wrong with p.
func (p *Proxies) problems() (problems []error) {
	for i, prefix := range p.Trusted {
		field := fmt.Sprintf("proxies.trusted[%d]", i)
		switch addr := prefix.Addr(); {
		case !prefix.IsValid():
			problems = append(problems, wrong(field, prefix, "must be a valid prefix, such as 10.0.0.0/8"))
		case addr.Is4In6() && prefix.Bits() >= 96:
			problems = append(problems, wrong(field, prefix, "must be written as IPv4: "+
				netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96).String()))
		case prefix.Bits() == 0:
			problems = append(problems, wrong(field, prefix, "must not be everybody: list the proxies' own addresses, such as 10.1.0.0/16"))
		}
	}
	if p.Hops < 0 || p.Hops > maxHops {
		problems = append(problems, wrong("proxies.hops", p.Hops, "must be from 1 to 64, or 0"))
	}
	if p.Hops > 0 && (len(p.Trusted) > 0 || p.Unix) {
		problems = append(problems, wrong("proxies.hops", p.Hops, "must be 0 beside Trusted or Unix: one of the two says who is believed"))
	}
	return append(problems, p.headerProblems()...)
}

// headerProblems returns what is wrong with p.Header.
func (p *Proxies) headerProblems() []error {
	const field = "proxies.header"
	switch name := http.CanonicalHeaderKey(p.Header); {
	case name == "":
	case strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }):
		return []error{wrong(field, fmt.Sprintf("%q", p.Header), `must be the name of a header field, such as "CF-Connecting-IP"`)}
	case name == "Forwarded":
		return []error{wrong(field, p.Header, `must be a field with addresses alone, such as "X-Forwarded-For"; Forwarded is not read`)}
	case len(p.Trusted) == 0 && !p.Unix && p.Hops == 0:
		return []error{wrong(field, p.Header, "must be empty unless Trusted, Unix or Hops says from whom it is believed")}
	case name != forwardedFor && p.Hops > 1:
		return []error{wrong(field, p.Header, "must be empty if Hops is above 1: it has one address")}
	}
	return nil
}

// isToken reports whether c may be in the name of a header field.
func isToken(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c != 0 && strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
