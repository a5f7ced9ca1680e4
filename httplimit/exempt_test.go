package httplimit_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// override sets these Overrides.
func override(t testing.TB, l *ratelimit.RateLimiter, o ...ratelimit.Override) {
	t.Helper()
	require.NoError(t, l.Override(t.Context(), o...))
}

// overHTTP serves h, and returns a function that sends a request by a real client. It returns the status, the header
// and the type and the violated policies of the problem.
func overHTTP(t testing.TB, h http.Handler) func() (code int, header http.Header, problem map[string]any) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return func() (int, http.Header, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		resp, err := server.Client().Do(req)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		var problem map[string]any
		if resp.Header.Get("Content-Type") == "application/problem+json" {
			require.NoError(t, json.Unmarshal(body, &problem))
		}
		return resp.StatusCode, resp.Header, problem
	}
}

// abnormal is the type of the problem that a blocked client is told of.
const abnormal = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"

// TestBlockedByPenalty blocks a client of a real server, whose denials have become too many.
func TestBlockedByPenalty(t *testing.T) {
	l, clock := limited(t, nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerSecond(1),
		Penalty: ratelimit.Penalty{After: 2, Within: time.Minute, For: time.Hour}})
	send := overHTTP(t, wrap(t, l, httplimit.Config{}, ok))
	code, _, _ := send()
	require.Equal(t, 200, code)
	code, header, problem := send()
	require.Equal(t, 429, code)
	assert.Equal(t, "1", header.Get("Retry-After"))
	assert.Equal(t, "Quota Exceeded", problem["title"], "the first denial is a strike only")
	for range 3 {
		_, _, _ = send()
	}
	code, header, problem = send()
	require.Equal(t, 429, code)
	assert.Equal(t, "3600", header.Get("Retry-After"))
	assert.Equal(t, map[string]any{
		"type": abnormal, "title": "Abnormal Usage Detected", "status": 429., "violated-policies": []any{"per-client"},
	}, problem)
	clock.Advance(time.Hour)
	code, _, _ = send()
	require.Equal(t, 200, code)
}

// TestBlockedByOverride blocks an address of a real client, until a time and for ever.
func TestBlockedByOverride(t *testing.T) {
	l, _ := perMinute(t, 10)
	send := overHTTP(t, wrap(t, l, httplimit.Config{}, ok))
	until := ratelimit.Override{IP: "127.0.0.0/8", Effect: ratelimit.EffectBlock, Until: start.Add(90*time.Second - 1), Note: "a secret"}
	override(t, l, until)
	want := map[string]any{"type": abnormal, "title": "Abnormal Usage Detected", "status": 429.}
	code, header, problem := send()
	assert.Equal(t, 429, code)
	assert.Equal(t, "90", header.Get("Retry-After"))
	assert.Empty(t, header.Values("RateLimit"), "no rule was asked")
	assert.Equal(t, want, problem, "the note is for operators")

	until.Until = time.Time{}
	override(t, l, until)
	code, header, problem = send()
	assert.Equal(t, 429, code)
	assert.Empty(t, header.Values("Retry-After"), "no wait is long enough")
	assert.Equal(t, want, problem)

	override(t, l, ratelimit.Override{IP: "127.0.0.0/8"})
	code, header, _ = send()
	assert.Equal(t, 200, code)
	assert.Equal(t, `"per-client";r=9;t=54`, header.Get("RateLimit"), "what was denied has cost nothing")
}

// TestBlocked has an answer of the user's own for those who are blocked alone.
func TestBlocked(t *testing.T) {
	l, _ := perMinute(t, 1)
	var info *httplimit.Info
	mine := func(w http.ResponseWriter, _ *http.Request, i *httplimit.Info) {
		info = i
		w.WriteHeader(http.StatusForbidden)
	}
	h := wrap(t, l, httplimit.Config{Blocked: mine}, ok)
	override(t, l, ratelimit.Override{IP: "203.0.113.9", Effect: ratelimit.EffectBlock, Until: start.Add(time.Minute)})
	w := get(t, h, "/", "203.0.113.9:1")
	assert.Equal(t, http.StatusForbidden, w.Code)
	assert.Equal(t, "60", w.Header().Get("Retry-After"), "the header is set before")
	assert.Equal(t, ratelimit.ReasonOverride, info.Result.Reason)
	assert.Equal(t, http.StatusTooManyRequests, info.Status)
	assert.Equal(t, []int{200, 429}, codes(h, request(t, "/", "203.0.113.8:1"), 2), "a usual denial is a problem document")

	denied := wrap(t, l, httplimit.Config{Denied: mine}, ok)
	assert.Equal(t, http.StatusForbidden, get(t, denied, "/", "203.0.113.9:1").Code, "without Blocked, Denied answers")

	w = get(t, wrap(t, l, httplimit.Config{}, ok), "/", "203.0.113.9:1", "Content-Type", "application/grpc")
	assert.Equal(t, []string{"8", "-1"}, []string{w.Header().Get("Grpc-Status"), w.Header().Get("Grpc-Retry-Pushback-Ms")})
}

