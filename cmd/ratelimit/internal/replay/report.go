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

// A Report has the results of a [Run].
type Report struct {
	Requests  uint64        `json:"requests"`        // number of requests in the logs
	From      time.Time     `json:"from"`            // time of the first request
	To        time.Time     `json:"to"`              // the latest of the times of all requests
	Backward  uint64        `json:"outOfOrder"`      // requests that come after a request with a later time
	Back      time.Duration `json:"outOfOrderMaxNs"` // the largest distance between the times of these two requests, in nanoseconds
	Unlimited uint64        `json:"unlimited"`       // requests to which no rule applies

	Denied      uint64     `json:"denied"`                // requests that were denied
	FirstDenied *time.Time `json:"firstDenied,omitempty"` // time of the first denial
	LastDenied  *time.Time `json:"lastDenied,omitempty"`  // time of the last denial
	Clients     Headroom   `json:"clients"`               // Clients.Denied counts the clients with a denial, Clients.More all others

	Rules     []Rule        `json:"rules"`        // in the order of the file
	Spans     []Span        `json:"spans"`        // spans of time in which there was a request, in order
	Width     time.Duration `json:"spanLengthNs"` // length of each span in nanoseconds
	Offenders []Offender    `json:"offenders"`    // the clients with the most denials
	Missed    uint64        `json:"missed"`       // a client that is missing in the counts was denied by any one rule at most this often

	NotJudged []NotJudged `json:"notJudged,omitempty"` // rules that could not decide on all requests to which they apply

	Against *Difference `json:"against,omitempty"` // nil if there is no second limiter
}

// A NotJudged says how many requests a rule did not decide on, because the log does not say enough about them.
type NotJudged struct {
	Rule     string `json:"rule"`               // name of the rule that did not decide
	Unit     string `json:"unit,omitempty"`     // what the rule counts; empty for requests
	NoUnit   uint64 `json:"noUnit,omitempty"`   // requests without a cost in this unit
	Duration uint64 `json:"duration,omitempty"` // requests that ran for an unknown time, if the rule limits how many run at once
}

// A Rule has the counts of one rule of the limiter. If several rules deny a request, the Result names one of these rules,
// and only this rule counts the request in its field Denied. A rule in shadow or advise mode denies nothing: its field
// Denied counts all requests that it would have denied.
type Rule struct {
	Name        string     `json:"name"`                  // name of the rule
	Shadow      bool       `json:"shadow,omitempty"`      // whether the rule is in shadow or advise mode
	Requests    uint64     `json:"requests"`              // requests to which the rule applied
	Denied      uint64     `json:"denied"`                // requests that the rule denied or, if Shadow is true, would have denied
	FirstDenied *time.Time `json:"firstDenied,omitempty"` // time of the first denial
	LastDenied  *time.Time `json:"lastDenied,omitempty"`  // time of the last denial
	Keys        Headroom   `json:"keys"`                  // how close the keys of the rule came to the limit
	Overflowed  uint64     `json:"overflowed"`            // requests whose keys shared one limit, because the limiter had too many keys
}

// An Offender is a client that a rule has denied often. The exact number of denials may not be known: it is at most
// Denied, and at least Denied - Error.
type Offender struct {
	Client string `json:"client"` // name of the client
	Rule   string `json:"rule"`   // name of the rule that denied the client
	Denied uint64 `json:"denied"` // largest possible number of denials
	Error  uint64 `json:"error"`  // by how much the field Denied may be too high
}

// A Difference compares how a first and a second limiter answered the same requests.
type Difference struct {
	Denied   uint64 `json:"denied"`     // requests that the second limiter denied
	Both     uint64 `json:"both"`       // requests that both limiters denied
	OnlyOne  Only   `json:"onlyFirst"`  // requests that only the first limiter denied
	OnlyTwo  Only   `json:"onlySecond"` // requests that only the second limiter denied
	Overflow bool   `json:"overflow"`   // whether the second limiter had too many keys, so that some keys shared one limit

	NotJudged []NotJudged `json:"notJudged,omitempty"` // rules of the second limiter that could not decide on all requests
}

