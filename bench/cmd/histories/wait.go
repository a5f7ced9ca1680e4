package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A waiter is a goroutine that calls Wait, which waits until units are free.
type waiter struct {
	number int
	ctx    context.Context
	cancel func()
	req    ratelimit.Request

	text  atomic.Pointer[string] // what the call returned; nil while the call has not returned
	shown bool
}

// A room holds the goroutines of one history (a sequence of random calls) that wait for units, and
// the limiter from which they want units.
type room struct {
	*world
	alone   limiter // the limiter under test; nil if a RateLimiter is tested instead
	all     []*waiter
	request ratelimit.Request // if single is true, all waiters use the keys of this request
	single  bool              // whether all waiters use the same keys, which makes the order of their grants predictable
	came    int               // number of waiters started so far
	keys    int
	foreign bool // whether waiters call ratelimit.Wait with a wrapper that hides the limiter's own method Wait
}

// playWait plays a history (a sequence of random calls): some goroutines wait for units while other
// calls are made. It runs in a synctest bubble, in which time is simulated.
func playWait(t *testing.T, h *history) {
	synctest.Test(t, func(*testing.T) { h.playRoom() })
}

func (h *history) playRoom() {
	r := &room{world: &world{history: h, clients: oneOf(h, 1, 2, 3)}, keys: oneOf(h, 1, 2, 3)}
	asking := h.chance(50) // true: test a RateLimiter that may have a store or slow custom limiters
	if h.bubble, h.sorted = true, !asking; asking || h.chance(40) {
		h.clock = &stepClock{now: epoch, stops: asking && h.chance(50)}
	}
	if h.chance(12) {
		h.clock = machine{}
	}
	switch {
	case !asking && h.chance(40):
		a := oneOf(h, algorithms...)
		opts := append(h.clockOption(), ratelimit.WithMaxWaiters(oneOf(h, 1, 3, 100)))
		if h.chance(40) {
			opts = append(opts, ratelimit.WithObserver(h))
		}
		l, err := newLimiter(a, h.drawRate(a, 0), opts...)
		if h.say("new %s: %s", a, problem(err)); err != nil {
			return
		}
		r.alone, r.foreign = l, h.chance(10)
	case !r.open(asking):
		return
	}
	for range 12 + h.IntN(25) {
		r.move()
		r.settleDown()
	}
	for len(r.all) > 0 {
		r.all[0].cancel()
		if r.settleDown(); r.alone != nil {
			r.clock.Advance(400 * 24 * time.Hour) // ends the waits of callers whose context is nil
			r.settleDown()
		}
	}
	if r.alone == nil {
		r.counts()
	}
}

// open makes the RateLimiter. If the parameter asking is true, the RateLimiter may have a store, or
// custom limiters that take time to answer. If the RateLimiter cannot be made, open returns false.
func (r *room) open(asking bool) bool {
	h, stored := r.history, asking && r.clock != clock(machine{}) && r.chance(60)
	_, steps := h.clock.(*stepClock)
	h.lazy = steps && asking && !stored && r.chance(40)
	if c, ok := h.clock.(*stepClock); ok && stored {
		c.stops = false // while an alarm rings, the clock then already shows the end of the step
	}
	w, ok := newWorld(h, stored, r.chance(25), ratelimit.WithMaxWaiters(oneOf(h, 1, 3, 100, 100)))
	if r.world = w; !ok {
		return false
	}
	r.single = asking || w.customs
	r.request = r.drawRequest()
	if r.request.Endpoint = oneOf(h, "/x", "/x/y", "/z"); h.chance(80) {
		r.request.Rules = nil
	}
	r.usual = &r.request
	return true
}

// settleDown waits until all goroutines are blocked. Then it writes the results of the calls that
// have returned into the transcript.
func (r *room) settleDown() {
	synctest.Wait()
	r.flush()
	for _, w := range r.all {
		if text := w.text.Load(); text != nil && !w.shown {
			w.shown = true
			r.say("waiter %d = %s", w.number, *text)
		}
	}
	r.all = slices.DeleteFunc(r.all, func(w *waiter) bool { return w.shown })
}

