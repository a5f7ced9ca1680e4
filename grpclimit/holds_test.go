package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

// A watchedClock says how long its users wait. Each wait goes on when the clock has moved by that time.
type watchedClock struct {
	*ratelimit.FakeClock
	waits chan time.Duration
}

func watched(clock *ratelimit.FakeClock) *watchedClock {
	return &watchedClock{clock, make(chan time.Duration, 10)}
}

func (c *watchedClock) After(d time.Duration) <-chan time.Time {
	rings := c.FakeClock.After(d)
	c.waits <- d
	return rings
}

// holding returns options of a client with the interceptors of h.
func holding(h *grpclimit.Holds) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(h.Unary()), grpc.WithChainStreamInterceptor(h.Stream())}
}

// TestHolds has a server that denies a call, and a client whose next call waits as long as the server has asked for.
func TestHolds(t *testing.T) {
	l, fake := perMinute(t, 1)
	clock := watched(fake)
	w := serve(t, loopback(t), options(made(t, l, grpclimit.Config{})), holding(&grpclimit.Holds{Clock: clock, MaxWait: time.Hour})...)
	err, _ := w.call(t)
	require.NoError(t, err)
	err, _ = w.call(t)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	retry, rules := details(t, err)
	assert.Equal(t, time.Minute, retry.GetRetryDelay().AsDuration())
	assert.Equal(t, []string{"per-client"}, rules, "the error of the server is passed on")

	ended := make(chan error)
	go func() {
		err, _ := w.call(t)
		ended <- err
	}()
	assert.Equal(t, time.Minute, <-clock.waits)
	assert.EqualValues(t, 1, w.service.calls.Load())
	clock.Advance(time.Minute)
	select { // the calls after a hold are spread over at most a second
	case spread := <-clock.waits:
		assert.LessOrEqual(t, spread, time.Second)
		clock.Advance(spread)
		require.NoError(t, <-ended)
	case err := <-ended:
		require.NoError(t, err)
	}
	assert.EqualValues(t, 2, w.service.calls.Load())
}

// TestHoldsFail has calls that would wait too long: they fail at once, and are not sent.
func TestHoldsFail(t *testing.T) {
	l, fake := perMinute(t, 1)
	denied := made(t, l, grpclimit.Config{})
	w := serve(t, loopback(t), options(denied), holding(&grpclimit.Holds{Clock: fake, MaxWait: time.Second})...)
	_, _ = w.call(t)
	_, _ = w.call(t)
	err, _ := w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.ErrorContains(t, err, "not sent: the wait is longer than MaxWait")
	retry, _ := details(t, err)
	assert.Equal(t, time.Minute, retry.GetRetryDelay().AsDuration())
	assert.EqualValues(t, 2, l.Stats()[0].Allowed+l.Stats()[0].Denied)

	today := ratelimit.NewFakeClock(time.Now()) // grpc compares deadlines with the time of today
	w.dial(t, w.conn.Target(), holding(&grpclimit.Holds{Clock: today, MaxWait: time.Hour})...)
	_, _ = w.call(t)
	ctx, cancel := context.WithDeadline(t.Context(), today.Now().Add(30*time.Second))
	defer cancel()
	_, err = w.UnaryCall(ctx, &testpb.SimpleRequest{})
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	assert.ErrorContains(t, err, "not sent: the wait outlasts the deadline")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.UnaryCall(canceled, &testpb.SimpleRequest{})
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.EqualValues(t, 3, l.Stats()[0].Allowed+l.Stats()[0].Denied)

	w.dial(t, w.conn.Target(), holding(&grpclimit.Holds{MaxWait: -1})...)
	err, _ = w.call(t)
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.ErrorContains(t, err, "maxWait")
}

// TestHoldsScope has a server that denies one method. The calls of others are sent.
func TestHoldsScope(t *testing.T) {
	for _, scoped := range []bool{false, true} {
		l, fake := perMinute(t, 100, ratelimit.Rule{Endpoint: unaryCall, Rate: ratelimit.PerMinute(1)})
		h := &grpclimit.Holds{Clock: fake, MaxWait: 1}
		if scoped {
			h.Scope = func(_ context.Context, method string) string { return method }
		}
		w := serve(t, loopback(t), options(made(t, l, grpclimit.Config{})), holding(h)...)
		_, _ = w.call(t)
		_, _ = w.call(t)
		err, _ := w.call(t)
		assert.ErrorContains(t, err, "not sent")
		_, err = w.EmptyCall(t.Context(), &testpb.Empty{})
		if scoped {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "not sent")
		}
	}
}

