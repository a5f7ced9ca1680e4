// Package sim sends simulated traffic to a limiter of this repository, on a fake clock, and counts the
// answers.
package sim

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
)

// Bins is the number of equal parts into which the duration of a simulation is divided for counting. It has many divisors, so
// that a picture can show fewer and longer parts. For example, 60 longer parts have 4 of the 240 parts each.
const Bins = 240

// A Target is a limiter to which the traffic is sent.
type Target struct {
	Name string                                                                         // name of the limiter in the Outcome
	New  func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error)                 // makes the limiter, with the given options
	See  func(request traffic.Request, result ratelimit.Result, all []ratelimit.Result) // gets each answer; may be nil
}

// Options has the settings of one run of a simulation.
type Options struct {
	Start       time.Time     // time that the clock shows at the start
	Duration    time.Duration // length of time in which clients send requests
	Window      time.Duration // length of the windows in which grants are summed; 0 means that each rule uses its own Per
	MaxRequests int           // largest number of requests; Run fails if there are more

	Costs []ratelimit.Cost // what each request costs in other units than requests
	Hold  time.Duration    // how long each granted request runs (0: it ends at once), for rules that limit how many run at once
}

// An Outcome has the counts of one run of a simulation.
type Outcome struct {
	Name     string `json:"name"`    // name of the Target
	Offered  int    `json:"offered"` // requests that were sent, including those that were sent again
	Admitted int    `json:"granted"` // how many of the Offered requests were granted
	Denied   int    `json:"denied"`  // how many of the Offered requests were denied
	Busy     int    `json:"busy"`    // how many of the Denied requests were denied only because other requests were running

	AttackOffered  int `json:"attackOffered,omitempty"` // how many of the Offered requests the attacker sent
	AttackAdmitted int `json:"attackGranted,omitempty"` // how many of the Admitted requests the attacker sent

	LongestWait  time.Duration `json:"longestWaitNs"`  // longest RetryAfter of a denial
	Never        int           `json:"never"`          // denials whose RetryAfter is ratelimit.Never
	LongestUntil time.Duration `json:"longestUntilNs"` // longest time from the first try of a request until it was granted
	Unserved     int           `json:"unserved"`       // requests that were never granted, not even when sent again
	LongestDelay time.Duration `json:"longestDelayNs"` // longest Delay of a granted request

	Rules []*Rule   `json:"rules"` // counts of each rule; the default rule comes last
	Bins  [Bins]Bin `json:"bins"`  // counts of requests for each of the equal parts of the duration
}

// A Bin has the counts of requests in one of the equal parts of the duration.
type Bin struct {
	Offered  int `json:"offered"` // requests that were sent in this part
	Admitted int `json:"granted"` // how many of the Offered requests were granted
}

// ErrTooMany is returned by Run if there are more requests than Options.MaxRequests.
var ErrTooMany = errors.New("too many requests")

// Run makes the limiter of the target, and sends the requests of the stream to it. It returns the counts.
func Run(ctx context.Context, target Target, stream traffic.Stream, o Options) (*Outcome, error) {
	clock := ratelimit.NewFakeClock(o.Start)
	shadows := make(shadowObserver)
	l, err := target.New(ratelimit.WithClock(clock), ratelimit.WithObserver(shadows))
	if err != nil {
		return nil, err
	}
	out := &Outcome{Name: target.Name}
	byName := make(map[string]*Rule)
	rules, byDefault := l.Rules()
	for _, r := range rules {
		byName[r.Name] = out.addRule(r, o)
	}
	if byDefault != nil {
		byName[byDefault.Name] = out.addRule(*byDefault, o)
	}
	a := asker{limiter: l, clock: clock, options: &o}
	for name, rule := range byName {
		shadows[name] = rule
		a.holds = a.holds || rule.holds()
	}
	for r, ok := stream.Next(); ok; r, ok = stream.Next() {
		if out.Offered%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if out.Offered == o.MaxRequests {
			return nil, ErrTooMany
		}
		req := ratelimit.Request{Client: r.Client, IP: r.IP, Endpoint: r.Endpoint, Cost: r.Cost, Costs: o.Costs}
		res, each, err := a.ask(ctx, req, r.At)
		if err != nil {
			return nil, err
		}
		out.count(&r, &res, o)
		for i := range each {
			if rule := byName[each[i].Rule]; rule.Mode.Denies() { // rules that deny nothing are counted by the shadowObserver
				rule.count(&r, &each[i], res.Allowed, out.bin(r.At, o))
			}
		}
		if target.See != nil {
			target.See(r, res, each)
		}
		wait := res.RetryAfter
		if wait == ratelimit.Never {
			wait = -1
		}
		stream.Answer(res.Allowed, wait)
	}
	out.end()
	return out, nil
}

// The method bin returns the index of the Bin to which an instant belongs. The argument named at is the time from
// the start to this instant.
func (out *Outcome) bin(at time.Duration, o Options) int {
	// This cannot overflow: traffic.MaxDuration times Bins is below 2^63.
	return int(at * Bins / o.Duration)
}

// The method count counts a request and the answer to this request.
func (out *Outcome) count(r *traffic.Request, res *ratelimit.Result, o Options) {
	bin := &out.Bins[out.bin(r.At, o)]
	out.Offered++
	bin.Offered++
	if r.Attack {
		out.AttackOffered++
	}
	if r.Try == 0 {
		out.Unserved++ // counts the request as unserved until it is granted
	}
	switch {
	case res.Allowed:
		out.Admitted++
		bin.Admitted++
		out.Unserved--
		if r.Attack {
			out.AttackAdmitted++
		}
		out.LongestUntil = max(out.LongestUntil, r.At-r.First)
		out.LongestDelay = max(out.LongestDelay, res.Delay)
	case res.RetryAfter == ratelimit.Never:
		out.Denied++
		out.Never++
	default:
		out.Denied++
		out.LongestWait = max(out.LongestWait, res.RetryAfter)
	}
	if res.Reason == ratelimit.ReasonBusy {
		out.Busy++
	}
}

// A shadowObserver counts the answers of rules in shadow or advise mode, which deny nothing. It maps the name of each rule to
// the counts of the rule.
type shadowObserver map[string]*Rule

// Observe counts the decision d if its rule is in shadow or advise mode.
func (s shadowObserver) Observe(_ context.Context, d ratelimit.Decision) {
	if d.Mode.Denies() {
		return
	}
	s[d.Rule].Asked++
	if !d.Result.Allowed {
		s[d.Rule].Denied++
	}
}

// StartOf returns an instant at which a window begins. It is a window of the first rule that counts by a calendar or, if
// there is no such rule, a window of the length per.
func StartOf(rules []ratelimit.Rule, per time.Duration) time.Time {
	for _, r := range rules {
		if w, _ := calendar.Parse(string(r.Rate.Window)); w.Calendar() != nil {
			begin, _ := w.Calendar().Edges(AlignedStart(0).UnixNano())
			return time.Unix(0, begin).UTC()
		}
	}
	return AlignedStart(per)
}

// AlignedStart returns an instant at which a window of the given length begins.
func AlignedStart(per time.Duration) time.Time {
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	if per <= 0 || per > traffic.MaxDuration {
		return time.Unix(0, base).UTC()
	}
	return time.Unix(0, base+(int64(per)-base%int64(per))%int64(per)).UTC()
}
