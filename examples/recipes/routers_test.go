package recipes

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
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
	url := serve(t, aroundServeMux(middleware(t, byRoute(t), httplimit.Config{}), newMux()))
	items(t, url)

	wrapped := 0
	compress := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wrapped++
			next.ServeHTTP(w, r)
		})
	}
	h, err := aroundServeMuxAndMore(byRoute(t), newMux(), compress)
	require.NoError(t, err)
	items(t, serve(t, h))
	assert.Equal(t, 3, wrapped, "what is denied costs no compression")
}

func TestAroundChi(t *testing.T) {
	router := chi.NewRouter()
	require.NoError(t, aroundChi(byRoute(t), router))
	router.Get("/items/{id}", ok)
	router.Get("/search", ok)
	url := serve(t, router)
	items(t, url)
	unmatched(t, url)
}

// TestFind compares the route that aroundChi names with that which chi takes, and looks for paths and methods
// that step around a rule, also behind the middlewares of chi that change them.
func TestFind(t *testing.T) {
	for name, before := range map[string][]func(http.Handler) http.Handler{
		"nothing":      nil,
		"CleanPath":    {chimiddleware.CleanPath},
		"StripSlashes": {chimiddleware.StripSlashes},
		"GetHead":      {chimiddleware.GetHead},
		"URLFormat":    {chimiddleware.URLFormat},
		"all":          {chimiddleware.CleanPath, chimiddleware.StripSlashes, chimiddleware.URLFormat, chimiddleware.GetHead},
	} {
		t.Run(name, func(t *testing.T) { findAll(t, before) })
	}
}

func findAll(t *testing.T, before []func(http.Handler) http.Handler) {
	router, sub := chi.NewRouter(), chi.NewRouter()
	router.Use(before...)
	var named, taken string
	l := limiter(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1000), Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
		named = r.Endpoint
		return ratelimit.Rate{}, false
	}})
	require.NoError(t, aroundChi(l, router))
	note := func(_ http.ResponseWriter, r *http.Request) { taken = chi.RouteContext(r.Context()).RoutePattern() }
	for _, route := range []string{"/", "/items/{id}", "/items/{id}/parts/{part}", "/files/*", "/old/{id:[0-9]+}"} {
		router.Get(route, note)
	}
	router.Post("/items/{id}", note)
	router.Post("/login", note)
	sub.Get("/users/{id}", note)
	router.Mount("/admin", sub)
	matched := 0
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead, "BREW"} {
		for _, target := range []string{
			"/", "/items/7", "/items/a%2Fb", "/items/%61", "/%69tems/7", "//items/7", "/items/7/", "/items/7/parts/x%2Fy",
			"/files/a/b", "/files/", "/old/12", "/old/x", "/admin/users/7", "/admin/users/a%2Fb", "/admin/", "/nothing", "/items/..",
			"/login", "//login", "/x/../login", "/login/", "/login.json", "//login//", "/x/../login/.json", "/%6cogin", "/%2flogin",
			"/login/.", "/items/7.xml", "/admin/users/7.xml/", "/admin//users/7",
		} {
			taken, named = "", ""
			router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "http://shop.example"+target, nil))
			if taken != "" {
				matched++
				assert.Equal(t, taken, named, "%s %s", method, target)
			} else {
				assert.Contains(t, []string{"unmatched", "/admin", "/admin/"}, named, "%s %s: no text of the client's", method, target)
			}
		}
	}
	assert.Greater(t, matched, 10)
}

// TestGuessesBehindChi tries to log in by each spelling that chi takes for the route. All of them share one rule.
func TestGuessesBehindChi(t *testing.T) {
	for _, row := range []struct {
		before func(http.Handler) http.Handler
		method string
		path   string
	}{
		{chimiddleware.CleanPath, http.MethodPost, "//login"},
		{chimiddleware.CleanPath, http.MethodPost, "/x/../login"},
		{chimiddleware.StripSlashes, http.MethodPost, "/login/"},
		{chimiddleware.GetHead, http.MethodHead, "/search"},
		{chimiddleware.URLFormat, http.MethodPost, "/login.json"},
	} {
		router := chi.NewRouter()
		router.Use(row.before)
		l := limiter(t, []ratelimit.Rule{{Endpoint: "/login", Rate: ratelimit.PerHour(1)}, {Endpoint: "/search", Rate: ratelimit.PerHour(1)}},
			&ratelimit.Rule{Rate: ratelimit.PerHour(1000)})
		require.NoError(t, aroundChi(l, router))
		served := 0
		handle := func(http.ResponseWriter, *http.Request) { served++ }
		router.Post("/login", handle)
		router.Get("/search", handle)
		for range 20 {
			router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), row.method, "http://shop.example"+row.path, nil))
		}
		assert.Equal(t, 1, served, "%s %s", row.method, row.path)
	}
}

// TestMountedChi has a mounted router that changes paths itself, which aroundChi cannot know. The log says so.
func TestMountedChi(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	router := chi.NewRouter()
	require.NoError(t, aroundChi(limiter(t, []ratelimit.Rule{{Endpoint: "/api/login", Rate: ratelimit.PerHour(1)}},
		&ratelimit.Rule{Rate: ratelimit.PerHour(1000)}), router))
	router.Route("/api", func(api chi.Router) {
		api.Use(chimiddleware.StripSlashes)
		api.Post("/login", ok)
	})
	for _, path := range []string{"/api/login", "/api/login/", "/api/login/"} {
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
	}
	assert.Equal(t, 1, strings.Count(log.String(), "\n"))
	assert.Contains(t, log.String(), "rule=/api/login endpoint=unmatched route=/api/login")
}

func TestInsideChi(t *testing.T) {
	router := chi.NewRouter()
	insideChi(middleware(t, byRoute(t), httplimit.Config{}), router, ok)
	items(t, serve(t, router))
}
