package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestAnswers compares whole answers, header and body.
func TestAnswers(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{
		{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerMinute(100)},
		{Name: "daily", Endpoint: "*", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerDay(1000)},
	}, nil)
	h := wrap(t, l, httplimit.Config{Prepare: func(r *http.Request, q *ratelimit.Request) {
		q.Cost,
			_ = strconv.Atoi(r.URL.Query().Get("cost"))
	}}, ok)
	w := get(t, h, "/?cost=50", "203.0.113.9:1")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, http.Header{
		"Ratelimit":        {`"per-client";r=50;t=30, "daily";r=950;t=86400`},
		"Ratelimit-Policy": {`"per-client";q=100;w=60, "daily";q=1000;w=86400`},
	}, stripped(w))
	require.Equal(t, http.StatusOK, get(t, h, "/?cost=50", "203.0.113.9:1").Code)

	denied := http.Header{
		"Cache-Control":          {"no-store"},
		"Content-Type":           {"application/problem+json"},
		"Ratelimit":              {`"per-client";r=0;t=30`},
		"Ratelimit-Policy":       {`"per-client";q=100;w=60, "daily";q=1000;w=86400`},
		"Retry-After":            {"30"},
		"X-Content-Type-Options": {"nosniff"},
	}
	w = get(t, h, "/?cost=50", "203.0.113.9:1")
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, denied, stripped(w))
	assert.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota `+
		`Exceeded","status":429,"violated-policies":["per-client"]}`, w.Body.String())

	w = get(t, h, "/?cost=101", "203.0.113.9:1")
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	delete(denied, "Retry-After") // no wait is long enough
	denied["Ratelimit"] = []string{`"per-client";r=0;t=1`}
	assert.Equal(t, denied, stripped(w))

	w = get(t, h, "/?cost=1001", "198.51.100.7:1")
	denied["Ratelimit"] = []string{`"per-client";r=100, "daily";r=1000`}
	assert.Equal(t, denied, stripped(w), "all is left, and no more can be had")
	assert.Contains(t, w.Body.String(), `"violated-policies":["per-client","daily"]`)
}

// stripped returns the header without what the body of ok adds.
func stripped(w *httptest.ResponseRecorder) http.Header {
	h := w.Result().Header
	if h.Get("Content-Type") == "text/plain; charset=utf-8" {
		h.Del("Content-Type")
	}
	return h
}

// TestFailurePolicies tells a store that cannot be reached from a client that asks too often.
func TestFailurePolicies(t *testing.T) {
	for _, row := range []struct {
		policy ratelimit.FailurePolicy
		own    bool // as the rule's own, or as the limiter's
		want   []int
		retry  string
	}{
		{ratelimit.FailClosed, false, []int{503, 503}, "1"},
		{ratelimit.FailClosed, true, []int{503, 503}, "1"},
		{ratelimit.FailLocal(1), true, []int{200, 429}, "60"},
		{ratelimit.FailOpen, true, []int{200, 200}, ""},
	} {
		rule, opts := &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, []ratelimit.Option{ratelimit.WithName("n"),
			ratelimit.WithStore(brokenStore{errors.New("down")})}
		if row.own {
			rule.OnStoreError = row.policy
		} else {
			opts = append(opts, ratelimit.WithFailurePolicy(row.policy))
		}
		l, _ := limited(t, nil, rule, opts...)
		h := wrap(t, l, httplimit.Config{Log: new(logbook).logger()}, ok)
		assert.Equal(t, row.want[0], get(t, h, "/", "203.0.113.9:1").Code, row.policy)
		w := get(t, h, "/", "203.0.113.9:1")
		assert.Equal(t, row.want[1], w.Code, row.policy)
		assert.Equal(t, row.retry, w.Header().Get("Retry-After"), row.policy)
		assert.Empty(t, w.Header().Values("RateLimit"), "%v: what is left is not known", row.policy)
		if w.Code == http.StatusServiceUnavailable {
			assert.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced `+
				`Capacity","status":503}`, w.Body.String())
		}
	}
}

