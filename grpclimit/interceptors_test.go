package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

// TestDenial is the third of two calls.
func TestDenial(t *testing.T) {
	l, clock := perMinute(t, 2)
	w := behind(t, made(t, l, grpclimit.Config{MaxPushback: time.Minute}))
	for range 2 {
		err, trailer := w.call(t)
		require.NoError(t, err)
		assert.Empty(t, trailer)
	}
	err, trailer := w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, "too many requests", status.Convert(err).Message())
	retry, rules := details(t, err)
	assert.Equal(t, 30*time.Second, retry.GetRetryDelay().AsDuration())
	assert.Equal(t, []string{"per-client"}, rules)
	assert.Equal(t, []string{"30000"}, trailer[pushbackKey])
	assert.EqualValues(t, 2, w.service.calls.Load())

	clock.Advance(30*time.Second - 1)
	err, trailer = w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, []string{"1"}, trailer[pushbackKey])
	clock.Advance(1)
	err, _ = w.call(t)
	assert.NoError(t, err)
}

// TestRulesOfDenial has rules that deny, one that does not, and some that are not shown.
func TestRulesOfDenial(t *testing.T) {
	odd := "a\xffb"
	long := strings.Repeat("n", 300)
	for _, row := range []struct {
		name  string
		rules []ratelimit.Rule
		cost  int
		want  []string
	}{
		{"only those that have denied", []ratelimit.Rule{
			{Name: "few", Rate: ratelimit.PerMinute(3)}, {Name: "many", Rate: ratelimit.PerMinute(9)}, {Name: "less", Rate: ratelimit.PerMinute(2)},
		}, 2, []string{"few", "less"}},
		{"not those that all share", []ratelimit.Rule{
			{Name: "all", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(1)}, {Name: "method", Key: ratelimit.KeyEndpoint,
				Rate: ratelimit.PerMinute(1)},
			{Name: "own", Rate: ratelimit.PerMinute(1)},
		}, 1, []string{"own"}},
		{"none but such", []ratelimit.Rule{{Name: "all", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(1)}}, 1, nil},
		{"not those in shadow", []ratelimit.Rule{
			{Name: "dark", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerMinute(1)}, {Name: "own", Rate: ratelimit.PerMinute(1)},
		}, 1, []string{"own"}},
		{"a name that is no text", []ratelimit.Rule{{Name: odd, Rate: ratelimit.PerMinute(1)}}, 1, []string{"a\uFFFDb"}},
		{"a long name", []ratelimit.Rule{{Name: long, Rate: ratelimit.PerMinute(1)}}, 1, []string{long[:256]}},
		{"at most eight", []ratelimit.Rule{
			{Name: "1", Rate: ratelimit.PerMinute(1)}, {Name: "2", Rate: ratelimit.PerMinute(1)}, {Name: "3", Rate: ratelimit.PerMinute(1)},
			{Name: "4", Rate: ratelimit.PerMinute(1)}, {Name: "5", Rate: ratelimit.PerMinute(1)}, {Name: "6", Rate: ratelimit.PerMinute(1)},
			{Name: "7", Rate: ratelimit.PerMinute(1)}, {Name: "8", Rate: ratelimit.PerMinute(1)}, {Name: "9", Rate: ratelimit.PerMinute(1)},
		}, 1, []string{"1", "2", "3", "4", "5", "6", "7", "8"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for i := range row.rules {
				row.rules[i].Endpoint = "*"
			}
			l, _ := limited(t, row.rules, nil)
			w := behind(t, made(t, l, grpclimit.Config{Prepare: func(_ context.Context, r *ratelimit.Request) { r.Cost = row.cost }}))
			err, _ := w.call(t)
			require.NoError(t, err)
			err, _ = w.call(t)
			assert.Equal(t, codes.ResourceExhausted, status.Code(err))
			retry, rules := details(t, err)
			assert.NotNil(t, retry)
			assert.Equal(t, row.want, rules)
		})
	}
}

