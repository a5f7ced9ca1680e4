package httplimit_test

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// shop returns a limiter of a shop that has served some requests.
func shop(t testing.TB) *ratelimit.RateLimiter {
	t.Helper()
	l, _ := limited(t, []ratelimit.Rule{
		{Name: "login", Endpoint: "/login", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5),
			Penalty: ratelimit.Penalty{After: 3, Within: 10 * time.Minute, For: 15 * time.Minute, Most: 24 * time.Hour}},
		{Name: "search", Endpoint: "/search", Rate: ratelimit.PerMinute(30), Tiers: map[string]ratelimit.Rate{
			"paid": ratelimit.PerMinute(300), "partner": ratelimit.Unlimited}},
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)},
		{Name: "next limit", Endpoint: "/search", Mode: ratelimit.ModeShadow, Algorithm: ratelimit.AlgorithmFixedWindow,
			Rate: ratelimit.PerHour(40)},
	}, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(60)})
	override(t, l,
		ratelimit.Override{IP: "198.51.100.0/24", Effect: ratelimit.EffectBlock, Until: start.Add(6 * time.Hour), Note: "scraper, ticket 4711"},
		ratelimit.Override{IP: "10.0.0.0/8", Effect: ratelimit.EffectExempt, Rules: []string{"per-client"}, Note: "services of our own"},
		ratelimit.Override{Client: "shop-7", Effect: ratelimit.EffectRate, Rules: []string{"search"}, Rate: ratelimit.PerMinute(900),
			Until: start.Add(96 * time.Hour), Note: "sale until Monday"})
	ask := func(n int, client, endpoint, ip string) {
		for range n {
			_, err := l.Check(t.Context(), ratelimit.Request{Client: client, Endpoint: endpoint, IP: ip})
			require.NoError(t, err)
		}
	}
	ask(45, "shop-8", "/search", "203.0.113.8")
	ask(50, "shop-7", "/search", "203.0.113.7")
	ask(7, "ip:203.0.113.9", "/login", "203.0.113.9")
	ask(64, "ip:203.0.113.9", "/items", "203.0.113.9")
	ask(3, "ip:198.51.100.4", "/items", "198.51.100.4")
	ask(8, "backup", "/items", "10.1.2.3")
	return l
}

// debug returns what the page of l answers to a request by a real client.
func debug(t testing.TB, l *ratelimit.RateLimiter, method, query string, header ...string) (*http.Response, string) {
	t.Helper()
	server := httptest.NewServer(httplimit.Debug(l))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/debug/ratelimit"+query, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := server.Client().Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp, string(body)
}

// asJSON returns the report in JSON.
func asJSON(t testing.TB, l *ratelimit.RateLimiter, query string) (report map[string]any) {
	t.Helper()
	resp, body := debug(t, l, http.MethodGet, "?format=json"+query)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	require.NoError(t, json.Unmarshal([]byte(body), &report))
	return report
}

// TestDebugHeader checks what protects the page, and which methods it has.
func TestDebugHeader(t *testing.T) {
	l := shop(t)
	_, whole := debug(t, l, http.MethodGet, "")
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"} {
		resp, body := debug(t, l, method, "")
		h := resp.Header
		assert.Equal(t, "no-store", h.Get("Cache-Control"), method)
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), method)
		assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"), method)
		assert.Regexp(t, `^default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='; `+
			`form-action 'self'; base-uri 'none'; frame-ancestors 'none'$`, h.Get("Content-Security-Policy"), method)
		switch method {
		case "GET":
			assert.Equal(t, whole, body)
		case "HEAD":
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Empty(t, body)
			assert.Equal(t, "text/html; charset=utf-8", h.Get("Content-Type"))
		default:
			assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, method)
			assert.Equal(t, "GET, HEAD", h.Get("Allow"), method)
			assert.NotContains(t, body, "shop-7", method)
		}
	}
	w := answer(httplimit.Debug(l), httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/", nil))
	assert.Empty(t, w.Body.String(), "also outside of a server")
	assert.Panics(t, func() { httplimit.Debug(nil) })
}

