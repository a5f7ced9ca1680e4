package ratelimit

import (
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
type FailurePolicy struct{ is ruleconfig.Policy }

// The policies that give every request the same answer. The function [FailLocal] returns the third policy.
var (
	// FailOpen grants every request. Limit and Remaining are -1.
	FailOpen = FailurePolicy{ruleconfig.Policy{Name: ruleconfig.Open}}

	// FailClosed denies every request. RetryAfter is one second.
	FailClosed = FailurePolicy{ruleconfig.Policy{Name: ruleconfig.Closed}}
)

// closedFor is the RetryAfter and the ResetAfter of a denial by FailClosed.
const closedFor = time.Second

// FailLocal returns the policy that enforces a part of the limit in this process, without the [Store]. replicas is the
// number of processes that share the limit. Each grants its share: limit and burst divided by replicas, rounded down, but
// at least 1. The refill of a bucket is divided exactly. An option or a rule with fewer than 1 replica is invalid.
//
// A key starts with its share of the units that were left in the store's last answer for the key, or with a full share
// if there was no answer. Units that the policy has granted come back only at the rate of the share, even if the store answers
// in between. So however often the store fails, the policy grants no more than the share of the limit allows.
func FailLocal(replicas int) FailurePolicy {
	return FailurePolicy{ruleconfig.Policy{Name: ruleconfig.Local, Replicas: replicas}}
}

// verdict returns the answer of the policy p, which is FailOpen or FailClosed, for a key with this rate.
func (p FailurePolicy) verdict(rate Rate) engine.Verdict {
	if p == FailClosed {
		return engine.Verdict{Limit: int64(rate.burst()), RetryAfter: closedFor, ResetAfter: closedFor}
	}
	return engine.Verdict{Limit: -1, Left: -1}
}

// local reports whether the policy p was made by the function FailLocal.
func (p FailurePolicy) local() bool { return p.is.Name == ruleconfig.Local }

// String returns the policy as a config spells it, such as "open", "closed" or "local:4", or "inherit" if p is zero.
func (p FailurePolicy) String() string { return p.is.String() }

// MarshalText returns the text of [FailurePolicy.String].
func (p FailurePolicy) MarshalText() ([]byte, error) {
	if problem := p.is.Problem(); problem != "" {
		return []byte(p.String()), &ConfigError{"failurePolicy", p, problem}
	}
	return []byte(p.String()), nil
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
	*p = FailurePolicy{read}
	return nil
}