// TestReload changes the rules: the next denial is that of the new ones.
func TestReload(t *testing.T) {
	l, _ := limited(t, nil, &ratelimit.Rule{Name: "one", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(1)})
	w := behind(t, made(t, l, grpclimit.Config{}))
	_, _ = w.call(t)
	err, _ := w.call(t)
	_, rules := details(t, err)
	assert.Empty(t, rules)
	require.NoError(t, l.Replace([]ratelimit.Rule{{Endpoint: unaryCall, Name: "one", Rate: ratelimit.PerMinute(1)}}, nil))
	_, _ = w.call(t)
	err, _ = w.call(t)
	_, rules = details(t, err)
	assert.Equal(t, []string{"one"}, rules)
	require.NoError(t, l.Replace([]ratelimit.Rule{{Endpoint: unaryCall, Name: "one", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(1)}},
		nil))
	_, _ = w.call(t)
	err, _ = w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, rules = details(t, err)
	assert.Empty(t, rules)
}

// A headless stream fails the test if a header is set.
type headless struct {
	grpc.ServerTransportStream
	t testing.TB
}

func (s headless) SetHeader(metadata.MD) error {
	assert.Fail(s.t, "a header is set")
	return nil
}

func (s headless) SendHeader(metadata.MD) error {
	assert.Fail(s.t, "a header is sent")
	return nil
}

// TestNoHeader watches what is set on the stream of a granted and of a denied call.
func TestNoHeader(t *testing.T) {
	l, _ := perMinute(t, 1)
	w := behind(t, made(t, l, grpclimit.Config{}), func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		return handler(grpc.NewContextWithServerTransportStream(ctx, headless{grpc.ServerTransportStreamFromContext(ctx), t}), req)
	})
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		var header metadata.MD
		_, err := w.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header))
		assert.Equal(t, want, status.Code(err))
		delete(header, "content-type")
		assert.Empty(t, header)
	}
}

// TestUndecided has requests that no rule can decide on.
func TestUndecided(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(*ratelimit.Request)
		want    string
	}{
		{"a rule that does not exist", func(r *ratelimit.Request) { r.Rules = []string{"gone"} }, "answered with INTERNAL"},
		{"a cost below 0", func(r *ratelimit.Request) { r.Cost = -1 }, "answered with INTERNAL"},
		{"an ID without WithRequestIDs", func(r *ratelimit.Request) { r.ID = "7f3a-4711" }, "the limiter needs the option WithRequestIDs"},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, _ := perMinute(t, 1)
			var book logbook
			odd := true
			w := behind(t, made(t, l, grpclimit.Config{Log: book.logger(), Prepare: func(_ context.Context, r *ratelimit.Request) {
				if odd {
					row.prepare(r)
				}
			}}))
			for range 3 {
				err, trailer := w.call(t)
				assert.Equal(t, codes.Internal, status.Code(err))
				assert.Equal(t, "internal error", status.Convert(err).Message(), "the reason is not for the client")
				assert.Empty(t, trailer[pushbackKey])
			}
			assert.Zero(t, w.service.calls.Load())
			require.Len(t, book.lines(), 1)
			assert.Contains(t, book.lines()[0], row.want)
			assert.NotContains(t, book.lines()[0], "4711", "the log names no client")
			odd = false
			err, _ := w.call(t)
			assert.NoError(t, err, "nothing was charged")
		})
	}
}

// TestResolveFails has a rule that decides by its own rate.
func TestResolveFails(t *testing.T) {
	l, _ := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1), Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
		return ratelimit.Rate{Requests: -1}, true
	}})
	var book logbook
	w := behind(t, made(t, l, grpclimit.Config{Log: book.logger()}))
	err, _ := w.call(t)
	require.NoError(t, err)
	err, _ = w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Len(t, book.lines(), 1)
	assert.Contains(t, book.lines()[0], "the Resolve of a rule has returned an invalid rate, and the rule has decided by its own rate")
	assert.NotContains(t, book.lines()[0], "failure policy")
}

