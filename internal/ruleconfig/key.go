package ruleconfig

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
)

// words lists all key types, and all parts of key types, except attributes. A config may write them in upper or
// lower case, and with or without "_" and "-" (see confmap.Fold).
var words = []string{"user", "endpoint", "user_endpoint", "ip", "global"}

const (
	separator = "+"
	attr      = "attr:" // the text before the name of an attribute
)

// Key reads the key of the rule with the config n: a text such as "ip+endpoint", or a list of its parts. If the
// value is not a key, Key reports that, and ok is false. A missing field is read as an empty key, and ok is true;
// but if the config has the field under a misspelt name, ok is false.
func (r *Reader) Key(n *confmap.Node) (key string, ok bool) {
	v, given := n.Get("key")
	if !given {
		return "", !n.Misspelt("key")
	}
	text, isText := confmap.TextOf(v)
	if !isText {
		text, ok = joined(v)
	}
	problem := keyForm
	if isText || ok {
		if key, problem = ParseKey(text); problem == "" {
			return key, true
		}
	}
	r.Reject(n.Field("key"), confmap.Describe(v), problem)
	return "", false
}

const keyForm = `must be a key such as "ip" or "ip+endpoint", or a list of parts such as ["ip", "endpoint"]`

// joined returns the parts of a key type in the list v as one text. It reports whether v is a list of
// such parts.
func joined(v any) (text string, ok bool) {
	list := reflect.ValueOf(v)
	if list.Kind() != reflect.Slice || list.Len() == 0 || list.Len() > confmap.MaxName {
		return "", false
	}
	var parts []string
	for i := range list.Len() {
		part, ok := confmap.TextOf(list.Index(i).Interface())
		if !ok || strings.Contains(part, separator) {
			return "", false
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, separator), true
}

// ParseKey returns the key type that is written in text. If text is not a key type, problem says what a key
// type must be. The words in text may be in upper or lower case, and with or without "_" and "-". The name of
// an attribute is taken exactly as written: a space at its end is a part of the name. There is one exception: in
// "attr:tenant + ip", the spaces on both sides belong to the "+", and the name is "tenant".
func ParseKey(text string) (key, problem string) {
	switch {
	case text == "":
		return "", keyForm
	case len(text) > confmap.MaxText:
		return "", fmt.Sprintf("must be at most %d bytes long", confmap.MaxText)
	}
	parts := strings.Split(text, separator)
	for i, part := range parts {
		trimmed := strings.TrimLeftFunc(part, unicode.IsSpace)
		spaced := i+1 < len(parts) && strings.TrimLeftFunc(parts[i+1], unicode.IsSpace) != parts[i+1]
		if spaced || !isAttr(trimmed) {
			trimmed = strings.TrimSpace(part)
		}
		parts[i] = word(trimmed)
	}
	key = keyspec.Join(parts...)
	if _, problem = keyspec.Parse(key); problem == "" {
		return key, ""
	}
	for i, part := range parts {
		if near := confmap.Nearest(part, words); near != "" && near != part {
			parts[i] = near
			if _, still := keyspec.Parse(strings.Join(parts, separator)); still == "" {
				problem = "unknown key; did you mean " + confmap.Quote(strings.Join(parts, separator)) + "?"
			}
		}
	}
	return "", problem
}

// isAttr reports whether the part of a key type begins with "attr:", in any spelling.
func isAttr(part string) bool {
	return len(part) >= len(attr) && strings.EqualFold(part[:len(attr)], attr)
}

// word returns the given part of a key type in the spelling of this package: an element of the list named
// "words", or a part that begins with "attr:". It returns any other part unchanged.
func word(part string) string {
	if isAttr(part) {
		return attr + part[len(attr):]
	}
	for _, w := range words {
		if len(part) <= confmap.MaxName && confmap.Fold(part) == confmap.Fold(w) {
			return w
		}
	}
	return part
}
