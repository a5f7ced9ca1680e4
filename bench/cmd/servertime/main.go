// Command servertime prints how long a Redis server takes for a decision, by what the server says
// itself: the time of its scripts in INFO commandstats. The work of a server is what limits it, and
// unlike a latency it has no network in it. The time that a caller waits is printed beside it.
//
//	go run ./bench/cmd/servertime                      # starts a redis-server
//	go run ./bench/cmd/servertime -addr 127.0.0.1:6379 # nobody else may use that one meanwhile
//
// It prints lines as a benchmark does, so the command alternate compares two builds of it on one
// server. main.go also builds by itself, in a checkout of a commit that has no reservations, IDs and
// warm-up:
//
//	go build -o new bench/cmd/servertime/main.go
//	mkdir ../old/bench/cmd/servertime && cp bench/cmd/servertime/main.go ../old/bench/cmd/servertime
//	go -C ../old build -o "$PWD/old" bench/cmd/servertime/main.go
//	go run ./bench/cmd/alternate -n 7 ./old ./new -addr 127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/bench"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

func main() {
	addr := flag.String("addr", "", "the `address` of a server; otherwise one is started")
	calls := flag.Int("calls", 20, "how many `calls` are made for each of the 500 keys of a line")
	lines := flag.String("lines", "", "only works whose name has this `text`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *addr, *lines, *calls)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servertime:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, addr, lines string, calls int) error {
	if addr == "" {
		server, err := bench.StartRedis(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = server.Close() }()
		return measure(ctx, out, server.Client(), lines, calls)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	return measure(ctx, out, client, lines, calls)
}

// keys is how many keys each line has.
const keys = 500

// A work is what a server is asked, in steps which are lines of their own. Each is done for one key
// at a time; i counts the calls for that key. Before them there is a call for another key, with -1.
type work struct {
	name  string
	steps []step
}

type step struct {
	name string
	do   func(ctx context.Context, s *redisstore.Store, key string, i int) error
}

// extras are the works that are in a file of their own.
var extras []work

// measure prints a line for each step of each work.
func measure(ctx context.Context, out io.Writer, client *redis.Client, lines string, calls int) error {
	prefix := fmt.Sprintf("servertime%d", time.Now().UnixNano())
	store, err := redisstore.New(client, redisstore.WithDenialCache(0), redisstore.WithTimeout(5*time.Second), redisstore.WithPrefix(prefix))
	if err != nil {
		return err
	}
	for _, w := range append(plain(), extras...) {
		if !strings.Contains(w.name, lines) {
			continue
		}
		for _, st := range w.steps {
			if err := st.do(ctx, store, w.name+" first", -1); err != nil { // so that the server knows the script
				return fmt.Errorf("%s%s: %w", w.name, st.name, err)
			}
			before, err := scripts(ctx, client)
			if err != nil {
				return err
			}
			begun := time.Now()
			for i := range calls {
				for k := range keys {
					if err := st.do(ctx, store, w.name+strconv.Itoa(k), i); err != nil {
						return fmt.Errorf("%s%s: %w", w.name, st.name, err)
					}
				}
			}
			took := time.Since(begun)
			after, err := scripts(ctx, client)
			if err != nil {
				return err
			}
			n := int64(calls * keys)
			fmt.Fprintf(out, "Benchmark%s%s %d %.0f ns/op %d latency-ns\n", w.name, st.name, n, 1000*float64(after-before)/float64(n), int64(took)/n)
		}
	}
	return nil
}

// scripts returns the microseconds that the server has spent in scripts.
func scripts(ctx context.Context, client *redis.Client) (sum int64, err error) {
	stats, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(stats) {
		name, fields, _ := strings.Cut(line, ":")
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall":
			_, rest, _ := strings.Cut(fields, "usec=")
			usec, _, _ := strings.Cut(rest, ",")
			n, err := strconv.ParseInt(usec, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("INFO commandstats has %q: %w", line, err)
			}
			sum += n
		}
	}
	return sum, nil
}

// ample and scarce are rates by which every ask is granted, and every one but the first is denied.
var (
	ample  = ratelimit.Rate{Requests: 1 << 20, Per: 24 * time.Hour}
	scarce = ratelimit.Rate{Requests: 1, Per: 24 * time.Hour}
)

// an returns an ask for a unit of the state of key.
func an(a ratelimit.Algorithm, r ratelimit.Rate, key string) ratelimit.Ask {
	if a == ratelimit.AlgorithmSlidingWindowLog {
		r.Requests = min(r.Requests, 1<<16)
	}
	return ratelimit.Ask{Rule: "rule:" + string(a), Key: key, Client: key, Algorithm: a, Rate: r, N: 1}
}

// take asks s, and fails if any ask is not answered as allowed says.
func take(ctx context.Context, s *redisstore.Store, allowed bool, asks ...ratelimit.Ask) error {
	results, err := s.Take(ctx, asks)
	if err != nil {
		return err
	}
	for _, res := range results {
		if res.Allowed != allowed {
			return errors.New("it was not decided as is to be measured")
		}
	}
	return nil
}

// all are the five algorithms.
var all = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
	ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket,
}

// plain returns the decisions without extras.
func plain() (works []work) {
	for _, a := range all {
		works = append(works, work{"Take/" + string(a), []step{{"", func(ctx context.Context, s *redisstore.Store, key string, _ int) error {
			return take(ctx, s, true, an(a, ample, key))
		}}}})
	}
	return append(works,
		work{"Take/denied", []step{{"", func(ctx context.Context, s *redisstore.Store, key string, i int) error {
			return take(ctx, s, i < 0, an(ratelimit.AlgorithmTokenBucket, scarce, "one key for all"))
		}}}},
		work{"Take/two-rules", []step{{"", func(ctx context.Context, s *redisstore.Store, key string, _ int) error {
			return take(ctx, s, true, an(ratelimit.AlgorithmTokenBucket, ample, key), an(ratelimit.AlgorithmFixedWindow, ample, key))
		}}}})
}
