package grpclimit_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The methods of the service of the tests.
const (
	unaryCall  = "/grpc.testing.TestService/UnaryCall"
	emptyCall  = "/grpc.testing.TestService/EmptyCall"
	duplexCall = "/grpc.testing.TestService/FullDuplexCall"
	outputCall = "/grpc.testing.TestService/StreamingOutputCall"
)

const pushbackKey = "grpc-retry-pushback-ms"

// perMinute returns a limiter with a default rule of n calls a minute for each client, and its
// clock.
func perMinute(t testing.TB, n int, rules ...ratelimit.Rule) (*ratelimit.RateLimiter, *ratelimit.FakeClock) {
	t.Helper()
	return limited(t, rules, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(n)})
}

// limited returns a limiter with these rules, and its clock.
func limited(t testing.TB, rules []ratelimit.Rule, defaultRule *ratelimit.Rule, opts ...ratelimit.Option) (*ratelimit.RateLimiter,
	*ratelimit.FakeClock) {
	t.Helper()
	clock := ratelimit.NewFakeClock(start)
	l, err := ratelimit.New(rules, defaultRule, append(opts, ratelimit.WithClock(clock))...)
	require.NoError(t, err)
	return l, clock
}

func made(t testing.TB, l *ratelimit.RateLimiter, c grpclimit.Config) *grpclimit.Interceptors {
	t.Helper()
	i, err := grpclimit.New(l, c)
	require.NoError(t, err)
	return i
}

// A service counts its calls. Its streams are served by the functions.
type service struct {
	testpb.UnimplementedTestServiceServer
	calls  atomic.Int64
	duplex func(testpb.TestService_FullDuplexCallServer) error
}

func (s *service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	s.calls.Add(1)
	return &testpb.Empty{}, nil
}

func (s *service) UnaryCall(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	s.calls.Add(1)
	return &testpb.SimpleResponse{}, nil
}

func (s *service) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	s.calls.Add(1)
	return s.duplex(stream)
}

func (s *service) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, stream testpb.TestService_StreamingOutputCallServer) error {
	s.calls.Add(1)
	return stream.Send(&testpb.StreamingOutputCallResponse{})
}

// A world is a server and a client on a real connection.
type world struct {
	testpb.TestServiceClient
	service *service
	server  *grpc.Server
	conn    *grpc.ClientConn
}

// serve starts a server with these options on a listener, and connects a client to it.
func serve(t testing.TB, on net.Listener, server []grpc.ServerOption, client ...grpc.DialOption) *world {
	t.Helper()
	w := &world{service: &service{}, server: grpc.NewServer(server...)}
	testpb.RegisterTestServiceServer(w.server, w.service)
	healthpb.RegisterHealthServer(w.server, health.NewServer())
	served := make(chan error)
	go func() { served <- w.server.Serve(on) }()
	t.Cleanup(func() {
		w.server.Stop()
		require.NoError(t, <-served)
	})
	target := on.Addr().String()
	if on.Addr().Network() == "unix" {
		target = "unix:" + target
	}
	w.dial(t, target, client...)
	return w
}

// dial connects the client of w to target.
func (w *world) dial(t testing.TB, target string, opts ...grpc.DialOption) {
	t.Helper()
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	w.conn, w.TestServiceClient = conn, testpb.NewTestServiceClient(conn)
}

// loopback returns a listener on a free port.
func loopback(t testing.TB) net.Listener {
	t.Helper()
	on, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return on
}

// behind returns a world whose server has the interceptors of i, and these outside of them.
func behind(t testing.TB, i *grpclimit.Interceptors, outer ...grpc.UnaryServerInterceptor) *world {
	t.Helper()
	return serve(t, loopback(t), options(i, outer...))
}

// options returns the options of a server with the interceptors of i.
func options(i *grpclimit.Interceptors, outer ...grpc.UnaryServerInterceptor) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(append(outer, i.Unary())...), grpc.ChainStreamInterceptor(i.Stream())}
}

// call makes a unary call with metadata in pairs, and returns its error and its trailer.
func (w *world) call(t testing.TB, pairs ...string) (error, metadata.MD) { //nolint:staticcheck // the error is what most want
	t.Helper()
	var trailer metadata.MD
	_, err := w.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), pairs...), &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
	return err, trailer
}

// details returns the details of err.
func details(t testing.TB, err error) (retry *errdetails.RetryInfo, rules []string) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			require.Nil(t, retry)
			retry = d
		case *errdetails.QuotaFailure:
			require.NotEmpty(t, d.Violations)
			for _, v := range d.Violations {
				require.Empty(t, v.Subject)
				rules = append(rules, v.Description)
			}
		default:
			require.Fail(t, "another detail", "%v", d)
		}
	}
	return retry, rules
}

func mustAddrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// prefixes returns these prefixes.
func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// A logbook is a log whose lines a test can read.
type logbook struct {
	mu  sync.Mutex
	all strings.Builder
}

func (b *logbook) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(line)
}

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// lines returns the lines so far.
func (b *logbook) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.FieldsFunc(b.all.String(), func(r rune) bool { return r == '\n' })
}

// A brokenStore is a Store that cannot be reached.
type brokenStore struct{ err error }

func (s brokenStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, s.err
}

func (s brokenStore) Reset(context.Context, []ratelimit.Ask) error { return s.err }
