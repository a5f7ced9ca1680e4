package exporters

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/connectlimit"
	"github.com/ratelimit-go/ratelimit/echolimit"
	"github.com/ratelimit-go/ratelimit/fiberlimit"
	"github.com/ratelimit-go/ratelimit/ginlimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
	"github.com/ratelimit-go/ratelimit/otelmetrics"
)

// A service is a server on the loopback that starts a span for each request, and then limits the request.
type service struct {
	ask  func(t *testing.T) (granted bool) // sends a request with a real client
	stop func()                            // returns when all spans have ended
}

// services make servers with the limiter l, whose spans are those of tracer.
var services = map[string]func(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service{
	"httplimit": func(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service {
		return serveHTTP(t, tracer, httplimit.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), l))
	},
	"ginlimit": func(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service {
		gin.SetMode(gin.ReleaseMode)
		router := gin.New()
		router.Use(ginlimit.Handler(l))
		router.GET("/", func(*gin.Context) {})
		return serveHTTP(t, tracer, router)
	},
	"echolimit": func(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service {
		router := echo.New()
		router.Use(echolimit.Handler(l))
		router.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
		return serveHTTP(t, tracer, router)
	},
	"fiberlimit": serveFiber,
	"connectlimit, a call": func(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service {
		return serveConnect(t, l, tracer, false)
	},
	"connectlimit, a stream": func(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service {
		return serveConnect(t, l, tracer, true)
	},
	"grpclimit, a call": func(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service {
		return serveGRPC(t, l, tracer, false)
	},
	"grpclimit, a stream": func(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service {
		return serveGRPC(t, l, tracer, true)
	},
}

// spanned starts a span for each request, as the instrumentation of a server does.
func spanned(tracer trace.Tracer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(r.Context(), "request")
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func serveHTTP(t *testing.T, tracer trace.Tracer, h http.Handler) service {
	t.Helper()
	server := httptest.NewServer(spanned(tracer, h))
	return service{func(t *testing.T) bool { return get(t, server.URL) }, server.Close}
}

// get sends a GET request and returns whether the status is 200 and not 429.
func get(t *testing.T, url string) (granted bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Contains(t, []int{http.StatusOK, http.StatusTooManyRequests}, res.StatusCode)
	return res.StatusCode == http.StatusOK
}

func serveFiber(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer) service {
	t.Helper()
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		ctx, span := tracer.Start(c.Context(), "request")
		defer span.End()
		c.SetContext(ctx)
		return c.Next()
	}, fiberlimit.Handler(l))
	app.Get("/", func(fiber.Ctx) error { return nil })
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	return service{func(t *testing.T) bool { return get(t, "http://"+listener.Addr().String()) }, func() {
		http.DefaultClient.CloseIdleConnections()
		_ = app.Shutdown()
	}}
}

// procedure is the procedure of the Connect server.
const procedure = "/test.v1.Test/Ask"

func connectHandler(t *testing.T, l *ratelimit.RateLimiter, stream bool) http.Handler {
	t.Helper()
	limit, err := connectlimit.New(l, connectlimit.Config{})
	require.NoError(t, err)
	with := connect.WithInterceptors(limit)
	if stream {
		return connect.NewServerStreamHandler(procedure,
			func(context.Context, *connect.Request[emptypb.Empty], *connect.ServerStream[emptypb.Empty]) error {
				return nil
			}, with)
	}
	return connect.NewUnaryHandler(procedure, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	}, with)
}

func serveConnect(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer, stream bool) service {
	t.Helper()
	server := httptest.NewServer(spanned(tracer, connectHandler(t, l, stream)))
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure)
	ask := func(ctx context.Context) error {
		_, err := client.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
		return err
	}
	if stream {
		ask = func(ctx context.Context) error {
			answers, err := client.CallServerStream(ctx, connect.NewRequest(&emptypb.Empty{}))
			if err != nil {
				return err
			}
			for answers.Receive() {
			}
			return errors.Join(answers.Err(), answers.Close())
		}
	}
	return service{func(t *testing.T) bool {
		err := ask(t.Context())
		require.True(t, err == nil || connect.CodeOf(err) == connect.CodeResourceExhausted, "%v", err)
		return err == nil
	}, server.Close}
}

// A serverStream is a stream with the context of a span.
type serverStream struct {
	grpc.ServerStream

	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }

func serveGRPC(t *testing.T, l *ratelimit.RateLimiter, tracer trace.Tracer, stream bool) service {
	t.Helper()
	limit, err := grpclimit.New(l, grpclimit.Config{})
	require.NoError(t, err)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, span := tracer.Start(ctx, "request")
			defer span.End()
			return next(ctx, req)
		}, limit.Unary()),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			ctx, span := tracer.Start(ss.Context(), "request")
			defer span.End()
			return next(srv, serverStream{ss, ctx})
		}, limit.Stream()))
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	client := healthpb.NewHealthClient(conn)
	ask := func(ctx context.Context) error {
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	if stream {
		ask = func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel() // Watch would go on
			answers, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = answers.Recv()
			}
			return err
		}
	}
	return service{func(t *testing.T) bool {
		err := ask(t.Context())
		require.True(t, err == nil || status.Code(err) == codes.ResourceExhausted, "%v", err)
		return err == nil
	}, func() {
		_ = conn.Close()
		server.GracefulStop()
	}}
}