// TestResolvedRateThatIsInvalid acts on the Result, and logs the error.
func TestResolvedRateThatIsInvalid(t *testing.T) {
	l, _ := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1),
		Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.Rate{}, true }})
	log := new(logbook)
	h := wrap(t, l, httplimit.Config{Log: log.logger()}, ok)
	assert.Equal(t, []int{200, 429}, codes(h, request(t, "/", "203.0.113.9:1"), 2))
	require.Len(t, log.lines(), 1)
	assert.Contains(t, log.lines()[0], "the Resolve of a rule has returned an invalid rate, and the rule has decided by its own rate")
	assert.NotContains(t, log.lines()[0], "failure policy")
}

func TestGRPC(t *testing.T) {
	l, clock := perMinute(t, 60)
	h := wrap(t, l, httplimit.Config{Prepare: func(r *http.Request, q *ratelimit.Request) {
		q.Cost,
			_ = strconv.Atoi(r.URL.Query().Get("cost"))
	}}, ok)
	ask := func(cost string, header ...string) *httptest.ResponseRecorder {
		return get(t, h, "/?cost="+cost, "203.0.113.9:1", append(header, "Content-Type", "application/grpc+proto")...)
	}
	require.Equal(t, 200, ask("60").Code)
	w := ask("1")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Empty(t, w.Body.String())
	assert.Equal(t, http.Header{
		"Cache-Control":          {"no-store"},
		"Content-Type":           {"application/grpc+proto"},
		"Grpc-Message":           {"too many requests"},
		"Grpc-Retry-Pushback-Ms": {"1000"},
		"Grpc-Status":            {"8"},
		"Ratelimit":              {`"per-client";r=0;t=1`},
		"Ratelimit-Policy":       {`"per-client";q=60;w=60`},
		"Retry-After":            {"1"},
	}, stripped(w))
	clock.Advance(time.Nanosecond)
	for _, row := range []struct{ cost, timeout, want, why string }{
		{"1", "", "1000", "rounded up"},
		{"1", "1S", "1000", "just in time"},
		{"1", "999m", "-1", "it would end before"},
		{"1", "1n", "-1", "in nanoseconds"},
		{"1", "99999999H", "1000", "longer than a Duration"},
		{"1", "2M", "1000", "in minutes"},
		{"1", "1000000u", "1000", "in microseconds"},
		{"1", "x", "1000", "no timeout"},
		{"1", "-1S", "1000", "no timeout"},
		{"1", "123456789n", "1000", "too many digits"},
		{"10", "", "10000", "10 s"},
		{"11", "", "-1", "longer than a call should be kept"},
		{"61", "", "-1", "never"},
	} {
		assert.Equal(t, row.want, ask(row.cost, "Grpc-Timeout", row.timeout).Header().Get("Grpc-Retry-Pushback-Ms"), row.why)
	}
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]string{time.Second: "1000", time.Second - 1: "-1"} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			r := request(t, "/", "203.0.113.9:1", "Content-Type", "application/grpc").WithContext(ctx)
			assert.Equal(t, want, answer(h, r).Header().Get("Grpc-Retry-Pushback-Ms"))
			cancel()
			assert.Equal(t, "14", answer(h, r).Header().Get("Grpc-Status"), "an ended context")
		}
	})

	closed, _ := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1), OnStoreError: ratelimit.FailClosed}, ratelimit.WithName("n"),
		ratelimit.WithStore(brokenStore{errors.New("down")}))
	w = get(t, wrap(t, closed, httplimit.Config{Log: new(logbook).logger()}, ok), "/", "203.0.113.9:1", "Content-Type", "application/grpc")
	assert.Equal(t, "14", w.Header().Get("Grpc-Status"))
	assert.Equal(t, "1000", w.Header().Get("Grpc-Retry-Pushback-Ms"))
	removed := wrap(t, l, httplimit.Config{Log: new(logbook).logger(),
		Prepare: func(_ *http.Request, q *ratelimit.Request) { q.Rules = []string{"x"} }}, ok)
	w = get(t, removed, "/", "203.0.113.9:1", "Content-Type", "application/grpc")
	assert.Equal(t, "13", w.Header().Get("Grpc-Status"))
	assert.Equal(t, http.StatusOK, w.Code)
}

