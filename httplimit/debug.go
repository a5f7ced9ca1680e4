package httplimit

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the texts of the page
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimit-go/ratelimit"
)

// The page of Debug and its style sheet. Only Debug uses these texts and the package html/template. So the linker can
// leave them out of a program that does not call Debug.
var (
	//go:embed debug.html
	debugHTML string

	//go:embed debug.css
	debugCSS string
)

// Debug returns a handler that shows the state of the limiter l: its rules and what they have counted, which rules deny
// most, and the Overrides with their Notes. A form asks what the limiter would answer to one client, by
// [ratelimit.RateLimiter.Explain]. The page is HTML; a request with ?format=json, or whose Accept prefers JSON, gets
// the same as JSON. Debug panics if l is nil.
//
//	admin.Handle("/debug/ratelimit", httplimit.Debug(limiter))
//
// Serve the page only to operators, behind the authentication of the service: it shows the names and the addresses
// of clients, and each request to it may call the [ratelimit.Store] and [ratelimit.Rule.Resolve]. The form sends the name
// and the address of a client in the URL, which servers may log. No request to the handler changes anything; methods
// other than GET and HEAD get the status 405. The page has no script and loads nothing else, and no cache may store it.
//
// If the form has an IP but no client, the page takes the name that a Middleware gives to a client with this address. Of
// an IPv6 address, only the first 64 bits are used. If [Config.IPv6Bits] is set, enter the prefix, such as 2001:db8::/48.
func Debug(l *ratelimit.RateLimiter) http.Handler {
	if l == nil {
		panic("httplimit: the limiter is nil")
	}
	sum := sha256.Sum256([]byte(debugCSS))
	functions := template.FuncMap{"count": grouped, "units": units, "wait": waitText, "time": timeText, "plural": plural, "name": nameText}
	page := template.New("debug").Funcs(functions)
	return &debugHandler{
		limiter: l,
		page:    template.Must(page.Parse(strings.Replace(debugHTML, "/*style*/", debugCSS, 1))),
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	}
}

// A debugHandler serves the page of Debug.
type debugHandler struct {
	limiter *ratelimit.RateLimiter
	page    *template.Template
	policy  string // the Content-Security-Policy, which allows the style of the page, and nothing else
}

// ServeHTTP answers with the state of the limiter.
func (d *debugHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", d.policy)
	h.Set("Vary", "Accept")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "This page only shows: its methods are GET and HEAD.", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	report := newDebugReport(r.Context(), d.limiter, query)
	var body bytes.Buffer
	var err error
	if prefersJSON(query, r.Header.Values("Accept")) {
		h.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		err = d.page.Execute(&body, report)
	}
	if err != nil {
		http.Error(w, "The page cannot be written: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(body.Bytes()) // Write fails only if the client has left
	}
}

// prefersJSON reports whether the client wants JSON: because the query has format=json, or because Accept gives JSON a
// higher quality than HTML.
func prefersJSON(query url.Values, accept []string) bool {
	if format := query.Get("format"); format != "" {
		return format == "json"
	}
	asJSON, asHTML := 0.0, 0.0
	for _, entry := range split(strings.Join(accept, ","), ',') {
		parts := split(entry, ';')
		quality := 1.0
		for _, parameter := range parts[1:] {
			if text, ok := strings.CutPrefix(strings.ToLower(parameter), "q="); ok {
				quality, _ = strconv.ParseFloat(text, 64) // a quality that is not a number counts as 0
			}
		}
		switch strings.ToLower(parts[0]) {
		case "application/json":
			asJSON = max(asJSON, quality)
		case "text/html", "text/*":
			asHTML = max(asHTML, quality)
		}
	}
	return asJSON > asHTML
}

// askedRequest returns the request that the form of the page describes. ok is false if the form is empty.
func askedRequest(query url.Values) (req ratelimit.Request, ok bool) {
	req = ratelimit.Request{
		Client: query.Get("client"), Endpoint: query.Get("endpoint"), IP: strings.TrimSpace(query.Get("ip")), Tier: query.Get("tier"),
	}
	ok = req.Client != "" || req.Endpoint != "" || req.IP != "" || req.Tier != ""
	name := addressPrefix + req.IP
	if addr, err := netip.ParseAddr(req.IP); err == nil {
		name = addressClient(normal(addr), false, defaultIPv6Bits)
		req.IP = name[len(addressPrefix):]
	}
	if req.Client == "" && req.IP != "" {
		req.Client = name
	}
	return req, ok
}

// grouped returns the number n as text, with a comma before each group of three digits.
func grouped(n any) string {
	var text string
	switch n := n.(type) {
	case int:
		text = strconv.Itoa(n)
	case uint64:
		text = strconv.FormatUint(n, 10)
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// units returns the text of a number of units, or "-" for -1, which means no limit.
func units(n int) string {
	if n < 0 {
		return "-"
	}
	return grouped(n)
}

// waitText returns the text of how long a client must wait.
func waitText(d time.Duration) string {
	switch {
	case d == ratelimit.Never:
		return "never"
	case d == 0:
		return "-"
	case d >= time.Minute:
		return shortText((d + time.Second - 1).Truncate(time.Second)) // rounded up: after a shorter wait, the request would be denied
	}
	return d.String()
}

// shortText returns d as text, such as "15m" where Duration.String returns "15m0s": minutes and seconds that are 0 at
// the end are left out.
func shortText(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// timeText returns the text of a time, in UTC.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// plural returns the parameter one (the singular of a word) if n is 1, and otherwise the parameter many (the plural).
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// nameText returns the name of a client as people can read it without doubt. A name with characters that cannot be seen, or with
// spaces at its ends, is quoted as in Go: otherwise it could look like the name of another client, or like none.
func nameText(name string) string {
	hidden := func(r rune) bool { return !strconv.IsPrint(r) }
	if strings.ContainsFunc(name, hidden) || !utf8.ValidString(name) || strings.TrimSpace(name) != name {
		return strconv.Quote(name)
	}
	return name
}
