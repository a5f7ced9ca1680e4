package frameworks

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/connectlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// connectService is the service of all procedures.
const connectService = "/app"

// procedureOf returns the procedure in place of a route, also of one with a method, such as "GET /items/{id}", because a
// procedure has no methods. It returns other endpoints as they are.
func procedureOf(endpoint string) string {
	if i := strings.IndexByte(endpoint, '/'); i >= 0 {
		return connectService + strings.TrimSuffix(endpoint[i:], "/{id}")
	}
	return endpoint
}

// word is the message of all procedures.
type word = wrapperspb.StringValue

// onConnect serves procedures in place of routes. Its clients speak the protocol Connect with JSON, so each GET or POST
// request becomes a POST request with a message, which has the id in the path, if any.
var onConnect = framework{
	name:  "connect",
	spell: procedureOf,
	blind: true,
	adapt: func(r *http.Request) {
		target, message := r.URL.EscapedPath(), ""
		if rest, id, ok := strings.Cut(target[1:], "/"); ok {
			target, message = "/"+rest, id
		}
		r.URL.RawPath = connectService + target
		r.URL.Path = strings.Replace(r.URL.RawPath, "%69", "i", 1)
		if r.Method != http.MethodGet && r.Method != http.MethodPost {
			return
		}
		r.Method = http.MethodPost
		if r.Header.Get("Content-Type") == "" {
			r.Header.Set("Content-Type", "application/json")
		}
		r.Body = io.NopCloser(strings.NewReader(`"` + message + `"`))
	},
	decode: func(res *http.Response, body string) (text string) {
		if res.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &text) != nil {
			return body
		}
		return text
	},
	build: func(s *service) (http.Handler, error) {
		limit, err := connectlimit.New(s.limiter, s.connectConfig())
		if err != nil {
			return nil, err
		}
		mux := http.NewServeMux()
		for _, route := range []string{"/items", "/login", "/panic", "/slow", "/empty", "/info", "/mail", "/job", "/healthz", "/twice"} {
			with := []connect.Interceptor{limit}
			if route == "/twice" {
				with = append(with, limit)
			}
			procedure := procedureOf(route)
			answer := func(ctx context.Context, r *connect.Request[word]) (*connect.Response[word], error) {
				text, err := s.answerConnect(ctx, limit, route, r)
				if err != nil {
					return nil, err
				}
				return connect.NewResponse(&word{Value: text}), nil
			}
			mux.Handle(procedure, connect.NewUnaryHandler(procedure, answer, connect.WithInterceptors(with...),
				connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error { return errBug })))
		}
		mux.Handle(streamProcedure, connect.NewServerStreamHandler(streamProcedure, s.streamConnect, connect.WithInterceptors(limit)))
		return mux, nil
	},
}

var errBug = errors.New("a bug")

// answerConnect is the handler of the procedure in place of a route.
func (s *service) answerConnect(ctx context.Context, limit *connectlimit.Interceptor, route string, r *connect.Request[word]) (string, error) {
	switch route {
	case "/items":
		return "item " + r.Msg.GetValue(), nil
	case "/login":
		if r.Header().Get("X-Password") != "right" {
			return "", connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
		}
		return "welcome", nil
	case "/panic":
		panic("a bug")
	case "/slow":
		s.running <- struct{}{}
		<-s.release
		return "done", nil
	case "/info":
		return infoText(connectlimit.Info(ctx)), nil
	case "/mail":
		return "sent", limit.Allow(ctx, mail)
	case "/job":
		units, err := limit.Reserve(ctx, job, time.Minute)
		_ = units.Settle(1)
		return "worked", err
	}
	return map[string]string{"/healthz": "healthy", "/twice": "twice"}[route], nil
}

// streamProcedure is the procedure in place of /stream.
const streamProcedure = connectService + "/stream"

// streamConnect is its handler.
func (s *service) streamConnect(_ context.Context, _ *connect.Request[word], stream *connect.ServerStream[word]) error {
	if err := stream.Send(&word{Value: "one"}); err != nil {
		return err
	}
	<-s.release
	return stream.Send(&word{Value: "two"})
}

