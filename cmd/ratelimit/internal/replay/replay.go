// Package replay puts the requests of a log to limiters, at the times that the log says, and counts
// what they answer. Its memory does not grow with the number of requests.
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

// A Clock stands at the time of the request that is decided. It is for one goroutine.
type Clock struct{ now time.Time }

// NewClock returns a Clock that stands at the Unix epoch.
func NewClock() *Clock { return &Clock{time.Unix(0, 0).UTC()} }

// Now returns the time.
func (c *Clock) Now() time.Time { return c.now }

// Set moves the clock to ns nanoseconds after the Unix epoch, and never backwards.
func (c *Clock) Set(ns int64) {
	if t := time.Unix(0, ns).UTC(); t.After(c.now) {
		c.now = t
	}
}

// counters is how many clients are counted at once.
const counters = 1000

// A Player puts requests to one limiter.
type Player struct {
	limiter *ratelimit.RateLimiter
	rules   []*rule
	byName  map[string]*rule
	each    []ratelimit.Result
	shadows []ratelimit.Decision // of the request that is decided

	requests  uint64
	unlimited uint64 // requests that no rule applies to
	denied    uint64
	denials
	clients   spread
	spans     spans
	offenders *topk.Counter
}

// denials are when something was denied.
type denials struct{ first, last time.Time }

func (d *denials) note(at time.Time) {
	if d.first.IsZero() {
		d.first = at
	}
	d.last = at
}

// A rule is one rule of the limiter, and what became of it.
type rule struct {
	index    int
	name     string
	shadow   bool
	parts    []string // of its keys
	requests uint64
	denied   uint64
	denials
	keys spread
}

// Make makes a limiter with these options. NewPlayer calls it once.
type Make func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error)

// NewPlayer returns a Player of the limiter that newLimiter makes, which gets clock.
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
		made := &rule{index: i, name: r.Name, shadow: r.Mode == ratelimit.ModeShadow, parts: partsOf(r.Key)}
		p.rules, p.byName[r.Name] = append(p.rules, made), made
		shadows = shadows || made.shadow
	}
	if shadows { // what they would answer is told to an observer alone
		if l, err = newLimiter(append(opts, ratelimit.WithObserver(p))...); err != nil {
			return nil, err
		}
	}
	p.limiter = l
	return p, nil
}

// Observe notes what a rule in shadow mode would have answered.
func (p *Player) Observe(_ context.Context, d ratelimit.Decision) {
	if d.Mode == ratelimit.ModeShadow {
		p.shadows = append(p.shadows, d)
	}
}

// Limiter returns the limiter, in the state that the requests have brought about.
func (p *Player) Limiter() *ratelimit.RateLimiter { return p.limiter }

// play decides on req, which came at the time at.
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
		p.count(p.byName[each[i].Rule], &each[i], req)
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

// count counts the answer of one rule.
func (p *Player) count(r *rule, res *ratelimit.Result, req *ratelimit.Request) {
	r.requests++
	switch {
	case res.Limit < 0: // the client's tier has no limit
	case res.Allowed:
		r.keys.note(r.hash(req), left(res.Remaining, res.Limit))
	default:
		r.keys.note(r.hash(req), 0)
	}
}

// partsOf returns the parts of a key.
func partsOf(k ratelimit.KeyType) []string {
	return strings.Split(strings.ReplaceAll(string(k), string(ratelimit.KeyUserEndpoint), "user+endpoint"), "+")
}

// hash returns the hash of the key of req.
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

// offender is a client and the rule that has denied it, as one name.
func offender(r *rule, client string) string { return strconv.Itoa(r.index) + "\x00" + client }

// A Run replays one log or several.
type Run struct {
	clock     *Clock
	player    *Player
	against   *comparison // nil if there is nothing to compare with
	first     int64
	requests  uint64
	backward  uint64
	back      time.Duration
	decisions func(*accesslog.Entry, ratelimit.Result) error
	req       ratelimit.Request
}

// NewRun returns a Run with the limiter of p. against may be nil. Both have the clock. decisions, if it
// is not nil, is called with each request and the answer of p.
func NewRun(clock *Clock, p, against *Player, decisions func(*accesslog.Entry, ratelimit.Result) error) *Run {
	r := &Run{clock: clock, player: p, decisions: decisions}
	if against != nil {
		r.against = newComparison(against)
	}
	return r
}

// Add puts one request to the limiters. If it is from before the one that came before it, the clock
// stands still.
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
	r.req = ratelimit.Request{Client: e.Client, Endpoint: e.Endpoint, IP: e.IP, Tier: e.Tier, Cost: e.Cost, Attrs: e.Attrs}
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
