package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

// echo answers each message, until there are no more.
func echo(stream testpb.TestService_FullDuplexCallServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// talk opens a stream, and sends n messages, each after the answer to the one before. It returns
// how many were answered, and what the stream ended with.
func talk(t testing.TB, w *world, n int) (answered int, err error, trailer []string) { //nolint:staticcheck // as call
	t.Helper()
	stream, err := w.FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range n {
		_ = stream.Send(&testpb.StreamingOutputCallRequest{}) // Recv says why it fails
		if _, err = stream.Recv(); err != nil {
			return answered, err, stream.Trailer()[pushbackKey]
		}
		answered++
	}
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	return answered, err, stream.Trailer()[pushbackKey]
}

// TestStream charges a stream on opening.
func TestStream(t *testing.T) {
	l, _ := perMinute(t, 1)
	w := behind(t, made(t, l, grpclimit.Config{MaxPushback: time.Hour}))
	w.service.duplex = echo
	answered, err, _ := talk(t, w, 5)
	assert.Equal(t, 5, answered, "messages are free")
	assert.ErrorIs(t, err, io.EOF)
	answered, err, trailer := talk(t, w, 5)
	assert.Zero(t, answered)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, []string{"60000"}, trailer)
	retry, rules := details(t, err)
	assert.Equal(t, time.Minute, retry.GetRetryDelay().AsDuration())
	assert.Equal(t, []string{"per-client"}, rules)
	assert.EqualValues(t, 1, w.service.calls.Load())
}

// TestMessagesDeny ends a stream at the message beyond the limit.
func TestMessagesDeny(t *testing.T) {
	l, clock := perMinute(t, 4)
	w := behind(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesDeny, MaxPushback: time.Hour}))
	w.service.duplex = echo
	answered, err, trailer := talk(t, w, 3)
	assert.Equal(t, 3, answered)
	assert.ErrorIs(t, err, io.EOF, "the end is no message")
	assert.Empty(t, trailer)

	clock.Advance(time.Minute)
	answered, err, trailer = talk(t, w, 9)
	assert.Equal(t, 3, answered, "the opening is the fourth")
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, []string{"-1"}, trailer, "the messages before were acted on")
	retry, rules := details(t, err)
	assert.Equal(t, 15*time.Second, retry.GetRetryDelay().AsDuration())
	assert.Equal(t, []string{"per-client"}, rules)

	_, err, trailer = talk(t, w, 1)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err), "no unit is left for an opening")
	assert.Equal(t, []string{"15000"}, trailer)
}

// TestDeniedStreamIsOver has a handler that goes on after a denial: it gets no further message.
func TestDeniedStreamIsOver(t *testing.T) {
	l, clock := perMinute(t, 2)
	w := behind(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesDeny}))
	var got []codes.Code
	sent := make(chan struct{})
	w.service.duplex = func(stream testpb.TestService_FullDuplexCallServer) error {
		<-sent // the end of the handler would end the client's Send
		for range 4 {
			_, err := stream.Recv()
			got = append(got, status.Code(err))
			if err != nil {
				clock.Advance(time.Hour)
			}
		}
		return nil
	}
	stream, err := w.FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range 4 {
		require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
	}
	close(sent)
	_, err = stream.Recv()
	assert.ErrorIs(t, err, io.EOF)
	assert.Equal(t, []codes.Code{codes.OK, codes.ResourceExhausted, codes.ResourceExhausted, codes.ResourceExhausted}, got)
}

// TestServerStream is one message from the client, which is part of the opening.
func TestServerStream(t *testing.T) {
	for _, messages := range []grpclimit.Messages{grpclimit.MessagesDeny, grpclimit.MessagesWait} {
		l, _ := perMinute(t, 1)
		w := behind(t, made(t, l, grpclimit.Config{Messages: messages}))
		stream, err := w.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		_, err = stream.Recv()
		require.ErrorIs(t, err, io.EOF)
	}
}

// TestMessageCost charges each message like the opening, and the opening's ID covers none.
func TestMessageCost(t *testing.T) {
	clock := ratelimit.NewFakeClock(start)
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(9)}, ratelimit.WithClock(clock),
		ratelimit.WithRequestIDs(time.Hour))
	require.NoError(t, err)
	w := behind(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesDeny, Prepare: func(_ context.Context, r *ratelimit.Request) {
		r.Cost, r.ID = 3, "7"
	}}))
	w.service.duplex = echo
	answered, err, _ := talk(t, w, 9)
	assert.Equal(t, 2, answered, "the opening and two messages are nine units")
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
}

// TestSkippedStream is not charged, nor are its messages.
func TestSkippedStream(t *testing.T) {
	l, _ := perMinute(t, 1)
	w := behind(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesDeny,
		Skip: func(method string) bool { return method == duplexCall }}))
	w.service.duplex = echo
	for range 2 {
		answered, err, _ := talk(t, w, 5)
		assert.Equal(t, 5, answered)
		assert.ErrorIs(t, err, io.EOF)
	}
	err, _ := w.call(t)
	assert.NoError(t, err)
}

