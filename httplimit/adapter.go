package httplimit

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/connection"
)

// An AdapterConfig is the Config of a package that limits the requests to a web framework, such as ginlimit. C is
// what the handlers of the framework get, such as *gin.Context. The zero AdapterConfig is safe: the address of the
// connection identifies the client, no request is skipped, and no forwarding header is trusted.
//
// The fields mean what the fields of [Config] with the same names mean. The functions are called for each request,
// without a lock, and must be safe for concurrent use by multiple goroutines. If one of them panics, the request is
// not charged. Count is the exception: a request is charged before Count is called, and stays charged if Count panics.
type AdapterConfig[C any] struct {
	// Client returns the client and its tier from something that was verified, such as a session, a checked token
	// or a known API key. If Client is nil, or returns an empty client or false, the address identifies the client.
	Client func(C) (client, tier string, ok bool)

	// Proxies lists the proxies whose forwarding header is trusted. The zero Proxies trusts no header, even if the
	// framework itself trusts one.
	Proxies Proxies

	// IPv6Bits is the length of the prefix that identifies an IPv6 client, from 32 to 128 bits. 0 means 64.
	IPv6Bits int

	// Endpoint returns the [ratelimit.Request.Endpoint] of a request, which must be one of a bounded set of names. If
	// it is nil, the endpoint is the path of the route as the framework spells it, such as "/users/:id", or
	// "unmatched" if no route matches the request.
	Endpoint func(C) string

	// Prepare may change the request to the limiter, such as its Cost, Attrs or Rules, before the limiter decides.
	Prepare func(C, *ratelimit.Request)

	// Skip returns true for a request that is not limited and gets no header fields.
	Skip func(C) bool

	// SkipNetworks lists the networks whose clients are not limited at all. See [Config.SkipNetworks].
	SkipNetworks []netip.Prefix

	// Count decides whether a request stays charged after it was answered with the given status. If Count returns
	// false, the units of the request are given back. The status is the one that the client gets, even if the error
	// handler of the framework sets it. If a handler panics, the status is 500. See [Config.Count].
	Count func(c C, status int) bool

	// BusyRetry is for rules with [ratelimit.AlgorithmInFlight]: the Retry-After of a denial is BusyRetry plus a random
	// time of up to BusyRetry. 0 means a second. See [Config.BusyRetry].
	BusyRetry time.Duration

	// Jitter is from 0 to 1. Each wait that a client is told becomes longer by a random fraction of up to Jitter. With
	// 0.1, a wait of 60 s becomes a wait of 60 to 66 s. See [Config.Jitter].
	Jitter float64

	// HoldExtend is for rules with [ratelimit.AlgorithmInFlight]. Such a rule counts a running request for the time
	// Rate.Per. This time is extended again and again while the request runs, at the interval HoldExtend. 0 means half of
	// the shortest Rate.Per of these rules. See [Config.HoldExtend].
	HoldExtend time.Duration

	// Info stores the [Info] of a granted request for the next handlers. See [Config.Info].
	Info bool

	// Headers selects the header fields that tell clients their limits.
	Headers Headers

	// ShowShared shows rules with KeyGlobal and KeyEndpoint to clients too.
	ShowShared bool

	// Denied answers a denied request. The header fields are already set. The framework gets the error that Denied
	// returns as if a handler had returned it. If Denied is nil, the client gets the problem document of [Problem].
	Denied func(C, *Info) error

	// Blocked answers a request that was denied because the client is blocked: the Reason of the Result is
	// [ratelimit.ReasonPenalty] or [ratelimit.ReasonOverride]. If Blocked is nil, Denied answers.
	Blocked func(C, *Info) error

	// Error returns true to let a request pass if the limiter failed to decide. If Error is nil or returns false, the
	// client gets the status 500. See [Config.Error].
	Error func(C, error) bool

	// Log gets at most one line a minute for each kind of problem. The lines begin with "httplimit:" and contain no
	// client names, addresses or IDs. If Log is nil, [slog.Default] gets them.
	Log *slog.Logger
}

