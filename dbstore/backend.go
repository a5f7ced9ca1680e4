package dbstore

import (
	"context"
	"errors"
	"time"
)

// A Backend is a database in which a [Store] keeps its rows. A row has a key and a value, both of them bytes. A Backend changes a
// row only if the row still has the value that the Store has seen last (compare and swap). The package dbstoretest has a test for a
// Backend that you write.
//
// A Backend must be safe for concurrent use by multiple goroutines.
type Backend interface {
	// Swap handles each group on its own. If every row of a group has its value Old (nil means that there is no row), Swap writes
	// all values New of the group, and sets Done. Otherwise Swap writes nothing of the group, and sets the Value of each Change to
	// the value that the row has. In one call, each key occurs only once.
	//
	// Swap returns the time of the database, read after the values. The parameter now is the time for which the Store has made its
	// decisions, or zero. If now is not zero, and is later than the time of the database or more than [MaxBehind] earlier, Swap
	// writes no group, and only sets the Values. Swap returns by the deadline of ctx. After that, nothing of the call still waits
	// in the database, for example for a lock.
	//
	// After an error, each group may or may not have been done. If [NotDone] has made the error, no group was done.
	Swap(ctx context.Context, now time.Time, groups []Group) (time.Time, error)
}

// MaxBehind is how far the time for which a decision was made may be behind the time of the database. If it is further behind, the
// Store makes the decision again.
const MaxBehind = 50 * time.Millisecond

// A Group is a set of rows that are changed together or not at all.
type Group struct {
	Changes []Change // one for each row
	Done    bool     // set by Swap: whether all rows had their value Old, and now have New
}

// A Change says how the row of one key changes.
type Change struct {
	Key []byte // at most 200 bytes
	Old []byte // the value that the row must have; nil means that there must be no row
	New []byte // the value to write; nil means to delete the row. If New equals Old, Swap only compares, and writes nothing

	Read    bool      // whether the Store only asks for the Value; Old and New are then not used, and Swap does not set Done of the group
	Expires time.Time // the time from which on the row may be deleted; zero if New is nil
	Value   []byte    // set by Swap if it does not set Done of the group: the value that the row has, or nil if there is no row
}

// NotDone returns an error that wraps err and tells the Store that no group was done. [Backend.Swap] can return such an error.
func NotDone(err error) error { return &notDone{err} }

type notDone struct{ error }

func (e *notDone) Unwrap() error { return e.error }

// wasNotDone reports whether err says that no group was done.
func wasNotDone(err error) bool { return errors.As(err, new(*notDone)) }
