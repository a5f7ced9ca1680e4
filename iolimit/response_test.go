package iolimit_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/iolimit"
)

// plain is a ResponseWriter that cannot flush.
type plain struct{}

func (plain) Header() http.Header         { return http.Header{} }
func (plain) Write(p []byte) (int, error) { return len(p), nil }
func (plain) WriteHeader(int)             {}

// TestOptionalMethods proves that a limited ResponseWriter can do what the wrapped one can, but for
// copying without the limiter.
func TestOptionalMethods(t *testing.T) {
	wait := granted(1, new([]int))
	_, flushes := iolimit.ResponseWriter(t.Context(), plain{}, wait).(http.Flusher)
	require.False(t, flushes)
	recorder := httptest.NewRecorder()
	w := iolimit.ResponseWriter(t.Context(), recorder, wait)
	w.(http.Flusher).Flush()
	require.True(t, recorder.Flushed)
	require.Equal(t, recorder, w.(interface{ Unwrap() http.ResponseWriter }).Unwrap())
	require.NoError(t, http.NewResponseController(w).Flush())
	_, copies := w.(io.ReaderFrom)
	require.False(t, copies)
	w.WriteHeader(http.StatusTeapot)
	require.Equal(t, http.StatusOK, recorder.Code, "Flush has sent the header")
}

// serve starts a server on loopback, and returns its address.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// TestDownload sends a file of 3 MiB to a real client. Every byte arrives, and every byte is charged.
func TestDownload(t *testing.T) {
	file := content(3 << 20)
	l, err := ratelimit.NewFixedWindow(ratelimit.PerDay(10<<20), ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(0, 0))))
	require.NoError(t, err)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(iolimit.ResponseWriter(r.Context(), w, by(l, "k")), r, "file", time.Time{}, bytes.NewReader(file))
	})
	res, err := http.Get(url) //nolint:noctx // the test ends with it
	require.NoError(t, err)
	got, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.True(t, bytes.Equal(file, got))
	require.Equal(t, 7<<20, l.Peek("k").Remaining)
}

// TestUpload limits the body of a request from a real client.
func TestUpload(t *testing.T) {
	file := content(3 << 20)
	l, err := ratelimit.NewFixedWindow(ratelimit.PerDay(10<<20), ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(0, 0))))
	require.NoError(t, err)
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		r.Body = iolimit.NewReader(r.Context(), r.Body, by(l, "k"))
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(file, got) || r.Body.Close() != nil {
			panic(http.ErrAbortHandler)
		}
	})
	res, err := http.Post(url, "application/octet-stream", bytes.NewReader(file)) //nolint:noctx // the test ends with it
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, 7<<20, l.Peek("k").Remaining)
}

// TestClientGone has a client go while its download waits: the handler ends with the context.
func TestClientGone(t *testing.T) {
	l, err := ratelimit.NewTokenBucket(ratelimit.PerDay(1000))
	require.NoError(t, err)
	ended := make(chan error, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		limited := iolimit.ResponseWriter(r.Context(), w, by(l, "k"))
		_, err := limited.Write(content(500))
		limited.(http.Flusher).Flush()
		if err == nil {
			_, err = limited.Write(content(5000))
		}
		ended <- err
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_, err = io.ReadFull(res.Body, make([]byte, 500))
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	_ = res.Body.Close()
}

// A pipeListener accepts one end of each pipe that dial makes.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	l.conns <- server
	return client, nil
}

// TestWriteTimeout proves what the comment of ResponseWriter says about the WriteTimeout of a server, and
// about a handler that sets later deadlines.
func TestWriteTimeout(t *testing.T) {
	for name, extends := range map[string]bool{"as it is": false, "later deadlines": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := bucket(t)
				file := content(20_000)
				listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
				server := &http.Server{
					WriteTimeout: 5 * time.Second,
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						limited := iolimit.ResponseWriter(r.Context(), w, func(ctx context.Context, n int) error {
							err := by(l, "k")(ctx, n)
							if extends {
								err = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(5 * time.Second))
							}
							return err
						})
						_, _ = limited.Write(file)
					}),
				}
				go server.Serve(listener) //nolint:errcheck // it ends with Close
				transport := &http.Transport{DialContext: listener.dial}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/", http.NoBody)
				require.NoError(t, err)
				res, err := (&http.Client{Transport: transport}).Do(req)
				require.NoError(t, err)
				got, err := io.ReadAll(res.Body)
				if extends {
					require.NoError(t, err)
					require.Equal(t, file, got)
				} else {
					require.Equal(t, io.ErrUnexpectedEOF, err)
					require.Less(t, len(got), 7000)
				}
				require.NoError(t, res.Body.Close())
				transport.CloseIdleConnections()
				require.NoError(t, server.Close())
			})
		})
	}
}
