package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// The attacks are numbered as in the specification of the package. Each name says what an
// attacker tries, and each test that it gains nothing.

var ten = httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}

// codes returns the statuses that h answers to the same request, sent n times.
func codes(h http.Handler, r *http.Request, n int) (all []int) {
	for range n {
		all = append(all, answer(h, r).Code)
	}
	return all
}

// drained returns whether a limit of one request was used up by what ask did before.
func drained(t *testing.T, c httplimit.Config, then *http.Request, before ...*http.Request) bool {
	t.Helper()
	l, _ := perMinute(t, len(before))
	h := wrap(t, l, c, ok)
	for _, r := range before {
		require.Equal(t, http.StatusOK, answer(h, r).Code)
	}
	return answer(h, then).Code == http.StatusTooManyRequests
}

func TestAttack01ForgedForwardedFor(t *testing.T) {
	var asked []*http.Request
	for i, forged := range [][]string{
		{"6.6.6.6, 203.0.113.9"}, {"6.6.6.6", "203.0.113.9"}, {"10.0.0.9, 203.0.113.9, 10.0.0.2"}, {"6.6.6.6, 7.7.7.7", "8.8.8.8, 203.0.113.9",
			"10.0.0.3"},
	} {
		r := request(t, "/", proxy)
		r.Header["X-Forwarded-For"] = forged
		asked = append(asked, r)
		if i > 0 {
			assert.True(t, drained(t, httplimit.Config{Proxies: ten}, r, asked[:i]...), "%q is the same client", forged)
		}
	}
	forged := request(t, "/", "203.0.113.9:1", "X-Forwarded-For", "6.6.6.6")
	assert.True(t, drained(t, httplimit.Config{}, forged, request(t, "/", "203.0.113.9:2")), "nobody is believed")
}

func TestAttack02PastTheProxy(t *testing.T) {
	past := request(t, "/", "203.0.113.9:1", "X-Forwarded-For", "6.6.6.6")
	assert.True(t, drained(t, httplimit.Config{Proxies: ten}, past, request(t, "/", "203.0.113.9:2", "X-Forwarded-For", "7.7.7.7")))
	assert.False(t, drained(t, httplimit.Config{Proxies: httplimit.Proxies{Hops: 1}}, past,
		request(t, "/", "203.0.113.9:2", "X-Forwarded-For", "7.7.7.7")), "as documented, Hops believes everybody")
}

func TestAttack03OneAddressInManySpellings(t *testing.T) {
	spellings := []string{"fe80::1", "fe80::1%eth0", "fe80::1%eth1", "[fe80::1%x]:80", "FE80:0:0:0::1"}
	for _, spelling := range spellings[1:] {
		assert.True(t, drained(t, httplimit.Config{Proxies: ten}, request(t, "/", proxy, "X-Forwarded-For", spelling),
			request(t, "/", proxy, "X-Forwarded-For", spellings[0])), spelling)
	}
	assert.True(t, drained(t, httplimit.Config{Proxies: ten},
		request(t, "/", "[::ffff:10.0.0.1]:80", "X-Forwarded-For", "203.0.113.9, ::ffff:10.0.0.7"), request(t, "/", proxy, "X-Forwarded-For",
			client)))
}

func TestAttack04TrustedHopBehindNAT64(t *testing.T) {
	assert.False(t, drained(t, httplimit.Config{Proxies: ten},
		request(t, "/", proxy, "X-Forwarded-For", "203.0.113.9, 64:ff9b::10.0.0.1"), request(t, "/", proxy, "X-Forwarded-For",
			client)), "64:ff9b::10.0.0.1 is a client, whatever it says left of it")
}

func TestAttack05Rotation(t *testing.T) {
	assert.True(t, drained(t, httplimit.Config{}, request(t, "/", "[2001:db8:1:2:ffff::1]:80"), request(t, "/", "[2001:db8:1:2::9]:80")))
	assert.False(t, drained(t, httplimit.Config{}, request(t, "/", "[::ffff:198.51.100.7]:80"), request(t, "/", "[::ffff:203.0.113.9]:80")),
		"mapped addresses do not share a budget")
}