// move plays one step: a call, the start of a waiter, or a step of the clock.
func (r *room) move() {
	if r.store != nil {
		r.store.faults()
	}
	switch n := r.IntN(100); {
	case n < 32:
		r.start()
	case n < 62:
		r.step(r.store != nil)
	case n < 67 && len(r.all) > 0:
		w := r.all[r.IntN(len(r.all))]
		r.say("waiter %d leaves", w.number)
		w.cancel()
	case n < 72 && r.lag():
	case r.alone != nil:
		r.limiterStep(ratelimit.AlgorithmFixedWindow, r.alone, nil, r.keys)
	case n < 84 && r.lazy:
		r.start()
	case n < 84:
		r.decides()
	case n < 88:
		r.resets()
	case n < 93:
		if !r.single || len(r.all) < 2 { // a change may move waiters to a new queue in a random order
			r.changes()
		}
	default:
		r.reserves()
	}
}

// The type named "timed" is a context whose deadline is an instant on the clock of the history.
type timed struct {
	context.Context
	at time.Time
}

// Deadline returns the instant at which the context ends.
func (t timed) Deadline() (time.Time, bool) { return t.at, true }

// lag moves the clock, but is late to ring the alarms that wake the waiters. Before it rings them, it
// calls the limiter, which then sees the new time. It does nothing and returns false in three cases: if
// the clock is no stepClock, if there is a store, or if custom limiters are slow.
func (r *room) lag() bool {
	c, ok := r.clock.(*stepClock)
	if !ok || r.store != nil || r.lazy {
		return false
	}
	d := oneOf(r.history, time.Millisecond, 200*time.Millisecond, time.Second, time.Minute)
	c.lag(d)
	if r.say("clock %v to %v, alarms are late", d, c.Now().Sub(epoch)); r.alone != nil {
		r.limiterStep(ratelimit.AlgorithmFixedWindow, r.alone, nil, r.keys)
	} else if len(r.all) > 0 && r.chance(50) {
		again := r.all[0].req
		r.try(requestText("check", again), func() string { return answer(r.limiter.Check(r.due(0), again)) })
	} else {
		r.decides()
	}
	c.Advance(0)
	return true
}

// The method named "start" starts a waiter: a goroutine that calls the limiter and may have to wait.
func (r *room) start() {
	r.came++
	w := &waiter{number: r.came}
	w.ctx, w.cancel = context.WithCancel(context.WithValue(context.Background(), caller{}, w.number))
	patience := time.Duration(0)
	if r.chance(40) {
		patience = oneOf(r.history, time.Second, 10*time.Second, time.Minute, 300*time.Millisecond)
		w.ctx = timed{w.ctx, r.clock.Now().Add(patience)}
	}
	if r.lazy && len(r.all) > 2 || r.foreign && len(r.all) > 0 {
		return // if there were one more waiter, the order of the waiters would be random
	}
	call := r.drawCall(w.ctx)
	w.req = call.req
	r.say("waiter %d waits %v for %s", w.number, patience, call.what)
	r.all = append(r.all, w)
	go func() {
		text := guarded(call.run)
		w.text.Store(&text)
	}()
}

// A call describes one call that a waiter (a goroutine) makes.
type call struct {
	what string
	req  ratelimit.Request // the request to the RateLimiter; zero if there is no RateLimiter
	run  func() string
}

