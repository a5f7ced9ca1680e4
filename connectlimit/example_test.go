package connectlimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/connectlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// customerOf returns the customer with the API key of a call, and the customer's plan.
func customerOf(c *connectlimit.Call) (client, tier string, ok bool) {
	return "shop-7", "paid", c.Header.Get("X-API-Key") == "k-123"
}

// newShop returns the API of a shop behind a proxy. It limits customers by their plan, all others by address, wrong
// passwords by address, and everybody together. A search costs five units.
func newShop() (http.Handler, error) {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/shop.v1.Users/Login", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)},
	}, &ratelimit.Rule{
		Name: "per-client", Rate: ratelimit.PerMinute(60), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600)},
	})
	if err != nil {
		return nil, err
	}
	cost := map[string]int{"/shop.v1.Items/Search": 5}
	limit, err := connectlimit.New(limiter, connectlimit.Config{
		Client:  customerOf,
		Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Skip:    func(c *connectlimit.Call) bool { return c.Spec.Procedure == "/grpc.health.v1.Health/Check" },
		Prepare: func(_ *connectlimit.Call, q *ratelimit.Request) { q.Cost = cost[q.Endpoint] },
		Count: func(c *connectlimit.Call, status int) bool {
			return c.Spec.Procedure != "/shop.v1.Users/Login" || status >= 400
		},
	})
	if err != nil {
		return nil, err
	}
	with, mux := connect.WithInterceptors(limit), http.NewServeMux()
	mux.Handle("/shop.v1.Users/Login", connect.NewUnaryHandler("/shop.v1.Users/Login", login, with))
	mux.Handle("/shop.v1.Items/Search", connect.NewUnaryHandler("/shop.v1.Items/Search", search, with))
	mux.Handle("/grpc.health.v1.Health/Check", connect.NewUnaryHandler("/grpc.health.v1.Health/Check", search, with))
	return mux, nil
}

func search(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
	return connect.NewResponse(&emptypb.Empty{}), nil
}

func login(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
	return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
}

// A service with plans, a stricter login, a global limit, and a proxy in front.
func Example() {
	shop, err := newShop()
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(shop)
	defer server.Close()

	ask := func(procedure, key string) {
		client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure)
		req := connect.NewRequest(&emptypb.Empty{})
		req.Header().Set("X-API-Key", key)
		if res, err := client.CallUnary(context.Background(), req); err != nil {
			fmt.Println(connect.CodeOf(err))
		} else {
			fmt.Println("ok", res.Header().Get("RateLimit-Policy"))
		}
	}
	ask("/shop.v1.Items/Search", "k-123")
	ask("/shop.v1.Items/Search", "")
	for range 6 {
		ask("/shop.v1.Users/Login", "")
	}
	ask("/grpc.health.v1.Health/Check", "")
	// Output:
	// ok "per-client";q=600;w=60
	// ok "per-client";q=60;w=60
	// unauthenticated
	// unauthenticated
	// unauthenticated
	// unauthenticated
	// unauthenticated
	// resource_exhausted
	// ok
}
