package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// routesOfShop are the patterns of a service, and shopLimits its rules.
var routesOfShop = []string{"GET /users/{id}", "POST /login", "/search", "/items/{id}/reviews", "/"}

const shopLimits = `{"rules": [
  {"endpoint": "/users/{id}", "algorithm": "TokenBucket", "rate": "6/m"},
  {"endpoint": "/login", "algorithm": "SlidingWindowLog", "rate": "3/m", "key": "ip"},
  {"endpoint": "/search", "algorithm": "SlidingWindowCounter", "rate": "10/m"},
  {"name": "all", "endpoint": "*", "additional": true, "algorithm": "FixedWindow", "rate": "2000/h", "key": "global"}
], "default": {"algorithm": "LeakyBucket", "rate": "20/m"}}`

// A shopRequest is a request that was sent to the service, and what httplimit has answered.
type shopRequest struct {
	at      time.Time
	method  string
	target  string
	remote  string // address and port
	allowed bool
}

// sendToShop sends random requests to a service that httplimit protects.
func sendToShop(t *testing.T, n int) []shopRequest {
	t.Helper()
	require.NoError(t, os.WriteFile("limits.json", []byte(shopLimits), 0o600))
	r := rand.New(rand.NewPCG(26, 7))
	clock := ratelimit.NewFakeClock(time.Unix(1_791_600_000, 0).UTC())
	_, l, err := loadRules("limits.json", ratelimit.WithClock(clock))
	require.NoError(t, err)
	mux := http.NewServeMux()
	for _, pattern := range routesOfShop {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	handler := httplimit.Handler(mux, l)
	var sent []shopRequest
	for range n {
		clock.Advance(time.Duration(r.IntN(4)) * time.Second)
		q := shopRequest{at: clock.Now(), method: []string{"GET", "POST"}[r.IntN(2)]}
		q.target = []string{
			fmt.Sprintf("/users/%d?full=%d", r.IntN(1000), r.IntN(9)), "/login", "/search?q=a%20b",
			fmt.Sprintf("/items/%d/reviews", r.IntN(50)), "/about",
			"/users/x%2fy",
		}[r.IntN(6)]
		q.remote = fmt.Sprintf("203.0.113.%d:%d", r.IntN(4), 1024+r.IntN(60_000))
		if r.IntN(2) == 0 { // addresses of two networks
			q.remote = fmt.Sprintf("[2001:db8:1:%d::%x]:%d", r.IntN(2), r.IntN(60_000), 1024+r.IntN(60_000))
		}
		req := httptest.NewRequestWithContext(t.Context(), q.method, q.target, nil)
		req.RemoteAddr = q.remote
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		q.allowed = answer.Code != http.StatusTooManyRequests
		sent = append(sent, q)
	}
	return sent
}

// combinedLine returns the line of a request in the combined format, behind the name of a virtual host.
func (q *shopRequest) combinedLine() string {
	host := q.remote[:strings.LastIndexByte(q.remote, ':')]
	return fmt.Sprintf("shop.example:443 %s - - [%s] \"%s %s HTTP/1.1\" 200 5 \"-\" \"curl\"\n", strings.Trim(host, "[]"),
		q.at.Format("02/Jan/2006:15:04:05 -0700"), q.method, q.target)
}

// albLine returns the line of a request in the log of an Application Load Balancer.
func (q *shopRequest) albLine() string {
	return fmt.Sprintf("https %s app/shop/1 %s 10.0.0.1:80 0 0 0 200 200 5 5 \"%s https://shop.example:443%s HTTP/2.0\" \"curl\" - -\n",
		q.at.Format("2006-01-02T15:04:05.000000Z"), q.remote, q.method, q.target)
}

// TestReplayEqualsHTTPLimit sends requests to httplimit and replays the logs of several servers: the same requests are denied.
// The logs are dealt to two hosts, rotated, partly compressed, and of two formats, and some lines are late.
func TestReplayEqualsHTTPLimit(t *testing.T) {
	t.Chdir(t.TempDir())
	sent := sendToShop(t, 4000)
	var hosts [2][]string
	for i := range sent {
		q := &sent[i]
		line := q.combinedLine()
		if i%2 == 1 {
			line = q.albLine()
		}
		hosts[i%2] = append(hosts[i%2], line)
	}
	for i := 10; i+1 < len(hosts[1]); i += 10 { // a load balancer writes lines that are out of order
		if sent[2*i+1].at != sent[2*i+3].at {
			hosts[1][i], hosts[1][i+1] = hosts[1][i+1], hosts[1][i]
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(strings.Join(hosts[0][:700], "")))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for name, text := range map[string]string{
		"web.log.2.gz": packed.String(), "web.log.1": strings.Join(hosts[0][700:1300], ""), "web.log": strings.Join(hosts[0][1300:], ""),
		"alb.log": strings.Join(hosts[1], ""),
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	args := strings.Fields("replay alb.log web.log web.log.1 web.log.2.gz -config limits.json -decisions out.json")
	for _, pattern := range routesOfShop {
		args = append(args, "-route", pattern)
	}
	got := do(t, args...)
	require.Equal(t, call{exitOK, got.out, ""}, got)
	text, err := os.ReadFile("out.json")
	require.NoError(t, err)
	// Requests of one second may be replayed in another order: the two logs say nothing about their order. So the denials are
	// compared for each second.
	denied, want := make(map[string]int), make(map[string]int)
	total := 0
	for i := range sent {
		if q := &sent[i]; !q.allowed {
			want[fmt.Sprint(q.at.Unix())]++
			total++
		}
	}
	for line := range strings.Lines(string(text)) {
		var d decisionJSON
		require.NoError(t, json.Unmarshal([]byte(line), &d))
		if !d.Allowed {
			denied[fmt.Sprint(d.Time/1e9)]++
		}
	}
	require.Greater(t, total, 400)
	require.Contains(t, got.out, fmt.Sprintf("denied: %s requests", number(total)))
	require.Equal(t, want, denied)
}
