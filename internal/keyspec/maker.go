package keyspec

import (
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Request is what keys are made of. Its fields are those of the Request of the root, so a
// pointer to one converts to a pointer to the other.
type Request struct {
	Client, Endpoint, IP string // values of parts

	Tier  string            // is no part
	Attrs map[string]string // values of parts
	Rules []string          // is no part
	Cost  int               // is no part
	ID    string            // is no part
}

// A Maker makes the keys of a rule from requests. It is what a key type says, in a form in
// which it need not be read for each request.
type Maker struct {
	form  form
	parts []Part
}

// A form is one of the key types that are most used, or anyParts: a switch on a small number
// is faster than one on a string.
type form uint8

const (
	byUser form = iota
	byEndpoint
	byUserEndpoint
	byIP
	byNothing
	anyParts // see Maker.parts
)

// usual are the Makers of the key types that are most used, which rules share.
var usual = func() map[string]Maker {
	made := make(map[string]Maker)
	for f, text := range []string{"user", "endpoint", userEndpoint, "ip", "global"} {
		parts, _ := Parse(text)
		made[text] = Maker{form(f), parts}
	}
	return made
}()

// MakerOf returns the Maker of the key type text, which is valid.
func MakerOf(text string) Maker {
	if made, ok := usual[text]; ok {
		return made
	}
	parts, _ := Parse(text)
	return Maker{anyParts, parts}
}

// OfClient reports whether each key belongs to one Client alone.
func (m *Maker) OfClient() bool {
	for _, part := range m.parts {
		if part.Kind == User {
			return true
		}
	}
	return false
}

// SharedKey is the hash of the one key that all requests share.
var SharedKey = keytable.Hash{Hi: 1}

// Hash returns the hash of the key that req takes from. States are found by it.
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

// hashOfParts is Hash for a key of any parts. Each part is hashed by itself, so it matters
// where a part ends.
func (m *Maker) hashOfParts(req *Request) keytable.Hash {
	h := keytable.HashOf(req.part(m.parts[0]))
	for i, part := range m.parts[1:] {
		h = h.With(uint64(i), keytable.HashOf(req.part(part)))
	}
	return h
}

// part returns the value that part has in the request.
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

// Text returns the key that req takes from, for a store or a custom limiter. Two requests
// have the same text if and only if they share a budget: each part but the last has its
// length before it.
func (m *Maker) Text(req *Request) string {
	last := len(m.parts) - 1
	if last == 0 {
		return req.part(m.parts[0])
	}
	text := make([]byte, 0, 128) // on the stack
	for _, part := range m.parts[:last] {
		value := req.part(part)
		text = append(strconv.AppendInt(text, int64(len(value)), 10), ':')
		text = append(text, value...)
	}
	return string(append(text, req.part(m.parts[last])...))
}

// Given reports whether req has all parts of its key, as whole, and whether the key then belongs
// to the sender of req alone, as own.
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