// TestDenied has an answer of the user's own.
func TestDenied(t *testing.T) {
	l, _ := perMinute(t, 1)
	var got *httplimit.Info
	h := wrap(t, l, httplimit.Config{Denied: func(w http.ResponseWriter, _ *http.Request, i *httplimit.Info) {
		got = i
		http.Error(w, "slow down", i.Status)
	}}, ok)
	assert.Equal(t, 200, get(t, h, "/", "203.0.113.9:1").Code)
	w := get(t, h, "/", "203.0.113.9:1")
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "slow down\n", w.Body.String())
	assert.Equal(t, "60", w.Header().Get("Retry-After"), "the header is set before")
	assert.Equal(t, `"per-client";r=0;t=60`, w.Header().Get("RateLimit"))
	res := ratelimit.Result{Limit: 1, RetryAfter: time.Minute, ResetAfter: time.Minute, Rule: "per-client", Reason: ratelimit.ReasonLimit}
	assert.Equal(t, ratelimit.Request{Client: "ip:203.0.113.9", IP: "203.0.113.9", Endpoint: "unmatched"}, got.Request)
	assert.Equal(t, netip.MustParseAddr(client), got.Addr)
	assert.Equal(t, res, got.Result)
	assert.Equal(t, []ratelimit.Result{res}, got.Rules)
	assert.Equal(t, 429, got.Status)

	w = httptest.NewRecorder()
	httplimit.Problem(w, request(t, "/", ""), &httplimit.Info{})
	assert.Equal(t, 429, w.Code, "an Info of the user's own")
	assert.NotContains(t, w.Body.String(), "violated")
}

func TestSkip(t *testing.T) {
	l, _ := perMinute(t, 1)
	marked := false
	h := wrap(t, l, httplimit.Config{Skip: httplimit.SkipPaths("/healthz", "/ready"), Info: true},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, marked = httplimit.FromContext(r.Context())
		}))
	for range 3 {
		w := get(t, h, "/healthz", "203.0.113.9:1")
		assert.Equal(t, 200, w.Code)
		assert.Empty(t, w.Header())
		assert.False(t, marked)
	}
	for _, path := range []string{"/healthz/", "//healthz", "/HEALTHZ", "/x"} {
		r := request(t, "/", "203.0.113."+strconv.Itoa(len(path))+":1")
		r.URL.Path = path
		answer(h, r)
		assert.True(t, marked, path)
	}
}

// TestAllow limits wrong passwords by address and by name, inside of a handler.
func TestAllow(t *testing.T) {
	l, clock := limited(t, []ratelimit.Rule{
		{Name: "requests", Endpoint: "/login", Rate: ratelimit.PerMinute(100)},
		{Name: "wrong by name", Rate: ratelimit.PerMinute(3)},
		{Name: "wrong by address", Key: ratelimit.KeyIP, Rate: ratelimit.PerMinute(4)},
	}, nil)
	m := made(t, l, httplimit.Config{})
	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") == "right" {
			return
		}
		if m.Allow(w, r, ratelimit.Request{Client: r.FormValue("name"), Rules: []string{"wrong by name", "wrong by address"}}) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	h := m.Handler(mux)
	try := func(name, password, from string) *httptest.ResponseRecorder {
		return get(t, h, "/login?name="+name+"&password="+password, from)
	}
	for range 3 {
		assert.Equal(t, 401, try("alice", "wrong", "203.0.113.9:1").Code)
		assert.Equal(t, 200, try("alice", "right", "203.0.113.9:1").Code)
	}
	w := try("alice", "wrong", "198.51.100.7:1")
	assert.Equal(t, 429, w.Code, "by name")
	assert.Equal(t, []string{`"requests";r=99;t=60`, `"wrong by name";r=0;t=20`}, w.Header().Values("RateLimit"),
		"beside what the Handler has told")
	assert.Equal(t, 401, try("bob", "wrong", "203.0.113.9:1").Code)
	assert.Equal(t, 429, try("carol", "wrong", "203.0.113.9:1").Code, "by address")
	clock.Advance(time.Minute)
	assert.Equal(t, 401, try("alice", "wrong", "203.0.113.9:1").Code)

	alone, _ := perMinute(t, 1, ratelimit.Rule{Endpoint: "/a", Rate: ratelimit.PerMinute(2),
		Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(3)}})
	m = made(t, alone, httplimit.Config{Client: func(r *http.Request) (string, string, bool) { return "alice", "paid", true }})
	r := request(t, "/", "203.0.113.9:1")
	r.Pattern = "GET /a"
	var got []bool
	for range 4 {
		got = append(got, m.Allow(httptest.NewRecorder(), r, ratelimit.Request{}))
	}
	assert.Equal(t, []bool{true, true, true, false}, got, "the client, tier and endpoint are filled in")
}

