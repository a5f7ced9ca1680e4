// Package lint finds what is valid in rules, but may surprise those who wrote them.
package lint

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Severity says whether a finding fails a check.
type Severity string

// The severities.
const (
	Warning Severity = "warning" // the rule does not do what it seems to
	Note    Severity = "note"    // it does, but there is something to know
)

// A Finding is one thing that may surprise.
type Finding struct {
	Code     string   // stable, such as "RL001"
	Severity Severity // that of the code
	Rule     int      // the index of the rule, or -1 for the default rule
	Field    string   // which of its fields, as in a config; may be empty
	Message  string   // what was found
	Advice   string   // what to do
}

// A Code is a kind of finding.
type Code struct {
	Code     string   // such as "RL001"
	Severity Severity // of all its findings
	Means    string   // what is found
}

// Codes returns all kinds of findings.
func Codes() []Code {
	return []Code{
		{"RL001", Warning, "a fixed window limits attempts, such as a login"},
		{"RL002", Note, "a fixed window grants twice its limit around its edge"},
		{"RL003", Warning, "a request that costs more than the limit is never granted"},
		{"RL004", Warning, "a rule never applies: others match every endpoint first"},
		{"RL005", Warning, "a shadow rule is never asked"},
		{"RL006", Warning, "a limit can never deny: a stricter one denies first"},
		{"RL007", Note, "a window is no whole number of seconds, as headers need"},
		{"RL008", Warning, "sliding logs may take more than 1 GiB: limit times max-keys"},
		{"RL009", Warning, "the policy \"local\" grants each process the whole limit"},
	}
}

// Options are what the rules themselves do not say.
type Options struct {
	MaxKeys int            // of the limiter
	Costs   map[string]int // the most units that a request for an endpoint takes
}

// memoryLimit is the memory above which RL008 speaks.
const memoryLimit = 1 << 30

// attempts are the words in endpoints that limit attempts to guess something.
var attempts = []string{"login", "log-in", "signin", "sign-in", "password", "passwd", "otp", "mfa", "2fa", "token", "verify", "reset", "auth"}

// Check returns what may surprise in the rules of l, in the order of the rules.
func Check(l *ratelimit.RateLimiter, o Options) ([]Finding, error) {
	c := checker{limiter: l, options: o}
	rules, byDefault := l.Rules()
	for i, r := range rules {
		c.rules = append(c.rules, indexed{r, i})
	}
	if byDefault != nil {
		c.rules = append(c.rules, indexed{*byDefault, -1})
	}
	if err := c.probe(); err != nil {
		return nil, err
	}
	for _, r := range c.rules {
		c.alone(r)
		c.among(r)
	}
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(uint(a.Rule), uint(b.Rule)), cmp.Compare(a.Code, b.Code)) // -1 comes last
	})
	return c.found, nil
}

// An indexed rule is a rule and its place.
type indexed struct {
	ratelimit.Rule
	index int
}

func (r indexed) String() string {
	if r.index < 0 {
		return "the default rule"
	}
	return fmt.Sprintf("%q", r.Name)
}

// A checker checks the rules of one limiter.
type checker struct {
	limiter *ratelimit.RateLimiter
	options Options
	rules   []indexed
	asked   map[string][]string // the names of the rules that each probe asks
	found   []Finding
}

// probe asks the limiter which rules apply to endpoints of all kinds that its rules tell apart.
func (c *checker) probe() error {
	c.asked = make(map[string][]string)
	endpoints := []string{"", "\x00"} // one of no rule
	for _, r := range c.rules {
		prefix, isPrefix := strings.CutSuffix(r.Endpoint, "*")
		if endpoints = append(endpoints, prefix); isPrefix {
			endpoints = append(endpoints, prefix+"\x00")
		}
	}
	for _, endpoint := range endpoints {
		e, err := c.limiter.Explain(context.Background(), ratelimit.Request{Client: "client", Endpoint: endpoint})
		if err != nil {
			return err
		}
		for _, r := range e.Rules {
			c.asked[endpoint] = append(c.asked[endpoint], r.Name)
		}
	}
	return nil
}

func (c *checker) add(r indexed, code, field, advice, format string, args ...any) {
	i := slices.IndexFunc(Codes(), func(known Code) bool { return known.Code == code })
	c.found = append(c.found, Finding{code, Codes()[i].Severity, r.index, field, fmt.Sprintf(format, args...), advice})
}

