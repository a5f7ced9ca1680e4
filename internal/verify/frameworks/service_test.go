package frameworks

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A service is one program with a rate limiter, written for one framework. Its routes are the same in all:
//
//	GET  /items/{id}  answers "item" and the id
//	POST /login       answers by the header field X-Password: right, wrong, or error, which leaves the answer to the
//	                  error handler of the framework; it answers 401 with the text "wrong password"
//	GET  /panic       panics, and something outside of the limit answers 500
//	GET  /stream      sends "one", waits for the test, and sends "two"
//	GET  /slow        tells the test that it runs, and waits for the test
//	GET  /empty       answers nothing
//	GET  /info        answers what the Info says
//	GET  /mail        asks by Allow for the rule "mails"
//	GET  /job         reserves two units by Reserve, and uses one
//	GET  /healthz     answers "healthy"
//	GET  /twice       comes to the same middleware twice, and answers "twice"
type service struct {
	limiter *ratelimit.RateLimiter
	clock   *ratelimit.FakeClock
	options options
	running chan struct{} // gets a value when /slow or /stream runs
	release chan struct{} // lets /slow and /stream go on
	url     string
	client  *http.Client
	on      *framework
	answers []string // what Answer has recorded
}

// The options of a service are the fields of a Config that do not depend on the framework, and what its functions do.
type options struct {
	proxies      httplimit.Proxies
	users        bool                  // Config.Client takes the client from X-User, and its tier from X-Tier
	key          bool                  // Config.Client is APIKey
	count        func(status int) bool // Config.Count
	info         bool
	headers      httplimit.Headers
	healthy      bool // Config.Skip is SkipPaths("/healthz")
	preflight    bool // Config.Skip is Preflight
	denied       bool // Config.Denied answers "slow down" with the status 420
	blocked      bool // Config.Blocked answers "go away" with the status 403
	forgive      bool // Config.Error returns true
	pattern      bool // Config.Endpoint is Pattern
	cost         int  // Config.Prepare sets it
	rules        []string
	skipNetworks []netip.Prefix
	shared       bool
	log          *slog.Logger
}

func (o *options) prepares() bool { return o.cost != 0 || o.rules != nil }

func (o *options) prepare(q *ratelimit.Request) { q.Cost, q.Rules = o.cost, o.rules }

// find is the lookup of APIKey.
func find(key string) (client, tier string, ok bool) { return "customer", "paid", key == "k-1" }

// user returns the client and the tier that a request names.
func user(header func(string) string) (client, tier string, ok bool) {
	client = header("X-User")
	return client, header("X-Tier"), client != ""
}

// infoText is the answer of /info.
func infoText(i *httplimit.Info, ok bool) string {
	if !ok {
		return "no info"
	}
	return fmt.Sprintf("%s at %s of %s by %v, %d left of %d rules", i.Request.Client, path.Base(i.Request.Endpoint), i.Addr, i.Result.Allowed,
		i.Result.Remaining, len(i.Rules))
}

// mail is the request that /mail asks for by Allow, and job the one that /job reserves.
var (
	mail = ratelimit.Request{Rules: []string{"mails"}}
	job  = ratelimit.Request{Rules: []string{"jobs"}, Cost: 2}
)

