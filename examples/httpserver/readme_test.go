package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestReadme sends the requests of README.md, in their order, and compares each answer with what
// stands below it, byte by byte but for the date.
func TestReadme(t *testing.T) {
	a := start(t, nil, ratelimit.WithClock(newClock()))
	shown := regexp.MustCompile("(?s)```sh\n([^`]*curl[^`]*)```\n+```\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	var statuses []string
	for _, pair := range shown {
		command, want := pair[1], pair[2]
		times := 1
		if strings.Contains(command, "for i in 1 2 3 4 5 6; do") {
			times = 6
		}
		var got string
		for range times {
			got = raw(t, a, curl(t, command))
		}
		assert.Equal(t, masked(want), masked(strings.TrimSuffix(got, "\n")+"\n"), command)
		status, _, _ := strings.Cut(want, "\n")
		statuses = append(statuses, status)
	}
	assert.Equal(t, []string{"HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests"}, statuses)
}

var (
	targetOf = regexp.MustCompile(`http://127\.0\.0\.1:8080(/[^\s';]*)`)
	methodOf = regexp.MustCompile(`-X (\w+)`)
	fieldOf  = regexp.MustCompile(`-H '([\w-]+): ([^']*)'`)
	dateOf   = regexp.MustCompile(`Date: [^\n]*`)
)

// curl returns the request that a command line sends.
func curl(t *testing.T, command string) *http.Request {
	t.Helper()
	target := targetOf.FindStringSubmatch(command)
	require.NotNil(t, target, command)
	method := http.MethodGet
	if m := methodOf.FindStringSubmatch(command); m != nil {
		method = m[1]
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+target[1], nil)
	require.NoError(t, err)
	for _, field := range fieldOf.FindAllStringSubmatch(command, -1) {
		req.Header.Add(field[1], field[2])
	}
	return req
}

// raw sends req to a, and returns the answer as it comes over the connection.
func raw(t *testing.T, a *api, req *http.Request) string {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, req.Write(conn))
	var text strings.Builder
	res, err := http.ReadResponse(bufio.NewReader(&tee{conn, &text}), req)
	require.NoError(t, err)
	_, err = httputil.DumpResponse(res, true) // reads the body to its end
	require.NoError(t, err)
	return text.String()
}

// A tee notes what is read.
type tee struct {
	net.Conn
	text *strings.Builder
}

func (t *tee) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.text.Write(p[:n])
	return n, err
}

// masked returns an answer without its date and without the carriage returns of its header.
func masked(answer string) string {
	return dateOf.ReplaceAllString(strings.ReplaceAll(answer, "\r\n", "\n"), "Date: …")
}

// TestLines counts what the limits of this API take beside its handlers: in main.go all from the
// opening of the file to the check of the middleware, and the costs; in handlers.go the line that
// puts the middleware before the routes; and limits.json.
func TestLines(t *testing.T) {
	program, document := read(t, "main.go"), read(t, "limits.json")
	from := strings.Index(program, "\tlimiter, watcher, err := ")
	require.Positive(t, from)
	limits, _, _ := strings.Cut(program[from:], "\n\n")
	require.Contains(t, limits, "httplimit.New(")
	require.Equal(t, 1, strings.Count(program, "httplimit.New("))
	require.Equal(t, 1, strings.Count(program, "costs = "))
	handlers := read(t, "handlers.go")
	require.Equal(t, 1, strings.Count(handlers, "m.Handler(mux)"))
	require.Equal(t, 1, strings.Count(handlers, "Use(m.Handler)"))
	require.True(t, json.Valid([]byte(document)))

	inGo, inJSON := strings.Count(limits, "\n")+1+2, strings.Count(document, "\n")
	assert.LessOrEqual(t, inGo+inJSON, 25)
	assert.Contains(t, read(t, "README.md"), fmt.Sprintf("is %d lines of Go and the %d lines of\nlimits.json", inGo, inJSON))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}
