// Package prove finds the most requests that the rules of a limiter let through in any interval of a given length.
package prove

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// Unlimited is the value of Bound.Most for requests that no rule limits.
const Unlimited = math.MaxInt

// A Setup says where the limiter runs.
type Setup struct {
	Make     func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) // makes the limiter
	Replicas int                                                            // how many processes have the rules, at least 1
	Shared   bool                                                           // whether the processes share a store
	Lease    int                                                            // how many units a process may take in advance; see WithLeases
	Policy   ratelimit.FailurePolicy                                        // policy of rules that have none of their own
	Unit     string                                                         // what is counted; empty for requests
}

// A Prover has the rules of one file.
type Prover struct {
	setup Setup
	l     *ratelimit.RateLimiter
	rules map[string]ratelimit.Rule
}

// New returns a Prover for the rules of the limiter that the Setup makes.
func New(s Setup) (*Prover, error) {
	l, err := s.Make(ratelimit.WithFailurePolicy(s.Policy)) // s.Policy is for the rules that have no policy of their own
	if err != nil {
		return nil, err
	}
	p := &Prover{setup: s, l: l, rules: make(map[string]ratelimit.Rule)}
	rules, byDefault := l.Rules()
	for _, r := range rules {
		p.rules[r.Name] = r
	}
	if byDefault != nil {
		p.rules[byDefault.Name] = *byDefault
	}
	return p, nil
}

// A How says whether a bound is known to be reached.
type How string

// The values of How. Whichever it is, no sequence of requests is granted more than the bound.
const (
	Exact   How = "exact"   // one rule decides, and its own bound is reached by some sequence of requests
	Reached How = "reached" // the Schedule reaches the bound
	Upper   How = "bound"   // it is not known whether the bound is reached
)

// A Bound says how many requests can be granted in any interval of one length. Only one of the two ends belongs to the
// interval.
type Bound struct {
	Most     int           // the largest number of requests; Unlimited if no rule limits them
	How      How           // whether Most is known to be reached
	By       string        // name of the rule that sets the bound; empty if none does
	Schedule []Grant       // the grants of one process that reach the bound; only if How is Reached
	Start    time.Time     // when the interval of the Schedule begins
	Length   time.Duration // of the interval
}

// A Grant is one instant of a schedule at which requests are granted.
type Grant struct {
	At time.Time // the instant
	N  int       // how many requests are granted at this instant
}

// Client returns the bound on the requests of one client for one endpoint. The parameter in is the length of the interval.
// All these requests have the same name, address and attributes.
func (p *Prover) Client(endpoint string, in time.Duration) (Bound, error) {
	return p.bound(endpoint, in, true, false)
}

// All returns the bound on the requests of all clients together for one endpoint. The parameter in is the length of the
// interval. There may be any number of clients.
func (p *Prover) All(endpoint string, in time.Duration) (Bound, error) {
	return p.bound(endpoint, in, false, false)
}

// Down returns the bound for intervals in which the store fails once, and may work again later. If client is true, it is
// the bound that Client describes, otherwise the one that All describes.
func (p *Prover) Down(endpoint string, in time.Duration, client bool) (Bound, error) {
	return p.bound(endpoint, in, client, true)
}