// TestContextEnded ends the context before the decision.
func TestContextEnded(t *testing.T) {
	for _, row := range []struct {
		name string
		end  func(context.Context) (context.Context, context.CancelFunc)
		want codes.Code
	}{
		{"cancelled", context.WithCancel, codes.Canceled},
		{"late", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Unix(1, 0))
		}, codes.DeadlineExceeded},
	} {
		t.Run(row.name, func(t *testing.T) {
			l, _ := perMinute(t, 1)
			var book logbook
			ends := true
			w := behind(t, made(t, l, grpclimit.Config{Log: book.logger()}),
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					if ends {
						ended, cancel := row.end(ctx)
						cancel()
						return handler(ended, req)
					}
					return handler(ctx, req)
				})
			err, _ := w.call(t)
			assert.Equal(t, row.want, status.Code(err))
			assert.Zero(t, w.service.calls.Load())
			assert.Empty(t, book.lines())
			ends = false
			err, _ = w.call(t)
			assert.NoError(t, err, "nothing was charged")
		})
	}
}

// TestStoreDown has a store that cannot be reached.
func TestStoreDown(t *testing.T) {
	local := ratelimit.Rule{Name: "local", Endpoint: "*", Rate: ratelimit.PerMinute(1)}
	closed := ratelimit.Rule{Name: "closed", Endpoint: "*", Rate: ratelimit.PerMinute(9), OnStoreError: ratelimit.FailClosed}
	open := ratelimit.Rule{Name: "open", Endpoint: "*", Rate: ratelimit.PerMinute(1), OnStoreError: ratelimit.FailOpen}
	global := closed
	global.Key = ratelimit.KeyGlobal
	for _, row := range []struct {
		name    string
		rules   []ratelimit.Rule
		options []ratelimit.Option
		want    []codes.Code // of the calls
		delay   time.Duration
		trailer string
		denied  []string
	}{
		{"open", []ratelimit.Rule{open}, nil, []codes.Code{codes.OK, codes.OK, codes.OK}, 0, "", nil},
		{"closed", []ratelimit.Rule{closed}, nil, []codes.Code{codes.Unavailable, codes.Unavailable}, time.Second, "1000", []string{"closed"}},
		{"closed for all together", []ratelimit.Rule{global}, nil, []codes.Code{codes.Unavailable}, time.Second, "1000", nil},
		{"local", []ratelimit.Rule{local}, nil, []codes.Code{codes.OK, codes.ResourceExhausted}, time.Minute, "-1", []string{"local"}},
		{
			"closed by the limiter", []ratelimit.Rule{local}, []ratelimit.Option{ratelimit.WithFailurePolicy(ratelimit.FailClosed)},
			[]codes.Code{codes.Unavailable}, time.Second, "1000", []string{"local"},
		},
		{"open beside closed", []ratelimit.Rule{open, closed}, nil, []codes.Code{codes.Unavailable}, time.Second, "1000", []string{"closed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			down := []ratelimit.Option{ratelimit.WithStore(brokenStore{errors.New("no route to 10.9.8.7")}), ratelimit.WithName("test")}
			l, _ := limited(t, row.rules, nil, append(down, row.options...)...)
			var book logbook
			w := behind(t, made(t, l, grpclimit.Config{Log: book.logger()}))
			for _, want := range row.want {
				err, trailer := w.call(t)
				assert.Equal(t, want, status.Code(err))
				if want == codes.OK {
					continue
				}
				assert.NotContains(t, err.Error(), "10.9.8.7")
				retry, rules := details(t, err)
				assert.Equal(t, row.delay, retry.GetRetryDelay().AsDuration())
				assert.Equal(t, row.denied, rules)
				assert.Equal(t, []string{row.trailer}, trailer[pushbackKey])
			}
			require.Len(t, book.lines(), 1)
			assert.Contains(t, book.lines()[0], "the store, or a custom limiter, has failed, and the failure policy has decided")
			assert.Contains(t, book.lines()[0], "10.9.8.7")
		})
	}
}

