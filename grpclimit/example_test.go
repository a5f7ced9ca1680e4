package grpclimit_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net/netip"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A server whose clients come by the internet, without a proxy.
func ExampleNew() {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.New(limiter, grpclimit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limits.Unary()),
		grpc.ChainStreamInterceptor(limits.Stream()),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	fmt.Println(limits.Check(server.GetServiceInfo()))
	// Output:
	// <nil>
}

// A service with plans, a stricter method, and a limit on all calls together, behind a proxy.
func ExampleConfig() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/shop.Accounts/Login", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)},
	}, &ratelimit.Rule{
		Name: "per-client", Rate: ratelimit.PerMinute(60), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600)},
	})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.New(limiter, grpclimit.Config{
		Client:  certified,
		Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Prepare: func(_ context.Context, r *ratelimit.Request) {
			if r.Endpoint == "/shop.Items/Search" {
				r.Cost = 5
			}
		},
		Skip:     grpclimit.SkipHealth,
		Messages: grpclimit.MessagesWait,
	})
	if err != nil {
		log.Fatal(err)
	}
	call := &grpc.UnaryServerInfo{FullMethod: "/shop.Accounts/Login"}
	handler := func(context.Context, any) (any, error) { return "welcome", nil }
	for range 6 {
		_, err := limits.Unary()(context.Background(), nil, call, handler)
		fmt.Print(status.Code(err), " ")
	}
	// Output:
	// OK OK OK OK OK ResourceExhausted
}

// certified names the client by the certificate that the server has verified.
func certified(ctx context.Context, _ string) (client, tier string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", "", false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", "", false
	}
	return info.State.VerifiedChains[0][0].Subject.CommonName, "paid", true
}

// What a client reads from a denial.
func ExampleInterceptors_Unary() {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(2)}, ratelimit.WithClock(clock))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.New(limiter, grpclimit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		_, err = limits.Unary()(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Items/Get"}, handle)
	}
	if s := status.Convert(err); s.Code() == codes.ResourceExhausted {
		for _, detail := range s.Details() {
			switch d := detail.(type) {
			case *errdetails.RetryInfo:
				fmt.Println("retry in", d.GetRetryDelay().AsDuration())
			case *errdetails.QuotaFailure:
				fmt.Println("denied by", d.GetViolations()[0].GetDescription())
			}
		}
	}
	// Output:
	// retry in 30s
	// denied by per-client
}

func handle(context.Context, any) (any, error) { return "hello", nil }

// retries is the retry policy of a connection. A server that says how long to wait is obeyed.
const retries = `{"methodConfig": [{"name": [{"service": "shop.Items"}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]}}]}`

// A client that stays within the limit of the server, and is patient if it is denied all the same.
func ExampleInterceptors_UnaryClient() {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(50)})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.New(limiter, grpclimit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("shop.example.com:443",
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13})),
		grpc.WithChainUnaryInterceptor(limits.UnaryClient()),
		grpc.WithChainStreamInterceptor(limits.StreamClient()),
		grpc.WithDefaultServiceConfig(retries),
	)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(conn.Target())
	fmt.Println(conn.Close())
	// Output:
	// shop.example.com:443
	// <nil>
}

// A server that passes unknown services on, and limits by the Limiter of go-grpc-middleware.
func ExampleRegistered() {
	limiter, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "unmatched", Rate: ratelimit.PerMinute(1)}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	var server *grpc.Server
	limits, err := grpclimit.New(limiter, grpclimit.Config{
		Endpoint: grpclimit.Registered(func() map[string]grpc.ServiceInfo { return server.GetServiceInfo() }),
	})
	if err != nil {
		log.Fatal(err)
	}
	server = grpc.NewServer(grpc.ChainStreamInterceptor(limits.Stream()))
	healthpb.RegisterHealthServer(server, health.NewServer())

	for _, method := range []string{"/made.up/One", "/made.up/Two", "/grpc.health.v1.Health/Check"} {
		_, err := limits.Unary()(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: method}, handle)
		fmt.Println(method, status.Code(err))
	}
	// Output:
	// /made.up/One OK
	// /made.up/Two ResourceExhausted
	// /grpc.health.v1.Health/Check OK
}

// A test that finds a rule that limits nothing, such as one for a misspelt method.
func ExampleInterceptors_Check() {
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	limiter, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/grpc.health.v1.Health/Chekc", Rate: ratelimit.PerMinute(60)}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.New(limiter, grpclimit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(limits.Check(server.GetServiceInfo()))
	// Output:
	// grpclimit: rule "/grpc.health.v1.Health/Chekc" limits nothing: no method gives its endpoint "/grpc.health.v1.Health/Chekc"
}

// The limits of this package in place of those that an interceptor of go-grpc-middleware has.
func ExampleInterceptors_Limit() {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.New(limiter, grpclimit.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := metadata.NewIncomingContext(context.Background(), nil) // as an interceptor gets it
	fmt.Println(limits.Limit(ctx))
	fmt.Println(limits.Limit(ctx))
	// Output:
	// <nil>
	// rpc error: code = ResourceExhausted desc = too many requests
}