// TestPatternComesBack shows what a router sets to handlers around the Middleware.
func TestPatternComesBack(t *testing.T) {
	l, _ := perMinute(t, 100)
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", ok)
	r := request(t, "/users/7", "203.0.113.9:1")
	answer(wrap(t, l, httplimit.Config{}, mux), r)
	assert.Equal(t, "GET /users/{id}", r.Pattern)
}

// TestUploadsAreRemoved lets the server remove the files of an upload, which it finds in the
// request that it has made.
func TestUploadsAreRemoved(t *testing.T) {
	l, _ := perMinute(t, 100)
	names := make(chan string, 1)
	server := serve(t, wrap(t, l, httplimit.Config{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !assert.NoError(t, r.ParseMultipartForm(1)) {
			return
		}
		file, _, err := r.FormFile("f")
		if assert.NoError(t, err) {
			names <- file.(*os.File).Name()
			assert.NoError(t, file.Close())
		}
	})))
	body := "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n" + strings.Repeat("x", 12<<20) + "\r\n--x--\r\n"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
	res, err := server.h1.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	server.get(t, server.h1, "/") // the same connection: the first request is over
	_, err = os.Stat(<-names)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestRouterInside warns once where requests have a route, but not before they are limited.
func TestRouterInside(t *testing.T) {
	l, _ := perMinute(t, 100)
	mux := http.NewServeMux()
	mux.Handle("/a", ok)
	hidden := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, r) })
	log := new(logbook)
	h := wrap(t, l, httplimit.Config{Log: log.logger()}, hidden)
	for range 3 {
		get(t, h, "/a", "203.0.113.9:1")
		get(t, h, "/nowhere", "203.0.113.9:1")
	}
	require.Len(t, log.lines(), 1)
	assert.Contains(t, log.lines()[0], "Config.Endpoint")

	silent := new(logbook)
	get(t, wrap(t, l, httplimit.Config{Log: silent.logger(), Endpoint: httplimit.Route(mux)}, hidden), "/a", "203.0.113.9:1")
	get(t, wrap(t, l, httplimit.Config{Log: silent.logger()}, mux), "/a", "203.0.113.9:1")
	get(t, wrap(t, l, httplimit.Config{Log: silent.logger()}, hidden), "/nowhere", "203.0.113.9:1")
	assert.Empty(t, silent.lines())
}