func TestAttack06Garbage(t *testing.T) {
	l, _ := perMinute(t, 1000)
	m := made(t, l, httplimit.Config{Proxies: ten, Info: true})
	for _, garbage := range []string{"", ",", "unknown", "_hidden", "1.2.3.4.5", "1.2.3.4:99999", "[::1", "::1]", "[]", ":",
		"1.2.3.4, <script>", "\"1.2.3.4\"", strings.Repeat(",", 1<<20), strings.Repeat("a", 1<<20), strings.Repeat("[", 70)} {
		assert.Equal(t, "10.0.0.1", infoOf(t, m, request(t, "/", proxy, "X-Forwarded-For", garbage)).Request.IP)
	}
}

func TestAttack07ProbeOfTheProxy(t *testing.T) {
	l, _ := perMinute(t, 1000)
	assert.Equal(t, "10.0.0.1", infoOf(t, made(t, l, httplimit.Config{Proxies: ten, Info: true}), request(t, "/", proxy)).Request.IP)
}

func TestAttack08ConnectionStripsTheHeader(t *testing.T) {
	stripped := request(t, "/", proxy, "Connection", "X-Forwarded-For")
	assert.True(t, drained(t, httplimit.Config{Proxies: ten}, stripped, request(t, "/", proxy)), "all who do it share the proxy's budget")
}

func TestAttack09OtherPlacesForTheHeader(t *testing.T) {
	l, _ := perMinute(t, 1000)
	var ips []string
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		info, _ := httplimit.FromContext(r.Context())
		ips = append(ips, info.Request.IP)
	})
	loopback := httplimit.Proxies{Trusted: prefixes("127.0.0.0/8")}
	server := serve(t, wrap(t, l, httplimit.Config{Proxies: loopback, Info: true}, inner))
	for _, c := range []*http.Client{server.h1, server.h2} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.url, io.NopCloser(strings.NewReader("body")))
		require.NoError(t, err)
		r.Trailer = http.Header{"X-Forwarded-For": {"6.6.6.6"}}
		r.Header["X_Forwarded_For"] = []string{"6.6.6.6"}
		res, err := c.Do(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
	}
	assert.Equal(t, []string{"127.0.0.1", "127.0.0.1"}, ips)
}

func TestAttack10ClientsAmongTheProxies(t *testing.T) {
	l, _ := perMinute(t, 1000)
	m := made(t, l, httplimit.Config{Proxies: ten, Info: true})
	assert.Equal(t, "10.9.9.9", infoOf(t, m, request(t, "/", proxy, "X-Forwarded-For", "10.8.8.8, 10.9.9.9")).Request.IP,
		"the rightmost, which a proxy has written")
}

func TestAttack11UserNamedLikeAnAddress(t *testing.T) {
	c := httplimit.Config{Client: func(r *http.Request) (string, string, bool) { return r.Header.Get("User"), "", true }}
	victim := request(t, "/", "203.0.113.9:1")
	assert.False(t, drained(t, c, victim, request(t, "/", "6.6.6.6:1", "User", "ip:203.0.113.9")))
	assert.False(t, drained(t, c, request(t, "/", "7.7.7.7:1", "User", "id:ip:203.0.113.9"),
		request(t, "/", "6.6.6.6:1", "User", "ip:203.0.113.9")), "nor like one who is")

	l, _ := perMinute(t, 1)
	m := made(t, l, httplimit.Config{})
	ask := func(r *http.Request, name string) bool {
		return m.Allow(httptest.NewRecorder(), r, ratelimit.Request{Client: name})
	}
	assert.True(t, ask(request(t, "/", "6.6.6.6:1"), "ip:203.0.113.9"), "inside of a handler")
	assert.True(t, ask(victim, ""), "the victim is not drained")
	assert.False(t, ask(victim, "ip:203.0.113.9"), "its own identity, as Info.Request has it")
}

