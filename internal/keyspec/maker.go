package keyspec

import (
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Request holds the values from which keys are made. It has the same fields as the Request of
// package ratelimit, so a pointer to one converts to a pointer to the other.
type Request struct {
	Client, Endpoint, IP string // each of them can be part of a key

	Tier  string            // the client's plan; not part of any key
	Attrs map[string]string // further properties of the request by name; each value can be part of a key
	Rules []string          // names of rules that apply to the request; not part of any key
	Cost  int               // how many units the request takes; not part of any key
	Costs []cost            // how many of each unit the request takes; not part of any key
	ID    string            // names the request, so that a retry is not charged again; not part of any key
}

// A cost says how many units of one kind a request costs.
type cost = struct {
	Unit string // what is counted
	N    int    // how many
}

// A Maker makes the keys of one rule from requests. It holds the key type of the rule in parsed form,
// so that no request needs to parse it.
type Maker struct {
	form  form
	parts []Part
}

// A form is a number that stands for a common key type, such as byUser for "user". The number anyParts
// stands for all other key types. A switch on a number is faster than a switch on the text of the key type.
type form uint8

const (
	byUser form = iota
	byEndpoint
	byUserEndpoint
	byIP
	byNothing
	anyParts // any other key type; its parts are in Maker.parts
)

// The map common holds the Makers of the common key types, by the text of the key type. All rules share
// these Makers.
var common = func() map[string]*Maker {
	makers := make(map[string]*Maker)
	for f, text := range []string{"user", "endpoint", userEndpoint, "ip", "global"} {
		parts, _ := Parse(text)
		makers[text] = &Maker{form(f), parts}
	}
	return makers
}()

// MakerOf returns the Maker for the key type in text, which must be valid.
func MakerOf(text string) *Maker {
	if maker, ok := common[text]; ok {
		return maker
	}
	parts, _ := Parse(text)
	return &Maker{anyParts, parts}
}

// Has reports whether the keys have a part of this kind.
func (m *Maker) Has(kind Kind) bool {
	for _, part := range m.parts {
		if part.Kind == kind {
			return true
		}
	}
	return false
}

// OfClient reports whether each key belongs to one client, so that no two clients share a key.
func (m *Maker) OfClient() bool { return m.Has(User) }

// SharedKey is the hash of the single key that all requests share if the key type is "global".
var SharedKey = keytable.Hash{Hi: 1}

// Hash returns the hash of the key of req. The tables of keys find the state of a key by its hash.
func (m *Maker) Hash(req *Request) keytable.Hash {
	switch m.form {
	case byUser:
		return keytable.HashOf(req.Client)
	case byEndpoint:
		return keytable.HashOf(req.Endpoint)
	case byUserEndpoint:
		return keytable.HashOfPair(req.Client, req.Endpoint)
	case byIP:
		return keytable.HashOf(req.IP)
	case byNothing:
		return SharedKey
	}
	return m.hashOfParts(req)
}

// hashOfParts returns the hash of the key of req; it works for every list of parts. It hashes each part
// separately, so a key of the parts "ab" and "c" has another hash than a key of "a" and "bc".
func (m *Maker) hashOfParts(req *Request) keytable.Hash {
	h := keytable.HashOf(req.part(m.parts[0]))
	for i, part := range m.parts[1:] {
		h = h.With(uint64(i), keytable.HashOf(req.part(part)))
	}
	return h
}

// part returns the value of this part of a key, such as req.IP. It returns "" for Global.
func (req *Request) part(part Part) string {
	switch part.Kind {
	case Attr:
		return req.Attrs[part.Name]
	case IP:
		return req.IP
	case User:
		return req.Client
	case Endpoint:
		return req.Endpoint
	}
	return ""
}

// Text returns the key of req as a text, for a store or a custom limiter. Two requests get the same
// text if and only if they have the same key. The length of each part but the last stands before the
// part: the parts "ab" and "c" make the text "2:abc".
func (m *Maker) Text(req *Request) string {
	last := len(m.parts) - 1
	if last == 0 {
		return req.part(m.parts[0])
	}
	text := make([]byte, 0, 128) // the buffer is usually on the stack
	for _, part := range m.parts[:last] {
		value := req.part(part)
		text = append(strconv.AppendInt(text, int64(len(value)), 10), ':')
		text = append(text, value...)
	}
	return string(append(text, req.part(m.parts[last])...))
}

// Given returns two answers about req. The first is true if req has a value for each part of its key. The second
// is true if the first is true and a part of the key identifies the sender: the client, the IP or an attribute.
func (m *Maker) Given(req *Request) (whole, own bool) {
	for _, part := range m.parts {
		given := true
		switch part.Kind {
		case Attr:
			_, given = req.Attrs[part.Name]
		case Global:
		default:
			given = req.part(part) != ""
		}
		if !given {
			return false, false
		}
		own = own || part.Kind != Global && part.Kind != Endpoint
	}
	return true, own
}
