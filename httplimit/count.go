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
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// countTerm is how long after the arrival of a request its units can be given back.
const countTerm = 10 * time.Minute

// countProblems returns the reasons why Config.Count cannot be used: the limiter l cannot give units back.
func countProblems(l *ratelimit.RateLimiter) (problems []error) {
	rules, defaultRule := l.Rules()
	if defaultRule != nil {
		rules = append(slices.Clip(rules), *defaultRule)
	}
	for _, r := range rules {
		if r.Limiter != nil {
			problems = append(problems, wrong("count", "set",
				fmt.Sprintf("must be nil beside rule %q: its custom limiter gives no units back", r.Name)))
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel() // with an ended context, Reserve charges nothing, but still reports a store that cannot give units back
	if _, err := l.Reserve(ended, ratelimit.Request{}, countTerm); errors.Is(err, ratelimit.ErrInvalidConfig) {
		problems = append(problems, err)
	}
	return problems
}

// count calls the next handlers with the request r, which the limiter has granted, and gives the reserved units back
// if Config.Count returns false for the status.
func (m *Middleware) count(w http.ResponseWriter, r *http.Request, v *visit, units *ratelimit.Reservation) {
	s := &settlement{m: m, hooks: v.hooks, request: r, asked: v.info.Request, units: units}
	returned := false
	defer m.counting.Add(-1)
	defer func() {
		if !returned {
			s.settle(http.StatusInternalServerError) // a next handler has panicked
		}
	}()
	if n := m.counting.Add(1); n > engine.MaxOpen && n%crowdSample == 0 {
		m.warnOfCrowd(r.Context(), s.asked)
	}
	v.hooks.next(w, r, s)
	returned = true
}

// crowdSample says how often the method count looks for a key with too many running requests. The units of at
// most [engine.MaxOpen] running requests of one key can be given back. So the method looks only if more than
// [engine.MaxOpen] requests of all keys are running, and if their number is a multiple of crowdSample.
const crowdSample = 64

// warnOfCrowd logs once if a key of the request req has so many running requests that the units of the oldest
// can no longer be given back. It looks only at keys whose state is in this process, not in a store.
func (m *Middleware) warnOfCrowd(ctx context.Context, req ratelimit.Request) {
	if m.logs.warned[warnCrowd].Load() {
		return
	}
	e, err := m.limiter.Explain(ctx, req)
	if err == nil && slices.ContainsFunc(e.Rules, func(r ratelimit.RuleExplanation) bool { return r.Receipts >= engine.MaxOpen }) {
		m.logs.once(warnCrowd)
	}
}

// A settlement settles the reserved units of one request: Config.Count decides, with the status of the response,
// whether the units stay charged.
type settlement struct {
	m       *Middleware
	hooks   hooks
	request *http.Request
	asked   ratelimit.Request // the request to the limiter, whose units are reserved
	units   *ratelimit.Reservation
	settled atomic.Bool
}

// settle settles the reserved units at the first call. If Config.Count returns true for the status, the units
// stay charged; otherwise settle gives them back. Later calls do nothing.
func (s *settlement) settle(status int) {
	if s.settled.Swap(true) {
		return
	}
	var used []ratelimit.Cost // a kind of unit that is not in this slice, such as tokens, stays charged as reserved
	if !s.hooks.counts(s.request, status) {
		used = nothing(&s.asked)
	}
	if err := s.units.SettleCosts(used...); err != nil {
		s.m.logs.often(logSettle, err)
	}
}

// CountStatus returns a ResponseWriter that passes all calls to w. It calls settle with the final status of the response
// before the client gets the status, or with 101 when a handler takes the connection over. The ResponseWriter has each of
// the methods Flush, Hijack and ReadFrom only if w has the same method. CountStatus is for an adapter that gets settle in
// its [Next], and whose framework sends the status as soon as a handler sets it.
func CountStatus(w http.ResponseWriter, settle func(status int)) http.ResponseWriter {
	c := &countedWriter{ResponseWriter: w, report: settle}
	return c.like(w)
}

// A countedWriter is a ResponseWriter that reports the status of the response. The next handler gets one if
// Config.Count is set.
type countedWriter struct {
	http.ResponseWriter
	report  func(status int)
	settled bool // whether the status was reported
}

// settle reports the status at the first call.
func (c *countedWriter) settle(status int) {
	if !c.settled {
		c.settled = true
		c.report(status)
	}
}

// The function nothing returns a cost of 0 for each kind of unit, such as requests or tokens, that was charged for
// req. If the reservation is settled with these costs, all its units are given back.
func nothing(req *ratelimit.Request) (costs []ratelimit.Cost) {
	requests := true
	for _, c := range req.Costs {
		if c.Unit != "" {
			costs = append(costs, ratelimit.Cost{Unit: c.Unit})
		} else {
			requests = c.N > 0
		}
	}
	if requests {
		costs = append(costs, ratelimit.Cost{})
	}
	return costs
}

// WriteHeader passes a final status to settle before the client gets that status. So if settle gives units
// back, they are available when the client sends its next request.
func (c *countedWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		c.settle(status)
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write calls settle with the status 200, which does nothing if another status was set before.
func (c *countedWriter) Write(p []byte) (int, error) {
	c.settle(http.StatusOK)
	return c.ResponseWriter.Write(p)
}

// Unwrap returns the writer on which an [http.ResponseController] looks for a method that c does not have, such
// as Flush. A flush sends the status to the client, so settle must be called before it. So Unwrap does not return
// the wrapped ResponseWriter itself, but a value of the type through, whose methods call settle.
func (c *countedWriter) Unwrap() http.ResponseWriter { return through{c} }

// A through stands for the ResponseWriter that a countedWriter wraps, which may itself wrap another writer. If only
// the inner writer has Flush or Hijack, an [http.ResponseController] calls the methods of the through instead, which
// also call settle.
type through struct{ *countedWriter }

// Unwrap returns the wrapped ResponseWriter itself.
func (t through) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// FlushError calls settle with the status 200, and then flushes as [http.ResponseController.Flush]
// does. If no writer can be flushed, it does not call settle.
func (t through) FlushError() error {
	if canFlush(t.ResponseWriter) {
		t.settle(http.StatusOK)
	}
	return http.NewResponseController(t.ResponseWriter).Flush()
}

// Hijack takes the connection over as [http.ResponseController.Hijack] does, and then calls settle with
// the status 101.
func (t through) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err == nil {
		t.settle(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// canFlush reports whether an [http.ResponseController] can flush w.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch outer := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = outer.Unwrap()
		default:
			return false
		}
	}
}

// Each of these types adds one optional method of a ResponseWriter to a countedWriter.
type (
	flusher    struct{ c *countedWriter }
	hijacker   struct{ c *countedWriter }
	readerFrom struct{ c *countedWriter }
)

// Flush sends the header, with the status 200 unless another one was set.
func (f flusher) Flush() { _ = f.FlushError() }

// FlushError does what Flush does, and returns the error. An [http.ResponseController] calls it.
func (f flusher) FlushError() error {
	f.c.settle(http.StatusOK)
	return http.NewResponseController(f.c.ResponseWriter).Flush()
}

// Hijack lets the handler take the connection over, for example for a websocket. It then calls settle
// with the status 101.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := h.c.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		h.c.settle(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// ReadFrom lets the operating system copy a file to the connection. It calls settle with the status 200
// once it has read the first byte. If src fails before that, the handler may still set another status.
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

// like returns a ResponseWriter that passes all calls to c. It has each of the methods Flush, Hijack and
// ReadFrom only if the ResponseWriter w has the same method.
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