func TestAttack12MadeUpKeys(t *testing.T) {
	c := httplimit.Config{Client: httplimit.APIKey("X-Key",
		func(key string) (string, string, bool) { return "customer 1", "paid", key == "right" })}
	for _, made := range [][]string{{"made up"}, {""}, {"right", "right"}, {strings.Repeat("x", 513)}, {strings.Repeat("x", 1<<20)}} {
		r := request(t, "/", "203.0.113.9:2")
		r.Header["X-Key"] = made
		assert.True(t, drained(t, c, r, request(t, "/", "203.0.113.9:1")), "it is the address")
	}
	assert.False(t, drained(t, c, request(t, "/", "203.0.113.9:2", "x-key", "right"), request(t, "/", "203.0.113.9:1")))
	assert.True(t, drained(t, c, request(t, "/", "198.51.100.7:2", "x-key", "right"), request(t, "/", "203.0.113.9:1", "x-key", "right")))
	assert.Panics(t, func() { httplimit.APIKey("X-Key", nil) })
	assert.Panics(t, func() { httplimit.APIKey("", func(string) (string, string, bool) { return "", "", false }) })
}

func TestAttack13OneIdempotencyKey(t *testing.T) {
	l, _ := perMinute(t, 2)
	r := request(t, "/", "203.0.113.9:1", "Idempotency-Key", "k")
	assert.Equal(t, []int{200, 200, 429}, codes(wrap(t, l, httplimit.Config{}, ok), r, 3), "each request is charged")
}

func TestAttack14SpellingsOfAPath(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("POST /login", ok)
	mux.Handle("GET /users/{id}", ok)
	mux.Handle("GET example.com/hosted", ok)
	mux.Handle("GET /home/{$}", ok)
	l, _ := perMinute(t, 1000)
	named := func(method, target string, endpoint func(*http.Request) string) (name string) {
		m := made(t, l, httplimit.Config{Endpoint: endpoint, Prepare: func(_ *http.Request, r *ratelimit.Request) { name = r.Endpoint }})
		r := request(t, "/", "203.0.113.9:1")
		r.Method, r.RequestURI = method, target
		u, err := url.ParseRequestURI(target)
		require.NoError(t, err)
		r.URL = u
		r.Host = "example.com"
		answer(m.Handler(mux), r)
		return name
	}
	for _, row := range []struct{ method, target, want, pattern string }{
		{"POST", "/login", "/login", "POST /login"},
		{"POST", "//login", "/login", "POST /login"},
		{"POST", "/a/../login", "/login", "POST /login"},
		{"POST", "/%6cogin", "/login", "POST /login"},
		{"POST", "/login?x=/y", "/login", "POST /login"},
		{"POST", "/LOGIN", "unmatched", "unmatched"},
		{"POST", "/login%2F", "unmatched", "unmatched"},
		{"GET", "/login", "unmatched", "unmatched"},
		{"BREW", "/users/7", "unmatched", "unmatched"},
		{"GET", "/users/7", "/users/{id}", "GET /users/{id}"},
		{"HEAD", "/users/8", "/users/{id}", "GET /users/{id}"},
		{"GET", "/users/a%2Fb", "/users/{id}", "GET /users/{id}"},
		{"GET", "/hosted", "/hosted", "GET example.com/hosted"},
		{"GET", "/home/", "/home/{$}", "GET /home/{$}"},
		{"GET", "/nowhere/else", "unmatched", "unmatched"},
	} {
		assert.Equal(t, row.want, named(row.method, row.target, nil), row.target)
		assert.Equal(t, row.want, named(row.method, row.target, httplimit.Route(mux)), row.target)
		assert.Equal(t, row.pattern, named(row.method, row.target, httplimit.Pattern(mux)), row.target)
		assert.Equal(t, "all", named(row.method, row.target, httplimit.Fixed("all")), row.target)
	}
}

