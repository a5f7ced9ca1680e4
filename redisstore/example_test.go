package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	store, err := redisstore.New(client)
	if err != nil {
		panic(err)
	}
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/search", Rate: ratelimit.PerMinute(100)},
	}, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"))
	if err != nil {
		panic(err)
	}
	res := limiter.Allow("alice", "/search")
	fmt.Println(res.Allowed, res.Remaining)
}

func ExampleError() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	store, err := redisstore.New(client)
	if err != nil {
		panic(err)
	}
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(100), ratelimit.WithStore(store), ratelimit.WithName("api"))
	if err != nil {
		panic(err)
	}
	res, err := limiter.Take(context.Background(), "alice", 1)
	var failed *redisstore.Error
	if errors.As(err, &failed) && failed.Class == redisstore.ClassOOM {
		log.Print("the server has no memory left: ", failed)
	}
	fmt.Println(res.Allowed) // the decision of the store or, after an error, of the failure policy
}

// An outage gives an error to every request. One line when it begins and one when it ends are
// enough.
func Example_outage() {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)})
	if err != nil {
		panic(err)
	}
	open := 0
	for range time.Tick(time.Second) {
		if stats := limiter.StoreStats(); (stats.Open > 0) != (open > 0) {
			open = stats.Open
			log.Printf("store: %d of %d parts do not answer: %v", stats.Open, stats.Parts, stats.LastError)
		}
	}
}

// A denial by FailClosed is a fault of the service, and not of the client.
func Example_status() {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)})
	if err != nil {
		panic(err)
	}
	_ = func(w http.ResponseWriter, r *http.Request) {
		client := r.Header.Get("X-Client")
		res, err := limiter.Check(r.Context(), ratelimit.Request{Client: client, Endpoint: r.URL.Path})
		if !res.Allowed {
			status := httplimit.Status(limiter, err, res) // 429, 503 or 500
			http.Error(w, http.StatusText(status), status)
		}
	}
}
