package ruleconfig

import "github.com/ratelimit-go/ratelimit/internal/confmap"

// A Kind says what the value of a field is.
type Kind int

// The kinds of values.
const (
	Endpoint       Kind = iota + 1 // a text that may have a "*" at its end
	Text                           // a text of at most confmap.MaxText bytes
	Key                            // a key type, or the list of its parts
	Mode                           // one of Caller.Modes
	Bool                           // true or false
	AlgorithmName                  // the name of an algorithm
	AlgoConfig                     // a map that has RateFields, or what a custom algorithm needs
	Tiers                          // a map of rates, each a text or a map that has RateFields
	StoreError                     // a failure policy, as ParsePolicy reads it
	Capacity                       // a whole number, at least 1: the burst
	PerSecond                      // a number above 0 of units a second
	PerMillisecond                 // a number above 0 of units a millisecond
	Requests                       // a whole number, at least 1: the requests of a window
	Milliseconds                   // a number above 0: the length of a window
	Seconds                        // a number above 0: the length of a window
	RateText                       // a rate as a text or, beside a window, its number of requests
	Burst                          // a whole number, at least 1: the burst beside another form
	Duration                       // a time with its unit, above 0
	WarmupMap                      // a map that has WarmupFields
)

// A Field is a field that a config may have. [confmap.Fold] says which spellings of its names
// are the same.
type Field struct {
	Name string   // its own name
	Also []string // further names
	Kind Kind     // what its value is
	Says string   // what it says, in a line, for the reader of a schema
}

// RuleFields are the fields of a rule's config, in the order in which they are read.
var RuleFields = []Field{
	{"endpoint", nil, Endpoint, `The endpoint of the requests that the rule applies to, or a prefix of it that ends in "*".`},
	{"name", nil, Text, "The name of the rule. No two rules have the same. Without it, the endpoint is the name."},
	{"key", []string{"keyType"}, Key, `What has a budget of its own: "user" (default), "endpoint", "user_endpoint", "ip", "global", "attr:NAME", or several joined by "+" or in a list.`},
	{"mode", nil, Mode, `"enforce" (default) denies requests; "shadow" only counts what it would deny.`},
	{"additional", nil, Bool, "Whether the rule applies beside the rules that match best."},
	{"algorithm", []string{"policy", "strategy"}, AlgorithmName, "The algorithm that decides."},
	{"algoConfig", []string{"config", "algorithmConfig"}, AlgoConfig, "How much the rule grants. Its fields may also stand in the rule itself."},
	{"tiers", nil, Tiers, `The rates of some plans, by name, such as {"paid": "600/m", "staff": "unlimited"}.`},
	{"warmup", nil, WarmupMap, `How the limit of a new key grows, such as {"from": 10, "over": "1h"}.`},
	{"onStoreError", nil, StoreError, `What answers while the store does not: "open", "closed", "local" or, of 4 replicas, "local:4".`},
}

// RateFields are the fields of an algoConfig, in the order in which they are read.
var RateFields = []Field{
	{"capacity", nil, Capacity, "The most that a bucket grants at once."},
	{"refillRatePerSecond", []string{"requestsPerSecond"}, PerSecond, "How many units a bucket gets back in a second."},
	{"leakRatePerSecond", nil, PerSecond, "How many units a leaky bucket loses in a second."},
	{"refillPerMs", nil, PerMillisecond, "How many units a bucket gets back in a millisecond."},
	{"maxRequests", []string{"requestsPerWindow"}, Requests, "How many requests are granted in the time of windowMs or windowSeconds."},
	{"limit", nil, Requests, "The same as maxRequests."},
	{"windowMs", nil, Milliseconds, "The time in which maxRequests are granted, in milliseconds."},
	{"windowSeconds", nil, Seconds, "The time in which maxRequests are granted, in seconds."},
	{"rate", nil, RateText, `The rate as a text: "100/m", "10 per 2 minutes", "100/90s", "100/m burst 20".`},
	{"burst", nil, Burst, "The most that a bucket grants at once, beside rate or maxRequests."},
	{"burstSize", nil, Burst, "The same as burst."},
}

// A warm-up is written in one of two ways: as the field "warmup" of a rule, which is a map of
// WarmupFields, or in the rule's algoConfig by YoungFields.
var (
	WarmupFields = []Field{
		{"from", nil, Requests, "How many units a new key has in place of the requests of the rate."},
		{"over", nil, Duration, `The time from a key's first grant to the full limit, such as "1h".`},
	}
	YoungFields = []Field{
		{"warmupRequests", nil, Requests, "How many units a new key has in place of the requests of the rate."},
		{"warmupDuration", nil, Seconds, "The time from a key's first grant to the full limit, in seconds."},
	}
)

// These find the fields of a map by their names.
var (
	ruleSchema, rateSchema    = NamesOf(RuleFields), NamesOf(RateFields)
	warmupSchema, youngSchema = NamesOf(WarmupFields), NamesOf(YoungFields)
)

// NamesOf returns the Schema that finds fields by their names.
func NamesOf(fields []Field) *confmap.Schema {
	names, aliases := make([]string, len(fields)), make(map[string]string)
	for i, f := range fields {
		names[i] = f.Name
		for _, also := range f.Also {
			aliases[also] = f.Name
		}
	}
	return confmap.NewSchema(names, aliases)
}

// AlgorithmNames returns, for each algorithm that is not custom, in the order of their names,
// all the names that stand for it. The first is its own. [Suffix] may follow each of them.
func AlgorithmNames() (all [][]string) {
	for _, a := range builtin {
		names := []string{a.Name}
		for _, other := range otherNames {
			if other.means == a.Name {
				names = append(names, other.name)
			}
		}
		all = append(all, names)
	}
	return all
}

// KeyWords returns the parts of keys that are not attributes.
func KeyWords() []string { return words }

// RateForms are the forms in which a rate may be written. A rate has one form: a field of each of
// its lists, and no field of another form.
var RateForms = [][][]string{
	{bucketForm[:1], bucketForm[1:]},
	{countFields, windowFields},
	{textForm},
}