func TestAttack15RuleNames(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{{Name: "a\r\nSet-Cookie: x=\"1\\\"; %é\x00", Endpoint: "*", Rate: ratelimit.PerMinute(1)}}, nil)
	server := serve(t, wrap(t, l, httplimit.Config{}, ok))
	for _, c := range []*http.Client{server.h1, server.h2} {
		res := server.get(t, c, "/")
		const name = `a%0D%0ASet-Cookie: x="1\"; %25%C3%A9%00`
		assert.Equal(t, name, parseList(t, res.Header.Values("RateLimit"))[0].name)
		assert.Equal(t, name, parseList(t, res.Header.Values("RateLimit-Policy"))[0].name)
		assert.Empty(t, res.Cookies())
	}
}

func TestAttack16LoadOfOthers(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "own", Endpoint: "*", Rate: ratelimit.PerMinute(100)},
		{Name: "everybody", Endpoint: "*", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(2)},
		{Name: "endpoint", Endpoint: "*", Key: ratelimit.KeyEndpoint, Rate: ratelimit.PerMinute(3)},
	}
	l, _ := limited(t, rules, nil)
	h := wrap(t, l, httplimit.Config{}, ok)
	var w *httptest.ResponseRecorder
	for i, want := range []int{200, 200, 429} {
		w = get(t, h, "/", fmt.Sprintf("203.0.113.%d:1", i))
		assert.Equal(t, want, w.Code)
		assert.Equal(t, `"own";q=100;w=60`, w.Header().Get("RateLimit-Policy"))
	}
	assert.Empty(t, w.Header().Get("RateLimit"), "the client's own rule has not denied")
	assert.Equal(t, "30", w.Header().Get("Retry-After"))
	assert.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429}`,
		w.Body.String())

	w = get(t, wrap(t, l, httplimit.Config{ShowShared: true}, ok), "/", "203.0.113.4:1")
	assert.Equal(t, `"everybody";r=0;t=30`, w.Header().Get("RateLimit"))
	assert.Equal(t, `"everybody";q=2;w=60, "endpoint";q=3;w=60, "own";q=100;w=60`, w.Header().Get("RateLimit-Policy"))
	assert.Contains(t, w.Body.String(), `"violated-policies":["everybody"]`)
}

func TestAttack17OneMiddlewareTwice(t *testing.T) {
	l, _ := perMinute(t, 2)
	log := new(logbook)
	m := made(t, l, httplimit.Config{Log: log.logger()})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		m.Handler(ok).ServeHTTP(w, r.WithContext(ctx))
	}))
	assert.Equal(t, []int{200, 200, 429}, codes(h, request(t, "/", "203.0.113.9:1"), 3), "charged once")
	require.Len(t, log.lines(), 1)
	assert.Contains(t, log.lines()[0], "twice")
}

func TestTwoLayers(t *testing.T) {
	l, _ := perMinute(t, 3)
	inner, _ := limited(t, nil, &ratelimit.Rule{Name: "user", Rate: ratelimit.PerMinute(2)})
	for form, want := range map[httplimit.Headers][]string{
		httplimit.HeadersDraft11: {`"per-client";r=2;t=40`, `"user";r=1;t=30`},
		httplimit.HeadersDelta:   {"1"},
	} {
		outer := wrap(t, l, httplimit.Config{Headers: form}, wrap(t, inner, httplimit.Config{Headers: form}, ok))
		w := get(t, outer, "/", fmt.Sprintf("203.0.113.%d:1", form))
		field := map[httplimit.Headers]string{httplimit.HeadersDraft11: "RateLimit", httplimit.HeadersDelta: "X-RateLimit-Remaining"}[form]
		assert.Equal(t, want, w.Header().Values(field), "both tell the client")
		w = get(t, outer, "/", fmt.Sprintf("203.0.113.%d:1", form))
		require.Equal(t, 200, w.Code)
		w = get(t, outer, "/", fmt.Sprintf("203.0.113.%d:1", form))
		require.Equal(t, 429, w.Code, "the inner one")
		w = get(t, outer, "/", fmt.Sprintf("203.0.113.%d:1", form))
		require.Equal(t, 429, w.Code, "the outer one, as both charge")
		assert.Contains(t, w.Body.String(), `"per-client"`)
	}
	tighter, _ := perMinute(t, 1)
	h := wrap(t, tighter, httplimit.Config{Headers: httplimit.HeadersDelta},
		wrap(t, inner, httplimit.Config{Headers: httplimit.HeadersDelta}, ok))
	assert.Equal(t, "0", get(t, h, "/", "198.51.100.7:1").Header().Get("X-RateLimit-Remaining"), "the outer one has fewer left")
}

// TestAllowManyTimes decides many times for one response. Each rule is in its header once, with what
// it had left at last.
func TestAllowManyTimes(t *testing.T) {
	l, _ := perMinute(t, 100, ratelimit.Rule{Name: `odd";, \`, Rate: ratelimit.PerHour(50)})
	m := made(t, l, httplimit.Config{})
	outer := made(t, l, httplimit.Config{Client: func(*http.Request) (string, string, bool) { return "other", "", true }})
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("RateLimit", "token;r=1")
		for i := range 3 {
			require.True(t, m.Allow(w, r, ratelimit.Request{Rules: []string{`odd";, \`}}))
			require.True(t, m.Allow(w, r, ratelimit.Request{Cost: 10 + i, Rules: []string{`odd";, \`, "per-client"}}))
		}
		require.True(t, outer.Allow(w, r, ratelimit.Request{}))
	}))
	w := get(t, h, "/", client+":1")
	assert.Equal(t, []string{"token;r=1", `"odd\";, \\";r=14;t=1008`, `"per-client";r=99;t=60`}, w.Header().Values("RateLimit"))
	assert.Equal(t, []string{`"odd\";, \\";q=50;w=3600`, `"per-client";q=100;w=60`}, w.Header().Values("RateLimit-Policy"))

	// A denial has those of the rules that have denied, and what the others had before.
	two, _ := perMinute(t, 5, ratelimit.Rule{Name: "tight", Rate: ratelimit.PerMinute(1)})
	m = made(t, two, httplimit.Config{})
	h = m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := ratelimit.Request{Rules: []string{"tight", "per-client"}}
		require.True(t, m.Allow(w, r, req))
		require.False(t, m.Allow(w, r, req))
	}))
	w = get(t, h, "/", client+":1")
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, []string{`"per-client";r=3;t=36`, `"tight";r=0;t=60`}, w.Header().Values("RateLimit"))
}

