// Package keyspec reads and writes key types: the texts that say of which parts of a request
// a key is made, such as "user" or "ip+endpoint".
package keyspec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A Kind says where a part of a key comes from.
type Kind uint8

// The kinds of parts, in the order in which a key type lists them.
const (
	Attr     Kind = iota // the attribute with the part's name
	IP                   // the address
	User                 // the client
	Endpoint             // the endpoint
	Global               // nothing: all requests share one key
)

// A Part is one part of a key.
type Part struct {
	Kind Kind   // where its value comes from
	Name string // of the attribute; empty if the part is another one
}

const (
	separator    = "+"
	attr         = "attr:"
	userEndpoint = "user_endpoint"
)

// words are the texts of the parts that are no attributes.
var words = map[string]Kind{"ip": IP, "user": User, "endpoint": Endpoint, "global": Global}

// forms is the reason in the error for a part that is not known.
const forms = `must be one of "user", "endpoint", "user_endpoint", "ip", "global", "attr:NAME", or several of them joined by "+"`

// Parse returns the parts that text lists, in the order of their kinds and names. If text is
// no key type, problem says what it must be.
func Parse(text string) (parts []Part, problem string) {
	for part := range strings.SplitSeq(text, separator) {
		kind, known := words[part]
		name, isAttr := strings.CutPrefix(part, attr)
		switch {
		case part == userEndpoint:
			parts = append(parts, Part{Kind: User}, Part{Kind: Endpoint})
		case known:
			parts = append(parts, Part{Kind: kind})
		case part == "":
			return nil, `must have a part on both sides of each "+"; the name of an attribute has no "+"`
		case isAttr && name == "":
			return nil, `must have the name of the attribute after "attr:", and the name has no "+"`
		case isAttr:
			parts = append(parts, Part{Attr, name})
		default:
			return nil, forms
		}
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	for i, p := range parts[1:] {
		if p == parts[i] {
			return nil, "must list each part once, and " + strconv.Quote(p.text()) + " is there twice"
		}
	}
	if len(parts) > 1 && parts[len(parts)-1].Kind == Global {
		return nil, `must have nothing beside "global": all requests share one key`
	}
	return parts, ""
}

// Join returns the text of the key type that has the parts of all these texts. Key types with
// the same parts have the same text. If the parts make no key type, Parse says so of the
// text that Join returns.
func Join(texts ...string) string {
	joined := strings.Join(texts, separator)
	if _, ok := usual[joined]; ok {
		return joined
	}
	parts, problem := Parse(joined)
	if problem != "" {
		return joined
	}
	if len(parts) == 2 && parts[0].Kind == User && parts[1].Kind == Endpoint {
		return userEndpoint
	}
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(p.text())
	}
	return b.String()
}

// AttrText returns the text of the part for the attribute with this name. Parse refuses the
// text if the name is empty or has a "+".
func AttrText(name string) string {
	return attr + strings.ReplaceAll(name, separator, separator+separator)
}

// text returns the text of p.
func (p Part) text() string {
	for word, kind := range words {
		if kind == p.Kind {
			return word
		}
	}
	return attr + p.Name
}
