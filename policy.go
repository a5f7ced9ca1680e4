package ratelimit

import (
	"math"
	"strconv"
	"time"
)

// A FailurePolicy says how to answer while a [Store] can not. It compares with
// ==. The zero FailurePolicy inherits: a rule's the limiter's, a limiter's
// FailLocal(1).
//
// What it answered says so in [Result.Degraded].
type FailurePolicy struct {
	kind     failureKind
	replicas int // of failLocally
}

type failureKind uint8

const (
	failInherit failureKind = iota
	failOpenly
	failClosedly
	failLocally
)

// The policies that need no state.
var (
	// FailOpen grants everything: Limit and Remaining are -1.
	FailOpen = FailurePolicy{kind: failOpenly}

	// FailClosed denies everything, for a second at a time.
	FailClosed = FailurePolicy{kind: failClosedly}
)

// closedFor is the RetryAfter of FailClosed.
const closedFor = time.Second

// FailLocal enforces the share of one of so many replicas in this process: the
// limit and the burst divided by replicas, rounded down but at least 1, and a
// bucket's refill divided exactly. A key starts from its share of what the store
// last said to remain, and full if the store was never asked about it. Fewer than
// 1 replica is an error where the policy is used.
func FailLocal(replicas int) FailurePolicy {
	return FailurePolicy{kind: failLocally, replicas: replicas}
}

// or returns p, or q if p inherits.
func (p FailurePolicy) or(q FailurePolicy) FailurePolicy {
	if p.kind == failInherit {
		return q
	}
	return p
}

// validate returns the problem with p, which is found at field, or nil.
func (p FailurePolicy) validate(field string) error {
	if p.kind == failLocally && p.replicas < 1 {
		return &ConfigError{field, p, "must have at least 1 replica"}
	}
	return nil
}

// String returns the policy as a config has it: "open", "closed", "local:4".
func (p FailurePolicy) String() string {
	switch p.kind {
	case failOpenly:
		return "open"
	case failClosedly:
		return "closed"
	case failLocally:
		return "local:" + strconv.Itoa(p.replicas)
	}
	return "inherit"
}

// share returns the rate of one of p's replicas. It divides the refill of a bucket
// exactly.
func (p FailurePolicy) share(r Rate, windowed bool) (Rate, error) {
	n := p.replicas
	if windowed {
		return Rate{Requests: max(r.Requests/n, 1), Per: r.Per}, nil
	}
	d := int(gcd(int64(r.Requests), int64(n)))
	if int64(r.Per) > math.MaxInt64/int64(n/d) {
		return Rate{}, &ConfigError{"per", r.Per, "must be shorter, for each of " + strconv.Itoa(n) + " replicas to have an exact share"}
	}
	return Rate{Requests: r.Requests / d, Per: r.Per * time.Duration(n/d), Burst: max(r.burst()/n, 1)}, nil
}

// shares returns the rates of one of p's replicas.
func (p FailurePolicy) shares(r rates) (rates, error) {
	var err error
	if r.base, err = p.share(r.base, r.windows); err != nil {
		return r, err
	}
	tiers := make(map[string]Rate, len(r.tiers))
	for tier, rate := range r.tiers {
		if tiers[tier], err = p.share(rate, r.windows); err != nil {
			return r, err
		}
	}
	r.tiers = tiers
	return r, nil
}
