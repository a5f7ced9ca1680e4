// Package configread reads the algoConfig of a rule whose algorithm is not built into package ratelimit. The
// algoConfig has the settings of that custom algorithm.
//
// The [ratelimit.BuildFunc] of the algorithm gets the algoConfig as a map. A [Reader] reads the
// fields of the map, reports all problems at once, and suggests a name for a field that is misspelt.
package configread

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A Reader reads the fields of an algoConfig. It accepts the values that any decoder makes: a number
// may be an int, a float64 or a json.Number. It ignores case, "_" and "-" in the names of fields.
//
// Each method that takes the name of a field, except Has, reads this field and returns its value. If the field is
// missing or invalid, the method returns zero, and [Reader.Err] reports the problem. A Reader must be used by one
// goroutine only.
type Reader struct {
	fields *ruleconfig.Fields
}

// Read returns a Reader for algoConfig.
func Read(algoConfig map[string]any) *Reader {
	problem := func(field, value, reason string) error {
		return &ratelimit.ConfigError{Field: field, Value: value, Reason: reason}
	}
	more := func(n int) error { return ruleconfig.More(n, ratelimit.ErrInvalidConfig) }
	return &Reader{ruleconfig.NewFields(algoConfig, problem, more)}
}

// Has reports whether the config has the field. Call it before reading a field that may be left out,
// because the other methods report a missing field as a problem.
func (r *Reader) Has(name string) bool { return r.fields.Has(name) }

// Int returns the whole number in a field.
func (r *Reader) Int(name string) int { return r.fields.Int(name) }

// Float returns the number in a field.
func (r *Reader) Float(name string) float64 { return r.fields.Float(name) }

// String returns the text in a field, which may have up to 1,024 bytes.
func (r *Reader) String(name string) string { return r.fields.String(name) }

// Bool returns the value of a field that is true or false.
func (r *Reader) Bool(name string) bool { return r.fields.Bool(name) }

// Duration returns the length of time in a field, such as "90s", "1h30m" or "2 days". The time must be
// above 0.
func (r *Reader) Duration(name string) time.Duration { return r.fields.Duration(name) }

// Rate returns the rate in a field, which is a text for [ratelimit.ParseRate]. The rate must not be
// [ratelimit.Unlimited].
func (r *Reader) Rate(name string) ratelimit.Rate {
	rate := r.fields.Rate(name)
	return ratelimit.Rate{Requests: rate.Requests, Per: rate.Per, Burst: rate.Burst, Window: ratelimit.Window(rate.Window)}
}

// Err returns all problems, joined, or nil. It reports the problems of the fields that were read. It
// also reports each field of the config for which no method was called, because the algorithm does not
// know that field. Each problem is a [*ratelimit.ConfigError], and the error matches
// [ratelimit.ErrInvalidConfig]. A BuildFunc can return it unchanged.
func (r *Reader) Err() error { return r.fields.Err() }
