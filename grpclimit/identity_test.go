package grpclimit_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// asked returns a Config with what c has, and where Prepare puts what was asked last.
func asked(c grpclimit.Config) (grpclimit.Config, *ratelimit.Request) {
	last := new(ratelimit.Request)
	c.Prepare = func(_ context.Context, r *ratelimit.Request) { *last = *r }
	return c, last
}

// An address is one of no kind that is known.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

func tcp(text string) net.Addr { return net.TCPAddrFromAddrPort(mustAddrPort(text)) }

// TestClient has calls from an address with metadata in pairs.
func TestClient(t *testing.T) {
	trusted := httplimit.Proxies{Trusted: prefixes("10.0.0.0/8", "2001:db8:ffff::/48")}
	unix := httplimit.Proxies{Unix: true}
	socket := &net.UnixAddr{Net: "unix", Name: "@"}
	for _, row := range []struct {
		why      string
		from     net.Addr
		proxies  httplimit.Proxies
		metadata []string
		want     string
	}{
		{"IPv4 counts whole", tcp("203.0.113.9:80"), httplimit.Proxies{}, nil, "203.0.113.9"},
		{"the port does not count", tcp("203.0.113.9:81"), httplimit.Proxies{}, nil, "203.0.113.9"},
		{"IPv6 counts by /64", tcp("[2001:db8:1:2:3:4:5:6]:80"), httplimit.Proxies{}, nil, "2001:db8:1:2::/64"},
		{"IPv4 within IPv6 is IPv4", tcp("[::ffff:203.0.113.9]:80"), httplimit.Proxies{}, nil, "203.0.113.9"},
		{"an address of NAT64 is IPv4", tcp("[64:ff9b::203.0.113.9]:80"), httplimit.Proxies{}, nil, "203.0.113.9"},
		{"a zone does not count", tcp("[fe80::1%eth0]:80"), httplimit.Proxies{}, nil, "fe80::/64"},
		{"a text is read", address("203.0.113.9:80"), httplimit.Proxies{}, nil, "203.0.113.9"},
		{"a text without a port is read", address("203.0.113.9"), httplimit.Proxies{}, nil, "203.0.113.9"},
		{"a unix socket is local", socket, httplimit.Proxies{}, nil, "local"},
		{"anything else is unknown", address("bufconn"), httplimit.Proxies{}, nil, "unknown"},
		{"nothing is unknown", nil, httplimit.Proxies{}, nil, "unknown"},

		{"nobody is believed", tcp("203.0.113.9:80"), httplimit.Proxies{}, []string{"x-forwarded-for", "6.6.6.6"}, "203.0.113.9"},
		{"strangers are not believed", tcp("203.0.113.9:80"), trusted, []string{"x-forwarded-for", "6.6.6.6"}, "203.0.113.9"},
		{"a proxy is", tcp("10.0.0.1:80"), trusted, []string{"x-forwarded-for", "198.51.100.7"}, "198.51.100.7"},
		{"a proxy within IPv6 is", tcp("[::ffff:10.0.0.1]:80"), trusted, []string{"x-forwarded-for", "198.51.100.7"}, "198.51.100.7"},
		{"a proxy's own call is its own", tcp("10.0.0.1:80"), trusted, nil, "10.0.0.1"},
		{"IPv6 behind a proxy counts by /64", tcp("10.0.0.1:80"), trusted, []string{"x-forwarded-for", "2001:db8:1:2:3:4:5:6"},
			"2001:db8:1:2::/64"},
		{"the left was sent by the client", tcp("10.0.0.1:80"), trusted, []string{"x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.0.0.2"},
			"198.51.100.7"},
		{"so were earlier lines", tcp("10.0.0.1:80"), trusted, []string{"x-forwarded-for", "6.6.6.6", "x-forwarded-for", "198.51.100.7"},
			"198.51.100.7"},
		{"garbage is nobody", tcp("10.0.0.1:80"), trusted, []string{"x-forwarded-for", "ip:6.6.6.6"}, "10.0.0.1"},
		{"one hop", tcp("203.0.113.9:80"), httplimit.Proxies{Hops: 1}, []string{"x-forwarded-for", "6.6.6.6, 198.51.100.7"}, "198.51.100.7"},
		{"too few hops", tcp("203.0.113.9:80"), httplimit.Proxies{Hops: 2}, []string{"x-forwarded-for", "198.51.100.7"}, "203.0.113.9"},
		{"another name", tcp("10.0.0.1:80"), httplimit.Proxies{Trusted: trusted.Trusted, Header: "CF-Connecting-IP"},
			[]string{"cf-connecting-ip", "198.51.100.7", "x-forwarded-for", "6.6.6.6"}, "198.51.100.7"},
		{"a socket is believed", socket, unix, []string{"x-forwarded-for", "198.51.100.7"}, "198.51.100.7"},
		{"a socket without a word is local", socket, unix, nil, "local"},
		{"a socket is believed by hops", socket, httplimit.Proxies{Hops: 1}, []string{"x-forwarded-for", "6.6.6.6, 198.51.100.7"},
			"198.51.100.7"},
		{"a socket is no trusted address", socket, trusted, []string{"x-forwarded-for", "6.6.6.6"}, "local"},
		{"who is unknown is no socket", address("bufconn"), unix, []string{"x-forwarded-for", "6.6.6.6"}, "unknown"},
		{"nor has he hops", address("bufconn"), httplimit.Proxies{Hops: 1}, []string{"x-forwarded-for", "6.6.6.6"}, "unknown"},
		{"x-real-ip is not read", tcp("10.0.0.1:80"), trusted, []string{"x-real-ip", "6.6.6.6", "forwarded", "for=6.6.6.6"}, "10.0.0.1"},
	} {
		t.Run(row.why, func(t *testing.T) {
			l, _ := perMinute(t, 1)
			c, last := asked(grpclimit.Config{Proxies: row.proxies, Log: (&logbook{}).logger()})
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(row.metadata...))
			if row.from != nil {
				ctx = peer.NewContext(ctx, &peer.Peer{Addr: row.from})
			}
			_, err := made(t, l, c).Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, nothing)
			require.NoError(t, err)
			assert.Equal(t, ratelimit.Request{Client: "ip:" + row.want, IP: row.want, Endpoint: unaryCall}, *last)
		})
	}
}