// TestDebugFormat gives JSON to those who ask for it.
func TestDebugFormat(t *testing.T) {
	l := shop(t)
	for _, row := range []struct {
		query, accept string
		asJSON        bool
	}{
		{"", "", false},
		{"?format=json", "", true},
		{"?format=json", "text/html", true},
		{"?format=html", "application/json", false},
		{"", "application/json", true},
		{"", "*/*", false},
		{"", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false},
		{"", "application/json;q=0.5, text/html;q=0.4", true},
		{"", "application/json;q=0.5, text/html", false},
		{"", "application/json;q=x", false},
		{"", "application/json, text/html", false},
		{"", "APPLICATION/JSON;charset=utf-8", true},
	} {
		resp, body := debug(t, l, http.MethodGet, row.query, "Accept", row.accept)
		assert.Equal(t, row.asJSON, resp.Header.Get("Content-Type") == "application/json", "%+v", row)
		assert.Equal(t, row.asJSON, json.Valid([]byte(body)), "%+v", row)
		assert.Equal(t, "Accept", resp.Header.Get("Vary"))
	}
}

// TestDebugReport compares the report with what the limiter says.
func TestDebugReport(t *testing.T) {
	l := shop(t)
	report := asJSON(t, l, "")
	var names []string
	for i, rule := range report["rules"].([]any) {
		rule, s := rule.(map[string]any), l.Stats()[i]
		names = append(names, rule["name"].(string))
		counts := map[string]any{}
		for _, c := range ratelimit.Counters() {
			counts[c.Field] = float64(c.Value(&s))
		}
		assert.Equal(t, counts, rule["counts"], s.Rule)
		assert.EqualValues(t, s.LiveKeys, rule["liveKeys"], s.Rule)
	}
	assert.Equal(t, []string{"login", "search", "everybody", "next limit", "per-client"}, names)
	first := report["rules"].([]any)[0].(map[string]any)
	delete(first, "counts")
	assert.Equal(t, map[string]any{
		"name": "login", "endpoint": "/login", "key": "ip", "algorithm": "SlidingWindowLog", "mode": "enforce", "rate": "5/m", "liveKeys": 1.,
		"penalty": "blocked for 15m after 3 denials in 10m, up to 24h if repeated",
	}, first)
	second := report["rules"].([]any)[1].(map[string]any)
	assert.Equal(t, map[string]any{"paid": "300/m", "partner": "unlimited"}, second["tiers"])
	assert.Equal(t, []any{
		map[string]any{"rule": "search", "denied": 15., "percent": 15.},
		map[string]any{"rule": "per-client", "denied": 4., "percent": 6.},
		map[string]any{"rule": "login", "denied": 2., "percent": 28.},
	}, report["mostDenied"])

	live, err := l.Overrides(t.Context())
	require.NoError(t, err)
	text, err := json.Marshal(live)
	require.NoError(t, err)
	shown, err := json.Marshal(report["overrides"].(map[string]any)["live"])
	require.NoError(t, err)
	assert.JSONEq(t, string(text), string(shown))
	stats := report["overrides"].(map[string]any)["stats"].(map[string]any)
	assert.Equal(t, []any{3., 8., 1., 1., 1.},
		[]any{stats["Blocked"], stats["Exempted"], stats["Blocks"], stats["Exemptions"], stats["Rates"]})
	assert.Nil(t, report["store"])
	assert.Nil(t, report["explanation"])

	empty, err := ratelimit.New(nil, nil)
	require.NoError(t, err)
	report = asJSON(t, empty, "")
	assert.Equal(t, []any{[]any{}, []any{}}, []any{report["rules"], report["mostDenied"]}, "a list that is empty is a list")
	for _, l := range []*ratelimit.RateLimiter{empty, new(ratelimit.RateLimiter)} {
		_, page := debug(t, l, http.MethodGet, "?client=a")
		assert.Contains(t, page, "No rule applies.")
	}
}

