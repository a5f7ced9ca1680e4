package recipes

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestLogin guesses passwords one after the other, and all at once.
func TestLogin(t *testing.T) {
	newLogin := func() (http.Handler, *ratelimit.FakeClock) {
		clock := newClock()
		l, err := ratelimit.New(loginRules(), &ratelimit.Rule{Rate: ratelimit.PerSecond(10_000)}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		m := middleware(t, l, httplimit.Config{})
		return m.Handler(login(m, func(_, password string) bool { return password == "right" })), clock
	}
	try := func(h http.Handler, address, name, password string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login?name="+name+"&password="+password, nil)
		r.RemoteAddr = address + ":99"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	h, clock := newLogin()
	for range 100 {
		require.Equal(t, 200, try(h, "203.0.113.1", "alice", "right").Code, "right passwords cost nothing")
	}
	for i := range 10 {
		require.Equal(t, 401, try(h, fmt.Sprintf("203.0.113.%d", i+1), "alice", "wrong").Code)
	}
	denied := try(h, "203.0.113.99", "alice", "right")
	assert.Equal(t, 429, denied.Code, "who is over the limit does not learn that it was right")
	assert.Equal(t, "3600", denied.Header().Get("Retry-After"))
	assert.Equal(t, 200, try(h, "203.0.113.1", "bob", "right").Code)
	for i := range 49 { // the address has one wrong guess already
		require.Equal(t, 401, try(h, "203.0.113.1", fmt.Sprint("user-", i), "wrong").Code)
	}
	assert.Equal(t, 429, try(h, "203.0.113.1", "carol", "right").Code, "many names from one address")
	clock.Advance(time.Hour)
	assert.Equal(t, 200, try(h, "203.0.113.1", "alice", "right").Code)

	h, _ = newLogin()
	var wrong atomic.Int64
	var running sync.WaitGroup
	for i := range 64 {
		running.Go(func() {
			if try(h, fmt.Sprintf("198.51.100.%d", i), "alice", "wrong").Code == 401 {
				wrong.Add(1)
			}
		})
	}
	running.Wait()
	assert.EqualValues(t, 10, wrong.Load())
}

func TestCosts(t *testing.T) {
	m, err := withCosts(perMinute(t, 60))
	require.NoError(t, err)
	mux := http.NewServeMux()
	for _, path := range []string{"/search", "/export", "/items"} {
		mux.HandleFunc(path, ok)
	}
	url := serve(t, m.Handler(mux))
	for _, row := range []struct {
		path string
		left string
	}{{"/items", "r=59;"}, {"/search", "r=54;"}, {"/export", "r=4;"}, {"/search", "r=4;"}} {
		assert.Contains(t, ask(t, http.MethodGet, url+row.path).header.Get("RateLimit"), row.left, row.path)
	}
}

// TestKilobytes downloads less and more than is held.
func TestKilobytes(t *testing.T) {
	clock := newClock()
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(7)},
		{
			Name: "kilobytes", Endpoint: "*", Additional: true, Unit: "kilobytes", Rate: ratelimit.PerMinute(600).WithBurst(300),
			Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600).WithBurst(700)},
		},
	}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	files := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var size int
		_, err := fmt.Sscan(strings.TrimPrefix(r.URL.Path, "/"), &size)
		assert.NoError(t, err)
		_, _ = io.WriteString(w, strings.Repeat("x", size))
		assert.NoError(t, http.NewResponseController(w).Flush())
	})
	m := middleware(t, l, httplimit.Config{Client: httplimit.APIKey("X-API-Key", func(key string) (string, string, bool) {
		return "shop-" + key, "paid", true
	})})
	url := serve(t, byKilobyte(m, files))
	left := func() int {
		res, err := l.Peek(t.Context(), ratelimit.Request{Client: "ip:127.0.0.1", Costs: []ratelimit.Cost{{N: 0}, {Unit: "kilobytes"}}})
		require.NoError(t, err)
		return res.Remaining
	}
	get := func(size int) int { return ask(t, http.MethodGet, fmt.Sprint(url, "/", size)).status }
	assert.Equal(t, 200, get(1025))
	require.Eventually(t, func() bool { return left() == 298 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, 200, get(400*1024), "it held only 100")
	require.Eventually(t, func() bool { return left() == 0 }, 10*time.Second, time.Millisecond)
	late := ask(t, http.MethodGet, url+"/1")
	assert.Equal(t, 429, late.status)
	assert.Equal(t, "21", late.header.Get("Retry-After"))
	clock.Advance(20200*time.Millisecond - 1) // 102 beyond the limit, and 100 to hold
	assert.Equal(t, 429, get(1))
	clock.Advance(1)
	assert.Equal(t, 200, get(1))

	assert.Equal(t, 200, ask(t, http.MethodGet, url+"/1", "X-API-Key", "7").status)
	paid := ratelimit.Request{Client: "shop-7", Tier: "paid", Costs: []ratelimit.Cost{{N: 0}, {Unit: "kilobytes"}}}
	require.Eventually(t, func() bool {
		res, err := l.Peek(t.Context(), paid)
		return err == nil && res.Remaining == 699 && res.Limit == 700
	}, 10*time.Second, time.Millisecond, "the plan holds for kilobytes too")
	res, err := l.Peek(t.Context(), ratelimit.Request{})
	require.NoError(t, err)
	assert.Equal(t, 3, res.Remaining, "everybody together is charged for the four requests that were granted, not for kilobytes")
}