// TestNestedRouters names a request by the router that serves it.
func TestNestedRouters(t *testing.T) {
	l, _ := perMinute(t, 100)
	var endpoint string
	note := func(_ *http.Request, r *ratelimit.Request) { endpoint = r.Endpoint }
	inner := http.NewServeMux()
	inner.Handle("/api/users/{id}", ok)
	for name, h := range map[string]http.Handler{
		"by itself":  wrap(t, l, httplimit.Config{Prepare: note}, inner),
		"explicitly": wrap(t, l, httplimit.Config{Prepare: note, Endpoint: httplimit.Route(inner)}, http.HandlerFunc(inner.ServeHTTP)),
	} {
		outer := http.NewServeMux()
		outer.Handle("/api/", h)
		get(t, outer, "/api/users/7", "203.0.113.9:1")
		assert.Equal(t, "/api/users/{id}", endpoint, name)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /deep/{x}", wrap(t, l, httplimit.Config{Prepare: note}, ok))
	get(t, mux, "/deep/7", "203.0.113.9:1")
	assert.Equal(t, "/deep/{x}", endpoint, "inside of a router")
	get(t, wrap(t, l, httplimit.Config{Prepare: note}, inner), "/nowhere", "203.0.113.9:1")
	assert.Equal(t, "unmatched", endpoint)
}

func TestCheck(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{"/search", "POST /login", "GET /users/{id}", "/files/{path...}", "GET /home/{$}",
		"GET example.com/hosted"} {
		mux.Handle(pattern, ok)
	}
	rules := func(endpoints ...string) (list []ratelimit.Rule) {
		for _, e := range endpoints {
			list = append(list, ratelimit.Rule{Endpoint: e, Rate: ratelimit.PerMinute(1)})
		}
		return list
	}
	l, _ := limited(t, rules("/search", "/login", "/users/{id}", "/files/{path...}", "/home/{$}", "/any*", "unmatched"),
		&ratelimit.Rule{Rate: ratelimit.PerMinute(1)})
	assert.NoError(t, made(t, l, httplimit.Config{}).Check(mux))
	l, _ = limited(t, rules("POST /login", "GET /users/{id}", "GET /home/{$}", "GET example.com/hosted"), nil)
	assert.NoError(t, made(t, l, httplimit.Config{Endpoint: httplimit.Pattern(mux)}).Check(mux))
	assert.EqualError(t, made(t, l, httplimit.Config{Endpoint: httplimit.Fixed("POST /login")}).Check(mux), strings.TrimSpace(`
httplimit: rule "GET /users/{id}" limits nothing: no route gives its endpoint "GET /users/{id}"
httplimit: rule "GET /home/{$}" limits nothing: no route gives its endpoint "GET /home/{$}"
httplimit: rule "GET example.com/hosted" limits nothing: no route gives its endpoint "GET example.com/hosted"`))

	l, _ = limited(t, rules("/serach", "/users/7", "/search"), nil)
	log := new(logbook)
	m := made(t, l, httplimit.Config{Log: log.logger()})
	wrong := `httplimit: rule "/serach" limits nothing: no route gives its endpoint "/serach"
httplimit: rule "/users/7" limits nothing: no route gives its endpoint "/users/7"`
	assert.EqualError(t, m.Check(mux), wrong)
	assert.Empty(t, log.lines())
	m.Handler(mux)
	require.Len(t, log.lines(), 1, "at the start")
	assert.Contains(t, log.lines()[0], `/serach`)
}

// TestNamesThatDifferInCase says at the start, and after a change of the rules, what a client may take for one rule.
func TestNamesThatDifferInCase(t *testing.T) {
	rate := ratelimit.PerMinute(1)
	rules := []ratelimit.Rule{{Name: "Search", Endpoint: "/a", Rate: rate}, {Name: "search", Endpoint: "/b", Rate: rate}}
	hidden := []ratelimit.Rule{rules[0], {Name: "search", Endpoint: "/b", Key: ratelimit.KeyGlobal, Rate: rate}}
	for _, row := range []struct {
		rules  []ratelimit.Rule
		config httplimit.Config
		lines  int
	}{
		{rules, httplimit.Config{}, 1},
		{rules[:1], httplimit.Config{}, 0},
		{rules, httplimit.Config{Headers: httplimit.HeadersDelta}, 0},
		{hidden, httplimit.Config{}, 0},
		{hidden, httplimit.Config{ShowShared: true}, 1},
	} {
		log := new(logbook)
		row.config.Log = log.logger()
		l, _ := limited(t, row.rules, nil)
		made(t, l, row.config)
		require.Len(t, log.lines(), row.lines)
		if row.lines > 0 {
			assert.Contains(t, log.lines()[0], "differ only in case")
			assert.Contains(t, log.lines()[0], "rule=search other=Search")
		}
	}
	log := new(logbook)
	l, _ := limited(t, rules[:1], nil)
	h := wrap(t, l, httplimit.Config{Log: log.logger()}, ok)
	require.NoError(t, l.AddRule(rules[1]))
	get(t, h, "/", "203.0.113.9:1")
	get(t, h, "/", "203.0.113.9:1")
	assert.Len(t, log.lines(), 1)
}

// TestUnknownTiers names a plan that no rule knows. The log says so once for each name, for at most 100 names.
func TestUnknownTiers(t *testing.T) {
	log := new(logbook)
	tier := "Pro"
	config := httplimit.Config{Log: log.logger(), Client: func(*http.Request) (string, string, bool) { return "alice", tier, true }}
	ask := func(h http.Handler, name string) int {
		tier = name
		return get(t, h, "/", "203.0.113.9:1").Code
	}
	l, _ := perMinute(t, 9000)
	plain := wrap(t, l, config, ok)
	assert.Equal(t, 200, ask(plain, "Pro"))
	assert.Empty(t, log.lines(), "these rules have no tiers")

	l, _ = perMinute(t, 9000, ratelimit.Rule{Name: "all", Endpoint: "*", Additional: true, Rate: ratelimit.PerMinute(9000),
		Tiers: map[string]ratelimit.Rate{"pro": ratelimit.PerMinute(9900), "staff": ratelimit.Unlimited}})
	h := wrap(t, l, config, ok)
	for _, known := range []string{"pro", "staff", ""} {
		assert.Equal(t, 200, ask(h, known))
	}
	assert.Empty(t, log.lines())
	for range 3 {
		assert.Equal(t, 200, ask(h, "Pro\n"))
	}
	require.Len(t, log.lines(), 1)
	assert.Contains(t, log.lines()[0], `rate for a tier, so each rule's own rate limits its clients" tier="Pro\n"`)
	for i := range 200 {
		ask(h, fmt.Sprint(i))
		ask(h, "Pro\n")
	}
	assert.Len(t, log.lines(), 100)
}

// TestCheckAfterReload changes the rules so that one limits nothing. The next request says so, once.
func TestCheckAfterReload(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("POST /login", ok)
	mux.Handle("/search", ok)
	l, _ := limited(t, []ratelimit.Rule{{Endpoint: "/login", Rate: ratelimit.PerMinute(1)}}, &ratelimit.Rule{Rate: ratelimit.PerHour(1000)})
	log := new(logbook)
	h := made(t, l, httplimit.Config{Log: log.logger()}).Handler(mux)
	ask := func() (lines []string) {
		before := len(log.lines())
		for range 3 {
			get(t, h, "/search", "203.0.113.9:1")
		}
		return log.lines()[before:]
	}
	assert.Empty(t, ask())
	reload := func(endpoints ...string) {
		var rules []ratelimit.Rule
		for _, e := range endpoints {
			rules = append(rules, ratelimit.Rule{Endpoint: e, Rate: ratelimit.PerMinute(1)})
		}
		require.NoError(t, l.Replace(rules, nil))
	}
	reload("/logn", "/search")
	lines := ask()
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], `rules limit nothing`)
	assert.Contains(t, lines[0], `/logn`)
	reload("/logn")
	assert.Empty(t, ask(), "it is known")
	reload("/login")
	assert.Empty(t, ask())
	reload("/login", "/logn", "/serach")
	lines = ask()
	require.Len(t, lines, 1, "it is wrong again")
	assert.Contains(t, lines[0], `/logn`)
	assert.Contains(t, lines[0], `/serach`)
}

