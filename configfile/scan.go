package configfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// maxLevels is how deep objects and lists may be nested: [[1]] has two levels.
const maxLevels = 32

// A fault is the reason why a config file is refused. It matches [ratelimit.ErrInvalidConfig].
type fault string

func (f fault) Error() string { return string(f) }

// Unwrap returns [ratelimit.ErrInvalidConfig].
func (fault) Unwrap() error { return ratelimit.ErrInvalidConfig }

// A scanner reads one JSON document, which must be valid UTF-8. Objects become maps, lists become
// []any, and numbers become json.Number with all their digits. The scanner replaces encoding/json, which
// accepts a repeated name, does not tell the places of values, and may change the texts of its errors
// between versions of Go.
type scanner struct {
	data  []byte
	at    int // the index of the next byte
	level int // number of objects and lists around the next byte

	// The scanner calls the function visit before it reads a member of an object or list. It passes the path
	// of the member, such as rules[0].rate, and an index in data. For a member of an object, this is the index
	// of the member's name; for a member of a list, of the member itself. If visit is nil, the scanner makes no
	// paths.
	visit func(path string, at int)

	// If an object repeats a name, the scanner calls the function in this field, with the name and the index
	// of the repetition. The function may be nil.
	twice func(name string, at int)

	failed   bool // whether the scanner has stopped
	failedAt int  // the index of the byte at which the scanner has stopped
	why      fault
}

// document reads the whole document. If the document is not valid, ok is false, and the fields why and
// failedAt describe the first error.
func (s *scanner) document(path string) (v any, ok bool) {
	v = s.value(path)
	if !s.failed {
		if s.next(); s.at < len(s.data) {
			s.fail(s.at, "must end here, but there is "+s.found())
		}
	}
	return v, !s.failed
}

// fail stops the scanner with an error, unless the scanner has stopped before.
func (s *scanner) fail(at int, why string) {
	if !s.failed {
		s.failed, s.failedAt, s.why = true, at, fault(why)
	}
}

// next skips white space and returns the next byte, or 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// The method found describes the byte at s.at, or the end of the document, for the text of an error.
func (s *scanner) found() string {
	if s.at >= len(s.data) {
		return "the end of the file"
	}
	r, _ := utf8.DecodeRune(s.data[s.at:])
	if !unicode.IsPrint(r) {
		return fmt.Sprintf("the character %U", r)
	}
	return strconv.Quote(string(r))
}

// value reads the next value. The parameter path is the path of this value in the document, such as rules[0].rate.
func (s *scanner) value(path string) any {
	switch c := s.next(); {
	case c == '{':
		return s.object(path)
	case c == '[':
		return s.list(path)
	case c == '"':
		return s.text()
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	for _, literal := range []struct {
		text  string
		value any
	}{{"true", true}, {"false", false}, {"null", nil}} {
		if len(s.data)-s.at >= len(literal.text) && string(s.data[s.at:s.at+len(literal.text)]) == literal.text {
			s.at += len(literal.text)
			return literal.value
		}
	}
	s.fail(s.at, "must be a JSON value, but is "+s.found()+s.afterComma())
	return nil
}

// afterComma returns a hint for the text of an error. If the byte at s.at is a closing bracket after a comma, as
// in [1, 2,], the hint is to remove the comma. Otherwise the hint is empty.
func (s *scanner) afterComma() string {
	if s.at >= len(s.data) || s.data[s.at] != ']' && s.data[s.at] != '}' {
		return ""
	}
	if before := bytes.TrimRight(s.data[:s.at], " \t\r\n"); !bytes.HasSuffix(before, []byte(",")) {
		return ""
	}
	return ": remove the comma before it"
}

// enter reads the opening bracket of an object or list. It fails if the nesting is too deep.
func (s *scanner) enter() bool {
	if s.level == maxLevels {
		s.fail(s.at, fmt.Sprintf("must have at most %d objects and lists within each other", maxLevels))
		return false
	}
	s.level++
	s.at++
	return true
}

// The method more reads the byte after a member of an object or list. It returns true if the byte is a
// comma, and false if it is the closing bracket. Any other byte is an error, for which it also returns
// false.
func (s *scanner) more(closing byte) bool {
	switch s.next() {
	case ',':
		s.at++
		return true
	case closing:
		s.at++
		s.level--
	default:
		s.fail(s.at, fmt.Sprintf("must have a \",\" or a %q here, but has %s", string(closing), s.found()))
	}
	return false
}

// object reads an object.
func (s *scanner) object(path string) map[string]any {
	if !s.enter() {
		return nil
	}
	m := make(map[string]any)
	if s.next() == '}' {
		s.more('}')
		return m
	}
	for {
		if s.next() != '"' {
			s.fail(s.at, "must have a name in double quotes here, but has "+s.found()+s.afterComma())
			return nil
		}
		at := s.at
		name := s.text()
		if !s.failed && s.next() != ':' {
			s.fail(s.at, "must have a \":\" after the name, but has "+s.found())
		}
		if s.failed {
			return nil
		}
		s.at++
		var member string
		if s.visit != nil {
			member = (&confmap.Node{Path: path}).Field(name)
			s.visit(member, at)
		}
		v := s.value(member)
		if _, given := m[name]; given && s.twice != nil {
			s.twice(name, at)
		}
		m[name] = v
		if s.failed || !s.more('}') {
			return m
		}
	}
}

// list reads a list.
func (s *scanner) list(path string) []any {
	if !s.enter() {
		return nil
	}
	all := []any{}
	if s.next() == ']' {
		s.more(']')
		return all
	}
	for {
		var element string
		if s.visit != nil {
			s.next()
			element = path + "[" + strconv.Itoa(len(all)) + "]"
			s.visit(element, s.at)
		}
		all = append(all, s.value(element))
		if s.failed || !s.more(']') {
			return all
		}
	}
}

// text reads a string and returns its value.
func (s *scanner) text() (text string) {
	begin, escaped := s.at, false
	for s.at++; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			raw := s.data[begin:s.at]
			if !escaped {
				return string(raw[1 : len(raw)-1])
			}
			if err := json.Unmarshal(raw, &text); err != nil {
				s.fail(begin, "must be a JSON string")
			}
			return text
		case c < ' ':
			s.fail(s.at, "must have no "+s.found()[len("the "):]+` in a string: write \n for a line break, \t for a tab`)
			return ""
		case c == '\\':
			escaped = true
			if !s.escape() {
				return ""
			}
		}
	}
	s.fail(begin, `must have a closing double quote`)
	return ""
}

