package ratelimittest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A manualClock is a Clock that moves only when the kit sets it. Only one goroutine may use it.
type manualClock struct{ now time.Time }

// Now returns the time of the clock.
func (c *manualClock) Now() time.Time { return c.now }

// Methods that a limiter may have in addition to those of ratelimit.Limiter.
type (
	peeker interface {
		Peek(key string) ratelimit.Result
	}
	resetter   interface{ Reset(key string) error }
	rateSetter interface{ SetRate(ratelimit.Rate) error }
)

// A call is one call of a limiter's method in a schedule.
type call struct {
	at   time.Duration // the time of the clock, since the start
	verb verb
	key  string
	n    int            // number of units; used only if verb is take or takeEnded
	rate ratelimit.Rate // the new rate; used only if verb is setRate
}

type verb int

const (
	take      verb = iota
	takeEnded      // a call of Take with a context that has ended
	allow
	peek
	reset
	setRate
)

// asks reports whether the limiter must answer the call c with a decision.
func (c call) asks() bool {
	return c.verb == allow || c.verb == peek || c.verb == take && c.n >= 0
}

// units returns how many units the call c asks for. A call that takes nothing counts as one unit.
func (c call) units() int {
	if c.verb != take {
		return 1
	}
	return max(c.n, 1)
}

// looks reports whether the call c only looks at the state of a key and takes nothing.
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

// An answer holds the results of one call.
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

// A subject is a limiter under test, with its clock.
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

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// do makes the call c. If the method panics, the answer has the panic as its error.
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

// A trace is a schedule of calls, with the answers to them.
type trace struct {
	start   time.Time
	rate    ratelimit.Rate // the rate before the first call
	calls   []call
	answers []answer

	moments []moment // for each call, the instant at which it counts: later than the clock shows if the clock has stepped back
	looks   []answer // for each call, the answer to a look (a Take of 0 units) inserted before it
	looked  []answer // for each call, the answer to the call itself, right after that look
}

// play makes the calls on a new limiter that starts with the rate r, and returns the trace.
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

// admits reports whether call i took units.
func (t *trace) admits(i int) bool {
	return t.calls[i].asks() && !t.calls[i].looks() && t.answers[i].res.Allowed
}

// denies reports whether call i asked for units and was denied.
func (t *trace) denies(i int) bool {
	return t.calls[i].asks() && !t.calls[i].looks() && t.answers[i].err == nil && !t.answers[i].res.Allowed
}

// changes reports whether call i changed the rate.
func (t *trace) changes(i int) bool {
	c := t.calls[i]
	return c.verb == setRate && t.answers[i].err == nil && c.rate.Validate() == nil
}

// limited reports whether call i was decided under a limit: the answer has no error, and does not
// say that the key is unlimited.
func (t *trace) limited(i int) bool {
	return t.calls[i].asks() && t.answers[i].err == nil && t.answers[i].res.Limit >= 0
}

// A moment is the instant at which a call counts. That is the time of the clock, unless the clock has
// stepped back.
type moment struct {
	at time.Duration // the instant, as the time since the start

	// known is false if the instant is in doubt. If the clock has stepped back behind a change of
	// the rate or a Reset, the limiter may count the call at the instant of the change or Reset.
	known bool
}

// when returns the moment of each call: the time of the clock, or the instant of the key's last
// granted request if that is later.
func (t *trace) when() []moment {
	moments := make([]moment, len(t.calls))
	last := make(map[string]time.Duration)     // instant of the last granted request of each key
	doubtful := make(map[string]time.Duration) // while the clock is before this instant, a call's moment is not known
	touch := func(key string, at time.Duration) {
		if old, ok := last[key]; ok {
			at = max(at, old)
		}
		if old, ok := doubtful[key]; !ok || at > old {
			doubtful[key] = at
		}
	}
	for i, c := range t.calls {
		m := moment{c.at, true}
		if old, ok := last[c.key]; ok {
			m.at = max(m.at, old)
		}
		if limit, ok := doubtful[c.key]; ok {
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
				delete(doubtful, c.key)
			}
		}
	}
	return moments
}

// later returns a + b, or the nearest value that a Duration can hold.
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
