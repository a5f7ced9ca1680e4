// Llmgateway is an HTTP gateway in front of a language model. It holds 4,000 tokens when a
// request arrives, and settles for those that the answer has used, also if the client leaves
// before the end. The model here repeats the prompt, a token for each word:
//
//	go run ./examples/llmgateway &
//	curl -N -H 'X-Client: alice' -d 'one two three' http://127.0.0.1:8080/v1/chat
package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// hold is how many tokens a request holds until it is known what it has used.
const hold = 4000

// A model answers a prompt piece by piece. It calls emit with each piece and the tokens that the
// piece has used, and ends when emit returns an error or ctx ends.
type model func(ctx context.Context, prompt string, emit func(piece string, tokens int) error) error

// A gateway limits how many tokens each client uses.
type gateway struct {
	limiter *ratelimit.RateLimiter
	model   model
}

// newLimiter returns the limiter of the gateway: 20,000 tokens an hour, and at most so many at once.
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
		log.Print(err) // the Result is the failure policy's, or a denial
	}
	if res := held.Result(); !res.Allowed {
		if s, ok := res.RetryAfterSeconds(); ok {
			w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
		}
		http.Error(w, "too many tokens", http.StatusTooManyRequests)
		return
	}

	used := 0
	defer func() { // also if the client has left, or the model has failed or panicked
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
	limiter, err := newLimiter()
	if err != nil {
		log.Print(err)
		os.Exit(1)
	}
	server := http.Server{Addr: "127.0.0.1:8080", Handler: &gateway{limiter, repeat}, ReadHeaderTimeout: time.Second}
	log.Print(server.ListenAndServe())
}
