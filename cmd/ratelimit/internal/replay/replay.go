// Package replay sends the requests of a log to limiters, at the times in the log, and counts the answers.
// The memory that it needs does not grow with the number of requests.
package replay

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/topk"
)

// A Clock is the clock of a limiter. While the limiter decides on a request of a log, the clock shows the time of this
// request in the log. Only one goroutine at a time may use it.
type Clock struct {
	ns  int64 // nanoseconds since the Unix epoch
	now time.Time
}

// NewClock returns a Clock that shows the Unix epoch.
func NewClock() *Clock { return &Clock{0, time.Unix(0, 0).UTC()} }

// Now returns the time that this clock shows. The method Set changes this time.
func (c *Clock) Now() time.Time { return c.now }

// Set moves the clock to the time ns nanoseconds after the Unix epoch. It does nothing if the clock shows a later
// time.
func (c *Clock) Set(ns int64) {
	if ns > c.ns {
		c.ns, c.now = ns, time.Unix(0, ns).UTC()
	}
}

// The constant counters is the largest number of pairs of a rule and a client for which denials are counted. A further
// pair takes the place of the pair with the fewest denials.
const counters = 1000

// A Player sends requests to one limiter, and counts the limiter's answers.
type Player struct {
	limiter *ratelimit.RateLimiter
	rules   []*rule
	byName  map[string]*rule
	each    []ratelimit.Result
	shadows []ratelimit.Decision // answers to the current request by rules in shadow or advise mode, which deny nothing

	requests  uint64
	unlimited uint64 // requests to which no rule applied
	denied    uint64
	denials
	clients   spread
	spans     spans
	offenders *topk.Counter
	watched   *Watched // nil if no requests are recorded
	blocks    *rule    // counts the requests that an override blocks; it has the index after the last rule
}

// Blocked stands in a [Report] in place of the name of a rule, for requests that an override blocks. No rule denies these requests.
const Blocked = "(blocked)"

// denier returns the rule that has denied the request with the result res.
func (p *Player) denier(res *ratelimit.Result) *rule {
	if res.Reason == ratelimit.ReasonOverride {
		return p.blocks
	}
	return p.rule(res.Rule)
}

// rule returns the rule with this name. If there are few rules, it compares their names one by one, which is faster than a
// map.
func (p *Player) rule(name string) *rule {
	if len(p.rules) > 8 {
		return p.byName[name]
	}
	for _, r := range p.rules {
		if r.name == name {
			return r
		}
	}
	return nil
}

// The type denials has the times of the first and the last denial.
type denials struct{ first, last time.Time }

func (d *denials) note(at time.Time) {
	if d.first.IsZero() {
		d.first = at
	}
	d.last = at
}

// A rule describes one rule of the limiter, and has the counts for this rule.
type rule struct {
	index    int
	name     string
	shadow   bool     // whether the rule is in shadow or advise mode, in which it denies nothing
	unit     string   // what the rule counts; empty for requests
	endpoint string   // pattern of the rule's endpoint; empty for the default rule, and for rules that a request must name
	parts    []string // names of the parts of the rule's keys, such as "user" and "endpoint"; without "global", which has no text
	keyParts []keyPart
	empty    []uint64 // for each part, how many requests had an empty text as this part
	judged   uint64   // requests for which the parts were looked at
	requests uint64
	denied   uint64
	denials
	keys spread
}

// A Make is a function that makes a limiter with the given options. NewPlayer calls it a second time, with an observer, if a rule
// of the first limiter is in shadow or advise mode.
type Make func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error)

// NewPlayer returns a Player for a limiter that the function newLimiter makes. The limiter reads its time from the
// clock.
func NewPlayer(clock *Clock, newLimiter Make, opts ...ratelimit.Option) (*Player, error) {
	p := &Player{byName: make(map[string]*rule), offenders: topk.New(counters)}
	opts = append(opts, ratelimit.WithClock(clock))
	l, err := newLimiter(opts...)
	if err != nil {
		return nil, err
	}
	rules, byDefault := l.Rules()
	if byDefault != nil {
		rules = append(slices.Clip(rules), *byDefault)
	}
	shadows := false
	for i, r := range rules {
		made := &rule{index: i, name: r.Name, shadow: !r.Mode.Denies(), unit: r.Unit, endpoint: r.Endpoint, parts: PartsOf(r.Key)}
		made.parts = slices.DeleteFunc(made.parts, func(part string) bool { return part == "global" })
		made.keyParts, made.empty = keyPartsOf(made.parts), make([]uint64, len(made.parts))
		p.rules, p.byName[r.Name] = append(p.rules, made), made
		shadows = shadows || made.shadow
	}
	if shadows { // makes the limiter again, with an observer: only an observer gets all answers of rules in shadow or advise mode
		if l, err = newLimiter(append(opts, ratelimit.WithObserver(p))...); err != nil {
			return nil, err
		}
	}
	p.limiter, p.blocks = l, &rule{index: len(p.rules), name: Blocked}
	return p, nil
}

