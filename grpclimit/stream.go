package grpclimit

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ratelimit-go/ratelimit"
)

// Stream returns the interceptor for the streams of a server. A stream is charged when it is
// opened, and its messages as [Config.Messages] says.
func (i *Interceptors) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, method := stream.Context(), fullMethod(info.FullMethod)
		if i.skips(method) {
			return handler(srv, stream)
		}
		req := i.request(ctx, method, srv != nil) // a handler for unknown services has no srv
		if wait, err := i.decide(ctx, req); err != nil {
			if wait > 0 {
				stream.SetTrailer(i.pushback(ctx, wait))
			}
			return err
		}
		if i.config.Messages == MessagesFree || !info.IsClientStream {
			return handler(srv, stream)
		}
		req.ID = "" // it names the opening, and a message would be taken for the same again
		return handler(srv, &limitedStream{ServerStream: stream, limits: i, req: req})
	}
}

// A limitedStream is a stream whose received messages are charged. Only one goroutine at a time
// may receive, as in any stream.
type limitedStream struct {
	grpc.ServerStream
	limits *Interceptors
	req    ratelimit.Request
	ended  error // of all further calls of RecvMsg
}

// RecvMsg receives a message, and returns it once it is granted. Meanwhile no further message is
// taken from the connection, so that a fast sender is stopped by flow control.
func (s *limitedStream) RecvMsg(m any) error {
	if s.ended != nil {
		return s.ended
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	ctx := s.Context()
	if s.limits.config.Messages == MessagesWait {
		s.ended = s.limits.wait(ctx, s.req, false)
		return s.ended
	}
	wait, err := s.limits.decide(ctx, s.req)
	if wait > 0 {
		// A retry would send all messages again, and the handler may have acted on them.
		s.SetTrailer(metadata.MD{pushbackKey: {noRetry}})
	}
	s.ended = err
	return err
}
