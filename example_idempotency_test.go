package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A client sends a payment. The answer is lost, so the client sends it again, with the same ID: it
// gets the same answer and is charged once. Another payment has another ID.
func ExampleWithRequestIDs() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/pay", Rate: ratelimit.PerMinute(10)},
	}, nil, ratelimit.WithRequestIDs(24*time.Hour), ratelimit.WithClock(january()))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for _, id := range []string{"7f3a", "7f3a", "91c0"} {
		res, err := limiter.Check(ctx, ratelimit.Request{Client: "alice", Endpoint: "/pay", ID: id})
		fmt.Println(id, res.Allowed, res.Remaining, err)
	}
	fmt.Println("replayed:", limiter.Stats()[0].Replayed)
	// Output:
	// 7f3a true 9 <nil>
	// 7f3a true 9 <nil>
	// 91c0 true 8 <nil>
	// replayed: 1
}

// idOf returns the ID of a request that came by HTTP, which clients send again under the same key.
func idOf(clientID string, r *http.Request) ratelimit.Request {
	return ratelimit.Request{Client: clientID, Endpoint: r.URL.Path, ID: r.Header.Get("Idempotency-Key")}
}

// Here the ID comes from a header of the request. If there is none, the ID is empty, and the request
// is charged each time.
func ExampleRequest_iD() {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "https://example.com/pay", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Idempotency-Key", "7f3a")
	fmt.Println(idOf("alice", r).ID)
	// Output: 7f3a
}
