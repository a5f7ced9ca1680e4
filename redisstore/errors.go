package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A Class tells the kinds of failure apart that an [Error] can report.
type Class string

// The classes of failures. A call that failed with ClassTimeout, ClassConnection or
// ClassOther may nevertheless have been charged, unless [Error.NotSent] reports true. With any
// other class it was not.
const (
	ClassTimeout     Class = "timeout"     // the server did not answer in time
	ClassConnection  Class = "connection"  // the connection broke during the call
	ClassDial        Class = "dial"        // no connection could be made
	ClassPool        Class = "pool"        // no connection of the client's pool was free
	ClassBusy        Class = "busy"        // too many calls already wait for the server
	ClassClosed      Class = "closed"      // the client is closed
	ClassReadOnly    Class = "readonly"    // the server is a replica, which takes no writes
	ClassLoading     Class = "loading"     // the server is still reading its data from disk
	ClassClusterDown Class = "clusterdown" // no server of the cluster serves the slot
	ClassAuth        Class = "auth"        // the server refuses the client's credentials or commands
	ClassOOM         Class = "oom"         // the server has no memory left
	ClassWrongType   Class = "wrongtype"   // a key holds a value of another Redis type
	ClassCorrupt     Class = "corrupt"     // a key holds a value that this package did not write
	ClassNoScript    Class = "noscript"    // the server forgot a script right after it was sent
	ClassOther       Class = "other"
)

// transient reports whether a call that failed with c was certainly not run, and may
// succeed when it is repeated.
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

	call    uint64 // see Call
	notSent bool   // see NotSent
}

func newError(c Class, err error) *Error { return &Error{Class: c, Err: err} }

// Error returns the class and the cause as text.
func (e *Error) Error() string { return fmt.Sprintf("redisstore: %s: %v", e.Class, e.Err) }

// Unwrap returns [ratelimit.ErrStore] and the cause, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() []error { return []error{ratelimit.ErrStore, e.Err} }

// Answered reports whether the server has answered, and only the keys of this request, or its
// lack of memory for them, are why the request has failed; see [ratelimit.Store].
func (e *Error) Answered() bool {
	return e.Class == ClassWrongType || e.Class == ClassCorrupt || e.Class == ClassOOM
}

// NotSent reports whether the request was certainly not sent to the server, so that nothing was
// charged. If it was sent, it was charged at most once.
func (e *Error) NotSent() bool {
	return e.notSent || e.Class == ClassDial || e.Class == ClassPool || e.Class == ClassBusy || e.Class == ClassClosed
}

// Call returns a number that the callers have in common whose requests were sent together, or
// waited for the same reply; see [ratelimit.Store].
func (e *Error) Call() uint64 { return e.call }

// errorOf returns err as an Error, with its class.
func errorOf(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	c := classOf(err)
	if c == ClassTimeout {
		// The timeout of the store has ended, not the caller's context: the result must not
		// match context.DeadlineExceeded.
		err = fmt.Errorf("no answer in time: %s", err.Error())
	}
	return newError(c, err)
}

func classOf(err error) Class {
	var reply redis.Error
	var op *net.OpError
	var sys *os.SyscallError // what the client leaves of an OpError while it sets up a connection
	var timeout net.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return ClassClosed
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return ClassPool
	case errors.As(err, &op) && op.Op == "dial":
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

// replies are texts that errors of the server contain. They are tried in this order: the
// error of a script may have its text anywhere, and only CORRUPT quotes a key, which could
// contain any of the others.
var replies = []struct {
	text  string
	class Class
}{
	{"CORRUPT ", ClassCorrupt},
	{"WRONGTYPE ", ClassWrongType},
	{"OOM ", ClassOOM},
	{"READONLY ", ClassReadOnly},
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
	{"max number of clients", ClassDial},
}

// isRedirect reports whether the call went to a node of a cluster that does not have the
// key, or no longer has it, or is no longer in use.
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
