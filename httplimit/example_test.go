package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// mux is the router of a service.
var mux = newMux()

func newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /login", "GET /items", "GET /healthz"} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	return mux
}

// A server whose clients come by the internet, without a proxy.
func ExampleHandler_server() {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8080", httplimit.Handler(mux, limiter)))
}

// A page for operators, which shows the rules, what denies most, and what one client would be answered.
func ExampleDebug() {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(100)})
	if err != nil {
		log.Fatal(err)
	}
	admin := http.NewServeMux() // behind the authentication of operators
	admin.Handle("/debug/ratelimit", httplimit.Debug(limiter))

	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/debug/ratelimit?client=alice&endpoint=/items", nil)
	admin.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Cache-Control"), strings.Contains(w.Body.String(), "allowed, 99 of 100 remain"))
	// Output: 200 no-store true
}

// The third of two requests a minute.
func ExampleHandler() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(2)}, ratelimit.WithClock(clock))
	if err != nil {
		log.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	handler := httplimit.Handler(hello, limiter)
	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil))
		fmt.Printf("%d %s, retry after %q\n", w.Code, w.Header().Get("RateLimit"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 "per-client";r=1;t=30, retry after ""
	// 200 "per-client";r=0;t=30, retry after ""
	// 429 "per-client";r=0;t=30, retry after "30"
}

// customers is a table of the API keys that have been given out.
type customers map[string]struct{ Name, Plan string }

func (c customers) find(key string) (client, tier string, ok bool) {
	customer, ok := c[key]
	return customer.Name, customer.Plan, ok
}

// An API with plans, a stricter login, and a limit on all requests together, behind a proxy.
func ExampleNew() {
	keys := customers{"k-123": {"shop-7", "paid"}}
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/login", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)},
	}, &ratelimit.Rule{
		Name: "per-client", Rate: ratelimit.PerMinute(60), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600)},
	})
	if err != nil {
		log.Fatal(err)
	}
	m, err := httplimit.New(limiter, httplimit.Config{
		Client:  httplimit.APIKey("X-API-Key", keys.find),
		Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Skip:    httplimit.SkipPaths("/healthz"),
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := m.Handler(mux)

	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/items", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	r.Header.Set("X-API-Key", "k-123")
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	// Output:
	// "per-client";q=60;w=60
	// "per-client";q=600;w=60
}

// Mails to reset a password are limited by name and by address, beside the rule for all requests.
func ExampleMiddleware_Allow() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "mails by name", Rate: ratelimit.PerHour(3)},
		{Name: "mails by address", Key: ratelimit.KeyIP, Rate: ratelimit.PerHour(30)},
	}, &ratelimit.Rule{Rate: ratelimit.PerMinute(60)})
	if err != nil {
		log.Fatal(err)
	}
	m, err := httplimit.New(limiter, httplimit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	reset := func(w http.ResponseWriter, r *http.Request) {
		mail := ratelimit.Request{Client: r.FormValue("name"), Rules: []string{"mails by name", "mails by address"}}
		if m.Allow(w, r, mail) {
			fmt.Fprintln(w, "a mail is on its way")
		}
	}
	handler := m.Handler(http.HandlerFunc(reset))
	for range 4 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/?name=alice", nil))
		fmt.Print(w.Code, " ")
	}
	// Output:
	// 200 200 200 429
}

// A file whose rule for the login is misspelt is refused, and the rules stay.
func ExampleMiddleware_CheckRules() {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	write := func(endpoint string) {
		text := fmt.Sprintf(`[{"endpoint": %q, "algorithm": "SlidingWindowLog", "rate": "5/m"}]`, endpoint)
		if err := os.WriteFile(filepath.Join(dir, "limits.json"), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	write("/login")
	limiter, watcher, err := configfile.Open(filepath.Join(dir, "limits.json"))
	if err != nil {
		panic(err)
	}
	m, err := httplimit.New(limiter, httplimit.Config{})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) {})

	watcher.Log = slog.New(slog.DiscardHandler)
	watcher.Check = m.CheckRules(mux)

	write("/logn")
	err = watcher.Reload()
	fmt.Println(strings.ReplaceAll(err.Error(), dir, ""))
	// Output:
	// /limits.json: httplimit: rule "/logn" limits nothing: no route gives its endpoint "/logn"
}

// A test that finds a rule that limits nothing, such as one for a misspelt route.
func ExampleMiddleware_Check() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(http.ResponseWriter, *http.Request) {})
	limiter, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/serach", Rate: ratelimit.PerMinute(60)}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	m, err := httplimit.New(limiter, httplimit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Check(mux))
	// Output:
	// httplimit: rule "/serach" limits nothing: no route gives its endpoint "/serach"
}