// TestDebugClient asks what one client would be answered.
func TestDebugClient(t *testing.T) {
	l := shop(t)
	for _, row := range []struct{ query, client, ip, result, why string }{
		{"&client=shop-8&endpoint=/search", "shop-8", "", "denied", "the client has used its budget"},
		{"&client=shop-8&endpoint=/search&tier=paid", "shop-8", "", "denied", "another rate, from which it has taken as much"},
		{"&ip=203.0.113.9&endpoint=/items", "ip:203.0.113.9", "203.0.113.9", "denied", "the name that a Middleware gives to an address"},
		{"&ip=2001:db8:1:2:3::4&endpoint=/items", "ip:2001:db8:1:2::/64", "2001:db8:1:2::/64", "allowed", "IPv6 counts by /64"},
		{"&ip=2001:db8::/48&endpoint=/items", "ip:2001:db8::/48", "2001:db8::/48", "allowed", "another prefix stays"},
		{"&client=a&ip=+198.51.100.77+", "a", "198.51.100.77", "denied", "a block"},
		{"&client=a&ip=10.0.0.1&endpoint=/items", "a", "10.0.0.1", "allowed", "an exemption"},
	} {
		e := asJSON(t, l, row.query)["explanation"].(map[string]any)
		req := e["request"].(map[string]any)
		assert.Equal(t, row.client, req["client"], row.why)
		assert.Equal(t, row.ip, fmt.Sprint(req["ip"], "")[:len(row.ip)], row.why)
		assert.Equal(t, row.result == "allowed", e["result"].(map[string]any)["allowed"], row.why)
	}
	_, page := debug(t, l, http.MethodGet, "?client=shop-7&endpoint=/search&ip=&tier=")
	for _, want := range []string{
		`value="shop-7"`, "sale until Monday", "900/m", "until 2026-01-05 00:00:00 UTC", `href="?client=shop-7&amp;`,
	} {
		assert.Contains(t, page, want)
	}
	_, page = debug(t, l, http.MethodGet, "?ip=198.51.100.7")
	assert.Contains(t, page, "address <bdi>198.51.100.0/24</bdi>: <b>block</b>")
	assert.Contains(t, page, "scraper, ticket 4711")
}

// TestDebugChangesNothing compares all that the limiter shows before and after requests to the page.
func TestDebugChangesNothing(t *testing.T) {
	l := shop(t)
	requests := []ratelimit.Request{
		{Client: "shop-7", Endpoint: "/search"}, {Client: "shop-8", Endpoint: "/search"}, {Client: "new", Endpoint: "/search"},
		{Client: "ip:203.0.113.9", Endpoint: "/login", IP: "203.0.113.9"},
	}
	state := func() (all []any) {
		overrides, err := l.Overrides(t.Context())
		require.NoError(t, err)
		all = append(all, l.Stats(), l.OverrideStats(), overrides)
		for _, req := range requests {
			e, err := l.Explain(t.Context(), req)
			require.NoError(t, err)
			all = append(all, e)
		}
		return all
	}
	before := state()
	for range 50 {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE"} {
			for _, req := range requests {
				_, _ = debug(t, l, method, "?client="+req.Client+"&endpoint="+req.Endpoint+"&ip="+req.IP+"&effect=exempt&rules=search")
			}
		}
	}
	assert.Equal(t, before, state())
}

// hostile are names that would do harm in a page that does not escape them.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style><h1>not a title</h1>`, `{{.Rules}}`, "' onfocus='alert(1)",
	"javascript:alert(1)", "a\u202egnol yrev\u202c", "line\nbreak\ttab", "\xff\xfe", strings.Repeat("w", 200), "&lt;b&gt;", "  ", "日本語のルール",
}