// An Only has the counts of the requests that one limiter denied and another limiter granted.
type Only struct {
	Denied    uint64       `json:"denied"`    // number of requests that only this limiter denied
	Rules     []RuleDenied `json:"rules"`     // rules that denied these requests, the largest count first
	Offenders []Offender   `json:"offenders"` // the clients that such requests came from most often
}

// A RuleDenied says how many of the requests in an [Only] were denied by one rule.
type RuleDenied struct {
	Rule   string `json:"rule"`   // name of the rule
	Denied uint64 `json:"denied"` // how many of the requests the rule denied
}

// A value of the type only collects the counts for an [Only]. It counts the requests that one limiter denied and the other
// limiter granted.
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

// A comparison sends the requests to a second limiter. It compares the second limiter's answers with the answers of the
// first limiter.
type comparison struct {
	player             *Player
	both               uint64
	onlyOne, onlyOther only
}

func newComparison(p *Player) *comparison {
	return &comparison{player: p, onlyOne: newOnly(), onlyOther: newOnly()}
}

// The method play sends the request req to the second limiter. It compares the answer with res, the answer of the
// first limiter.
func (c *comparison) play(
	ctx context.Context, req *ratelimit.Request, at time.Time, client hash, first *Player, res ratelimit.Result,
) error {
	other, err := c.player.play(ctx, req, at, client)
	switch {
	case err != nil:
		return err
	case !res.Allowed && !other.Allowed:
		c.both++
	case !res.Allowed:
		c.onlyOne.note(first.denier(&res), req.Client)
	case !other.Allowed:
		c.onlyOther.note(c.player.denier(&other), req.Client)
	}
	return nil
}

// Report returns the results so far. Each list of clients with many denials has at most as many clients as the parameter
// top says. The requests are counted by time in at most maxSpans spans of time.
func (r *Run) Report(top, maxSpans int) Report {
	p := r.player
	out := Report{
		Requests: r.requests, From: time.Unix(0, r.first).UTC(), To: r.clock.now, Backward: r.backward, Back: r.back,
		Unlimited: p.unlimited, Denied: p.denied, FirstDenied: p.firstOf(), LastDenied: p.lastOf(), Clients: p.clients.headroom(),
		Offenders: p.offendersOf(p.offenders, top), Missed: p.offenders.Missed(),
	}
	out.Spans, out.Width = p.spans.within(maxSpans)
	out.NotJudged = p.notJudged()
	overflowed := p.overflowed()
	all := p.rules
	if p.blocks.requests > 0 {
		all = append(slices.Clip(all), p.blocks)
	}
	for _, x := range all {
		out.Rules = append(out.Rules, Rule{
			x.name, x.shadow, x.requests, x.denied, x.firstOf(), x.lastOf(), x.keys.headroom(), overflowed[x.name],
		})
	}
	if c := r.against; c != nil {
		out.Against = &Difference{
			Denied: c.player.denied, Both: c.both,
			OnlyOne: p.onlyOf(&c.onlyOne, top), OnlyTwo: c.player.onlyOf(&c.onlyOther, top), NotJudged: c.player.notJudged(),
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

// overflowed returns how many requests of each rule were counted against a limit that several keys share. The keys of the map
// are the names of the rules. Keys share a limit if the limiter has too many keys.
func (p *Player) overflowed() map[string]uint64 {
	by := make(map[string]uint64)
	for _, s := range p.limiter.Stats() {
		by[s.Rule] = s.Overflowed
	}
	return by
}

// notJudged returns the rules that could not decide on all requests to which they apply, in the order of the file.
func (p *Player) notJudged() (list []NotJudged) {
	for _, s := range p.limiter.Stats() {
		if s.NotAsked+s.Unheld > 0 {
			list = append(list, NotJudged{s.Rule, p.byName[s.Rule].unit, s.NotAsked, s.Unheld})
		}
	}
	return list
}

// offendersOf returns the clients with the highest counts in the counter c. The parameter top is the largest number of
// clients to return.
func (p *Player) offendersOf(c *topk.Counter, top int) []Offender {
	out := []Offender{}
	all := append(slices.Clip(p.rules), p.blocks)
	for _, item := range c.Top(top) {
		number, client, _ := strings.Cut(item.Name, "\x00")
		i, _ := strconv.Atoi(number)
		out = append(out, Offender{client, all[i].name, item.Count, item.Error})
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