// Rules returns the rules that decide on a request for the endpoint, and count the unit Setup.Unit.
func (p *Prover) Rules(endpoint string) (rules []ratelimit.Rule, err error) {
	e, err := p.l.Explain(context.Background(), p.request(endpoint, 0, true))
	if err != nil {
		return nil, err
	}
	for i := range e.Rules {
		r := p.rules[e.Rules[i].Name]
		if r.Mode.Denies() && r.Unit == p.setup.Unit && r.Limiter == nil && r.Algorithm != ratelimit.AlgorithmInFlight {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// shared reports whether all clients that send requests to the same endpoint have the same key, if the key is of this type.
func shared(key ratelimit.KeyType) bool {
	return !slices.ContainsFunc(replay.PartsOf(key), func(part string) bool { return part != "global" && part != "endpoint" })
}

// Overridden returns a text for each override that exempts a client or an address, or gives it another rate. Such an
// override can raise the bounds.
func (p *Prover) Overridden() (texts []string) {
	all, err := p.l.Overrides(context.Background())
	if err != nil {
		return nil
	}
	for _, o := range all {
		if o.Effect == ratelimit.EffectExempt || o.Effect == ratelimit.EffectRate {
			whom := "client " + o.Client
			if o.Client == "" {
				whom = o.IP
			}
			texts = append(texts, whom+" ("+o.Effect+")")
		}
	}
	return texts
}

// rates returns the rates that keys of the rule may have: the rate of the rule, and the rates of its tiers and of
// overrides. The result unlimited says whether some keys have no limit.
func (p *Prover) rates(r *ratelimit.Rule) (rates []ratelimit.Rate, unlimited bool) {
	rates = []ratelimit.Rate{r.Rate}
	for _, rate := range r.Tiers {
		if rate == ratelimit.Unlimited {
			unlimited = true
		} else {
			rates = append(rates, rate)
		}
	}
	all, _ := p.l.Overrides(context.Background())
	for _, o := range all {
		if len(o.Rules) > 0 && !slices.Contains(o.Rules, r.Name) {
			continue
		}
		switch o.Effect {
		case ratelimit.EffectExempt:
			unlimited = true
		case ratelimit.EffectRate:
			if o.Rate.Per == r.Rate.Per || !r.Algorithm.Windowed() {
				rates = append(rates, o.Rate)
			}
		}
	}
	return rates, unlimited
}

// most returns the largest number of units that one key of the rule is granted in an interval. If n is above 1, the rates
// are divided among n processes, and the result is for one of them. The result exact says whether some sequence of requests
// reaches this number.
func (p *Prover) most(r *ratelimit.Rule, in time.Duration, n int) (most int, exact bool) {
	rates, unlimited := p.rates(r)
	if unlimited {
		return Unlimited, true
	}
	calendar := false
	for i, rate := range rates {
		calendar = calendar || rate.Window != ""
		if n > 1 {
			share := engine.Rate{Requests: rate.Requests, Per: rate.Per, Burst: rate.Burst, Window: string(rate.Window)}.
				Share(n, r.Algorithm.Windowed(), r.Warmup != ratelimit.Warmup{})
			rates[i] = ratelimit.Rate{Requests: share.Requests, Per: share.Per, Burst: share.Burst, Window: ratelimit.Window(share.Window)}
		}
	}
	if len(rates) > 1 && shared(r.Key) && !r.Algorithm.Windowed() {
		rates = append(rates, fastest(rates)) // clients with different rates share one key
	}
	for _, rate := range rates {
		if got := r.Algorithm.MaxIn(rate, in-1); got < 0 {
			return Unlimited, false
		} else {
			most = max(most, got)
		}
	}
	exact = len(rates) == 1 && !calendar && r.Warmup == (ratelimit.Warmup{}) && r.Penalty == (ratelimit.Penalty{})
	return most, exact
}

// fastest returns a rate for a bucket that clients with different rates share. A bucket with this rate grants at least as
// much as the shared bucket can grant to them together.
func fastest(rates []ratelimit.Rate) ratelimit.Rate {
	f, burst := rates[0], 0
	for _, r := range rates {
		rHigh, rLow := bits.Mul64(uint64(r.Requests), uint64(f.Per))
		fHigh, fLow := bits.Mul64(uint64(f.Requests), uint64(r.Per))
		if rHigh > fHigh || rHigh == fHigh && rLow > fLow {
			f = r
		}
		burst = max(burst, r.Burst)
		if r.Burst == 0 {
			burst = max(burst, r.Requests)
		}
	}
	f.Burst = burst
	return f
}

// times returns the product of n and k. It returns Unlimited if n is Unlimited or the product is too large for an int.
func times(n, k int) int {
	if n == Unlimited || k > 0 && n > math.MaxInt/k {
		return Unlimited
	}
	return n * k
}

func plus(a, b int) int {
	if a == Unlimited || b == Unlimited || a > math.MaxInt-b {
		return Unlimited
	}
	return a + b
}

func (p *Prover) bound(endpoint string, in time.Duration, client, down bool) (Bound, error) {
	b := Bound{Most: Unlimited, How: Exact, Length: in}
	rules, err := p.Rules(endpoint)
	if err != nil {
		return b, err
	}
	local := Unlimited
	binding, decides := 0, false
	for i := range rules {
		r := &rules[i]
		if r.OnStoreError == ratelimit.FailClosed {
			local = 0 // the rule denies all requests of all clients while the store is down
		}
		if !client && !shared(r.Key) {
			continue // each client has its own key, so the rule does not limit all clients together
		}
		binding++
		most, exact := p.most(r, in, 1)
		if p.setup.Lease > 0 && p.setup.Shared && len(rules) == 1 {
			most, exact = plus(most, times(p.setup.Lease, p.setup.Replicas)), false
		}
		if most < b.Most {
			b.Most, b.By, decides = most, r.Name, exact
		}
		local = min(local, p.alone(r, in))
	}
	switch {
	case b.Most == Unlimited:
		return b, nil
	case down:
		b.Most, b.How = plus(b.Most, local), Upper
		if b.Most == Unlimited {
			b.By, b.How = "", Exact
		}
		return b, nil
	case binding > 1 || !decides:
		b.How = Upper
	}
	if err := p.search(endpoint, &b, client); err != nil {
		return b, err
	}
	if !p.setup.Shared {
		b.Most = times(b.Most, p.setup.Replicas)
	}
	return b, nil
}

// The method alone returns the largest number of units that the rule r grants in an interval while the store is down. Each process
// then decides without the others, and the result is for all processes together.
func (p *Prover) alone(r *ratelimit.Rule, in time.Duration) int {
	policy := r.OnStoreError
	switch text := policy.String(); {
	case policy == ratelimit.FailClosed:
		return 0
	case strings.HasPrefix(text, "local:"):
		n, err := strconv.Atoi(strings.TrimPrefix(text, "local:"))
		if err == nil {
			most, _ := p.most(r, in, n)
			return times(most, p.setup.Replicas)
		}
	}
	return Unlimited
}

// Total returns how many requests one process grants by the Schedule.
func (b *Bound) Total() (n int) {
	for _, g := range b.Schedule {
		n += g.N
	}
	return n
}

// others stands for all endpoints that no rule names.
const others = "\x00"

// Endpoints returns the endpoints of the rules, and one that stands for all others.
func (p *Prover) Endpoints() (endpoints []string) {
	rules, _ := p.l.Rules()
	for _, r := range rules {
		if r.Endpoint != "" && r.Endpoint != "*" && !slices.Contains(endpoints, r.Endpoint) {
			endpoints = append(endpoints, r.Endpoint)
		}
	}
	return append(endpoints, others)
}

// Path returns a path that the pattern of an endpoint matches.
func Path(endpoint string) string {
	if prefix, ok := strings.CutSuffix(endpoint, "*"); ok {
		return prefix + others
	}
	return endpoint
}

// Shown returns the pattern of an endpoint as a text for people.
func Shown(endpoint string) string {
	if endpoint == others {
		return "all others"
	}
	return endpoint
}
