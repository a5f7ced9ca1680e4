// Grpc starts a gRPC server with a limit, and calls it. A client without a retry policy gets an error
// when it is denied. The connection of a client with a retry policy waits as long as the server says,
// and sends the call again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

// retryPolicy makes a connection send a denied call again. The connection waits as long as the server
// says. If the server does not say how long, the connection waits for about 10 ms.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	server, err := newServer()
	if err != nil {
		return err
	}
	on, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(on) }()
	fmt.Fprintf(w, "%s: a call in 2 s, 3 at once, for each address\n", healthpb.Health_Check_FullMethodName)
	err = errors.Join(
		call(ctx, w, on.Addr().String(), 4),
		call(ctx, w, on.Addr().String(), 1, grpc.WithDefaultServiceConfig(retryPolicy)),
	)
	server.GracefulStop()
	return errors.Join(err, <-served)
}

// newServer returns a server with the standard health service. A real server has services of its own.
func newServer() (*grpc.Server, error) {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "per-client", Endpoint: healthpb.Health_Check_FullMethodName, Rate: ratelimit.Rate{Requests: 1, Per: 2 * time.Second, Burst: 3}},
	}, nil)
	if err != nil {
		return nil, err
	}
	limits, err := grpclimit.New(limiter, grpclimit.Config{})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limits.Unary()),
		grpc.ChainStreamInterceptor(limits.Stream()),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	return server, limits.Check(server.GetServiceInfo())
}

// call makes n calls on a connection with these options, and prints the results.
func call(ctx context.Context, w io.Writer, target string, n int, opts ...grpc.DialOption) error {
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(w, "a connection, with a retry policy: %v\n", len(opts) > 0)
	for i := 1; i <= n; i++ {
		begun := time.Now()
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			fmt.Fprintf(w, "  call %d: denied, %s\n", i, reason(err))
			continue
		}
		fmt.Fprintf(w, "  call %d: allowed after %v\n", i, time.Since(begun).Round(100*time.Millisecond))
	}
	return nil
}

// reason returns a text that says why a call was denied, and when to try again. It reads both from the error of the call.
func reason(err error) string {
	s := status.Convert(err)
	texts := []string{s.Code().String()}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			texts = append(texts, fmt.Sprintf("retry in %v", d.GetRetryDelay().AsDuration().Round(100*time.Millisecond)))
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				texts = append(texts, fmt.Sprintf("by the rule %q", v.GetDescription()))
			}
		}
	}
	return strings.Join(texts, ", ")
}
