package frameworks

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/connectlimit"
)

// connectService is the service of all procedures.
const connectService = "/app"

// procedureOf returns the procedure in place of a route. It returns other endpoints as they are.
func procedureOf(endpoint string) string {
	if strings.HasPrefix(endpoint, "/") {
		return connectService + strings.TrimSuffix(endpoint, "/{id}")
	}
	return endpoint
}

// onConnect serves procedures in place of routes. Its clients speak the protocol Connect, so each request becomes a POST
// with a message, and the route of its path becomes the procedure.
var onConnect = framework{
	name:  "connect",
	spell: procedureOf,
	build: func(s *service) (http.Handler, error) {
		limit, err := connectlimit.New(s.limiter, s.connectConfig())
		if err != nil {
			return nil, err
		}
		mux := http.NewServeMux()
		for _, route := range []string{"/items/{id}", "/login", "/panic", "/empty"} {
			procedure := procedureOf(route)
			h := connect.NewUnaryHandler(procedure, answerOf(route), connect.WithInterceptors(limit),
				connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error { return errBug }))
			mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
				r.Method, r.URL.Path = http.MethodPost, procedure
				r.Header.Set("Content-Type", "application/proto")
				h.ServeHTTP(w, r)
			})
		}
		return mux, nil
	},
}

var errBug = errors.New("a bug")

// answerOf returns the handler of a route.
func answerOf(route string) func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
	return func(_ context.Context, r *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		switch {
		case route == "/panic":
			panic("a bug")
		case route == "/login" && r.Header().Get("X-Password") != "right":
			return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
		}
		return connect.NewResponse(&emptypb.Empty{}), nil
	}
}

func (s *service) connectConfig() connectlimit.Config {
	o := &s.options
	c := connectlimit.Config{
		Proxies: o.proxies, Info: o.info, Headers: o.headers, SkipNetworks: o.skipNetworks, ShowShared: o.shared, Log: o.log,
	}
	if o.users {
		c.Client = func(c *connectlimit.Call) (client, tier string, ok bool) { return user(c.Header.Get) }
	}
	if o.count != nil {
		c.Count = func(_ *connectlimit.Call, status int) bool { return o.count(status) }
	}
	if o.prepares() {
		c.Prepare = func(_ *connectlimit.Call, q *ratelimit.Request) { o.prepare(q) }
	}
	if o.forgive {
		c.Error = func(*connectlimit.Call, error) bool { return true }
	}
	return c
}

// outline matches the status and the header fields of an answer, but not its body, which is a problem document in one
// protocol and an error of Connect in the other; failed matches the status of an error, whose header fields Connect drops.
var (
	outline = regexp.MustCompile(`(?s)(: \d{3}(?: \[[A-Z][\w-]*: [^\]]*\])*).*$`)
	failed  = regexp.MustCompile(`(: (?:401|500)) .*$`)
)

// TestConnect runs the rows of the table that procedures allow over Connect. The statuses and the header fields must be
// those of net/http, but a handler's error lacks the fields.
func TestConnect(t *testing.T) {
	allowed := map[string]bool{
		"the address of the connection is the client": true, "a trusted proxy tells the address": true,
		"another field of a proxy, and hops": true, "users and plans": true, "header fields of several rules": true,
		"a panic stays charged": true, "a request that cannot be decided": true, "a store that fails": true, "only failed logins count": true,
	}
	for _, row := range table {
		if !allowed[row.name] {
			continue
		}
		delete(allowed, row.name)
		t.Run(row.name, func(t *testing.T) {
			want, got := row.play(t, &netHTTP), row.play(t, &onConnect)
			assert.NotEmpty(t, want)
			assert.Equal(t, outlines(want), outlines(got))
		})
	}
	assert.Empty(t, allowed, "no row has this name")
}

// outlines returns the statuses and header fields of these answers.
func outlines(answers []string) (short []string) {
	for _, answer := range answers {
		answer = strings.ReplaceAll(answer, " [X-Content-Type-Options: nosniff]", "") // guards a document
		answer = strings.ReplaceAll(answer, `"`+connectService+"/", `"/`)             // rules without a name have that of their endpoint
		short = append(short, failed.ReplaceAllString(outline.ReplaceAllString(answer, "$1"), "$1"))
	}
	return short
}