// Observe records the decision d if a rule in shadow or advise mode has made it. Such a decision is an answer to the
// current request.
func (p *Player) Observe(_ context.Context, d ratelimit.Decision) {
	if !d.Mode.Denies() {
		p.shadows = append(p.shadows, d)
	}
}

// Limiter returns the limiter to which this Player sends the requests.
func (p *Player) Limiter() *ratelimit.RateLimiter { return p.limiter }

// play lets the limiter decide the request req, and counts the answer. The parameter named at is the time of the
// request. The parameter client is the hash of the client's name.
func (p *Player) play(ctx context.Context, req *ratelimit.Request, at time.Time, client hash) (ratelimit.Result, error) {
	p.shadows = p.shadows[:0]
	res, each, err := p.limiter.CheckAll(ctx, *req, p.each[:0])
	p.each = each
	if err != nil {
		return res, err
	}
	span := p.spans.span(at.UnixNano())
	p.requests++
	span.Requests++
	if p.watched != nil {
		p.watched.note(p, &res, each, req, at)
	}
	for i := range each {
		if r := p.rule(each[i].Rule); !r.shadow { // the answers of rules in shadow or advise mode are in p.shadows
			p.count(r, &each[i], req)
		}
	}
	for i := range p.shadows {
		d := &p.shadows[i]
		r := p.rule(d.Rule)
		p.count(r, &d.Result, req)
		if !d.Result.Allowed {
			r.denied++
			r.note(at)
		}
	}
	switch {
	case res.Reason == ratelimit.ReasonOverride:
		p.blocks.requests++
	case len(each)+len(p.shadows) == 0:
		p.unlimited++
	}
	if res.Allowed {
		p.clients.note(client.bits(), whole)
		return res, nil
	}
	p.clients.note(client.bits(), 0)
	p.denied++
	span.Denied++
	p.note(at)
	r := p.denier(&res)
	r.denied++
	r.note(at)
	p.offenders.Add(offender(r, req.Client), 1)
	return res, nil
}

// The method count counts the answer res that the rule r gave to the request req.
func (p *Player) count(r *rule, res *ratelimit.Result, req *ratelimit.Request) {
	r.requests++
	switch {
	case res.Limit < 0: // the key has no limit, so there is no remaining part of a limit to record
	case res.Allowed:
		r.keys.note(r.hash(req), left(res.Remaining, res.Limit))
	default:
		r.keys.note(r.hash(req), 0)
	}
}

// PartsOf returns the names of the parts of a key type, such as "user" and "endpoint".
func PartsOf(k ratelimit.KeyType) []string {
	return strings.Split(strings.ReplaceAll(string(k), string(ratelimit.KeyUserEndpoint), "user+endpoint"), "+")
}

// A keyPart is one part of the keys of a rule.
type keyPart struct {
	kind byte   // one of the constants below
	name string // name of the attribute if kind is ofAttr, otherwise empty
}

const (
	ofUser = iota
	ofEndpoint
	ofIP
	ofAttr
)

// keyPartsOf returns the keyPart for each of the given names, such as "user". It leaves out "global", which has no text.
func keyPartsOf(names []string) (parts []keyPart) {
	kinds := map[string]byte{"user": ofUser, "endpoint": ofEndpoint, "ip": ofIP}
	for _, name := range names {
		if kind, ok := kinds[name]; ok {
			parts = append(parts, keyPart{kind, ""})
		} else if attr, ok := strings.CutPrefix(name, "attr:"); ok {
			parts = append(parts, keyPart{ofAttr, attr})
		}
	}
	return parts
}

