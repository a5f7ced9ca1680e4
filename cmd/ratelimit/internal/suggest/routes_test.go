package suggest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/suggest"
)

func TestRoutesOf(t *testing.T) {
	r := new(suggest.Routes)
	for path, want := range map[string]string{
		"/users/45": "/users/{id}", "/users/45/orders/7": "/users/{id}/orders/{id2}", "/": "/", "/search": "/search", "/v1/items": "/v1/items",
		"/o/3f2504e0-4f89-41d3-9a0c-0305e82c3301": "/o/{id}", "/o/507f1f77bcf86cd799439011": "/o/{id}",
		"/o/01ARZ3NDEKTSV4RRFFQ69G5FAV": "/o/{id}",
		"/o/facade":                     "/o/facade", "/static/app.js": "/static/app.js",
		"/blog/how-to-limit-rates-in-2026": "/blog/how-to-limit-rates-in-2026",
		"GET /users/45":                    "GET /users/45", "name": "name",
	} {
		for range 2 {
			require.Equal(t, want, r.Of(path))
		}
	}
	require.Equal(t, []string{"/o/{id}", "/users/{id}", "/users/{id}/orders/{id2}"}, r.Names())
}

// TestGroupRare has articles with names, and pages that are frequent.
func TestGroupRare(t *testing.T) {
	s := suggest.NewSample(100_000)
	add := func(n int, path string) {
		for i := range n {
			s.Add(&suggest.Request{Time: int64(i), Client: fmt.Sprint("c", i), Endpoint: path, Cost: 1})
		}
	}
	for i := range 40 {
		add(5, "/blog/article-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
		add(2, "/blog/article-"+string(rune('a'+i%26))+string(rune('a'+i/26))+"/comments")
	}
	add(100, "/login")
	add(30, "/docs/start")
	for i := range 30 {
		add(1, fmt.Sprintf("/docs/%c%c", 'a'+i%26, 'a'+i/26))
	}
	require.Equal(t, []string{"/blog/{name}", "/blog/{name}/comments"}, s.GroupRare())
	groups := s.Groups(4)
	got := map[string]uint64{}
	for _, g := range groups {
		got[g.Endpoint] = g.Requests
	}
	require.Equal(t, map[string]uint64{"/blog/{name}": 200, "/blog/{name}/comments": 80, "/login": 100, "/docs/start": 30, "": 30}, got,
		"one page of /docs has half of the requests there, so that its pages stay apart")
	require.Empty(t, suggest.NewSample(10).GroupRare())
}
