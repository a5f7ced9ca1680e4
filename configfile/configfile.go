// Package configfile reads the rules of a rate limiter from a JSON file, and applies the file
// again when it changes.
//
// [Open] makes a limiter of a file, and a [Watcher] that watches it. What is wrong with a file is
// said with line and column, all problems at once. While a file is wrong, the rules that run
// stay.
//
// A file holds the document
//
//	{"rules": [{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "60/m"}], "default": {…}}
//
// or only the list. Its rules are written as [ratelimit.DecodeRules] reads them. A field
// "$schema" may name the schema that [Schema] returns, for editors.
//
// The package imports only the standard library, and starts no goroutine.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// maxSize is the largest size of a file, in bytes.
const maxSize = 4 << 20

// A File is a document with rules. It is safe for concurrent use by multiple goroutines.
type File struct {
	name        string
	data        []byte // without a byte order mark
	bare        bool   // the document is only the list
	rules       []map[string]any
	defaultRule map[string]any // nil if there is none
}

// Parse reads a document. It must be one JSON value in UTF-8, of at most 4 MiB, with at most 32
// objects and lists within each other, and no name twice in one object. A byte order mark is
// skipped. Numbers keep all their digits. name is the name of the file in errors.
//
// Parse reads no rules: which algorithms there are is known to [File.New] and [File.Apply].
// What is wrong with the document itself is returned as an [*Error] or, if there are several,
// all of them joined.
func Parse(name string, data []byte) (*File, error) {
	f := &File{name: name}
	if len(data) > maxSize {
		return nil, &Error{File: name, Err: fault(tooLarge)}
	}
	f.data = bytes.Clone(bytes.TrimPrefix(data, []byte("\ufeff")))
	if at := invalid(f.data); at < len(f.data) {
		why := fmt.Sprintf("must be UTF-8, but has the byte %#02x", f.data[at])
		return nil, errors.Join(f.report([]problem{{at, fault(why)}})...)
	}
	var problems []problem
	more := 0
	s := scanner{data: f.data, twice: func(name string, at int) {
		if len(problems) == confmap.MaxProblems {
			more++
			return
		}
		problems = append(problems, problem{at, fault(confmap.Quote(name) + " must be given once, and is given before in the same object")})
	}}
	document, ok := s.document("")
	if !ok {
		return nil, errors.Join(f.report(append(problems, problem{s.failedAt, s.why}))...)
	}
	if more > 0 {
		problems = append(problems, problem{nowhere, fault(fmt.Sprintf("and %d more", more))})
	}
	wrong, _ := f.placed(f.take(document), func(path string) (string, bool) { return path, true })
	if problems = append(problems, wrong...); len(problems) > 0 {
		return nil, errors.Join(f.report(problems)...)
	}
	return f, nil
}

// tooLarge says what is wrong with a file that is too large.
var tooLarge = fmt.Sprintf("must have at most %d bytes", maxSize)