// of(req) is the text that this part has in the key of the request req.
func (k *keyPart) of(req *ratelimit.Request) string {
	switch k.kind {
	case ofUser:
		return req.Client
	case ofEndpoint:
		return req.Endpoint
	case ofIP:
		return req.IP
	}
	return req.Attrs[k.name]
}

// The method hash returns the hash of the key that the rule r has for the request req. It counts the parts that are empty.
func (r *rule) hash(req *ratelimit.Request) uint64 {
	r.judged++
	h := noHash
	for i := range r.keyParts {
		text := r.keyParts[i].of(req)
		if text == "" {
			r.empty[i]++
		}
		h = h.with(text)
	}
	return h.bits()
}

// key returns the hash of the key that the rule r has for the request req. Unlike the method hash, it counts nothing.
func (r *rule) key(req *ratelimit.Request) hash {
	h := noHash
	for i := range r.keyParts {
		h = h.with(r.keyParts[i].of(req))
	}
	return h
}

// A Doubt says why the answers of a rule may not be what its author wants to know.
type Doubt struct {
	Rule     string // name of the rule
	Endpoint string // pattern of the rule's endpoint
	Part     string // the part of the key that requests lack, such as "ip"; empty if the rule met no request
	Empty    uint64 // how many requests lack this part
	Requests uint64 // to how many requests the rule applied
}

// Doubts returns a Doubt for each rule that met no request. It leaves out the default rule, and rules that apply only to
// requests that name them, because no log names rules. It also leaves out rules that could not decide on all requests. For
// each rule, Doubts also returns a Doubt for each part of the key that more than one of a hundred requests lack.
func (p *Player) Doubts() (doubts []Doubt) {
	for _, r := range p.rules {
		notJudged := slices.ContainsFunc(p.notJudged(), func(n NotJudged) bool { return n.Rule == r.name })
		if r.requests == 0 && r.endpoint != "" && !notJudged {
			doubts = append(doubts, Doubt{Rule: r.name, Endpoint: r.endpoint})
		}
		for i, n := range r.empty {
			if n*100 > r.judged {
				doubts = append(doubts, Doubt{r.name, r.endpoint, r.parts[i], n, r.judged})
			}
		}
	}
	return doubts
}

// offender joins the index of the rule r and the name of a client into one text. The function offendersOf splits the text
// again.
func offender(r *rule, client string) string { return strconv.Itoa(r.index) + "\x00" + client }

// A Run sends the requests of one or more logs to one limiter. It can also send them to a second limiter, and compare the
// answers of the two limiters.
type Run struct {
	clock     *Clock
	player    *Player
	against   *comparison // the second limiter and its counts; nil if there is only one limiter
	first     int64
	requests  uint64
	backward  uint64
	back      time.Duration
	decisions func(*accesslog.Entry, ratelimit.Result) error
	req       ratelimit.Request
}

// NewRun returns a Run for the Player p. If the argument against is not nil, it is a second Player with the same clock.
// Both Players then get the same requests, and the Run compares their answers. If the function decisions is not nil, the
// Run calls it with each request and the answer of p.
func NewRun(clock *Clock, p, against *Player, decisions func(*accesslog.Entry, ratelimit.Result) error) *Run {
	r := &Run{clock: clock, player: p, decisions: decisions}
	if against != nil {
		r.against = newComparison(against)
	}
	return r
}

// Add sends one request to the limiters. If an earlier request in the log has a later time, the clock does not step back:
// the limiters decide as if the request came at that later time.
func (r *Run) Add(ctx context.Context, e *accesslog.Entry) error {
	if r.requests == 0 {
		r.first = e.Time
	}
	r.requests++
	if now := r.clock.ns; e.Time < now {
		r.backward++
		r.back = max(r.back, time.Duration(now-e.Time))
	}
	r.clock.Set(e.Time)
	r.req.Client, r.req.Endpoint, r.req.IP, r.req.Tier = e.Client, e.Endpoint, e.IP, e.Tier
	r.req.Cost, r.req.Costs, r.req.Attrs = e.Cost, e.Costs, e.Attrs
	client := noHash.with(e.Client)
	res, err := r.player.play(ctx, &r.req, r.clock.now, client)
	if err == nil && r.against != nil {
		err = r.against.play(ctx, &r.req, r.clock.now, client, r.player, res)
	}
	if err == nil && r.decisions != nil {
		err = r.decisions(e, res)
	}
	return err
}
