package httplimit

import (
	"encoding/json"
	"math/bits"
	"net/http"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// policies are what clients are told of the rules of one time.
type policies struct {
	rules       []ratelimit.Rule
	defaultRule *ratelimit.Rule
	all         []*policy
	byName      map[string]*policy // the same; nil if they are few
}

// few is up to how many policies are compared with a name one by one, which is faster.
const few = 8

// A policy is what clients are told of one rule.
type policy struct {
	name   string
	item   string // the name, as a string of a structured field
	json   string // the name, as a string of JSON
	hidden bool   // whether the rule is about what others do too
	closed bool   // whether its failure policy is FailClosed
	usual  span   // of its Rate
	tiers  map[string]*span
}

// A span is how long the units of a rate take to come back.
type span struct {
	window int64         // seconds for all units, rounded up; 0 if it is not told
	unit   time.Duration // at most until there is one unit more; 0 if it is not known
	limit  int           // how many units these are
	item   string        // of a rule of this rate in RateLimit-Policy
}

// policies returns the policies of the rules of now. They are made anew after the rules have
// changed.
func (m *Middleware) policies() *policies {
	rules, defaultRule := m.limiter.Rules()
	if p := m.shown.Load(); p != nil && p.are(rules, defaultRule) {
		return p
	}
	p := &policies{rules: rules, defaultRule: defaultRule}
	for i := range rules {
		p.all = append(p.all, newPolicy(&rules[i], m.config.ShowShared))
	}
	if defaultRule != nil {
		p.all = append(p.all, newPolicy(defaultRule, m.config.ShowShared))
	}
	if len(p.all) > few {
		p.byName = make(map[string]*policy, len(p.all))
		for _, one := range p.all {
			p.byName[one.name] = one
		}
	}
	m.shown.Store(p)
	return p
}

// are reports whether p is of these rules. The limiter shares them while they do not change.
func (p *policies) are(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) bool {
	return p.defaultRule == defaultRule && len(p.rules) == len(rules) && (len(rules) == 0 || &p.rules[0] == &rules[0])
}

// of returns the policy of the rule of this name, or nil if there is none.
func (p *policies) of(name string) *policy {
	if p.byName != nil {
		return p.byName[name]
	}
	for _, one := range p.all {
		if one.name == name {
			return one
		}
	}
	return nil
}

// status returns the status of a denial. It is 503 if no rule that denied has counted.
func (p *policies) status(each []ratelimit.Result) int {
	status := http.StatusTooManyRequests
	for i := range each {
		if each[i].Allowed {
			continue
		}
		if shown := p.of(each[i].Rule); shown == nil || !shown.closed || !each[i].Degraded {
			return http.StatusTooManyRequests
		}
		status = http.StatusServiceUnavailable
	}
	return status
}

func newPolicy(r *ratelimit.Rule, showShared bool) *policy {
	name, err := json.Marshal(r.Name)
	if err != nil {
		panic(err) // every string has a JSON text
	}
	p := &policy{
		name:   r.Name,
		item:   itemOf(r.Name),
		json:   string(name),
		hidden: !showShared && (r.Key == ratelimit.KeyGlobal || r.Key == ratelimit.KeyEndpoint),
		closed: r.OnStoreError == ratelimit.FailClosed,
	}
	if r.Limiter != nil || r.Resolve != nil {
		return p // the rate is not known
	}
	bucket := r.Algorithm == ratelimit.AlgorithmTokenBucket || r.Algorithm == ratelimit.AlgorithmLeakyBucket
	p.usual = p.spanOf(r.Rate, bucket)
	for tier, rate := range r.Tiers {
		if p.tiers == nil {
			p.tiers = make(map[string]*span, len(r.Tiers))
		}
		s := p.spanOf(rate, bucket)
		p.tiers[tier] = &s
	}
	return p
}

// span returns the span of the rate that a client of this tier has.
func (p *policy) span(tier string) *span {
	if len(p.tiers) > 0 {
		if s := p.tiers[tier]; s != nil {
			return s
		}
	}
	return &p.usual
}

// spanOf returns the span of rate, which is valid or Unlimited, with its text.
func (p *policy) spanOf(rate ratelimit.Rate, bucket bool) span {
	s := spanOf(rate, bucket)
	s.item = string(s.appendPolicy(nil, p.item, s.limit))
	return s
}

// appendPolicy appends to text an item of RateLimit-Policy, of a rule of this name and limit.
func (s *span) appendPolicy(text []byte, name string, limit int) []byte {
	if limit == s.limit && s.item != "" {
		return append(text, s.item...)
	}
	text = appendParameter(append(text, name...), ";q=", int64(limit))
	if s.window > 0 {
		text = appendParameter(text, ";w=", s.window)
	}
	return text
}

// spanOf returns the span of rate, without its text.
func spanOf(rate ratelimit.Rate, bucket bool) (s span) {
	if rate == ratelimit.Unlimited {
		return s
	}
	s.limit = rate.Requests
	if rate.Burst != 0 {
		s.limit = rate.Burst
	}
	units, requests, per := uint64(1), uint64(1), uint64(rate.Per)
	if bucket {
		units, requests = uint64(s.limit), uint64(rate.Requests)
		s.unit = time.Duration((per-1)/requests + 1)
	}
	hi, lo := bits.Mul64(units, per)
	second := requests * uint64(time.Second)
	switch {
	case hi == 0 && lo < second: // a shorter window cannot be told
	case hi >= second:
		s.window = maxInteger
	default:
		quotient, rest := bits.Div64(hi, lo, second)
		if rest > 0 {
			quotient++ // rounded down, it would promise more
		}
		s.window = int64(min(quotient, maxInteger))
	}
	return s
}
