package recipes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

const (
	unary  = "/shop.v1.Items/Get"
	stream = "/shop.v1.Items/Watch"
)

// TestConnect speaks all three protocols of Connect.
func TestConnect(t *testing.T) {
	for name, options := range map[string][]connect.ClientOption{
		"connect":  nil,
		"grpc":     {connect.WithGRPC()},
		"grpc-web": {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			l := byRoute(t, unary)
			limits := connect.WithInterceptors(&forConnect{
				limiter: l,
				address: middleware(t, l, httplimit.Config{}),
				proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			})
			mux := http.NewServeMux()
			mux.Handle(unary, connect.NewUnaryHandler(unary, func(
				context.Context, *connect.Request[emptypb.Empty],
			) (*connect.Response[emptypb.Empty], error) {
				return connect.NewResponse(&emptypb.Empty{}), nil
			}, limits))
			mux.Handle(stream, connect.NewServerStreamHandler(stream, func(
				_ context.Context, _ *connect.Request[emptypb.Empty], s *connect.ServerStream[emptypb.Empty],
			) error {
				return s.Send(&emptypb.Empty{})
			}, limits))
			server := httptest.NewUnstartedServer(mux)
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)

			call := func(address string) error {
				c := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+unary, options...)
				req := connect.NewRequest(&emptypb.Empty{})
				req.Header().Set("X-Forwarded-For", "6.6.6.6, "+address)
				_, err := c.CallUnary(t.Context(), req)
				return err
			}
			require.NoError(t, call("203.0.113.9"))
			require.NoError(t, call("203.0.113.9"))
			err := call("203.0.113.9")
			assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
			assert.Equal(t, 30*time.Second, delay(t, err))
			assert.NoError(t, call("203.0.113.10"))

			open := func() error {
				c := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+stream, options...)
				s, err := c.CallServerStream(t.Context(), connect.NewRequest(&emptypb.Empty{}))
				require.NoError(t, err)
				for s.Receive() {
				}
				_ = s.Close()
				return s.Err()
			}
			for range 4 {
				require.NoError(t, open())
			}
			assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(open()))
		})
	}
}

// delay returns how long to wait, by the details of err.
func delay(t *testing.T, err error) time.Duration {
	t.Helper()
	var failed *connect.Error
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Details(), 1)
	value, err := failed.Details()[0].Value()
	require.NoError(t, err)
	info, ok := value.(*errdetails.RetryInfo)
	require.True(t, ok)
	return info.GetRetryDelay().AsDuration()
}
