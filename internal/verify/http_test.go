package verify

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// An httpCase is one request to a Middleware, or several that are the same, and what is
// answered to the last of them.
type httpCase struct {
	rules  []ratelimit.Rule
	config httplimit.Config
	peer   string
	header []string // names and values, in turns
	times  int
	after  time.Duration // before the last
	store  ratelimit.Store

	status int
	want   map[string]string // fields of the answer; "" for one that it does not have
	client string
}

// httpCases are the promises of httplimit that its mutants break, one for each.
func httpCases() map[string]httpCase {
	ten := httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	bucket := ratelimit.Rule{Name: "a", Endpoint: "*", Rate: ratelimit.PerMinute(2)}
	window := ratelimit.Rule{Name: "w", Endpoint: "*", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.Rate{Requests: 5, Per: 1500 * time.Millisecond}}
	return map[string]httpCase{
		"the client is the last untrusted": {config: httplimit.Config{Proxies: ten}, peer: "10.0.0.1:1", header: []string{"X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.0.0.2"}, client: "ip:203.0.113.9"},
		"lines from the last":              {config: httplimit.Config{Proxies: ten}, peer: "10.0.0.1:1", header: []string{"X-Forwarded-For", "6.6.6.6", "X-Forwarded-For", "203.0.113.9"}, client: "ip:203.0.113.9"},
		"an untrusted peer":                {config: httplimit.Config{Proxies: ten}, peer: "203.0.113.9:1", header: []string{"X-Forwarded-For", "6.6.6.6"}, client: "ip:203.0.113.9"},
		"a mapped proxy":                   {config: httplimit.Config{Proxies: ten}, peer: "[::ffff:10.0.0.1]:1", header: []string{"X-Forwarded-For", "203.0.113.9, ::ffff:10.0.0.2"}, client: "ip:203.0.113.9"},
		"garbage stops":                    {config: httplimit.Config{Proxies: ten}, peer: "10.0.0.1:1", header: []string{"X-Forwarded-For", "6.6.6.6, x, 10.0.0.2"}, client: "ip:10.0.0.2"},
		"hops from the right":              {config: httplimit.Config{Proxies: httplimit.Proxies{Hops: 2}}, peer: "10.0.0.1:1", header: []string{"X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.0.0.2"}, client: "ip:203.0.113.9"},
		"one address only":                 {config: httplimit.Config{Proxies: httplimit.Proxies{Hops: 1, Header: "X-Real-IP"}}, peer: "203.0.113.9:1", header: []string{"X-Real-IP", "6.6.6.6, 7.7.7.7"}, client: "ip:203.0.113.9"},
		"a mask of 64 bits":                {peer: "[2001:db8:1:2:3::4]:1", client: "ip:2001:db8:1:2::/64"},
		"NAT64":                            {peer: "[64:ff9b::203.0.113.9]:1", client: "ip:203.0.113.9"},
		"a name like an address":           {config: httplimit.Config{Client: func(*http.Request) (string, string, bool) { return "ip:1.1.1.1", "", true }}, peer: "203.0.113.9:1", client: "id:ip:1.1.1.1"},
		"a long API key": {config: httplimit.Config{Client: httplimit.APIKey("X-Key", func(string) (string, string, bool) { return "x", "", true })},
			peer: "203.0.113.9:1", header: []string{"X-Key", strings.Repeat("k", 513)}, client: "ip:203.0.113.9"},

		"granted, and more is to come": {rules: []ratelimit.Rule{bucket}, want: map[string]string{"RateLimit": `"a";r=1;t=30`, "RateLimit-Policy": `"a";q=2;w=60`, "Retry-After": ""}},
		"seconds are rounded up": {rules: []ratelimit.Rule{bucket}, times: 3, after: 1, status: 429,
			want: map[string]string{"RateLimit": `"a";r=0;t=30`, "Retry-After": "30", "Cache-Control": "no-store"}},
		"windows are rounded up": {rules: []ratelimit.Rule{window}, want: map[string]string{"RateLimit-Policy": `"w";q=5;w=2`}},
		"the tightest first":     {rules: []ratelimit.Rule{{Name: "b", Endpoint: "*", Rate: ratelimit.PerMinute(9)}, bucket}, want: map[string]string{"RateLimit-Policy": `"a";q=2;w=60, "b";q=9;w=60`}},
		"who has denied": {rules: []ratelimit.Rule{{Name: "b", Endpoint: "*", Rate: ratelimit.PerMinute(9)}, bucket}, times: 3, status: 429,
			want: map[string]string{"RateLimit": `"a";r=0;t=30`, "RateLimit-Policy": `"a";q=2;w=60, "b";q=9;w=60`}},
		"shared rules are hidden": {rules: []ratelimit.Rule{{Name: "g", Endpoint: "*", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(1)}, bucket}, times: 2, status: 429,
			want: map[string]string{"RateLimit": "", "RateLimit-Policy": `"a";q=2;w=60`}},
		"names are escaped": {rules: []ratelimit.Rule{{Name: "\"\n%", Endpoint: "*", Rate: ratelimit.PerMinute(1)}}, want: map[string]string{"RateLimit": `"\"%0A%25";r=0;t=60`}},
		"a closed store": {rules: []ratelimit.Rule{{Name: "a", Endpoint: "*", Rate: ratelimit.PerMinute(1), OnStoreError: ratelimit.FailClosed}}, store: goneStore{errors.New("down")}, status: 503,
			want: map[string]string{"RateLimit": "", "Retry-After": "1"}},
		"the route and not the path": {rules: []ratelimit.Rule{{Endpoint: "/users/{id}", Rate: ratelimit.PerMinute(1)}}, times: 2, status: 429},
	}
}

