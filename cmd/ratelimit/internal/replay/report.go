package replay

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/topk"
)

// A Report is what a [Run] has found.
type Report struct {
	Requests  uint64        `json:"requests"`        // requests in the log
	From      time.Time     `json:"from"`            // the time of the first
	To        time.Time     `json:"to"`              // the latest time
	Backward  uint64        `json:"outOfOrder"`      // requests that came before one that is earlier in the log
	Back      time.Duration `json:"outOfOrderMaxNs"` // by how much at most
	Unlimited uint64        `json:"unlimited"`       // requests to which no rule applies

	Denied      uint64     `json:"denied"`                // requests that were denied
	FirstDenied *time.Time `json:"firstDenied,omitempty"` // when the first was
	LastDenied  *time.Time `json:"lastDenied,omitempty"`  // when the last was
	Clients     Headroom   `json:"clients"`               // of which only Exact, Keys and Denied mean something

	Rules     []Rule        `json:"rules"`        // in their order
	Spans     []Span        `json:"spans"`        // those in which there was a request
	Width     time.Duration `json:"spanLengthNs"` // how long a span is
	Offenders []Offender    `json:"offenders"`    // the clients that were denied most
	Missed    uint64        `json:"missed"`       // the most denials that a client can have that is not counted

	Against *Difference `json:"against,omitempty"` // nil if there is no second limiter
}

// A Rule is what became of one rule. Denied counts the denied requests of which it was the binding
// rule, or those that it would have denied, if it is in shadow mode.
type Rule struct {
	Name        string     `json:"name"`                  // its name
	Shadow      bool       `json:"shadow,omitempty"`      // whether it is in shadow mode
	Requests    uint64     `json:"requests"`              // that it was asked about
	Denied      uint64     `json:"denied"`                // see above
	FirstDenied *time.Time `json:"firstDenied,omitempty"` // when the first was denied
	LastDenied  *time.Time `json:"lastDenied,omitempty"`  // when the last was denied
	Keys        Headroom   `json:"keys"`                  // how close they came to the limit
	Overflowed  uint64     `json:"overflowed"`            // requests whose key shared a budget with others, for want of room
}

// An Offender is a client that a rule has denied: at most Denied times, and at least Denied - Error.
type Offender struct {
	Client string `json:"client"` // its name
	Rule   string `json:"rule"`   // by which it was denied
	Denied uint64 `json:"denied"` // how often, at most
	Error  uint64 `json:"error"`  // by how much that may be too high
}

// A Difference is how a second limiter has answered the same requests.
type Difference struct {
	Denied   uint64 `json:"denied"`     // by the second
	Both     uint64 `json:"both"`       // by both
	OnlyOne  Only   `json:"onlyFirst"`  // what the first denies and the second grants
	OnlyTwo  Only   `json:"onlySecond"` // the reverse
	Overflow bool   `json:"overflow"`   // whether keys of the second shared a budget, for want of room
}

// An Only is what one of two limiters denies and the other grants.
type Only struct {
	Denied    uint64       `json:"denied"`    // requests
	Rules     []RuleDenied `json:"rules"`     // those that have denied them, the most first
	Offenders []Offender   `json:"offenders"` // the clients that were denied most
}

// A RuleDenied is how many of these requests a rule has denied.
type RuleDenied struct {
	Rule   string `json:"rule"`   // its name
	Denied uint64 `json:"denied"` // requests
}

// only counts what one of two limiters denies.
type only struct {
	denied    uint64
	rules     map[*rule]uint64
	offenders *topk.Counter
}

func newOnly() only { return only{rules: make(map[*rule]uint64), offenders: topk.New(counters)} }

func (o *only) note(r *rule, client string) {
	o.denied++
	o.rules[r]++
	o.offenders.Add(offender(r, client), 1)
}

// A comparison is a second limiter.
type comparison struct {
	player             *Player
	both               uint64
	onlyOne, onlyOther only
}

func newComparison(p *Player) *comparison {
	return &comparison{player: p, onlyOne: newOnly(), onlyOther: newOnly()}
}

// play puts req to the second limiter. The first has answered res.
func (c *comparison) play(ctx context.Context, req *ratelimit.Request, at time.Time, client hash, first *Player, res ratelimit.Result) error {
	other, err := c.player.play(ctx, req, at, client)
	switch {
	case err != nil:
		return err
	case !res.Allowed && !other.Allowed:
		c.both++
	case !res.Allowed:
		c.onlyOne.note(first.byName[res.Rule], req.Client)
	case !other.Allowed:
		c.onlyOther.note(c.player.byName[other.Rule], req.Client)
	}
	return nil
}

// Report returns what was found so far, with up to top offenders and up to maxSpans spans.
func (r *Run) Report(top, maxSpans int) Report {
	p := r.player
	out := Report{
		Requests: r.requests, From: time.Unix(0, r.first).UTC(), To: r.clock.now, Backward: r.backward, Back: r.back,
		Unlimited: p.unlimited, Denied: p.denied, FirstDenied: p.firstOf(), LastDenied: p.lastOf(), Clients: p.clients.headroom(),
		Offenders: p.offendersOf(p.offenders, top), Missed: p.offenders.Missed(),
	}
	out.Spans, out.Width = p.spans.within(maxSpans)
	overflowed := p.overflowed()
	for _, x := range p.rules {
		out.Rules = append(out.Rules, Rule{x.name, x.shadow, x.requests, x.denied, x.firstOf(), x.lastOf(), x.keys.headroom(), overflowed[x.name]})
	}
	if c := r.against; c != nil {
		out.Against = &Difference{
			Denied: c.player.denied, Both: c.both,
			OnlyOne: p.onlyOf(&c.onlyOne, top), OnlyTwo: c.player.onlyOf(&c.onlyOther, top),
		}
		for _, n := range c.player.overflowed() {
			out.Against.Overflow = out.Against.Overflow || n > 0
		}
	}
	return out
}

func (d *denials) firstOf() *time.Time {
	if d.first.IsZero() {
		return nil
	}
	return &d.first
}

func (d *denials) lastOf() *time.Time {
	if d.last.IsZero() {
		return nil
	}
	return &d.last
}

// overflowed returns how many requests of each rule were charged to a budget that keys share.
func (p *Player) overflowed() map[string]uint64 {
	by := make(map[string]uint64)
	for _, s := range p.limiter.Stats() {
		by[s.Rule] = s.Overflowed
	}
	return by
}

// offendersOf returns the first offenders that c has counted.
func (p *Player) offendersOf(c *topk.Counter, top int) []Offender {
	out := []Offender{}
	for _, item := range c.Top(top) {
		number, client, _ := strings.Cut(item.Name, "\x00")
		i, _ := strconv.Atoi(number)
		out = append(out, Offender{client, p.rules[i].name, item.Count, item.Error})
	}
	return out
}

func (p *Player) onlyOf(o *only, top int) Only {
	out := Only{Denied: o.denied, Rules: []RuleDenied{}, Offenders: p.offendersOf(o.offenders, top)}
	for r, n := range o.rules {
		out.Rules = append(out.Rules, RuleDenied{r.name, n})
	}
	slices.SortFunc(out.Rules, func(a, b RuleDenied) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Rule, b.Rule))
	})
	return out
}
