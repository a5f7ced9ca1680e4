package httplimit

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Config configures a [Middleware]: how it identifies the client, what it asks the limiter, and how
// it answers. The zero Config is safe: the address of the connection identifies the client, no request
// is skipped, and no forwarding header is trusted.
//
// The functions are called for each request, without a lock, and must be safe for concurrent use by
// multiple goroutines. If one of them panics, the request is not charged. Count is the exception:
// a request is charged before Count is called, and stays charged if Count panics.
type Config struct {
	// Client returns the client and its tier from something that was verified, such as a session, a
	// checked token or a known API key. If Client is nil, or returns an empty client or false, the
	// address identifies the client. See [APIKey]. If no rule has the tier in its Tiers, each rule
	// limits the client by its own Rate, and the tier is logged once.
	Client func(*http.Request) (client, tier string, ok bool)

	// Proxies lists the proxies whose forwarding header is trusted. The zero Proxies trusts no header.
	Proxies Proxies

	// IPv6Bits is the length of the prefix that identifies an IPv6 client, from 32 to
	// 128 bits. 0 means 64. All addresses with the same prefix share one budget.
	IPv6Bits int

	// Endpoint returns the [ratelimit.Request.Endpoint] of a request. If it is nil, the
	// endpoint is the path of the matching route of the next handler, such as
	// "/users/{id}". See [Route].
	Endpoint func(*http.Request) string

	// Prepare may change the request to the limiter, such as its Cost, Attrs or
	// Rules, before the limiter decides. It must not read the body.
	Prepare func(*http.Request, *ratelimit.Request)

	// Skip returns true for a request that is not limited and gets no header
	// fields. See [SkipPaths]. If Skip is nil, all requests are limited.
	Skip func(*http.Request) bool

	// SkipNetworks lists the networks whose clients are not limited at all and get no header fields, such as
	// 10.0.0.0/8 for services of your own. The whole address of the client is compared: the address of the
	// connection, or the address that a trusted proxy has sent. If a request has a header field of proxies, such as
	// X-Forwarded-For, but Proxies does not trust the proxy that has sent it, the address may belong to the
	// proxy, and everybody behind the proxy would pass. Such a request is limited, no [ratelimit.Override]
	// exempts it by its address, and the log says so once. A proxy without such a header field cannot be
	// recognized, so do not list a network with a proxy that forwards requests of others without the field.
	SkipNetworks []netip.Prefix

	// Count decides whether a request stays charged after it was answered with the given status. If
	// Count returns false, the units of the request are given back. For example, a Count that returns
	// false for each status below 400 charges only errors. The status is the status of the response: 200
	// if the handler sets none, 101 if it takes the connection over, and 500 if it panics. All requests
	// are charged when they arrive, so simultaneous requests cannot exceed the limit; the header fields
	// show what is left at that time. Units can be given back for 10 minutes, and for at most 1,024
	// requests of one key that run at the same time: see [ratelimit.RateLimiter.Reserve]. A rule that is
	// added after [New] may be unable to give units back. The requests that it limits then stay charged,
	// and Count is not called. If Count is nil, all requests stay charged. Count does not apply to
	// [Middleware.Allow].
	Count func(r *http.Request, status int) bool

	// BusyRetry is for rules with [ratelimit.AlgorithmInFlight], which limit how many requests run at the
	// same time. Nobody knows when a running request will end. So the Retry-After of a denial is BusyRetry
	// plus a random time of up to BusyRetry, so that clients do not come back at the same time. If the
	// RetryAfter of the Result is shorter, it is used instead. 0 means a second.
	BusyRetry time.Duration

	// Jitter, from 0 to 1, lengthens the waits that clients are told. A wait is lengthened by a random fraction
	// of up to Jitter: with 0.1, a client that must wait for 60 s is told to wait for 60 to 66 s. So
	// clients that were all denied until the end of one window do not come back at the same time.
	// Jitter applies to Retry-After, to the parameter t of RateLimit and to Grpc-Retry-Pushback-Ms; in one
	// response, all of them use the same fraction. The limits do not change, and [Info] has the exact time.
	// For windows as long as a month, choose a small Jitter: a tenth of 20 days is 2 days.
	Jitter float64

	// HoldExtend is for rules with [ratelimit.AlgorithmInFlight], which limit how many requests run at the same
	// time. Such a rule counts a request until it ends, but not for longer than the Rate.Per of the rule. At the
	// interval HoldExtend, the Middleware extends this time for each running request, so Per can be short. 0
	// means half of the shortest Per of these rules. If the store fails, the Middleware tries again after an eighth
	// of the interval. If HoldExtend is below 0, the time is not extended: a request no longer counts after Per.
	HoldExtend time.Duration

	// Info stores the [Info] of a granted request in the context that the next handler
	// gets, for [FromContext]. Each request is then copied, which allocates about 640
	// bytes. Without Info, the next handler gets the request itself.
	Info bool

	// Headers selects the header fields that tell clients their limits.
	Headers Headers

	// ShowShared shows rules with KeyGlobal and KeyEndpoint to clients too. Their
	// numbers tell each client how much all others use.
	ShowShared bool

	// Denied answers a denied request. The header fields are already set. If Denied
	// is nil, [Problem] answers. If you set Denied, it should call Problem for gRPC
	// requests.
	Denied func(http.ResponseWriter, *http.Request, *Info)

	// Blocked answers a request that was denied because the client is blocked: the Reason of the
	// Result is [ratelimit.ReasonPenalty] or [ratelimit.ReasonOverride]. The header fields are already
	// set. If Blocked is nil, Denied answers.
	Blocked func(http.ResponseWriter, *http.Request, *Info)

	// Error returns true to let a request pass if the limiter failed to decide, for
	// example because a reload has removed a rule that Prepare names. If Error is nil
	// or returns false, the client gets the status 500. Error is not called if a
	// store is unreachable: [ratelimit.Rule.OnStoreError] decides then.
	Error func(*http.Request, error) bool

	// Log gets at most one line a minute for each kind of problem. The lines contain
	// no client names, addresses or IDs. If Log is nil, [slog.Default] gets them.
	Log *slog.Logger
}

