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

// customerOf returns the customer with an API key, and the customer's plan.
func customerOf(key string) (client, tier string, ok bool) {
	return "shop-7", "paid", key == "k-123"
}

// newLimit returns an Interceptor for the API of a shop behind a proxy. It limits customers by their plan, all others by
// address, wrong passwords by address, and everybody together. A search costs five units.
func newLimit() (*connectlimit.Interceptor, error) {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/shop.v1.Users/Login", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)},
	}, &ratelimit.Rule{
		Name: "per-client", Rate: ratelimit.PerMinute(60), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600)},
	})
	if err != nil {
		return nil, err
	}
	return connectlimit.New(limiter, connectlimit.Config{
		Client: func(c *connectlimit.Call) (client, tier string, ok bool) {
			return customerOf(c.Header.Get("X-API-Key"))
		},
		Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Prepare: func(c *connectlimit.Call, q *ratelimit.Request) {
			q.Cost = map[string]int{"/shop.v1.Items/Search": 5}[c.Spec.Procedure]
		},
		Count: func(c *connectlimit.Call, status int) bool {
			return c.Spec.Procedure != "/shop.v1.Users/Login" || status >= 400
		},
	})
}

func search(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
	return connect.NewResponse(&emptypb.Empty{}), nil
}

func login(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
	return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
}

// A service with plans, a stricter login, a global limit, and a proxy in front.
func Example() {
	limit, err := newLimit()
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	for procedure, handle := range map[string]func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error){
		"/shop.v1.Items/Search": search, "/shop.v1.Users/Login": login,
	} {
		mux.Handle(procedure, connect.NewUnaryHandler(procedure, handle, connect.WithInterceptors(limit)))
	}
	server := httptest.NewServer(mux)
	defer server.Close()

	ask := func(procedure, key string) {
		client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure)
		req := connect.NewRequest(&emptypb.Empty{})
		req.Header().Set("X-API-Key", key)
		if res, err := client.CallUnary(context.Background(), req); err != nil {
			fmt.Println(connect.CodeOf(err))
		} else {
			fmt.Println(res.Header().Get("RateLimit-Policy"))
		}
	}
	ask("/shop.v1.Items/Search", "k-123")
	ask("/shop.v1.Items/Search", "")
	for range 6 {
		ask("/shop.v1.Users/Login", "")
	}
	// Output:
	// "per-client";q=600;w=60
	// "per-client";q=60;w=60
	// unauthenticated
	// unauthenticated
	// unauthenticated
	// unauthenticated
	// unauthenticated
	// resource_exhausted
}
