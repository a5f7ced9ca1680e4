// Package confmap reads configs that come as maps, as encoding/json and the YAML decoders make
// them, and reports all their problems at once.
//
// A [Node] is one map and its path in the config, such as "configs[3].algoConfig". A [Reader] reads
// the fields of nodes. If a field is wrong, the Reader records the problem, with the path of the
// field, and goes on. It reads numbers as the decimals that were written, so that 0.1 is exactly a
// tenth, see [Decimal]. For an unknown name, it suggests a similar one, see [Nearest].
//
// A config may come from an untrusted source. The time and memory that a large or deep config takes
// are therefore bounded, and so is the length of an error.
//
// The package knows nothing of rate limits: its caller says which fields there are and what their
// values mean, and makes the errors.
package confmap

import (
	"errors"
	"slices"
)

// The bounds on what a config may have, and on how much of it an error shows.
const (
	MaxProblems = 100  // the most problems that an error lists; further problems are only counted
	MaxText     = 1024 // the most bytes in a string of a config
	MaxName     = 100  // the most bytes in a name that is compared with known names
	MaxValue    = 60   // the most bytes of a value that an error shows
	MaxPath     = 240  // the most bytes of a path that an error shows
)

// A Reader reads nodes, which are the maps of a config, and collects their problems. The problems are
// in the order in which the fields are read, so the error for a config is the same each time.
//
// A Reader must be used by one goroutine only.
type Reader struct {
	problem func(field, value, reason string) error // makes the error for one field, see NewReader
	more    func(n int) error                       // makes the error for n problems that are not listed, see NewReader

	problems []error // the problems that Err lists, at most MaxProblems
	skipped  int     // number of problems that are counted, but not listed
	copied   int     // the cost of all copies of maps and lists so far, about the number of their values; bounded by the method pay
}

// NewReader returns a Reader whose errors are made by two functions of the caller. The function problem
// makes the error for one field from its path, a description of its value and the reason, a text that says
// what a good value is. The function more makes the last error of a long list, which says that n further
// problems are not listed.
func NewReader(problem func(field, value, reason string) error, more func(n int) error) *Reader {
	return &Reader{problem: problem, more: more}
}

// Reject reports that the value of a field is wrong, as a problem that Err returns. The parameter field is the
// path of the field, value describes its value, and reason says what a good value is.
func (r *Reader) Reject(field, value, reason string) {
	r.Report(r.problem(field, value, reason))
}

// Report adds a problem, whose error the caller has made, to the problems that Err returns.
func (r *Reader) Report(err error) {
	if len(r.problems) == MaxProblems {
		r.skip(1)
		return
	}
	r.problems = append(r.problems, err)
}

// skip counts n problems without listing them.
func (r *Reader) skip(n int) { r.skipped += n }

// Found returns the number of problems that were reported so far, including those that Err does not
// list.
func (r *Reader) Found() int { return len(r.problems) + r.skipped }

// Err returns all problems so far, joined into one error, or nil if there are none.
func (r *Reader) Err() error {
	if r.skipped > 0 {
		return errors.Join(append(slices.Clip(r.problems), r.more(r.skipped))...)
	}
	return errors.Join(r.problems...)
}
