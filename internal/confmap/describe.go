package confmap

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

// TextOf returns v as a string, and reports whether v is a string or has a named string type. A
// json.Number counts as a number, not as a string.
func TextOf(v any) (s string, ok bool) {
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

// Describe returns a short, printable text for v in an error: a number as it was written, a string
// in quotes, or the kind of value, such as "a map".
func Describe(v any) string {
	if s, ok := TextOf(v); ok {
		return Quote(s)
	}
	if x, ok := NumberOf(v); ok {
		return x.String()
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
	case reflect.Float32, reflect.Float64: // NaN or infinite
		return strconv.FormatFloat(r.Float(), 'g', -1, 64)
	case reflect.String: // a json.Number whose text is not a number
		return Quote(r.String())
	}
	return Truncate(fmt.Sprintf("a %T", v), MaxValue)
}

// Quote returns s as a quoted Go string, in at most MaxValue bytes. It shortens a longer string to
// its beginning and "...".
func Quote(s string) string {
	const limit = MaxValue - len(`..."`)
	b := strings.Builder{}
	b.WriteByte('"')
	for rest := s; rest != ""; {
		_, size := utf8.DecodeRuneInString(rest)
		char := strconv.Quote(rest[:size])
		char = char[1 : len(char)-1] // without the quotes around it
		if b.Len()+len(char) > limit {
			return b.String() + `..."`
		}
		b.WriteString(char)
		rest = rest[size:]
	}
	return b.String() + `"`
}

// Truncate returns s in at most limit bytes. It shortens a longer string to its beginning and "...".
// Characters that are not printable become spaces, so that the text stays on one line. A byte that
// is not UTF-8 becomes U+FFFD, which has three bytes; with such bytes, the text may be longer than
// limit.
func Truncate(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit-len("...")], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