// escape reads an escape sequence such as \n or \u00e9, which begins at s.at. It stops at the last byte
// of the sequence, and the loop of its caller goes on to the next byte. It reports whether the sequence
// is valid.
func (s *scanner) escape() bool {
	begin := s.at
	s.at++
	if s.at < len(s.data) {
		switch s.data[s.at] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			return true
		case 'u':
			first, ok := s.unit(s.at + 1)
			s.at += 4
			low := 0xdc00 <= first && first <= 0xdfff
			if high := 0xd800 <= first && first <= 0xdbff; ok && high {
				var second rune
				low = true
				if s.at+2 < len(s.data) && s.data[s.at+1] == '\\' && s.data[s.at+2] == 'u' {
					second, _ = s.unit(s.at + 3)
				}
				if 0xdc00 <= second && second <= 0xdfff {
					low = false
					s.at += 6
				}
			}
			if ok && low {
				s.fail(begin, `must be a whole character: half of a pair of \u stands alone`)
				return false
			}
			if ok {
				return true
			}
		}
	}
	s.fail(begin, `must be one of \" \\ \/ \b \f \n \r \t and \u with four hexadecimal digits`)
	return false
}

// unit returns the UTF-16 code unit that is written as four hexadecimal digits from index i on.
func (s *scanner) unit(i int) (r rune, ok bool) {
	if i+4 > len(s.data) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.data[i:i+4]), 16, 16)
	return rune(n), err == nil
}

// number reads a number.
func (s *scanner) number() json.Number {
	begin := s.at
	if s.data[s.at] == '-' {
		s.at++
	}
	ok := s.at < len(s.data)
	if ok && s.data[s.at] == '0' {
		s.at++
	} else {
		ok = s.digits()
	}
	if ok && s.at < len(s.data) && s.data[s.at] == '.' {
		s.at++
		ok = s.digits()
	}
	if ok && s.at < len(s.data) && (s.data[s.at] == 'e' || s.data[s.at] == 'E') {
		s.at++
		if s.at < len(s.data) && (s.data[s.at] == '+' || s.data[s.at] == '-') {
			s.at++
		}
		ok = s.digits()
	}
	if !ok {
		s.fail(s.at, "must have a digit here, but has "+s.found())
	}
	return json.Number(s.data[begin:s.at])
}

// digits reads all digits that follow, and reports whether there was at least one.
func (s *scanner) digits() bool {
	begin := s.at
	for s.at < len(s.data) && '0' <= s.data[s.at] && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at > begin
}
