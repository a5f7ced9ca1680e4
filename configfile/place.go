package configfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimit-go/ratelimit"
)

// An Error is one thing that is wrong with a file, and where. If there are several, they are
// joined, in the order of their places in the file. An Error matches what Err matches: for a
// document that cannot work this is [ratelimit.ErrInvalidConfig], for a file that is not there
// [io/fs.ErrNotExist].
type Error struct {
	File string // the name or the path, as it was given

	// Line and Column are where the name of the field begins or, if it has none, the value.
	// Both count from 1, and the column counts bytes. For a field that is missing, the place
	// is that of the object that must have it. Both are 0 if the error has no place: the
	// file cannot be read, or there are more problems than are listed.
	Line, Column int

	Err error // what is wrong, such as a [*ratelimit.ConfigError]
}

// Error returns a text such as
//
//	limits.json:7:18: rules[1].algoConfig.windwMs is 1000: unknown field; did you mean "windowMs"?
func (e *Error) Error() string {
	text := strings.TrimPrefix(e.Err.Error(), "ratelimit: ")
	if e.Line == 0 {
		return e.File + ": " + text
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, text)
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// A problem is an error and the place of its byte in the data of a file.
type problem struct {
	at  int // nowhere if it has none
	err error
}

// nowhere is the place of a problem that has none. It comes after all others.
const nowhere = math.MaxInt

// report returns the problems as Errors, in the order of their places.
func (f *File) report(problems []problem) []error {
	slices.SortStableFunc(problems, func(a, b problem) int { return cmp.Compare(a.at, b.at) })
	errs := make([]error, len(problems))
	line, begin, counted := 1, 0, 0 // of the last place: its line, where that begins
	for i, p := range problems {
		e := &Error{File: f.name, Err: p.err}
		if p.at != nowhere {
			if n := bytes.Count(f.data[counted:p.at], []byte("\n")); n > 0 {
				line += n
				begin = bytes.LastIndexByte(f.data[:p.at], '\n') + 1
			}
			counted = p.at
			e.Line, e.Column = line, p.at-begin+1
		}
		errs[i] = e
	}
	return errs
}

// located returns err, which the root has made of the rules of f, with each problem as an
// Error. Problems with something else, such as an option, stay as they are, and come last.
func (f *File) located(err error) error {
	problems, others := f.placed(err, pathOf)
	return errors.Join(append(f.report(problems), others...)...)
}

// placed returns the problems that are joined in err, with their places, and those that are no
// problems with the file. pathOf returns the path in the file of a field that has a problem, and
// reports whether there is one.
func (f *File) placed(err error, pathOf func(field string) (string, bool)) (problems []problem, others []error) {
	var paths []string
	for _, part := range parts(err) {
		var field *ratelimit.ConfigError
		if !errors.As(part, &field) {
			problems, paths = append(problems, problem{err: part}), append(paths, "")
			continue
		}
		path, ok := pathOf(field.Field)
		if !ok {
			others = append(others, part)
			continue
		}
		var named error = &ratelimit.ConfigError{Field: path, Value: field.Value, Reason: renamed(field.Reason)}
		if direct, ok := any(part).(*ratelimit.ConfigError); !ok || direct != field { // there is a cause
			named = &caused{named, part}
		}
		problems, paths = append(problems, problem{err: named}), append(paths, path)
	}
	found := f.places(paths)
	for i, path := range paths {
		problems[i].at = found(path)
	}
	return problems, others
}

// parts returns the errors that are joined in err. An error that says more than its parts is
// not taken apart.
func parts(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := any(err).(interface{ Unwrap() []error }) // not errors.As: what wraps it says more
	if !ok {
		return []error{err}
	}
	var texts []string
	for _, part := range joined.Unwrap() {
		texts = append(texts, part.Error())
		all = append(all, parts(part)...)
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return all
}

// A caused is a problem by its path in the file, and the error that it was made of.
type caused struct {
	error
	cause error
}

// Unwrap returns the problem and the error that it was made of.
func (c *caused) Unwrap() []error { return []error{c.error, c.cause} }

// pathOf returns the path in the file of a field of rules, whose path in an error of the root
// is field. ok is false if it is no field of rules.
func pathOf(field string) (path string, ok bool) {
	name, rest := field, ""
	if end := strings.IndexAny(field, ".["); end >= 0 {
		name, rest = field[:end], field[end:]
	}
	switch name {
	case "configs", "rules":
		return "rules" + rest, true
	case "defaultConfig", "defaultRule", "default":
		return "default" + rest, true
	}
	return "", false
}

// elsewhere is the beginning of a reason that names another rule.
var elsewhere = regexp.MustCompile(`^(is that of|must be nil:) (configs|defaultConfig|defaultRule)\b`)

// renamed returns a reason with the names that the file has.
func renamed(reason string) string {
	m := elsewhere.FindStringSubmatch(reason)
	if m == nil {
		return reason
	}
	path, _ := pathOf(m[2])
	return m[1] + " " + path + reason[len(m[0]):]
}

// plainName finds a name in brackets that needs none: errors for tiers have them always.
var plainName = regexp.MustCompile(`\["([-_0-9A-Za-z]{1,40})"\]`)

// places returns a function that finds the place of a path in the file: that of the field or,
// if there is none, that of the nearest one around it. It finds the paths in one walk over the
// file, and none but these. The place of the empty path is nowhere.
func (f *File) places(paths []string) func(path string) int {
	found := make(map[string]int)
	around := func(path string) (all []string) { // itself, and what it is in
		path = plainName.ReplaceAllString(path, ".$1")
		for path != "" {
			all = append(all, path)
			path = path[:max(0, strings.LastIndexAny(path, ".["))]
		}
		return all
	}
	for _, path := range paths {
		for _, p := range around(path) {
			found[p] = nowhere
		}
	}
	walk, left := scanner{data: f.data}, len(found)
	walk.visit = func(path string, at int) {
		if found[path] == nowhere { // no name that is plain is in brackets here
			found[path] = at
			if left--; left == 0 {
				walk.fail(at, "") // all are found
			}
		}
	}
	walk.next()
	begin := walk.at
	if f.bare {
		walk.visit("rules", begin)
		walk.document("rules")
	} else {
		walk.document("")
	}
	return func(path string) int {
		for _, p := range around(path) {
			if at := found[p]; at != nowhere {
				return at
			}
		}
		if path == "" {
			return nowhere
		}
		return begin
	}
}

// Find returns where in the file the value at path is, such as "rules[1].rate" or "default.key": the
// line and the column of its name or, for a rule, of its first byte, both from 1. If the file has no
// such value, or another name for it, the place is that of the nearest one around it; it is 0, 0 for
// the empty path. Of a file that is only a list, the paths begin with "rules" too.
func (f *File) Find(path string) (line, column int) {
	at := f.places([]string{path})(path)
	if at == nowhere {
		return 0, 0
	}
	begin := bytes.LastIndexByte(f.data[:at], '\n') + 1
	return bytes.Count(f.data[:at], []byte("\n")) + 1, at - begin + 1
}
