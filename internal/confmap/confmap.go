// Package confmap reads configs that come as maps, as encoding/json and the YAML
// decoders make them, and reports everything that is wrong with them at once.
//
// A [Node] is one map and its path in the config, such as "configs[3].algoConfig". A [Reader]
// reads the fields of nodes. A field that is wrong does not stop it: it keeps the problem, with
// the path of the field, and goes on. Numbers are kept as the decimals that were written, so
// that 0.1 is exactly a tenth, see [Decimal]. For a name that is not known, it suggests a
// similar one, see [Nearest].
//
// A config may come from a source that is not trusted. So the time and memory that a large or
// deep config takes are bounded, and so is the length of an error.
//
// The package has nothing to do with rate limits: its caller says which fields there are and
// what their values mean, and makes the errors.
package confmap

import (
	"errors"
	"slices"
)

// The bounds on what a config may have, and on how much of it an error shows.
const (
	MaxProblems = 100  // problems that an error lists; further ones are counted
	MaxText     = 1024 // bytes in a string
	MaxName     = 100  // bytes in a name that is compared with those that are known
	MaxValue    = 60   // bytes of a value in an error
	MaxPath     = 240  // bytes of a path in an error
)

// A Reader reads nodes and collects everything that is wrong with them. The problems are in the
// order in which the fields are read, so the error for a config is the same each time.
//
// A Reader must be used by one goroutine only.
type Reader struct {
	problem func(field, value, reason string) error
	more    func(n int) error

	problems []error // at most MaxProblems
	skipped  int     // problems that are counted, but not listed
	copied   int     // cost of the copies so far, see pay
}

// NewReader returns a Reader whose errors are made by two functions of the caller. problem
// makes the error for one field, from its path, a description of its value and a text that
// says what a good value is. more makes the last error of a list, which says that n further
// problems are not listed.
func NewReader(problem func(field, value, reason string) error, more func(n int) error) *Reader {
	return &Reader{problem: problem, more: more}
}

// Reject reports that the value of a field is wrong. field is the path of the field, value is a
// description of its value, and reason says what a good value is.
func (r *Reader) Reject(field, value, reason string) {
	r.Report(r.problem(field, value, reason))
}

// Report reports a problem for which the caller has made the error.
func (r *Reader) Report(err error) {
	if len(r.problems) == MaxProblems {
		r.skip(1)
		return
	}
	r.problems = append(r.problems, err)
}

// skip counts n problems that are not listed.
func (r *Reader) skip(n int) { r.skipped += n }

// Found returns the number of problems so far, listed or not.
func (r *Reader) Found() int { return len(r.problems) + r.skipped }

// Err returns all problems so far, joined, or nil.
func (r *Reader) Err() error {
	if r.skipped > 0 {
		return errors.Join(append(slices.Clip(r.problems), r.more(r.skipped))...)
	}
	return errors.Join(r.problems...)
}
