// Package lint finds rules that are valid, but may not do what their author expects.
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
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
)

// A Severity says how serious a finding is. Only a Warning makes the command fail.
type Severity string

// The severities of findings.
const (
	Warning Severity = "warning" // the rule does not do what it seems to do
	Note    Severity = "note"    // the rule does what it seems to do, but has a drawback
)

// A Finding is one thing about a rule that may surprise its author.
type Finding struct {
	Code     string   // code of the kind of finding, such as "RL001"; a code never changes its meaning
	Severity Severity // severity of all findings with this code
	Rule     int      // index of the rule that the finding is about, or -1 for the default rule
	Field    string   // name of the rule's field in a config file; may be empty
	Message  string   // what is wrong or surprising
	Advice   string   // how to change the rule
}

// A Code describes one kind of finding.
type Code struct {
	Code     string   // code of the findings, such as "RL001"; a code never changes its meaning
	Severity Severity // severity of all findings with this code
	Means    string   // what findings with this code say
}

// Codes returns descriptions of all kinds of findings.
func Codes() []Code {
	return []Code{
		{"RL001", Warning, "a fixed window limits attempts, such as a login"},
		{"RL002", Note, "a fixed window grants twice its limit around its edge"},
		{"RL003", Warning, "a request that costs more than the limit is never granted"},
		{"RL004", Warning, "a rule never applies: others match every endpoint first"},
		{"RL005", Warning, "a rule in shadow or advise mode is never asked"},
		{"RL006", Warning, "a limit can never deny: a stricter one denies first"},
		{"RL007", Note, "a window is no whole number of seconds, as headers need"},
		{"RL008", Warning, "sliding logs may take more than 1 GiB: limit times max-keys"},
		{"RL009", Warning, "the policy \"local\" grants each process the whole limit"},
		{"RL010", Warning, "names of rules that differ only in case"},
		{"RL011", Note, "a unit that nothing else names, as if it were misspelt"},
		{"RL012", Warning, "more may run at once than another rule can give back"},
		{"RL013", Note, "an exemption that has no end"},
		{"RL014", Warning, "a block or an exemption of all addresses"},
		{"RL015", Warning, "an override that never applies: others decide in its place"},
		{"RL016", Note, "an override that has ended, and is left out"},
		{"RL017", Note, "a fixed window as long as a week, month or year, but no calendar"},
		{"RL018", Note, "no default rule: all other endpoints have no limit"},
		{"RL019", Note, "an endpoint with a query: no path is equal to it"},
		{"RL020", Note, "a login that is limited by user, before the user is known"},
		{"RL021", Note, "a tier for those who pay that grants less than another"},
	}
}

// Options has facts that are not in the rules, but matter for the findings.
type Options struct {
	MaxKeys int                         // largest number of keys of the limiter
	Costs   map[string][]ratelimit.Cost // largest costs of a request to each endpoint, one cost for each unit
}

// memoryLimit is the memory in bytes above which a rule gets the finding RL008.
const memoryLimit = 1 << 30

// Check returns the findings in the rules of l, in the order of the rules.
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
	names := make(map[string]indexed, len(c.rules))
	for _, r := range c.rules {
		c.alone(r)
		c.among(r)
		lower := strings.ToLower(r.Name)
		if other, taken := names[lower]; taken {
			c.add(r, "RL010", "name", "give one of them another name",
				"%q and %q differ only in case: clients that read the header field RateLimit may take them for one", other.Name, r.Name)
			continue
		}
		names[lower] = r
	}
	c.unlimited()
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		// The default rule comes last: its index is -1, and uint(-1) is the largest uint.
		return cmp.Or(cmp.Compare(uint(a.Rule), uint(b.Rule)), cmp.Compare(a.Code, b.Code))
	})
	return c.found, nil
}

// The type indexed is a rule with its index. The default rule has the index -1.
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
	asked   map[string][]string // for each endpoint that the method probe tried, the names of the rules that apply
	found   []Finding
}

// probe asks the limiter which rules apply to certain endpoints, and stores the answers in c.asked. For each pattern
// of a rule, it asks about at least one endpoint. It also asks about an endpoint that no rule names.
func (c *checker) probe() error {
	c.asked = make(map[string][]string)
	endpoints := []string{"", "\x00"} // "\x00" stands for all endpoints that no rule names
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

// calendarUnit returns the unit of a calendar that the author of a window with the length d may have meant, such as "week"
// for 7 days. It returns "" if there is none.
func calendarUnit(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 7*day:
		return "week"
	case 28*day <= d && d <= 31*day:
		return "month"
	case 365*day <= d && d <= 366*day:
		return "year"
	}
	return ""
}

