package connectlimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/connectlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

func TestNew(t *testing.T) {
	_, err := connectlimit.New(nil, connectlimit.Config{IPv6Bits: 7, Jitter: 2})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	for _, text := range []string{"limiter", "ipv6Bits", "jitter"} {
		assert.ErrorContains(t, err, text)
	}
}

// details returns the details of an error, by type.
func details(t *testing.T, err error) (retry *errdetails.RetryInfo, quota *errdetails.QuotaFailure, info *errdetails.ErrorInfo) {
	t.Helper()
	failed := (*connect.Error)(nil)
	require.ErrorAs(t, err, &failed)
	for _, detail := range failed.Details() {
		value, err := detail.Value()
		require.NoError(t, err)
		switch value := value.(type) {
		case *errdetails.RetryInfo:
			retry = value
		case *errdetails.QuotaFailure:
			quota = value
		case *errdetails.ErrorInfo:
			info = value
		}
	}
	return retry, quota, info
}

// TestDenial reads what the clients of granted and of denied calls get, in each protocol.
func TestDenial(t *testing.T) {
	each(t, func(t *testing.T, options ...connect.ClientOption) {
		l, clock := limited(t, 2, ratelimit.Rule{
			Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmFixedWindow,
			Rate: ratelimit.PerHour(2),
		})
		s := serve(t, made(t, l, connectlimit.Config{}))
		res, err := s.call(t, options, askProcedure, "hello")
		require.NoError(t, err)
		assert.Equal(t, "hello", res.Msg.GetValue())
		assert.Equal(t, `"per-client";r=1;t=30`, res.Header().Get("Ratelimit"))
		assert.Equal(t, `"per-client";q=2;w=60`, res.Header().Get("Ratelimit-Policy"))
		_, err = s.call(t, options, askProcedure, "hello")
		require.NoError(t, err)
		_, err = s.call(t, options, askProcedure, "hello")
		assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
		assert.ErrorContains(t, err, "too many requests")
		failed := (*connect.Error)(nil)
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "3600", failed.Meta().Get("Retry-After"))
		assert.Equal(t, `"per-client";r=0;t=30`, failed.Meta().Get("Ratelimit"))
		retry, quota, info := details(t, err)
		assert.Equal(t, time.Hour, retry.GetRetryDelay().AsDuration())
		require.Len(t, quota.GetViolations(), 1, "the rule on everybody is hidden")
		assert.Equal(t, "per-client", quota.GetViolations()[0].GetDescription())
		assert.Nil(t, info)
		clock.Advance(time.Hour)
		assert.Zero(t, s.code(t, options, "hello"))
	})
}

// TestIdentity has clients behind proxies, users, and API plans.
func TestIdentity(t *testing.T) {
	each(t, func(t *testing.T, options ...connect.ClientOption) {
		l, _ := limited(t, 1)
		s := serve(t, made(t, l, connectlimit.Config{}))
		assert.Zero(t, s.code(t, options, "x", "X-Forwarded-For", "203.0.113.1"))
		assert.Equal(t, connect.CodeResourceExhausted, s.code(t, options, "x", "X-Forwarded-For", "203.0.113.2"))

		l, _ = limited(t, 1)
		s = serve(t, made(t, l, connectlimit.Config{
			Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			Client: func(c *connectlimit.Call) (client, tier string, ok bool) {
				return c.Header.Get("X-User"), "", c.Spec.Procedure == askProcedure && c.Context.Err() == nil
			},
		}))
		assert.Zero(t, s.code(t, options, "x", "X-Forwarded-For", "203.0.113.1"))
		assert.Zero(t, s.code(t, options, "x", "X-Forwarded-For", "203.0.113.2"))
		assert.Equal(t, connect.CodeResourceExhausted, s.code(t, options, "x", "X-Forwarded-For", "203.0.113.2"))
		assert.Zero(t, s.code(t, options, "x", "X-Forwarded-For", "203.0.113.2", "X-User", "alice"))
		assert.Equal(t, connect.CodeResourceExhausted, s.code(t, options, "x", "X-User", "alice"))
	})
}

