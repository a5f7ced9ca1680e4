package ruleconfig

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// maxCause is the largest number of bytes that are shown of an error or a panic of the user's code.
const maxCause = 500

// Built calls the function build, which builds a value from the algoConfig of a custom algorithm, and
// returns that value. If build returns an error or nil, or panics, Built reports the problem and
// returns nil. The parameters rule and config are the nodes of the rule and of its algoConfig.
func (r *Reader) Built(rule, config *confmap.Node, a Algorithm, build func() (any, error)) any {
	built, misuse, err := guarded(build)
	switch {
	case misuse != "":
		problem := r.caller.Problem(rule.Field("algorithm"), confmap.Quote(a.Name), "its BuildFunc "+misuse)
		r.Report(&causedError{problem, err})
		return nil
	case err != nil:
		r.reportBuild(config, a, err)
		return nil
	}
	return built
}

// guarded calls the function build, and recovers a panic. If build panics, or if it returns no value and no
// error, the second result is a text that says so. If build panics with an error, err is that error.
func guarded(build func() (any, error)) (built any, misuse string, err error) {
	defer func() {
		if p := recover(); p != nil {
			misuse = "panicked: " + confmap.Truncate(fmt.Sprint(p), maxCause)
			err, _ = p.(error)
		}
	}()
	built, err = build()
	if err == nil && built == nil {
		misuse = "returned neither a limiter nor an error"
	}
	return built, misuse, err
}

// reportBuild reports err, which a build function has returned. If err consists only of errors for
// fields, it reports them for the fields of the algoConfig. Otherwise, it reports err as the reason why
// the algoConfig is refused.
func (r *Reader) reportBuild(config *confmap.Node, a Algorithm, err error) {
	fields, ok := r.fieldErrors(err)
	if !ok {
		problem := r.caller.Problem(config.Path, "refused by "+confmap.Quote(a.Name), confmap.Truncate(err.Error(), maxCause))
		r.Report(&causedError{problem, err})
		return
	}
	for _, e := range fields {
		for range e.more {
			r.Report(err) // counts one more problem: the build function has found it, but has not listed it
		}
		if e.more > 0 {
			continue
		}
		value := confmap.Truncate(fmt.Sprint(e.value), confmap.MaxValue)
		path := within(config.Path, confmap.Truncate(e.field, confmap.MaxPath))
		r.Report(&causedError{r.caller.Problem(path, value, confmap.Truncate(e.reason, maxCause)), e.err})
	}
}

// within joins the path of a map and the path of a field in that map.
func within(path, field string) string {
	if strings.HasPrefix(field, "[") {
		return path + field
	}
	return path + "." + field
}

// A fieldError is an error for one field.
type fieldError struct {
	field  string // path of the field
	value  any
	reason string // what a good value is
	err    error
	more   int // number of further errors, which are not listed; if above 0, the other fields are empty
}

// fieldErrors splits err into errors for single fields. If err is an error for one field, the result is err
// itself; otherwise it is the errors that err joins. If one of these is not an error for a field, ok is false.
func (r *Reader) fieldErrors(err error) (all []fieldError, ok bool) {
	found := fieldError{err: err}
	if found.field, found.value, found.reason, ok = r.caller.Field(err); ok {
		return []fieldError{found}, true
	}
	switch e := any(err).(type) { // not errors.As, because the text of a wrapping error would be lost
	case *moreFields:
		return []fieldError{{more: e.n}}, true
	case *causedError: // an error of this package: the build function has used the package to read its config
		found.field, found.value, found.reason, ok = r.caller.Field(e.error)
		return []fieldError{found}, ok
	case interface{ Unwrap() []error }:
		var texts []string
		for _, part := range e.Unwrap() {
			some, ok := r.fieldErrors(part)
			if !ok {
				return nil, false
			}
			all = append(all, some...)
			texts = append(texts, part.Error())
		}
		return all, len(all) > 0 && strings.Join(texts, "\n") == err.Error()
	}
	return nil, false
}

// A causedError is an error for a field, together with the error of the user's code that caused it.
type causedError struct {
	error       // the error for the field
	cause error // the error of the user's code; may be nil
}

// Unwrap returns the error for the field and, if there is one, its cause.
func (e *causedError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.error}
	}
	return []error{e.error, e.cause}
}

// ReportChecked reports the errors in problems, which a check of the rule with the config n has found after its
// config was read. These errors name the fields of a rule. The config may have other fields, or other
// names for them, so ReportChecked puts the fields of the config in the errors.
func (r *Reader) ReportChecked(n *confmap.Node, problems []error) {
	for _, err := range problems {
		if field, value, reason, ok := r.caller.Field(err); ok {
			if rest, ok := strings.CutPrefix(field, n.Path+"."); ok {
				field, value, reason = r.written(n, rest, value, reason)
			}
			err = r.caller.Problem(confmap.Truncate(field, confmap.MaxPath), describeChecked(value), reason)
		}
		r.Report(err)
	}
}

// written turns a problem with a field of a rule into a problem with the field that the user has written
// in the config n. The second parameter is the path of the field in the rule. The results are the path,
// the value and the reason for the error about the config.
func (r *Reader) written(n *confmap.Node, rest string, value any, reason string) (string, any, string) {
	end := strings.IndexAny(rest, ".[")
	if end < 0 {
		end = len(rest)
	}
	name, rest := rest[:end], rest[end:]
	switch {
	case name == "limiter": // the check refuses the Limiter of a rule; a config names an algorithm instead
		name, reason = "algorithm", "must be one of "+confmap.List(NamesIn(r.caller.Algorithms))+strings.TrimPrefix(reason, "must be nil")
	case name == "warmup":
		return writtenWarmup(n, rest), value, reason
	case name != "rate":
	case n.Has("algoConfig"):
		return n.Field("algoConfig") + rest, value, reason
	case !n.Has("rate"): // n has no field "rate": other fields, such as maxRequests and windowMs, give the rate
		return n.Path + rest, value, reason
	}
	if n.Has(name) && rest == "" {
		value = n.Describe(name)
	}
	return n.Field(name) + rest, value, reason
}

// describeChecked returns a short text for an error about a value. The value comes from the check of a
// rule. That check quotes strings, but does not shorten them.
func describeChecked(value any) string {
	text := ""
	switch v := value.(type) {
	case string:
		text = v
		if raw, err := strconv.Unquote(v); err == nil {
			text = confmap.Quote(raw)
		}
	case fmt.Stringer:
		text = v.String()
	default:
		text = confmap.Describe(v)
	}
	return confmap.Truncate(text, confmap.MaxValue)
}

// More returns an error which says that n problems are not listed. It wraps the error that is passed as invalid.
func More(n int, invalid error) error { return &moreProblems{n, invalid} }

type moreProblems struct {
	n       int
	invalid error
}

func (m *moreProblems) Error() string { return fmt.Sprintf("ratelimit: and %d more", m.n) }

// Unwrap returns the error that was passed to the function More.
func (m *moreProblems) Unwrap() error { return m.invalid }
