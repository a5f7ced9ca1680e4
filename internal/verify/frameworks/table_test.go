package frameworks

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

var all = []*framework{&netHTTP, &onChi, &onGin, &onEcho, &onEcho4, &onFiber}

// TestFrameworks runs each row of the table over each framework. The answers must be those of net/http, byte for byte.
func TestFrameworks(t *testing.T) {
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for _, f := range all {
				t.Run(strings.ReplaceAll(f.name, "/", " "), func(t *testing.T) {
					got := row.play(t, f)
					if f == &netHTTP {
						want = got
					}
					assert.NotEmpty(t, want)
					if why, own := f.own[row.name]; own {
						assert.NotEqual(t, want, got, "%s %s", f.name, why)
						return
					}
					assert.Equal(t, want, got)
				})
			}
		})
	}
}

var loopback = httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

const forwarded = "X-Forwarded-For"

// A row plays requests to a service, checks what matters, and returns the answers.
type row struct {
	name string
	play func(t *testing.T, f *framework) []string
}

var table = []row{
	{"the address of the connection is the client", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(2))
		assert.Equal(t, 200, s.get(t, "/items/1", forwarded, "203.0.113.1"), "the client cannot choose its address")
		assert.Equal(t, 200, s.get(t, "/items/2", forwarded, "203.0.113.2"))
		assert.Equal(t, 429, s.get(t, "/items/3", forwarded, "203.0.113.3"))
		assert.Equal(t, 429, s.get(t, "/items/3", "X-Real-IP", "203.0.113.3"))
		s.clock.Advance(time.Minute)
		assert.Equal(t, 200, s.get(t, "/items/4"))
		return s.answers
	}},
	{"a trusted proxy tells the address", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{proxies: loopback}, perMinute(1))
		for _, from := range []string{"203.0.113.1", "203.0.113.2", "2001:db8::1", "2001:db8:0:1::1"} {
			assert.Equal(t, 200, s.get(t, "/items/1", forwarded, from), from)
		}
		assert.Equal(t, 429, s.get(t, "/items/1", forwarded, "198.51.100.1, 203.0.113.1"), "what the client adds on the left is not read")
		assert.Equal(t, 429, s.get(t, "/items/1", forwarded, "198.51.100.1", forwarded, "203.0.113.2"), "the last line")
		assert.Equal(t, 429, s.get(t, "/items/1", forwarded, "2001:db8::2"), "the same /64")
		assert.Equal(t, 429, s.get(t, "/items/1", forwarded, "::ffff:203.0.113.1"))
		return s.answers
	}},
	{"another field of a proxy, and hops", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{proxies: httplimit.Proxies{Trusted: loopback.Trusted, Header: "CF-Connecting-IP"}}, perMinute(1))
		assert.Equal(t, 200, s.get(t, "/items/1", "CF-Connecting-IP", "203.0.113.1", forwarded, "203.0.113.7"))
		assert.Equal(t, 200, s.get(t, "/items/1", "CF-Connecting-IP", "203.0.113.2", forwarded, "203.0.113.7"))
		assert.Equal(t, 429, s.get(t, "/items/1", "CF-Connecting-IP", "203.0.113.1"))
		h := f.run(t, options{proxies: httplimit.Proxies{Hops: 2}}, perMinute(1))
		assert.Equal(t, 200, h.get(t, "/items/1", forwarded, "1.1.1.1, 203.0.113.1, 10.0.0.1"))
		assert.Equal(t, 429, h.get(t, "/items/1", forwarded, "203.0.113.1, 10.0.0.2"))
		return append(s.answers, h.answers...)
	}},
	{"users and plans", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{users: true}, &ratelimit.Rule{
			Name: "per-client", Rate: ratelimit.PerMinute(1), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(2), "staff": ratelimit.Unlimited},
		})
		assert.Equal(t, 200, s.get(t, "/items/1", "X-User", "alice"))
		assert.Equal(t, 200, s.get(t, "/items/1", "X-User", "bob", "X-Tier", "paid"))
		assert.Equal(t, 200, s.get(t, "/items/1", "X-User", "bob", "X-Tier", "paid"))
		assert.Equal(t, 200, s.get(t, "/items/1", "X-User", "carol", "X-Tier", "staff"))
		assert.Equal(t, 429, s.get(t, "/items/1", "X-User", "alice"))
		assert.Equal(t, 429, s.get(t, "/items/1", "X-User", "bob", "X-Tier", "paid"))
		assert.Equal(t, 200, s.get(t, "/items/1", "X-User", "ip:127.0.0.1"), "no name is an address")
		assert.Equal(t, 200, s.get(t, "/items/1"))
		return s.answers
	}},
	{"API keys", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{key: true}, perMinute(1))
		assert.Equal(t, 200, s.get(t, "/items/1", "X-API-Key", "k-1"))
		assert.Equal(t, 429, s.get(t, "/items/1", "X-API-Key", "k-1"))
		assert.Equal(t, 200, s.get(t, "/items/1", "X-API-Key", "k-2"), "an unknown key counts by address")
		assert.Equal(t, 429, s.get(t, "/items/1", "X-API-Key", "k-3"))
		assert.Equal(t, 429, s.get(t, "/items/1", "X-API-Key", "k-1", "X-API-Key", "k-1"))
		return s.answers
	}},
	{"endpoints are routes", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(100), ratelimit.Rule{Name: "items", Endpoint: "/items/{id}", Rate: ratelimit.PerMinute(1)})
		assert.Equal(t, 200, s.get(t, "/items/1"))
		assert.Equal(t, 429, s.get(t, "/items/2"))
		assert.Equal(t, 200, s.get(t, "/empty"))
		return s.answers
	}},
	{"the route of a HEAD request", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(100), ratelimit.Rule{Name: "items", Endpoint: "/items/{id}", Rate: ratelimit.PerMinute(1)})
		assert.Equal(t, 200, s.get(t, "/items/1"))
		assert.Equal(t, 429, s.ask(t, http.MethodHead, "/items/3").StatusCode)
		return s.answers
	}},
	{"requests without a route", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(100), ratelimit.Rule{Endpoint: "unmatched", Rate: ratelimit.PerMinute(1)})
		assert.Equal(t, 404, s.get(t, "/nothing"))
		assert.Equal(t, 429, s.get(t, "/nothing/else"), "all paths without a route share one budget")
		assert.Equal(t, 429, s.ask(t, http.MethodDelete, "/nothing").StatusCode)
		return s.answers
	}},
	{"an encoded path", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(1))
		s.get(t, "/%69tems/1")
		assert.Equal(t, 429, s.get(t, "/%69tems/1"))
		r := f.run(t, options{}, perMinute(100), ratelimit.Rule{Name: "items", Endpoint: "/items/{id}", Rate: ratelimit.PerMinute(1)})
		assert.Equal(t, 200, r.get(t, "/items/1"))
		assert.NotEqual(t, 200, r.get(t, "/%69tems/1"), "no spelling of the path evades the rule")
		return append(s.answers, r.answers...)
	}},
	{"endpoints with methods", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{pattern: true}, perMinute(100), ratelimit.Rule{Name: "items", Endpoint: "GET /items/{id}", Rate: ratelimit.PerMinute(1)},
			ratelimit.Rule{Endpoint: "POST /login", Rate: ratelimit.PerMinute(1)})
		assert.Equal(t, 200, s.get(t, "/items/1"))
		assert.Equal(t, 429, s.get(t, "/items/1"))
		assert.Equal(t, 200, s.login(t, "right"))
		assert.Equal(t, 429, s.login(t, "right"))
		return s.answers
	}},
	{"header fields of several rules", func(t *testing.T, f *framework) []string {
		rules := []ratelimit.Rule{
			{Name: "daily", Endpoint: "*", Additional: true, Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerDay(3)},
			{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)},
		}
		var got []string
		for _, h := range []httplimit.Headers{httplimit.HeadersDraft11, httplimit.HeadersDelta, httplimit.HeadersNone} {
			s := f.run(t, options{headers: h, shared: h == httplimit.HeadersDraft11}, perMinute(2), rules...)
			for range 3 {
				s.get(t, "/items/1")
			}
			s.clock.Advance(time.Minute)
			s.get(t, "/items/1")
			assert.Equal(t, 429, s.get(t, "/items/1"))
			got = append(got, s.answers...)
		}
		return got
	}},
	{"a denied HEAD has no body", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(1))
		assert.Equal(t, 200, s.ask(t, http.MethodHead, "/items/1").StatusCode)
		assert.Equal(t, 429, s.ask(t, http.MethodHead, "/items/1").StatusCode)
		return s.answers
	}},
	{"gRPC has an answer of its own", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(1))
		assert.Equal(t, 200, s.get(t, "/items/1"))
		res := s.ask(t, http.MethodPost, "/login", "Content-Type", "application/grpc", "Grpc-Timeout", "1H")
		assert.Equal(t, "8", res.Header.Get("Grpc-Status"))
		assert.Equal(t, "-1", res.Header.Get("Grpc-Retry-Pushback-Ms"))
		assert.Equal(t, 429, s.ask(t, http.MethodPost, "/login", "Content-Type", "application/grpcx").StatusCode)
		return s.answers
	}},
	{"answers of the service", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{denied: true}, perMinute(1))
		s.get(t, "/items/1")
		assert.Equal(t, 420, s.get(t, "/items/1"))
		b := f.run(t, options{blocked: true}, &ratelimit.Rule{
			Name: "per-client", Rate: ratelimit.PerMinute(1), Penalty: ratelimit.Penalty{After: 2, Within: time.Minute, For: time.Hour},
		})
		b.get(t, "/items/1")
		assert.Equal(t, 429, b.get(t, "/items/1"), "a usual denial")
		b.get(t, "/items/1")
		assert.Equal(t, 403, b.get(t, "/items/1"))
		return append(s.answers, b.answers...)
	}},
	{"skipped paths", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{healthy: true}, perMinute(1))
		for range 3 {
			assert.Equal(t, 200, s.get(t, "/healthz"))
		}
		s.get(t, "/items/1")
		assert.Equal(t, 429, s.get(t, "/items/1"))
		return s.answers
	}},
	{"skipped networks", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{skipNetworks: loopback.Trusted}, perMinute(1))
		assert.Equal(t, 200, s.get(t, "/items/1"))
		assert.Equal(t, 200, s.get(t, "/items/1"))
		assert.Equal(t, 200, s.get(t, "/items/1", forwarded, "203.0.113.1"), "an unknown proxy: this one is charged")
		assert.Equal(t, 429, s.get(t, "/items/1", forwarded, "203.0.113.1"))
		return s.answers
	}},
	{"preflights", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{preflight: true}, perMinute(1))
		for range 3 {
			s.send(t, http.MethodOptions, "/items/1", "Origin", "https://a.example", "Access-Control-Request-Method", "GET")
		}
		assert.Equal(t, 200, s.get(t, "/items/1"), "preflights cost nothing")
		assert.Equal(t, 429, s.ask(t, http.MethodOptions, "/items/1").StatusCode, "another OPTIONS request does")
		return s.answers
	}},
	{"only failed logins count", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{count: func(status int) bool { return status >= 400 }}, perMinute(100),
			ratelimit.Rule{Endpoint: "/login", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(3)})
		for range 5 {
			assert.Equal(t, 200, s.login(t, "right"))
		}
		assert.Equal(t, 401, s.login(t, "wrong"))
		assert.Equal(t, 401, s.login(t, "error"), "the error handler answers after the middleware has returned")
		assert.Equal(t, 401, s.login(t, "error"))
		assert.Equal(t, 429, s.login(t, "right"), "three failures")
		return s.answers
	}},
	{"only successes count", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{count: func(status int) bool { return status < 400 }}, perMinute(1))
		assert.Equal(t, 401, s.login(t, "wrong"))
		assert.Equal(t, 401, s.login(t, "error"))
		assert.Equal(t, 404, s.get(t, "/nothing"))
		assert.Equal(t, 405, s.ask(t, http.MethodDelete, "/login").StatusCode)
		assert.Equal(t, 500, s.get(t, "/panic"), "a panic is a 500")
		assert.Equal(t, 200, s.get(t, "/empty"), "an empty answer is a 200")
		assert.Equal(t, 429, s.get(t, "/items/1"))
		return s.answers
	}},
	{"a panic stays charged", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(1))
		assert.Equal(t, 500, s.get(t, "/panic"))
		assert.Equal(t, 429, s.get(t, "/items/1"))
		return s.answers
	}},
	{"requests in flight", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{info: true}, nil, ratelimit.Rule{
			Name: "running", Endpoint: "/slow", Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 1, Per: time.Hour},
		}, ratelimit.Rule{
			Name: "panics", Endpoint: "/panic", Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 1, Per: time.Hour},
		})
		for range 3 {
			ended := make(chan int)
			go func() {
				res, err := s.client.Do(s.request(t.Context(), t, http.MethodGet, "/slow")) //nolint:bodyclose // read closes it
				if assert.NoError(t, err) {
					assert.Equal(t, "done", s.read(t, res))
					ended <- res.StatusCode
				}
				close(ended)
			}()
			<-s.running
			assert.Equal(t, 429, s.get(t, "/slow"), "one runs")
			s.release <- struct{}{}
			assert.Equal(t, 200, <-ended)
		}
		for range 3 {
			assert.Equal(t, 500, s.get(t, "/panic"), "a panic ends the request")
		}
		return s.answers
	}},
	{"a stream is sent while it is made", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{count: func(status int) bool { return status >= 400 }}, perMinute(1))
		for range 2 {
			res, err := s.client.Do(s.request(t.Context(), t, http.MethodGet, "/stream")) //nolint:bodyclose // read closes it
			require.NoError(t, err)
			from := bufio.NewReader(res.Body)
			line, err := from.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "one\n", line)
			assert.NotEmpty(t, res.Header.Get("Ratelimit"))
			assert.Equal(t, 200, s.get(t, "/empty"), "the status is known, so the stream is not charged any more")
			s.release <- struct{}{}
			line, err = from.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, "two\n", line)
			require.NoError(t, res.Body.Close())
		}
		return s.answers
	}},
	{"handlers read the Info", func(t *testing.T, f *framework) []string {
		rules := []ratelimit.Rule{{Name: "daily", Endpoint: "*", Additional: true, Rate: ratelimit.PerDay(3)}}
		s := f.run(t, options{info: true, proxies: loopback, users: true}, perMinute(2), rules...)
		s.get(t, "/info", forwarded, "203.0.113.1", "X-User", "alice")
		s.get(t, "/info", forwarded, "203.0.113.1")
		assert.Contains(t, s.answers[0], "alice at info of 203.0.113.1 by true, 1 left of 2 rules")
		n := f.run(t, options{}, perMinute(2))
		n.get(t, "/info")
		assert.Contains(t, n.answers[0], "no info")
		return append(s.answers, n.answers...)
	}},
	{"a handler asks once more", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{}, perMinute(100), ratelimit.Rule{Name: "mails", Rate: ratelimit.PerHour(1)},
			ratelimit.Rule{Name: "jobs", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(3)})
		assert.Equal(t, 200, s.get(t, "/mail"))
		assert.Equal(t, 429, s.get(t, "/mail"))
		assert.Equal(t, 200, s.get(t, "/job"))
		assert.Equal(t, 200, s.get(t, "/job"), "the first has used one of three units")
		assert.Equal(t, 429, s.get(t, "/job"), "one is left, and a job reserves two")
		return s.answers
	}},
	{"the same middleware twice", func(t *testing.T, f *framework) []string {
		var log logbook
		s := f.run(t, options{log: log.logger(), count: func(int) bool { return true }}, perMinute(2))
		assert.Equal(t, 200, s.get(t, "/twice"))
		assert.Equal(t, 200, s.get(t, "/twice"), "each request was charged once")
		assert.Equal(t, 429, s.get(t, "/twice"))
		assert.True(t, log.has("came to the same Middleware twice"))
		return s.answers
	}},
	{"many clients at once", func(t *testing.T, f *framework) []string {
		const users, limit, callers = 16, 20, 64
		each := 50 // requests of each caller, so each user sends 200
		if testing.Short() {
			each = 10
		}
		s := f.run(t, options{users: true, info: true, count: func(status int) bool { return status == 200 }}, nil, ratelimit.Rule{
			Name: "items", Endpoint: "/items/{id}", Rate: ratelimit.PerHour(limit),
		}, ratelimit.Rule{
			Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(1_000_000),
		})
		var granted, denied [users]atomic.Int64
		var sending sync.WaitGroup
		for caller := range callers {
			sending.Go(func() {
				user := caller % users
				for i := range each {
					path := fmt.Sprintf("/items/%d-%d", caller, i)
					res, body := s.send(t, http.MethodGet, path, "X-User", fmt.Sprint("user-", user)) //nolint:bodyclose // send closes it
					switch res.StatusCode {
					case http.StatusOK:
						granted[user].Add(1)
						assert.Equal(t, "item "+path[len("/items/"):], body)
					case http.StatusTooManyRequests:
						denied[user].Add(1)
					}
					if !f.blind {
						s.send(t, http.MethodGet, fmt.Sprintf("/nothing/%d/%d", caller, i)) //nolint:bodyclose // send closes it
					}
				}
			})
		}
		sending.Wait()
		for user := range users {
			assert.EqualValues(t, limit, granted[user].Load())
			assert.EqualValues(t, callers/users*each-limit, denied[user].Load())
		}
		for _, rule := range s.limiter.Stats() {
			if rule.Rule == "everybody" {
				assert.Equal(t, 1, rule.LiveKeys)
				if !f.blind {
					rule.Allowed -= uint64(callers * each) // the requests without a route
				}
				s.answers = append(s.answers, fmt.Sprint(rule.Allowed, rule.Denied))
			} else {
				s.answers = append(s.answers, fmt.Sprint(rule.Rule, rule.Allowed, rule.Denied, rule.LiveKeys))
			}
		}
		return s.answers
	}},
	{"a store that fails", func(t *testing.T, f *framework) []string {
		rules := []ratelimit.Rule{
			{Endpoint: "/login", Rate: ratelimit.PerMinute(1), OnStoreError: ratelimit.FailClosed},
			{Name: "items", Endpoint: "/items/{id}", Rate: ratelimit.PerMinute(1), OnStoreError: ratelimit.FailOpen},
			{Endpoint: "/empty", Rate: ratelimit.PerMinute(1)},
		}
		s := f.runWith(t, options{}, perMinute(1), rules, ratelimit.WithStore(brokenStore{errors.New("down")}), ratelimit.WithName("test"))
		assert.Equal(t, 503, s.login(t, "right"))
		assert.Equal(t, 200, s.get(t, "/items/1"))
		assert.Equal(t, 200, s.get(t, "/items/1"))
		assert.Equal(t, 200, s.get(t, "/empty"))
		assert.Equal(t, 429, s.get(t, "/empty"), "by the share of this process")
		return s.answers
	}},
	{"a request that cannot be decided", func(t *testing.T, f *framework) []string {
		s := f.run(t, options{rules: []string{"gone"}}, perMinute(1))
		assert.Equal(t, 500, s.get(t, "/items/1"))
		p := f.run(t, options{rules: []string{"gone"}, forgive: true}, perMinute(1))
		assert.Equal(t, 200, p.get(t, "/items/1"))
		c := f.run(t, options{cost: 5}, perMinute(5))
		assert.Equal(t, 200, c.get(t, "/items/1"))
		assert.Equal(t, 429, c.get(t, "/items/1"))
		return append(append(s.answers, p.answers...), c.answers...)
	}},
}
