package ruleconfig

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// Fields reads the algoConfig of a custom algorithm, field by field, and collects its problems. Each
// method that reads a field reports the field if it is missing or wrong, and then returns the zero
// value.
type Fields struct {
	reader  *confmap.Reader
	node    *confmap.Node
	known   []string          // the names of the fields for which a method was called
	missing map[string]string // for each required field that is missing, a text that says what it must be
	done    bool              // whether Err has been called
}

// NewFields returns the Fields of algoConfig. The first function makes the error for one wrong field. The
// second function makes the error which says that n further problems are not listed.
func NewFields(algoConfig map[string]any, problem func(field, value, reason string) error, more func(n int) error) *Fields {
	node, ok := confmap.NodeOf("", algoConfig)
	if !ok {
		node, _ = confmap.NodeOf("", map[string]any{})
	}
	counted := func(n int) error { return &moreFields{more(n), n} }
	return &Fields{reader: confmap.NewReader(problem, counted), node: node, missing: make(map[string]string)}
}

// A moreFields is the error which says that n problems are not listed.
type moreFields struct {
	error
	n int
}

// Unwrap returns the error that the caller of NewFields made.
func (m *moreFields) Unwrap() error { return m.error }

// Has reports whether the config has the field with this name.
func (f *Fields) Has(name string) bool {
	f.known = append(f.known, name)
	f.node.Match(confmap.NewSchema([]string{name}, nil))
	return f.node.Has(name)
}

// given reports whether the config has the required field with this name. If the field is missing, it
// stores the second parameter for the error: a text that says what the field must be.
func (f *Fields) given(name, form string) bool {
	ok := f.Has(name)
	if !ok {
		f.missing[name] = form
	}
	return ok
}

// Err returns all problems, joined. A field for which no method was called is a problem too.
func (f *Fields) Err() error {
	if f.done {
		return f.reader.Err()
	}
	f.done = true
	f.node.Match(confmap.NewSchema(f.known, nil))
	f.reader.Unknown(f.node, f.known, func(string, any) (string, []string) { return "", nil })
	for _, name := range f.known {
		form, missing := f.missing[name]
		if missing && !f.node.Misspelt(name) {
			f.reader.Reject(name, "missing", form)
			delete(f.missing, name)
		}
	}
	return f.reader.Err()
}

const (
	durationForm = `must be a time with its unit, such as "90s"`
	rateForm     = `must be a rate such as "100/m"`
)

// Int reads a field whose value is a whole number.
func (f *Fields) Int(name string) int {
	if !f.given(name, "must be a whole number") {
		return 0
	}
	return f.reader.Int(f.node, name)
}

// Float reads a field whose value is a number.
func (f *Fields) Float(name string) float64 {
	if !f.given(name, "must be a number") {
		return 0
	}
	return f.reader.Float(f.node, name)
}

// String reads a field whose value is a text.
func (f *Fields) String(name string) string {
	if !f.given(name, "must be a string") {
		return ""
	}
	s, _ := f.reader.Text(f.node, name)
	return s
}

// Bool reads a field whose value is true or false.
func (f *Fields) Bool(name string) bool {
	return f.given(name, "must be true or false") && f.reader.Bool(f.node, name)
}

// Duration reads a field whose value is a time with its unit, above 0.
func (f *Fields) Duration(name string) time.Duration {
	if !f.given(name, durationForm) {
		return 0
	}
	v, _ := f.node.Get(name)
	if d, ok := durationOf(v); ok {
		return d
	}
	f.reader.Reject(f.node.Field(name), f.node.Describe(name), durationForm)
	return 0
}

// Rate reads a field whose value is a rate, written as a text.
func (f *Fields) Rate(name string) ratetext.Rate {
	if !f.given(name, rateForm) {
		return ratetext.Rate{}
	}
	v, _ := f.node.Get(name)
	text, ok := confmap.TextOf(v)
	reason := rateForm
	if ok && len(text) <= confmap.MaxText {
		rate, err := ratetext.Parse(text)
		if err == nil && rate != ratetext.Unlimited {
			return rate
		}
		if err != nil {
			reason = err.Error()
		}
	}
	f.reader.Reject(f.node.Field(name), f.node.Describe(name), reason)
	return ratetext.Rate{}
}
