package main

import (
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

// customerOf returns the customer to whom the API key belongs, and the plan of this customer. A real service
// reads them from a database.
func customerOf(key string) (client, tier string, ok bool) {
	switch key {
	case "k-123":
		return "shop-7", "paid", true
	case "k-456":
		return "shop-8", "free", true
	}
	return "", "", false
}

// withServeMux returns the API on an http.ServeMux. Its patterns are the endpoints of the rules.
func withServeMux(m *httplimit.Middleware) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", answer)
	mux.HandleFunc("GET /search", answer)
	mux.HandleFunc("GET /items/{id}", answer)
	mux.HandleFunc("GET /healthz", answer)
	return m.Handler(mux)
}

// withChi returns the API on a router of chi. The middleware of a group runs when chi has found the
// route, so it knows the endpoint; requests without a route are not limited here.
func withChi(m *httplimit.Middleware) http.Handler {
	router := chi.NewRouter()
	router.Group(func(limited chi.Router) {
		limited.Use(m.Handler)
		limited.Post("/login", answer)
		limited.Get("/search", answer)
		limited.Get("/items/{id}", answer)
	})
	router.Get("/healthz", answer)
	return router
}

// answer writes the path and the query of the request.
func answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// An error is ignored, because it means that the client has closed the connection.
	_ = json.NewEncoder(w).Encode(map[string]string{"path": r.URL.Path, "query": r.URL.RawQuery})
}
