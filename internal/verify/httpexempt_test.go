package verify

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestHTTPBlocked tells a client that it is blocked: by an override, by a penalty, and by a handler of the service.
func TestHTTPBlocked(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "a", Rate: ratelimit.PerMinute(1),
		Penalty: ratelimit.Penalty{After: 2, Within: time.Hour, For: time.Hour}}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{IP: "203.0.113.9", Effect: ratelimit.EffectBlock}))
	own := func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Info) { w.WriteHeader(http.StatusForbidden) }
	for _, row := range []struct {
		peer  string
		c     httplimit.Config
		times int
		want  int
		body  string
		retry string
	}{
		{"203.0.113.9:1", httplimit.Config{}, 1, 429, "#abnormal-usage-detected", ""},
		{"203.0.113.9:1", httplimit.Config{Blocked: own}, 1, 403, "", ""},
		{"203.0.113.8:1", httplimit.Config{Blocked: own}, 2, 429, "#quota-exceeded", "60"},
		{"203.0.113.7:1", httplimit.Config{}, 3, 429, "#abnormal-usage-detected", "3600"},
		{"203.0.113.7:1", httplimit.Config{Blocked: own}, 1, 403, "", "3600"},
	} {
		m, err := httplimit.New(l, row.c)
		require.NoError(t, err)
		var w *httptest.ResponseRecorder
		for range row.times {
			w = serveFrom(t, m.Handler(http.HandlerFunc(nothing)), row.peer)
		}
		require.Equal(t, row.want, w.Code, "%+v", row)
		require.Contains(t, w.Body.String(), row.body)
		require.Equal(t, row.retry, w.Header().Get("Retry-After"))
	}
}

func nothing(http.ResponseWriter, *http.Request) {}

// serveFrom returns what h answers to a request from this address, with header fields in pairs.
func serveFrom(t *testing.T, h http.Handler, peer string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHTTPExempt lets requests from a network pass, by SkipNetworks and by an override, unless their address may be that of a
// proxy that nobody has declared.
func TestHTTPExempt(t *testing.T) {
	network := netip.MustParsePrefix("192.168.0.0/16")
	ten := httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.7.0/24")}}
	for _, row := range []struct {
		peer    string
		proxies httplimit.Proxies
		header  []string
		passes  bool
	}{
		{"192.168.1.2:1", httplimit.Proxies{}, nil, true},
		{"192.169.1.2:1", httplimit.Proxies{}, nil, false},
		{"192.168.1.2:1", httplimit.Proxies{}, []string{"X-Forwarded-For", "192.168.1.3"}, false},
		{"192.168.1.2:1", httplimit.Proxies{}, []string{"X-Real-Ip", "192.168.1.3"}, false},
		{"192.168.1.2:1", ten, []string{"X-Forwarded-For", "192.168.1.3"}, false},
		{"10.0.0.1:1", ten, []string{"X-Forwarded-For", "192.168.1.3"}, true},
		{"10.0.0.1:1", ten, []string{"X-Forwarded-For", "203.0.113.9"}, false},
		{"10.0.0.1:1", ten, []string{"X-Forwarded-For", "192.168.7.3"}, true},
		{"10.0.0.1:1", ten, []string{"X-Forwarded-For", "unknown, 192.168.7.3"}, false},
		{"192.168.7.3:1", ten, []string{"X-Forwarded-For", "unknown"}, false},
		{"192.168.1.2:1", httplimit.Proxies{Hops: 1}, []string{"X-Forwarded-For", "192.168.1.3"}, true},
		{"192.168.1.2:1", httplimit.Proxies{Hops: 2}, []string{"X-Forwarded-For", "192.168.1.3"}, false},
		{"192.168.1.2:1", httplimit.Proxies{Hops: 3}, []string{"X-Forwarded-For", "192.168.1.3"}, false},
		{"192.168.1.2:1", httplimit.Proxies{Hops: 1, Header: "X-Client"}, []string{"X-Client", "192.168.1.3"}, true},
		{"192.168.1.2:1", httplimit.Proxies{Hops: 1, Header: "X-Client"}, []string{"X-Client", "1.1.1.1, 192.168.1.3"}, false},
	} {
		for _, byOverride := range []bool{false, true} {
			l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))
			require.NoError(t, err)
			var log bytes.Buffer
			c := httplimit.Config{Proxies: row.proxies, Log: slog.New(slog.NewTextHandler(&log, nil))}
			if byOverride {
				require.NoError(t, l.Override(t.Context(), ratelimit.Override{IP: network.String(), Effect: ratelimit.EffectExempt}))
			} else {
				c.SkipNetworks = []netip.Prefix{network}
			}
			m, err := httplimit.New(l, c)
			require.NoError(t, err)
			h, want := m.Handler(http.HandlerFunc(nothing)), 429
			if row.passes {
				want = 200
			}
			require.Equal(t, 200, serveFrom(t, h, row.peer, row.header...).Code)
			require.Equal(t, want, serveFrom(t, h, row.peer, row.header...).Code, "%+v", row)
			doubted := !row.passes && strings.HasPrefix(row.peer, "192.168.") || strings.Contains(strings.Join(row.header, ""), "unknown")
			require.Equal(t, doubted, strings.Contains(log.String(), "although their address is exempt"), "%+v %s", row, &log)

			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = "192.168.1.2:1"
			for range 3 {
				require.True(t, m.Allow(httptest.NewRecorder(), r, ratelimit.Request{}))
				units, ok := m.Reserve(httptest.NewRecorder(), r, ratelimit.Request{}, time.Minute)
				require.True(t, ok)
				require.NoError(t, units.Done())
			}
		}
	}
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)})
	require.NoError(t, err)
	for _, bad := range []string{"0.0.0.0/0", "10.1.2.3/8", "::ffff:10.0.0.0/104"} {
		_, err = httplimit.New(l, httplimit.Config{SkipNetworks: []netip.Prefix{netip.MustParsePrefix(bad)}})
		require.ErrorContains(t, err, "skipNetworks[0] is "+bad)
	}
	_, err = httplimit.New(l, httplimit.Config{SkipNetworks: []netip.Prefix{{}}})
	require.ErrorContains(t, err, "must be a valid prefix")
}

