package ratelimittest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// keys are what schedules ask for. Any bytes are a key.
var keys = []string{"a", "", "\xff\x00"}

// A writer makes up a schedule while a limiter answers it, so that it can ask
// at the instants and for the counts at which something changes.
type writer struct {
	*kit
	*rand.Rand
	subject *subject
	rate    ratelimit.Rate
	now     time.Duration
	known   map[string]*state
}

// A state is what a writer knows of a key.
type state struct {
	admitted time.Duration // the instant of the last admitted ask
	asked    time.Duration // the instant that the last ask counted at
	limit    int
	left     int
	waits    [3]time.Duration // of the last answer: RetryAfter, ResetAfter, Delay
}

// write returns the trace of schedule number i. It depends on the seed and on
// the limiter's answers alone.
func (k *kit) write(i int) (*trace, error) {
	w := &writer{kit: k, Rand: rand.New(rand.NewPCG(k.Seed, uint64(i))), known: make(map[string]*state)}
	for _, key := range keys {
		w.known[key] = &state{admitted: math.MinInt64, limit: 1}
	}
	w.rate = k.Rates[w.IntN(len(k.Rates))]
	start := k.Starts[0]
	if w.IntN(2) == 0 {
		start = k.Starts[w.IntN(len(k.Starts))]
	}
	var err error
	if w.subject, err = k.open(start, w.rate); err != nil {
		return nil, err
	}
	t := &trace{start: start, rate: w.rate}
	for range k.Steps {
		c := w.next()
		a := w.subject.do(c)
		w.note(c, a)
		t.calls = append(t.calls, c)
		t.answers = append(t.answers, a)
	}
	t.moments = t.when()
	return t, nil
}

// next makes up a call.
func (w *writer) next() call {
	c := call{key: keys[0]}
	if w.IntN(5) < 2 {
		c.key = keys[w.IntN(len(keys))]
	}
	w.now = min(max(w.move(c.key), -w.Span), w.Span)
	w.now -= w.now % w.Resolution
	c.at = w.now
	_, canPeek := w.subject.limiter.(peeker)
	_, canReset := w.subject.limiter.(resetter)
	_, canChange := w.subject.limiter.(rateSetter)
	switch p := w.IntN(100); {
	case p < 4:
		c.verb, c.n = takeEnded, w.IntN(3)
	case p < 6:
		c.n = -1 - w.IntN(2)*(math.MaxInt-w.IntN(2))
	case p < 16:
		c.verb = allow
	case p < 21 && canPeek:
		c.verb = peek
	case p < 24 && canReset:
		c.verb = reset
	case p < 28 && canChange && !w.KeepRate:
		c.verb, c.rate = setRate, w.newRate()
	default:
		c.n = w.count(w.known[c.key])
	}
	return c
}

// note remembers what the answer to c shows.
func (w *writer) note(c call, a answer) {
	if c.verb == setRate && a.err == nil && c.rate.Validate() == nil {
		w.rate = c.rate
	}
	if !c.asks() || a.err != nil {
		return
	}
	s := w.known[c.key]
	s.asked = max(c.at, s.admitted)
	if a.res.Allowed && !c.looks() {
		s.admitted = s.asked
	}
	s.limit, s.left = max(a.res.Limit, 1), max(a.res.Remaining, 0)
	s.waits = [3]time.Duration{a.res.RetryAfter, a.res.ResetAfter, a.res.Delay}
}

// move returns where the clock goes next: a third of all calls come at the
// instant of the one before.
func (w *writer) move(key string) time.Duration {
	const year = 366 * 24 * time.Hour
	switch p := w.IntN(120); {
	case p < 40:
		return w.now
	case p < 55:
		return later(w.now, w.upTo(later(w.rate.Per, w.rate.Per)))
	case p < 70:
		return later(w.now, w.upTo(w.rate.Per/time.Duration(w.rate.Requests)))
	case p < 80:
		return later(w.now, w.upTo(3*w.Resolution))
	case p < 105:
		s := w.known[key]
		edge := later(s.asked, w.up(s.waits[w.IntN(3)]))
		return later(edge, time.Duration(w.IntN(3)-1)*w.Resolution)
	case p < 111:
		return later(w.now, -w.upTo(3*w.Resolution))
	case p < 117:
		return later(w.now, -w.upTo(later(w.rate.Per, w.rate.Per)))
	case p < 119:
		far := []time.Duration{time.Hour, year, 10 * year, 100 * year}[w.IntN(4)]
		return later(w.now, w.up(far)*time.Duration(1-2*w.IntN(2)))
	}
	if w.IntN(4) == 0 {
		return []time.Duration{-w.Span, w.Span}[w.IntN(2)]
	}
	return 0
}

// upTo returns a random multiple of the resolution, at most d or one.
func (w *writer) upTo(d time.Duration) time.Duration {
	return time.Duration(w.Int64N(int64(max(d/w.Resolution, 1))+1)) * w.Resolution
}

// count makes up how many units to ask for.
func (w *writer) count(s *state) int {
	switch p := w.IntN(100); {
	case p < 45:
		return 1
	case p < 60:
		return 0
	case p < 72:
		return 1 + w.IntN(min(s.limit, 5))
	case p < 80:
		return s.left
	case p < 87:
		return min(s.left, s.limit-1) + 1
	case p < 90:
		return s.limit
	case p < 93:
		return 1 + w.IntN(s.limit)
	case p < 96:
		return s.limit/2 + 1
	case p < 99 && s.limit < math.MaxInt:
		return s.limit + 1
	}
	return math.MaxInt
}

// newRate makes up a rate to change to: one of the kit's, the same, one near
// the present one, or an invalid one.
func (w *writer) newRate() ratelimit.Rate {
	r := w.rate
	switch w.IntN(10) {
	case 0:
		return ratelimit.Rate{}
	case 1:
		return r
	case 2:
		r.Requests = 1 + r.Requests/2
	case 3:
		r.Requests = min(r.Requests, math.MaxInt32/2) * 2
	case 4:
		r.Per = later(r.Per, r.Per).Truncate(w.Resolution)
	case 5:
		r.Per = w.up(r.Per / 2)
	case 6:
		r.Burst = 1 + burst(r)/2
	case 7:
		r.Burst = min(burst(r), math.MaxInt32/2) * 2
	default:
		return w.Rates[w.IntN(len(w.Rates))]
	}
	if _, err := w.open(w.subject.start, r); err != nil {
		return w.rate
	}
	return r
}

// up rounds d up to the resolution.
func (k *kit) up(d time.Duration) time.Duration {
	if rest := d % k.Resolution; rest > 0 {
		return later(d, k.Resolution-rest)
	}
	return d
}
