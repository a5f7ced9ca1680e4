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

// A Clock is the clock of a limiter: it shows the time in the log of the request that is being decided. Only one
// goroutine at a time may use it.
type Clock struct{ now time.Time }

// NewClock returns a Clock that shows the Unix epoch.
func NewClock() *Clock { return &Clock{time.Unix(0, 0).UTC()} }

// Now returns the time that this clock shows. The method Set changes this time.
func (c *Clock) Now() time.Time { return c.now }

// Set moves the clock to the time ns nanoseconds after the Unix epoch. It does nothing if the clock shows a later
// time.
func (c *Clock) Set(ns int64) {
	if t := time.Unix(0, ns).UTC(); t.After(c.now) {
		c.now = t
	}
}

// counters is the number of pairs of a rule and a client whose denials are counted at a time. A further pair takes
// the place of the pair with the fewest denials.
const counters = 1000

// A Player sends requests to one limiter, and counts the limiter's answers.
type Player struct {
	limiter *ratelimit.RateLimiter
	rules   []*rule
	byName  map[string]*rule
	each    []ratelimit.Result
	shadows []ratelimit.Decision // answers of rules in shadow or advise mode, which deny nothing, to the current request

	requests  uint64
	unlimited uint64 // requests to which no rule applied
	denied    uint64
	denials
	clients   spread
	spans     spans
	offenders *topk.Counter
}

// denials has the times of the first and the last denial.
type denials struct{ first, last time.Time }

func (d *denials) note(at time.Time) {
	if d.first.IsZero() {
		d.first = at
	}
	d.last = at
}

// A rule has one rule of the limiter, and the counts for this rule.
type rule struct {
	index    int
	name     string
	shadow   bool     // whether the rule is in shadow or advise mode, in which it denies nothing
	unit     string   // what the rule counts; empty for requests
	parts    []string // names of the parts of the rule's keys, such as "user" and "endpoint"
	requests uint64
	denied   uint64
	denials
	keys spread
}

// A Make is a function that makes a limiter with the given options. NewPlayer calls it a second time if the rules of
// the first limiter show that the limiter needs an observer.
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
		made := &rule{index: i, name: r.Name, shadow: !r.Mode.Denies(), unit: r.Unit, parts: partsOf(r.Key)}
		p.rules, p.byName[r.Name] = append(p.rules, made), made
		shadows = shadows || made.shadow
	}
	if shadows { // only an observer receives the answers of all rules in shadow or advise mode
		if l, err = newLimiter(append(opts, ratelimit.WithObserver(p))...); err != nil {
			return nil, err
		}
	}
	p.limiter = l
	return p, nil
}

// Observe records the decision d if a rule in shadow or advise mode has made it. The decision is the answer to the current
// request.
func (p *Player) Observe(_ context.Context, d ratelimit.Decision) {
	if !d.Mode.Denies() {
		p.shadows = append(p.shadows, d)
	}
}

// Limiter returns the limiter of this Player. The limiter has decided all requests so far.
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
	for i := range each {
		if r := p.byName[each[i].Rule]; !r.shadow { // the answers of rules in shadow or advise mode are in p.shadows
			p.count(r, &each[i], req)
		}
	}
	for i := range p.shadows {
		d := &p.shadows[i]
		r := p.byName[d.Rule]
		p.count(r, &d.Result, req)
		if !d.Result.Allowed {
			r.denied++
			r.note(at)
		}
	}
	if len(each)+len(p.shadows) == 0 {
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
	r := p.byName[res.Rule]
	r.denied++
	r.note(at)
	p.offenders.Add(offender(r, req.Client), 1)
	return res, nil
}

// The method count counts the answer res that the rule r gave to the request req.
func (p *Player) count(r *rule, res *ratelimit.Result, req *ratelimit.Request) {
	r.requests++
	switch {
	case res.Limit < 0: // the key has no limit, so there is no part of it left to record
	case res.Allowed:
		r.keys.note(r.hash(req), left(res.Remaining, res.Limit))
	default:
		r.keys.note(r.hash(req), 0)
	}
}

// partsOf returns the names of the parts of a key type, such as "user" and "endpoint".
func partsOf(k ratelimit.KeyType) []string {
	return strings.Split(strings.ReplaceAll(string(k), string(ratelimit.KeyUserEndpoint), "user+endpoint"), "+")
}

// The method hash returns the hash of the key that the rule r has for the request req.
func (r *rule) hash(req *ratelimit.Request) uint64 {
	h := noHash
	for _, part := range r.parts {
		switch part {
		case "user":
			h = h.with(req.Client)
		case "endpoint":
			h = h.with(req.Endpoint)
		case "ip":
			h = h.with(req.IP)
		case "global":
		default:
			h = h.with(req.Attrs[strings.TrimPrefix(part, "attr:")])
		}
	}
	return h.bits()
}

// offender joins the index of the rule r and the name of a client into one text. The function offendersOf splits
// such texts.
func offender(r *rule, client string) string { return strconv.Itoa(r.index) + "\x00" + client }

// A Run sends the requests of one or more logs to one limiter, or to two that are compared.
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

// NewRun returns a Run for the Player p. If against is not nil, this second Player gets the same requests, and the
// Run compares its answers with the answers of p. Both Players must use the same clock. If the function decisions is
// not nil, the Run calls it with each request and the answer of p.
func NewRun(clock *Clock, p, against *Player, decisions func(*accesslog.Entry, ratelimit.Result) error) *Run {
	r := &Run{clock: clock, player: p, decisions: decisions}
	if against != nil {
		r.against = newComparison(against)
	}
	return r
}

// Add sends one request to the limiters. If an earlier request had a later time, the clock does not step back. The
// limiters then decide the request at that later time.
func (r *Run) Add(ctx context.Context, e *accesslog.Entry) error {
	if r.requests == 0 {
		r.first = e.Time
	}
	r.requests++
	if now := r.clock.now.UnixNano(); e.Time < now {
		r.backward++
		r.back = max(r.back, time.Duration(now-e.Time))
	}
	r.clock.Set(e.Time)
	r.req = ratelimit.Request{Client: e.Client, Endpoint: e.Endpoint, IP: e.IP, Tier: e.Tier, Cost: e.Cost, Costs: e.Costs, Attrs: e.Attrs}
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
