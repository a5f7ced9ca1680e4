package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"time"
)

// The type server runs a handler in an HTTP server on the loopback address 127.0.0.1. One client
// calls it on one connection, which is kept alive. The client sends the same bytes for each request
// and reuses the buffer for the response. So nearly all allocations that are counted are made by
// the server.
type server struct {
	http   *http.Server
	conn   net.Conn
	in     *bufio.Reader
	served chan struct{} // closed when the server has ended
}

// serverRequest is the request that the client sends. It has about as many header fields as a
// request of a program that calls an API.
const serverRequest = "GET /users/7 HTTP/1.1\r\n" +
	"Host: example.com\r\n" +
	"User-Agent: bench\r\n" +
	"Accept: application/json\r\n" +
	"Accept-Encoding: gzip\r\n\r\n"

// newServer returns a function for the field Spec.New. That function makes a subject of the type
// server. The server has the handler that the function wrap returns for an empty handler.
func newServer(wrap func(l Limit, next http.Handler) (http.Handler, error)) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		handler, err := wrap(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if err != nil {
			return nil, err
		}
		ctx := context.Background()
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s := &server{http: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, served: make(chan struct{})}
		go func() {
			_ = s.http.Serve(listener) // Serve always returns an error: in this case, that the server was closed
			close(s.served)
		}()
		s.conn, err = new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.in = bufio.NewReader(s.conn)
		return s, nil
	}
}

// Allow sends one request and reports whether the response has status 200. The key is not used.
func (s *server) Allow(string) bool {
	if _, err := io.WriteString(s.conn, serverRequest); err != nil {
		return false
	}
	status, err := s.in.ReadSlice('\n')
	allowed := err == nil && bytes.Contains(status, []byte(" 200 "))
	return s.skip() == nil && allowed
}

// skip reads the rest of a response: the header fields and the body.
func (s *server) skip() error {
	length := 0
	for {
		field, err := s.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(field)) == 0 {
			_, err = s.in.Discard(length)
			return err
		}
		if value, ok := bytes.CutPrefix(field, []byte("Content-Length: ")); ok {
			length = 0
			for _, digit := range bytes.TrimSpace(value) {
				length = 10*length + int(digit-'0')
			}
		}
	}
}

// Close ends the server and its connections.
func (s *server) Close() error {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	err := s.http.Close()
	<-s.served
	return err
}

// Garbage is what one call of a subject allocates, on average, in all goroutines together.
type Garbage struct {
	Allocs float64 // number of allocations
	Bytes  float64 // bytes in these allocations
}

// GarbageOf measures what a call of the subject s allocates under the workload w. It averages over
// n calls.
func GarbageOf(s Spec, w Workload, n int) (Garbage, error) {
	r, err := NewRun(s, w)
	if err != nil {
		return Garbage{}, err
	}
	defer r.Close()
	if _, err := r.Time(n); err != nil { // warms up: fills buffers and pools before the measurement
		return Garbage{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = r.Time(n)
	runtime.ReadMemStats(&after)
	return Garbage{
		Allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
		Bytes:  float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}, err
}