// TestSkipNetworks limits nobody of these networks, by the address that Proxies gives.
func TestSkipNetworks(t *testing.T) {
	skipped := prefixes("192.168.0.0/16", "2001:db8:7::/48", "10.0.0.9/32")
	for _, row := range []struct {
		peer, forwarded string
		proxies         httplimit.Proxies
		want            int // the status of the second request
		warns           int
		why             string
	}{
		{"192.168.1.2:1", "", httplimit.Proxies{}, 200, 0, "in the network"},
		{"[::ffff:192.168.1.2]:1", "", httplimit.Proxies{}, 200, 0, "IPv4 in IPv6"},
		{"[2001:db8:7::5%eth0]:1", "", httplimit.Proxies{}, 200, 0, "a zone"},
		{"192.169.1.2:1", "", httplimit.Proxies{}, 429, 0, "in no network"},
		{"nowhere", "", httplimit.Proxies{}, 429, 0, "no address"},

		{"192.168.1.2:1", "203.0.113.9", httplimit.Proxies{}, 429, 2, "the peer is a proxy that nobody has declared"},
		{"192.168.1.2:1", "192.168.1.3", httplimit.Proxies{}, 429, 2, "the same, whatever it sends"},
		{"203.0.113.9:1", "192.168.1.2", httplimit.Proxies{}, 429, 0, "a forged header"},
		{"203.0.113.9:1", "192.168.1.2", ten, 429, 0, "a forged header beside a trusted proxy"},
		{"192.168.1.2:1", "192.168.1.3", ten, 429, 2, "a second proxy that nobody has declared"},

		{proxy, "192.168.1.2", ten, 200, 0, "a client behind the proxy"},
		{proxy, "203.0.113.9", ten, 429, 0, "a client behind the proxy that is in no network"},
		{proxy, "192.168.1.2, 203.0.113.9", ten, 429, 0, "the client has sent the first part"},
		{"10.0.0.9:1", "", ten, 200, 0, "the proxy itself, as for a health check"},
		{"10.0.0.9:1", "unknown", ten, 429, 1, "the proxy does not say who the client is"},
		{"10.0.0.2:1", "unknown, 10.0.0.9", ten, 429, 1, "a proxy further out does not say it"},
		{"10.0.0.2:1", "10.0.0.9", ten, 200, 0, "a service among the proxies"},
		{"192.168.1.2:1", "192.168.1.3", httplimit.Proxies{Hops: 1}, 200, 0, "by hops"},
		{"192.168.1.2:1", "192.168.1.3", httplimit.Proxies{Hops: 2}, 429, 1, "too few hops"},
		{"203.0.113.9:1", "192.168.1.3", httplimit.Proxies{Hops: 1, Header: "X-Client"}, 429, 0, "another header"},
		{"192.168.1.2:1", "192.168.1.3", httplimit.Proxies{Hops: 1, Header: "X-Client"}, 429, 1, "another header is missing"},
	} {
		l, _ := perMinute(t, 1)
		log := new(logbook)
		h := wrap(t, l, httplimit.Config{SkipNetworks: skipped, Proxies: row.proxies, Log: log.logger()}, ok)
		r := request(t, "/", row.peer)
		if row.forwarded != "" {
			r.Header.Set("X-Forwarded-For", row.forwarded)
		}
		assert.Equal(t, []int{200, row.want, row.want}, codes(h, r, 3), row.why)
		assert.Len(t, log.lines(), row.warns, row.why)
		if row.want == 200 {
			w := answer(h, r)
			assert.Empty(t, w.Header().Values("RateLimit"), row.why)
			assert.Zero(t, l.Stats()[0].Allowed, "%s: no rule was asked", row.why)
		}
	}
}

// TestSkipNetworksInside grants what a handler asks for a client of these networks.
func TestSkipNetworksInside(t *testing.T) {
	l, _ := perMinute(t, 1)
	m := made(t, l, httplimit.Config{SkipNetworks: prefixes("192.168.0.0/16")})
	for _, r := range []*http.Request{request(t, "/", "192.168.1.2:1"), request(t, "/", "192.168.1.2:1")} {
		w := httptest.NewRecorder()
		assert.True(t, m.Allow(w, r, ratelimit.Request{}))
		units, passed := m.Reserve(w, r, ratelimit.Request{}, time.Minute)
		assert.True(t, passed)
		assert.Nil(t, units)
		require.NoError(t, units.Done())
	}
	assert.Zero(t, l.Stats()[0].Allowed)
}

