package frameworks

import (
	"cmp"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

var netHTTP = framework{
	name:  "net/http",
	spell: func(route string) string { return route },
	build: func(s *service) (http.Handler, error) {
		mux := http.NewServeMux()
		m, err := httplimit.New(s.limiter, s.httpConfig(httplimit.Pattern(mux)))
		if err != nil {
			return nil, err
		}
		for _, route := range httpRoutes(s, m) {
			mux.HandleFunc(route.method+" "+route.path, route.handle)
		}
		mux.Handle("GET /twice", m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "twice") })))
		return recovered(m.Handler(mux)), nil
	},
}

var onChi = framework{
	name:  "chi",
	spell: func(route string) string { return route },
	own:   map[string]string{"an encoded path": "routes by the encoded path, so it finds no route"},
	build: func(s *service) (http.Handler, error) {
		router := chi.NewRouter()
		find := func(r *http.Request) string {
			found := chi.RouteContext(r.Context())
			return router.Find(chi.NewRouteContext(), cmp.Or(found.RouteMethod, r.Method), cmp.Or(found.RoutePath, r.URL.RawPath, r.URL.Path))
		}
		config := s.httpConfig(func(r *http.Request) string {
			if path := find(r); path != "" {
				return r.Method + " " + path
			}
			return "unmatched"
		})
		if config.Endpoint == nil {
			config.Endpoint = func(r *http.Request) string { return cmp.Or(find(r), "unmatched") }
		}
		m, err := httplimit.New(s.limiter, config)
		if err != nil {
			return nil, err
		}
		router.Use(recovered, chimiddleware.GetHead, m.Handler)
		for _, route := range httpRoutes(s, m) {
			router.MethodFunc(route.method, route.path, route.handle)
		}
		router.With(m.Handler).Get("/twice", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "twice") })
		return router, nil
	},
}

// recovered answers 500 if next panics.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// httpConfig returns the Config of s. The function pattern is Config.Endpoint if options.pattern is set.
func (s *service) httpConfig(pattern func(*http.Request) string) httplimit.Config {
	o := &s.options
	c := httplimit.Config{
		Proxies: o.proxies, Info: o.info, Headers: o.headers, SkipNetworks: o.skipNetworks, ShowShared: o.shared, Log: o.log,
	}
	if o.users {
		c.Client = func(r *http.Request) (client, tier string, ok bool) { return user(r.Header.Get) }
	}
	if o.key {
		c.Client = httplimit.APIKey("X-API-Key", find)
	}
	if o.count != nil {
		c.Count = func(_ *http.Request, status int) bool { return o.count(status) }
	}
	if o.healthy {
		c.Skip = httplimit.SkipPaths("/healthz")
	}
	if o.preflight {
		c.Skip = httplimit.Preflight
	}
	if o.pattern {
		c.Endpoint = pattern
	}
	if o.prepares() {
		c.Prepare = func(_ *http.Request, q *ratelimit.Request) { o.prepare(q) }
	}
	if o.forgive {
		c.Error = func(*http.Request, error) bool { return true }
	}
	if o.denied {
		c.Denied = func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Info) { text(w, 420, "slow down") }
	}
	if o.blocked {
		c.Blocked = func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Info) {
			text(w, http.StatusForbidden, "go away")
		}
	}
	return c
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// An httpRoute is a route with a handler of net/http.
type httpRoute struct {
	method, path string
	handle       http.HandlerFunc
}

// httpRoutes returns the routes of s, but for /twice.
func httpRoutes(s *service, m *httplimit.Middleware) []httpRoute {
	return []httpRoute{
		{http.MethodGet, "/items/{id}", func(w http.ResponseWriter, r *http.Request) {
			text(w, http.StatusOK, "item "+cmp.Or(r.PathValue("id"), chi.URLParam(r, "id")))
		}},
		{http.MethodPost, "/login", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Password") == "right" {
				text(w, http.StatusOK, "welcome")
				return
			}
			text(w, http.StatusUnauthorized, "wrong password")
		}},
		{http.MethodGet, "/panic", func(http.ResponseWriter, *http.Request) { panic("a bug") }},
		{http.MethodGet, "/stream", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "one\n")
			_ = http.NewResponseController(w).Flush()
			<-s.release
			_, _ = io.WriteString(w, "two\n")
		}},
		{http.MethodGet, "/slow", func(w http.ResponseWriter, _ *http.Request) {
			s.running <- struct{}{}
			<-s.release
			text(w, http.StatusOK, "done")
		}},
		{http.MethodGet, "/empty", func(http.ResponseWriter, *http.Request) {}},
		{http.MethodGet, "/info", func(w http.ResponseWriter, r *http.Request) {
			text(w, http.StatusOK, infoText(httplimit.FromContext(r.Context())))
		}},
		{http.MethodGet, "/mail", func(w http.ResponseWriter, r *http.Request) {
			if m.Allow(w, r, mail) {
				text(w, http.StatusOK, "sent")
			}
		}},
		{http.MethodGet, "/job", func(w http.ResponseWriter, r *http.Request) {
			units, ok := m.Reserve(w, r, job, time.Minute)
			if !ok {
				return
			}
			_ = units.Settle(1)
			text(w, http.StatusOK, "worked")
		}},
		{http.MethodGet, "/healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "healthy") }},
	}
}
