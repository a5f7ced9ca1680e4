package ruleconfig

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
)

// words are the parts of keys that are read in any spelling that confmap.Fold makes equal.
var words = []string{"user", "endpoint", "user_endpoint", "ip", "global"}

const (
	separator = "+"
	attr      = "attr:" // before the name of an attribute, which is read as it is
)

// key reads the key of the rule at n: a text such as "ip+endpoint", or a list of its parts. If
// the field is missing, the key is empty, and ok is true unless a misspelt name was taken for
// the field. key reports what is no key, and then ok is false.
func (r *Reader) key(n *confmap.Node) (key string, ok bool) {
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

// joined returns the key whose parts are the list v, and reports whether it is a list of parts.
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

// ParseKey returns the key type that text spells, or what it must be. Its words may be in any
// spelling that confmap.Fold makes equal; the name of an attribute is read as it is.
func ParseKey(text string) (key, problem string) {
	switch {
	case text == "":
		return "", keyForm
	case len(text) > confmap.MaxText:
		return "", fmt.Sprintf("must be at most %d bytes long", confmap.MaxText)
	}
	parts := strings.Split(text, separator)
	for i, part := range parts {
		parts[i] = word(strings.TrimSpace(part))
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

// word returns part in the spelling of the words and of "attr:".
func word(part string) string {
	if len(part) >= len(attr) && strings.EqualFold(part[:len(attr)], attr) {
		return attr + part[len(attr):]
	}
	for _, w := range words {
		if len(part) <= confmap.MaxName && confmap.Fold(part) == confmap.Fold(w) {
			return w
		}
	}
	return part
}