// TestMessagesWait holds each message until it is granted, over a real connection.
func TestMessagesWait(t *testing.T) {
	l, clock := perMinute(t, 2)
	w := behind(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesWait}))
	received := make(chan time.Duration)
	w.service.duplex = func(stream testpb.TestService_FullDuplexCallServer) error {
		for {
			if _, err := stream.Recv(); err != nil {
				return nil //nolint:nilerr // the error is what ends the stream
			}
			received <- clock.Now().Sub(start)
		}
	}
	stream, err := w.FullDuplexCall(t.Context())
	require.NoError(t, err)
	for range 4 {
		require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
	}
	require.NoError(t, stream.CloseSend())
	var got []time.Duration
	for len(got) < 4 {
		select {
		case at := <-received:
			got = append(got, at)
		default:
			clock.Advance(time.Second)
		}
	}
	for i, at := range got {
		assert.GreaterOrEqual(t, at, time.Duration(i)*30*time.Second, "message %d", i)
	}
}

// inBubble starts a server and a client on a connection in memory, for synctest.
func inBubble(t *testing.T, i *grpclimit.Interceptors, client ...grpc.DialOption) *world {
	on := bufconn.Listen(1 << 16)
	w := serve(t, on, append(options(i), grpc.InitialWindowSize(1<<16), grpc.InitialConnWindowSize(1<<16)))
	dialer := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return on.DialContext(ctx) })
	w.dial(t, "passthrough:///memory", append(client, dialer)...)
	return w
}

// TestFlowControl has a sender of many large messages. It cannot send much more than the server
// has let through, and the server lets one through each second.
func TestFlowControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1)})
		require.NoError(t, err)
		w := inBubble(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesWait}))
		var received, sent atomic.Int64
		w.service.duplex = func(stream testpb.TestService_FullDuplexCallServer) error {
			for {
				if _, err := stream.Recv(); err != nil {
					return nil //nolint:nilerr // the error is what ends the stream
				}
				assert.Equal(t, time.Duration(received.Add(1))*time.Second, time.Since(begun), "one a second, after the opening")
			}
		}
		stream, err := w.FullDuplexCall(t.Context())
		require.NoError(t, err)
		const messages = 100
		payload := &testpb.StreamingOutputCallRequest{Payload: &testpb.Payload{Body: make([]byte, 1<<16)}}
		go func() {
			for range messages {
				if stream.Send(payload) != nil {
					return
				}
				sent.Add(1)
			}
			_ = stream.CloseSend()
		}()
		for second := range int64(messages) {
			synctest.Wait() // the sender is stopped
			assert.Equal(t, second, received.Load())
			assert.LessOrEqual(t, sent.Load(), second+8, "a few are under way")
			<-time.After(time.Second)
		}
		_, err = stream.Recv()
		assert.ErrorIs(t, err, io.EOF)
		assert.EqualValues(t, messages, received.Load())
	})
}

// TestMessagesWaitInVain has messages that are never granted, or not in time, or whose client is
// gone. The stream ends at once, and nothing else was charged.
func TestMessagesWaitInVain(t *testing.T) {
	for _, row := range []struct {
		name    string
		rule    ratelimit.Rule
		options []ratelimit.Option
		timeout time.Duration
		cancel  bool
		want    codes.Code
		trailer []string
	}{
		{name: "too late", rule: ratelimit.Rule{Rate: ratelimit.PerHour(1)}, timeout: time.Minute, want: codes.DeadlineExceeded},
		{name: "the client has gone", rule: ratelimit.Rule{Rate: ratelimit.PerHour(1)}, cancel: true, want: codes.Canceled},
		{name: "too many wait", rule: ratelimit.Rule{Rate: ratelimit.PerHour(1)}, options: []ratelimit.Option{ratelimit.WithMaxWaiters(1)},
			want: codes.ResourceExhausted},
		{
			name: "the store is down", rule: ratelimit.Rule{Rate: ratelimit.PerHour(1),
				OnStoreError: ratelimit.FailLocal(1)}, timeout: time.Minute, want: codes.DeadlineExceeded,
			options: []ratelimit.Option{ratelimit.WithStore(brokenStore{errors.New("no route to 10.9.8.7")}), ratelimit.WithName("test")},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := ratelimit.New(nil, &row.rule, row.options...)
				require.NoError(t, err)
				w := inBubble(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesWait, Log: (&logbook{}).logger()}))
				got := make(chan error, 2)
				w.service.duplex = func(stream testpb.TestService_FullDuplexCallServer) error {
					_, err := stream.Recv()
					got <- err
					_, again := stream.Recv()
					assert.Equal(t, err, again)
					return err
				}
				ctx, cancel := context.WithCancel(t.Context())
				if row.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.timeout)
				}
				defer cancel()
				if row.want == codes.ResourceExhausted { // somebody else waits
					other, stop := context.WithCancel(t.Context())
					defer stop()
					go func() { _, _ = l.Wait(other, ratelimit.Request{Client: "other", Cost: 1}) }()
					go func() { _, _ = l.Wait(other, ratelimit.Request{Client: "other", Cost: 1}) }()
					synctest.Wait()
				}
				begun := time.Now()
				stream, err := w.FullDuplexCall(ctx)
				require.NoError(t, err)
				require.NoError(t, stream.Send(&testpb.StreamingOutputCallRequest{}))
				synctest.Wait()
				if row.cancel {
					assert.Empty(t, got, "it waits")
					cancel()
				}
				ended := <-got
				assert.Equal(t, row.want, status.Code(ended), "%v", ended)
				assert.NotContains(t, fmt.Sprint(ended), "10.9.8.7")
				assert.Zero(t, time.Since(begun), "at once")
				_, err = stream.Recv()
				assert.Equal(t, row.want, status.Code(err))
			})
		})
	}
}
