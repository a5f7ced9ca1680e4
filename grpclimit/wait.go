package grpclimit

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
)

// The method wait waits until the rules grant the request of c. If that fails, for example because the
// deadline of ctx would pass first, wait returns the error for the caller. The parameter own is true if
// this program makes the call as a client, and false if it receives the call as a server.
func (i *Interceptors) wait(ctx context.Context, c *caller, own bool) error {
	asked, doubt := c.context(ctx)
	res, err := i.limiter.Wait(asked, c.request)
	i.warnOfDoubt(doubt)
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
