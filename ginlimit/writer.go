package ginlimit

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// A countedWriter is the ResponseWriter that the next handlers get if Config.Count is set. gin only notes the status that
// handlers set. It sends the status with the first byte of the body, at a flush, or after all handlers. So a
// countedWriter calls settle just before gin sends the status.
type countedWriter struct {
	gin.ResponseWriter
	settle func(status int)
}

// commit calls settle with the status, if the status was not sent yet.
func (w *countedWriter) commit() {
	if !w.Written() {
		w.settle(w.Status())
	}
}

// WriteHeaderNow sends the status.
func (w *countedWriter) WriteHeaderNow() {
	w.commit()
	w.ResponseWriter.WriteHeaderNow()
}

// Write sends the status, and writes p.
func (w *countedWriter) Write(p []byte) (int, error) {
	w.commit()
	return w.ResponseWriter.Write(p)
}

// WriteString sends the status, and writes s.
func (w *countedWriter) WriteString(s string) (int, error) {
	w.commit()
	return w.ResponseWriter.WriteString(s)
}

// Flush sends the status and what was written.
func (w *countedWriter) Flush() {
	w.commit()
	w.ResponseWriter.Flush()
}

// Hijack lets the handler take the connection over. It then calls settle with the status 101.
func (w *countedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	if err == nil {
		w.settle(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Unwrap returns the writer on which an [http.ResponseController] looks for methods that w does not have.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
