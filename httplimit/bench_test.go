package httplimit_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// manyClients is how many clients the benchmarks have unless they say another number.
const manyClients = 100_000

// BenchmarkHandler measures what the middleware costs around an empty handler. Each response begins
// with an empty header, as that of a server does.
func BenchmarkHandler(b *testing.B) {
	perClient := ratelimit.Rule{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000_000)}
	global := ratelimit.Rule{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Additional: true, Rate: ratelimit.PerSecond(1_000_000_000)}
	daily := ratelimit.Rule{Name: "daily", Endpoint: "*", Additional: true, Rate: ratelimit.PerDay(2_000_000_000)}
	strict := ratelimit.Rule{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerDay(1)}
	for _, row := range []struct {
		name    string
		rules   []ratelimit.Rule
		c       httplimit.Config
		clients int
	}{
		{"rules=0/clients=1", nil, httplimit.Config{}, 1},
		{"rules=1/clients=1", []ratelimit.Rule{perClient}, httplimit.Config{}, 1},
		{"rules=1/clients=100k", []ratelimit.Rule{perClient}, httplimit.Config{}, manyClients},
		{"rules=3/clients=100k", []ratelimit.Rule{perClient, daily, global}, httplimit.Config{}, manyClients},
		{"rules=1/clients=100k/headers=delta", []ratelimit.Rule{perClient}, httplimit.Config{Headers: httplimit.HeadersDelta}, manyClients},
		{"rules=1/clients=100k/headers=none", []ratelimit.Rule{perClient}, httplimit.Config{Headers: httplimit.HeadersNone}, manyClients},
		{"rules=1/clients=1/denied", []ratelimit.Rule{strict}, httplimit.Config{}, 1},
	} {
		b.Run(row.name, func(b *testing.B) {
			h := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			if row.rules != nil {
				l, err := ratelimit.New(row.rules, nil)
				require.NoError(b, err)
				m, err := httplimit.New(l, row.c)
				require.NoError(b, err)
				h = m.Handler(h)
			}
			r := request(b, "/users/7", "203.0.113.9:1234")
			peers := make([]string, row.clients)
			for i := range peers {
				peers[i] = fmt.Sprintf("203.%d.%d.%d:1234", i>>16, i>>8&255, i&255)
			}
			w := &quietWriter{http.Header{}}
			next := 0
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				r.RemoteAddr = peers[next]
				next = (next + 7919) % len(peers) // a prime, so that each client has its turn
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkServer measures requests to a server over one connection of the loopback interface. The
// client writes the same bytes again and again and allocates nothing, so B/op and allocs/op are the
// server's.
func BenchmarkServer(b *testing.B) {
	for _, name := range []string{"bare", "httplimit"} {
		b.Run("handler="+name, func(b *testing.B) {
			var h http.Handler = ok
			if name == "httplimit" {
				l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerSecond(1_000_000)})
				require.NoError(b, err)
				h = httplimit.Handler(ok, l)
			}
			s := httptest.NewServer(h)
			defer s.Close()
			conn, err := net.Dial("tcp", s.Listener.Addr().String()) //nolint:noctx // the listener is in this process
			require.NoError(b, err)
			defer func() { _ = conn.Close() }()
			send, answers := []byte("GET /users/7 HTTP/1.1\r\nHost: example.com\r\n\r\n"), bufio.NewReader(conn)
			b.ReportAllocs()
			for b.Loop() {
				_, err := conn.Write(send)
				require.NoError(b, err)
				require.NoError(b, skipAnswer(answers))
			}
		})
	}
}

// skipAnswer reads a response to its end: the header, and the body of ok.
func skipAnswer(answers *bufio.Reader) error {
	line, err := answers.ReadSlice('\n')
	if err != nil || !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("status line %q: %w", line, err)
	}
	for len(line) > len("\r\n") {
		if line, err = answers.ReadSlice('\n'); err != nil {
			return err
		}
	}
	_, err = answers.Discard(len("ok"))
	return err
}