// An Adapter limits the requests to a web framework as a [Middleware] limits the requests to net/http handlers. Packages
// such as ginlimit are thin layers around an Adapter, and programs use these packages. For a framework without such a
// package, make an Adapter with [NewAdapter].
type Adapter[C any] struct {
	m      *Middleware
	config AdapterConfig[C]
	route  func(C) string
	calls  sync.Pool // of *call[C]; a call comes back to it only if config.Count is nil
}

// NewAdapter returns an Adapter that limits requests by the limiter l. The function route returns the path of the route
// that matches a request, or an empty string if no route does. The error lists all problems with l and the config, and
// matches [ratelimit.ErrInvalidConfig].
func NewAdapter[C any](l *ratelimit.RateLimiter, c AdapterConfig[C], route func(C) string) (*Adapter[C], error) {
	inner := Config{
		Proxies: c.Proxies, IPv6Bits: c.IPv6Bits, SkipNetworks: c.SkipNetworks, BusyRetry: c.BusyRetry, Jitter: c.Jitter,
		HoldExtend: c.HoldExtend, Info: c.Info, Headers: c.Headers, ShowShared: c.ShowShared, Log: c.Log,
	}
	// The Middleware only checks whether these three functions are set. It never calls them: for each request, it calls the
	// functions of c, through the methods of a value of the type call.
	if c.Endpoint != nil {
		inner.Endpoint = Fixed(unmatched)
	}
	if c.Prepare != nil {
		inner.Prepare = func(*http.Request, *ratelimit.Request) {}
	}
	if c.Count != nil {
		inner.Count = func(*http.Request, int) bool { return true }
	}
	m, err := New(l, inner)
	if err != nil {
		return nil, err
	}
	a := &Adapter[C]{m: m, config: c, route: route}
	a.calls.New = func() any { return &call[C]{a: a} }
	return a, nil
}

// A Next calls the next handlers of a framework, and returns their error. The parameter r is the request. Its context
// has the Info if AdapterConfig.Info is set. If settle is not nil, AdapterConfig.Count needs the status of the response: the Next
// must call settle with the status before the client gets the response, for example by a writer that [CountStatus]
// returns. Only the first call of settle has an effect. If the Next panics, the Adapter calls settle with 500. If settle
// is never called, the request stays charged.
type Next[C any] func(c C, r *http.Request, settle func(status int)) error

// Serve limits the request r, whose response is written to w. If the rules grant r, Serve calls next and returns the error
// of next. Otherwise Serve answers the request, and returns the error of AdapterConfig.Denied. The result passed reports
// whether Serve has called next.
func (a *Adapter[C]) Serve(c C, w http.ResponseWriter, r *http.Request, next Next[C]) (passed bool, err error) {
	x := a.calls.Get().(*call[C])
	x.c, x.handlers = c, next
	x.from, _ = w.(connection.Peer)
	a.m.limit(x, w, r)
	passed, err = x.passed, x.err
	if a.config.Count == nil { // with Count, the framework may still call the function settle, which uses x
		*x = call[C]{a: a}
		a.calls.Put(x)
	}
	return passed, err
}

// Allow does what [Middleware.Allow] does, for a handler that got c, w and r. If ok is false, the request is answered,
// and err is the error of AdapterConfig.Denied.
func (a *Adapter[C]) Allow(c C, w http.ResponseWriter, r *http.Request, req ratelimit.Request) (ok bool, err error) {
	x := &call[C]{a: a, c: c}
	x.from, _ = w.(connection.Peer)
	ok = a.m.allow(x, w, r, req)
	return ok, x.err
}

// Reserve does what [Middleware.Reserve] does, for a handler that got c, w and r. If ok is false, the request is
// answered, and err is the error of AdapterConfig.Denied.
func (a *Adapter[C]) Reserve(
	c C, w http.ResponseWriter, r *http.Request, req ratelimit.Request, term time.Duration,
) (units *ratelimit.Reservation, ok bool, err error) {
	x := &call[C]{a: a, c: c}
	x.from, _ = w.(connection.Peer)
	units, ok = a.m.reserve(x, w, r, req, term)
	return units, ok, x.err
}

