// Package configfile reads the rules of a rate limiter from a JSON file, and applies the file
// again when it changes.
//
// [Open] makes a limiter from a file, and a [Watcher] that applies later versions of the file. An error
// lists all problems with a file, each with its line and column. While a file has problems, the limiter
// keeps its current rules.
//
// A file contains a document such as
//
//	{"rules": [{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "60/m"}], "default": {…}}
//
// or only the list of rules. [ratelimit.DecodeRules] describes the fields of a rule. The field "overrides"
// may have a list of exceptions, each with the fields of a [ratelimit.Override]:
//
//	{"rules": […], "overrides": [{"ip": "10.0.0.0/8", "effect": "exempt", "note": "office"}]}
//
// For editors, the field "$schema" may name the schema that [Schema] returns.
//
// Besides the packages of its own module, the package imports only the standard library. It starts no
// goroutine.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// maxSize is the largest size of a file, in bytes.
const maxSize = 4 << 20

// A File holds a document with rules. It is safe for concurrent use by multiple goroutines.
type File struct {
	name        string
	data        []byte // the content of the file, without a byte order mark
	bare        bool   // whether the document is only the list of rules
	rules       []map[string]any
	defaultRule map[string]any // nil if the document has no default rule
	overrides   []ratelimit.Override
}

// Parse reads a document. The document must be one JSON value in UTF-8 of at most 4 MiB. It may nest
// objects and lists 32 levels deep, and must not repeat a name within an object. Parse skips a byte
// order mark, and keeps all digits of numbers. The parameter name is the name of the file in errors.
//
// Parse does not check the rules, because only a limiter knows its custom algorithms: [File.New] and
// [File.Apply] check the rules. For each problem with the document itself, Parse returns an [*Error].
// Several Errors are joined.
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

// tooLarge is the reason for refusing a file above maxSize.
var tooLarge = fmt.Sprintf("must have at most %d bytes", maxSize)

// invalid returns the index of the first byte of data that is not valid UTF-8, or the length of data.
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

// documentFields lists the fields that a document may have if it is an object, and not only a list of rules.
var documentFields = []ruleconfig.Field{
	{Name: "$schema", Kind: ruleconfig.Text, Says: "The schema of this document, for editors."},
	{Name: "rules", Says: "The rules, in the order in which they are asked."},
	{Name: "default", Says: "The rule for the endpoints that no other rule matches."},
	{Name: "overrides", Says: "Exceptions from the rules, for some clients and addresses."},
}

// The reasons for refusing parts of a document that have the wrong type.
const (
	documentForm = `must be an object such as {"rules": [...]}, or a list of rules`
	rulesForm    = "must be a list of rules"
)

// maxRules is the largest number of rules in a document. The default rule does not count.
const maxRules = 10_000

// take stores the rules, the default rule and the overrides of a parsed document in f. It leaves the check of
// the rules to the limiter. It returns all other problems that it finds, joined.
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
		if v, ok := n.Get("overrides"); ok {
			f.takeOverrides(r, v)
		}
		rules, given = n.Get("rules")
	}
	list, ok := rules.([]any)
	if given && !ok {
		r.Reject("rules", confmap.Describe(rules), rulesForm)
	}
	f.rules = make([]map[string]any, 0, len(list))
	for i, v := range list {
		if len(list) > maxRules { // too many rules: skip their contents, because package ratelimit refuses the list anyway
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

// documentHint explains an unknown field of a document, for the text of an error. If the field has another
// name in a document, as "defaultRule" should be "default", both results give the right name. If the field
// belongs in a rule, the first result says so. For all other fields, both results are empty.
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

// Load reads the document in the file at path, which must be a regular file or a symbolic link to one.
// Load returns the errors of [Parse]; if the file cannot be read, it returns an [*Error] without a line.
func Load(path string) (*File, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Open makes a limiter from the file at path, and a Watcher for the file. While [Watcher.Run] runs, the
// Watcher applies the file to the limiter whenever the file changes. opts are options for the limiter,
// as for [ratelimit.New].
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

// New makes a limiter with the rules and the overrides of f. The error joins an [*Error] for each problem with f and,
// after these, a [*ratelimit.ConfigError] for each problem with an option. The overrides are checked only if the rules and
// the options have no problem.
func (f *File) New(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
	l, err := ratelimit.NewFromConfig(f.rules, f.defaultRule, opts...)
	if err != nil || len(f.overrides) == 0 {
		return l, f.located(err)
	}
	rules, defaultRule := l.Rules()
	if err = f.unknownNames(rules, defaultRule, nil); err == nil {
		err = l.ReloadOverrides(f.overrides...)
	}
	if err != nil {
		closeLimiters(l)
		return nil, f.located(err)
	}
	return l, nil
}

// closeLimiters makes l close the custom limiters that l has built for its rules. It replaces these rules by rules without a
// custom limiter, because l closes a custom limiter that no rule uses any more.
func closeLimiters(l *ratelimit.RateLimiter) {
	plain := func(r ratelimit.Rule) ratelimit.Rule {
		if r.Limiter == nil {
			return r
		}
		return ratelimit.Rule{Name: r.Name, Endpoint: r.Endpoint, Additional: r.Additional, Rate: ratelimit.PerSecond(1)}
	}
	rules, defaultRule := l.Rules()
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i] = plain(rules[i])
	}
	if defaultRule != nil {
		r := plain(*defaultRule)
		defaultRule = &r
	}
	_ = l.Replace(rules, defaultRule) // if Replace fails, the custom limiters stay open; nothing else happens
}

// Apply replaces the rules of l with the rules of f, as [ratelimit.RateLimiter.Reload] does: the keys
// keep the units that they have used, and the rules keep what was set in code, such as functions. It also
// replaces the overrides that an earlier file has set, but keeps the overrides that were set in code. If f
// has problems, Apply changes nothing, and the error joins an [*Error] for each problem.
func (f *File) Apply(l *ratelimit.RateLimiter) error { return f.applyIf(l, nil) }

// applyIf does the work of Apply. If check is not nil, applyIf first calls it with the new rules. If check
// returns an error, applyIf applies nothing, and returns the error.
func (f *File) applyIf(l *ratelimit.RateLimiter, check func([]ratelimit.Rule, *ratelimit.Rule) error) error {
	if l == nil {
		return errNoLimiter
	}
	before := named(l)
	return f.located(l.ReloadAll(f.rules, f.defaultRule, f.overrides, func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
		if err := f.unknownNames(rules, defaultRule, before); err != nil || check == nil {
			return err
		}
		return check(rules, defaultRule)
	}))
}

// errNoLimiter is the error for a nil limiter.
var errNoLimiter error = &ratelimit.ConfigError{Field: "limiter", Value: "nil", Reason: "must be made by ratelimit.New or configfile.Open"}
