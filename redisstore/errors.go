package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A Class is the kind of a failure that an [Error] reports.
type Class string

// The classes of failures. After ClassTimeout, ClassConnection or ClassOther, the request may have
// been charged, unless [Error.NotSent] reports true. With any other class, the request was not charged.
const (
	ClassTimeout     Class = "timeout"     // the server did not answer within the timeout
	ClassConnection  Class = "connection"  // the connection broke during the call
	ClassDial        Class = "dial"        // no connection could be made
	ClassPool        Class = "pool"        // no connection of the client's pool was free
	ClassBusy        Class = "busy"        // too many calls already wait for the server, or the server runs a long script
	ClassClosed      Class = "closed"      // the client is closed
	ClassReadOnly    Class = "readonly"    // the server takes no writes: it is a replica, has too few replicas, or cannot save
	ClassLoading     Class = "loading"     // the server is still reading its data from disk
	ClassClusterDown Class = "clusterdown" // no server of the cluster serves the slot
	ClassAuth        Class = "auth"        // the server refuses the client's credentials or commands
	ClassOOM         Class = "oom"         // the server has no memory left
	ClassWrongType   Class = "wrongtype"   // a key holds a value of another Redis type
	ClassCorrupt     Class = "corrupt"     // a key holds a value that this package did not write
	ClassNoScript    Class = "noscript"    // the server did not know a script, although its text was sent
	ClassOther       Class = "other"
)

// transient reports whether a call that failed with an error of the class c may be repeated: the server has
// certainly not run the call, and the next attempt may succeed.
func (c Class) transient() bool {
	switch c {
	case ClassDial, ClassPool, ClassReadOnly, ClassLoading, ClassClusterDown, ClassNoScript:
		return true
	}
	return false
}

// An Error is a failure of the server or of the connection to it. It matches
// [ratelimit.ErrStore].
type Error struct {
	Class Class // the kind of failure
	Err   error // the error of the client, or of the server

	call    uint64 // the number of the call that failed; several Errors with the same number count as one failure
	notSent bool   // whether the request was certainly not sent, whatever the Class is
}

func newError(c Class, err error) *Error { return &Error{Class: c, Err: err} }

// Error returns the class and the cause of the failure as text.
func (e *Error) Error() string { return fmt.Sprintf("redisstore: %s: %v", e.Class, e.Err) }

// ErrorClass returns the Class; see [ratelimit.StoreErrorClass].
func (e *Error) ErrorClass() string { return string(e.Class) }

// Unwrap returns [ratelimit.ErrStore] and the cause of the failure, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() []error { return []error{ratelimit.ErrStore, e.Err} }

// Answered reports whether the failure concerns only this request, while the server works: a key holds a
// value that this package did not write, or the server has no memory for new keys; see [ratelimit.Store].
func (e *Error) Answered() bool {
	return e.Class == ClassWrongType || e.Class == ClassCorrupt || e.Class == ClassOOM
}

// NotSent reports whether the request was certainly not sent to the server. In that case nothing was
// charged. A request that was sent is charged at most once.
func (e *Error) NotSent() bool {
	return e.notSent || e.Class == ClassDial || e.Class == ClassPool || e.Class == ClassClosed
}

// Call returns the number of the call that failed. Requests that were sent together, or that waited for the
// same reply, have the same number and count as one failure; see [ratelimit.Store].
func (e *Error) Call() uint64 { return e.call }

// errorOf returns err as an Error, with its class.
func errorOf(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	c := classOf(err)
	if c == ClassTimeout {
		// The timeout of the store has passed, not the deadline of the caller's context. So the error must not
		// match context.DeadlineExceeded.
		err = fmt.Errorf("no answer in time: %s", err.Error())
	}
	return newError(c, err)
}

func classOf(err error) Class {
	var reply redis.Error
	var op *net.OpError
	var sys *os.SyscallError // the client returns this in place of a net.OpError while it sets up a connection
	var timeout net.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return ClassClosed
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return ClassPool
	case errors.As(err, &op) && op.Op == "dial", failedTLS(err):
		return ClassDial
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ClassTimeout
	case errors.As(err, &reply):
		return classOfReply(reply.Error())
	case errors.As(err, &timeout) && timeout.Timeout():
		return ClassTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &op), errors.As(err, &sys):
		return ClassConnection
	}
	return ClassOther
}

// failedTLS reports whether err shows that the client ended the TLS handshake, because of the certificate of the
// server or because the server does not use TLS.
func failedTLS(err error) bool {
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError))
}

// replies lists texts that occur in errors of the server, and the class of failure that each text means.
// The order matters, because a text may occur anywhere in an error of a script: the first text that occurs
// decides. CORRUPT comes first, because this error also contains a key, and the key could contain any of the
// other texts.
var replies = []struct {
	text  string
	class Class
}{
	{"CORRUPT ", ClassCorrupt},
	{"WRONGTYPE ", ClassWrongType},
	{"OOM ", ClassOOM},
	{"READONLY ", ClassReadOnly},
	{"NOREPLICAS ", ClassReadOnly},
	{"MISCONF ", ClassReadOnly},
	{"LOADING ", ClassLoading},
	{"NOSCRIPT ", ClassNoScript},
	{"CLUSTERDOWN ", ClassClusterDown},
	{"MASTERDOWN ", ClassClusterDown},
	{"TRYAGAIN ", ClassClusterDown},
	{"MOVED ", ClassClusterDown},
	{"ASK ", ClassClusterDown},
	{"NOAUTH ", ClassAuth},
	{"WRONGPASS ", ClassAuth},
	{"NOPERM ", ClassAuth},
	{"unauthenticated", ClassAuth}, // the server refused a long command that came before the password
	{"max number of clients", ClassDial},
	{"DB index is out of range", ClassDial}, // an error of the handshake, which selects the database
	{"SELECT is not allowed in cluster mode", ClassDial},
	{"BUSY ", ClassBusy},
}

// isRedirect reports whether the error err shows that a call went to the wrong server of a cluster: to a
// server that does not have the key, or that the client no longer uses.
func isRedirect(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ") || errors.Is(err, redis.ErrClosed)
}

func classOfReply(text string) Class {
	for _, r := range replies {
		if strings.Contains(text, r.text) {
			return r.class
		}
	}
	return ClassOther
}
