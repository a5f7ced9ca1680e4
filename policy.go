package ratelimit

import (
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A FailurePolicy says how a limiter answers while its [Store] cannot be reached. The
// policies are [FailOpen], [FailClosed] and [FailLocal]. An answer of a policy has
// [Result.Degraded] set.
//
// The zero FailurePolicy inherits: in [Rule.OnStoreError] it means the policy of the
// limiter, and in [WithFailurePolicy] it means FailLocal(1). Policies can be compared
// with ==.
type FailurePolicy struct {
	kind     failureKind
	replicas int // for failLocally
}

type failureKind uint8

const (
	failInherit failureKind = iota
	failOpenly
	failClosedly
	failLocally
)

// The policies that give every request the same answer. [FailLocal] is the third one.
var (
	// FailOpen grants every request. Limit and Remaining are -1.
	FailOpen = FailurePolicy{kind: failOpenly}

	// FailClosed denies every request. RetryAfter is one second.
	FailClosed = FailurePolicy{kind: failClosedly}
)

// closedFor is the RetryAfter of FailClosed, and its ResetAfter.
const closedFor = time.Second

// FailLocal returns the policy that enforces a part of the limit in this process, without
// the [Store]. replicas is the number of processes that share the limit; each then grants
// its share. The limit and the burst are divided by replicas, rounded down but to at least
// 1; the rate at which a bucket refills is divided exactly.
//
// A key starts with its share of the units that the store last said were left for it, or
// with a full share if the store has never answered for it. A policy with fewer than 1
// replica is refused by the option or rule that it is given to.
func FailLocal(replicas int) FailurePolicy {
	return FailurePolicy{kind: failLocally, replicas: replicas}
}

// or returns p, or q if p is the zero policy, which inherits.
func (p FailurePolicy) or(q FailurePolicy) FailurePolicy {
	if p.kind == failInherit {
		return q
	}
	return p
}

// policy returns the policy that answers for r, which is that of the limiter, p, if r has none.
// FailLocal has no meaning for a custom Limiter, so such a rule inherits FailOpen in its place.
func (r *Rule) policy(p FailurePolicy) FailurePolicy {
	if p = r.OnStoreError.or(p); p.kind == failLocally && r.Limiter != nil {
		return FailOpen
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

// String returns the policy as a config spells it, such as "open", "closed" or "local:4".
// It returns "inherit" for the zero FailurePolicy.
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

// MarshalText returns the text of [FailurePolicy.String].
func (p FailurePolicy) MarshalText() ([]byte, error) {
	return []byte(p.String()), p.validate("failurePolicy")
}

// UnmarshalText sets p to the policy that text spells: "open", "closed", "local", "local:4",
// or "inherit" for the zero FailurePolicy. For any other text, it returns an error that
// matches [ErrInvalidConfig] and leaves p unchanged.
func (p *FailurePolicy) UnmarshalText(text []byte) error {
	read, reason := ruleconfig.Policy{}, ""
	if string(text) != "inherit" {
		read, reason = ruleconfig.ParsePolicy(string(text))
	}
	if reason != "" {
		return &ConfigError{"failurePolicy", confmap.Quote(string(text)), reason}
	}
	*p = policyOf(read)
	return nil
}

// share returns the rate that one of p's replicas enforces. It divides the refill of a
// bucket exactly. If the quotient needs a Per beyond a Duration, it is rounded down.
func (p FailurePolicy) share(r Rate, windowed bool) Rate {
	n := p.replicas
	if windowed {
		return Rate{Requests: max(r.Requests/n, 1), Per: r.Per}
	}
	share := Rate{Burst: max(r.burst()/n, 1)}
	d := int(exact.GCD(int64(r.Requests), int64(n)))
	requests, hi, lo := uint64(r.Requests/d), uint64(0), uint64(0)
	if hi, lo = bits.Mul64(uint64(r.Per), uint64(n/d)); hi > 0 || lo > math.MaxInt64 {
		// The quotient as a number of units in 292 years, or 1 if it is smaller.
		top, low := bits.Mul64(requests, math.MaxInt64)
		for hi > 0 { // halve both: Per is rounded up and the count down, against the client
			hi, lo = hi>>1, hi<<63|lo>>1|lo&1
			top, low = top>>1, top<<63|low>>1
		}
		requests, _ = bits.Div64(top, low, lo)
		requests, lo = max(requests, 1), math.MaxInt64
	}
	share.Requests, share.Per = int(requests), time.Duration(lo)
	return share
}

// shares returns the rates that one of p's replicas enforces, in place of r.
func (p FailurePolicy) shares(r engine.Rates) engine.Rates {
	warms := r.Warmup != nil
	share := func(rate engine.Rate) engine.Rate { return p.shareOf(rate, r.Windows, warms) }
	if warms {
		w := *r.Warmup
		if w.Least = true; r.Windows {
			w.From = max(w.From/int64(p.replicas), 1)
		}
		r.Warmup = &w
	}
	r.Base = share(r.Base)
	tiers := make(map[string]engine.Rate, len(r.Tiers))
	for tier, rate := range r.Tiers {
		tiers[tier] = share(rate)
	}
	r.Tiers = tiers
	return r
}

// shareOf is share for a rate of the engine. If keys warm up, the share of a bucket has the same
// Requests as r, if that is possible: so a young key has the same part of the limit.
func (p FailurePolicy) shareOf(r engine.Rate, windowed, warms bool) engine.Rate {
	share := p.share(Rate(r), windowed)
	if warms && !windowed {
		if times := r.Requests / share.Requests; share.Per <= math.MaxInt64/time.Duration(times) {
			share.Requests, share.Per = share.Requests*times, share.Per*time.Duration(times)
		}
	}
	return engine.Rate(share)
}

// policyOf returns the FailurePolicy that p is.
func policyOf(p ruleconfig.Policy) FailurePolicy {
	switch p.Name {
	case "open":
		return FailOpen
	case "closed":
		return FailClosed
	case "local":
		return FailLocal(p.Replicas)
	}
	return FailurePolicy{}
}

// countRemote counts d in the totals of those rules in a store whose keys do not count it.
func (d *decision) countRemote() {
	for i, r := range d.stored() {
		p := &d.parts[i]
		if p.Keys != nil || p.Granted() && !d.Passes { // only other rules have denied it
			continue
		}
		r.totals.count(p.Shadow, p.Granted())
		if d.origins[i].by == byPolicy {
			r.totals.degraded.Add(1)
		}
	}
}

// fallBack decides d by the failure policy of each rule, because the store has failed with err.
func (l *RateLimiter) fallBack(d *decision, err error) {
	d.failed = storeError(err)
	for i, r := range d.stored() {
		p, o := &d.parts[i], &d.origins[i]
		o.by = byPolicy
		switch remote := r.remote; remote.policy.kind {
		case failOpenly:
			p.Verdict = engine.Verdict{Limit: -1, Left: -1}
		case failClosedly:
			p.Verdict = engine.Verdict{Limit: int64(o.rate.burst()), RetryAfter: closedFor, ResetAfter: closedFor}
		default:
			p.Keys = remote.local
			if p.Want.Rate != nil {
				o.resolved = r.shareOf(*p.Want.Rate)
			}
		}
	}
	d.decideHere(&l.time)
}
