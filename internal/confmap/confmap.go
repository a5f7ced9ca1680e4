// Package confmap reads configs that come as maps, as encoding/json and the YAML
// decoders make them, and reports everything that is wrong with them at once.
//
// A [Node] is one map and its path in the config, such as "configs[3].algoConfig".
// A [Reader] reads the fields of nodes. A field that is wrong does not stop it: it
// collects the problem, under the path of the field, and reads on. Numbers are kept
// as the decimals that were written, so that 0.1 is a tenth exactly, see [Decimal];
// a name that is not known is compared with those that are, see [Nearest].
//
// Configs may come from anybody. What a large or deep one costs is bounded, and so is
// what an error shows of it.
//
// The package knows nothing of rate limits: its caller says what fields there are and
// what their values mean, and makes the errors.
package confmap

import (
	"errors"
	"slices"
)

// What a config may have, and how much of it an error shows.
const (
	MaxProblems = 100  // problems that an error lists; the others are counted
	MaxText     = 1024 // bytes in a string
	MaxName     = 100  // bytes in a name that is compared with those that are known
	MaxValue    = 60   // bytes of a value in an error
	MaxPath     = 240  // bytes of a path in an error
)

// A Reader reads nodes and collects what is wrong with them. The problems come in the
// order in which the fields are read, so that the error for a config reads the same
// each time.
//
// A Reader is used by one goroutine.
type Reader struct {
	problem func(field, value, reason string) error
	more    func(n int) error

	problems []error // at most MaxProblems
	skipped  int     // problems that are counted, but not listed
	copied   int     // what the copies have cost so far, see Copy
}

// NewReader returns a Reader whose errors the caller makes: problem makes the error
// for the field at a path, given the description of its value and what a good value
// is; more makes the last error of a list, which says that n problems are not in it.
func NewReader(problem func(field, value, reason string) error, more func(n int) error) *Reader {
	return &Reader{problem: problem, more: more}
}

// Reject reports that the value of a field is wrong. field is the path of the field,
// value the description of its value, and reason says what a good value is.
func (r *Reader) Reject(field, value, reason string) {
	r.Report(r.problem(field, value, reason))
}

// Report reports a problem for which the caller has an error.
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
