package ruleconfig

import "github.com/ratelimit-go/ratelimit/internal/confmap"

// A Kind says which values a field may have.
type Kind int

// The kinds of values.
const (
	Endpoint       Kind = iota + 1 // a text that may have a "*" at its end
	Text                           // a text of at most confmap.MaxText bytes
	Key                            // a key type such as "ip+endpoint", or the list of its parts
	Mode                           // "enforce", "shadow" or "advise"
	Bool                           // true or false
	AlgorithmName                  // the name of an algorithm
	AlgoConfig                     // a map that has RateFields, or the fields of a custom algorithm
	Tiers                          // a map of rates, each a text or a map that has RateFields
	StoreError                     // a failure policy, such as "open" or "local:4"
	Capacity                       // a whole number, at least 1: the burst
	PerSecond                      // a number above 0 of units a second
	PerMillisecond                 // a number above 0 of units a millisecond
	Requests                       // a whole number of units, at least 1, such as the requests of a window
	Milliseconds                   // a number above 0: the length of a window, in milliseconds
	Seconds                        // a number above 0: a length of time, in seconds
	RateText                       // a rate such as "100/m"; next to windowMs or windowSeconds, a number of requests
	Burst                          // a whole number, at least 1: the burst; given together with maxRequests or rate
	Duration                       // a time with its unit, above 0
	WarmupMap                      // a map that has WarmupFields
	PenaltyMap                     // a map that has PenaltyFields
	WindowName                     // "day", "week", "month", "year" or "first"
	Zone                           // the name of a time zone
	FirstDay                       // a whole number from 1 to 28
	Unit                           // what a rule counts: lower-case letters, digits, "-", "_" and ".", at most 64 of them
)

// A Field is a field that a config may have. A name may be spelled in any way that [confmap.Fold]
// makes equal to it.
type Field struct {
	Name string   // the name that errors and schemas use
	Also []string // other names that a config may use
	Kind Kind     // which values the field may have
	Says string   // one line that describes the field to people who read a schema
}

// RuleFields are the fields of a rule's config, in the order in which they are read.
var RuleFields = []Field{
	{"endpoint", nil, Endpoint, `The endpoint of the requests that the rule applies to, or a prefix of it that ends in "*".`},
	{"name", nil, Text, "The name of the rule. No two rules have the same. Without it, the endpoint is the name."},
	{"key", []string{"keyType"}, Key, `What has a budget of its own: "user" (default), "endpoint", "user_endpoint", "ip", "global", ` +
		`"attr:NAME", or several joined by "+" or in a list.`},
	{"mode", nil, Mode, `"enforce" (default) denies requests; "shadow" only counts what it would deny; "advise" also tells the caller.`},
	{"additional", nil, Bool, "Whether the rule applies beside the rules that match best."},
	{"unit", nil, Unit, `What the rule counts, such as "tokens" or "bytes". Without it, the rule counts requests.`},
	{"algorithm", []string{"policy", "strategy"}, AlgorithmName, "The algorithm that decides."},
	{"algoConfig", []string{"config", "algorithmConfig"}, AlgoConfig,
		"How much the rule grants. Its fields may also stand in the rule itself."},
	{"tiers", nil, Tiers, `The rates of some plans, by name, such as {"paid": "600/m", "staff": "unlimited"}.`},
	{"warmup", nil, WarmupMap, `How the limit of a new key grows, such as {"from": 10, "over": "1h"}.`},
	{"penalty", nil, PenaltyMap, `When many denials block a key, such as {"after": 10, "within": "1m", "for": "1h", "most": "24h"}.`},
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
	{"window", nil, WindowName, `In place of a length: "day", "week", "month" or "year", for FixedWindow. Beside a length: "first".`},
	{"zone", nil, Zone, `The time zone of a window such as "month": "Europe/Berlin". Without it, UTC.`},
	{"firstDay", nil, FirstDay, "The day on which each window \"month\" begins, from 1 (default) to 28."},
	{"rate", nil, RateText, `The rate as a text: "100/m", "10 per 2 minutes", "100/90s", "100/m burst 20", "10000/month Europe/Berlin".`},
	{"burst", nil, Burst, "The most that a bucket grants at once, beside rate or maxRequests."},
	{"burstSize", nil, Burst, "The same as burst."},
}

// A warm-up is written in one of two ways: as the field "warmup" of a rule, which is a map with
// WarmupFields, or as AlgoWarmupFields in the rule's algoConfig.
var (
	WarmupFields = []Field{
		{"from", nil, Requests, "How many units a new key has in place of the requests of the rate."},
		{"over", nil, Duration, `The time from a key's first grant to the full limit, such as "1h".`},
	}
	AlgoWarmupFields = []Field{
		{"warmupRequests", nil, Requests, "How many units a new key has in place of the requests of the rate."},
		{"warmupDuration", nil, Seconds, "The time from a key's first grant to the full limit, in seconds."},
	}
)

// PenaltyFields are the fields of a rule's penalty, in the order in which they are read. The last one may be left out.
var PenaltyFields = []Field{
	{"after", nil, Requests, "How many denials begin a block."},
	{"within", nil, Duration, `How long denials count together, from the first one, such as "1m".`},
	{"for", nil, Duration, `How long a block lasts, such as "1h".`},
	{"most", nil, Duration, "A block that begins less than this after the last one ended is twice as long, but no longer than this."},
}

// The Schemas of the lists above. A Schema finds a field of a config by any of the field's names.
var (
	ruleSchema, rateSchema         = NamesOf(RuleFields), NamesOf(RateFields)
	warmupSchema, algoWarmupSchema = NamesOf(WarmupFields), NamesOf(AlgoWarmupFields)
	penaltySchema                  = NamesOf(PenaltyFields)
)

// NamesOf returns the Schema by which these fields are found in a config, under each of their names.
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

// KeyWords returns the key types and parts of key types that are not attributes.
func KeyWords() []string { return words }

// RateForms are the forms in which a rate may be written. Each form consists of several lists of
// fields. A rate in a form has one field of each list of that form, and no field of another form.
var RateForms = [][][]string{
	{bucketForm[:1], bucketForm[1:]},
	{countFields, windowFields},
	{textForm},
}