// alone checks what a rule says by itself.
func (c *checker) alone(r indexed) {
	window := r.Algorithm == ratelimit.AlgorithmFixedWindow
	switch lower := strings.ToLower(r.Endpoint); {
	case window && slices.ContainsFunc(attempts, func(word string) bool { return strings.Contains(lower, word) }):
		c.add(r, "RL001", "algorithm", "use SlidingWindowLog, which holds its limit in every window",
			"%s grants %d attempts within %v around the edge of its window, twice its limit", r, r.Algorithm.MaxIn(r.Rate, r.Rate.Per-1), r.Rate.Per)
	case window && r.Rate.Requests > 1:
		c.add(r, "RL002", "algorithm", "use SlidingWindowCounter or TokenBucket if that is too much",
			"%s grants up to %d within %v, around the edge of its window", r, r.Algorithm.MaxIn(r.Rate, r.Rate.Per-1), r.Rate.Per)
	}
	if windowed(r.Algorithm) && r.Rate.Per%time.Second != 0 {
		c.add(r, "RL007", "rate", "use a window of whole seconds if clients read the headers",
			"the window of %s is %v, which headers cannot say", r, r.Rate.Per)
	}
	if r.Algorithm == ratelimit.AlgorithmSlidingWindowLog {
		largest := r.Rate.Requests
		for _, rate := range r.Tiers {
			if rate != ratelimit.Unlimited {
				largest = max(largest, rate.Requests)
			}
		}
		if bytes := float64(c.options.MaxKeys) * (72 + 16*float64(largest)); bytes > memoryLimit {
			c.add(r, "RL008", "algorithm", "use SlidingWindowCounter, which takes 40 bytes a key, or fewer keys",
				"%s may take %.3g GiB: %d keys, each with a log of %d instants", r, bytes/(1<<30), c.options.MaxKeys, largest)
		}
	}
	if r.OnStoreError.String() == "local:1" {
		c.add(r, "RL009", "onStoreError", `say how many processes share the store: "local:4"`,
			"while the store is down, each process grants the whole limit of %s", r)
	}
	for _, endpoint := range slices.Sorted(maps.Keys(c.options.Costs)) {
		cost := c.options.Costs[endpoint]
		if most := largest(r.Rate, r.Algorithm); c.applies(r, endpoint) && cost > most && r.Limiter == nil {
			c.add(r, "RL003", "rate", "raise the burst, or split the request",
				"a request for %q takes %d units, but %s grants at most %d at once", endpoint, cost, r, most)
		}
	}
}

// largest is the most units that r grants at once.
func largest(r ratelimit.Rate, a ratelimit.Algorithm) int {
	if windowed(a) || r.Burst == 0 {
		return r.Requests
	}
	return r.Burst
}

// applies reports whether a request for endpoint asks r.
func (c *checker) applies(r indexed, endpoint string) bool {
	e, err := c.limiter.Explain(context.Background(), ratelimit.Request{Client: "client", Endpoint: endpoint})
	return err == nil && slices.ContainsFunc(e.Rules, func(x ratelimit.RuleExplanation) bool { return x.Name == r.Name })
}

// among checks what a rule does beside the others.
func (c *checker) among(r indexed) {
	if r.Endpoint == "" && r.index >= 0 {
		return // for requests that name it
	}
	var probes []string
	for endpoint, names := range c.asked {
		if slices.Contains(names, r.Name) {
			probes = append(probes, endpoint)
		}
	}
	switch {
	case len(probes) > 0:
	case r.Mode == ratelimit.ModeShadow:
		c.add(r, "RL005", "endpoint", "remove it, or give it another endpoint", "no request asks %s", r)
		return
	default:
		c.add(r, "RL004", "endpoint", "remove it, or make it additional", "no request asks %s: other rules match each endpoint before it", r)
		return
	}
	for _, first := range c.rules {
		if first.Name == r.Name || !stricter(first, r) {
			continue
		}
		sometimes := slices.ContainsFunc(probes, func(endpoint string) bool { return !slices.Contains(c.asked[endpoint], first.Name) })
		equal := stricter(r, first) && uint(r.index) < uint(first.index) // of two, the second is the one too many
		if !sometimes && !equal {
			c.add(r, "RL006", "rate", "remove it, or lower its limit", "%s can never deny, as %s denies first", r, first)
			return
		}
	}
}