// TestHoldsAnswers has servers with other errors. Only two codes with a RetryInfo begin a hold, for MaxHold at most.
func TestHoldsAnswers(t *testing.T) {
	asks := func(code codes.Code, delay time.Duration) error {
		s, err := status.New(code, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
		require.NoError(t, err)
		return s.Err()
	}
	for _, row := range []struct {
		err  error
		held time.Duration
	}{
		{asks(codes.ResourceExhausted, time.Minute), time.Minute},
		{asks(codes.Unavailable, time.Minute), time.Minute},
		{asks(codes.Unavailable, time.Hour), 10 * time.Minute},
		{asks(codes.Internal, time.Minute), 0},
		{asks(codes.ResourceExhausted, -time.Minute), 0},
		{status.Error(codes.ResourceExhausted, "message larger than max"), 0},
		{status.Error(codes.Unavailable, "no connection"), 0},
		{errors.New("another"), 0},
	} {
		fake := ratelimit.NewFakeClock(start)
		w := serve(t, loopback(t), []grpc.ServerOption{grpc.UnaryInterceptor(func(
			context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler,
		) (any, error) {
			return nil, row.err
		})}, holding(&grpclimit.Holds{Clock: fake, MaxWait: 1})...)
		_, _ = w.call(t)
		err, _ := w.call(t)
		if row.held == 0 {
			assert.NotContains(t, err.Error(), "not sent", row.err)
			continue
		}
		assert.ErrorContains(t, err, "not sent", row.err)
		retry, _ := details(t, err)
		assert.Equal(t, row.held, retry.GetRetryDelay().AsDuration(), row.err)
	}
}

// TestHoldsStreams has a stream that is denied when it is opened, and one that is denied by a message.
func TestHoldsStreams(t *testing.T) {
	for _, messages := range []grpclimit.Messages{grpclimit.MessagesFree, grpclimit.MessagesDeny} {
		l, fake := perMinute(t, 1)
		h := &grpclimit.Holds{Clock: fake, MaxWait: 1}
		w := serve(t, loopback(t), options(made(t, l, grpclimit.Config{Messages: messages})), holding(h)...)
		w.service.duplex = func(stream testpb.TestService_FullDuplexCallServer) error {
			for {
				if _, err := stream.Recv(); err != nil {
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
			}
		}
		if messages == grpclimit.MessagesFree {
			_, _ = w.EmptyCall(t.Context(), &testpb.Empty{})
		}
		stream, err := w.FullDuplexCall(t.Context())
		require.NoError(t, err)
		if messages == grpclimit.MessagesDeny {
			require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
		}
		_, err = stream.Recv()
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		_, err = w.FullDuplexCall(t.Context())
		assert.ErrorContains(t, err, "not sent")
		err, _ = w.call(t)
		assert.ErrorContains(t, err, "not sent")
	}
}

// TestHoldsLimiter has a client that limits itself.
func TestHoldsLimiter(t *testing.T) {
	l, fake := perMinute(t, 1)
	own, err := ratelimit.New(nil, &ratelimit.Rule{Name: "own", Rate: ratelimit.PerMinute(1)}, ratelimit.WithClock(fake))
	require.NoError(t, err)
	h := &grpclimit.Holds{Limiter: own, Clock: fake, MaxWait: time.Second}
	w := serve(t, loopback(t), options(made(t, l, grpclimit.Config{})), holding(h)...)
	err, _ = w.call(t)
	require.NoError(t, err)
	err, _ = w.call(t)
	assert.ErrorContains(t, err, "not sent: the wait is longer than MaxWait")
	res, err := own.Peek(t.Context(), ratelimit.Request{Client: w.conn.Target(), Endpoint: w.conn.Target()})
	require.NoError(t, err)
	assert.Zero(t, res.Remaining, "the target is the client")
	assert.EqualValues(t, 1, l.Stats()[0].Allowed+l.Stats()[0].Denied)
}