// TestEndpoints limits one procedure, and skips another.
func TestEndpoints(t *testing.T) {
	l, _ := limited(t, 100, ratelimit.Rule{Endpoint: askProcedure, Rate: ratelimit.PerMinute(1)})
	s := serve(t, made(t, l, connectlimit.Config{Skip: func(c *connectlimit.Call) bool { return c.Spec.Procedure == otherProcedure }}))
	assert.Zero(t, s.code(t, nil, "x"))
	assert.Equal(t, connect.CodeResourceExhausted, s.code(t, nil, "x"))
	res, err := s.call(t, nil, otherProcedure, "x")
	require.NoError(t, err)
	assert.Empty(t, res.Header().Get("Ratelimit"))
}

// TestCount has calls that fail. Count gets the status that stands for their code, in each protocol.
func TestCount(t *testing.T) {
	each(t, func(t *testing.T, options ...connect.ClientOption) {
		l, _ := limited(t, 4)
		var got []int
		s := serve(t, made(t, l, connectlimit.Config{Count: func(_ *connectlimit.Call, status int) bool {
			got = append(got, status)
			return status >= 400
		}}))
		assert.Zero(t, s.code(t, options, "x"))
		assert.Equal(t, 4, left(t, l), "a success is given back")
		assert.Equal(t, connect.CodeUnauthenticated, s.code(t, options, "refused"))
		assert.Equal(t, connect.CodeUnknown, s.code(t, options, "error"))
		assert.Equal(t, connect.CodeInternal, s.code(t, options, "panic"))
		assert.Equal(t, 1, left(t, l))
		assert.Equal(t, []int{200, 401, 500, 500}, got)
		assert.Empty(t, errRefused.Meta(), "an error that several calls return is not changed")
	})
}

// TestStream reads the messages of a stream while it is sent. It is charged when it is opened.
func TestStream(t *testing.T) {
	each(t, func(t *testing.T, options ...connect.ClientOption) {
		l, _ := limited(t, 2)
		var got []int
		s := serve(t, made(t, l, connectlimit.Config{Count: func(_ *connectlimit.Call, status int) bool {
			got = append(got, status)
			return true
		}}))
		client := connect.NewClient[text, text](s.http, s.url+watchProcedure, options...)
		for _, message := range []string{"x", "refused"} {
			stream, err := client.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String(message)))
			require.NoError(t, err)
			require.True(t, stream.Receive())
			assert.Equal(t, "one", stream.Msg().GetValue())
			assert.NotEmpty(t, stream.ResponseHeader().Get("Ratelimit"))
			s.release <- struct{}{}
			if message == "x" {
				assert.True(t, stream.Receive())
			}
			assert.False(t, stream.Receive())
			require.NoError(t, stream.Close())
		}
		assert.Equal(t, []int{200, 401}, got)
		stream, err := client.CallServerStream(t.Context(), connect.NewRequest(wrapperspb.String("x")))
		require.NoError(t, err)
		assert.False(t, stream.Receive())
		assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(stream.Err()))
		failed := (*connect.Error)(nil)
		require.ErrorAs(t, stream.Err(), &failed)
		assert.Equal(t, "30", failed.Meta().Get("Retry-After"))
		require.NoError(t, stream.Close())
	})
}

// TestInFlight limits how many calls run.
func TestInFlight(t *testing.T) {
	l, _ := limited(t, 100, ratelimit.Rule{
		Name: "running", Endpoint: askProcedure, Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 1, Per: time.Hour},
	})
	s := serve(t, made(t, l, connectlimit.Config{}))
	for range 3 {
		var running sync.WaitGroup
		running.Go(func() { assert.Zero(t, s.code(t, nil, "slow")) })
		<-s.running
		_, err := s.call(t, nil, askProcedure, "x")
		assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
		retry, _, _ := details(t, err)
		assert.GreaterOrEqual(t, retry.GetRetryDelay().AsDuration(), time.Second)
		s.release <- struct{}{}
		running.Wait()
		assert.Equal(t, connect.CodeInternal, s.code(t, nil, "panic"), "a panic ends a call")
	}
}

// TestInfo reads the Info in handlers.
func TestInfo(t *testing.T) {
	for _, info := range []bool{false, true} {
		l, _ := limited(t, 5)
		res, err := serve(t, made(t, l, connectlimit.Config{Info: info})).call(t, nil, askProcedure, "info")
		require.NoError(t, err)
		if info {
			assert.Equal(t, "ip:127.0.0.1 at /test.v1.Test/Ask, 4 left", res.Msg.GetValue())
		} else {
			assert.Equal(t, "no info", res.Msg.GetValue())
		}
	}
}

