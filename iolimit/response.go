package iolimit

import (
	"context"
	"net/http"
)

// ResponseWriter returns a ResponseWriter that writes the body of a response to w, no faster than a limiter
// allows. It writes each piece of the body when the limiter has granted it. The function wait must return
// nil when n bytes may pass, and an error when they may not. The context is usually that of the request,
// which ends when the client has gone. What a handler writes in answer to a HEAD request is charged too,
// although net/http does not send it.
//
// The header is not limited: the handler sets the status and the fields as usual. If w can flush, the
// returned ResponseWriter can too; [http.ResponseController] finds the other methods of w. The returned
// ResponseWriter has no method ReadFrom, because bytes would pass through that method without asking the
// limiter.
//
// The WriteTimeout of an [http.Server] includes the time for which a response waits for the limiter. After
// the WriteTimeout, the client gets no more bytes. Set the WriteTimeout to 0, or let the handler set a later
// deadline with [http.ResponseController.SetWriteDeadline].
//
// ResponseWriter panics if w or wait is nil.
func ResponseWriter(ctx context.Context, w http.ResponseWriter, wait func(ctx context.Context, n int) error) http.ResponseWriter {
	if w == nil {
		panic("iolimit: ResponseWriter: the response writer must not be nil")
	}
	limited := response{w, &Writer{newPace(ctx, "ResponseWriter", wait), w}}
	if f, ok := w.(http.Flusher); ok {
		return flushed{limited, f}
	}
	return limited
}

// A response writes its body through a Writer.
type response struct {
	http.ResponseWriter
	body *Writer
}

// Write writes the bytes in p as [Writer.Write] does.
func (r response) Write(p []byte) (int, error) { return r.body.Write(p) }

// Unwrap returns the wrapped ResponseWriter, for [http.ResponseController].
func (r response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// A flushed is a response that also has the method Flush of the wrapped ResponseWriter.
type flushed struct {
	response
	http.Flusher
}