// TestQuotaBesideClosed is denied by a rule that has counted, too.
func TestQuotaBesideClosed(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{
		{Name: "local", Endpoint: "*", Rate: ratelimit.PerMinute(9)},
		{Name: "closed", Endpoint: "*", Rate: ratelimit.PerMinute(9), OnStoreError: ratelimit.FailClosed},
	}, nil, ratelimit.WithStore(brokenStore{errors.New("down")}), ratelimit.WithName("test"))
	cost := 1
	w := behind(t, made(t, l, grpclimit.Config{Log: (&logbook{}).logger(),
		Prepare: func(_ context.Context, r *ratelimit.Request) { r.Cost = cost }}))
	err, _ := w.call(t)
	assert.Equal(t, codes.Unavailable, status.Code(err))
	cost = 10
	err, trailer := w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	retry, rules := details(t, err)
	assert.Nil(t, retry)
	assert.Equal(t, []string{"local", "closed"}, rules)
	assert.Equal(t, []string{"-1"}, trailer[pushbackKey])
}

// TestClosedButUp is denied by a rule with FailClosed whose store answers.
func TestClosedButUp(t *testing.T) {
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	l, _ := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(1), OnStoreError: ratelimit.FailClosed}, ratelimit.WithStore(store),
		ratelimit.WithName("test"))
	w := behind(t, made(t, l, grpclimit.Config{}))
	call, _ := w.call(t)
	require.NoError(t, call)
	call, _ = w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(call))
}

// TestSkip skips the health service, and nothing that looks like it.
func TestSkip(t *testing.T) {
	l, _ := perMinute(t, 1)
	w := behind(t, made(t, l, grpclimit.Config{Skip: grpclimit.SkipHealth}))
	check := healthpb.NewHealthClient(w.conn)
	for range 3 {
		_, err := check.Check(t.Context(), &healthpb.HealthCheckRequest{})
		assert.NoError(t, err)
		watch, err := check.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = watch.Recv()
		assert.NoError(t, err)
	}
	err, _ := w.call(t)
	assert.NoError(t, err)
	err, _ = w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	for _, method := range []string{
		"", "/", "/grpc.health.v1.Health/", "/grpc.health.v1.Health/Checks", "/grpc.health.v1.Health/check", "/grpc.health.v1.Healthy/Check",
		"//grpc.health.v1.Health/Check", "grpc.health.v1.Health/Check", "/x/grpc.health.v1.Health/Check", unaryCall,
	} {
		assert.False(t, grpclimit.SkipHealth(method), method)
	}
	assert.True(t, grpclimit.SkipHealth("/grpc.health.v1.Health/List"))
}

// A limiter is what go-grpc-middleware calls.
type limiter interface {
	Limit(ctx context.Context) error
}

// TestLimit limits by an interceptor like that of go-grpc-middleware.
func TestLimit(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{{Endpoint: unaryCall, Name: "unary", Rate: ratelimit.PerMinute(1)}}, nil)
	var limits limiter = made(t, l, grpclimit.Config{MaxPushback: time.Hour, Skip: grpclimit.SkipHealth})
	w := serve(t, loopback(t), []grpc.ServerOption{grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		if err := limits.Limit(ctx); err != nil {
			return nil, status.Errorf(codes.ResourceExhausted, "%s is rejected: %s", info.FullMethod, err)
		}
		return handler(ctx, req)
	})})
	err, _ := w.call(t)
	require.NoError(t, err)
	err, trailer := w.call(t)
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Contains(t, err.Error(), "too many requests")
	assert.Equal(t, []string{"60000"}, trailer[pushbackKey])
	_, err = w.EmptyCall(t.Context(), &testpb.Empty{})
	assert.NoError(t, err, "another method")
	_, err = healthpb.NewHealthClient(w.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	assert.NoError(t, err)

	l, _ = limited(t, []ratelimit.Rule{{Endpoint: "unmatched", Rate: ratelimit.PerMinute(1)}}, nil)
	limits = made(t, l, grpclimit.Config{})
	assert.NoError(t, limits.Limit(t.Context()), "a context without a call")
	retry, _ := details(t, limits.Limit(t.Context()))
	assert.Equal(t, time.Minute, retry.GetRetryDelay().AsDuration())
}

