// Llmgateway is an HTTP gateway in front of a language model. It limits the requests, the tokens and the parallel
// requests of each client, in one decision: a request that is denied is charged nothing. The gateway reserves
// 4,000 tokens when a request arrives. At the end of the answer, it replaces this charge by the tokens that the
// answer has used, even if the client leaves early. The model of this example repeats the prompt, with one token
// for each word.
//
//	go run ./examples/llmgateway
//
// starts a gateway, sends five requests to it, and prints the results. With an address, it serves:
//
//	go run ./examples/llmgateway -listen 127.0.0.1:8080 &
//	curl -N -H 'X-Client: alice' -d 'one two three' http://127.0.0.1:8080/v1/chat
//
// With -redis, all processes that use the same server share the limits.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// estimate is the number of tokens that a request reserves until the tokens of its answer are counted.
const estimate = 4000

// A model answers a prompt piece by piece. It calls emit with each piece and the number of tokens that
// the piece used, and ends when emit returns an error or ctx ends.
type model func(ctx context.Context, prompt string, emit func(piece string, tokens int) error) error

// A gateway limits what each client uses of a model.
type gateway struct {
	limiter *ratelimit.RateLimiter
	limits  *httplimit.Middleware
	model   model
}

// newGateway returns a gateway. Each client may send 60 requests a minute, use 20,000 tokens an hour, and have 4
// requests answered at the same time.
func newGateway(m model, opts ...ratelimit.Option) (*gateway, error) {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Name: "requests", Endpoint: "/v1/chat", Rate: ratelimit.PerMinute(60)},
		{Name: "tokens", Endpoint: "/v1/chat", Unit: "tokens", Rate: ratelimit.PerHour(20_000)},
		{Name: "at once", Endpoint: "/v1/chat", Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 4, Per: time.Minute}},
	}, nil, opts...)
	if err != nil {
		return nil, err
	}
	limits, err := httplimit.New(limiter, httplimit.Config{Endpoint: httplimit.Fixed("/v1/chat")})
	if err != nil {
		return nil, err
	}
	return &gateway{limiter, limits, m}, nil
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "the prompt cannot be read", http.StatusBadRequest)
		return
	}
	held, ok := g.limits.Reserve(w, r, ratelimit.Request{
		Client: r.Header.Get("X-Client"), // a real gateway takes the client from a checked API key
		Costs:  []ratelimit.Cost{{Unit: "tokens", N: estimate}},
	}, 10*time.Minute)
	if !ok {
		return // the client has its answer, such as 429
	}
	used := 0
	defer func() { // runs even if the client has left, or the model has failed or panicked
		if err := errors.Join(held.SettleCosts(ratelimit.Cost{Unit: "tokens", N: used}), held.Done()); err != nil {
			log.Print(err)
		}
	}()
	out := http.NewResponseController(w)
	err = g.model(r.Context(), string(prompt), func(piece string, tokens int) error {
		used += tokens
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second)) // the write fails after 10 s if the client does not read
		if _, err := io.WriteString(w, piece); err != nil {
			return err
		}
		return out.Flush()
	})
	if err != nil {
		log.Print(err)
	}
}

// repeat is a model that answers with the prompt, ten words a second.
func repeat(ctx context.Context, prompt string, emit func(piece string, tokens int) error) error {
	for word := range strings.FieldsSeq(prompt) {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := emit(word+" ", 1); err != nil {
			return err
		}
	}
	return nil
}

// inRedis returns the options of a limiter that keeps its state in the Redis server at url. The argument replicas is the
// number of processes that share the server.
func inRedis(url string, replicas int) ([]ratelimit.Option, error) {
	where, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(redis.NewClient(where))
	return []ratelimit.Option{
		ratelimit.WithStore(store),
		ratelimit.WithName("llmgateway"),
		ratelimit.WithFailurePolicy(ratelimit.FailLocal(replicas)),
	}, err
}

func main() {
	listen := flag.String("listen", "", "the address to serve at, such as 127.0.0.1:8080")
	server := flag.String("redis", "", "share the limits in the Redis server at this `url`, such as redis://127.0.0.1:6379/0")
	replicas := flag.Int("replicas", 1, "how many processes share them: while Redis does not answer, each enforces its part")
	flag.Parse()
	var opts []ratelimit.Option
	if *server != "" {
		var err error
		if opts, err = inRedis(*server, *replicas); err != nil {
			log.Fatal(err)
		}
	}
	g, err := newGateway(repeat, opts...)
	if err != nil {
		log.Fatal(err)
	}
	if *listen == "" {
		if err := g.show(os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	s := http.Server{Addr: *listen, Handler: g, ReadHeaderTimeout: time.Second}
	log.Print(s.ListenAndServe())
}

// show sends five requests of one client to g, which all run at the same time, and writes the results to out. Four
// are answered. The fifth is denied, because a client may have only four requests running.
func (g *gateway) show(out io.Writer) error {
	server := httptest.NewServer(g)
	defer server.Close()
	var answers []*bufio.Reader
	for range 5 {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL+"/v1/chat",
			strings.NewReader("five words for the model"))
		if err != nil {
			return err
		}
		req.Header.Set("X-Client", "alice")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			fmt.Fprintf(out, "denied: %s, %s\n", res.Status, res.Header.Get("RateLimit"))
			continue
		}
		answer := bufio.NewReader(res.Body)
		if _, err := answer.Peek(1); err != nil { // Peek waits until the model has begun
			return err
		}
		answers = append(answers, answer)
	}
	for _, answer := range answers {
		text, err := io.ReadAll(answer)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "answered: %s\n", text)
	}
	_, each, err := g.limiter.CheckAll(context.Background(), ratelimit.Request{
		Client: "alice", Endpoint: "/v1/chat", Costs: []ratelimit.Cost{{Unit: "tokens", N: 0}},
	}, nil)
	fmt.Fprintf(out, "%d of 60 requests and %d of 20000 tokens are left\n", each[0].Remaining+1, each[1].Remaining)
	return err
}
