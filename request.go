package ratelimit

import (
	"slices"
	"strconv"

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

	// Rules are the names of the rules that apply to the request, in place of
	// those that match Endpoint. A rule that is named twice applies once.
	Rules []string

	// Cost is how many units the request takes from each rule; 0 means 1.
	Cost int
}

// A KeyType says what a [Rule] keeps a separate budget for. The empty KeyType is [KeyUser].
type KeyType string

// The values of [Rule.Key]. Each is followed by what has a budget of its own.
const (
	KeyUser         KeyType = "user"          // each [Request.Client]
	KeyEndpoint     KeyType = "endpoint"      // each [Request.Endpoint], not each [Rule.Endpoint]
	KeyUserEndpoint KeyType = "user_endpoint" // each pair of Client and Endpoint
	KeyIP           KeyType = "ip"            // each [Request.IP]
	KeyGlobal       KeyType = "global"        // the rule: all requests share one budget
)

// keyTypes are the values that a rule's Key may have.
var keyTypes = []KeyType{KeyUser, KeyEndpoint, KeyUserEndpoint, KeyIP, KeyGlobal}

// A keyKind is the index of a KeyType in keyTypes: a switch on a small number is faster
// than one on a string.
type keyKind uint8

const (
	kindUser keyKind = iota
	kindEndpoint
	kindUserEndpoint
	kindIP
	kindGlobal
)

func kindOf(k KeyType) keyKind { return keyKind(slices.Index(keyTypes, k)) }

// ofClient reports whether each key belongs to one Client alone.
func (k keyKind) ofClient() bool { return k == kindUser || k == kindUserEndpoint }

// globalHash is the hash of the one key of a global rule.
var globalHash = keytable.Hash{Hi: 1}

// hash returns the hash of the key that req takes from. States are found by it.
func (k keyKind) hash(req *Request) keytable.Hash {
	switch k {
	case kindUser:
		return keytable.HashOf(req.Client)
	case kindEndpoint:
		return keytable.HashOf(req.Endpoint)
	case kindUserEndpoint:
		return keytable.HashOfPair(req.Client, req.Endpoint)
	case kindIP:
		return keytable.HashOf(req.IP)
	}
	return globalHash
}

// text returns the key that req takes from, for a store or a custom limiter. Two requests
// have the same text if and only if they share a budget.
func (k keyKind) text(req *Request) string {
	switch k {
	case kindUser:
		return req.Client
	case kindEndpoint:
		return req.Endpoint
	case kindUserEndpoint:
		return strconv.Itoa(len(req.Client)) + ":" + req.Client + req.Endpoint
	case kindIP:
		return req.IP
	}
	return ""
}