// A goneStore is a Store that cannot be reached.
type goneStore struct{ err error }

func (s goneStore) Take(_ context.Context, _ []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, s.err
}
func (s goneStore) Reset(_ context.Context, _ []ratelimit.Ask) error { return s.err }

func TestHTTP(t *testing.T) {
	for name, c := range httpCases() {
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
}

func (c httpCase) run(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	opts := []ratelimit.Option{ratelimit.WithClock(clock)}
	if c.store != nil {
		opts = append(opts, ratelimit.WithStore(c.store), ratelimit.WithName("http"))
	}
	if c.rules == nil {
		c.rules = []ratelimit.Rule{{Endpoint: "*", Rate: ratelimit.PerMinute(9)}}
	}
	l, err := ratelimit.New(c.rules, nil, opts...)
	require.NoError(t, err)
	c.config.Info = true
	m, err := httplimit.New(l, c.config)
	require.NoError(t, err)
	mux := http.NewServeMux()
	client := ""
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) {
		info, ok := httplimit.FromContext(r.Context())
		require.True(t, ok)
		client = info.Request.Client
	})
	h := m.Handler(mux)
	var w *httptest.ResponseRecorder
	for i := range max(c.times, 1) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/users/"+string(rune('a'+i)), nil)
		if c.peer != "" {
			r.RemoteAddr = c.peer
		}
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Add(c.header[i], c.header[i+1])
		}
		if i > 0 && i == c.times-1 {
			clock.Advance(c.after)
		}
		w = httptest.NewRecorder()
		h.ServeHTTP(w, r)
	}
	require.Equal(t, max(c.status, http.StatusOK), w.Code)
	for field, want := range c.want {
		require.Equal(t, want, w.Header().Get(field), field)
	}
	if c.client != "" {
		require.Equal(t, c.client, client)
	}
}