// TestNewReports compares everything that is said of configs that are wrong.
func TestNewReports(t *testing.T) {
	none, err := ratelimit.New(nil, nil)
	require.NoError(t, err)
	good, _ := perMinute(t, 1)
	spaced, _ := limited(t, []ratelimit.Rule{{Endpoint: "GET /a", Rate: ratelimit.PerMinute(1)},
		{Name: "b", Endpoint: "POST /*", Rate: ratelimit.PerMinute(1)}}, nil)
	mapped := netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)
	for _, row := range []struct {
		limiter *ratelimit.RateLimiter
		config  httplimit.Config
		want    string
	}{
		{nil, httplimit.Config{}, `ratelimit: limiter is nil: must be one that ratelimit.New has made`},
		{none, httplimit.Config{}, `ratelimit: limiter is without rules: must have at least one rule, or it limits nothing`},
		{new(ratelimit.RateLimiter), httplimit.Config{},
			`ratelimit: limiter is without rules: must have at least one rule, or it limits nothing`},
		{spaced, httplimit.Config{}, `
ratelimit: rules["GET /a"].endpoint is GET /a: must be the path of a route alone, such as "/users/{id}", or set Config.Endpoint to Pattern
ratelimit: rules["b"].endpoint is POST /*: must be the path of a route alone, such as "/users/{id}", or set Config.Endpoint to Pattern`},
		{spaced, httplimit.Config{Endpoint: httplimit.Pattern(nil)}, ""},
		{nil, httplimit.Config{
			IPv6Bits: 31, Headers: 4,
			Proxies: httplimit.Proxies{Trusted: append(prefixes("0.0.0.0/0", "::/0", "10.0.0.0/8"), netip.Prefix{}, mapped), Hops: 65,
				Header: "CF Connecting"},
		}, `
ratelimit: limiter is nil: must be one that ratelimit.New has made
ratelimit: proxies.trusted[0] is 0.0.0.0/0: must not be everybody: list the proxies' own addresses, such as 10.1.0.0/16
ratelimit: proxies.trusted[1] is ::/0: must not be everybody: list the proxies' own addresses, such as 10.1.0.0/16
ratelimit: proxies.trusted[3] is invalid Prefix: must be a valid prefix, such as 10.0.0.0/8
ratelimit: proxies.trusted[4] is ::ffff:10.0.0.0/104: must be written as IPv4: 10.0.0.0/8
ratelimit: proxies.hops is 65: must be from 1 to 64, or 0
ratelimit: proxies.hops is 65: must be 0 beside Trusted or Unix: one of the two says who is believed
ratelimit: proxies.header is "CF Connecting": must be the name of a header field, such as "CF-Connecting-IP"
ratelimit: ipv6Bits is 31: must be from 32 to 128, or 0 for 64
ratelimit: headers is 4: must be HeadersDraft11, HeadersDelta, HeadersEpoch or HeadersNone`},
		{good, httplimit.Config{IPv6Bits: 129, Headers: -1}, `
ratelimit: ipv6Bits is 129: must be from 32 to 128, or 0 for 64
ratelimit: headers is -1: must be HeadersDraft11, HeadersDelta, HeadersEpoch or HeadersNone`},
		{good, httplimit.Config{Proxies: httplimit.Proxies{Hops: -1}}, `ratelimit: proxies.hops is -1: must be from 1 to 64, or 0`},
		{good, httplimit.Config{Proxies: httplimit.Proxies{Hops: 1, Unix: true}},
			`ratelimit: proxies.hops is 1: must be 0 beside Trusted or Unix: one of the two says who is believed`},
		{good, httplimit.Config{Proxies: httplimit.Proxies{Header: "X-Real-IP"}},
			`ratelimit: proxies.header is X-Real-IP: must be empty unless Trusted, Unix or Hops says from whom it is believed`},
		{good, httplimit.Config{Proxies: httplimit.Proxies{Header: "X-Real-IP", Hops: 2}},
			`ratelimit: proxies.header is X-Real-IP: must be empty if Hops is above 1: it has one address`},
		{good, httplimit.Config{Proxies: httplimit.Proxies{Header: "forwarded", Unix: true}},
			`ratelimit: proxies.header is forwarded: must be a field with addresses alone, such as "X-Forwarded-For"; Forwarded is not read`},
		{good, httplimit.Config{Proxies: httplimit.Proxies{Header: "x-forwarded-for", Hops: 64}, IPv6Bits: 32, Headers: httplimit.HeadersNone},
			""},
		{good, httplimit.Config{Proxies: httplimit.Proxies{Header: "X-Real-IP", Hops: 1}, IPv6Bits: 128}, ""},
	} {
		m, err := httplimit.New(row.limiter, row.config)
		if row.want == "" {
			require.NoError(t, err)
			continue
		}
		assert.EqualError(t, err, strings.TrimSpace(row.want))
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		assert.Nil(t, m)
	}
	assert.Panics(t, func() { httplimit.Handler(ok, nil) })
	assert.Panics(t, func() { httplimit.Handler(ok, none) })
	assert.Panics(t, func() { httplimit.Handler(nil, good) })
}

