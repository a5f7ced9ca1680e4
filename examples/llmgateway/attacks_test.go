package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestNeverReads has a client that reads nothing of its answer: it loses its slot after a while, and pays for what was
// sent.
func TestNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := newGateway(func(_ context.Context, _ string, emit func(string, int) error) error {
			for {
				if err := emit("a word that nobody reads ", 1); err != nil {
					return err
				}
			}
		})
		require.NoError(t, err)
		over := make(chan struct{})
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(over)
			g.ServeHTTP(w, r)
		})}
		client, gateway := net.Pipe()
		pipes := &onePipe{conn: make(chan net.Conn, 1)}
		pipes.conn <- gateway
		go func() { _ = server.Serve(pipes) }()
		_, err = fmt.Fprint(client, "POST /v1/chat HTTP/1.1\r\nHost: x\r\nX-Client: alice\r\nContent-Length: 5\r\n\r\nhello")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 3, left(t, g)[2], "it is being answered")
		<-over
		require.Equal(t, 4, left(t, g)[2])
		require.NoError(t, client.Close())
		close(pipes.conn)
		require.NoError(t, server.Close())
	})
}

// A onePipe is a listener with one connection.
type onePipe struct{ conn chan net.Conn }

func (p *onePipe) Accept() (net.Conn, error) {
	if c, ok := <-p.conn; ok {
		return c, nil
	}
	return nil, io.EOF
}
func (p *onePipe) Close() error   { return nil }
func (p *onePipe) Addr() net.Addr { return &net.TCPAddr{} }

// left returns how many requests and tokens alice has left at the gateway, and how many of its requests may be answered
// beside those that are.
func left(t *testing.T, g *gateway) (left [3]int) {
	r, err := g.limiter.Reserve(t.Context(), ratelimit.Request{
		Client: "alice", Endpoint: "/v1/chat", Cost: 1000, Costs: []ratelimit.Cost{{Unit: "tokens", N: 0}},
	}, time.Minute)
	require.NoError(t, err)
	require.False(t, r.Result().Allowed, "nobody may send 1,000 requests at once, so nothing is charged")
	for i, res := range r.Results() {
		left[i] = res.Remaining
	}
	return left
}

// TestPausedRedis stops the Redis server for three seconds, while answers arrive that take longer than Per. Meanwhile,
// each of the two processes grants its part of the limit by what it runs itself, so that up to twice the limit may run.
// When the server answers again, nothing stays in flight for longer than Per after its end. The test takes at least 12
// seconds, and runs with RATELIMIT_SOAK=1.
func TestPausedRedis(t *testing.T) {
	if os.Getenv("RATELIMIT_SOAK") != "1" {
		t.Skip("it takes at least 12 seconds")
	}
	server := startRedis(t)
	s := setup{Redis: server.url(), Timeout: 50 * time.Millisecond, Replicas: 2, Rates: map[string]ratelimit.Rate{
		"requests": {Requests: 1, Per: day, Burst: 10_000},
		"tokens":   {Requests: 1, Per: day, Burst: 10_000_000},
		"at once":  {Requests: atOnce, Per: 8 * time.Second},
	}}
	l, own := startLoad(t, &s, 2, 11*time.Second)
	l.run(3*time.Second, func() {
		before := l.mostOf()
		require.NoError(t, server.cmd.Process.Signal(syscall.SIGSTOP)) // the requests that run are extended after 4 seconds
		pass(3 * time.Second)
		require.NoError(t, server.cmd.Process.Signal(syscall.SIGCONT))
		pass(6 * time.Second)
		t.Logf("at most %d of a key in flight before the pause, and %d after it", before, l.mostOf())
	})
	require.LessOrEqual(t, l.mostOf(), int64(2*atOnce))
	l.untilFree(own, &s)
	var charged, used, settled int
	done := l.used(l.processes)
	for who, k := range l.stored(own, &s) {
		require.GreaterOrEqual(t, k.tokens, 0)
		charged, used, settled = charged+k.tokens, used+done[who].tokens, settled+done[who].requests
	}
	t.Logf("%d requests ended with %d tokens used; %d are charged in Redis", settled, used, charged)
	for i, p := range l.processes {
		p.kill()
		t.Logf("process %d has logged %d failures of the store", i, strings.Count(p.errs.String(), "redisstore"))
	}
}
