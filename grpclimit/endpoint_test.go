package grpclimit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

// TestEndpoint has rules by method.
func TestEndpoint(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{
		{Endpoint: unaryCall, Rate: ratelimit.PerMinute(2)},
		{Endpoint: "/grpc.testing.TestService/*", Rate: ratelimit.PerMinute(1)},
	}, nil)
	w := behind(t, made(t, l, grpclimit.Config{}))
	var got []codes.Code
	for range 3 {
		err, _ := w.call(t)
		got = append(got, status.Code(err))
	}
	assert.Equal(t, []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted}, got)
	_, err := w.EmptyCall(t.Context(), &testpb.Empty{})
	assert.NoError(t, err)
	_, err = w.EmptyCall(t.Context(), &testpb.Empty{})
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
}

// TestPathWithoutSlash sends a path that some versions of grpc-go route like the method. It meets
// the rule of the method, or does not reach the handler.
func TestPathWithoutSlash(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{{Endpoint: unaryCall, Rate: ratelimit.PerMinute(1)},
		{Endpoint: duplexCall, Rate: ratelimit.PerMinute(1)}}, nil)
	w := behind(t, made(t, l, grpclimit.Config{}))
	w.service.duplex = func(testpb.TestService_FullDuplexCallServer) error { return nil }
	for range 3 {
		_ = w.conn.Invoke(t.Context(), unaryCall[1:], &testpb.SimpleRequest{}, &testpb.SimpleResponse{})
		stream, err := w.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, duplexCall[1:])
		require.NoError(t, err)
		assert.Error(t, stream.RecvMsg(&testpb.StreamingOutputCallResponse{}))
	}
	assert.LessOrEqual(t, w.service.calls.Load(), int64(2))

	// Whatever the transport lets through: each gets the name with the slash.
	l, _ = limited(t, []ratelimit.Rule{{Endpoint: unaryCall, Rate: ratelimit.PerMinute(2)}}, nil)
	unary := made(t, l, grpclimit.Config{}).Unary()
	var got []codes.Code
	for _, method := range []string{unaryCall[1:], unaryCall, unaryCall[1:]} {
		_, err := unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, nothing)
		got = append(got, status.Code(err))
	}
	assert.Equal(t, []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted}, got)
}

// TestUnknownService has a handler for unknown services, to which callers can name any method.
func TestUnknownService(t *testing.T) {
	for _, row := range []struct {
		name     string
		endpoint func(w *world) func(context.Context, string) string
	}{
		{"by itself", func(*world) func(context.Context, string) string { return nil }},
		{"by the registered methods", func(w *world) func(context.Context, string) string {
			return grpclimit.Registered(func() map[string]grpc.ServiceInfo { return w.server.GetServiceInfo() })
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, _ := limited(t, []ratelimit.Rule{{Name: "each", Endpoint: "*", Key: ratelimit.KeyUserEndpoint, Rate: ratelimit.PerMinute(2)}}, nil)
			w := new(world)
			c, last := asked(grpclimit.Config{Endpoint: row.endpoint(w)})
			served := 0
			*w = *serve(t, loopback(t), append(options(made(t, l, c)), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
				served++
				return nil
			})))
			var got []codes.Code
			for i := range 4 {
				method := fmt.Sprintf("/made.up/Method%d", i)
				if i == 3 {
					method = "/grpc.testing.TestService/NoSuch"
				}
				err := w.conn.Invoke(t.Context(), method, &testpb.Empty{}, &testpb.Empty{})
				got = append(got, status.Code(err))
				assert.Equal(t, "unmatched", last.Endpoint)
			}
			assert.Equal(t, codes.ResourceExhausted, got[2], "the names are no fresh budgets")
			assert.Equal(t, codes.ResourceExhausted, got[3])
			assert.Equal(t, 2, served)
			err, _ := w.call(t)
			assert.NoError(t, err)
			assert.Equal(t, unaryCall, last.Endpoint)
			stream, err := w.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
			require.NoError(t, err)
			_, err = stream.Recv()
			assert.NoError(t, err)
			assert.Equal(t, outputCall, last.Endpoint)
		})
	}
	assert.PanicsWithValue(t, "grpclimit: Registered needs the services of a server", func() { grpclimit.Registered(nil) })
}

// TestOwnEndpoint names calls by a function.
func TestOwnEndpoint(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{{Endpoint: "reads", Rate: ratelimit.PerMinute(1)}}, nil)
	w := behind(t, made(t, l, grpclimit.Config{Endpoint: func(ctx context.Context, method string) string {
		if own, _ := grpc.Method(ctx); own == method && method == unaryCall {
			return "reads"
		}
		return "writes"
	}}))
	err, _ := w.call(t)
	require.NoError(t, err)
	err, _ = w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = w.EmptyCall(t.Context(), &testpb.Empty{})
	assert.NoError(t, err)
}

// TestCheck names the rules that limit nothing.
func TestCheck(t *testing.T) {
	w := serve(t, loopback(t), nil)
	services := w.server.GetServiceInfo()
	upper := func(_ context.Context, method string) string { return "m:" + method }
	for _, row := range []struct {
		endpoint string
		config   grpclimit.Config
		ok       bool
	}{
		{unaryCall, grpclimit.Config{}, true},
		{outputCall, grpclimit.Config{}, true},
		{"/grpc.testing.TestService/*", grpclimit.Config{}, true},
		{"/grpc.testing.TestService/Unary*", grpclimit.Config{}, true},
		{"*", grpclimit.Config{}, true},
		{"unmatched", grpclimit.Config{}, true},
		{"", grpclimit.Config{}, true},
		{"/grpc.testing.TestService/UnaryCal", grpclimit.Config{}, false},
		{"/grpc.testing.TestService", grpclimit.Config{}, false},
		{"/grpc.testing.testservice/UnaryCall", grpclimit.Config{}, false},
		{"/grpc.testing.TestServices/*", grpclimit.Config{}, false},
		{"/login", grpclimit.Config{}, false},
		{"/grpc.health.v1.Health/Check", grpclimit.Config{}, true},
		{"/grpc.health.v1.Health/Check", grpclimit.Config{Skip: grpclimit.SkipHealth}, false},
		{"m:" + unaryCall, grpclimit.Config{Endpoint: upper}, true},
		{unaryCall, grpclimit.Config{Endpoint: upper}, false},
	} {
		l, _ := limited(t, []ratelimit.Rule{{Name: "the rule", Endpoint: row.endpoint, Rate: ratelimit.PerMinute(1)},
			{Endpoint: "unmatched", Rate: ratelimit.PerMinute(1)}}, nil)
		if row.endpoint == "unmatched" {
			l, _ = limited(t, []ratelimit.Rule{{Name: "the rule", Endpoint: row.endpoint, Rate: ratelimit.PerMinute(1)}}, nil)
		}
		err := made(t, l, row.config).Check(services)
		if row.ok {
			assert.NoError(t, err, row.endpoint)
			continue
		}
		assert.EqualError(t, err, fmt.Sprintf("grpclimit: rule %q limits nothing: no method gives its endpoint %q", "the rule", row.endpoint))
	}
	l, _ := limited(t, []ratelimit.Rule{{Endpoint: "/a/b", Rate: ratelimit.PerMinute(1)}, {Endpoint: "/c/*", Rate: ratelimit.PerMinute(1)}},
		nil)
	err := made(t, l, grpclimit.Config{}).Check(services)
	assert.ErrorContains(t, err, `"/a/b"`)
	assert.ErrorContains(t, err, `"/c/*"`, "all at once")
}