// TestHTTPNames exempts nobody by a name that is an address which may be a proxy's, and everybody whose address the service
// has found itself.
func TestHTTPNames(t *testing.T) {
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)})
	require.NoError(t, err)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "ip:192.168.1.2", Effect: ratelimit.EffectExempt},
		ratelimit.Override{IP: "10.0.0.0/8", Effect: ratelimit.EffectExempt}))
	for _, row := range []struct {
		prepare func(*http.Request, *ratelimit.Request)
		want    int
	}{
		{nil, 429},
		{func(_ *http.Request, q *ratelimit.Request) { q.IP = "10.1.1.1" }, 200},
	} {
		m, err := httplimit.New(l, httplimit.Config{Prepare: row.prepare, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		h := m.Handler(http.HandlerFunc(nothing))
		serveFrom(t, h, "192.168.1.2:1", "Forwarded", "for=1.2.3.4")
		require.Equal(t, row.want, serveFrom(t, h, "192.168.1.2:1", "Forwarded", "for=1.2.3.4").Code)
	}
}

// TestHTTPDebug reads the page of a limiter.
func TestHTTPDebug(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	var rules []ratelimit.Rule
	for name := range strings.FieldsSeq("a b c d e f g h i j k l") {
		rules = append(rules, ratelimit.Rule{Name: name, Rate: ratelimit.PerMinute(1)})
	}
	l, err := ratelimit.New(rules, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	for i, r := range rules {
		for range i + 2 {
			_, err = l.Check(t.Context(), ratelimit.Request{Client: "ip:2001:db8::/64", Rules: []string{r.Name}})
			require.NoError(t, err)
		}
	}
	page := httplimit.Debug(l)
	ask := func(method, query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/"+query, nil))
		return w
	}
	w := ask("GET", "")
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-")
	require.Contains(t, w.Body.String(), "2 other rules have denied requests, too.")
	_, top, found := strings.Cut(w.Body.String(), "What denies most")
	require.True(t, found)
	require.Less(t, strings.Index(top, "<bdi>l</bdi>"), strings.Index(top, "<bdi>c</bdi>"), "the one that denies most is first")
	require.Contains(t, top, "92 %")
	require.Empty(t, ask("HEAD", "").Body.String())
	require.Equal(t, http.StatusMethodNotAllowed, ask("POST", "").Code)
	require.Contains(t, ask("GET", "?format=json&ip=2001:db8::7").Body.String(), `"client": "ip:2001:db8::/64"`)
	require.NotContains(t, ask("GET", "?format=json").Body.String(), `"explanation"`)
}
