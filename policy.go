package ratelimit

import (
	"cmp"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A FailurePolicy says how a limiter answers while its [Store] cannot be reached. The policies are [FailOpen],
// [FailClosed] and [FailLocal]. An answer of a policy has [Result.Degraded] set.
//
// The zero FailurePolicy inherits: in [Rule.OnStoreError] it means the policy of the limiter, and in
// [WithFailurePolicy] it means FailLocal(1). Policies can be compared with ==.
type FailurePolicy struct {
	kind     string // one of the constants below; empty for the zero FailurePolicy
	replicas int    // the argument of FailLocal, which must be at least 1; 0 for FailOpen and FailClosed
}

const failOpenly, failClosedly, failLocally = "open", "closed", "local"

// The policies that give every request the same answer. The function [FailLocal] returns the third policy.
var (
	// FailOpen grants every request. Limit and Remaining are -1.
	FailOpen = FailurePolicy{kind: failOpenly}

	// FailClosed denies every request. RetryAfter is one second.
	FailClosed = FailurePolicy{kind: failClosedly}
)

// closedFor is the RetryAfter and the ResetAfter of a denial by FailClosed.
const closedFor = time.Second

// FailLocal returns the policy that enforces a part of the limit in this process, without the [Store]. replicas is the
// number of processes that share the limit; each grants its share: limit and burst divided by replicas, rounded down but
// to at least 1, and the refill of a bucket divided exactly. An option or a rule with fewer than 1 replica is invalid.
//
// A key starts with its share of the units that were left in the store's last answer for the key, or with a full share
// if there was none. What the policy has granted counts until the share has refilled it, even if the store answers in
// between. So however often the store fails, the policy grants no more than the share of the limit allows.
func FailLocal(replicas int) FailurePolicy {
	return FailurePolicy{kind: failLocally, replicas: replicas}
}

// verdict returns the answer of the policy p, which is FailOpen or FailClosed, for a key with this rate.
func (p FailurePolicy) verdict(rate Rate) engine.Verdict {
	if p == FailClosed {
		return engine.Verdict{Limit: int64(rate.burst()), RetryAfter: closedFor, ResetAfter: closedFor}
	}
	return engine.Verdict{Limit: -1, Left: -1}
}

// validate returns nil if the policy p is valid. Otherwise it returns an error for this field of a config.
func (p FailurePolicy) validate(field string) error {
	if p.kind == failLocally && p.replicas < 1 {
		return &ConfigError{field, p, "must have at least 1 replica"}
	}
	return nil
}

// String returns the policy as a config spells it, such as "open", "closed" or "local:4", or "inherit" if p is zero.
func (p FailurePolicy) String() string {
	if p.kind == failLocally {
		return p.kind + ":" + strconv.Itoa(p.replicas)
	}
	return cmp.Or(p.kind, "inherit")
}

// MarshalText returns the text of [FailurePolicy.String].
func (p FailurePolicy) MarshalText() ([]byte, error) {
	return []byte(p.String()), p.validate("failurePolicy")
}

// UnmarshalText sets p to the policy that text spells: "open", "closed", "local", "local:4", or "inherit" for the zero
// FailurePolicy. For any other text, it returns an error that matches [ErrInvalidConfig] and leaves p unchanged.
func (p *FailurePolicy) UnmarshalText(text []byte) error {
	read, reason := ruleconfig.Policy{}, ""
	if string(text) != "inherit" {
		read, reason = ruleconfig.ParsePolicy(string(text))
	}
	if reason != "" {
		return &ConfigError{"failurePolicy", confmap.Quote(string(text)), reason}
	}
	*p = FailurePolicy{read.Name, read.Replicas}
	return nil
}