func TestExposedHeaders(t *testing.T) {
	assert.Equal(t, []string{"RateLimit", "RateLimit-Policy", "Retry-After"}, httplimit.ExposedHeaders(httplimit.HeadersDraft11))
	legacy := []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"}
	assert.Equal(t, legacy, httplimit.ExposedHeaders(httplimit.HeadersDelta))
	assert.Equal(t, legacy, httplimit.ExposedHeaders(httplimit.HeadersEpoch))
	assert.Equal(t, []string{"Retry-After"}, httplimit.ExposedHeaders(httplimit.HeadersNone))
}

// TestEpoch rounds the end of the wait up, not the wait.
func TestEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := perMinute(t, 60)
		h := wrap(t, l, httplimit.Config{Headers: httplimit.HeadersEpoch}, ok)
		for _, after := range []time.Duration{0, 1, 999_999_999} {
			time.Sleep(after)
			w := get(t, h, "/", "203.0.113.9:1")
			want := time.Now().Add(time.Second + time.Second - 1).Unix()
			assert.Equal(t, strconv.FormatInt(want, 10), w.Header().Get("X-RateLimit-Reset"))
		}
	})
}

// TestEpochOfALongWait does not overflow.
func TestEpochOfALongWait(t *testing.T) {
	l, _ := limited(t, nil, &ratelimit.Rule{Limiter: denying{}})
	w := get(t, wrap(t, l, httplimit.Config{Headers: httplimit.HeadersEpoch}, ok), "/", "203.0.113.9:1")
	assert.Equal(t, 429, w.Code)
	reset, err := strconv.ParseInt(w.Header().Get("X-RateLimit-Reset"), 10, 64)
	require.NoError(t, err)
	assert.Greater(t, reset, int64((ratelimit.Never-1)/time.Second))
}

