package grpclimit

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
)

// wait waits until req is granted. It returns the error for a call that is not granted in time.
// own says that the call is one of this program.
func (i *Interceptors) wait(ctx context.Context, req ratelimit.Request, own bool) error {
	res, err := i.limiter.Wait(ctx, req)
	if errors.Is(err, ratelimit.ErrStore) || err != nil && res.Allowed {
		i.logs.often(logStore, err)
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