func TestAttack18PartsOfABatch(t *testing.T) {
	l, _ := perMinute(t, 3)
	m := made(t, l, httplimit.Config{})
	part := m.Handler(ok)
	var parts []int
	h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for range 3 {
			parts = append(parts, answer(part, r).Code)
		}
	}))
	answer(h, request(t, "/", "203.0.113.9:1"))
	assert.Equal(t, []int{200, 200, 429}, parts, "each part has a response of its own, and is charged")
}

func TestAttack19Panics(t *testing.T) {
	boom := func() { panic("boom") }
	for name, c := range map[string]httplimit.Config{
		"Client":   {Client: func(*http.Request) (string, string, bool) { boom(); return "", "", false }},
		"Endpoint": {Endpoint: func(*http.Request) string { boom(); return "" }},
		"Prepare":  {Prepare: func(*http.Request, *ratelimit.Request) { boom() }},
		"Skip":     {Skip: func(*http.Request) bool { boom(); return false }},
	} {
		l, _ := perMinute(t, 1)
		h := wrap(t, l, c, ok)
		assert.PanicsWithValue(t, "boom", func() { get(t, h, "/", "203.0.113.9:1") }, name)
		assert.Equal(t, []int{200}, codes(wrap(t, l, httplimit.Config{}, ok), request(t, "/", "203.0.113.9:1"), 1), "%s: nothing was charged",
			name)
	}
	l, _ := perMinute(t, 1)
	h := wrap(t, l, httplimit.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { boom() }))
	assert.PanicsWithValue(t, "boom", func() { get(t, h, "/", "203.0.113.9:1") })
	assert.Equal(t, 429, get(t, h, "/", "203.0.113.9:1").Code, "who makes a handler panic is charged")
	l, _ = perMinute(t, 1)
	h = wrap(t, l, httplimit.Config{Count: func(*http.Request, int) bool { boom(); return false }}, ok)
	assert.PanicsWithValue(t, "boom", func() { get(t, h, "/", "203.0.113.9:1") })
	assert.Equal(t, 429, get(t, h, "/", "203.0.113.9:1").Code, "who makes Count panic was served, and is charged")
}

