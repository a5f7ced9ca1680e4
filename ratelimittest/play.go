package ratelimittest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// manualClock is a Clock that moves only when told to, for one goroutine.
type manualClock struct{ now time.Time }

// Now returns the time that the clock stands at.
func (c *manualClock) Now() time.Time { return c.now }

// The methods that a limiter may have beside those of Limiter.
type (
	peeker interface {
		Peek(key string) ratelimit.Result
	}
	resetter   interface{ Reset(key string) error }
	rateSetter interface{ SetRate(ratelimit.Rate) error }
)

// A call is one call of a method of a limiter.
type call struct {
	at   time.Duration // what the clock reads, since the start
	verb verb
	key  string
	n    int            // units, for take and takeEnded
	rate ratelimit.Rate // for setRate
}

type verb int

const (
	take      verb = iota
	takeEnded      // take with a context that is over
	allow
	peek
	reset
	setRate
)

// asks reports whether c is to be answered with a decision.
func (c call) asks() bool {
	return c.verb == allow || c.verb == peek || c.verb == take && c.n >= 0
}

// units returns how many units c wants: one if it looks.
func (c call) units() int {
	if c.verb != take {
		return 1
	}
	return max(c.n, 1)
}

// looks reports whether c asks without taking.
func (c call) looks() bool { return c.verb == peek || c.verb == take && c.n == 0 }

// String returns the call as a Go expression.
func (c call) String() string {
	switch c.verb {
	case takeEnded:
		return fmt.Sprintf("l.Take(ended, %q, %d)", c.key, c.n)
	case allow:
		return fmt.Sprintf("l.Allow(%q)", c.key)
	case peek:
		return fmt.Sprintf("l.Peek(%q)", c.key)
	case reset:
		return fmt.Sprintf("l.Reset(%q)", c.key)
	case setRate:
		return fmt.Sprintf("l.SetRate(%#v)", c.rate)
	}
	return fmt.Sprintf("l.Take(ctx, %q, %d)", c.key, c.n)
}

// An answer is what a call returned.
type answer struct {
	res ratelimit.Result
	err error
}

// String returns the answer in words.
func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	if a.res == (ratelimit.Result{}) {
		return "done"
	}
	word := "denied"
	if a.res.Allowed {
		word = "allowed"
	}
	s := fmt.Sprintf("%s, %d of %d remain, reset after %v", word, a.res.Remaining, a.res.Limit, a.res.ResetAfter)
	if a.res.RetryAfter == ratelimit.Never {
		s += ", never retry"
	} else if a.res.RetryAfter != 0 {
		s += fmt.Sprintf(", retry after %v", a.res.RetryAfter)
	}
	if a.res.Delay != 0 {
		s += fmt.Sprintf(", delay %v", a.res.Delay)
	}
	return s
}

// A subject is a limiter under test and its clock.
type subject struct {
	start   time.Time
	clock   *manualClock
	limiter ratelimit.Limiter
}

func (k *kit) open(start time.Time, r ratelimit.Rate) (*subject, error) {
	s := &subject{start: start, clock: &manualClock{start}}
	var err error
	s.limiter, err = k.New(r, s.clock)
	return s, err
}

// ended is a context that is over.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// do makes the call c. A panic is an error.
func (s *subject) do(c call) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: fmt.Errorf("panic: %v", p)}
		}
	}()
	s.clock.now = s.start.Add(c.at)
	switch c.verb {
	case takeEnded:
		a.res, a.err = s.limiter.Take(ended, c.key, c.n)
	case allow:
		a.res = s.limiter.Allow(c.key)
	case peek:
		a.res = s.limiter.(peeker).Peek(c.key)
	case reset:
		a.err = s.limiter.(resetter).Reset(c.key)
	case setRate:
		a.err = s.limiter.(rateSetter).SetRate(c.rate)
	default:
		a.res, a.err = s.limiter.Take(context.Background(), c.key, c.n)
	}
	return a
}

// A trace is a schedule and the answers to it.
type trace struct {
	start   time.Time
	rate    ratelimit.Rate // at the start
	calls   []call
	answers []answer

	moments []moment // when each call counts
	looks   []answer // to a look just before each ask
	looked  []answer // to the calls, with those looks in between
}

// play returns the trace of calls on a new limiter.
func (k *kit) play(start time.Time, r ratelimit.Rate, calls []call) (*trace, error) {
	s, err := k.open(start, r)
	if err != nil {
		return nil, err
	}
	t := &trace{start: start, rate: r, calls: calls, answers: make([]answer, len(calls))}
	for i, c := range calls {
		t.answers[i] = s.do(c)
	}
	t.moments = t.when()
	return t, nil
}

// admits reports whether call i took something.
func (t *trace) admits(i int) bool {
	return t.calls[i].asks() && !t.calls[i].looks() && t.answers[i].res.Allowed
}

// denies reports whether call i asked for something and was denied it.
func (t *trace) denies(i int) bool {
	return t.calls[i].asks() && !t.calls[i].looks() && t.answers[i].err == nil && !t.answers[i].res.Allowed
}

// changes reports whether call i set a rate.
func (t *trace) changes(i int) bool {
	c := t.calls[i]
	return c.verb == setRate && t.answers[i].err == nil && c.rate.Validate() == nil
}

// limited reports whether call i was answered with a decision about a limit.
func (t *trace) limited(i int) bool {
	return t.calls[i].asks() && t.answers[i].err == nil && t.answers[i].res.Limit >= 0
}

// A moment is when a call counts.
type moment struct {
	at time.Duration // since the start

	// known is false if a rate change or a Reset may have moved the key's
	// clock beyond what the call's clock reads.
	known bool
}

// when returns the moment of each call: what the clock read, but no earlier
// than the key's last admitted ask.
func (t *trace) when() []moment {
	moments := make([]moment, len(t.calls))
	last := make(map[string]time.Duration) // admitted asks
	hazy := make(map[string]time.Duration) // instants before it are in doubt
	touch := func(key string, at time.Duration) {
		if old, ok := last[key]; ok {
			at = max(at, old)
		}
		if old, ok := hazy[key]; !ok || at > old {
			hazy[key] = at
		}
	}
	for i, c := range t.calls {
		m := moment{c.at, true}
		if old, ok := last[c.key]; ok {
			m.at = max(m.at, old)
		}
		if limit, ok := hazy[c.key]; ok {
			m.known = c.at >= limit
		}
		moments[i] = m
		switch {
		case c.verb == setRate:
			for _, key := range keys {
				touch(key, c.at)
			}
		case c.verb == reset:
			if old, ok := last[c.key]; ok {
				touch(c.key, old)
			}
			delete(last, c.key)
		case t.admits(i):
			last[c.key] = m.at
			if m.known {
				delete(hazy, c.key)
			}
		}
	}
	return moments
}

// later returns a + b, or the nearest that a Duration can hold.
func later(a, b time.Duration) time.Duration {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	default:
		return sum
	}
}