// A framework makes a service.
type framework struct {
	name string

	// build returns the handler of the service s, or an error of New.
	build func(s *service) (http.Handler, error)

	// listen serves s on this listener in place of build, for frameworks without net/http. It returns what stops it.
	listen func(s *service, l net.Listener) (stop func(), err error)

	// spell writes the path of a route, such as "/items/{id}", as the framework does.
	spell func(route string) string

	own map[string]string // why the framework answers a row in a way of its own, by the name of the row

	blind bool // whether the framework answers requests without a route before the limit sees them

	// adapt writes a request as clients of the framework do. It is nil if these speak plain HTTP.
	adapt func(r *http.Request)

	// decode returns the text in the body of a response, or is nil if the body is the text.
	decode func(res *http.Response, body string) string
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// run starts a service on the framework f with these rules.
func (f *framework) run(t *testing.T, o options, defaultRule *ratelimit.Rule, rules ...ratelimit.Rule) *service {
	t.Helper()
	return f.runWith(t, o, defaultRule, rules)
}

// runWith starts a service on the framework f with these rules and options of its limiter.
func (f *framework) runWith(t *testing.T, o options, defaultRule *ratelimit.Rule, rules []ratelimit.Rule, opts ...ratelimit.Option) *service {
	t.Helper()
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Endpoint = f.spell(rules[i].Endpoint)
	}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	s := &service{clock: ratelimit.NewFakeClock(start), options: o, on: f,
		running: make(chan struct{}), release: make(chan struct{})}
	var err error
	s.limiter, err = ratelimit.New(rules, defaultRule, append(opts, ratelimit.WithClock(s.clock))...)
	require.NoError(t, err)
	transport := &http.Transport{DisableCompression: true}
	s.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(transport.CloseIdleConnections)
	if f.listen != nil {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test listens for as long as it runs
		require.NoError(t, err)
		stop, err := f.listen(s, l)
		require.NoError(t, err)
		t.Cleanup(stop)
		s.url = "http://" + l.Addr().String()
		return s
	}
	h, err := f.build(s)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// perMinute returns a default rule of n requests a minute for each client.
func perMinute(n int) *ratelimit.Rule {
	return &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(n)}
}

// ask sends a request with header lines in pairs, and records the answer.
func (s *service) ask(t *testing.T, method, target string, header ...string) *http.Response {
	t.Helper()
	res, body := s.send(t, method, target, header...)
	s.answers = append(s.answers, fmt.Sprintf("%s %s %v: %s", method, target, header, transcript(res, body)))
	return res
}

// get sends a GET request, records the answer, and returns its status.
func (s *service) get(t *testing.T, path string, header ...string) int {
	t.Helper()
	return s.ask(t, http.MethodGet, path, header...).StatusCode
}

// login tries a password, records the answer, and returns its status.
func (s *service) login(t *testing.T, password string) int {
	t.Helper()
	return s.ask(t, http.MethodPost, "/login", "X-Password", password).StatusCode
}

// send sends a request and reads the whole response.
func (s *service) send(t *testing.T, method, target string, header ...string) (res *http.Response, body string) {
	t.Helper()
	res, err := s.client.Do(s.request(t.Context(), t, method, target, header...)) //nolint:bodyclose // read closes it
	require.NoError(t, err)
	return res, s.read(t, res)
}

func (s *service) request(ctx context.Context, t *testing.T, method, target string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.url+target, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	if s.on.adapt != nil {
		s.on.adapt(r)
	}
	return r
}

// read returns the text in the body of a response.
func (s *service) read(t *testing.T, res *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	if s.on.decode != nil {
		return s.on.decode(res, string(body))
	}
	return string(body)
}

// fields are the header fields that a limiter sets.
var fields = []string{
	"Cache-Control", "Grpc-Message", "Grpc-Retry-Pushback-Ms", "Grpc-Status", "Ratelimit", "Ratelimit-Policy", "Retry-After",
	"X-Content-Type-Options", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
}

// transcript returns what must be the same in all frameworks: the status, the header fields of the limiter, and the
// body. Of an answer that the framework gives by itself, such as a 404, it leaves out the
// body, and a field that net/http sets there.
func transcript(res *http.Response, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", res.StatusCode)
	for _, name := range fields {
		if own := res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusMethodNotAllowed; own && name == "X-Content-Type-Options" {
			continue
		}
		if values := res.Header[name]; len(values) > 0 {
			fmt.Fprintf(&b, " [%s: %s]", name, strings.Join(values, ", ")) // several lines mean the same as one
		}
	}
	switch res.StatusCode {
	case http.StatusNotFound, http.StatusMethodNotAllowed:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		fmt.Fprintf(&b, " [%s] %s", res.Header.Get("Content-Type"), body)
	default:
		fmt.Fprintf(&b, " %s", body)
	}
	return b.String()
}

// A logbook is a log whose lines a test can read.
type logbook struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (b *logbook) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(line))
	return len(line), nil
}

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// has reports whether a line contains text.
func (b *logbook) has(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.lines, func(line string) bool { return strings.Contains(line, text) })
}

// A brokenStore is a Store that cannot be reached.
type brokenStore struct{ err error }

func (s brokenStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, s.err
}

func (s brokenStore) Reset(context.Context, []ratelimit.Ask) error { return s.err }