// A neverRead is a body that must not be read.
type neverRead struct{ t *testing.T }

func (b neverRead) Read([]byte) (int, error) {
	assert.Fail(b.t, "the body was read")
	return 0, io.EOF
}

func (b neverRead) Close() error { return nil }

func TestAttack20SlowBodies(t *testing.T) {
	l, _ := perMinute(t, 1)
	h := wrap(t, l, httplimit.Config{}, ok)
	r := request(t, "/", "203.0.113.9:1")
	r.Body = neverRead{t}
	assert.Equal(t, []int{200, 429}, codes(h, r, 2))

	server := serve(t, h)
	require.Equal(t, http.StatusOK, server.get(t, server.h1, "/").StatusCode)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.url, "http://"))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "HTTP/1.1 429 Too Many Requests\r\n", line, "the client is not told to send its body")
}

func TestAttack21OddRequests(t *testing.T) {
	l, clock := perMinute(t, 1)
	server := serve(t, wrap(t, l, httplimit.Config{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		case "/103":
			w.WriteHeader(http.StatusEarlyHints)
		}
	})))
	for _, c := range []*http.Client{server.h1, server.h2} {
		for path, want := range map[string]int{"/204": 204, "/304": 304, "/103": 200} {
			clock.Advance(time.Minute)
			res := server.get(t, c, path)
			assert.Equal(t, want, res.StatusCode)
			assert.Equal(t, `"per-client";r=0;t=60`, res.Header.Get("RateLimit"))
			for _, method := range []string{http.MethodHead, http.MethodPost} {
				r, err := http.NewRequestWithContext(t.Context(), method, server.url+path, nil)
				require.NoError(t, err)
				res, err := c.Do(r)
				require.NoError(t, err)
				body, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
				assert.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
				assert.Equal(t, method == http.MethodHead, len(body) == 0)
				assert.Empty(t, res.Trailer)
			}
		}
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.url, "http://"))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Regexp(t, "(?s)^HTTP/1.0 429 .*\r\nRetry-After: 60\r\n.*}$", string(all))
}

func TestAttack22Writers(t *testing.T) {
	l, _ := perMinute(t, 10)
	type writer struct{ http.ResponseWriter }
	w := &writer{httptest.NewRecorder()}
	var inner http.ResponseWriter
	h := wrap(t, l, httplimit.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { inner = w }))
	h.ServeHTTP(w, request(t, "/", "203.0.113.9:1"))
	assert.Same(t, w, inner, "with all that it can do")
}

func TestAttack23Preflights(t *testing.T) {
	preflight := request(t, "/", "203.0.113.9:1", "Origin", "https://a.example", "Access-Control-Request-Method", "PUT")
	preflight.Method = http.MethodOptions
	l, _ := perMinute(t, 1)
	assert.Equal(t, []int{200, 429}, codes(wrap(t, l, httplimit.Config{}, ok), preflight, 2), "counted")
	skips := wrap(t, l, httplimit.Config{Skip: httplimit.Preflight}, ok)
	assert.Equal(t, []int{200, 200}, codes(skips, preflight, 2))
	for _, header := range []string{"Origin", "Access-Control-Request-Method"} {
		r := preflight.Clone(t.Context())
		r.Header.Del(header)
		assert.Equal(t, 429, answer(skips, r).Code, "without %s it is none", header)
	}
	r := preflight.Clone(t.Context())
	r.Method = http.MethodGet
	assert.Equal(t, 429, answer(skips, r).Code, "nor is a GET")
}

