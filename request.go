package ratelimit

import (
	"slices"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Request is what a [RateLimiter] decides on.
type Request struct {
	// Client is who asks: a user, an API key. The empty Client is one shared
	// key.
	Client string

	// Endpoint is what it asks for. It picks the rules, and is the key of
	// some.
	Endpoint string

	// IP is where it asks from, for [KeyIP].
	IP string

	// Tier is the client's plan, for [Rule.Tiers].
	Tier string

	// Rules are the names of the rules to apply, in place of those that match
	// Endpoint. One that is listed twice applies once.
	Rules []string

	// Cost is how many units it takes; 0 means 1.
	Cost int
}

// A KeyType says whose budget a request takes from. The empty KeyType is
// [KeyUser].
type KeyType string

// What a rule keeps a budget for.
const (
	KeyUser         KeyType = "user"          // each Client
	KeyEndpoint     KeyType = "endpoint"      // each Endpoint, as the request names it
	KeyUserEndpoint KeyType = "user_endpoint" // each pair of Client and Endpoint
	KeyIP           KeyType = "ip"            // each IP
	KeyGlobal       KeyType = "global"        // one budget for all
)

// keyTypes are what a rule's Key may be.
var keyTypes = []KeyType{KeyUser, KeyEndpoint, KeyUserEndpoint, KeyIP, KeyGlobal}

// A keyKind is the place of a KeyType in keyTypes: a switch on a small number is faster
// than one on a string.
type keyKind uint8

const (
	byUser keyKind = iota
	byEndpoint
	byUserEndpoint
	byIP
	globally
)

func kindOf(k KeyType) keyKind { return keyKind(slices.Index(keyTypes, k)) }

// ofClient reports whether each key belongs to one Client.
func (k keyKind) ofClient() bool { return k == byUser || k == byUserEndpoint }

// globalHash is the identity of the one key of a global rule.
var globalHash = keytable.Hash{Hi: 1}

// hash returns the identity of the key that req takes from.
func (k keyKind) hash(req *Request) keytable.Hash {
	switch k {
	case byUser:
		return keytable.HashOf(req.Client)
	case byEndpoint:
		return keytable.HashOf(req.Endpoint)
	case byUserEndpoint:
		return keytable.HashOfPair(req.Client, req.Endpoint)
	case byIP:
		return keytable.HashOf(req.IP)
	}
	return globalHash
}

// text returns the key that req takes from, for a store or a custom limiter. Two requests
// have the same one only if they share a budget.
func (k keyKind) text(req *Request) string {
	switch k {
	case byUser:
		return req.Client
	case byEndpoint:
		return req.Endpoint
	case byUserEndpoint:
		return strconv.Itoa(len(req.Client)) + ":" + req.Client + req.Endpoint
	case byIP:
		return req.IP
	}
	return ""
}
