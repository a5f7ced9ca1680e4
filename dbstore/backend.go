package dbstore

import (
	"context"
	"errors"
	"time"
)

// A Backend is a database that keeps rows of bytes, and changes rows that nobody else has changed. A [Store] needs one. The package
// dbstoretest checks a Backend that you write.
//
// A Backend must be safe for concurrent use by multiple goroutines.
type Backend interface {
	// Swap does each group by itself. If every row of a group has the value Old, nil for no row, Swap writes all values New, and
	// sets Done. Otherwise it writes nothing of the group, and sets the Value of each Change to what the row has. No key is
	// in two groups, and no key is twice in one.
	//
	// Swap returns the time of the database, read after the values. If now is not zero, and is after that time or more than
	// [MaxBehind] before it, no group is done. Swap returns by the deadline of ctx, and leaves nothing waiting in the database.
	//
	// An error means that each group may have been done or not. An error that NotDone has made says that no group was done.
	Swap(ctx context.Context, now time.Time, groups []Group) (time.Time, error)
}

// MaxBehind is how far the time for which a decision was made may be behind the time of the database. If it is further, the decision is
// made again.
const MaxBehind = 50 * time.Millisecond

// A Group is a set of rows that are changed together or not at all.
type Group struct {
	Changes []Change // one for each row
	Done    bool     // set by Swap: whether all rows had their value Old, and now have New
}

// A Change says how the row of one key changes.
type Change struct {
	Key []byte // at most 200 bytes
	Old []byte // the value that the row must have; nil: there must be no row
	New []byte // the value to write; nil: delete the row. If it equals Old, nothing is written, and Old is only compared

	Read    bool      // Old is not known: the group is never done, and the Store wants only the Value
	Expires time.Time // from then on the row may be deleted; zero if New is nil
	Value   []byte    // set by Swap if the group is not done: the value that the row has, or nil if there is no row
}

// NotDone returns an error for [Backend.Swap] that says that no group was done. It wraps err.
func NotDone(err error) error { return &notDone{err} }

type notDone struct{ error }

func (e *notDone) Unwrap() error { return e.error }

// wasNotDone reports whether err says that no group was done.
func wasNotDone(err error) bool { return errors.As(err, new(*notDone)) }