// TestLog writes one line a minute of each kind, however many calls there are.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var book logbook
		l, _ := limited(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1), OnStoreError: ratelimit.FailOpen},
			ratelimit.WithStore(brokenStore{errors.New("down")}), ratelimit.WithName("test"))
		var rules []string
		unary := made(t, l, grpclimit.Config{Log: book.logger(),
			Prepare: func(_ context.Context, r *ratelimit.Request) { r.Rules = rules }}).Unary()
		calls := func() {
			for range 1000 {
				_, _ = unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, nothing)
			}
		}
		calls()
		require.Len(t, book.lines(), 1)
		assert.Contains(t, book.lines()[0], "more=0")
		rules = []string{"gone"}
		calls()
		require.Len(t, book.lines(), 2, "another kind")
		<-time.After(time.Minute - 1)
		calls()
		require.Len(t, book.lines(), 2)
		<-time.After(1)
		calls()
		require.Len(t, book.lines(), 3)
		assert.Contains(t, book.lines()[2], "more=1999")
		assert.Contains(t, book.lines()[2], "INTERNAL")
	})
}

// nothing is a handler.
func nothing(context.Context, any) (any, error) { return nil, nil }

// TestPanics has a callback that panics: nothing is charged.
func TestPanics(t *testing.T) {
	l, _ := perMinute(t, 1)
	panics := true
	unary := made(t, l, grpclimit.Config{Prepare: func(context.Context, *ratelimit.Request) {
		if panics {
			panic("no")
		}
	}}).Unary()
	call := func() error {
		_, err := unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, nothing)
		return err
	}
	assert.PanicsWithValue(t, "no", func() { _ = call() })
	panics = false
	assert.NoError(t, call())
	assert.Equal(t, codes.ResourceExhausted, status.Code(call()))
}

// TestTwoLayers charges by address, and behind it by user.
func TestTwoLayers(t *testing.T) {
	byAddress, _ := perMinute(t, 3)
	byUser, _ := perMinute(t, 1)
	user := "alice"
	outer := made(t, byAddress, grpclimit.Config{})
	inner := made(t, byUser, grpclimit.Config{Client: func(context.Context, string) (string, string, bool) { return user, "", true }})
	w := behind(t, inner, outer.Unary())
	var got []codes.Code
	for _, user = range []string{"alice", "alice", "bob", "carol"} {
		err, trailer := w.call(t)
		got = append(got, status.Code(err))
		assert.LessOrEqual(t, len(trailer[pushbackKey]), 1, "two values would forbid a retry")
	}
	assert.Equal(t, []codes.Code{codes.OK, codes.ResourceExhausted, codes.OK, codes.ResourceExhausted}, got)
}

// TestPushbackOfMonths has a rule that counts in months, so that a client must wait for weeks. No client should hold its call for so
// long: the trailer says that it should not retry, and the details say when it could.
func TestPushbackOfMonths(t *testing.T) {
	l, clock := limited(t, []ratelimit.Rule{{Name: "month", Endpoint: "*", Algorithm: ratelimit.AlgorithmFixedWindow,
		Rate: ratelimit.Rate{Requests: 1, Window: ratelimit.Calendar("month", "Europe/Berlin")}}}, nil)
	clock.Set(time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC))
	w := behind(t, made(t, l, grpclimit.Config{MaxPushback: 24 * time.Hour}))
	err, _ := w.call(t)
	require.NoError(t, err)
	left := 23*24*time.Hour + 10*time.Hour // until midnight in Berlin, where summer time has begun by then
	for _, row := range []struct {
		advance  time.Duration
		pushback string
	}{{0, "-1"}, {left - time.Hour, "3600000"}} {
		clock.Advance(row.advance)
		left -= row.advance
		err, trailer := w.call(t)
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.Equal(t, []string{row.pushback}, trailer[pushbackKey])
		retry, rules := details(t, err)
		assert.Equal(t, left, retry.GetRetryDelay().AsDuration())
		assert.Equal(t, []string{"month"}, rules)
	}
	clock.Advance(left)
	err, _ = w.call(t)
	require.NoError(t, err, "April")
}
