package grpclimit

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Stream returns the interceptor for the streams to a gRPC server. A stream is charged when it is
// opened. [Config.Messages] selects how its messages are charged.
func (i *Interceptors) Stream() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, method := stream.Context(), fullMethod(info.FullMethod)
		if i.skips(method) {
			return handler(srv, stream)
		}
		c := i.request(ctx, method, srv != nil) // srv is nil if the call goes to the handler for unknown services
		if c.skipped {
			return handler(srv, stream)
		}
		end, wait, err := i.decide(ctx, &c, true)
		if err != nil {
			if wait > 0 {
				stream.SetTrailer(i.pushback(ctx, wait))
			}
			return err
		}
		defer end()
		if i.config.Messages == MessagesFree || !info.IsClientStream {
			return handler(srv, stream)
		}
		c.request.ID = "" // with the ID of the opening, each message would count as a retry of the opening and cost nothing
		return handler(srv, &limitedStream{ServerStream: stream, limits: i, caller: c})
	}
}

// A limitedStream is a stream that charges for each message that it receives. As with any stream, only one
// goroutine at a time may call RecvMsg.
type limitedStream struct {
	grpc.ServerStream
	limits *Interceptors
	caller caller // the client of the stream, with the request to ask the limiter about for each message
	ended  error  // the error that RecvMsg returns from now on; nil while the stream continues
}

// RecvMsg receives a message and charges for it. With MessagesDeny, it returns an error if the rules deny
// the message. With MessagesWait, it waits until they grant the message. While RecvMsg waits, it reads no
// further message, so flow control stops a fast sender.
func (s *limitedStream) RecvMsg(m any) error {
	if s.ended != nil {
		return s.ended
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	ctx := s.Context()
	if s.limits.config.Messages == MessagesWait {
		s.ended = s.limits.wait(ctx, &s.caller, false)
		return s.ended
	}
	_, wait, err := s.limits.decide(ctx, &s.caller, false)
	if wait > 0 {
		// Ask the client not to retry. A retry would send all messages of the stream again, although the
		// handler may already have acted on some of them.
		s.SetTrailer(metadata.MD{pushbackKey: {noRetry}})
	}
	s.ended = err
	return err
}
