// Package ratefield reads the HTTP header field RateLimit. Its value is a List, as RFC 9651 defines it.
package ratefield

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// Exhausted returns how many seconds a client must wait until each policy in a RateLimit field has
// quota left, or 0 if each has quota left now. It gets the lines of the field. A policy is a member of the
// List, and has parameters such as r=0. A policy has no quota left if its parameter "r" or "a" is 0. The
// client must then wait for the time in the policy's parameter "t" or, without "t", in the policy's
// parameter "w". Exhausted ignores a wait of more than limit seconds. The names of the parameters come from
// draft-ietf-httpapi-ratelimit-headers-11 and from proposed changes to it.
//
// ok is false if the lines are not a List whose members are Strings or Tokens. The caller must then
// ignore the whole field.
func Exhausted(lines []string, limit int64) (seconds int64, ok bool) {
	s := scanner{text: strings.Join(lines, ",")}
	s.skip(" ")
	for !s.ended() {
		p, ok := s.policy()
		if !ok {
			return 0, false
		}
		if n := p.exhausted(); n <= limit {
			seconds = max(seconds, n)
		}
		s.skip(" \t")
		if s.ended() {
			break
		}
		if !s.take(',') {
			return 0, false
		}
		if s.skip(" \t"); s.ended() {
			return 0, false
		}
	}
	return seconds, true
}

// A kind is the type of an item: a value in the List, or the value of a parameter.
type kind int

const (
	invalid kind = iota
	integer
	name  // a String or a Token
	other // a valid item of another type
)

// A policy holds the parameters "r", "a", "t" and "w" of one member of the List. The value of a parameter
// that is missing or not an Integer is -1.
type policy struct{ r, a, t, w int64 }

// exhausted returns for how many seconds the policy p has no quota left, or 0 if it has quota left now.
func (p *policy) exhausted() int64 {
	switch {
	case p.r != 0 && p.a != 0:
		return 0
	case p.t >= 0:
		return p.t
	}
	return max(p.w, 0)
}

// set stores n as the value of the parameter with this key. If a member repeats a key, the last value
// counts.
func (p *policy) set(key string, n int64) {
	switch key {
	case "r":
		p.r = n
	case "a":
		p.a = n
	case "t":
		p.t = n
	case "w":
		p.w = n
	}
}

// A scanner reads a text from left to right.
type scanner struct {
	text string
	at   int // number of bytes that have been read
}

func (s *scanner) ended() bool { return s.at == len(s.text) }

// peek returns the next byte, or 0 at the end. A byte 0 in the text is not valid anywhere, so callers
// need not know whether a 0 is such a byte or the end.
func (s *scanner) peek() byte {
	if s.ended() {
		return 0
	}
	return s.text[s.at]
}

// take moves past the next byte if that is the byte c. It reports whether it did so.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.ended() {
		return false
	}
	s.at++
	return true
}

// skip moves past all bytes up to the first byte that is not in the string set.
func (s *scanner) skip(set string) {
	for !s.ended() && strings.IndexByte(set, s.text[s.at]) >= 0 {
		s.at++
	}
}

// policy reads the next member of the List, which is a policy.
func (s *scanner) policy() (p policy, ok bool) {
	p = policy{-1, -1, -1, -1}
	if k, _ := s.item(); k != name {
		return p, false
	}
	for s.take(';') {
		s.skip(" ")
		key := s.key()
		if key == "" {
			return p, false
		}
		k, n := other, int64(-1)
		if s.take('=') {
			if k, n = s.item(); k == invalid {
				return p, false
			}
		}
		if k != integer {
			n = -1
		}
		p.set(key, n)
	}
	return p, true
}

// key reads the key of a parameter.
func (s *scanner) key() string {
	from := s.at
	if c := s.peek(); c != '*' && !isLower(c) {
		return ""
	}
	for c := s.peek(); isLower(c) || isDigit(c) || c != 0 && strings.IndexByte("_-.*", c) >= 0; c = s.peek() {
		s.at++
	}
	return s.text[from:s.at]
}