// crowd returns a limiter with n rules, some of which have hostile names, clients, endpoints and notes.
func crowd(t testing.TB, n int) *ratelimit.RateLimiter {
	t.Helper()
	algorithms := []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog}
	var rules []ratelimit.Rule
	for i := range n {
		r := ratelimit.Rule{Name: fmt.Sprintf("rule %d", i), Endpoint: fmt.Sprintf("/api/%d/*", i), Rate: ratelimit.PerMinute(1 + i%90),
			Algorithm: algorithms[i%3],
			Mode:      []ratelimit.Mode{ratelimit.ModeEnforce, ratelimit.ModeEnforce, ratelimit.ModeShadow, ratelimit.ModeAdvise}[i%4]}
		if i%20 == 7 {
			name := hostile[i/20%len(hostile)]
			r.Name = fmt.Sprintf("%s %d", name, i)
			r.Endpoint = fmt.Sprintf("/api/%d/%s/*", i, name)
			r.Tiers = map[string]ratelimit.Rate{name: ratelimit.PerMinute(i + 1)}
			r.Key = ratelimit.KeyAttr("tenant " + strings.Repeat("x", i/20))
		}
		rules = append(rules, r)
	}
	l, _ := limited(t, rules, nil)
	for i, name := range hostile {
		override(t, l, ratelimit.Override{Client: name + " ", Effect: []string{ratelimit.EffectBlock, ratelimit.EffectExempt}[i%2],
			Rules: []string{rules[7].Name, rules[i].Name}, Note: name})
	}
	for i := range rules {
		for range i % 40 {
			l.Allow("someone", fmt.Sprintf("/api/%d/x", i))
		}
	}
	return l
}

// TestDebugHostile has 1,000 rules, and names that are HTML.
func TestDebugHostile(t *testing.T) {
	l := crowd(t, 1000)
	for _, name := range hostile {
		q := strings.ReplaceAll("client=x&endpoint=x&ip=x&tier=x", "x", url.QueryEscape(name))
		resp, page := debug(t, l, http.MethodGet, "?"+q)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		for _, harm := range []string{"<script", "<img", "onerror=alert(1)>", "<h1>not", "' onfocus='"} {
			assert.NotContains(t, page, harm)
		}
		assert.Equal(t, 1, strings.Count(page, "<h1>"))
		assert.Equal(t, 1, strings.Count(page, "</style>"))
		asJSON(t, l, "&"+q)
	}
	_, page := debug(t, l, http.MethodGet, "")
	assert.Equal(t, 1000+10+len(hostile), strings.Count(page, `<th scope="row">`))
	assert.Contains(t, page, "other rules have denied requests, too.")
}

// TestDebugHiddenCharacters has clients whose names look like others on a screen: these are quoted.
func TestDebugHiddenCharacters(t *testing.T) {
	l, _ := perMinute(t, 1)
	for name, want := range map[string]string{
		"a\u202egnol yrev\u202c": `"a\u202egnol yrev\u202c"`, // looks like "avery long"
		"shop\u200b":             `"shop\u200b"`, "  ": `"  "`, "shop ": `"shop "`, "a\nb": `"a\nb"`, "\xff": `"\xff"`,
		"shop 7": "shop 7", `"shop"`: `"shop"`, "日本": "日本", "<b>": "<b>",
	} {
		override(t, l, ratelimit.Override{Client: name, Effect: ratelimit.EffectBlock})
		want := template.HTMLEscapeString(want)
		_, page := debug(t, l, http.MethodGet, "?client="+url.QueryEscape(name))
		assert.Contains(t, page, "client <bdi>"+want+"</bdi>", "an override for %q", name)
		assert.Contains(t, page, "Client <b><bdi>"+want+"</bdi></b>", "the state of %q", name)
	}
}

