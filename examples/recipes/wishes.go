package recipes

import (
	"io"
	"log"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/coder/websocket"
	"github.com/rs/cors"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// loginRules returns two rules that limit only the logins with a wrong password.
func loginRules() []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "wrong by name", Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(10)},
		{Name: "wrong by address", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(50)},
	}
}

// accountOf returns the same name for all spellings of an account's name: upper and lower case, full-width
// letters, letters with separate accents, more spaces, invisible characters. The limit and the search for
// the account must both use what accountOf returns.
func accountOf(name string) string {
	visible := strings.Map(func(r rune) rune {
		if !unicode.IsSpace(r) && unicode.In(r, unicode.C, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return r
	}, name)
	folded := norm.NFKC.String(cases.Fold().String(strings.ToUpper(norm.NFKC.String(visible))))
	return strings.Join(strings.Fields(folded), " ")
}

// login reserves one unit in each of the two rules and checks the password. If the password is right, it
// gives the units back. So simultaneous guesses cannot exceed the limit, and a denied client does not
// learn whether its password was right.
func login(m *httplimit.Middleware, valid func(name, password string) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := accountOf(r.FormValue("name"))
		attempt, ok := m.Reserve(w, r, ratelimit.Request{
			Client: name,
			Rules:  []string{"wrong by name", "wrong by address"},
		}, time.Minute)
		if !ok {
			return // the client has its answer
		}
		if !valid(name, r.FormValue("password")) {
			http.Error(w, "wrong name or password", http.StatusUnauthorized) // the units stay charged
			return
		}
		if err := attempt.Cancel(); err != nil {
			log.Print(err)
		}
		_, _ = io.WriteString(w, "welcome")
	}
}

// costs has the cost, in units, of each endpoint whose requests cost more than one unit.
var costs = map[string]int{"/search": 5, "/export": 50}

// withCosts charges each request the cost of its endpoint in costs, or one unit if it is not in costs.
func withCosts(limiter *ratelimit.RateLimiter) (*httplimit.Middleware, error) {
	return httplimit.New(limiter, httplimit.Config{
		Prepare: func(_ *http.Request, q *ratelimit.Request) { q.Cost = costs[q.Endpoint] },
	})
}

// A meter is a ResponseWriter that counts the bytes that are written to it.
type meter struct {
	http.ResponseWriter

	bytes int
}

func (m *meter) Write(p []byte) (int, error) {
	n, err := m.ResponseWriter.Write(p)
	m.bytes += n
	return n, err
}

// Unwrap lets an http.ResponseController use the other methods of the wrapped ResponseWriter.
func (m *meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// byKilobyte limits the requests of each client, and the kilobytes that next writes to it, in one decision: what is
// denied has charged neither. It reserves 100 kilobytes. If next writes more, the rest is charged even past the limit,
// and the client has to wait longer before its next request.
func byKilobyte(m *httplimit.Middleware, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held, ok := m.Reserve(w, r, ratelimit.Request{Costs: []ratelimit.Cost{{Unit: "kilobytes", N: 100}}}, time.Hour)
		if !ok {
			return
		}
		counted := &meter{ResponseWriter: w}
		defer func() { // runs even if the client has left, or next has panicked
			if err := held.SettleCosts(ratelimit.Cost{Unit: "kilobytes", N: (counted.bytes + 1023) / 1024}); err != nil {
				log.Print(err)
			}
		}()
		next.ServeHTTP(counted, r)
	})
}

// withHealth answers health checks without asking the limiter, so they cost nothing.
func withHealth(m *httplimit.Middleware, api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/", m.Handler(api))
	return mux
}

// withCORS lets scripts of another origin read the answers to denied requests and the RateLimit header
// fields. It answers preflight requests without asking the limiter, so they cost nothing.
func withCORS(m *httplimit.Middleware, api http.Handler) http.Handler {
	policy := cors.New(cors.Options{
		AllowedOrigins: []string{"https://shop.example"},
		AllowedMethods: []string{http.MethodGet, http.MethodPut},
		ExposedHeaders: httplimit.ExposedHeaders(httplimit.HeadersDraft11),
	})
	return policy.Handler(m.Handler(api))
}

// echoMessages answers the messages of a websocket. Each message waits until the rule "messages" grants
// it, and no further message is read meanwhile, so the client cannot send faster than that rule grants.
func echoMessages(limiter *ratelimit.RateLimiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		info, _ := httplimit.FromContext(r.Context())
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // Accept has answered the request with an error
		}
		defer func() { _ = conn.CloseNow() }()
		for {
			kind, message, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			q := ratelimit.Request{Client: info.Request.Client, Tier: info.Request.Tier, Rules: []string{"messages"}}
			if _, err := limiter.Wait(r.Context(), q); err != nil {
				_ = conn.Close(websocket.StatusTryAgainLater, "too many messages")
				return
			}
			if err := conn.Write(r.Context(), kind, message); err != nil {
				return
			}
		}
	}
}

// overloaded answers 503 if only the limit on all clients together was exceeded. If the client has
// exceeded another limit, overloaded answers 429.
func overloaded(w http.ResponseWriter, r *http.Request, i *httplimit.Info) {
	shared := *i
	for _, rule := range i.Rules {
		if !rule.Allowed && rule.Rule != "everybody" {
			httplimit.Problem(w, r, i) // answers 429, because the client has exceeded another limit
			return
		}
	}
	shared.Status = http.StatusServiceUnavailable
	httplimit.Problem(w, r, &shared)
}
