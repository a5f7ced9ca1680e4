package recipes

import (
	"io"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/cors"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// loginRules limit wrong passwords only.
func loginRules() []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "wrong by name", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(10)},
		{Name: "wrong by address", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(50)},
	}
}

// login holds a unit of both rules while it checks a password, and gives it back if that is right. So
// guesses at the same time cannot exceed the limit, and who is over it does not learn which is right.
func login(limiter *ratelimit.RateLimiter, valid func(name, password string) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.FormValue("name")
		info, _ := httplimit.FromContext(r.Context())
		attempt, ok := hold(w, r, limiter, ratelimit.Request{
			Client: name,
			IP:     info.Request.IP,
			Rules:  []string{"wrong by name", "wrong by address"},
		})
		if !ok {
			return
		}
		if !valid(name, r.FormValue("password")) {
			http.Error(w, "wrong name or password", http.StatusUnauthorized) // the unit stays charged
			return
		}
		if err := attempt.Cancel(); err != nil {
			log.Print(err)
		}
		_, _ = io.WriteString(w, "welcome")
	}
}

// hold reserves what q takes, or answers the denial.
func hold(w http.ResponseWriter, r *http.Request, limiter *ratelimit.RateLimiter, q ratelimit.Request) (held *ratelimit.Reservation, ok bool) {
	held, err := limiter.Reserve(r.Context(), q, time.Hour)
	res := held.Result()
	switch {
	case res.Allowed:
		return held, true // err, if there is one, is that of a store
	case err != nil && res == (ratelimit.Result{}):
		log.Print(err) // such as an unknown rule
		http.Error(w, "the limiter could not decide", http.StatusInternalServerError)
		return nil, false
	}
	if seconds, ok := res.RetryAfterSeconds(); ok {
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	httplimit.Problem(w, r, &httplimit.Info{Result: res})
	return nil, false
}

// costs are what requests take that take more than one unit.
var costs = map[string]int{"/search": 5, "/export": 50}

// withCosts limits by what requests cost.
func withCosts(limiter *ratelimit.RateLimiter) (*httplimit.Middleware, error) {
	return httplimit.New(limiter, httplimit.Config{
		Prepare: func(_ *http.Request, q *ratelimit.Request) { q.Cost = costs[q.Endpoint] },
	})
}

// A meter counts what is written, in units of a kilobyte.
type meter struct {
	http.ResponseWriter

	bytes int
}

func (m *meter) Write(p []byte) (int, error) {
	n, err := m.ResponseWriter.Write(p)
	m.bytes += n
	return n, err
}

// Unwrap is for http.ResponseController.
func (m *meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// byKilobyte charges each client for what next has written to it. It holds 100 units until that is
// known; what is more is charged past the limit, and delays the next request. kilobytes is not the
// limiter of the requests: a rule for all requests together would be charged for kilobytes there.
func byKilobyte(kilobytes *ratelimit.RateLimiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := httplimit.FromContext(r.Context())
		held, ok := hold(w, r, kilobytes, ratelimit.Request{Client: info.Request.Client, Tier: info.Request.Tier, Cost: 100})
		if !ok {
			return
		}
		m := &meter{ResponseWriter: w}
		defer func() { // also if the client has left, or next has panicked
			if err := held.Settle((m.bytes + 1023) / 1024); err != nil {
				log.Print(err)
			}
		}()
		next.ServeHTTP(m, r)
	})
}

// withHealth answers health checks outside of the limit.
func withHealth(m *httplimit.Middleware, api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/", m.Handler(api))
	return mux
}

// withCORS lets scripts of another origin read denials and what is left. It answers preflights
// itself, so they cost nothing.
func withCORS(m *httplimit.Middleware, api http.Handler) http.Handler {
	policy := cors.New(cors.Options{
		AllowedOrigins: []string{"https://shop.example"},
		AllowedMethods: []string{http.MethodGet, http.MethodPut},
		ExposedHeaders: httplimit.ExposedHeaders(httplimit.HeadersDraft11),
	})
	return policy.Handler(m.Handler(api))
}

// echoMessages is a websocket whose messages wait for their turn. While one waits, no further one is
// read, so the client can send no faster than the rule "messages" grants.
func echoMessages(limiter *ratelimit.RateLimiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		info, _ := httplimit.FromContext(r.Context())
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has answered
		}
		defer func() { _ = conn.CloseNow() }()
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			if _, err := limiter.Wait(r.Context(), ratelimit.Request{Client: info.Request.Client, Tier: info.Request.Tier, Rules: []string{"messages"}}); err != nil {
				_ = conn.Close(websocket.StatusTryAgainLater, "too many messages")
				return
			}
			if err := conn.Write(r.Context(), kind, message); err != nil {
				return
			}
		}
	}
}

// overloaded answers 503 if it is not this client who has asked too often, but all together.
func overloaded(w http.ResponseWriter, r *http.Request, i *httplimit.Info) {
	shared := *i
	for _, rule := range i.Rules {
		if !rule.Allowed && rule.Rule != "everybody" {
			httplimit.Problem(w, r, i) // 429: this client has
			return
		}
	}
	shared.Status = http.StatusServiceUnavailable
	httplimit.Problem(w, r, &shared)
}
