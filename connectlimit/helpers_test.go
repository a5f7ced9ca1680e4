package connectlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/connectlimit"
)

// The procedures of the servers in these tests.
const (
	askProcedure   = "/test.v1.Test/Ask"
	otherProcedure = "/test.v1.Test/Other"
	watchProcedure = "/test.v1.Test/Watch"
)

type text = wrapperspb.StringValue

// limited returns a limiter with a default rule of n calls a minute, and these rules.
func limited(t testing.TB, n int, rules ...ratelimit.Rule) (*ratelimit.RateLimiter, *ratelimit.FakeClock) {
	t.Helper()
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	l, err := ratelimit.New(rules, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(n)}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return l, clock
}

func made(t testing.TB, l *ratelimit.RateLimiter, c connectlimit.Config) *connectlimit.Interceptor {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	i, err := connectlimit.New(l, c)
	require.NoError(t, err)
	return i
}

// A server has the procedures Ask and Other, which answer by the text of the message, and Watch, which streams.
type server struct {
	limit   *connectlimit.Interceptor // the one that handlers call
	running chan struct{}             // gets a value when a slow call runs
	release chan struct{}             // lets it go on
	url     string
	http    *http.Client
}

// serve starts a server with these interceptors. The last one is that which handlers call.
func serve(t testing.TB, limits ...*connectlimit.Interceptor) *server {
	t.Helper()
	s := &server{limit: limits[len(limits)-1], running: make(chan struct{}), release: make(chan struct{})}
	chain := []connect.Interceptor{}
	for _, l := range limits {
		chain = append(chain, l)
	}
	options := []connect.HandlerOption{connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error {
		return connect.NewError(connect.CodeInternal, errors.New("a bug"))
	}), connect.WithInterceptors(chain...), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}
	mux := http.NewServeMux()
	mux.Handle(askProcedure, connect.NewUnaryHandler(askProcedure, s.ask, options...))
	mux.Handle(otherProcedure, connect.NewUnaryHandler(otherProcedure, s.ask, options...))
	mux.Handle(watchProcedure, connect.NewServerStreamHandler(watchProcedure, s.watch, options...))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	s.url, s.http = server.URL, server.Client()
	return s
}

// errRefused is returned by several calls at the same time.
var errRefused = connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))

func (s *server) ask(ctx context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
	answer := req.Msg.GetValue()
	switch answer {
	case "refused":
		return nil, errRefused
	case "error":
		return nil, errors.New("no")
	case "panic":
		panic("a bug")
	case "slow":
		s.running <- struct{}{}
		<-s.release
	case "info":
		answer = "no info"
		if info, ok := connectlimit.Info(ctx); ok {
			answer = fmt.Sprintf("%s at %s, %d left", info.Request.Client, info.Request.Endpoint, info.Result.Remaining)
		}
	case "mail":
		if err := s.limit.Allow(ctx, ratelimit.Request{Rules: []string{"mails"}}); err != nil {
			return nil, err
		}
	case "job":
		units, err := s.limit.Reserve(ctx, ratelimit.Request{Rules: []string{"jobs"}, Cost: 2}, time.Minute)
		if err != nil {
			return nil, err
		}
		if err := units.Settle(1); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(wrapperspb.String(answer)), nil
}

func (s *server) watch(_ context.Context, req *connect.Request[text], stream *connect.ServerStream[text]) error {
	if err := stream.Send(wrapperspb.String("one")); err != nil {
		return err
	}
	<-s.release
	if req.Msg.GetValue() == "refused" {
		return errRefused
	}
	return stream.Send(wrapperspb.String("two"))
}

// protocols are the options of clients of each protocol.
var protocols = map[string][]connect.ClientOption{
	"connect":      nil,
	"connect json": {connect.WithProtoJSON()},
	"connect get":  {connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)},
	"grpc":         {connect.WithGRPC()},
	"grpc-web":     {connect.WithGRPCWeb()},
}

// each runs a test once in each protocol.
func each(t *testing.T, test func(t *testing.T, options ...connect.ClientOption)) {
	t.Helper()
	for name, options := range protocols {
		t.Run(name, func(t *testing.T) { test(t, options...) })
	}
}

// call calls a procedure with a message and header lines in pairs, and returns the answer.
func (s *server) call(
	t testing.TB, options []connect.ClientOption, procedure, message string, header ...string,
) (*connect.Response[text], error) {
	t.Helper()
	req := connect.NewRequest(wrapperspb.String(message))
	for i := 0; i < len(header); i += 2 {
		req.Header().Add(header[i], header[i+1])
	}
	return connect.NewClient[text, text](s.http, s.url+procedure, options...).CallUnary(t.Context(), req)
}

// code returns the code of a call of Ask, or 0 if it succeeds.
func (s *server) code(t testing.TB, options []connect.ClientOption, message string, header ...string) connect.Code {
	t.Helper()
	_, err := s.call(t, options, askProcedure, message, header...)
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

// left returns how many calls the address of the tests has left.
func left(t testing.TB, l *ratelimit.RateLimiter) int {
	t.Helper()
	res, err := l.Peek(t.Context(), ratelimit.Request{Client: "ip:127.0.0.1", IP: "127.0.0.1"})
	require.NoError(t, err)
	return res.Remaining
}
