package recipes

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// byAPIKey limits customers by their plan, and everybody else by address. The function find returns the
// customer of an API key.
func byAPIKey(find func(key string) (client, tier string, ok bool)) (*httplimit.Middleware, error) {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{
		Name: "per-client",
		Rate: ratelimit.PerMinute(60),
		Tiers: map[string]ratelimit.Rate{
			"paid":  ratelimit.PerMinute(600),
			"staff": ratelimit.Unlimited,
		},
	})
	if err != nil {
		return nil, err
	}
	return httplimit.New(limiter, httplimit.Config{Client: httplimit.APIKey("X-API-Key", find)})
}

// userKey is the key under which a context has the claims of a checked token.
type userKey struct{}

// claims are the claims in the tokens of this service.
type claims struct {
	jwt.RegisteredClaims

	Plan string `json:"plan"`
}

// authenticate passes a request to next only if the request has a token that is signed with secret. It
// puts the claims of the token into the context of the request.
func authenticate(secret []byte, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c claims
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return secret, nil },
			jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
		if err != nil || c.Subject == "" {
			http.Error(w, "a valid token is needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, &c)))
	})
}

// byToken limits all requests by address. Requests with a valid token are also limited by user.
func byToken(secret []byte, perAddress, perUser *ratelimit.RateLimiter, api http.Handler) (http.Handler, error) {
	outer, err := httplimit.New(perAddress, httplimit.Config{})
	if err != nil {
		return nil, err
	}
	inner, err := httplimit.New(perUser, httplimit.Config{
		Client: func(r *http.Request) (client, tier string, ok bool) {
			c, ok := r.Context().Value(userKey{}).(*claims)
			if !ok {
				return "", "", false
			}
			return c.Subject, c.Plan, true
		},
	})
	if err != nil {
		return nil, err
	}
	return outer.Handler(authenticate(secret, inner.Handler(api))), nil
}

// networks returns two rules for IPv6 clients. One limits each /64 network, which counts as one address
// here; the other limits each /48 network.
func networks() []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "per-address", Endpoint: "*", Key: ratelimit.KeyIP, Rate: ratelimit.PerMinute(60)},
		{Name: "per-site", Endpoint: "*", Key: ratelimit.KeyAttr("site"), Rate: ratelimit.PerMinute(600)},
	}
}

// withSite sets the attribute "site" of a request to the /48 network that contains the client's address.
func withSite(_ *http.Request, q *ratelimit.Request) {
	site := q.IP // for IPv4, the address itself is the site
	if prefix, err := netip.ParsePrefix(q.IP); err == nil {
		around, _ := prefix.Addr().Prefix(48)
		site = around.String()
	}
	q.Attrs = map[string]string{"site": site}
}