// Proxies describes the reverse proxies, load balancers and CDNs in front of this server. Their
// forwarding header, such as X-Forwarded-For, gives the address of the client. Set either Trusted and
// Unix, or Hops. The zero Proxies trusts no header.
type Proxies struct {
	// Trusted are the addresses of the proxies. The forwarding header is read if the
	// connection comes from one of them. The client is the last address in
	// X-Forwarded-For that is not in Trusted. Trusted must contain no address that a
	// client could have.
	Trusted []netip.Prefix

	// Unix trusts connections over a unix socket as if they came from Trusted.
	Unix bool

	// Hops is the number of proxies that every request passes, from 1 to 64. The client
	// is the entry at this position of X-Forwarded-For, counted from the right. The
	// address of the connection is not checked, so clients must not be able to
	// bypass the proxies.
	Hops int

	// Header is the header field to read instead of X-Forwarded-For. It must contain
	// a single address, as CF-Connecting-IP does, and the proxy must overwrite any
	// value that a client sends.
	Header string
}

// New returns a Middleware that limits requests by the limiter l. The error lists all problems with l and
// the Config, and matches [ratelimit.ErrInvalidConfig].
func New(l *ratelimit.RateLimiter, c Config) (*Middleware, error) {
	problems := append(limiterProblems(l, c.Endpoint == nil), c.Proxies.problems()...)
	if c.IPv6Bits != 0 && (c.IPv6Bits < 32 || c.IPv6Bits > 128) {
		problems = append(problems, wrong("ipv6Bits", c.IPv6Bits, "must be from 32 to 128, or 0 for 64"))
	}
	if c.Headers < HeadersDraft11 || c.Headers > HeadersNone {
		problems = append(problems, wrong("headers", int(c.Headers), "must be HeadersDraft11, HeadersDelta, HeadersEpoch or HeadersNone"))
	}
	problems = append(problems, networkProblems(c.SkipNetworks)...)
	if c.BusyRetry < 0 {
		problems = append(problems, wrong("busyRetry", c.BusyRetry, "must be above 0, or 0 for a second"))
	}
	if !(c.Jitter >= 0 && c.Jitter <= 1) { // because of the negation, this is also true for NaN
		problems = append(problems, wrong("jitter", c.Jitter, "must be from 0 to 1, such as 0.1 for a tenth"))
	}
	if c.Count != nil && l != nil {
		problems = append(problems, countProblems(l)...)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	m := newMiddleware(l, c)
	m.policies() // logs a warning if the names of two rules differ only in upper and lower case
	return m, nil
}

// wrong returns the error for a field of a Config or a Transport that has an invalid value.
func wrong(field string, value any, reason string) error {
	return &ratelimit.ConfigError{Field: field, Value: value, Reason: reason}
}

// limiterProblems returns the reasons why the limiter l would limit nothing. The parameter routed is true if
// Config.Endpoint is nil, so that the endpoint of a request is the path of its route.
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

// maxHops is the largest number of entries of a forwarding header that are read.
const maxHops = 64

// problems returns an error for each invalid field of the Proxies.
func (p *Proxies) problems() (problems []error) {
	for i, prefix := range p.Trusted {
		field := fmt.Sprintf("proxies.trusted[%d]", i)
		switch addr := prefix.Addr(); {
		case !prefix.IsValid():
			problems = append(problems, wrong(field, prefix, notPrefix))
		case addr.Is4In6() && prefix.Bits() >= 96:
			problems = append(problems, wrong(field, prefix, asIPv4(prefix)))
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

// headerProblems returns an error if the field Header is invalid.
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