// TestForged forges x-forwarded-for over a real connection. It gains nothing, unless the peer
// is believed.
func TestForged(t *testing.T) {
	forged := []string{"1.2.3.4", "5.6.7.8", "6.6.6.6"}
	codesOf := func(t *testing.T, c grpclimit.Config) (got []codes.Code) {
		l, _ := perMinute(t, 1)
		w := behind(t, made(t, l, c))
		for _, address := range forged {
			err, _ := w.call(t, "x-forwarded-for", address)
			got = append(got, status.Code(err))
		}
		return got
	}
	var book logbook
	assert.Equal(t, []codes.Code{codes.OK, codes.ResourceExhausted, codes.ResourceExhausted}, codesOf(t, grpclimit.Config{Log: book.logger()}))
	require.Len(t, book.lines(), 1, "said once")
	assert.Contains(t, book.lines()[0], "level=WARN")
	assert.Contains(t, book.lines()[0], "set Config.Proxies")
	assert.NotContains(t, book.lines()[0], "1.2.3.4")

	book = logbook{}
	others := httplimit.Proxies{Trusted: prefixes("10.0.0.0/8")}
	assert.Equal(t, []codes.Code{codes.OK, codes.ResourceExhausted, codes.ResourceExhausted},
		codesOf(t, grpclimit.Config{Log: book.logger(), Proxies: others}))
	believed := httplimit.Proxies{Trusted: prefixes("127.0.0.0/8")}
	assert.Equal(t, []codes.Code{codes.OK, codes.OK, codes.OK}, codesOf(t, grpclimit.Config{Log: book.logger(), Proxies: believed}))
	assert.Empty(t, book.lines())
}

