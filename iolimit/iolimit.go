// Package iolimit limits how many bytes are read and written. It wraps a reader, a writer or the response
// to an HTTP request, and asks a limiter for each piece of the bytes. So an upload, a download or an export
// proceeds as fast as the limiter allows, and several of them share one limit.
//
// The limiter counts bytes, one unit for each. The functions of this package get it as a function that
// waits for n units. For the rules of a [ratelimit.RateLimiter] that function is:
//
//	wait := func(ctx context.Context, n int) error {
//		res, err := limiter.Wait(ctx, ratelimit.Request{Client: client, Endpoint: "export", Cost: n})
//		if res.Allowed { // err may be set: the store has failed, and the policy of the rule has let the bytes pass
//			return nil
//		}
//		return err
//	}
//
// For a limiter of its own, it calls [ratelimit.Wait] and returns the error.
//
// # Pieces
//
// A piece has at most 64 KiB. If the limiter never grants a piece because it is larger than the limit
// (wait returns an error that matches [ratelimit.ErrExceedsLimit]), the piece is halved, until it has one
// byte. After 64 pieces in a row that were granted the size is doubled again. So the rate of the limiter
// may change at any time, but choose a burst of some kilobytes or more: with a small one, many short
// pieces are passed on.
package iolimit

import (
	"context"
	"errors"
	"io"

	"github.com/ratelimit-go/ratelimit"
)

const (
	largest = 64 << 10 // the largest number of bytes of a piece
	inRow   = 64       // after so many granted pieces in a row, the size of a piece is doubled
)

// A Reader reads bytes from another reader, no faster than a limiter allows. [NewReader] makes one. It must not
// be used by several goroutines at once.
type Reader struct {
	pace
	r      io.Reader
	failed error // the error with which r has ended; Read returns it after the bytes that came with it were charged
}

// NewReader returns a Reader that reads from r. It charges the bytes after it has read them, because it
// cannot know before how many there will be. The function wait must return nil when n bytes may pass, and
// an error when they may not. A Read that waits ends with the error of ctx when ctx ends.
//
// NewReader panics if r or wait is nil.
func NewReader(ctx context.Context, r io.Reader, wait func(ctx context.Context, n int) error) *Reader {
	if r == nil {
		panic("iolimit: NewReader: the reader must not be nil")
	}
	return &Reader{pace: newPace(ctx, "NewReader", wait), r: r}
}

// Read reads up to len(p) bytes, but not more than 64 KiB, and returns when the limiter has granted
// them. If the limiter does not grant them, Read returns the error of wait together with the bytes, which
// have been taken from the reader already. A later Read reads on, and asks the limiter again.
func (r *Reader) Read(p []byte) (n int, err error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	if r.failed != nil {
		return 0, r.failed
	}
	n, r.failed = r.r.Read(p[:min(len(p), r.size)])
	if err := r.charge(n); err != nil {
		return n, err
	}
	return n, r.failed
}

// Close closes the reader from which r reads, if that has a method Close. So a Reader can replace the Body
// of an [http.Request].
func (r *Reader) Close() error {
	if c, ok := r.r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// A Writer writes bytes to another writer, no faster than a limiter allows. [NewWriter] makes one. It must not
// be used by several goroutines at once.
type Writer struct {
	pace
	w io.Writer
}

// NewWriter returns a Writer that writes to w. It writes each piece when the limiter has granted it. The
// function wait must return nil when n bytes may pass, and an error when they may not. A Write that waits
// ends with the error of ctx when ctx ends.
//
// NewWriter panics if w or wait is nil.
func NewWriter(ctx context.Context, w io.Writer, wait func(ctx context.Context, n int) error) *Writer {
	if w == nil {
		panic("iolimit: NewWriter: the writer must not be nil")
	}
	return &Writer{newPace(ctx, "NewWriter", wait), w}
}

// Write writes the bytes in p, piece by piece. If the limiter does not grant a piece, or the writer fails,
// Write returns how many bytes it has written before, and the error. A piece that was granted and then
// could not be written stays charged.
func (w *Writer) Write(p []byte) (n int, err error) {
	for n < len(p) {
		granted, err := w.piece(len(p) - n)
		if err != nil {
			return n, err
		}
		written, err := w.w.Write(p[n : n+granted])
		n += written
		switch {
		case err != nil:
			return n, err
		case written < granted:
			return n, io.ErrShortWrite
		}
	}
	return n, nil
}

// A pace asks the limiter for one piece after the other.
type pace struct {
	ctx     context.Context // the methods of io.Reader and io.Writer have no context
	wait    func(ctx context.Context, n int) error
	size    int // the largest number of bytes that one piece may have now
	granted int // how many pieces in a row were granted since the size changed
}

// newPace returns a pace that calls the function wait with ctx. If wait is nil, newPace panics, and
// names the function that the user has called.
func newPace(ctx context.Context, name string, wait func(ctx context.Context, n int) error) pace {
	if wait == nil {
		panic("iolimit: " + name + ": the function wait must not be nil")
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return pace{ctx: ctx, wait: wait, size: largest}
}

// charge waits until the limiter has granted n bytes, in as many pieces as that takes.
func (p *pace) charge(n int) error {
	for n > 0 {
		granted, err := p.piece(n)
		if err != nil {
			return err
		}
		n -= granted
	}
	return nil
}

// piece waits until the limiter has granted the next piece of n bytes, where n is at least 1, and
// returns how many bytes the piece has.
func (p *pace) piece(n int) (granted int, err error) {
	for {
		if err := p.ctx.Err(); err != nil {
			return 0, err
		}
		granted = min(n, p.size)
		err := p.wait(p.ctx, granted)
		switch {
		case err == nil:
			p.grow()
			return granted, nil
		case granted == 1 || !errors.Is(err, ratelimit.ErrExceedsLimit):
			return 0, err
		}
		p.size, p.granted = granted/2, 0
	}
}

// grow counts a granted piece, and doubles the size of the pieces after enough of them.
func (p *pace) grow() {
	if p.granted++; p.granted >= inRow {
		p.size, p.granted = min(2*p.size, largest), 0
	}
}
