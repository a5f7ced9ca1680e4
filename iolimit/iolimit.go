// Package iolimit limits how many bytes are read and written. It wraps a reader, a writer or the response
// to an HTTP request, and asks a limiter for each piece of the bytes. So an upload, a download or an export
// proceeds as fast as the limiter allows, and several of them share one limit.
//
// The limiter counts each byte as one unit. The functions of this package get the limiter as a function that waits
// for n units. For the rules of a [ratelimit.RateLimiter], the function is:
//
//	wait := func(ctx context.Context, n int) error {
//		res, err := limiter.Wait(ctx, ratelimit.Request{Client: client, Endpoint: "export", Cost: n})
//		if res.Allowed { // err may be set: the store has failed, and the policy of the rule has let the bytes pass
//			return nil
//		}
//		return err
//	}
//
// For a single [ratelimit.Limiter], the function calls [ratelimit.Wait] and returns the error.
//
// # Pieces
//
// A piece has at most 64 KiB. A piece that is larger than the limit is never granted: wait returns an error that
// matches [ratelimit.ErrExceedsLimit]. The piece is then halved, if necessary several times, down to one byte. After 64
// granted pieces in a row, the size of the pieces is doubled again. So the size of the pieces adapts when the limit
// changes. Choose a burst of some kilobytes or more: with a smaller burst, the bytes are read and written in many
// short pieces.
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
	failed error // the error of the last r.Read; Read returns this error after the limiter has granted the bytes of that r.Read
}

// NewReader returns a Reader that reads from r. The Reader charges bytes after it has read them, because
// only then it knows how many they are. The function wait must return nil when n bytes may pass, and an
// error when they may not. If ctx ends while a Read waits, the Read returns the error of ctx.
//
// NewReader panics if r or wait is nil.
func NewReader(ctx context.Context, r io.Reader, wait func(ctx context.Context, n int) error) *Reader {
	if r == nil {
		panic("iolimit: NewReader: the reader must not be nil")
	}
	return &Reader{pace: newPace(ctx, "NewReader", wait), r: r}
}

// Read reads up to len(p) bytes, but not more than 64 KiB, and returns when the limiter has granted them.
// If the limiter does not grant them, Read returns the bytes together with the error of the function wait,
// because the bytes were already taken from the reader. A later Read returns the bytes that follow, and asks the
// limiter again.
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

// Close closes the reader from which r reads, if that reader has a method Close. So a Reader can replace
// the Body of an [http.Request].
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
// function wait must return nil when n bytes may pass, and an error when they may not. If ctx ends while
// a Write waits, the Write returns the error of ctx.
//
// NewWriter panics if w or wait is nil.
func NewWriter(ctx context.Context, w io.Writer, wait func(ctx context.Context, n int) error) *Writer {
	if w == nil {
		panic("iolimit: NewWriter: the writer must not be nil")
	}
	return &Writer{newPace(ctx, "NewWriter", wait), w}
}

// Write writes the bytes in p, piece by piece. If the limiter does not grant a piece, or the writer fails,
// Write returns how many bytes it wrote before that, and the error. A piece that was granted and then
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

// A pace asks the limiter for the pieces of a Reader or Writer, one after the other.
type pace struct {
	ctx     context.Context // a field, because the methods of io.Reader and io.Writer have no parameter for it
	wait    func(ctx context.Context, n int) error
	size    int // the largest number of bytes that one piece may have now
	granted int // how many pieces were granted since the size changed
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

// charge waits until the limiter has granted n bytes, in one piece or several.
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

// piece waits until the limiter has granted the first piece of the next n bytes, and returns how many
// bytes that piece has. n is at least 1.
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

// grow counts a granted piece. After 64 granted pieces in a row (the constant inRow), it doubles the size of
// the pieces, up to 64 KiB.
func (p *pace) grow() {
	if p.granted++; p.granted >= inRow {
		p.size, p.granted = min(2*p.size, largest), 0
	}
}