// TestDoubtfulExemption exempts nobody by the address of a proxy that nobody has declared, and says so once.
func TestDoubtfulExemption(t *testing.T) {
	office := []ratelimit.Override{{IP: "10.0.0.0/8", Effect: ratelimit.EffectExempt}}
	byName := []ratelimit.Override{{Client: "ip:10.0.0.1", Effect: ratelimit.EffectExempt}}
	alice := []ratelimit.Override{{Client: "alice", Effect: ratelimit.EffectExempt}}
	user := func(*http.Request) (string, string, bool) { return "alice", "", true }
	chosen := func(_ *http.Request, q *ratelimit.Request) { q.IP, q.Client = "10.9.9.9", "c" }
	for _, row := range []struct {
		overrides []ratelimit.Override
		c         httplimit.Config
		header    string
		want      int
		warned    bool
		why       string
	}{
		{office, httplimit.Config{}, "", 200, false, "a client in the network"},
		{office, httplimit.Config{}, "X-Forwarded-For", 429, true, "the peer is a proxy that nobody has declared"},
		{office, httplimit.Config{}, "X-Real-Ip", 429, true, "another field of proxies"},
		{office, httplimit.Config{}, "Forwarded", 429, true, "another field of proxies"},
		{office, httplimit.Config{Proxies: ten}, "X-Forwarded-For", 429, false, "the client has an address of its own"},
		{byName, httplimit.Config{}, "", 200, false, "an address as a name"},
		{byName, httplimit.Config{}, "X-Forwarded-For", 429, true, "the name is an address"},
		{alice, httplimit.Config{Client: user}, "X-Forwarded-For", 200, false, "the client was verified"},
		{office, httplimit.Config{Client: user}, "X-Forwarded-For", 429, true, "the client was verified, but the exemption is by address"},
		{office, httplimit.Config{Prepare: chosen}, "X-Forwarded-For", 200, false, "the service has found the address itself"},
		{nil, httplimit.Config{}, "X-Forwarded-For", 429, false, "there is no exemption"},
	} {
		l, _ := perMinute(t, 1)
		override(t, l, row.overrides...)
		log := new(logbook)
		row.c.Log = log.logger()
		h := wrap(t, l, row.c, ok)
		r := request(t, "/", "10.0.0.1:1")
		if row.header != "" {
			r.Header.Set(row.header, "203.0.113.9")
		}
		assert.Equal(t, []int{200, row.want, row.want}, codes(h, r, 3), row.why)
		said := 0
		for _, line := range log.lines() {
			if assert.NotContains(t, line, "10.0.0", "the log has no address") && strings.Contains(line, "although") {
				said++
			}
		}
		want := 0
		if row.warned {
			want = 1
		}
		assert.Equal(t, want, said, row.why)
	}
}

// TestNoHeaderEvadesABlock blocks an address whatever header the client sends.
func TestNoHeaderEvadesABlock(t *testing.T) {
	l, _ := perMinute(t, 100)
	override(t, l, ratelimit.Override{IP: "10.0.0.1", Effect: ratelimit.EffectBlock},
		ratelimit.Override{IP: "10.0.0.0/8", Effect: ratelimit.EffectExempt})
	h := wrap(t, l, httplimit.Config{Log: new(logbook).logger()}, ok)
	assert.Equal(t, 429, get(t, h, "/", "10.0.0.1:1").Code)
	assert.Equal(t, 429, get(t, h, "/", "10.0.0.1:1", "X-Forwarded-For", "10.0.0.2").Code)
	assert.Equal(t, 429, get(t, h, "/", "10.0.0.1:1", "Forwarded", "for=10.0.0.2").Code)
}

// TestBadNetworks names what is wrong with each network.
func TestBadNetworks(t *testing.T) {
	l, _ := perMinute(t, 1)
	_, err := httplimit.New(l, httplimit.Config{SkipNetworks: []netip.Prefix{
		{}, netip.MustParsePrefix("::ffff:10.0.0.1/104"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"),
		netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("10.0.0.0/8"),
	}})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	assert.Equal(t, `ratelimit: skipNetworks[0] is invalid Prefix: must be a valid prefix, such as 10.0.0.0/8
ratelimit: skipNetworks[1] is ::ffff:10.0.0.1/104: must be written as IPv4: 10.0.0.0/8
ratelimit: skipNetworks[2] is 0.0.0.0/0: must not be everybody: list networks of your own, such as 10.1.0.0/16
ratelimit: skipNetworks[3] is ::/0: must not be everybody: list networks of your own, such as 10.1.0.0/16
ratelimit: skipNetworks[4] is 10.1.2.3/8: has bits set beyond its length: must be 10.0.0.0/8`, err.Error())
}
