// Command servertime prints how much time a Redis server needs for a decision. The server itself
// reports this time: it is the time of its scripts in INFO commandstats. It does not include the
// network. The shorter this time is, the more decisions a server can make. The command also prints how long
// the caller waits for a decision.
//
//	go run ./bench/cmd/servertime                      # starts a redis-server
//	go run ./bench/cmd/servertime -addr 127.0.0.1:6379 # no other program may use that server meanwhile
//	go run ./bench/cmd/servertime -open 1024           # Settle, of keys with 1,024 open reservations
//
// The output has the format of benchmarks, so the command alternate can compare two builds on one
// server. To compare with a commit that has no reservations, IDs and warm-up, build main.go alone in a
// checkout of that commit:
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
	open := flag.Int("open", 0, "measure Settle of a key with this `number` of open reservations, and nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *addr, *lines, *calls, *open)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "servertime:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, addr, lines string, calls, open int) error {
	if addr == "" {
		server, err := bench.StartRedis(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = server.Close() }()
		return measure(ctx, out, server.Client(), lines, calls, open)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	return measure(ctx, out, client, lines, calls, open)
}

// The constant keys is the number of different keys for which each measured step makes calls.
const keys = 500

// A work is a sequence of steps, which are measured one after the other with the same keys. The
// output has one line for each step.
type work struct {
	name  string
	steps []step
}

// A step is one kind of call. The function do makes the call for one key. Its argument i is 0 in
// the first call for a key, 1 in the second, and so on. Before a step is measured, this function is
// called once for another key with i = -1.
type step struct {
	name string
	do   func(ctx context.Context, s *redisstore.Store, key string, i int) error
}

// extras holds the works (sequences of measured steps) that the file extras.go adds. It is empty in a
// checkout of an older commit, which cannot build that file.
var extras []work

// measure runs the steps of each work whose name contains the text in the parameter lines. It prints a line
// for each step: how long the server's script and the caller took for one call. If the parameter open is
// above 0, it measures something else: only Settle, for keys with that many open reservations.
func measure(ctx context.Context, out io.Writer, client *redis.Client, lines string, calls, open int) error {
	prefix := fmt.Sprintf("servertime%d", time.Now().UnixNano())
	store, err := redisstore.New(client,
		redisstore.WithDenialCache(0), redisstore.WithTimeout(5*time.Second), redisstore.WithPrefix(prefix))
	if err != nil {
		return err
	}
	if open > 0 {
		return measureOpen(ctx, out, client, store, lines, open)
	}
	for _, w := range append(plain(), extras...) {
		if !strings.Contains(w.name, lines) {
			continue
		}
		for _, st := range w.steps {
			if err := st.do(ctx, store, w.name+" first", -1); err != nil { // makes the server load the script
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
			fmt.Fprintf(out, "Benchmark%s%s %d %.0f ns/op %d latency-ns\n",
				w.name, st.name, n, 1000*float64(after-before)/float64(n), int64(took)/n)
		}
	}
	return nil
}

// scripts returns the total time that the server has spent in scripts, in microseconds.
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

// With the rate in the variable ample, every ask (a request for units) is granted. With the rate in the
// variable scarce, the first ask for a key is granted, and all later asks for this key are denied.
var (
	ample  = ratelimit.Rate{Requests: 1 << 20, Per: 24 * time.Hour}
	scarce = ratelimit.Rate{Requests: 1, Per: 24 * time.Hour}
)

// The function named "an" returns a new ask (a request to the store) for one unit of the given key, with the given
// algorithm and rate. A sliding window log supports only lower rates, so for this algorithm the function
// lowers the rate.
func an(a ratelimit.Algorithm, r ratelimit.Rate, key string) ratelimit.Ask {
	if a == ratelimit.AlgorithmSlidingWindowLog {
		r.Requests = min(r.Requests, 1<<16)
	}
	return ratelimit.Ask{Rule: "rule:" + string(a), Key: key, Client: key, Algorithm: a, Rate: r, N: 1}
}

// take calls s.Take with the given asks (requests to the store). The parameter allowed says whether all of
// them must be allowed or all denied. If the store decides otherwise, take returns an error.
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

// The variable all lists the five algorithms.
var all = ratelimit.Algorithms()

// The function named "plain" returns the works (sequences of measured steps) that use no reservations, request IDs
// or warm-up. A checkout of an older commit can build these works too.
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
