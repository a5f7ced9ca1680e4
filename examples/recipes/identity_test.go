package recipes

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

func TestAPIKeys(t *testing.T) {
	keys := map[string][2]string{"k-1": {"shop-1", "paid"}, "k-2": {"shop-2", "free"}, "k-3": {"us", "staff"}}
	m, err := byAPIKey(func(key string) (client, tier string, ok bool) {
		found, ok := keys[key]
		return found[0], found[1], ok
	})
	require.NoError(t, err)
	url := serve(t, m.Handler(http.HandlerFunc(ok)))
	quota := func(fields ...string) string {
		return ask(t, http.MethodGet, url, fields...).header.Get("RateLimit-Policy")
	}
	assert.Equal(t, `"per-client";q=600;w=60`, quota("X-API-Key", "k-1"))
	assert.Equal(t, `"per-client";q=60;w=60`, quota("X-API-Key", "k-2"))
	assert.Empty(t, quota("X-API-Key", "k-3"))
	assert.Equal(t, `"per-client";q=60;w=60`, quota())
	granted := 0
	for i := range 200 {
		if ask(t, http.MethodGet, url, "X-API-Key", fmt.Sprint("made up ", i)).status == http.StatusOK {
			granted++
		}
	}
	assert.Less(t, granted, 200, "keys that are made up share the budget of their address")
}

func TestToken(t *testing.T) {
	secret := []byte("a secret of at least 32 bytes ......")
	sign := func(method jwt.SigningMethod, key any, c claims) string {
		token, err := jwt.NewWithClaims(method, c).SignedString(key)
		require.NoError(t, err)
		return "Bearer " + token
	}
	of := func(user, plan string, valid time.Duration) claims {
		return claims{jwt.RegisteredClaims{Subject: user, ExpiresAt: jwt.NewNumericDate(time.Now().Add(valid))}, plan}
	}
	perUser := limiter(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(2)}})
	h, err := byToken(secret, perMinute(t, 11), perUser, http.HandlerFunc(ok))
	require.NoError(t, err)
	url := serve(t, h)
	good := sign(jwt.SigningMethodHS256, secret, of("alice", "", time.Hour))
	assert.Equal(t, []int{200, 429}, statuses(t, 2, url, "Authorization", good))
	assert.Equal(t, []int{200, 200, 429}, statuses(t, 3, url,
		"Authorization", sign(jwt.SigningMethodHS256, secret, of("bob", "paid", time.Hour))))
	for why, bad := range map[string]string{
		"another secret": sign(jwt.SigningMethodHS256, []byte("another"), of("carol", "paid", time.Hour)),
		"another method": sign(jwt.SigningMethodHS512, secret, of("carol", "paid", time.Hour)),
		"expired":        sign(jwt.SigningMethodHS256, secret, of("carol", "paid", -time.Hour)),
		"not signed":     sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, of("carol", "paid", time.Hour)),
		"no user":        sign(jwt.SigningMethodHS256, secret, of("", "paid", time.Hour)),
		"no token":       "",
	} {
		assert.Equal(t, 401, ask(t, http.MethodGet, url, "Authorization", bad).status, why)
	}
	assert.Equal(t, 429, ask(t, http.MethodGet, url, "Authorization", "guess").status, "eleven requests from the address")
}

func TestNetworks(t *testing.T) {
	h := middleware(t, limiter(t, networks(), nil), httplimit.Config{Prepare: withSite}).Handler(http.HandlerFunc(ok))
	from := func(address string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	granted := 0
	for i := range 20 { // twenty networks of one site
		for range 70 {
			if from("[2001:db8:1:"+string(rune('a'+i%6))+string(rune('0'+i/6))+"::7]:99") == http.StatusOK {
				granted++
			}
		}
	}
	assert.Equal(t, 600, granted, "rotation ends at the site")
	assert.Equal(t, http.StatusOK, from("[2001:db8:2::7]:99"), "a neighbour is not harmed")
	denied := 0
	for i := range 1000 { // each of these has its own budget for sites, too
		if from(fmt.Sprintf("10.1.%d.%d:99", i/250, i%250)) != http.StatusOK {
			denied++
		}
	}
	assert.Zero(t, denied, "IPv4 clients do not share a site")
}
