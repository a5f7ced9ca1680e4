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
)

// A quietWriter is a ResponseWriter that keeps its header.
type quietWriter struct{ header http.Header }

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *quietWriter) WriteHeader(int)             {}

// BenchmarkOverhead measures an empty procedure, alone and behind a limit: the difference is what the limit costs.
func BenchmarkOverhead(b *testing.B) {
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000_000)}}, nil)
	require.NoError(b, err)
	limit, err := connectlimit.New(l, connectlimit.Config{})
	require.NoError(b, err)
	nothing := func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		return connect.NewResponse(&emptypb.Empty{}), nil
	}
	pass := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc { return next })
	for _, row := range []struct {
		name string
		with connect.Interceptor
	}{{"none", pass}, {"connectlimit", limit}} {
		b.Run("framework=connect/limit="+row.name, func(b *testing.B) {
			h := connect.NewUnaryHandler(askProcedure, nothing, connect.WithInterceptors(row.with))
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
		})
	}
}
