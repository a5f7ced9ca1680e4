// Package keyspec reads and writes key types: texts such as "user" or "ip+endpoint", which say
// from which parts of a request its key is made. Requests with the same key share a limit.
package keyspec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A Kind is a property of requests that can be a part of keys, such as the IP address.
type Kind uint8

// The kinds of parts, in the order in which a key type lists them.
const (
	Attr     Kind = iota // the value of an attribute of the request; Part.Name is the name of the attribute
	IP                   // the IP address of the client
	User                 // the name of the client
	Endpoint             // the endpoint of the request
	Global               // nothing: all requests share one key
)

// A Part is one part of a key, such as the IP address or an attribute.
type Part struct {
	Kind Kind   // which property of the request the part is
	Name string // the name of the attribute if Kind is Attr; otherwise empty
}

const (
	separator    = "+"
	attr         = "attr:"
	userEndpoint = "user_endpoint"
)

// The map words has the kind for each text of a part. Attributes are not in the map: their text is
// "attr:" and the name of the attribute.
var words = map[string]Kind{"ip": IP, "user": User, "endpoint": Endpoint, "global": Global}

// The constant forms is the reason in the error for an unknown part of a key type.
const forms = `must be one of "user", "endpoint", "user_endpoint", "ip", "global", "attr:NAME", or several of them joined by "+"`

// Parse returns the parts that text lists, sorted by kind and name. If text is not a key type, problem
// says what text must be.
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

// Join combines the key types in texts to one key type and returns its text: "user" and "ip" make
// "ip+user". The order of texts does not change the result. If the parts cannot be combined, Join
// returns a text that Parse refuses.
func Join(texts ...string) string {
	joined := strings.Join(texts, separator)
	if _, ok := common[joined]; ok {
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

// AttrText returns the text of the part for the attribute with this name, such as "attr:tenant". If the
// name is empty or has a "+", Parse refuses the text.
func AttrText(name string) string {
	return attr + strings.ReplaceAll(name, separator, separator+separator)
}

// text returns p as it is written in a key type, such as "ip" or "attr:NAME".
func (p Part) text() string {
	for word, kind := range words {
		if kind == p.Kind {
			return word
		}
	}
	return attr + p.Name
}
