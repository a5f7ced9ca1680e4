package httplimit_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestInnerRouteIsLogged has a router behind another handler, whose route has a rule that limits nothing.
func TestInnerRouteIsLogged(t *testing.T) {
	for _, row := range []struct {
		outer, why string
		lines      int
		endpoint   string // what Config.Endpoint returns; it is nil for the empty string
	}{
		{"/", "the endpoint is the route of the outer router", 1, ""},
		{"/login", "both routers agree", 0, ""},
		{"/", "an Endpoint that does not know the route", 1, "unmatched"},
		{"/", "an Endpoint whose names are no routes", 0, "logins"},
	} {
		l, _ := perMinute(t, 1000, ratelimit.Rule{Endpoint: "/login", Rate: ratelimit.PerHour(30)})
		var log logbook
		inner, outer := http.NewServeMux(), http.NewServeMux()
		inner.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) {})
		between := http.HandlerFunc(inner.ServeHTTP)
		config := httplimit.Config{Log: log.logger()}
		if row.endpoint != "" {
			config.Endpoint = httplimit.Fixed(row.endpoint)
		}
		outer.Handle(row.outer, wrap(t, l, config, between))
		for range 20 {
			r := request(t, "/login", "203.0.113.9:1")
			r.Method = http.MethodPost
			require.Equal(t, 200, answer(outer, r).Code)
		}
		require.Len(t, log.lines(), row.lines, row.why)
		if row.lines > 0 {
			assert.Contains(t, log.lines()[0], "a rule limits nothing: a router inside has found its route")
			assert.Contains(t, log.lines()[0], "rule=/login endpoint="+cmp.Or(row.endpoint, "/")+" route=/login")
		}
	}
}

// TestUnixPeerHasNoAddress names the peer of a unix socket like an address.
func TestUnixPeerHasNoAddress(t *testing.T) {
	l, _ := perMinute(t, 2)
	m := made(t, l, httplimit.Config{Info: true, Proxies: httplimit.Proxies{Trusted: prefixes("203.0.113.0/24")}})
	for _, name := range []string{"203.0.113.7:1", "203.0.113.8", "[2001:db8::1]:1"} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "s", Net: "unix"}))
		r := request(t, "/", name, "X-Forwarded-For", "198.51.100.1").WithContext(ctx)
		w := answer(m.Handler(ok), r)
		assert.Equal(t, map[bool]int{true: 429, false: 200}[name == "[2001:db8::1]:1"], w.Code, "all are one client: %s", name)
	}
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "s", Net: "unix"}))
	fresh, _ := perMinute(t, 2)
	info := infoOf(t, made(t, fresh, httplimit.Config{Info: true}), request(t, "/", "203.0.113.7:1").WithContext(ctx))
	assert.Equal(t, "ip:local", info.Request.Client)
	assert.False(t, info.Addr.IsValid())
}

// TestPanicCopiesBack panics behind a Middleware that copies the request. The server needs the MultipartForm
// to remove its files, and outer handlers read the Pattern.
func TestPanicCopiesBack(t *testing.T) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_, err := form.CreateFormFile("f", "name")
	require.NoError(t, err)
	require.NoError(t, form.Close())
	l, _ := perMinute(t, 2)
	h := wrap(t, l, httplimit.Config{Info: true}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.ParseMultipartForm(1<<10))
		r.Pattern = "/upload"
		panic("a bug")
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/upload", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	assert.PanicsWithValue(t, "a bug", func() { h.ServeHTTP(httptest.NewRecorder(), r) })
	assert.NotNil(t, r.MultipartForm)
	assert.Equal(t, "/upload", r.Pattern)
}

// TestConnectChoosesNoEndpoint sends CONNECT to paths that a ServeMux redirects to a path with a slash.
func TestConnectChoosesNoEndpoint(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/users/{id}/", func(http.ResponseWriter, *http.Request) {})
	for _, endpoint := range []func(*http.Request) string{nil, httplimit.Route(mux), httplimit.Pattern(mux)} {
		l, _ := limited(t, []ratelimit.Rule{{Endpoint: "/users/*", Key: ratelimit.KeyUserEndpoint, Rate: ratelimit.PerHour(2)}}, nil)
		endpoints := map[string]int{}
		h := wrap(t, l, httplimit.Config{
			Endpoint: endpoint,
			Prepare:  func(_ *http.Request, q *ratelimit.Request) { endpoints[q.Endpoint]++ },
		}, mux)
		denied := 0
		for i := range 50 {
			r := request(t, fmt.Sprint("/users/", i), "203.0.113.9:1")
			r.Method = http.MethodConnect
			if answer(h, r).Code == http.StatusTooManyRequests {
				denied++
			}
		}
		assert.Equal(t, map[string]int{"/users/{id}/": 50}, endpoints)
		assert.Equal(t, 48, denied)
	}
}

// TestContentTypesLikeGRPC denies requests that only begin like gRPC.
func TestContentTypesLikeGRPC(t *testing.T) {
	space := " "
	for kind, want := range map[string]int{
		"application/grpc": 200, "application/grpc+proto": 200, "application/grpc;x=y": 200,
		"application/grpcXYZ": 429, "application/grpc-web": 429, "application/grp": 429, "application/grpc" + space: 429,
	} {
		l, _ := perMinute(t, 1)
		h := wrap(t, l, httplimit.Config{}, ok)
		require.Equal(t, 200, get(t, h, "/", "203.0.113.9:1").Code)
		assert.Equal(t, want, get(t, h, "/", "203.0.113.9:1", "Content-Type", kind).Code, kind)
	}
}

// TestWrongProxies warns once if a private peer that Proxies does not trust forwards requests.
func TestWrongProxies(t *testing.T) {
	for _, row := range []struct {
		peer    string
		proxies httplimit.Proxies
		lines   int
	}{
		{"192.168.0.5:1", httplimit.Proxies{Trusted: prefixes("10.0.0.0/8")}, 1},
		{"127.0.0.1:1", httplimit.Proxies{Unix: true}, 1},
		{"10.0.0.5:1", httplimit.Proxies{Trusted: prefixes("10.0.0.0/8")}, 0},
		{"203.0.113.5:1", httplimit.Proxies{Trusted: prefixes("10.0.0.0/8")}, 0},
		{"192.168.0.5:1", httplimit.Proxies{Hops: 1}, 0},
	} {
		l, _ := perMinute(t, 100)
		var log logbook
		h := wrap(t, l, httplimit.Config{Log: log.logger(), Proxies: row.proxies}, ok)
		for range 5 {
			get(t, h, "/", row.peer, "X-Forwarded-For", "198.51.100.1")
		}
		require.Len(t, log.lines(), row.lines, row.peer)
		if row.lines > 0 {
			assert.Contains(t, log.lines()[0], "a proxy that Config.Proxies does not trust")
		}
	}
}