// drawCall returns a random call of Wait. If custom limiters take time to answer, it may return a
// call of Check instead.
func (r *room) drawCall(ctx context.Context) call {
	if r.alone != nil {
		key, n := fmt.Sprint("k", r.IntN(r.keys)), max(r.drawCount(), -1)
		// Each event in the transcript shows which waiter has caused it. The number of the waiter is a value
		// in the context of its call. So the context may be nil only if there is no other waiter, or if the
		// call does not wait.
		if len(r.all) == 0 && n < 100 && !r.foreign && r.chance(20) || n <= 0 {
			ctx = nil
		}
		return call{fmt.Sprintf("%d of %s %v", n, key, ctx == nil), ratelimit.Request{}, func() string {
			if r.foreign {
				return answer(ratelimit.Wait(ctx, struct{ ratelimit.Limiter }{r.alone}, key, n))
			}
			return answer(r.alone.Wait(ctx, key, n))
		}}
	}
	req := r.drawRequest()
	if r.single {
		cost, id := req.Cost, req.ID
		req = r.request
		req.Cost, req.ID = cost, id
	}
	if r.store != nil && slices.ContainsFunc(r.all, func(w *waiter) bool { return w.req.ID == req.ID }) {
		req.ID = "" // several waiters with one ID would be woken at once, and call in a random order
	}
	if r.lazy && r.chance(40) { // of the two rules of drawSlowRules, only the rule without a custom limiter applies to /q
		req.Endpoint, req.Rules = "/q", nil
	}
	switch {
	case r.lazy && r.chance(50):
		return call{requestText("check", req), req, func() string { return answer(r.limiter.Check(ctx, req)) }}
	case req.Cost < 0:
		ctx = nil
	}
	return call{requestText("itself", req), req, func() string { return answer(r.limiter.Wait(ctx, req)) }}
}

// The type machine is the system clock. In a synctest bubble, in which time is simulated, it shows
// the simulated time. A limiter without the option WithClock reads the same clock.
type machine struct{}

// Now returns the time of the bubble.
func (machine) Now() time.Time { return time.Now() }

// Set does nothing: the time of the bubble cannot be set.
func (machine) Set(time.Time) {}

// Advance sleeps for the duration d, which moves the time of the bubble.
func (machine) Advance(d time.Duration) { time.Sleep(d) }

// A stepClock is a clock for use in a synctest bubble. It moves only when one of its methods moves
// it. Goroutines wait for its alarms. When the clock moves, it rings the alarms that are due, one
// after the other. After each alarm, it waits until all goroutines are blocked.
type stepClock struct {
	mu     sync.Mutex
	now    time.Time
	alarms []alarm // alarms that have not rung, in the order in which they were set
	stops  bool    // if true, the clock shows the time of each alarm while it rings; otherwise, the end of the step
}

type alarm struct {
	at    time.Time
	rings chan time.Time
}

// Now returns the time that the clock shows.
func (c *stepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After returns a channel that receives the time once the clock has moved by the duration d.
func (c *stepClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := alarm{c.now.Add(d), make(chan time.Time, 1)}
	if d <= 0 {
		a.rings <- c.now
	} else {
		c.alarms = append(c.alarms, a)
	}
	return a.rings
}

// Set moves the clock to the instant t.
func (c *stepClock) Set(t time.Time) { c.Advance(t.Sub(c.Now())) }

// Advance moves the clock by the duration d, and rings all alarms whose time has come.
func (c *stepClock) Advance(d time.Duration) {
	end := c.Now().Add(d)
	for c.ring(end) {
		synctest.Wait()
	}
	if d > 0 && d < time.Hour {
		time.Sleep(d) // also moves the bubble's time, by which ratelimit.Wait waits for limiters of other packages
	}
}

// The method named "lag" moves the clock by the duration d without ringing an alarm.
func (c *stepClock) lag(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// ring rings one alarm: the first alarm that is due at the given instant or before. If no alarm is
// due, ring moves the clock to the given instant and returns false.
func (c *stepClock) ring(end time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := -1
	for i, a := range c.alarms {
		if !a.at.After(end) && (first < 0 || a.at.Before(c.alarms[first].at)) {
			first = i
		}
	}
	if first < 0 {
		c.now = end
		return false
	}
	a := c.alarms[first]
	if c.now = end; c.stops && a.at.Before(end) {
		c.now = a.at
	}
	c.alarms = slices.Delete(c.alarms, first, first+1)
	a.rings <- c.now
	return true
}
