package grpclimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// Holds let a gRPC client obey servers that ask it to wait. The zero Holds are ready for use. The fields must not be
// changed after the first call, and Holds must not be copied.
//
// A hold is a time in which the client sends no calls to the target of a connection. It begins when a call fails with
// RESOURCE_EXHAUSTED or UNAVAILABLE, and the details of the error have a RetryInfo. Servers with [Interceptors] send such
// errors. The hold lasts for the RetryDelay. With Scope, a hold is only for calls with the same scope. A later error never
// shortens a hold. After the end of a hold, the calls that have waited are sent in the order in which they came. The times
// are random: within a tenth of the length of the hold, but at most within one second.
//
// A call fails at once with DEADLINE_EXCEEDED if its deadline would pass before it may be sent, and with
// RESOURCE_EXHAUSTED and a RetryInfo if it would wait for longer than MaxWait. Such a call was not sent. Holds never send
// a call twice: to retry failed calls, use the retry policy of the connection, or an interceptor outside of the Holds.
type Holds struct {
	// Limiter must also grant each call, after the holds have ended. If Limiter is nil, calls wait only if a server has asked
	// for that. In the requests to the Limiter, the Client and the Endpoint are both the target of the connection, followed by
	// a space and the scope if Scope is set.
	Limiter *ratelimit.RateLimiter

	// Scope returns the scope of a call, such as the method. A hold is a time in which the client sends no calls, because a
	// server has asked for that. The hold is for the calls with the same target and the same scope as the call that the server
	// denied. If Scope is nil, a hold is for all calls to the target.
	Scope func(ctx context.Context, method string) string

	// MaxWait is the longest time that a call waits for holds and for the Limiter together. 0 means 30 s.
	MaxWait time.Duration

	// MaxHold is the longest time during which no calls are sent. If a server asks for a longer time, the client waits for
	// MaxHold only. 0 means 10 minutes.
	MaxHold time.Duration

	// Clock tells the time, and must be the clock of the Limiter. If Clock is nil, the clock of the machine tells the time.
	Clock ratelimit.Clock

	once      sync.Once
	transport httplimit.Transport // keeps the holds, and lets calls wait for their end
}

// begin sets the fields of the transport. It runs once, at the first gRPC call.
func (h *Holds) begin() {
	t := &h.transport
	t.Limiter, t.MaxWait, t.MaxHold, t.Clock = h.Limiter, h.MaxWait, h.MaxHold, h.Clock
}

// Unary returns the interceptor for the unary calls of a client. It should stand before (outside of) interceptors that
// measure how long the server takes to answer.
func (h *Holds) Unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		return h.do(ctx, h.server(ctx, method, cc), func() error { return invoker(ctx, method, req, reply, cc, opts...) })
	}
}

// Stream returns the interceptor for the streams of a client. The opening of a stream waits; its messages do not. An
// error that ends the stream begins a hold when the client receives it.
func (h *Holds) Stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
		opts ...grpc.CallOption) (stream grpc.ClientStream, err error) {
		server := h.server(ctx, method, cc)
		err = h.do(ctx, server, func() error {
			stream, err = streamer(ctx, desc, cc, method, opts...)
			return err
		})
		if err != nil {
			return nil, err
		}
		return &heldStream{stream, h, server}, nil
	}
}

// server returns a text that names the server of a call: the target of the connection and, if Scope is set, a space and the
// scope of the call. If a server denies one call and asks to wait, all later calls with the same text wait.
func (h *Holds) server(ctx context.Context, method string, cc *grpc.ClientConn) string {
	if h.Scope == nil {
		return cc.Target()
	}
	return cc.Target() + " " + h.Scope(ctx, fullMethod(method))
}

// do waits until a call to the server may be sent, and then calls send. It returns the error of send, or the error for a
// call that was not sent.
func (h *Holds) do(ctx context.Context, server string, send func() error) error {
	h.once.Do(h.begin)
	called := false
	err := h.transport.Do(ctx, server, func() (time.Duration, error) {
		called = true
		err := send()
		return waitOf(err), err
	})
	if called {
		return err
	}
	return unsent(ctx, err)
}

// waitOf returns how long the error err of a server asks the client to wait, or 0.
func waitOf(err error) time.Duration {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0
	}
	for _, detail := range s.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok && retry.GetRetryDelay().IsValid() {
			return retry.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// unsent returns the error for a call that was not sent because of err.
func unsent(ctx context.Context, err error) error {
	held := (*httplimit.HoldError)(nil)
	switch {
	case errors.As(err, &held):
		s := status.New(codes.ResourceExhausted, "not sent: the wait is longer than MaxWait")
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(held.Wait)}); err == nil {
			s = detailed
		}
		return s.Err()
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "not sent: the wait outlasts the deadline")
	case errors.Is(err, ratelimit.ErrExceedsLimit), errors.Is(err, ratelimit.ErrTooManyWaiters):
		return status.Error(codes.ResourceExhausted, "not sent: "+err.Error())
	}
	return status.Error(codes.Internal, "not sent: "+err.Error())
}

// A heldStream is a stream of a client. If the server ends the stream with an error that asks the client to wait, a hold
// begins.
type heldStream struct {
	grpc.ClientStream
	holds  *Holds
	server string
}

// RecvMsg receives a message. If the server has ended the stream and asks the client to wait, a hold begins.
func (s *heldStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		if wait := waitOf(err); wait > 0 {
			s.holds.transport.Hold(s.server, wait)
		}
	}
	return err
}
