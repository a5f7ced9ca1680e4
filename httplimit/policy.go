package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"math/bits"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
)

// policies contains, for one version of the limiter's rules, the texts that describe the rules to clients.
type policies struct {
	rules       []ratelimit.Rule
	defaultRule *ratelimit.Rule
	all         []*policy
	byName      map[string]*policy // all policies by the name of the rule; nil for up to 8 policies, which are searched one by one
	endpoints   map[string]string  // for each Endpoint of a rule, the name of the first rule that has it
	tiers       map[string]bool    // the tiers that at least one rule has; nil if no rule has tiers
	units       bool               // whether at least one rule has a Unit, and counts something other than requests
	holds       time.Duration      // the shortest Per of the rules that limit how many requests run at once; 0 if no rule does
}

// The constant few is the largest number of policies for which a linear search is faster than a map.
const few = 8

// A policy contains the texts that describe one rule to clients.
type policy struct {
	name        string
	item        string // the name of the rule, as a quoted string of a structured field
	json        string // the name of the rule as a JSON string
	hidden      bool   // whether the rule is not shown to clients
	closed      bool   // whether the rule denies all requests while its store fails (OnStoreError is FailClosed)
	holds       bool   // whether the rule limits how many requests run at once (AlgorithmInFlight)
	counts      string // the parameter of RateLimit-Policy for the unit, such as ;qu="content-bytes"; empty if the rule counts requests
	defaultSpan span   // the rate for clients whose tier the rule does not name; zero if the rate is unknown
	tiers       map[string]*span
}

// A span describes a rate to clients: how many units the rate grants, and after how much time these units
// come back.
type span struct {
	window int64         // seconds until all units are back, rounded up; 0 if clients are not sent this number
	unit   time.Duration // the time in which one unit comes back, rounded up; 0 if all come back at once, or if it is not known
	limit  int           // the most units that can be granted at once
	item   string        // the text in RateLimit-Policy for a rule with this rate; not used if the Result has a Limit other than limit

	calendar string // the Window of the rate if its windows differ in length, as months do; if it is set, window is not used
}

// policies returns the policies of the current rules: the texts that describe them to clients. It makes
// new policies only if the rules have changed.
func (m *Middleware) policies() *policies {
	rules, defaultRule := m.limiter.Rules()
	if p := m.shown.Load(); p != nil && p.are(rules, defaultRule) {
		return p
	}
	p := &policies{rules: rules, defaultRule: defaultRule, endpoints: make(map[string]string, len(rules))}
	for i := range rules {
		p.add(&rules[i], m.config.ShowShared)
		if r := &rules[i]; p.endpoints[r.Endpoint] == "" {
			p.endpoints[r.Endpoint] = r.Name
		}
	}
	if defaultRule != nil {
		p.add(defaultRule, m.config.ShowShared)
	}
	m.warnOfCase(p)
	for _, one := range p.all {
		for tier := range one.tiers {
			if p.tiers == nil {
				p.tiers = make(map[string]bool)
			}
			p.tiers[tier] = true
		}
	}
	if len(p.all) > few {
		p.byName = make(map[string]*policy, len(p.all))
		for _, one := range p.all {
			p.byName[one.name] = one
		}
	}
	if before := m.shown.Swap(p); before != nil {
		m.checkAgain(p)
	}
	return p
}

// add adds the policy of the rule r to p. The policy has the texts that describe r to clients.
func (p *policies) add(r *ratelimit.Rule, showShared bool) {
	p.all = append(p.all, newPolicy(r, showShared))
	p.units = p.units || r.Unit != ""
	if r.Algorithm == ratelimit.AlgorithmInFlight && (p.holds == 0 || r.Rate.Per < p.holds) {
		p.holds = r.Rate.Per
	}
}

