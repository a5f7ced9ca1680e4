package connectlimit_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/connectlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A quietWriter is a ResponseWriter that keeps its header.
type quietWriter struct{ header http.Header }

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *quietWriter) WriteHeader(int)             {}

// BenchmarkOverhead measures an empty procedure and an empty handler of net/http, alone and behind a limit: the difference
// is what the limit costs. The row "fields" has an interceptor that only sets two header fields of the response.
func BenchmarkOverhead(b *testing.B) {
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000_000)}}, nil)
	require.NoError(b, err)
	limit, err := connectlimit.New(l, connectlimit.Config{})
	require.NoError(b, err)
	nothing := func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	}
	fields := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			res, err := next(ctx, r)
			res.Header()["Ratelimit"], res.Header()["Ratelimit-Policy"] = []string{`"per-client";r=1`}, []string{`"per-client";q=1;w=1`}
			return res, err
		}
	})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /test.v1.Test/{procedure}", func(http.ResponseWriter, *http.Request) {})
	for name, h := range map[string]http.Handler{"none": mux, "httplimit": httplimit.Handler(mux, l)} {
		b.Run("framework=nethttp/limit="+name, func(b *testing.B) { ask(b, h) })
	}
	pass := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc { return next })
	for _, row := range []struct {
		name string
		with connect.Interceptor
	}{{"none", pass}, {"fields", fields}, {"connectlimit", limit}} {
		b.Run("framework=connect/limit="+row.name, func(b *testing.B) {
			ask(b, connect.NewUnaryHandler(askProcedure, nothing, connect.WithInterceptors(row.with)))
		})
	}
}

// ask sends requests of one client to h.
func ask(b *testing.B, h http.Handler) {
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, askProcedure, nil)
	r.Header.Set("Content-Type", "application/proto")
	r.RemoteAddr = "203.0.113.9:1234"
	w := &quietWriter{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		r.Body = io.NopCloser(bytes.NewReader(nil))
		h.ServeHTTP(w, r)
	}
}
