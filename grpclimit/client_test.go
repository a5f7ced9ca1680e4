package grpclimit_test

import (
	"context"
	"errors"
	"io"
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

// client returns the options of a client with the interceptors of i.
func client(i *grpclimit.Interceptors) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(i.UnaryClient()), grpc.WithStreamInterceptor(i.StreamClient())}
}

// free returns interceptors that limit nothing in a test.
func free(t testing.TB) *grpclimit.Interceptors {
	l, _ := perMinute(t, 1_000_000)
	return made(t, l, grpclimit.Config{})
}

// TestClientWaits sends calls and opens streams at the rate of the client's rule.
func TestClientWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1)})
		require.NoError(t, err)
		c, last := asked(grpclimit.Config{})
		w := inBubble(t, free(t), client(made(t, l, c))...)
		w.service.duplex = echo
		begun := time.Now()
		for second := range 3 {
			err, _ := w.call(t)
			require.NoError(t, err)
			assert.Equal(t, time.Duration(second)*time.Second, time.Since(begun))
		}
		assert.Equal(t, ratelimit.Request{Client: "passthrough:///memory", Endpoint: unaryCall}, *last)
		answered, err, _ := talk(t, w, 5)
		assert.ErrorIs(t, err, io.EOF)
		assert.Equal(t, 5, answered)
		assert.Equal(t, 3*time.Second, time.Since(begun), "messages are free")
		assert.Equal(t, duplexCall, last.Endpoint)
	})
}

// TestClientFails has calls that are not sent.
func TestClientFails(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(*ratelimit.Request)
		ended   bool
		timeout time.Duration
		options []ratelimit.Option
		want    codes.Code
		denied  []string
		lines   int
	}{
		{name: "the wait outlasts the deadline", timeout: time.Minute, want: codes.DeadlineExceeded},
		{name: "no wait is long enough", prepare: func(r *ratelimit.Request) { r.Cost = 2 }, want: codes.ResourceExhausted,
			denied: []string{"mine"}},
		{name: "the context has ended", ended: true, want: codes.Canceled},
		{name: "the rule is gone", prepare: func(r *ratelimit.Request) { r.Rules = []string{"gone"} }, want: codes.Internal, lines: 1},
		{
			name: "the store is down", timeout: time.Minute, want: codes.DeadlineExceeded, lines: 1,
			options: []ratelimit.Option{ratelimit.WithStore(brokenStore{errors.New("down")}), ratelimit.WithName("test")},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "mine", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(1)}, row.options...)
				require.NoError(t, err)
				var book logbook
				limits := made(t, l, grpclimit.Config{Log: book.logger(), Prepare: func(_ context.Context, r *ratelimit.Request) {
					if row.prepare != nil {
						row.prepare(r)
					}
				}})
				if row.prepare == nil {
					_, _ = l.Check(t.Context(), ratelimit.Request{})
				}
				w := inBubble(t, free(t), client(limits)...)
				ctx, cancel := context.WithCancel(t.Context())
				if row.timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.timeout)
				}
				defer cancel()
				if row.ended {
					cancel()
				}
				begun := time.Now()
				_, err = w.UnaryCall(ctx, &testpb.SimpleRequest{})
				assert.Equal(t, row.want, status.Code(err), "%v", err)
				_, denied := details(t, err)
				assert.Equal(t, row.denied, denied, "a client may know of its own rules")
				_, err = w.FullDuplexCall(ctx)
				assert.Equal(t, row.want, status.Code(err), "%v", err)
				assert.Zero(t, time.Since(begun), "at once")
				assert.Zero(t, w.service.calls.Load())
				assert.Len(t, book.lines(), row.lines)
			})
		})
	}
}

// TestClientConfig limits by names of one's own, and skips.
func TestClientConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "*", Rate: ratelimit.PerHour(1),
			Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(2)}}}, nil)
		require.NoError(t, err)
		name := "alice"
		c, last := asked(grpclimit.Config{
			Client: func(_ context.Context, method string) (string, string, bool) {
				return name, "paid", method == unaryCall
			},
			Skip: func(method string) bool { return method == emptyCall },
		})
		w := inBubble(t, free(t), client(made(t, l, c))...)
		begun := time.Now()
		for range 2 {
			err, _ := w.call(t)
			require.NoError(t, err)
		}
		assert.Equal(t, ratelimit.Request{Client: "alice", Tier: "paid", Endpoint: unaryCall}, *last)
		for range 9 {
			_, err := w.EmptyCall(t.Context(), &testpb.Empty{})
			require.NoError(t, err)
		}
		name = ""
		call, _ := w.call(t)
		require.NoError(t, call)
		assert.Equal(t, "passthrough:///memory", last.Client)
		assert.Zero(t, time.Since(begun))
		call, _ = w.call(t)
		require.NoError(t, call)
		assert.Equal(t, time.Hour, time.Since(begun), "the target has no tier")
	})
}

// TestClientOpen sends calls while the store is down, and says so.
func TestClientOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(1), OnStoreError: ratelimit.FailOpen},
			ratelimit.WithStore(brokenStore{errors.New("down")}), ratelimit.WithName("test"))
		require.NoError(t, err)
		var book logbook
		w := inBubble(t, free(t), client(made(t, l, grpclimit.Config{Log: book.logger()}))...)
		for range 3 {
			err, _ := w.call(t)
			require.NoError(t, err)
		}
		require.Len(t, book.lines(), 1)
		assert.Contains(t, book.lines()[0], "the store, or a custom limiter, has failed, and the failure policy has decided")
	})
}