// TestForwardedWarning warns of each sign of a proxy, of peers that may be one, and of no others.
func TestForwardedWarning(t *testing.T) {
	for _, row := range []struct {
		from  net.Addr
		name  string
		warns bool
	}{
		{tcp("10.0.0.1:80"), "x-forwarded-for", true},
		{tcp("[::1]:80"), "x-real-ip", true},
		{&net.UnixAddr{}, "forwarded", true},
		{tcp("203.0.113.9:80"), "x-forwarded-for", false},
		{tcp("10.0.0.1:80"), "user-agent", false},
	} {
		var book logbook
		l, _ := perMinute(t, 1)
		ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), metadata.Pairs(row.name, "1.2.3.4")), &peer.Peer{Addr: row.from})
		_, err := made(t, l, grpclimit.Config{Log: book.logger()}).Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, nothing)
		require.NoError(t, err)
		assert.Equal(t, row.warns, len(book.lines()) == 1, "%v %s", row.from, row.name)
	}
}

// TestNames has clients of a verified name. None can be an address.
func TestNames(t *testing.T) {
	for _, row := range []struct {
		name, tier string
		ok         bool
		want       string
	}{
		{"alice", "paid", true, "alice"},
		{"alice", "paid", false, ""},
		{"", "paid", true, ""},
		{"ip:203.0.113.9", "", true, "id:ip:203.0.113.9"},
		{"id:ip:203.0.113.9", "", true, "id:id:ip:203.0.113.9"},
		{"IP:203.0.113.9", "", true, "IP:203.0.113.9"},
	} {
		l, _ := perMinute(t, 1)
		method := ""
		c, last := asked(grpclimit.Config{Client: func(_ context.Context, m string) (string, string, bool) {
			method = m
			return row.name, row.tier, row.ok
		}})
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: tcp("203.0.113.9:80")})
		_, err := made(t, l, c).Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, nothing)
		require.NoError(t, err)
		want := ratelimit.Request{Client: row.want, Tier: row.tier, IP: "203.0.113.9", Endpoint: unaryCall}
		if row.want == "" {
			want.Client, want.Tier = "ip:203.0.113.9", ""
		}
		assert.Equal(t, want, *last)
		assert.Equal(t, unaryCall, method)
	}
}

// TestTransports asks over real connections of each kind.
func TestTransports(t *testing.T) {
	for _, row := range []struct {
		name string
		on   func(t *testing.T) net.Listener
		want string
	}{
		{"tcp", func(t *testing.T) net.Listener { return loopback(t) }, "127.0.0.1"},
		{"unix", listenUnix, "local"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, _ := perMinute(t, 9)
			c, last := asked(grpclimit.Config{})
			i := made(t, l, c)
			on := row.on(t)
			w := serve(t, on, options(i))
			err, _ := w.call(t)
			require.NoError(t, err)
			assert.Equal(t, row.want, last.IP)
		})
		t.Run(row.name+", served by net/http", func(t *testing.T) {
			l, _ := perMinute(t, 1)
			c, last := asked(grpclimit.Config{})
			server := grpc.NewServer(options(made(t, l, c))...)
			testpb.RegisterTestServiceServer(server, &service{})
			on := row.on(t)
			web := &http.Server{Handler: server, Protocols: new(http.Protocols)}
			web.Protocols.SetUnencryptedHTTP2(true)
			served := make(chan error)
			go func() { served <- web.Serve(on) }()
			t.Cleanup(func() {
				require.NoError(t, web.Close())
				require.ErrorIs(t, <-served, http.ErrServerClosed)
				server.Stop()
			})
			w, target := &world{}, on.Addr().String()
			if on.Addr().Network() == "unix" {
				target = "unix:" + target
			}
			w.dial(t, target)
			err, _ := w.call(t)
			require.NoError(t, err)
			assert.Equal(t, row.want, last.IP)
			err, trailer := w.call(t)
			assert.Equal(t, codes.ResourceExhausted, status.Code(err))
			assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
			_, rules := details(t, err)
			assert.Equal(t, []string{"per-client"}, rules)
		})
	}
	t.Run("in memory", func(t *testing.T) {
		l, _ := perMinute(t, 9)
		c, last := asked(grpclimit.Config{Proxies: httplimit.Proxies{Unix: true}})
		on := bufconn.Listen(1 << 16)
		w := serve(t, on, options(made(t, l, c)))
		w.dial(t, "passthrough:///memory",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return on.DialContext(ctx) }))
		err, _ := w.call(t, "x-forwarded-for", "6.6.6.6")
		require.NoError(t, err)
		assert.Equal(t, "unknown", last.IP)
	})
}

func listenUnix(t *testing.T) net.Listener {
	on, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	return on
}
