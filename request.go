package ratelimit

import (
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

	// ID names the request, if it is not empty, so that it can be sent again: it then gets
	// the answer that it had, and is charged once. The limiter needs [WithRequestIDs].
	ID string
}

// identity returns what tells req apart from others. The hash of each key is to be joined to it.
func (req *Request) identity() keytable.Hash {
	id := keytable.HashOfPair(req.Client, req.ID)
	id.Lo += uint64(max(req.Cost, 1)) // it is hashed again with the first key
	return id
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

// A keyMaker makes the keys of a rule from requests.
type keyMaker struct{ keyspec.Maker }

// hash returns the hash of the key that req takes from. States are found by it.
func (k *keyMaker) hash(req *Request) keytable.Hash { return k.Hash((*keyspec.Request)(req)) }

// text returns the key that req takes from, for a store or a custom limiter.
func (k *keyMaker) text(req *Request) string { return k.Text((*keyspec.Request)(req)) }

// globalHash is the hash of the one key of a global rule.
var globalHash = keyspec.SharedKey
