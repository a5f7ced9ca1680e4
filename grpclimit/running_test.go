package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

// atOnce is a rule that lets each client make n calls at once, each for at most a minute.
func atOnce(n int) ratelimit.Rule {
	return ratelimit.Rule{
		Name: "at once", Endpoint: "*", Additional: true, Algorithm: ratelimit.AlgorithmInFlight,
		Rate: ratelimit.Rate{Requests: n, Per: time.Minute},
	}
}

// TestRunning counts streams as running until they end, over a real connection. Messages hold nothing.
func TestRunning(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{atOnce(1)}, nil)
	w := behind(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesDeny}))
	var panics bool
	w.service.duplex = func(stream testpb.TestService_FullDuplexCallServer) error {
		err := echo(stream)
		if panics {
			return errors.New("broken")
		}
		return err
	}
	for _, panics = range []bool{false, true} {
		stream, err := w.FullDuplexCall(t.Context())
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
			_, err = stream.Recv()
			require.NoError(t, err, "a message holds no second slot")
		}
		denied, trailer := w.call(t)
		require.Equal(t, codes.ResourceExhausted, status.Code(denied))
		ms, err := strconv.Atoi(trailer[pushbackKey][0])
		require.NoError(t, err)
		require.True(t, ms >= 1000 && ms <= 2000, "nobody knows when, so it retries soon: %d", ms)
		require.NoError(t, stream.CloseSend())
		_, err = stream.Recv()
		require.Error(t, err)
		err, _ = w.call(t)
		require.NoError(t, err, "the stream has ended")
	}

	ctx, leave := context.WithCancel(t.Context())
	stream, err := w.FullDuplexCall(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
	_, err = stream.Recv()
	require.NoError(t, err)
	leave()
	w.server.GracefulStop() // waits for the end of the handler
	r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "ip:127.0.0.1", Endpoint: duplexCall}, time.Minute)
	require.NoError(t, err)
	require.True(t, r.Result().Allowed, "the client has left")
}

// TestRunningUnary counts a unary call as running until its handler returns or panics, and extends a long one.
func TestRunningUnary(t *testing.T) {
	for _, row := range []struct {
		every time.Duration
		want  codes.Code
	}{{0, codes.ResourceExhausted}, {time.Second, codes.ResourceExhausted}, {-1, codes.OK}} {
		synctest.Test(t, func(t *testing.T) {
			l, err := ratelimit.New([]ratelimit.Rule{atOnce(1)}, nil)
			require.NoError(t, err)
			unary := made(t, l, grpclimit.Config{HoldExtend: row.every}).Unary()
			info := &grpc.UnaryServerInfo{FullMethod: unaryCall}
			call := func(handler grpc.UnaryHandler) error {
				_, err := unary(t.Context(), nil, info, handler)
				return err
			}
			require.NoError(t, call(func(context.Context, any) (any, error) {
				require.Equal(t, codes.ResourceExhausted, status.Code(call(nil)))
				<-time.After(10*time.Minute + 1)
				require.Equal(t, row.want, status.Code(call(func(context.Context, any) (any, error) { return 0, nil })))
				return 0, nil
			}))
			assert.Panics(t, func() { _ = call(func(context.Context, any) (any, error) { panic(io.EOF) }) })
			require.NoError(t, call(func(context.Context, any) (any, error) { return 0, nil }), "nothing is held")
		})
	}
}

// TestHeldIDs refuses an ID beside a rule that counts what is running.
func TestHeldIDs(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{atOnce(1)}, nil, ratelimit.WithRequestIDs(time.Hour))
	w := behind(t, made(t, l, grpclimit.Config{Prepare: func(_ context.Context, r *ratelimit.Request) { r.ID = "1" }}))
	err, _ := w.call(t)
	require.Equal(t, codes.Internal, status.Code(err))
	_, err = grpclimit.New(l, grpclimit.Config{BusyRetry: -1})
	require.EqualError(t, err, "ratelimit: busyRetry is -1ns: must be above 0, or 0 for a second")
}
