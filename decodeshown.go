package ratelimit

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// textOf returns v if it is a string. A json.Number is none.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return "", false
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.String {
		return r.String(), true
	}
	return "", false
}

// How much is shown of a value and of a path, in bytes.
const (
	maxShown = 60
	maxField = 240
)

// shown returns what an error says of v: a short text without control characters.
func shown(v any) string {
	if s, ok := textOf(v); ok {
		return quoted(s)
	}
	if x, ok := numberOf(v); ok {
		return x.text()
	}
	if d, ok := v.(time.Duration); ok {
		return d.String()
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return "nil"
	case reflect.Bool:
		return strconv.FormatBool(r.Bool())
	case reflect.Map, reflect.Slice, reflect.Array:
		if r.Kind() != reflect.Array && r.IsNil() {
			return "nil"
		}
		if r.Kind() == reflect.Map {
			return "a map"
		}
		return "a list"
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(r.Float(), 'g', -1, 64) // not finite
	case reflect.String: // of a json.Number that is no number
		return quoted(r.String())
	}
	return cut(fmt.Sprintf("a %T", v), maxShown)
}

// quoted returns s in quotes, the beginning of it if it is long.
func quoted(s string) string {
	const most = maxShown - len(`..."`)
	b := strings.Builder{}
	b.WriteByte('"')
	for rest := s; rest != ""; {
		_, size := utf8.DecodeRuneInString(rest)
		char := strconv.Quote(rest[:size])
		char = char[1 : len(char)-1]
		if b.Len()+len(char) > most {
			return b.String() + `..."`
		}
		b.WriteString(char)
		rest = rest[size:]
	}
	return b.String() + `"`
}

// cut returns the beginning of s if it is longer than most bytes, without control
// characters.
func cut(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-len("...")], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
