package ruleconfig

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// maxCause is how much of an error or a panic of the user's code is shown, in bytes.
const maxCause = 500

// Made returns what build makes of the algoConfig of a custom algorithm. It returns nil if build
// returns an error or nil, or if it panics, and reports the problem. rule and config are the
// nodes of the rule and of its algoConfig.
func (r *Reader) Made(rule, config *confmap.Node, a Algorithm, build func() (any, error)) any {
	made, misuse, err := guarded(build)
	switch {
	case misuse != "":
		problem := r.caller.Problem(rule.Field("algorithm"), confmap.Quote(a.Name), "its BuildFunc "+misuse)
		r.Report(&causedError{problem, err})
		return nil
	case err != nil:
		r.reportBuild(config, a, err)
		return nil
	}
	return made
}

// guarded calls build. If that panics or returns neither a value nor an error, misuse says so.
// If it panics with an error, err is that error.
func guarded(build func() (any, error)) (made any, misuse string, err error) {
	defer func() {
		if p := recover(); p != nil {
			misuse = "panicked: " + confmap.Truncate(fmt.Sprint(p), maxCause)
			err, _ = p.(error)
		}
	}()
	made, err = build()
	if err == nil && made == nil {
		misuse = "returned neither a limiter nor an error"
	}
	return made, misuse, err
}

// reportBuild reports the error of build. If that consists only of errors for fields, they are
// reported for the fields of the algoConfig. Otherwise, the error is reported as the reason why
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
			r.Report(err) // only to be counted: there are too many to be listed
		}
		if e.more > 0 {
			continue
		}
		value := confmap.Truncate(fmt.Sprint(e.value), confmap.MaxValue)
		path := within(config.Path, confmap.Truncate(e.field, confmap.MaxPath))
		r.Report(&causedError{r.caller.Problem(path, value, confmap.Truncate(e.reason, maxCause)), e.err})
	}
}

// within returns the path of a field of the map at path.
func within(path, field string) string {
	if strings.HasPrefix(field, "[") {
		return path + field
	}
	return path + "." + field
}

// A fieldError is an error for one field.
type fieldError struct {
	field  string
	value  any
	reason string
	err    error
	more   int // if it is above 0, so many errors that are not listed
}

// fieldErrors returns the errors for fields that are joined in err, or err itself if it is one.
// It reports whether err has nothing to say beside them.
func (r *Reader) fieldErrors(err error) (all []fieldError, ok bool) {
	found := fieldError{err: err}
	if found.field, found.value, found.reason, ok = r.caller.Field(err); ok {
		return []fieldError{found}, true
	}
	switch e := any(err).(type) { // not errors.As: an error that wraps one for a field says more
	case *moreFields:
		return []fieldError{{more: e.n}}, true
	case *causedError: // build has read another config
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

// A causedError is an error for a field and the error of the user's code that it reports.
type causedError struct {
	error
	cause error // may be nil
}

// Unwrap returns the error for the field and, if there is one, its cause.
func (e *causedError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.error}
	}
	return []error{e.error, e.cause}
}

// ReportChecked reports the problems that the caller has found in the rule at n, whose config
// had none before. The caller names the fields of a Rule. The errors name those of the config, which
// may have others, or other names for them.
func (r *Reader) ReportChecked(n *confmap.Node, problems []error) {
	for _, err := range problems {
		if field, value, reason, ok := r.caller.Field(err); ok {
			if rest, ok := strings.CutPrefix(field, n.Path+"."); ok {
				field, value, reason = written(n, rest, value, reason)
			}
			err = r.caller.Problem(confmap.Truncate(field, confmap.MaxPath), describeChecked(value), reason)
		}
		r.Report(err)
	}
}

// written returns the problem with a field of a rule as one of the config at n. rest is the path
// of the field in the rule.
func written(n *confmap.Node, rest string, value any, reason string) (string, any, string) {
	end := strings.IndexAny(rest, ".[")
	if end < 0 {
		end = len(rest)
	}
	name, rest := rest[:end], rest[end:]
	switch {
	case name == "limiter": // of a custom algorithm
		name, reason = "algorithm", "must be one of "+confmap.List(builtinNames())+strings.TrimPrefix(reason, "must be nil")
	case name == "warmup":
		return writtenWarmup(n, rest), value, reason
	case name != "rate":
	case n.Has("algoConfig"):
		return n.Field("algoConfig") + rest, value, reason
	case !n.Has("rate"): // it is made of several fields of n
		return n.Path + rest, value, reason
	}
	if n.Has(name) && rest == "" {
		value = n.Describe(name)
	}
	return n.Field(name) + rest, value, reason
}

// describeChecked returns the short text that shows value in an error. value comes from the check
// of a rule, which quotes strings in full.
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
