package httplimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// countTerm is how long after a request has come its units can be given back.
const countTerm = 10 * time.Minute

// countProblems returns what keeps l from giving units back.
func countProblems(l *ratelimit.RateLimiter) (problems []error) {
	rules, defaultRule := l.Rules()
	if defaultRule != nil {
		rules = append(slices.Clip(rules), *defaultRule)
	}
	for _, r := range rules {
		if r.Limiter != nil {
			problems = append(problems, wrong("count", "set", fmt.Sprintf("must be nil beside rule %q: its custom limiter gives no units back", r.Name)))
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel() // so that nothing is reserved: this asks whether the store could
	if _, err := l.Reserve(ended, ratelimit.Request{}, countTerm); errors.Is(err, ratelimit.ErrInvalidConfig) {
		problems = append(problems, err)
	}
	return problems
}

// count serves the request of v, and gives its units back if its status does not count.
func (m *Middleware) count(w http.ResponseWriter, v *visit, units *ratelimit.Reservation, next http.Handler) {
	c := &countedWriter{ResponseWriter: w, m: m, v: v, units: units}
	status := http.StatusInternalServerError // if next panics
	defer func() { c.settle(status) }()
	next.ServeHTTP(c.like(w), &v.request)
	status = http.StatusOK
}

// A countedWriter is the ResponseWriter of a request that may not count. It settles with the
// first final status.
type countedWriter struct {
	http.ResponseWriter
	m       *Middleware
	v       *visit
	units   *ratelimit.Reservation
	settled bool
}

// settle gives the units back if status does not count, unless that was decided before.
func (c *countedWriter) settle(status int) {
	if c.settled {
		return
	}
	c.settled = true
	units := max(c.v.info.Request.Cost, 1)
	if !c.m.config.Count(&c.v.request, status) {
		units = 0
	}
	if err := c.units.Settle(units); err != nil {
		c.m.logs.often(logSettle, err)
	}
}

// WriteHeader settles before the client can see the status, and send its next request.
func (c *countedWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		c.settle(status)
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write settles as a status of 200, unless there was one.
func (c *countedWriter) Write(p []byte) (int, error) {
	c.settle(http.StatusOK)
	return c.ResponseWriter.Write(p)
}

// Unwrap returns the inner writer, for [http.ResponseController].
func (c *countedWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// The further methods that a ResponseWriter may have.
type (
	flusher    struct{ c *countedWriter }
	hijacker   struct{ c *countedWriter }
	readerFrom struct{ c *countedWriter }
)

// Flush sends the header, which has the status 200 unless another was set.
func (f flusher) Flush() { _ = f.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (f flusher) FlushError() error {
	f.c.settle(http.StatusOK)
	return http.NewResponseController(f.c.ResponseWriter).Flush()
}

// Hijack hands the connection over, as a websocket wants it.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.c.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.c.settle(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// ReadFrom copies a file by means of the system. The status is 200 from the first byte on: if there
// is none, as src cannot be read, the handler may still set another.
func (r readerFrom) ReadFrom(src io.Reader) (n int64, err error) {
	if !r.c.settled {
		first, read := make([]byte, 512), 0
		for read == 0 && err == nil {
			read, err = src.Read(first)
		}
		if read > 0 {
			written, failed := r.c.Write(first[:read])
			if n = int64(written); failed != nil {
				return n, failed
			}
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	rest, err := r.c.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	return n + rest, err
}

// like returns c with those of the further methods that w has.
func (c *countedWriter) like(w http.ResponseWriter) http.ResponseWriter {
	_, flushes := w.(http.Flusher)
	_, hijacks := w.(http.Hijacker)
	_, reads := w.(io.ReaderFrom)
	f, h, r := flusher{c}, hijacker{c}, readerFrom{c}
	switch {
	case flushes && hijacks && reads:
		return struct {
			*countedWriter
			flusher
			hijacker
			readerFrom
		}{c, f, h, r}
	case flushes && hijacks:
		return struct {
			*countedWriter
			flusher
			hijacker
		}{c, f, h}
	case flushes && reads:
		return struct {
			*countedWriter
			flusher
			readerFrom
		}{c, f, r}
	case hijacks && reads:
		return struct {
			*countedWriter
			hijacker
			readerFrom
		}{c, h, r}
	case flushes:
		return struct {
			*countedWriter
			flusher
		}{c, f}
	case hijacks:
		return struct {
			*countedWriter
			hijacker
		}{c, h}
	case reads:
		return struct {
			*countedWriter
			readerFrom
		}{c, r}
	}
	return c
}