// What stands before a server, for Config.Proxies.
func ExampleProxies() {
	// nginx on the same machine, by a unix socket.
	nginx := httplimit.Proxies{Unix: true}

	// An AWS Application Load Balancer, in the subnets of a VPC that have no clients.
	alb := httplimit.Proxies{Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.0.1.0/24"),
		netip.MustParsePrefix("10.0.2.0/24"),
	}}

	// Cloudflare, of whose addresses these are the first two: take the list from its site.
	cloudflare := httplimit.Proxies{
		Trusted: []netip.Prefix{
			netip.MustParsePrefix("173.245.48.0/20"),
			netip.MustParsePrefix("103.21.244.0/22"),
		},
		Header: "CF-Connecting-IP",
	}

	// An ingress of Kubernetes behind a load balancer that keeps the client's address. The
	// network policy lets nobody but the ingress reach the pod.
	ingress := httplimit.Proxies{Hops: 1}

	peer := netip.MustParseAddr("10.0.1.7")
	fmt.Println(nginx.Addr(netip.Addr{}, []string{"203.0.113.9"}))
	fmt.Println(alb.Addr(peer, []string{"6.6.6.6, 203.0.113.9"}))
	fmt.Println(cloudflare.Addr(netip.MustParseAddr("173.245.48.1"), []string{"203.0.113.9"}))
	fmt.Println(ingress.Addr(peer, []string{"6.6.6.6, 203.0.113.9"}))
	// Output:
	// 203.0.113.9
	// 203.0.113.9
	// 203.0.113.9
	// 203.0.113.9
}

// A handler that does less if little is left.
func ExampleFromContext() {
	search := func(w http.ResponseWriter, r *http.Request) {
		results := 100
		if info, ok := httplimit.FromContext(r.Context()); ok && info.Result.Remaining < 10 {
			results = 10
		}
		fmt.Fprintf(w, "%d results for %s", results, info(r))
	}
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(5)})
	if err != nil {
		log.Fatal(err)
	}
	m, err := httplimit.New(limiter, httplimit.Config{Info: true})
	if err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	m.Handler(http.HandlerFunc(search)).ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil))
	fmt.Println(w.Body)
	// Output:
	// 10 results for ip:192.0.2.1
}

func info(r *http.Request) string {
	i, _ := httplimit.FromContext(r.Context())
	return i.Request.Client
}

// Requests that cost more, two budgets for one address, and HTTP layers of one's own.
func ExampleConfig() {
	c := httplimit.Config{
		Prepare: func(r *http.Request, q *ratelimit.Request) {
			if q.Endpoint == "/search" {
				q.Cost = 5
			}
			site := q.IP // all requests without a site would share one budget, so IPv4 clients get their address
			if prefix, err := netip.ParsePrefix(q.IP); err == nil {
				around, _ := prefix.Addr().Prefix(48)
				site = around.String() // a rule by KeyAttr("site") limits an IPv6 client by its /48 too
			}
			q.Attrs = map[string]string{"site": site}
		},
		Denied: func(w http.ResponseWriter, r *http.Request, i *httplimit.Info) {
			if strings.HasPrefix(r.Header.Get("Accept"), "text/html") {
				http.Error(w, "Too many requests. Please try again later.", i.Status)
				return
			}
			httplimit.Problem(w, r, i)
		},
		Count: func(_ *http.Request, status int) bool { return status >= 400 },

		Headers: httplimit.HeadersEpoch, // X-RateLimit-..., as GitHub has them
	}
	for _, ip := range []string{"203.0.113.9", "203.0.113.10", "2001:db8:1:2::/64"} {
		q := ratelimit.Request{IP: ip}
		c.Prepare(nil, &q)
		fmt.Println(ip, "belongs to", q.Attrs["site"])
	}
	// Output:
	// 203.0.113.9 belongs to 203.0.113.9
	// 203.0.113.10 belongs to 203.0.113.10
	// 2001:db8:1:2::/64 belongs to 2001:db8:1::/48
}

// A client that sends 5 requests a second, and waits if a server asks it to.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600") // a client believes 10 minutes of it
		w.WriteHeader(http.StatusTooManyRequests)
	}))

	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(5)})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter}}
	for range 2 {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, server.URL, nil)
		if err != nil {
			log.Fatal(err)
		}
		res, err := client.Do(r)
		var held *httplimit.HoldError
		if errors.As(err, &held) {
			fmt.Println("not sent, wait for", held.Wait.Round(time.Minute))
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Status)
		if err := res.Body.Close(); err != nil {
			log.Fatal(err)
		}
	}
	server.Close()
	// Output:
	// 429 Too Many Requests
	// not sent, wait for 10m0s
}
