package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/explained"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// The values of [Override.Effect].
const (
	EffectBlock  = "block"  // deny all requests
	EffectExempt = "exempt" // the rules do not take part: they neither limit nor charge
	EffectRate   = "rate"   // [Override.Rate] is the limit, in place of [Rule.Rate], Tiers and Resolve
	EffectPardon = "pardon" // once: end the blocks that a [Penalty] has begun, and forget the strikes
)

// An Override is an exception from the rules for one client or for some addresses. [RateLimiter.Override] sets it.
//
// For each rule, the most specific Override decides: one of the Client before those of addresses, a longer prefix before
// a shorter one, one that names the rule before one for all rules, and of equal ones, a block, then an exemption, then a
// rate. If a block decides for one of the rules, the request is denied, and no rule is asked.
type Override struct {
	// Client or IP says whom the Override is for; the other one is empty. Client has at most 4096 bytes. IP is an address
	// such as "203.0.113.9", or a prefix such as "10.0.0.0/8". If [Request.IP] is a prefix itself, a block applies if
	// the two overlap; any other Override applies only if the prefix of the request lies inside IP.
	Client string `json:"client,omitempty"`
	IP     string `json:"ip,omitempty"` // see Client

	// Rules are the names of the rules that it is for. None means all rules: a block then also denies requests to which
	// no rule applies.
	Rules []string `json:"rules,omitempty"`

	// Effect is one of the constants. The empty Effect lifts the Overrides of this Client or IP: all of them or, with
	// Rules, those that have the same Rules. Those of a file stay: they are lifted in the file.
	Effect string `json:"effect,omitempty"`

	// Rate is the limit of each key, for EffectRate. It applies to those of the Rules whose keys belong to one client (for
	// a Client) or to one address (for an IP). With the Algorithm of a window, it has the Per of the rule. If a change of
	// a rule makes the Rate unfit for it, the Override has no effect on this rule.
	Rate Rate `json:"rate,omitzero"`

	// Until is when the Override ends; the zero Time means that it lasts until it is lifted. A caller of Wait who already stands
	// in line keeps his exemption or Rate until he is served.
	Until time.Time `json:"until,omitzero"`

	// Note is a text for people, of at most 256 bytes: who has set it, and why.
	Note string `json:"note,omitempty"`
}

// OverrideStats count the requests that an [Override] has changed, since the limiter was made, and the Overrides.
type OverrideStats struct {
	Blocked  uint64 // requests that a block has denied
	Exempted uint64 // requests that an exemption has freed from at least one rule
	Rated    uint64 // requests for which at least one rule had the rate of an Override

	Blocks, Exemptions, Rates int // Overrides of each effect that have not ended
}

// String returns o in words. The text may change.
func (o Override) String() string { return (*explained.Override)(o.out()).String() }

// out converts o, which may be nil, to the type of package override.
func (o *Override) out() *override.Override {
	if o == nil {
		return nil
	}
	return &override.Override{Client: o.Client, IP: o.IP, Rules: o.Rules, Effect: o.Effect, Rate: ratetext.Rate(o.Rate),
		Until: o.Until, Note: o.Note}
}

// overrideIn converts o, which may be nil, from the type of package override.
func overrideIn(o *override.Override) *Override {
	if o == nil {
		return nil
	}
	return &Override{o.Client, o.IP, o.Rules, o.Effect, Rate(o.Rate), o.Until, o.Note}
}

// overrideOf returns the Override of e, which may be nil.
func overrideOf(e *override.Entry) *Override {
	if e == nil {
		return nil
	}
	return overrideIn(&e.Override)
}

// entriesOf converts all to the form that package override keeps them in.
func entriesOf(all []Override) (entries []override.Entry) {
	for i := range all {
		entries = append(entries, override.NewEntry(*all[i].out()))
	}
	return entries
}

// overridesOf converts entries to Overrides.
func overridesOf(entries []override.Entry) (all []Override) {
	for i := range entries {
		all = append(all, *overrideOf(&entries[i]))
	}
	return all
}

// partOf returns the part that a key must have so that it belongs to the one whom o is for.
func partOf(o *override.Override) keyspec.Kind {
	if o.IP != "" {
		return keyspec.IP
	}
	return keyspec.User
}

// A Penalty makes a rule block a key for some time after many denials. The zero Penalty does not.
//
// A denial by the rule is a strike. If a key has After strikes within the time Within, it is blocked for the time For: all
// its requests are denied, with [ReasonPenalty]. While a key is blocked, denials are no strikes, so a client who goes on
// sending is not blocked for longer. Not every denial is a strike: only one by the key's own state, of a request that does
// not wait. A denial because others wait, or by a [FailurePolicy], and the repeated answer of a retry are none.
//
// [RateLimiter.Reset] ends the block of a key, and so does an [Override] with [EffectPardon].
type Penalty struct {
	After  int           // how many denials begin a block: at least 1; 0 only in the zero Penalty
	Within time.Duration // how long strikes count together, from the first one: from a microsecond to 366 days
	For    time.Duration // how long the first block lasts: from a microsecond to 366 days

	// If Most is not 0, a block that begins less than Most after the end of the last one lasts twice as long as that, but
	// no longer than Most. Most is at least For, and at most 366 days.
	Most time.Duration
}

// validate returns all that makes the Penalty p invalid, joined, or nil. Each error has a field of Penalty.
func (p Penalty) validate() error { return joinFaults(ruleconfig.Penalty(p).Faults()) }