// Client returns what [Middleware.Client] returns.
func (a *Adapter[C]) Client(addr netip.Addr) string { return a.m.Client(addr) }

// CheckRules returns a function for the field Check of a Watcher of the package configfile. That function returns an
// error that names each rule whose Endpoint is not the path of a route, because such a rule limits nothing. If the
// Endpoint is a prefix, such as "/users*", one path must begin with "/users". The parameter routes returns the paths of
// the routes. If AdapterConfig.Endpoint is set, nothing is checked, because the endpoints are not the routes.
func (a *Adapter[C]) CheckRules(routes func() []string) func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
	return func(rules []ratelimit.Rule, _ *ratelimit.Rule) error {
		if a.config.Endpoint != nil {
			return nil
		}
		given := append([]string{unmatched}, routes()...)
		var problems []error
		for _, rule := range rules {
			if rule.Endpoint != "" && !anyMatches(given, rule.Endpoint) {
				problems = append(problems, limitsNothing(&rule))
			}
		}
		return errors.Join(problems...)
	}
}

// Check makes the check of [Adapter.CheckRules] for the present rules of the limiter. The parameter routes has the paths of
// the routes.
func (a *Adapter[C]) Check(routes []string) error {
	return a.CheckRules(func() []string { return routes })(a.m.limiter.Rules())
}

// anyMatches reports whether a rule with this Endpoint matches one of the given endpoints.
func anyMatches(given []string, endpoint string) bool {
	prefix, isPrefix := strings.CutSuffix(endpoint, "*")
	for _, one := range given {
		if one == endpoint || isPrefix && strings.HasPrefix(one, prefix) {
			return true
		}
	}
	return false
}

// A call is one request to a web framework while an Adapter limits it. It calls the functions of the AdapterConfig.
type call[C any] struct {
	a        *Adapter[C]
	c        C
	handlers Next[C]         // nil in a call of Allow or Reserve
	from     connection.Peer // the peer, if the framework knows its address; otherwise nil
	passed   bool            // whether handlers was called
	err      error           // what handlers or AdapterConfig.Denied has returned
}

func (x *call[C]) skip(*http.Request) bool {
	return x.a.config.Skip != nil && x.a.config.Skip(x.c)
}

func (x *call[C]) peer(r *http.Request) peer {
	if x.from != nil {
		if addr, text := x.from.Peer(); addr.IsValid() {
			return peer{addr: addr, text: text}
		}
	}
	return peerOf(r)
}

func (x *call[C]) client(*http.Request) (client, tier string, ok bool) {
	if x.a.config.Client == nil {
		return "", "", false
	}
	return x.a.config.Client(x.c)
}

func (x *call[C]) endpoint(*http.Request) string {
	if x.a.config.Endpoint != nil {
		return x.a.config.Endpoint(x.c)
	}
	if route := x.a.route(x.c); route != "" {
		return route
	}
	return unmatched
}

func (x *call[C]) prepare(_ *http.Request, req *ratelimit.Request) { x.a.config.Prepare(x.c, req) }

func (x *call[C]) counts(_ *http.Request, status int) bool { return x.a.config.Count(x.c, status) }

func (x *call[C]) deny(w http.ResponseWriter, r *http.Request, i *Info) {
	answer := x.a.config.Denied
	if x.a.config.Blocked != nil && blocked(&i.Result) {
		answer = x.a.config.Blocked
	}
	if answer == nil {
		Problem(w, r, i)
		return
	}
	x.err = answer(x.c, i)
}

func (x *call[C]) forgives(_ *http.Request, err error) bool {
	return x.a.config.Error != nil && x.a.config.Error(x.c, err)
}

func (x *call[C]) next(_ http.ResponseWriter, r *http.Request, s *settlement) {
	x.passed = true
	if s == nil {
		x.err = x.handlers(x.c, r, nil)
		return
	}
	x.err = x.handlers(x.c, r, s.settle)
}
