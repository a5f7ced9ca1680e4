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

// A Class says what kind of failure an [Error] is.
type Class string

// The classes of failures. The decision of a call that failed by ClassTimeout,
// ClassConnection or ClassOther may have been charged; by the others it was not.
const (
	ClassTimeout     Class = "timeout"     // no answer in time
	ClassConnection  Class = "connection"  // the connection broke
	ClassDial        Class = "dial"        // no connection could be made
	ClassPool        Class = "pool"        // no connection was free
	ClassBusy        Class = "busy"        // too many calls wait for the server
	ClassClosed      Class = "closed"      // the client is closed
	ClassReadOnly    Class = "readonly"    // the server is a replica
	ClassLoading     Class = "loading"     // the server reads its data
	ClassClusterDown Class = "clusterdown" // the slot is not served
	ClassAuth        Class = "auth"        // the server does not let the client
	ClassOOM         Class = "oom"         // the server has no memory left
	ClassWrongType   Class = "wrongtype"   // a key holds something of another type
	ClassCorrupt     Class = "corrupt"     // a key holds something that is no state
	ClassNoScript    Class = "noscript"    // the server forgets its scripts at once
	ClassOther       Class = "other"
)

// transient reports whether a call that failed so has not run, and may succeed
// when it is made again.
func (c Class) transient() bool {
	switch c {
	case ClassDial, ClassPool, ClassReadOnly, ClassLoading, ClassClusterDown, ClassNoScript:
		return true
	}
	return false
}

// An Error is a failure of the server or of the way there. It matches
// [ratelimit.ErrStore].
type Error struct {
	Class Class // what to do about it
	Err   error // what the client says
}

// Error names the class and the cause.
func (e *Error) Error() string { return fmt.Sprintf("redisstore: %s: %v", e.Class, e.Err) }

// Unwrap returns [ratelimit.ErrStore] and the cause.
func (e *Error) Unwrap() []error { return []error{ratelimit.ErrStore, e.Err} }

// failure returns err as an Error.
func errorOf(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	c := classOf(err)
	if c == ClassTimeout {
		// It is not the caller's context that is over.
		err = fmt.Errorf("no answer in time: %s", err.Error())
	}
	return &Error{c, err}
}

func classOf(err error) Class {
	var reply redis.Error
	var op *net.OpError
	var sys *os.SyscallError // what the client leaves of an OpError while it greets
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

// replies are what errors of the server say, in the order to look for it: what a
// script fails by may be anywhere in the text, and a key is quoted by CORRUPT only.
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

// elsewhere reports whether a node of a cluster does not have, or no longer has, what
// it was asked for.
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
