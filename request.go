package ratelimit

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/costs"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Request describes one request to a [RateLimiter]: who sends it, what it is for, and how much it costs.
type Request struct {
	// Client identifies the sender, such as a user name or an API key. All requests with an empty Client share one key.
	Client string

	// Endpoint is what the request is for, such as a path. The rules whose [Rule.Endpoint] matches it apply to the
	// request. Rules with [KeyEndpoint] or [KeyUserEndpoint] keep a budget for each Endpoint.
	Endpoint string

	// IP is the address that the request comes from. Rules with [KeyIP] keep a budget for each IP.
	IP string

	// Tier is the client's plan, such as "paid". It selects the rate among [Rule.Tiers].
	Tier string

	// Attrs are further properties of the request by name, such as its tenant. [KeyAttr] makes a budget for each value.
	Attrs map[string]string

	// Rules are the names of the rules that apply to the request, in place of those that match Endpoint. A rule that is
	// named twice applies once. Rules that are [Rule.Additional] still apply as well.
	Rules []string

	// Cost is how many units the request takes from each rule that counts requests; 0 means 1.
	Cost int

	// Costs are what the request costs in other units, such as tokens or bytes, for the rules with a [Rule.Unit]: at most
	// 16, each unit once. A rule with a Unit does not apply if Costs lack this Unit. If the N for this Unit is 0, the rule
	// charges nothing, but denies if it has no unit left. The N for the Unit "" replaces Cost; if it is 0, the rules that
	// count requests do not apply. Do not change the slice until the call returns.
	Costs []Cost

	// ID, if not empty, identifies the request. A request that is sent again with the same ID gets the first answer
	// again and is charged only once. The limiter needs [WithRequestIDs].
	ID string
}

// A Cost is how many units of one kind a request costs.
type Cost = struct {
	Unit string // what is counted, as in [Rule.Unit]; "" for requests
	N    int    // how many: from 0 to 2^50
}

const (
	maxCosts = 16      // the largest number of units of one request
	maxCount = 1 << 50 // the largest number of units of one kind that a request can have
)

// validate returns an error if a number of units in req is invalid.
func (req *Request) validate() error {
	switch {
	case req.Cost < 0:
		return ErrInvalidCount
	case len(req.Costs) == 0:
		return nil
	}
	return req.validateCosts() // a function of its own, so that the compiler can inline validate
}

// validateCosts returns an error if one of the Costs of req is invalid.
func (req *Request) validateCosts() error {
	if len(req.Costs) > maxCosts {
		return &ConfigError{"costs", len(req.Costs), "must have at most 16 units"}
	}
	for i, c := range req.Costs {
		path := func() string { return "costs[" + strconv.Itoa(i) + "].unit" }
		switch {
		case checkCount(c.N) != nil:
			return checkCount(c.N)
		case !costs.ValidUnit(c.Unit):
			return &ConfigError{path(), confmap.Describe(c.Unit), costs.UnitForm}
		case costs.Index(req.Costs[:i], c.Unit) >= 0:
			return &ConfigError{path(), strconv.Quote(c.Unit), "must not be given twice"}
		}
	}
	return nil
}

// checkCount returns an error if n is not a number of units that a request can cost or use.
func checkCount(n int) error {
	if n < 0 || int64(n) > maxCount {
		return fmt.Errorf("%w, nor above %d", ErrInvalidCount, int64(maxCount))
	}
	return nil
}

// cost returns how many units req takes from a rule with this [Rule.Unit]. If asked is false, the rule does not apply.
func (req *Request) cost(unit string) (n int64, asked bool) {
	return costs.Of(req.Costs, req.Cost, unit)
}

// orBackground returns ctx, or the background context if ctx is nil.
func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// identity returns a hash of the Client and the ID of req. The caller adds the keys and the numbers of units to it.
func (req *Request) identity() keytable.Hash { return keytable.HashOfPair(req.Client, req.ID) }

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
type keyMaker struct{ *keyspec.Maker }

// hash returns the hash of the key of req, by which this process finds the state of the key.
func (k *keyMaker) hash(req *Request) keytable.Hash { return k.Hash((*keyspec.Request)(req)) }

// text returns the key of req in the form that a store or a custom limiter gets.
func (k *keyMaker) text(req *Request) string { return k.Text((*keyspec.Request)(req)) }

// globalHash is the hash of the only key of a rule with KeyGlobal.
var globalHash = keyspec.SharedKey
