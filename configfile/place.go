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

// An Error reports one problem with a file, and the place of the problem. Several Errors are joined in
// the order of their places in the file. With [errors.Is], an Error matches all errors that its field Err
// matches, such as [ratelimit.ErrInvalidConfig] for an invalid document and [io/fs.ErrNotExist] for a
// missing file.
type Error struct {
	File string // the name or path that the caller has given

	// Line and Column are the place where the name of the wrong field begins. If a wrong value
	// has no name, they are the place of the value. Both count from 1, and Column counts bytes. For
	// a missing field, they are the place of the object that must have the field. Both are 0
	// if the file cannot be read or is too large, or if Err only says how many problems are
	// not listed.
	Line, Column int

	Err error // the problem, such as a [*ratelimit.ConfigError]
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

// A problem is an error with its place in the data of a file.
type problem struct {
	at  int // the index of a byte in the data, or the constant nowhere
	err error
}

// nowhere stands for the place of a problem that has no place. It sorts after all real places.
const nowhere = math.MaxInt

// report returns the problems as Errors, in the order of their places.
func (f *File) report(problems []problem) []error {
	slices.SortStableFunc(problems, func(a, b problem) int { return cmp.Compare(a.at, b.at) })
	errs := make([]error, len(problems))
	// The loop counts lines. Its three variables describe the point that it has reached: the number of the
	// line (line), the index of the first byte of this line (begin), and the index of the point (counted).
	line, begin, counted := 1, 0, 0
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

// located converts err, which package ratelimit has returned for the rules of f. It returns an Error for
// each problem that is in the file, and after these all other problems unchanged, such as problems with
// options.
func (f *File) located(err error) error {
	problems, others := f.placed(limited(parts(err)), pathOf)
	return errors.Join(append(f.report(problems), others...)...)
}

// placed splits the errors that are joined in err. The first result has the errors that belong to the
// file, with their places. The second result has all other errors. The parameter pathOf is a function. It gets
// the name that an error has for a field, and returns the path of that field in the file, or false if the field
// is not in the file.
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
		if direct, ok := any(part).(*ratelimit.ConfigError); !ok || direct != field { // part is no ConfigError itself, but wraps one
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

// parts returns the errors that are joined in err. If an error adds words to the texts of the errors
// that are joined in it, parts does not split that error, because the words would be lost.
func parts(err error) (all []error) {
	if err == nil {
		return nil
	}
	// errors.As must not be used here. It would also find errors that are joined inside a wrapping error, and
	// the text of the wrapping error would then be lost.
	joined, ok := any(err).(interface{ Unwrap() []error })
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

// The type caused is an error whose text names a field of a rule by its path in the file. With errors.Is,
// the error also matches the original error of package ratelimit, which is stored in the field cause.
type caused struct {
	error
	cause error
}

// Unwrap returns two errors: the error whose text has the path in the file, and the original error.
func (c *caused) Unwrap() []error { return []error{c.error, c.cause} }

// pathOf returns the path in the file of the field that an error of package ratelimit names: "rules[0].rate"
// for "configs[0].rate". ok is false if the field is not in the file, such as a field of an option.
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
	case "overrides":
		return field, true
	}
	return "", false
}

// The regular expression elsewhere matches a reason (the text of an error) that begins with a reference to
// another rule, such as "is that of configs[0]".
var elsewhere = regexp.MustCompile(`^(is that of|must be nil:) (configs|defaultConfig|defaultRule)\b`)

// The function renamed returns the reason (the text of an error), but replaces in it the name of another rule
// by the path of that rule in the file: package ratelimit writes configs[0], for example, where the file has
// rules[0]. If the reason names no other rule, it stays unchanged.
func renamed(reason string) string {
	m := elsewhere.FindStringSubmatch(reason)
	if m == nil {
		return reason
	}
	path, _ := pathOf(m[2])
	return m[1] + " " + path + reason[len(m[0]):]
}

// plainName matches a name in brackets, as in the path tiers["pro"]. Errors of package ratelimit always
// write the name of a tier like this, while the scanner of this package writes tiers.pro.
var plainName = regexp.MustCompile(`\["([-_0-9A-Za-z]{1,40})"\]`)

// places finds the places of the given paths in one walk over the file. It returns a function that maps each
// of these paths to its place. A path that does not exist gets the place of the nearest value that encloses
// it. For the empty path, the place is the constant nowhere.
func (f *File) places(paths []string) func(path string) int {
	found := make(map[string]int)
	around := func(path string) (all []string) { // around returns path and the paths of the values that enclose it
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
		if found[path] == nowhere { // path is one of the paths to find, and this is its first place
			found[path] = at
			if left--; left == 0 {
				walk.fail(at, "") // end the walk: all paths are found
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

// Find returns the line and the column of the value at path, such as "rules[1].rate" or "default.key".
// Both count from 1. They are the place of the value's name or, for a rule in the list, of the first
// byte of the rule. If the file has no value at path, or spells one of the names in path differently,
// Find returns the place of the nearest value that encloses it. For the empty path, Find returns 0, 0.
// The paths of rules begin with "rules" even if the file is only a list.
func (f *File) Find(path string) (line, column int) {
	at := f.places([]string{path})(path)
	if at == nowhere {
		return 0, 0
	}
	begin := bytes.LastIndexByte(f.data[:at], '\n') + 1
	return bytes.Count(f.data[:at], []byte("\n")) + 1, at - begin + 1
}