// A denying Limiter denies for 292 years.
type denying struct{}

func (denying) Allow(string) ratelimit.Result {
	return ratelimit.Result{Limit: 1, RetryAfter: ratelimit.Never - 1, ResetAfter: ratelimit.Never - 1}
}

func (d denying) Take(context.Context, string, int) (ratelimit.Result, error) {
	return d.Allow(""), nil
}

// TestChangedRules tells clients of the rules that decide.
func TestChangedRules(t *testing.T) {
	l, _ := perMinute(t, 10)
	h := wrap(t, l, httplimit.Config{}, ok)
	assert.Equal(t, `"per-client";q=10;w=60`, get(t, h, "/", "203.0.113.9:1").Header().Get("RateLimit-Policy"))
	require.NoError(t, l.UpdateRate("per-client", ratelimit.PerHour(5)))
	assert.Equal(t, `"per-client";q=5;w=3600`, get(t, h, "/", "203.0.113.9:1").Header().Get("RateLimit-Policy"))
	require.NoError(t, l.RemoveRule("per-client"))
	w := get(t, h, "/", "203.0.113.9:1")
	assert.Equal(t, 200, w.Code)
	assert.Empty(t, stripped(w))
}

// TestReset forgets what an address has used, by what Client returns.
func TestReset(t *testing.T) {
	l, _ := perMinute(t, 1)
	m := made(t, l, httplimit.Config{})
	h := m.Handler(ok)
	for _, from := range []string{"203.0.113.9", "2001:db8::1"} {
		r := request(t, "/", netip.AddrPortFrom(netip.MustParseAddr(from), 1).String())
		assert.Equal(t, []int{200, 429}, codes(h, r, 2))
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: m.Client(netip.MustParseAddr(from))}))
		assert.Equal(t, []int{200, 429}, codes(h, r, 2))
	}
}

// TestSharedFieldsAreNotOverwritten lets others add to a field without changing what is told
// elsewhere.
func TestSharedFieldsAreNotOverwritten(t *testing.T) {
	l, _ := perMinute(t, 100)
	h := wrap(t, l, httplimit.Config{},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Add("RateLimit", `"x";r=1`) }))
	for i := range 2 {
		w := get(t, h, "/", "203.0.113.9:1")
		assert.Equal(t, []string{`"per-client";r=` + strconv.Itoa(99-i) + `;t=` + strconv.Itoa(60-i), `"x";r=1`}, w.Header().Values("RateLimit"))
		assert.Len(t, w.Header().Values("RateLimit-Policy"), 1)
	}
}