// warnOfCase logs once if clients are shown two rules in p whose names differ only in upper and lower
// case.
func (m *Middleware) warnOfCase(p *policies) {
	if m.config.Headers != HeadersDraft11 || m.logs.warned[warnCase].Load() {
		return
	}
	folded := make(map[string]string, len(p.all))
	for _, one := range p.all {
		if one.hidden {
			continue
		}
		lower := strings.ToLower(one.item)
		if other, taken := folded[lower]; taken {
			m.logs.once(warnCase, "rule", one.name, "other", other)
			return
		}
		folded[lower] = one.name
	}
}

// policies.are reports whether p was made from these rules. It compares only the addresses of the rules,
// because the limiter returns the same slice until the rules change.
func (p *policies) are(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) bool {
	return p.defaultRule == defaultRule && len(p.rules) == len(rules) && (len(rules) == 0 || &p.rules[0] == &rules[0])
}

// policies.of returns the policy of the rule with this name, or nil if no rule has this name.
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

// policies.again returns a time after which the rules would grant the request req once more. The slice each has the
// Results of the rules, which have granted req. A rule is left out if it has a Unit, if it limits how many requests run
// at once, or if a failure policy has answered for it.
func (p *policies) again(req *ratelimit.Request, each []ratelimit.Result) (wait time.Duration) {
	for i := range each {
		res := &each[i]
		missing := max(req.Cost, 1) - res.Remaining
		shown := p.of(res.Rule)
		if missing <= 0 || res.Limit < 0 || res.Degraded || shown != nil && (shown.holds || shown.counts != "") {
			continue
		}
		d := res.ResetAfter
		if shown != nil {
			if unit := shown.span(req.Tier).unit; unit > 0 && d/unit >= time.Duration(missing) {
				d = unit * time.Duration(missing)
			}
		}
		wait = max(wait, d)
	}
	return wait
}

// status returns the HTTP status of a denial. The status is 503 if every rule that denied did so by
// FailClosed, because the store or the custom limiter failed. Otherwise it is 429.
func (p *policies) status(each []ratelimit.Result) int {
	return statusOf(each, func(rule string) bool {
		shown := p.of(rule)
		return shown != nil && shown.closed
	})
}

// statusOf does the work of policies.status. The function closed reports whether the failure policy of the rule with
// this name is FailClosed.
func statusOf(each []ratelimit.Result, closed func(rule string) bool) int {
	status := http.StatusTooManyRequests
	for i := range each {
		if each[i].Allowed {
			continue
		}
		if !each[i].Degraded || !closed(each[i].Rule) {
			return http.StatusTooManyRequests
		}
		status = http.StatusServiceUnavailable
	}
	return status
}