// TestDebugManyOverrides shows the first 1,000 Overrides, and says where the others are.
func TestDebugManyOverrides(t *testing.T) {
	l, _ := perMinute(t, 1)
	var all []ratelimit.Override
	for i := range 1234 {
		all = append(all, ratelimit.Override{Client: fmt.Sprint("client ", i), Effect: ratelimit.EffectExempt})
	}
	override(t, l, all...)
	_, page := debug(t, l, http.MethodGet, "")
	assert.Equal(t, 1000, strings.Count(page, "<b>exempt</b>"))
	assert.Contains(t, page, "234 more are in the")
	assert.Len(t, asJSON(t, l, "")["overrides"].(map[string]any)["live"], 1234)
}

// TestDebugStoreDown shows what the store says.
func TestDebugStoreDown(t *testing.T) {
	l, _ := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithName("n"),
		ratelimit.WithStore(brokenStore{fmt.Errorf("<b>down</b>")}))
	for range 30 {
		l.Allow("a", "/")
	}
	resp, page := debug(t, l, http.MethodGet, "?client=a")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, page, "The store failed last: ")
	assert.NotContains(t, page, "<b>down</b>")
	report := asJSON(t, l, "&client=a")
	assert.Contains(t, report["problem"], "<b>down</b>")
	assert.NotNil(t, report["explanation"], "the failure policy has an answer")
	assert.EqualValues(t, 1, report["store"].(map[string]any)["open"])
}

// TestDebugShowsEachField fails if a field of Rule is not in the report.
func TestDebugShowsEachField(t *testing.T) {
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	l, _ := limited(t, []ratelimit.Rule{{
		Name: "all", Endpoint: "/all", Additional: true, Key: ratelimit.KeyIP, Unit: "tokens", Mode: ratelimit.ModeAdvise,
		Rate: ratelimit.PerHour(100), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(200)},
		Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.Rate{}, false },
		Warmup:  ratelimit.Warmup{From: 10, Over: 7 * 24 * time.Hour}, OnStoreError: ratelimit.FailClosed,
		Penalty: ratelimit.Penalty{After: 3, Within: time.Minute, For: time.Hour},
	}}, nil, ratelimit.WithName("n"), ratelimit.WithStore(store))
	_, err = l.Check(t.Context(), ratelimit.Request{Endpoint: "/all", IP: "192.0.2.1", Costs: []ratelimit.Cost{{Unit: "tokens", N: 1}}})
	require.NoError(t, err)
	rule := asJSON(t, l, "")["rules"].([]any)[0].(map[string]any)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[ratelimit.Rule]()) {
		name := strings.ToLower(f.Name[:1]) + f.Name[1:]
		if f.IsExported() && name != "limiter" { // a rule has a Limiter or an Algorithm
			assert.NotEmpty(t, rule[name], name)
		}
	}
	_, page := debug(t, l, http.MethodGet, "")
	for _, text := range []string{
		"warm-up: a new key gets 10, and the full limit after 168h", "penalty: blocked for 1h after 3 denials in 1m",
		"on a store error: <bdi>closed</bdi>",
	} {
		assert.Contains(t, page, text)
	}
}

// picture is the page of the shop, from which docs/debug/page.png is drawn.
const picture = "../docs/debug/page.html"

//go:generate env RATELIMIT_WRITE=1 go test -count=1 -run ^TestDebugPicture$ .

// TestDebugPicture compares the page with the file from which its picture is drawn.
func TestDebugPicture(t *testing.T) {
	l := shop(t)
	w := get(t, httplimit.Debug(l), "/debug/ratelimit?client=shop-8&endpoint=/search&ip=&tier=", "203.0.113.9:1")
	if os.Getenv("RATELIMIT_WRITE") != "" {
		require.NoError(t, os.WriteFile(picture, w.Body.Bytes(), 0o600))
	}
	text, err := os.ReadFile(picture)
	require.NoError(t, err)
	assert.Equal(t, string(text), w.Body.String(), "run go generate ./..., and then PICTURE=docs/debug/page.png bash .ci/run picture")
	assert.True(t, slices.Contains(strings.Split(w.Body.String(), "\n"), "<h1>Rate limits</h1>"))
}
