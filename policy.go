package ratelimit

import (
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
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
// exactly, or, where that takes longer than a Duration can say, rounds it down.
func (p FailurePolicy) share(r Rate, windowed bool) Rate {
	n := p.replicas
	if windowed {
		return Rate{Requests: max(r.Requests/n, 1), Per: r.Per}
	}
	share := Rate{Burst: max(r.burst()/n, 1)}
	d := int(exact.GCD(int64(r.Requests), int64(n)))
	requests, hi, lo := uint64(r.Requests/d), uint64(0), uint64(0)
	if hi, lo = bits.Mul64(uint64(r.Per), uint64(n/d)); hi > 0 || lo > math.MaxInt64 {
		// So many in 292 years, if that is one at least.
		top, low := bits.Mul64(requests, math.MaxInt64)
		for hi > 0 { // both halve alike, and rounding is against the client
			hi, lo = hi>>1, hi<<63|lo>>1|lo&1
			top, low = top>>1, top<<63|low>>1
		}
		requests, _ = bits.Div64(top, low, lo)
		requests, lo = max(requests, 1), math.MaxInt64
	}
	share.Requests, share.Per = int(requests), time.Duration(lo)
	return share
}

// shares returns the rates of one of p's replicas.
func (p FailurePolicy) shares(r engine.Rates) engine.Rates {
	share := func(rate engine.Rate) engine.Rate { return engine.Rate(p.share(Rate(rate), r.Windows)) }
	r.Base = share(r.Base)
	tiers := make(map[string]engine.Rate, len(r.Tiers))
	for tier, rate := range r.Tiers {
		tiers[tier] = share(rate)
	}
	r.Tiers = tiers
	return r
}
