package ratelimit

import (
	"context"

	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Request describes one request to a [RateLimiter]: who sends it, what it is for, and how much it costs.
type Request struct {
	// Client identifies the sender of the request, such as a user name or an API key. All requests with an empty Client
	// share one key.
	Client string

	// Endpoint is what the request is for, such as a path. The rules whose [Rule.Endpoint] matches it apply to the
	// request. Rules with [KeyEndpoint] or [KeyUserEndpoint] keep a budget for each Endpoint.
	Endpoint string

	// IP is the address that the request comes from. Rules with [KeyIP] keep a budget for each IP.
	IP string

	// Tier is the client's plan, such as "paid". It selects the rate among [Rule.Tiers].
	Tier string

	// Attrs are further properties of the request by name, such as its tenant or region. Rules whose key has a
	// [KeyAttr] keep a budget for each value.
	Attrs map[string]string

	// Rules are the names of the rules that apply to the request, in place of those that match Endpoint. A rule that is
	// named twice applies once. Rules that are [Rule.Additional] still apply as well.
	Rules []string

	// Cost is how many units the request takes from each rule; 0 means 1.
	Cost int

	// ID, if not empty, identifies the request. A request that is sent again with the same ID gets the first answer
	// again and is charged only once. The limiter needs [WithRequestIDs].
	ID string
}

// orBackground returns ctx, or the background context if ctx is nil.
func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// identity returns a hash of the client, the ID and the cost of req. The caller adds the hash of each key to it.
func (req *Request) identity() keytable.Hash {
	id := keytable.HashOfPair(req.Client, req.ID)
	id.Lo += uint64(max(req.Cost, 1)) // the sum is not hashed here: the caller hashes it together with the first key
	return id
}

// A KeyType says which requests share a budget in a [Rule]. The empty KeyType is [KeyUser].
//
// A KeyType lists the parts of a request that make a key, such as "user", "ip+endpoint" or "attr:tenant+user".
// [KeyOf] joins several parts, and [KeyAttr] returns the part for an attribute.
type KeyType string

// The values of [Rule.Key].
const (
	KeyUser         KeyType = "user"          // a budget for each [Request.Client]
	KeyEndpoint     KeyType = "endpoint"      // a budget for each [Request.Endpoint], not for each [Rule.Endpoint]
	KeyUserEndpoint KeyType = "user_endpoint" // a budget for each pair of Client and Endpoint
	KeyIP           KeyType = "ip"            // a budget for each [Request.IP]; Allow gives no IP, so its requests share one budget
	KeyGlobal       KeyType = "global"        // one budget, which all requests share
)

// KeyOf returns the KeyType of a key that is made of all these parts. Two requests share a budget if they are equal
// in all these parts. The order of the parts does not matter, so KeyOf(KeyUser, KeyEndpoint) and KeyOf(KeyEndpoint,
// KeyUser) are both [KeyUserEndpoint]. A rule is refused if it lists a part twice, or [KeyGlobal] with another part.
func KeyOf(parts ...KeyType) KeyType {
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = string(part)
	}
	return KeyType(keyspec.Join(texts...))
}

// KeyAttr returns the KeyType for a budget for each value of the attribute with this name in [Request.Attrs]. All
// requests without the attribute share one budget. A rule is refused if the name is empty or has a "+".
func KeyAttr(name string) KeyType { return KeyType(keyspec.AttrText(name)) }

// A keyMaker makes the keys of a rule from requests.
type keyMaker struct{ keyspec.Maker }

// hash returns the hash of the key of req, by which this process finds the state of the key.
func (k *keyMaker) hash(req *Request) keytable.Hash { return k.Hash((*keyspec.Request)(req)) }

// text returns the key of req in the form that a store or a custom limiter gets.
func (k *keyMaker) text(req *Request) string { return k.Text((*keyspec.Request)(req)) }

// globalHash is the hash of the only key of a rule with KeyGlobal.
var globalHash = keyspec.SharedKey