// alone(r) adds the findings about the rule r for which the other rules of the limiter do not matter.
func (c *checker) alone(r indexed) {
	window := r.Algorithm == ratelimit.AlgorithmFixedWindow
	edge := cmp.Or(r.Rate.Per, time.Hour) // windows of a calendar have no Per; an hour is shorter than any of them
	switch {
	case window && r.Unit == "" && isAttempt(r.Endpoint):
		c.add(r, "RL001", "algorithm", "use SlidingWindowLog, which holds its limit in every window",
			"%s grants %d attempts within %s around the edge of its window, twice its limit",
			r, r.Algorithm.MaxIn(r.Rate, edge-1), chart.Duration(edge))
	case window && r.Rate.Requests > 1:
		c.add(r, "RL002", "algorithm", "use SlidingWindowCounter or TokenBucket if that is too much",
			"%s grants up to %d within %s, around the edge of its window", r, r.Algorithm.MaxIn(r.Rate, edge-1), chart.Duration(edge))
	}
	if unit := calendarUnit(r.Rate.Per); window && r.Rate.Window == "" && unit != "" {
		meant := ratelimit.Rate{Requests: r.Rate.Requests, Window: ratelimit.Calendar(unit, "")}
		c.add(r, "RL017", "rate", fmt.Sprintf("write %q if the windows of a calendar are meant", meant),
			"the windows of %s last %s and begin at multiples of that since 1970, not with a %s", r, chart.Duration(r.Rate.Per), unit)
	}
	if r.Algorithm.Windowed() && !holds(r) && r.Rate.Per%time.Second != 0 {
		c.add(r, "RL007", "rate", "use a window of whole seconds if clients read the headers",
			"the window of %s is %s, which headers cannot say", r, chart.Duration(r.Rate.Per))
	}
	if r.Algorithm == ratelimit.AlgorithmSlidingWindowLog {
		largest := r.Rate.Requests
		for _, rate := range r.Tiers {
			if rate != ratelimit.Unlimited {
				largest = max(largest, rate.Requests)
			}
		}
		if bytes := float64(c.options.MaxKeys) * (72 + 16*float64(largest)); bytes > memoryLimit {
			c.add(r, "RL008", "algorithm", "use SlidingWindowCounter, which takes 40 bytes a key, or fewer keys; -max-keys says how many there are",
				"%s may take %.3g GiB: %d keys, each with a log of %d instants", r, bytes/(1<<30), c.options.MaxKeys, largest)
		}
	}
	if r.OnStoreError.String() == "local:1" {
		c.add(r, "RL009", "onStoreError", `say how many processes share the store: "local:4"`,
			"while the store is down, each process grants the whole limit of %s", r)
	}
	for _, endpoint := range slices.Sorted(maps.Keys(c.options.Costs)) {
		for _, cost := range c.options.Costs[endpoint] {
			burst := largest(r.Rate, r.Algorithm)
			if cost.Unit == r.Unit && cost.N > burst && r.Limiter == nil && c.applies(r, endpoint) {
				c.add(r, "RL003", "rate", "raise the burst, or split the request",
					"a request for %q takes %d %s, but %s grants at most %d at once", endpoint, cost.N, cmp.Or(cost.Unit, "units"), r, burst)
			}
		}
	}
	c.unit(r)
	c.doubts(r)
}

// largest returns how many units a limit with the given rate and algorithm grants at once, at most.
func largest(r ratelimit.Rate, a ratelimit.Algorithm) int {
	if a.Windowed() || r.Burst == 0 {
		return r.Requests
	}
	return r.Burst
}

// applies reports whether the rule r applies to a request for the given endpoint.
func (c *checker) applies(r indexed, endpoint string) bool {
	e, err := c.limiter.Explain(context.Background(), ratelimit.Request{Client: "client", Endpoint: endpoint})
	return err == nil && slices.ContainsFunc(e.Rules, func(x ratelimit.RuleExplanation) bool { return x.Name == r.Name })
}

// never(r) adds the finding that the rule r never applies. If r is the default rule, the reason can be another rule: a
// rule that has the endpoint "*" and is not additional applies in place of the default rule. In this case, the
// finding advises to make that other rule additional.
func (c *checker) never(r indexed) {
	all := slices.IndexFunc(c.rules, func(other indexed) bool {
		return other.Endpoint == "*" && !other.Additional && other.Mode.Denies() && other.Name != r.Name
	})
	if all < 0 || r.index >= 0 {
		c.add(r, "RL004", "endpoint", "remove it, or make it additional", "no request asks %s: other rules match each endpoint before it", r)
		return
	}
	c.add(r, "RL004", "endpoint", fmt.Sprintf("make %s additional, or remove one of the two", c.rules[all]),
		"no request asks %s: %s is for each endpoint and not additional, so it applies in place of it", r, c.rules[all])
}

// among(r) compares the rule r with the other rules of the limiter. It adds the findings about r for which the other rules
// matter.
func (c *checker) among(r indexed) {
	if r.Endpoint == "" && r.index >= 0 {
		return // such a rule applies only to requests that list it in Request.Rules
	}
	var probes []string
	for endpoint, names := range c.asked {
		if slices.Contains(names, r.Name) {
			probes = append(probes, endpoint)
		}
	}
	switch {
	case len(probes) > 0:
	case !r.Mode.Denies():
		c.add(r, "RL005", "endpoint", "remove it, or give it another endpoint", "no request asks %s", r)
		return
	default:
		c.never(r)
		return
	}
	c.receipts(r, probes)
	for _, first := range c.rules {
		if first.Name == r.Name || !stricter(first, r) {
			continue
		}
		sometimes := slices.ContainsFunc(probes, func(endpoint string) bool { return !slices.Contains(c.asked[endpoint], first.Name) })
		equal := stricter(r, first) && uint(r.index) < uint(first.index) // of two equally strict rules, only the later one gets the finding
		if !sometimes && !equal {
			c.add(r, "RL006", "rate", "remove it, or lower its limit", "%s can never deny, as %s denies first", r, first)
			return
		}
	}
}