// TestHandlers has handlers that ask once more.
func TestHandlers(t *testing.T) {
	l, _ := limited(t, 100, ratelimit.Rule{Name: "mails", Rate: ratelimit.PerHour(1)},
		ratelimit.Rule{Name: "jobs", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(3)})
	i := made(t, l, connectlimit.Config{})
	s := serve(t, i)
	res, err := s.call(t, nil, askProcedure, "mail")
	require.NoError(t, err)
	assert.Equal(t, []string{`"per-client";q=100;w=60`, `"mails";q=1;w=3600`}, res.Header().Values("Ratelimit-Policy"))
	_, err = s.call(t, nil, askProcedure, "mail")
	_, quota, _ := details(t, err)
	assert.Equal(t, "mails", quota.GetViolations()[0].GetDescription())
	assert.Zero(t, s.code(t, nil, "job"))
	assert.Zero(t, s.code(t, nil, "job"), "the first has used one of three units")
	assert.Equal(t, connect.CodeResourceExhausted, s.code(t, nil, "job"))

	assert.Equal(t, connect.CodeInternal, connect.CodeOf(i.Allow(t.Context(), ratelimit.Request{})))
	_, err = i.Reserve(t.Context(), ratelimit.Request{}, time.Minute)
	assert.Equal(t, connect.CodeInternal, connect.CodeOf(err))
}

// TestLayers has two Interceptors, of which each charges, and one twice, which charges once.
func TestLayers(t *testing.T) {
	outer, _ := limited(t, 5)
	inner, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-user", Rate: ratelimit.PerHour(2)})
	require.NoError(t, err)
	byUser := made(t, inner, connectlimit.Config{Client: func(*connectlimit.Call) (client, tier string, ok bool) { return "alice", "", true }})
	s := serve(t, made(t, outer, connectlimit.Config{}), byUser, byUser)
	res, err := s.call(t, nil, askProcedure, "x")
	require.NoError(t, err)
	assert.Equal(t, []string{`"per-client";q=5;w=60`, `"per-user";q=2;w=3600`}, res.Header().Values("Ratelimit-Policy"))
	assert.Zero(t, s.code(t, nil, "x"))
	_, err = s.call(t, nil, askProcedure, "x")
	failed := (*connect.Error)(nil)
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, []string{`"per-client";q=5;w=60`, `"per-user";q=2;w=3600`}, failed.Meta().Values("Ratelimit-Policy"))
	assert.Equal(t, 2, left(t, outer))
}

// TestAnswers has Denied and Blocked functions.
func TestAnswers(t *testing.T) {
	l, _ := limited(t, 1)
	own := connect.NewError(connect.CodeAborted, errors.New("later"))
	own.Meta().Set("X-Own", "1")
	s := serve(t, made(t, l, connectlimit.Config{Denied: func(*connectlimit.Call, *httplimit.Info) error { return own }}))
	s.code(t, nil, "x")
	_, err := s.call(t, nil, askProcedure, "x")
	failed := (*connect.Error)(nil)
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, connect.CodeAborted, failed.Code())
	assert.Equal(t, "1", failed.Meta().Get("X-Own"))
	assert.Equal(t, "60", failed.Meta().Get("Retry-After"))
	assert.Len(t, own.Meta(), 1, "the function may return the same error to several clients")

	penalty := ratelimit.Penalty{After: 2, Within: time.Minute, For: time.Hour}
	silent := func(*connectlimit.Call, *httplimit.Info) error { return nil }
	for _, config := range []connectlimit.Config{{}, {Denied: silent}, {Denied: silent, Blocked: silent}} {
		blocking, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(1), Penalty: penalty})
		require.NoError(t, err)
		s = serve(t, made(t, blocking, config))
		for range 3 {
			s.code(t, nil, "x")
		}
		_, err = s.call(t, nil, askProcedure, "x")
		assert.ErrorContains(t, err, "abnormal usage detected")
		_, _, info := details(t, err)
		assert.Equal(t, "ABNORMAL_USAGE_DETECTED", info.GetReason(), "also if the function says nothing")
	}
}

