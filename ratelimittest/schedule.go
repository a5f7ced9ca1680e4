package ratelimittest

import (
	"math"

	"github.com/ratelimit-go/ratelimit"
)

// keys are the keys of the calls in a schedule. Some of them are unusual, because any bytes are a
// valid key.
var keys = []string{"a", "", "\xff\x00"}

// A writer builds a random schedule, and makes each call at once on a limiter. From the answers, the
// writer learns which instants and which numbers of units are worth trying next.
type writer struct {
	*kit
	chooser
	subject *subject
	rate    ratelimit.Rate
	known   map[string]*state
}

// write builds the schedule with number i. It returns a trace: the calls of the schedule and the answers
// to them. The schedule depends only on i, the seed of the Config and the answers of the limiter.
func (k *kit) write(i int) (*trace, error) {
	w := &writer{kit: k, chooser: newChooser(k.Seed, i, k.Resolution, k.Span), known: make(map[string]*state)}
	for _, key := range keys {
		w.known[key] = newState()
	}
	w.rate = k.Rates[w.IntN(len(k.Rates))]
	start := w.start(k.Starts)
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

// next returns the next call of the schedule.
func (w *writer) next() call {
	c := call{key: keys[0]}
	if w.IntN(5) < 2 {
		c.key = keys[w.IntN(len(keys))]
	}
	c.at = w.move(w.rate, w.known[c.key])
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

// note records what the answer to a call tells about the key. The writer uses this to choose the next calls.
func (w *writer) note(c call, a answer) {
	if c.verb == setRate && a.err == nil && c.rate.Validate() == nil {
		w.rate = c.rate
	}
	if !c.asks() || a.err != nil {
		return
	}
	w.known[c.key].note(c.at, a.res, a.res.Allowed && !c.looks())
}

// newRate picks the new rate for a call of SetRate: one of the kit's rates, the present rate, a rate
// similar to the present rate, or an invalid rate.
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
		r.Per = up(r.Per/2, w.Resolution)
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
