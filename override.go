package ratelimit

import (
	"time"
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
	Client string
	IP     string

	// Rules are the names of the rules that it is for. None means all rules: a block then also denies requests to which
	// no rule applies.
	Rules []string

	// Effect is one of the constants. The empty Effect lifts the Overrides of this Client or IP: all of them or, with
	// Rules, those that have the same Rules.
	Effect string

	// Rate is the limit of each key, for EffectRate. It applies to those of the Rules whose keys belong to one client (for
	// a Client) or to one address (for an IP). With the Algorithm of a window, it has the Per of the rule. If a change of
	// a rule makes the Rate unfit for it, the Override has no effect on this rule.
	Rate Rate

	// Until is when the Override ends; the zero Time means that it lasts until it is lifted.
	Until time.Time

	// Note is a text for people, of at most 256 bytes: who has set it, and why.
	Note string
}

// OverrideStats count the requests that an [Override] has changed, since the limiter was made, and the Overrides.
type OverrideStats struct {
	Blocked  uint64 // requests that a block has denied
	Exempted uint64 // requests that an exemption has freed from at least one rule
	Rated    uint64 // requests for which at least one rule had the rate of an Override

	Blocks, Exemptions, Rates int // Overrides of each effect that have not ended
}