func TestAttack25NoPeer(t *testing.T) {
	for peer, want := range map[string]string{"": "unknown", "@": "unknown", "nonsense": "unknown"} {
		l, _ := perMinute(t, 1)
		h := wrap(t, l, httplimit.Config{}, ok)
		assert.Equal(t, []int{200, 429}, codes(h, request(t, "/", peer), 2), "it is limited")
		l, _ = perMinute(t, 10)
		assert.Equal(t, want, infoOf(t, made(t, l, httplimit.Config{Info: true}), request(t, "/", peer)).Request.IP)
	}
	_, err := httplimit.New(nil, httplimit.Config{})
	assert.EqualError(t, err, "ratelimit: limiter is nil: must be one that ratelimit.New has made")
}

func TestAttack26EndedContext(t *testing.T) {
	l, _ := perMinute(t, 1)
	h := wrap(t, l, httplimit.Config{Error: func(*http.Request, error) bool { return true }}, ok)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := answer(h, request(t, "/", "203.0.113.9:1").WithContext(ctx))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.JSONEq(t, `{"type":"about:blank","title":"Service Unavailable","status":503}`, w.Body.String())
	assert.Equal(t, 200, get(t, h, "/", "203.0.113.9:1").Code, "nothing was charged")
}

func TestAttack27RemovedRule(t *testing.T) {
	l, _ := perMinute(t, 1, ratelimit.Rule{Name: "login", Rate: ratelimit.PerMinute(1)})
	log := new(logbook)
	c := httplimit.Config{
		Log: log.logger(), Info: true,
		Prepare: func(_ *http.Request, r *ratelimit.Request) { r.Rules = []string{"login"} },
	}
	require.NoError(t, l.RemoveRule("login"))
	w := get(t, wrap(t, l, c, ok), "/", "203.0.113.9:1")
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.JSONEq(t, `{"type":"about:blank","title":"Internal Server Error","status":500}`, w.Body.String())
	require.Len(t, log.lines(), 1)
	assert.Contains(t, log.lines()[0], "unknown rule")

	var told error
	c.Error = func(_ *http.Request, err error) bool { told = err; return true }
	marked := true
	h := wrap(t, l, c, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, marked = httplimit.FromContext(r.Context()) }))
	w = get(t, h, "/", "203.0.113.9:1")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.ErrorIs(t, told, ratelimit.ErrUnknownRule)
	assert.False(t, marked, "nothing was decided")
	assert.Empty(t, w.Header(), "and nothing is told")
}

func TestAttack33LogFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithName("n"),
			ratelimit.WithStore(brokenStore{errors.New("down\nlevel=ERROR msg=forged")}))
		log := new(logbook)
		proxied := request(t, "/", proxy, "X-Forwarded-For", "6.6.6.6")
		h := wrap(t, l, httplimit.Config{Log: log.logger()}, ok)
		removed, _ := perMinute(t, 1)
		unknown := wrap(t, removed, httplimit.Config{Log: log.logger(),
			Prepare: func(_ *http.Request, r *ratelimit.Request) { r.Rules = []string{"x"} }}, ok)
		requests := 100_000
		if testing.Short() || raceEnabled {
			requests = 1000
		}
		for range requests {
			answer(h, proxied)
			answer(unknown, proxied)
		}
		require.Len(t, log.lines(), 4, "one line of each kind: %q", log.lines())
		for _, line := range log.lines() {
			assert.True(t, strings.HasPrefix(line, "time="), "no line is forged: %s", line)
			assert.NotContains(t, line, "6.6.6.6")
			assert.NotContains(t, line, "10.0.0.1")
		}
		time.Sleep(time.Minute)
		answer(h, proxied)
		answer(h, proxied)
		require.Len(t, log.lines(), 5)
		assert.Contains(t, log.lines()[4], fmt.Sprintf("more=%d", requests-1))
	})
}