// Status returns the HTTP status for a request that the limiter l has not granted, as a [Middleware] would
// answer it. It is for handlers that call Check or Reserve of l themselves. err is the error of that call.
// results is its Result, or the Results of all rules if the caller has them.
//
//   - 503 if each rule that denied did so by [ratelimit.FailClosed], because its store is unreachable;
//   - 429 if any other rule denied;
//   - 503 if there is no answer because the context of the call had ended;
//   - 500 if there is no answer for another reason, for example because a rule is unknown.
func Status(l *ratelimit.RateLimiter, err error, results ...ratelimit.Result) int {
	answered := slices.ContainsFunc(results, func(res ratelimit.Result) bool { return res != ratelimit.Result{} })
	switch {
	case answered:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
	rules, defaultRule := l.Rules()
	return statusOf(results, func(name string) bool {
		if defaultRule != nil && defaultRule.Name == name {
			return defaultRule.OnStoreError == ratelimit.FailClosed
		}
		i := slices.IndexFunc(rules, func(r ratelimit.Rule) bool { return r.Name == name })
		return i >= 0 && rules[i].OnStoreError == ratelimit.FailClosed
	})
}

func newPolicy(r *ratelimit.Rule, showShared bool) *policy {
	name, err := json.Marshal(r.Name)
	if err != nil {
		panic(err) // cannot happen: every string can be written as JSON
	}
	p := &policy{
		name:   r.Name,
		item:   itemOf(r.Name),
		json:   string(name),
		hidden: !showShared && (r.Key == ratelimit.KeyGlobal || r.Key == ratelimit.KeyEndpoint),
		closed: r.OnStoreError == ratelimit.FailClosed,
		holds:  r.Algorithm == ratelimit.AlgorithmInFlight,
	}
	switch {
	case r.Unit == "bytes":
		p.counts = `;qu="content-bytes"`
	case r.Unit != "":
		p.counts = `;qu="` + r.Unit + `"`
	case p.holds:
		p.counts = `;qu="concurrent-requests"`
	}
	if r.Limiter != nil || r.Resolve != nil {
		return p // the rate is not known: a custom limiter or the function Resolve decides it
	}
	bucket := r.Algorithm == ratelimit.AlgorithmTokenBucket || r.Algorithm == ratelimit.AlgorithmLeakyBucket
	p.defaultSpan = p.spanOf(r.Rate, bucket)
	for tier, rate := range r.Tiers {
		if p.tiers == nil {
			p.tiers = make(map[string]*span, len(r.Tiers))
		}
		s := p.spanOf(rate, bucket)
		p.tiers[tier] = &s
	}
	return p
}

// span returns the span of the rate that applies to a client of this tier.
func (p *policy) span(tier string) *span {
	if len(p.tiers) > 0 {
		if s := p.tiers[tier]; s != nil {
			return s
		}
	}
	return &p.defaultSpan
}

// spanOf returns the span of a rate, with the field item set. The rate must be valid or Unlimited.
func (p *policy) spanOf(rate ratelimit.Rate, bucket bool) span {
	s := spanOf(rate, bucket)
	if p.holds {
		s.window = 0
	}
	s.item = string(s.appendPolicy(nil, p, s.limit))
	return s
}

// appendPolicy appends to the slice text the item of RateLimit-Policy for the rule of p, with this limit.
func (s *span) appendPolicy(text []byte, p *policy, limit int) []byte {
	if limit == s.limit && s.item != "" && s.calendar == "" {
		return append(text, s.item...)
	}
	text = append(appendParameter(append(text, p.item...), ";q=", int64(limit)), p.counts...)
	if window := s.seconds(); window > 0 {
		text = appendParameter(text, ";w=", window)
	}
	return text
}

// seconds returns the length of the window in seconds, rounded up. The windows of a calendar, such as months, differ in
// length. For them, the result is the length of the window that contains the present time of the machine's clock.
func (s *span) seconds() int64 {
	if s.calendar == "" {
		return s.window
	}
	return int64((calendar.LengthAt(s.calendar, 0, time.Now()) + time.Second - 1) / time.Second)
}

// spanOf returns the span of a rate, with the field item left empty. bucket is true for a token bucket or a
// leaky bucket: their units come back one by one, and not all at the end of a window.
func spanOf(rate ratelimit.Rate, bucket bool) (s span) {
	if rate == ratelimit.Unlimited {
		return s
	}
	s.limit = rate.Requests
	if rate.Burst != 0 {
		s.limit = rate.Burst
	}
	if rate.Per == 0 {
		s.calendar = string(rate.Window)
	}
	units, requests, per := uint64(1), uint64(1), uint64(rate.Per)
	if bucket {
		units, requests = uint64(s.limit), uint64(rate.Requests)
		s.unit = time.Duration((per-1)/requests + 1)
	}
	hi, lo := bits.Mul64(units, per)
	second := requests * uint64(time.Second)
	switch {
	case hi == 0 && lo < second: // s.window is in whole seconds, and this window is shorter than a second: s.window stays 0
	case hi >= second:
		s.window = maxInteger
	default:
		quotient, rest := bits.Div64(hi, lo, second)
		if rest > 0 {
			quotient++ // rounded up, because a window that is too short would promise a higher rate
		}
		s.window = int64(min(quotient, maxInteger))
	}
	return s
}
