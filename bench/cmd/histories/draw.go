package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

var (
	names     = []string{"one", "two", "three", "four", "five", "six"}
	endpoints = []string{"/x", "/x", "/x/y", "/x/z", "/z", "/q", ""}
	patterns  = []string{"/x", "/x", "/x*", "/x/y", "/x/*", "*", "/z"}
	keyTypes  = []ratelimit.KeyType{
		"", ratelimit.KeyUser, ratelimit.KeyUser, ratelimit.KeyEndpoint, ratelimit.KeyUserEndpoint,
		ratelimit.KeyIP, ratelimit.KeyGlobal, ratelimit.KeyGlobal,
		"attr:tenant", "ip+endpoint", "attr:tenant+user",
	}
)

// A world holds a RateLimiter under test, its store, and the settings by which random requests and
// rules are made.
type world struct {
	*history
	limiter *ratelimit.RateLimiter
	store   *store // the store of the RateLimiter; nil if the RateLimiter has no store
	customs bool   // whether rules may have custom limiters
	clients int    // number of different clients
	ids     int    // number of different request IDs; 0 if requests have no ID
	opts    []ratelimit.Option

	held    []held
	tiered  bool               // true: most rules have tiers, and most requests have a tier
	leaky   bool               // true: most rules are leaky buckets, and most calls are calls of Wait
	slow    *stepClock         // the clock by which slow custom limiters wait before they answer; nil if there are no slow ones
	usual   *ratelimit.Request // if not nil, most requests have the same keys as this request
	explain bool               // whether Explain is called before each call that decides about a request
}

// The type named "held" is a reservation that a random call has made and that a later call may settle. It
// also has the request for which the reservation was made.
type held struct {
	*ratelimit.Reservation
	req ratelimit.Request
}

// ruleText returns the text of the rule r for the transcript, the text of all calls and results.
func ruleText(r ratelimit.Rule) string {
	custom := ""
	if r.Limiter != nil {
		custom = fmt.Sprintf(" limiter %T", r.Limiter)
	}
	return fmt.Sprintf("{%q %q add %v key %q %s rate %+v tiers %v resolve %v%s mode %q warmup %v policy %v}",
		r.Name, r.Endpoint, r.Additional, r.Key, r.Algorithm, r.Rate, r.Tiers, r.Resolve != nil, custom, r.Mode, r.Warmup, r.OnStoreError)
}

// drawRule returns a random rule. Some of these rules are invalid.
func (w *world) drawRule() ratelimit.Rule {
	r := ratelimit.Rule{Endpoint: oneOf(w.history, patterns...), Key: oneOf(w.history, keyTypes...)}
	r.Algorithm = oneOf(w.history, append(algorithms, "")...)
	if w.leaky && w.chance(70) {
		r.Algorithm = ratelimit.AlgorithmLeakyBucket
	}
	r.Rate = w.drawRate(r.Algorithm, 0)
	if w.chance(70) {
		r.Name = oneOf(w.history, names...)
		if w.chance(10) {
			r.Endpoint = ""
		}
	}
	r.Additional = r.Endpoint != "" && w.chance(25)
	if w.chance(20) {
		r.Mode = ratelimit.ModeShadow
	}
	if w.chance(25) || w.tiered && w.chance(70) {
		r.Tiers = map[string]ratelimit.Rate{"paid": w.drawTier(r)}
		if w.chance(50) {
			r.Tiers["gold"] = ratelimit.Unlimited
		}
	}
	if w.chance(20) {
		r.Resolve = w.drawResolve(r)
	}
	if w.chance(15) {
		r.Warmup = ratelimit.Warmup{From: 1 + w.IntN(2), Over: oneOf(w.history, time.Second, time.Minute, time.Millisecond)}
	}
	if w.store != nil && w.chance(50) || w.chance(10) {
		r.OnStoreError = w.drawPolicy()
	}
	if w.customs && w.chance(25) {
		r.Limiter = w.drawCustom(r.Rate)
		r.Algorithm, r.Warmup, r.Tiers, r.Resolve = "", ratelimit.Warmup{}, nil, nil
		if w.chance(50) {
			r.Rate = ratelimit.Rate{}
		}
		if w.chance(90) {
			r.OnStoreError = oneOf(w.history, ratelimit.FailurePolicy{}, ratelimit.FailOpen, ratelimit.FailClosed)
		}
	}
	if w.chance(2) {
		w.spoil(&r)
	}
	return r
}

// The method named "spoil" makes a field of the rule r invalid.
func (w *world) spoil(r *ratelimit.Rule) {
	switch w.IntN(6) {
	case 0:
		r.Key = "colour"
	case 1:
		r.Algorithm = "Guess"
	case 2:
		r.Mode = "strict"
	case 3:
		r.Warmup = ratelimit.Warmup{From: -1}
	case 4:
		r.OnStoreError = ratelimit.FailLocal(0)
	case 5:
		r.Name, r.Endpoint = "", ""
	}
}

// drawTier returns a random rate for a tier of the rule r.
func (w *world) drawTier(r ratelimit.Rule) ratelimit.Rate {
	if windowed(r.Algorithm) {
		return w.drawRate(r.Algorithm, r.Rate.Per)
	}
	return w.drawRate(r.Algorithm, 0)
}

