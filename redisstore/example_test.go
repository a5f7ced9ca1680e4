package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
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
