// Llmgateway is an HTTP gateway in front of a language model. It reserves 4,000 tokens when a request
// arrives. At the end, it charges the tokens that the answer has used instead, even if the client leaves
// early. The model of this example repeats the prompt, with one token for each word.
//
//	go run ./examples/llmgateway
//
// starts a gateway, sends six requests to it, and prints the results. With an address, it serves:
//
//	go run ./examples/llmgateway -listen 127.0.0.1:8080 &
//	curl -N -H 'X-Client: alice' -d 'one two three' http://127.0.0.1:8080/v1/chat
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// The constant hold is the number of tokens that a request reserves until the tokens of its answer are
// counted.
const hold = 4000

// A model answers a prompt piece by piece. It calls emit with each piece and the number of tokens that
// the piece used, and ends when emit returns an error or ctx ends.
type model func(ctx context.Context, prompt string, emit func(piece string, tokens int) error) error

// A gateway limits how many tokens each client uses.
type gateway struct {
	limiter *ratelimit.RateLimiter
	model   model
}

// newLimiter returns the limiter of the gateway. Each client gets 20,000 tokens an hour, and may use all
// of them at once.
func newLimiter(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
	return ratelimit.New([]ratelimit.Rule{
		{Name: "tokens", Endpoint: "/v1/chat", Rate: ratelimit.PerHour(20_000)},
	}, nil, opts...)
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "the prompt cannot be read", http.StatusBadRequest)
		return
	}
	req := ratelimit.Request{Client: r.Header.Get("X-Client"), Endpoint: r.URL.Path, Cost: hold}
	held, err := g.limiter.Reserve(r.Context(), req, 10*time.Minute)
	if err != nil {
		log.Print(err) // the store has failed, or there is no answer and held is nil
	}
	if res := held.Result(); !res.Allowed {
		if s, ok := res.RetryAfterSeconds(); ok {
			w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
		}
		status := httplimit.Status(g.limiter, err, held.Results()...)
		http.Error(w, http.StatusText(status), status)
		return
	}

	used := 0
	defer func() { // runs even if the client has left, or the model has failed or panicked
		if err := held.Settle(used); err != nil {
			log.Print(err)
		}
	}()
	out := http.NewResponseController(w)
	err = g.model(r.Context(), string(prompt), func(piece string, tokens int) error {
		used += tokens
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

func main() {
	listen := flag.String("listen", "", "the address to serve at, such as 127.0.0.1:8080")
	flag.Parse()
	limiter, err := newLimiter()
	if err != nil {
		log.Fatal(err)
	}
	g := &gateway{limiter, repeat}
	if *listen == "" {
		if err := g.show(os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	server := http.Server{Addr: *listen, Handler: g, ReadHeaderTimeout: time.Second}
	log.Print(server.ListenAndServe())
}

// show sends five requests to g, which together reserve all 20,000 tokens of a client, and a sixth one
// while they are answered. It writes the results to out.
func (g *gateway) show(out io.Writer) error {
	server := httptest.NewServer(g)
	defer server.Close()
	var answers []*bufio.Reader
	for range 6 {
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
			fmt.Fprintf(out, "denied: %s, Retry-After: %s\n", res.Status, res.Header.Get("Retry-After"))
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
	res, err := g.limiter.Peek(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/v1/chat"})
	fmt.Fprintf(out, "%d of 20000 tokens are left\n", res.Remaining)
	return err
}