// drawResolve returns a function for the field Resolve of the rule r. The rate that the function
// chooses depends on the client and the tier of the request.
func (w *world) drawResolve(r ratelimit.Rule) func(ratelimit.Request) (ratelimit.Rate, bool) {
	rates := []ratelimit.Rate{w.drawTier(r), w.drawTier(r), {}, r.Rate, ratelimit.Unlimited}
	if w.chance(20) {
		rates[2].Requests = -1
	}
	offset, panics := w.IntN(len(rates)), w.chance(3)
	return func(req ratelimit.Request) (ratelimit.Rate, bool) {
		n := (offset + len(req.Client) + int(hashOf(req.Client+req.Tier)%7)) % (len(rates) + 1)
		w.event("resolve %+v = %d", req, n)
		if panics && n == 2 {
			panic("resolve panics")
		}
		if n == len(rates) {
			return ratelimit.Rate{Requests: 9}, false
		}
		return rates[n], true
	}
}

// drawRules returns a random list of rules. It also returns a random default rule, or nil if there
// is to be no default rule.
func (w *world) drawRules() (rules []ratelimit.Rule, defaultRule *ratelimit.Rule) {
	if w.slow != nil && w.chance(60) {
		return w.drawSlowRules(), nil
	}
	used := map[string]bool{}
	for range 1 + w.IntN(oneOf(w.history, 1, 2, 3, 6)) {
		r := w.drawRule()
		name := r.Name
		if name == "" {
			name = r.Endpoint
		}
		if used[name] && w.chance(98) {
			continue
		}
		used[name] = true
		rules = append(rules, r)
	}
	if w.chance(40) {
		r := w.drawRule()
		r.Endpoint, r.Additional = "", false
		if used[r.Name] {
			r.Name = ""
		}
		defaultRule = &r
	}
	return rules, defaultRule
}

// drawSlowRules returns two rules. The first rule applies to all requests. The second rule has a
// custom limiter that takes time to answer.
func (w *world) drawSlowRules() []ratelimit.Rule {
	all := w.drawRule()
	all.Name, all.Endpoint, all.Additional, all.Limiter, all.Mode, all.OnStoreError = "one", "*", true, nil, "", ratelimit.FailurePolicy{}
	all.Rate = ratelimit.Rate{Requests: 1 + w.IntN(3), Per: oneOf(w.history, time.Second, time.Minute)}
	all.Tiers, all.Warmup, all.Resolve = nil, ratelimit.Warmup{}, nil
	some := ratelimit.Rule{Name: "two", Endpoint: oneOf(w.history, "/x", "/x*"), Limiter: w.drawGuess(ratelimit.PerSecond(1))}
	return []ratelimit.Rule{all, some}
}

func rulesText(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) string {
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "\n    %s", ruleText(r))
	}
	if defaultRule != nil {
		fmt.Fprintf(&b, "\n    default %s", ruleText(*defaultRule))
	}
	return b.String()
}

// drawRequest returns a random request. The client, the endpoint and the IP of the request come
// from short lists, so that many requests have the same keys.
func (w *world) drawRequest() ratelimit.Request {
	req := ratelimit.Request{
		Client:   string(rune('a' + w.IntN(w.clients))),
		Endpoint: oneOf(w.history, endpoints...),
		IP:       oneOf(w.history, "", "1", "2"),
		Tier:     oneOf(w.history, "", "", "paid", "gold", "lead"),
	}
	if w.chance(5) {
		req.Client = ""
	}
	if w.tiered && w.chance(60) {
		req.Tier = "paid"
	}
	if w.chance(30) {
		req.Attrs = map[string]string{"tenant": oneOf(w.history, "t", "u")}
	}
	switch n := w.IntN(100); {
	case n < 60:
	case n < 85:
		req.Cost = 1 + w.IntN(3)
	case n < 97:
		req.Cost = oneOf(w.history, 4, 5, 8, 10, 100, 1000)
	default:
		req.Cost = oneOf(w.history, -1, math.MaxInt, math.MaxInt32)
	}
	if w.chance(12) {
		req.Rules = w.drawNames()
	}
	if w.usual != nil && w.chance(60) {
		cost := req.Cost
		req = *w.usual
		req.Cost = cost
	}
	if w.ids > 0 && w.chance(80) {
		req.ID = fmt.Sprint("id", w.IntN(w.ids))
	}
	return req
}

// drawNames returns random names of existing rules, and sometimes a name that no rule has.
func (w *world) drawNames() (list []string) {
	rules, defaultRule := w.limiter.Rules()
	for range 1 + w.IntN(3) {
		list = append(list, w.drawName(rules, defaultRule))
	}
	return list
}

func (w *world) drawName(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) string {
	switch n := w.IntN(len(rules) + 1); {
	case w.chance(4):
		return oneOf(w.history, "nope", "on", "default")
	case n < len(rules):
		return rules[n].Name
	case defaultRule != nil:
		return defaultRule.Name
	}
	return oneOf(w.history, names...)
}
