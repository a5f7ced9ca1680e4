package dbstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit"
)

// An Error is a failure of the database, or of the connection to it. It matches [ratelimit.ErrStore].
type Error struct {
	Err error // the error of the Backend, or another cause

	call     uint64 // the number of the transaction that failed; several Errors with the same number count as one failure
	notDone  bool   // whether nothing was charged
	answered bool   // whether the failure concerns only this request
	class    string // what ErrorClass returns; empty if the error of the Backend says it
}

// Error returns the cause of the failure as text.
func (e *Error) Error() string { return "dbstore: " + e.Err.Error() }

// brokenError returns the error for a row whose value cannot be used.
func brokenError(r *row, err error) *Error {
	what := fmt.Sprintf("the row of rule %q, key %q", r.charge.Rule, r.charge.Key)
	if r.record {
		what = "the record of a request with an ID"
	}
	return &Error{Err: fmt.Errorf("%s is broken: %w", what, err), notDone: true, answered: true, class: "corrupt"}
}

// Unwrap returns [ratelimit.ErrStore] and the cause of the failure, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() []error { return []error{ratelimit.ErrStore, e.Err} }

// Answered reports whether the failure concerns only this request, while the database works; see [ratelimit.StoreErrorAnswered]. It
// returns true if a row of the request has a value that no Store has written, if other processes changed a row again and again until
// the time limit was over, or if the Answered method of the Backend's error returns true.
func (e *Error) Answered() bool {
	var said ratelimit.StoreErrorAnswered
	return e.answered || errors.As(e.Err, &said) && said.Answered()
}

// ErrorClass returns the kind of the failure; see [ratelimit.StoreErrorClass]. It is "timeout" if the time limit was over, "corrupt" if
// a row has a value that no Store has written, "contended" if other processes changed a row again and again, and "busy" if too many
// callers wait. Otherwise the error of the Backend may say it. If it does not, the class is "other".
func (e *Error) ErrorClass() string {
	var classed ratelimit.StoreErrorClass
	if e.class == "" && errors.As(e.Err, &classed) {
		return classed.ErrorClass()
	}
	return cmp.Or(e.class, "other")
}

// NotDone reports whether nothing was charged. Otherwise the request may have been charged or not.
func (e *Error) NotDone() bool { return e.notDone }

// Call returns the number of the transaction that failed. If several requests shared the transaction, their Errors have the same
// number and count as one failure; see [ratelimit.StoreErrorCall].
func (e *Error) Call() uint64 { return e.call }

// errorOf returns the Error for an error of the Backend in the transaction with this number.
func errorOf(err error, number uint64) *Error {
	e := &Error{Err: err, call: number, notDone: wasNotDone(err)}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// The time limit of the Store has passed, not the deadline of the caller's context. So the Error must not match
		// context.DeadlineExceeded or context.Canceled.
		e.class = classTimeout
		e.Err = fmt.Errorf("no answer in time: %s", err.Error())
	}
	return e
}

// classTimeout is the class of an [Error] if the time limit was over.
const classTimeout = "timeout"

// errTimeout is the cause of an [Error] if the caller has waited for the whole time limit.
var errTimeout = errors.New("no answer in time")

// A leftError is the error for a caller whose context has ended while the call may still go on in the database.
type leftError struct {
	error
	call *call
}

// Unwrap returns the error of the caller's context.
func (e *leftError) Unwrap() error { return e.error }

// Later calls the function f when the call has ended, or has reached the time limit; see [ratelimit.StoreErrorLater].
func (e *leftError) Later(f func(error)) { e.call.whenEnded(e.error, f) }