// item reads an item without its parameters, and returns its type. If it is an Integer, n is its value.
func (s *scanner) item() (k kind, n int64) {
	switch c := s.peek(); {
	case c == '"':
		return only(name, s.quoted())
	case c == '*' || isLetter(c):
		for s.at++; isTokenByte(s.peek()); s.at++ {
		}
		return name, 0
	case c == '-' || isDigit(c):
		return s.number()
	case c == ':':
		return only(other, s.binary())
	case c == '?':
		s.at++
		return only(other, s.take('0') || s.take('1'))
	case c == '@': // a Date is the character "@", followed by an Integer
		s.at++
		k, _ = s.number()
		return only(other, k == integer)
	case c == '%':
		return only(other, s.display())
	}
	return invalid, 0
}

// The function named "only" makes the two results of the method item for an item that is not an Integer.
// The first is the kind k or, if the item is not valid, the kind invalid. The second is always 0.
func only(k kind, valid bool) (kind, int64) {
	if !valid {
		return invalid, 0
	}
	return k, 0
}

// The largest numbers of digits that RFC 9651 allows.
const (
	maxDigits   = 15 // number of digits of an Integer
	maxWhole    = 12 // number of digits of a Decimal before its point
	maxFraction = 3  // number of digits of a Decimal after its point
)

// number reads an Integer or a Decimal.
func (s *scanner) number() (k kind, n int64) {
	negative := s.take('-')
	digits := 0
	for ; isDigit(s.peek()); s.at++ {
		if digits++; digits > maxDigits {
			return invalid, 0
		}
		n = 10*n + int64(s.peek()-'0')
	}
	switch {
	case digits == 0:
		return invalid, 0
	case s.take('.'):
		whole := digits
		for digits = 0; isDigit(s.peek()); s.at++ {
			digits++
		}
		return only(other, whole <= maxWhole && digits >= 1 && digits <= maxFraction)
	case negative:
		n = -n
	}
	return integer, n
}

// quoted reads a String (a text in quotes), and reports whether it is valid.
func (s *scanner) quoted() bool {
	for s.at++; !s.ended(); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return true
		case c == '\\':
			s.at++
			if c := s.peek(); c != '"' && c != '\\' {
				return false
			}
		case c < ' ' || c > '~':
			return false
		}
	}
	return false
}

// binary reads a Byte Sequence (base64 between two colons), and reports whether it is valid.
func (s *scanner) binary() bool {
	s.at++
	end := strings.IndexByte(s.text[s.at:], ':')
	if end < 0 {
		return false
	}
	text := s.text[s.at : s.at+end]
	s.at += end + 1
	_, err := base64.StdEncoding.DecodeString(text)
	return err == nil && !strings.ContainsAny(text, "\r\n") // DecodeString skips line breaks, which are not valid here
}

// display reads a Display String (a text with bytes written as %xx, in quotes after a "%"), and reports
// whether it is valid.
func (s *scanner) display() bool {
	if s.at++; !s.take('"') {
		return false
	}
	var text []byte
	for ; !s.ended(); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return utf8.Valid(text)
		case c == '%':
			if len(s.text) < s.at+3 {
				return false
			}
			high, low := hex(s.text[s.at+1]), hex(s.text[s.at+2])
			if high < 0 || low < 0 {
				return false
			}
			text = append(text, byte(high<<4|low))
			s.at += 2
		case c < ' ' || c > '~':
			return false
		default:
			text = append(text, c)
		}
	}
	return false
}

// hex returns the value of a hexadecimal digit, or -1 if c is no such digit. Upper case is not valid
// here.
func hex(c byte) int { return strings.IndexByte("0123456789abcdef", c) }

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLower(c byte) bool  { return 'a' <= c && c <= 'z' }
func isLetter(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' }

// isTokenByte reports whether c may follow the first byte of a Token.
func isTokenByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
