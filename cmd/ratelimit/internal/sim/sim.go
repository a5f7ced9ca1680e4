// Package sim sends made-up traffic to a limiter of this repository, on a clock that is moved by hand,
// and counts what comes of it.
package sim

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// Bins is the number of equal parts of the time that are counted by themselves. It has many divisors.
const Bins = 240

// A Target is what the traffic is sent to.
type Target struct {
	Name string                                                                         // of the outcome
	New  func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error)                 // makes the limiter
	See  func(request traffic.Request, result ratelimit.Result, all []ratelimit.Result) // is told each answer, if it is not nil
}

// Options say how to run.
type Options struct {
	Start    time.Time     // of the clock
	Duration time.Duration // after which no request comes
	Window   time.Duration // in which grants are added up; 0 means the Per of each rule
	Most     int           // requests in all, after which Run fails
}

// An Outcome is what came of the traffic.
type Outcome struct {
	Name     string `json:"name"`     // of the Target
	Offered  int    `json:"offered"`  // requests, each as often as it was sent
	Admitted int    `json:"admitted"` // those that were granted
	Denied   int    `json:"denied"`   // the others

	AttackOffered  int `json:"attackOffered,omitempty"`  // of Offered, those of the attacker
	AttackAdmitted int `json:"attackAdmitted,omitempty"` // of Admitted, those of the attacker

	LongestWait  time.Duration `json:"longestWaitNanoseconds"`  // the longest RetryAfter of a denial
	Never        int           `json:"never"`                   // denials that no wait would have helped
	LongestUntil time.Duration `json:"longestUntilNanoseconds"` // from the first try of a request until it was granted
	Unserved     int           `json:"unserved"`                // requests that were never granted, however often they were sent
	LongestDelay time.Duration `json:"longestDelayNanoseconds"` // for which a granted request was to be held

	Rules []*Rule   `json:"rules"` // the outcomes of the rules, the default rule last
	Bins  [Bins]Bin `json:"bins"`  // the counts of equal parts of the time
}

// A Bin counts the requests of a part of the time.
type Bin struct {
	Offered  int `json:"offered"`  // as in Outcome
	Admitted int `json:"admitted"` // as in Outcome
}

// ErrTooMany is returned by Run if there are more requests than Options.Most.
var ErrTooMany = errors.New("too many requests")

// Run sends the stream to the target.
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
	for name := range byName {
		shadows[name] = byName[name]
	}
	var each []ratelimit.Result
	for r, ok := stream.Next(); ok; r, ok = stream.Next() {
		if out.Offered%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if out.Offered == o.Most {
			return nil, ErrTooMany
		}
		clock.Set(o.Start.Add(r.At))
		var res ratelimit.Result
		res, each, err = l.CheckAll(ctx, ratelimit.Request{Client: r.Client, IP: r.IP, Endpoint: r.Endpoint, Cost: r.Cost}, each[:0])
		if err != nil {
			return nil, err
		}
		out.count(&r, &res, o)
		for i := range each {
			byName[each[i].Rule].count(&r, &each[i], res.Allowed, out.bin(r.At, o))
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
	return out, nil
}

// bin returns in which bin the instant at is.
func (out *Outcome) bin(at time.Duration, o Options) int {
	// A duration of traffic times Bins is below 2^63.
	return int(at * Bins / o.Duration)
}

// count counts a request and its answer.
func (out *Outcome) count(r *traffic.Request, res *ratelimit.Result, o Options) {
	bin := &out.Bins[out.bin(r.At, o)]
	out.Offered++
	bin.Offered++
	if r.Attack {
		out.AttackOffered++
	}
	if r.Try == 0 {
		out.Unserved++ // so far
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
}

// A shadowObserver counts, by name, what the rules in shadow would have done.
type shadowObserver map[string]*Rule

// Observe is that of ratelimit.Observer.
func (s shadowObserver) Observe(_ context.Context, d ratelimit.Decision) {
	if d.Mode != ratelimit.ModeShadow {
		return
	}
	s[d.Rule].Asked++
	if !d.Result.Allowed {
		s[d.Rule].Denied++
	}
}

// AlignedStart returns an instant at which a window of this length begins.
func AlignedStart(per time.Duration) time.Time {
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	if per <= 0 || per > traffic.MaxDuration {
		return time.Unix(0, base).UTC()
	}
	return time.Unix(0, base+(int64(per)-base%int64(per))%int64(per)).UTC()
}