func TestHealth(t *testing.T) {
	url := serve(t, withHealth(middleware(t, perMinute(t, 1), httplimit.Config{}), newMux()))
	assert.Equal(t, []int{200, 429}, statuses(t, 2, url+"/search"))
	assert.Equal(t, []int{204, 204, 204}, statuses(t, 3, url+"/healthz"))
}

func TestCORS(t *testing.T) {
	url := serve(t, withCORS(middleware(t, perMinute(t, 1), httplimit.Config{}), http.HandlerFunc(ok)))
	origin := []string{"Origin", "https://shop.example"}
	for range 3 {
		res := ask(t, http.MethodOptions, url, append(origin, "Access-Control-Request-Method", "PUT")...)
		assert.Equal(t, 204, res.status, "preflights cost nothing")
	}
	assert.Equal(t, 200, ask(t, http.MethodGet, url, origin...).status)
	denied := ask(t, http.MethodGet, url, origin...)
	assert.Equal(t, 429, denied.status)
	assert.Equal(t, "https://shop.example", denied.header.Get("Access-Control-Allow-Origin"), "the script may read the denial")
	exposed := strings.ToLower(denied.header.Get("Access-Control-Expose-Headers"))
	for _, name := range []string{"ratelimit", "ratelimit-policy", "retry-after"} {
		assert.Contains(t, exposed, name)
	}
}

// Pipes are a listener whose connections are pipes within this process.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

// TestMessages sends twelve messages at once, of which two are answered a second, in the time of a
// bubble.
func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "messages", Rate: ratelimit.PerSecond(2)}},
			&ratelimit.Rule{Name: "connections", Rate: ratelimit.PerHour(1)})
		require.NoError(t, err)
		listener := make(pipes)
		server := &http.Server{Handler: middleware(t, l, httplimit.Config{}).Handler(echoMessages(l)), ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }()
		transport := &http.Transport{DialContext: listener.dial}
		dial := func() (*websocket.Conn, *http.Response, error) {
			return websocket.Dial(t.Context(), "ws://pipe/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
		}
		conn, res, err := dial()
		require.NoError(t, err)
		assert.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
		const messages = 12
		sent := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			for i := range messages {
				assert.NoError(t, conn.Write(t.Context(), websocket.MessageText, fmt.Append(nil, i)))
			}
			sent <- time.Since(began)
		}()
		for i := range messages {
			_, text, err := conn.Read(t.Context())
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprint(i), string(text), "in order")
			assert.Equal(t, time.Duration(max(0, i-1))*500*time.Millisecond, time.Since(began))
		}
		assert.Greater(t, <-sent, 4*time.Second, "the sender is held too")
		_, res, err = dial()
		require.Error(t, err)
		assert.Equal(t, http.StatusTooManyRequests, res.StatusCode, "a connection is one request")
		require.NoError(t, conn.CloseNow())
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
	})
}

func TestOverloaded(t *testing.T) {
	l := limiter(t, []ratelimit.Rule{
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(3)},
	}, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(2)})
	h := middleware(t, l, httplimit.Config{Denied: overloaded}).Handler(http.HandlerFunc(ok))
	from := func(address string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	assert.Equal(t, 200, from("203.0.113.1:9").Code)
	assert.Equal(t, 200, from("203.0.113.1:9").Code)
	assert.Equal(t, 429, from("203.0.113.1:9").Code, "it is this client")
	assert.Equal(t, 200, from("203.0.113.2:9").Code)
	w := from("203.0.113.2:9")
	assert.Equal(t, 503, w.Code, "it is all together")
	assert.Contains(t, w.Body.String(), "temporary-reduced-capacity")
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	assert.Equal(t, 429, from("203.0.113.1:9").Code, "both: this client must wait in any case")
}