// TestOutage has a store that fails, calls that cannot be decided, and calls that have ended.
func TestOutage(t *testing.T) {
	for policy, code := range map[ratelimit.FailurePolicy]connect.Code{
		ratelimit.FailClosed: connect.CodeUnavailable, ratelimit.FailLocal(1): connect.CodeResourceExhausted, ratelimit.FailOpen: 0,
	} {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerHour(1), OnStoreError: policy},
			ratelimit.WithStore(brokenStore{}), ratelimit.WithName("test"))
		require.NoError(t, err)
		s := serve(t, made(t, l, connectlimit.Config{}))
		s.code(t, nil, "x")
		assert.Equal(t, code, s.code(t, nil, "x"), policy)
	}
	for _, forgive := range []bool{false, true} {
		l, _ := limited(t, 1)
		var log strings.Builder
		s := serve(t, made(t, l, connectlimit.Config{
			Prepare: func(_ *connectlimit.Call, q *ratelimit.Request) { q.Rules = []string{"gone"} },
			Error:   func(*connectlimit.Call, error) bool { return forgive },
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
		}))
		if code := s.code(t, nil, "x"); forgive {
			assert.Zero(t, code)
		} else {
			assert.Equal(t, connect.CodeInternal, code)
		}
		assert.Contains(t, log.String(), "gone")
	}
	l, _ := limited(t, 1)
	i := made(t, l, connectlimit.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := i.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
		t.Error("a call that has ended is not served")
		return nil, nil
	})(ctx, connect.NewRequest(wrapperspb.String("x")))
	assert.ErrorIs(t, err, context.Canceled)
}

type brokenStore struct{}

func (brokenStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, errors.New("down")
}

func (brokenStore) Reset(context.Context, []ratelimit.Ask) error { return errors.New("down") }

// TestClients has the Interceptor in a client, whose calls it does not limit.
func TestClients(t *testing.T) {
	l, _ := limited(t, 100)
	s := serve(t, made(t, l, connectlimit.Config{}))
	own, _ := limited(t, 1)
	options := []connect.ClientOption{connect.WithInterceptors(made(t, own, connectlimit.Config{}))}
	for range 3 {
		assert.Zero(t, s.code(t, options, "x"))
	}
	assert.Equal(t, 97, left(t, l))
}

// TestCheck has rules for procedures that the server does not have.
func TestCheck(t *testing.T) {
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("connectlimit_test.proto"), Package: proto.String("shop.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/wrappers.proto"},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Items"), Method: []*descriptorpb.MethodDescriptorProto{{
			Name: proto.String("Get"), InputType: proto.String(".google.protobuf.StringValue"),
			OutputType: proto.String(".google.protobuf.StringValue"),
		}}}},
	}, protoregistry.GlobalFiles)
	require.NoError(t, err)
	require.NoError(t, protoregistry.GlobalFiles.RegisterFile(file))
	l, _ := limited(t, 1,
		ratelimit.Rule{Name: "items", Endpoint: "/shop.v1.Items/Get", Rate: ratelimit.PerMinute(1)},
		ratelimit.Rule{Name: "misspelled", Endpoint: "/shop.v1.Items/Got", Rate: ratelimit.PerMinute(1)},
		ratelimit.Rule{Name: "service", Endpoint: "/shop.v1.Items/*", Rate: ratelimit.PerMinute(1)})
	i := made(t, l, connectlimit.Config{})
	const want = `httplimit: rule "misspelled" limits nothing: no route gives its endpoint "/shop.v1.Items/Got"`
	assert.EqualError(t, i.Check("shop.v1.Items"), want)
	rules, defaultRule := l.Rules()
	assert.EqualError(t, i.CheckRules("shop.v1.Items")(rules, defaultRule), want)
	assert.NoError(t, i.CheckRules("shop.v1.Items")(rules[:1], defaultRule))
	assert.ErrorContains(t, i.Check("shop.v1.Item"), `the program has no service "shop.v1.Item"`)
	assert.ErrorContains(t, i.CheckRules("shop.v1")(nil, nil), `the program has no service "shop.v1"`)
}

func TestClient(t *testing.T) {
	l, _ := limited(t, 1)
	i := made(t, l, connectlimit.Config{})
	s := serve(t, i)
	assert.Zero(t, s.code(t, nil, "x"))
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: i.Client(netip.MustParseAddr("127.0.0.1"))}))
	assert.Zero(t, s.code(t, nil, "x"))
	assert.Equal(t, connect.CodeResourceExhausted, s.code(t, nil, "x"))
}