// TestHTTPCount counts requests by the first final status, of handlers that set it in several
// ways.
func TestHTTPCount(t *testing.T) {
	for path, want := range map[string][]int{
		"/ok":       {200, 200, 200},
		"/nothing":  {200, 200, 200},
		"/early":    {401, 429, 429},
		"/late":     {200, 200, 200},
		"/panic":    {-1, 429, 429},
		"/switched": {101, 101, 101},
		"/bad":      {400, 429, 429},
		"/copy":     {401, 429, 429},
	} {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(3)})
		require.NoError(t, err)
		m, err := httplimit.New(l, httplimit.Config{
			Count:   func(_ *http.Request, status int) bool { return status >= 400 },
			Prepare: func(_ *http.Request, q *ratelimit.Request) { q.Cost = 2 },
		})
		require.NoError(t, err)
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/ok":
				_, _ = w.Write([]byte("ok"))
			case "/early":
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusUnauthorized)
			case "/late":
				_, _ = w.Write([]byte("ok"))
				w.WriteHeader(http.StatusUnauthorized)
			case "/panic":
				panic(http.ErrAbortHandler)
			case "/switched":
				w.WriteHeader(http.StatusSwitchingProtocols)
				w.WriteHeader(http.StatusBadRequest)
			case "/bad":
				w.WriteHeader(http.StatusBadRequest)
			case "/copy":
				if _, err := w.(io.ReaderFrom).ReadFrom(iotest.ErrReader(errors.New("broken"))); err != nil {
					w.WriteHeader(http.StatusUnauthorized)
				}
			}
		}))
		ask := func() (code int) {
			w := &firstStatus{ResponseRecorder: httptest.NewRecorder()}
			defer func() {
				if recover() != nil {
					code = -1
				}
			}()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			if w.first == 0 {
				return http.StatusOK
			}
			return w.first
		}
		require.Equal(t, want, []int{ask(), ask(), ask()}, path)
	}
}

// A firstStatus keeps the first final status, as a server does. A recorder keeps 103 and 101 in
// another way.
type firstStatus struct {
	*httptest.ResponseRecorder
	first int
}

func (w *firstStatus) WriteHeader(status int) {
	if w.first == 0 && status != http.StatusEarlyHints {
		w.first = status
	}
}

func (w *firstStatus) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{w}, src)
}

func (w *firstStatus) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(p), nil
}

// TestHTTPAllow decides several times for one response. Each rule is in its header once.
func TestHTTPAllow(t *testing.T) {
	rules, other := []ratelimit.Rule{{Name: "a,c", Rate: ratelimit.PerMinute(3)}}, &ratelimit.Rule{Name: "a,b", Rate: ratelimit.PerMinute(9)}
	l, err := ratelimit.New(rules, other, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(0, 0))))
	require.NoError(t, err)
	m, err := httplimit.New(l, httplimit.Config{Info: true})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := httplimit.FromContext(r.Context())
		require.True(t, ok)
		require.Equal(t, []ratelimit.Result{info.Result}, info.Rules)
		for range 3 {
			require.True(t, m.Allow(w, r, ratelimit.Request{}))
		}
		require.True(t, m.Allow(w, r, ratelimit.Request{Rules: []string{"a,c"}}))
	})).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.Equal(t, []string{`"a,b";r=5;t=34`, `"a,c";r=2;t=40`}, w.Header().Values("RateLimit"))
	require.Equal(t, []string{`"a,b";q=9;w=60`, `"a,c";q=3;w=60`}, w.Header().Values("RateLimit-Policy"))
}

// TestHTTPLayers serves one response twice, through two Middlewares and once more the first of them.
// Each charges a request once.
func TestHTTPLayers(t *testing.T) {
	layer := func(name string) *httplimit.Middleware {
		rule := &ratelimit.Rule{Name: name, Rate: ratelimit.PerMinute(9)}
		l, err := ratelimit.New(nil, rule, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(0, 0))))
		require.NoError(t, err)
		m, err := httplimit.New(l, httplimit.Config{Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		return m
	}
	outer, inner := layer("outer"), layer("inner")
	h := outer.Handler(inner.Handler(outer.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
	w := httptest.NewRecorder()
	for _, left := range []string{"8;t=54", "7;t=47"} {
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		require.Equal(t, []string{`"outer";r=` + left, `"inner";r=` + left}, w.Header().Values("RateLimit"))
	}
}
