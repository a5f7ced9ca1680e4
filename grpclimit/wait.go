package grpclimit

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
)

// The method wait waits until the rules grant the request req. It returns an error if they do not grant the
// request in time. The argument own is true if this program makes the call, and false if this program
// receives the call.
func (i *Interceptors) wait(ctx context.Context, req ratelimit.Request, own bool) error {
	res, err := i.limiter.Wait(ctx, req)
	if errors.Is(err, ratelimit.ErrStore) || err != nil && res.Allowed {
		i.logs.decided(err)
	}
	switch {
	case res.Allowed:
		return nil
	case errors.Is(err, ratelimit.ErrExceedsLimit), errors.Is(err, ratelimit.ErrTooManyWaiters):
		return i.denial(res, []ratelimit.Result{res}, own)
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "too many requests: the wait outlasts the deadline")
	case own:
		return i.failure(ctx, err, logUnsent)
	}
	return i.failure(ctx, err, logRefused)
}