// invalid returns the index of the first byte of data that is not UTF-8, or its length.
func invalid(data []byte) int {
	if utf8.Valid(data) {
		return len(data)
	}
	at := 0
	for at < len(data) {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// documentFields are the fields of a document.
var documentFields = []ruleconfig.Field{
	{Name: "$schema", Kind: ruleconfig.Text, Says: "The schema of this document, for editors."},
	{Name: "rules", Says: "The rules, in the order in which they are asked."},
	{Name: "default", Says: "The rule for the endpoints that no other rule matches."},
}

// The forms that the parts of a document have, in errors.
const (
	documentForm = `must be an object such as {"rules": [...]}, or a list of rules`
	rulesForm    = "must be a list of rules"
)

// maxRules is the largest number of rules, without the default rule.
const maxRules = 10_000

// take takes the rules out of a document. It returns all that is wrong, joined, but for the
// rules themselves.
func (f *File) take(document any) error {
	r := confmap.NewReader(
		func(field, value, reason string) error {
			return &ratelimit.ConfigError{Field: field, Value: value, Reason: reason}
		},
		func(n int) error { return fault(fmt.Sprintf("and %d more", n)) },
	)
	rules, given := document, true
	if _, f.bare = document.([]any); !f.bare {
		n, ok := confmap.NodeOf("", document)
		if !ok {
			return &ratelimit.ConfigError{Field: "rules", Value: confmap.Describe(document), Reason: documentForm}
		}
		names := ruleconfig.NamesOf(documentFields)
		n.Match(names)
		r.Unknown(n, names.Fields, documentHint)
		r.Text(n, "$schema")
		if v, ok := n.Get("default"); ok {
			if f.defaultRule, ok = v.(map[string]any); !ok {
				r.Reject(n.Field("default"), confmap.Describe(v), ruleconfig.RuleForm)
			}
		}
		rules, given = n.Get("rules")
	}
	list, ok := rules.([]any)
	if given && !ok {
		r.Reject("rules", confmap.Describe(rules), rulesForm)
	}
	f.rules = make([]map[string]any, 0, len(list))
	for i, v := range list {
		if len(list) > maxRules { // which the root reports, before it looks at any of them
			f.rules = append(f.rules, nil)
			continue
		}
		rule, ok := v.(map[string]any)
		if !ok {
			r.Reject("rules["+strconv.Itoa(i)+"]", confmap.Describe(v), ruleconfig.RuleForm)
		}
		f.rules = append(f.rules, rule)
	}
	return r.Err()
}

// documentHint says what is wrong with a field of a document that has a place elsewhere, or
// another name.
func documentHint(name string, _ any) (reason string, meant []string) {
	switch confmap.Fold(name) {
	case "configs":
		return `unknown field; did you mean "rules"?`, []string{"rules"}
	case "defaultconfig", "defaultrule":
		return `unknown field; did you mean "default"?`, []string{"default"}
	}
	for _, fields := range [][]ruleconfig.Field{ruleconfig.RuleFields, ruleconfig.RateFields} {
		if _, ok := ruleconfig.NamesOf(fields).Field(name); ok {
			return `unknown field; it belongs in a rule: {"rules": [{...}]}`, nil
		}
	}
	return "", nil
}

// Load reads the document in the file at path. It must be a regular file, or a symbolic link to
// one. What is wrong is returned as by [Parse], or as one [*Error] without a line.
func Load(path string) (*File, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Open makes a limiter of the file at path, and a Watcher that applies the file to the limiter
// whenever it changes, as long as [Watcher.Run] runs. The options are those of [ratelimit.New].
func Open(path string, opts ...ratelimit.Option) (*ratelimit.RateLimiter, *Watcher, error) {
	data, err := read(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := Parse(path, data)
	if err != nil {
		return nil, nil, err
	}
	l, err := f.New(opts...)
	if err != nil {
		return nil, nil, err
	}
	w := &Watcher{Path: path, Limiter: l}
	w.opened(data)
	return l, w, nil
}

// New makes a limiter with the rules of f. The error has an [*Error] for each problem with f,
// joined; a problem with an option is a [*ratelimit.ConfigError] after these.
func (f *File) New(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
	l, err := ratelimit.NewFromConfig(f.rules, f.defaultRule, opts...)
	return l, f.located(err)
}

// Apply replaces the rules of l by those of f, as [ratelimit.RateLimiter.Reload] does: keys keep
// what they have used, and rules keep what code has given to them. If anything is wrong with f,
// l does not change, and the error has an [*Error] for each problem, joined.
func (f *File) Apply(l *ratelimit.RateLimiter) error {
	if l == nil {
		return errNoLimiter
	}
	return f.located(l.Reload(f.rules, f.defaultRule))
}

// errNoLimiter is the error for a limiter that is nil.
var errNoLimiter error = &ratelimit.ConfigError{Field: "limiter", Value: "nil", Reason: "must be made by ratelimit.New or configfile.Open"}
