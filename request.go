package ratelimit

import (
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Request describes one request to a [RateLimiter]: who sends it, what it is for, and how
// much it costs.
type Request struct {
	// Client identifies the sender of the request, such as a user name or an
	// API key. All requests with an empty Client share one key.
	Client string

	// Endpoint is what the request is for, such as a path. The rules that
	// apply are those whose [Rule.Endpoint] matches it. Rules with
	// [KeyEndpoint] or [KeyUserEndpoint] keep a budget for each Endpoint.
	Endpoint string

	// IP is the address that the request comes from. Rules with [KeyIP] keep
	// a budget for each IP.
	IP string

	// Tier is the client's plan, such as "paid". It selects the rate among [Rule.Tiers].
	Tier string

	// Attrs are further properties of the request by name, such as its tenant
	// or region. Rules whose key has a [KeyAttr] keep a budget for each value.
	Attrs map[string]string

	// Rules are the names of the rules that apply to the request, in place of
	// those that match Endpoint. A rule that is named twice applies once.
	Rules []string

	// Cost is how many units the request takes from each rule; 0 means 1.
	Cost int
}

// A KeyType says what a [Rule] keeps a separate budget for. The empty KeyType is [KeyUser].
//
// A KeyType lists the parts of a request that make a key, such as "user", "ip+endpoint" or
// "attr:tenant+user". [KeyOf] joins parts, and [KeyAttr] is a part of the caller's own.
type KeyType string

// The values of [Rule.Key]. Each is followed by what has a budget of its own.
const (
	KeyUser         KeyType = "user"          // each [Request.Client]
	KeyEndpoint     KeyType = "endpoint"      // each [Request.Endpoint], not each [Rule.Endpoint]
	KeyUserEndpoint KeyType = "user_endpoint" // each pair of Client and Endpoint
	KeyIP           KeyType = "ip"            // each [Request.IP]; Allow gives none, so its requests share one
	KeyGlobal       KeyType = "global"        // the rule: all requests share one budget
)

// KeyOf returns the KeyType of a key that is made of all these parts: requests share a budget
// if they are equal in each part. The order of the parts has no meaning, so KeyOf(KeyUser,
// KeyEndpoint) and KeyOf(KeyEndpoint, KeyUser) are both [KeyUserEndpoint]. A rule with a part
// that is listed twice, or with [KeyGlobal] beside another part, is refused.
func KeyOf(parts ...KeyType) KeyType {
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = string(part)
	}
	return KeyType(keyspec.Join(texts...))
}

// KeyAttr returns the KeyType of a key that is the value of the attribute with this name in
// [Request.Attrs]. Requests without the attribute share the budget of the empty value. A rule
// is refused if the name is empty or has a "+".
func KeyAttr(name string) KeyType { return KeyType(keyspec.AttrText(name)) }

// problem returns what k must be to be the Key of a rule, or an empty text if it can be one.
func (k KeyType) problem() string {
	_, problem := keyspec.Parse(string(k))
	return problem
}

// A keyMaker makes the keys of a rule from requests. It is what a KeyType says, in a form in
// which it need not be read for each request.
type keyMaker struct {
	kind  keyKind
	parts []keyspec.Part
}

// A keyKind is one of the key types that are most used, or anyParts: a switch on a small
// number is faster than one on a string.
type keyKind uint8

const (
	kindUser keyKind = iota
	kindEndpoint
	kindUserEndpoint
	kindIP
	kindGlobal
	anyParts // see keyMaker.parts
)

// keyMakers are the keyMakers of the key types that are most used, which rules share.
var keyMakers = func() map[KeyType]keyMaker {
	made := make(map[KeyType]keyMaker)
	for kind, k := range []KeyType{KeyUser, KeyEndpoint, KeyUserEndpoint, KeyIP, KeyGlobal} {
		parts, _ := keyspec.Parse(string(k))
		made[k] = keyMaker{keyKind(kind), parts}
	}
	return made
}()

// newKeyMaker returns the keyMaker of k, which is valid.
func newKeyMaker(k KeyType) keyMaker {
	if made, ok := keyMakers[k]; ok {
		return made
	}
	parts, _ := keyspec.Parse(string(k))
	return keyMaker{anyParts, parts}
}

// ofClient reports whether each key belongs to one Client alone.
func (k *keyMaker) ofClient() bool {
	for _, part := range k.parts {
		if part.Kind == keyspec.User {
			return true
		}
	}
	return false
}

// globalHash is the hash of the one key of a global rule.
var globalHash = keytable.Hash{Hi: 1}

// hash returns the hash of the key that req takes from. States are found by it.
func (k *keyMaker) hash(req *Request) keytable.Hash {
	switch k.kind {
	case kindUser:
		return keytable.HashOf(req.Client)
	case kindEndpoint:
		return keytable.HashOf(req.Endpoint)
	case kindUserEndpoint:
		return keytable.HashOfPair(req.Client, req.Endpoint)
	case kindIP:
		return keytable.HashOf(req.IP)
	case kindGlobal:
		return globalHash
	}
	return k.hashOfParts(req)
}

// hashOfParts is hash for a key of any parts. Each part is hashed by itself, so it matters
// where a part ends.
func (k *keyMaker) hashOfParts(req *Request) keytable.Hash {
	h := keytable.HashOf(req.part(k.parts[0]))
	for i, part := range k.parts[1:] {
		h = h.With(uint64(i), keytable.HashOf(req.part(part)))
	}
	return h
}

// part returns the value that part has in the request.
func (req *Request) part(part keyspec.Part) string {
	switch part.Kind {
	case keyspec.Attr:
		return req.Attrs[part.Name]
	case keyspec.IP:
		return req.IP
	case keyspec.User:
		return req.Client
	case keyspec.Endpoint:
		return req.Endpoint
	}
	return ""
}

// text returns the key that req takes from, for a store or a custom limiter. Two requests
// have the same text if and only if they share a budget: each part but the last has its
// length before it.
func (k *keyMaker) text(req *Request) string {
	last := len(k.parts) - 1
	if last == 0 {
		return req.part(k.parts[0])
	}
	text := make([]byte, 0, 128) // on the stack
	for _, part := range k.parts[:last] {
		value := req.part(part)
		text = append(strconv.AppendInt(text, int64(len(value)), 10), ':')
		text = append(text, value...)
	}
	return string(append(text, req.part(k.parts[last])...))
}