func (s *service) connectConfig() connectlimit.Config {
	o := &s.options
	c := connectlimit.Config{
		Proxies: o.proxies, Info: o.info, Headers: o.headers, SkipNetworks: o.skipNetworks, ShowShared: o.shared, Log: o.log,
	}
	if o.users {
		c.Client = func(c *connectlimit.Call) (client, tier string, ok bool) { return user(c.Header.Get) }
	}
	if o.key {
		c.Client = connectlimit.APIKey("X-API-Key", find)
	}
	if o.count != nil {
		c.Count = func(_ *connectlimit.Call, status int) bool { return o.count(status) }
	}
	if o.healthy {
		c.Skip = connectlimit.SkipProcedures(procedureOf("/healthz"))
	}
	if o.prepares() {
		c.Prepare = func(_ *connectlimit.Call, q *ratelimit.Request) { o.prepare(q) }
	}
	if o.forgive {
		c.Error = func(*connectlimit.Call, error) bool { return true }
	}
	if o.denied {
		c.Denied = func(*connectlimit.Call, *httplimit.Info) error {
			return connect.NewError(connect.CodeFailedPrecondition, errors.New("slow down"))
		}
	}
	if o.blocked {
		c.Blocked = func(*connectlimit.Call, *httplimit.Info) error {
			return connect.NewError(connect.CodePermissionDenied, errors.New("go away"))
		}
	}
	return c
}

// TestConnect runs each row of the table over Connect. The answers must be those of net/http, byte for byte, except for
// what answersOverConnect leaves out. A row of which Connect allows less is in ownOfConnect, which says why and proves it.
func TestConnect(t *testing.T) {
	own := map[string]bool{}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			if differs, ok := ownOfConnect[row.name]; ok {
				own[row.name] = true
				t.Log("Connect", differs.why)
				differs.prove(t)
				return
			}
			want, got := row.play(t, &netHTTP), row.play(t, &onConnect)
			assert.NotEmpty(t, want)
			assert.Equal(t, answersOverConnect(t, want, false), answersOverConnect(t, got, true))
		})
	}
	assert.Len(t, own, len(ownOfConnect), "each of them has the name of a row")
}

// answered matches an answer: the request, the status, the header fields and the body.
var answered = regexp.MustCompile(`(?s)^(\S+ \S+ \[.*?\]: )(\d{3})((?: \[[A-Z][\w-]*: [^\]]*\])*)(.*)$`)

// answersOverConnect returns what must be the same of answers by net/http and by Connect:
//
//   - of a grant, the status, the header fields and the body;
//   - of a denial, the status and the header fields: the body of Connect is an error in JSON, not a problem document;
//   - of an error of the handler, or of a request that reaches no handler, the status: Connect drops the header fields.
func answersOverConnect(t *testing.T, answers []string, own bool) (same []string) {
	t.Helper()
	for _, answer := range answers {
		part := answered.FindStringSubmatch(answer)
		if part == nil {
			same = append(same, answer) // is no answer to a request
			continue
		}
		request, status, header, body := part[1], part[2], part[3], part[4]
		// A rule without a name has the name of its endpoint.
		header = strings.NewReplacer(`"`+connectService+"/", `"/`, `"POST /`, `"/`, " [X-Content-Type-Options: nosniff]", "").Replace(header)
		switch status {
		case "429", "503":
			code := map[string]string{"429": "resource_exhausted", "503": "unavailable"}[status]
			if own {
				assert.Regexp(t, `^ \[application/json\] \{"code":"`+code+`","message":"[a-z ]+"`, body)
			} else {
				assert.Regexp(t, `^ \[application/problem\+json\] \{"type":"`, body)
			}
			body = ""
		case "401", "404", "405", "500":
			header, body = "", ""
		}
		same = append(same, request+status+header+body)
	}
	return same
}
