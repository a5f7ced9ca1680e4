package recipes

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// items checks that a router names its route: two of three requests pass, whatever their id is, and
// the handler and all others are not harmed.
func items(t *testing.T, url string) {
	t.Helper()
	assert.Equal(t, "ok /items/1", ask(t, http.MethodGet, url+"/items/1").body)
	assert.Equal(t, http.StatusOK, ask(t, http.MethodGet, url+"/items/2").status)
	denied := ask(t, http.MethodGet, url+"/items/3")
	assert.Equal(t, http.StatusTooManyRequests, denied.status)
	assert.Equal(t, "30", denied.header.Get("Retry-After"))
	assert.NotContains(t, denied.body, "ok /items", "the handler is not called")
	assert.Equal(t, http.StatusOK, ask(t, http.MethodGet, url+"/search").status, "another route has another rule")
}

// unmatched checks that requests without a route share one budget of four.
func unmatched(t *testing.T, url string) {
	t.Helper()
	got := []int{}
	for _, path := range []string{"/nothing", "/Items/1", "//items/1", "/items/1/2"} {
		got = append(got, ask(t, http.MethodGet, url+path).status)
	}
	assert.NotContains(t, got, http.StatusOK)
	assert.Contains(t, got, http.StatusTooManyRequests, "the search and three of these")
}

func newMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", ok)
	mux.HandleFunc("GET /search", ok)
	return mux
}

func TestServeMux(t *testing.T) {
	url := serve(t, aroundServeMux(middleware(t, byRoute(t, "/items/{id}"), httplimit.Config{}), newMux()))
	items(t, url)

	wrapped := 0
	compress := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wrapped++
			next.ServeHTTP(w, r)
		})
	}
	h, err := aroundServeMuxAndMore(byRoute(t, "/items/{id}"), newMux(), compress)
	require.NoError(t, err)
	items(t, serve(t, h))
	assert.Equal(t, 3, wrapped, "what is denied costs no compression")
}

func newChi() chi.Router {
	router := chi.NewRouter()
	router.Get("/items/{id}", ok)
	router.Get("/search", ok)
	return router
}

func TestAroundChi(t *testing.T) {
	router := newChi()
	m, err := aroundChi(byRoute(t, "/items/{id}"), router)
	require.NoError(t, err)
	url := serve(t, m.Handler(router))
	items(t, url)
	unmatched(t, url)
}

// TestFind compares the route that aroundChi names with that which chi takes, and looks for paths
// that step around a rule.
func TestFind(t *testing.T) {
	router, sub := chi.NewRouter(), chi.NewRouter()
	taken := ""
	note := func(_ http.ResponseWriter, r *http.Request) { taken = chi.RouteContext(r.Context()).RoutePattern() }
	for _, route := range []string{"/", "/items/{id}", "/items/{id}/parts/{part}", "/files/*", "/old/{id:[0-9]+}"} {
		router.Get(route, note)
	}
	router.Post("/items/{id}", note)
	sub.Get("/users/{id}", note)
	router.Mount("/admin", sub)
	var named string
	l := limiter(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1000), Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
		named = r.Endpoint
		return ratelimit.Rate{}, false
	}})
	m, err := aroundChi(l, router)
	require.NoError(t, err)
	h := m.Handler(router)
	matched := 0
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead, "BREW"} {
		for _, target := range []string{
			"/", "/items/7", "/items/a%2Fb", "/items/%61", "/%69tems/7", "//items/7", "/items/7/", "/items/7/parts/x%2Fy",
			"/files/a/b", "/files/", "/old/12", "/old/x", "/admin/users/7", "/admin/users/a%2Fb", "/admin/", "/nothing", "/items/..",
		} {
			taken, named = "", ""
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, target, nil))
			if taken != "" {
				matched++
				assert.Equal(t, taken, named, "%s %s", method, target)
			} else {
				assert.Contains(t, []string{"unmatched", "/admin/"}, named, "%s %s: no text of the client's", method, target)
			}
		}
	}
	assert.Greater(t, matched, 10)
}

func TestInsideChi(t *testing.T) {
	router := chi.NewRouter()
	insideChi(middleware(t, byRoute(t, "/items/{id}"), httplimit.Config{}), router, ok)
	items(t, serve(t, router))
}

func TestGin(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(forGin(middleware(t, byRoute(t, "/items/:id"), httplimit.Config{})))
	called := 0
	handle := func(c *gin.Context) {
		called++
		info, found := httplimit.FromContext(c.Request.Context())
		assert.True(t, found)
		assert.True(t, info.Result.Allowed)
		c.String(http.StatusOK, "ok %s", c.Request.URL.Path)
	}
	router.GET("/items/:id", handle)
	router.GET("/search", handle)
	url := serve(t, router)
	items(t, url)
	unmatched(t, url)
	assert.Equal(t, 3, called)
}

func TestEcho(t *testing.T) {
	router := echo.New()
	router.Use(forEcho(middleware(t, byRoute(t, "/items/:id"), httplimit.Config{})))
	handle := func(c echo.Context) error {
		_, found := httplimit.FromContext(c.Request().Context())
		assert.True(t, found)
		return c.String(http.StatusOK, "ok "+c.Request().URL.Path)
	}
	router.GET("/items/:id", handle)
	router.GET("/search", handle)
	url := serve(t, router)
	items(t, url)
	unmatched(t, url)
}

// TestCountBehindEcho gives back what does not count: echo answers by the writer of the middleware.
func TestCountBehindEcho(t *testing.T) {
	router := echo.New()
	failed := func(_ *http.Request, status int) bool { return status >= 400 }
	router.Use(forEcho(middleware(t, byRoute(t, "/login"), httplimit.Config{Count: failed})))
	router.GET("/login", func(c echo.Context) error {
		return c.NoContent(map[bool]int{true: 200, false: 401}[c.QueryParam("password") == "right"])
	})
	url := serve(t, router)
	var got []int
	for password := range strings.FieldsSeq("right right right wrong right wrong right") {
		got = append(got, ask(t, http.MethodGet, url+"/login?password="+password).status)
	}
	assert.Equal(t, []int{200, 200, 200, 401, 200, 401, 429}, got)
}

// TestGuessesBehindEcho guesses passwords, and the handler reports each wrong one as an error.
func TestGuessesBehindEcho(t *testing.T) {
	for name, wrong := range map[string]error{"of echo": echo.ErrUnauthorized, "any other": errors.New("wrong password")} {
		router := echo.New()
		failed := func(_ *http.Request, status int) bool { return status >= 400 }
		router.Use(forEcho(middleware(t, byRoute(t, "/login"), httplimit.Config{Count: failed})))
		checked := 0
		router.GET("/login", func(echo.Context) error {
			checked++
			return wrong
		})
		url := serve(t, router)
		got := statuses(t, 10, url+"/login?password=wrong")
		assert.Equal(t, 2, checked, "%s: two a minute", name)
		assert.Equal(t, http.StatusTooManyRequests, got[2], name)
		assert.GreaterOrEqual(t, got[0], http.StatusUnauthorized, name)
	}
}