// newPlan returns a limiter with one rule, which grants each client n units a minute.
func newPlan(t *testing.T, n int, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	t.Helper()
	l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "plan", Rate: ratelimit.PerMinute(n)},
		append(opts, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))...)
	require.NoError(t, err)
	return l
}

// TestSpansOfServers compares what the span of a server says of a granted and of a denied request, for each package that limits
// requests. These are all attributes: none contains the client or its key.
func TestSpansOfServers(t *testing.T) {
	const p = "rate_limiting."
	granted := map[string]string{p + "limiter": "default", p + "policy": "plan", p + "result": "allowed", p + "source": "memory",
		p + "limit": "1", p + "remaining": "0"}
	denied := map[string]string{p + "limiter": "default", p + "policy": "plan", p + "result": "denied", p + "source": "memory",
		p + "limit": "1", p + "remaining": "0", p + "retry_after": "60"}
	for name, serve := range services {
		t.Run(name, func(t *testing.T) {
			exporter := tracetest.NewInMemoryExporter()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("test")
			s := serve(t, newPlan(t, 1, ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{}))), tracer)
			assert.True(t, s.ask(t))
			assert.False(t, s.ask(t))
			s.stop()
			spans, events := []map[string]string{}, map[string][]map[string]string{}
			for _, span := range exporter.GetSpans() { // that of a stream may end after the next one
				said := texts(span)
				spans = append(spans, said)
				for _, e := range span.Events {
					event := map[string]string{}
					for _, a := range e.Attributes {
						event[string(a.Key)] = a.Value.Emit()
					}
					events[said[p+"result"]+" "+e.Name] = append(events[said[p+"result"]+" "+e.Name], event)
				}
			}
			assert.ElementsMatch(t, []map[string]string{granted, denied}, spans)
			assert.Equal(t, map[string][]map[string]string{"denied " + p + "denied": {denied}}, events)
		})
	}
}

// texts returns the attributes of a span as texts, by their names.
func texts(span tracetest.SpanStub) map[string]string {
	m := map[string]string{}
	for _, a := range span.Attributes {
		m[string(a.Key)] = a.Value.Emit()
	}
	return m
}

// TestSpansAllocateNothingMore proves that a gRPC or Connect call allocates as much with Spans, in a span that is not recorded, as
// without.
func TestSpansAllocateNothingMore(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	dropped, span := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test").Start(t.Context(), "request")
	defer span.End()
	for name, calls := range map[string]func(l *ratelimit.RateLimiter) func(){
		"grpclimit": func(l *ratelimit.RateLimiter) func() {
			limit, err := grpclimit.New(l, grpclimit.Config{})
			require.NoError(t, err)
			call, info := limit.Unary(), &grpc.UnaryServerInfo{FullMethod: healthpb.Health_Check_FullMethodName}
			ctx := peer.NewContext(dropped, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}})
			return func() { _, _ = call(ctx, nil, info, func(context.Context, any) (any, error) { return nil, nil }) } //nolint:nilnil // no answer
		},
		"connectlimit": func(l *ratelimit.RateLimiter) func() {
			h := connectHandler(t, l, false)
			r := httptest.NewRequestWithContext(dropped, http.MethodPost, procedure, nil)
			r.Header.Set("Content-Type", "application/proto")
			return func() {
				r.Body = io.NopCloser(http.NoBody)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		},
	} {
		for _, n := range []int{1, 1e9} { // of one, all but the first call are denied
			with, without := calls(newPlan(t, n, ratelimit.WithObserver(otelmetrics.NewSpans(otelmetrics.Options{})))), calls(newPlan(t, n))
			// Goroutines of other tests may allocate, too, so the least of several measurements counts.
			least := func(call func()) float64 {
				allocs := testing.AllocsPerRun(200, call)
				for range 9 {
					allocs = min(allocs, testing.AllocsPerRun(200, call))
				}
				return allocs
			}
			assert.Equal(t, least(without), least(with), "%s of %d", name, n)
		}
	}
}
