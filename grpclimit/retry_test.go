package grpclimit_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

// retryPolicy makes a client try a denied call four times, after waits of about 10 ms unless the
// server says otherwise.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

// mute is a stream whose trailer is not sent.
type mute struct{ grpc.ServerTransportStream }

func (mute) SetTrailer(metadata.MD) error { return nil }

// TestRetryPolicy has a client with a retry policy whose first call takes the one unit there is.
// The second is denied at first.
func TestRetryPolicy(t *testing.T) {
	pass := func(ctx context.Context) context.Context { return ctx }
	for _, row := range []struct {
		name    string
		per     time.Duration                         // of the one unit, which the clock gives back with the retry
		outer   func(context.Context) context.Context // what stands outside of the interceptor
		config  grpclimit.Config
		timeout time.Duration
		code    codes.Code
		trailer []string
		tries   int64 // of the second call
	}{
		{
			name: "300 ms: a second try is granted", per: 300 * time.Millisecond, outer: pass, timeout: time.Minute,
			code: codes.OK, tries: 2,
		},
		{
			name: "a header was set: there is no retry", per: 300 * time.Millisecond, timeout: time.Minute,
			outer: func(ctx context.Context) context.Context {
				_ = grpc.SetHeader(ctx, metadata.Pairs("x-trace", "7"))
				return ctx
			},
			code: codes.ResourceExhausted, trailer: []string{"300"}, tries: 1,
		},
		{
			name: "without the trailer all tries are wasted", per: time.Hour, timeout: time.Minute,
			outer: func(ctx context.Context) context.Context {
				return grpc.NewContextWithServerTransportStream(ctx, mute{grpc.ServerTransportStreamFromContext(ctx)})
			},
			code: codes.ResourceExhausted, tries: 4,
		},
		{
			name: "a wait beyond the deadline outlasts the call", per: 9 * time.Second, timeout: 2 * time.Second,
			outer: context.WithoutCancel, // the interceptor does not see the deadline
			code:  codes.DeadlineExceeded, trailer: []string{"9000"}, tries: 1,
		},
		{
			name: "a wait beyond the deadline is -1: denied at once", per: 2 * time.Minute, outer: pass, timeout: time.Minute,
			config: grpclimit.Config{MaxPushback: time.Hour},
			code:   codes.ResourceExhausted, trailer: []string{"-1"}, tries: 1,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, clock := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Per: row.per}})
			var tries atomic.Int64
			outer := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				if tries.Add(1) == 3 && row.code == codes.OK {
					clock.Advance(row.per) // as the client has waited
				}
				return handler(row.outer(ctx), req)
			}
			w := serve(t, loopback(t), options(made(t, l, row.config), outer), grpc.WithDefaultServiceConfig(retryPolicy))
			err, trailer := w.call(t)
			require.NoError(t, err)
			assert.Empty(t, trailer)

			ctx, cancel := context.WithTimeout(t.Context(), row.timeout)
			defer cancel()
			_, err = w.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
			assert.Equal(t, row.code, status.Code(err), "%v", err)
			assert.Equal(t, row.tries, tries.Load()-1)
			assert.Equal(t, row.trailer, trailer[pushbackKey])
			granted := int64(1)
			if row.code == codes.OK {
				granted = 2
			}
			assert.Equal(t, granted, w.service.calls.Load(), "a denied call does not reach the handler")
		})
	}
}

// TestPushback compares the trailer with the wait that the client is told of.
func TestPushback(t *testing.T) {
	second := func(per time.Duration, cost int, c grpclimit.Config, timeout time.Duration) (
		err error, trailer metadata.MD, //nolint:staticcheck // in the order of call
	) {
		l, _ := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Per: per}})
		c.Prepare = func(_ context.Context, r *ratelimit.Request) { r.Cost = cost }
		w := behind(t, made(t, l, c))
		_, _ = w.call(t)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err = w.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Trailer(&trailer))
		return err, trailer
	}
	for _, row := range []struct {
		name    string
		per     time.Duration
		cost    int
		max     time.Duration
		timeout time.Duration
		want    string
	}{
		{"whole milliseconds", 250 * time.Millisecond, 1, 0, time.Hour, "250"},
		{"rounded up", 250*time.Millisecond + 1, 1, 0, time.Hour, "251"},
		{"less than a millisecond", 1, 1, 0, time.Hour, "1"},
		{"the longest without MaxPushback", 10 * time.Second, 1, 0, time.Hour, "10000"},
		{"longer than that", 10*time.Second + 1, 1, 0, time.Hour, "-1"},
		{"the longest of MaxPushback", time.Minute, 1, time.Minute, time.Hour, "60000"},
		{"longer than MaxPushback", time.Minute + 1, 1, time.Minute, time.Hour, "-1"},
		{"later than the deadline", 5 * time.Minute, 1, time.Hour, time.Minute, "-1"},
		{"before the deadline", 5 * time.Minute, 1, time.Hour, time.Hour, "300000"},
		{"never", time.Second, 2, 0, time.Hour, "-1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err, trailer := second(row.per, row.cost, grpclimit.Config{MaxPushback: row.max}, row.timeout)
			assert.Equal(t, codes.ResourceExhausted, status.Code(err))
			assert.Equal(t, []string{row.want}, trailer[pushbackKey])
			retry, rules := details(t, err)
			assert.Equal(t, []string{"default"}, rules)
			if row.cost > 1 {
				assert.Nil(t, retry, "no wait is long enough")
				return
			}
			assert.Equal(t, row.per, retry.GetRetryDelay().AsDuration(), "the details have the exact wait")
		})
	}
}
