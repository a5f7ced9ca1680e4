package main

import (
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// newWorld makes a RateLimiter with random rules and options. Random rules may be invalid, and the
// package then refuses them. So newWorld tries up to four times, and returns false if the package
// has refused the rules each time.
func newWorld(h *history, stored, ids bool, opts ...ratelimit.Option) (w *world, ok bool) {
	w = &world{history: h, customs: h.chance(50), clients: oneOf(h, 1, 2, 3, 6), tiered: h.chance(15), leaky: stored && h.chance(15)}
	if c, steps := h.clock.(*stepClock); steps && h.lazy {
		w.slow = c
	}
	w.opts = append(opts, h.clockOption()...)
	if h.chance(25) {
		w.opts = append(w.opts, ratelimit.WithMaxKeys(1+h.IntN(4)))
	}
	if h.chance(60) {
		w.opts = append(w.opts, ratelimit.WithObserver(h))
		if h.chance(30) {
			w.opts = append(w.opts, ratelimit.WithObservedRequests())
		}
	}
	if h.chance(50) {
		w.opts = append(w.opts, ratelimit.WithFactory(w.factory()))
	}
	if stored {
		w.store = newStore(h, h.clock)
		w.opts = append(w.opts, ratelimit.WithStore(w.store.drawMethods()), ratelimit.WithName("shop"), h.drawPolicyOption())
	}
	if ids || h.chance(5) {
		w.ids = oneOf(h, 1, 2, 4)
		w.opts = append(w.opts, ratelimit.WithRequestIDs(oneOf(h, time.Second, time.Minute, 24*time.Hour, 5*time.Millisecond)))
	} else if h.chance(5) {
		w.ids = 1
	}
	if h.chance(3) {
		w.opts = append(w.opts, ratelimit.WithRequiredRules(oneOf(h, names...)))
	}
	if !stored && h.chance(3) {
		h.misset()
	}
	if h.chance(1) {
		w.limiter, w.held = new(ratelimit.RateLimiter), []held{{}, {Reservation: new(ratelimit.Reservation)}}
		return w, true
	}
	for range 4 {
		rules, defaultRule := w.drawRules()
		var err error
		if h.chance(8) {
			configs, defaultConfig := w.drawConfigs()
			w.limiter, err = ratelimit.NewFromConfig(configs, defaultConfig, w.opts...)
			h.say("new %v %v = %s", configs, defaultConfig, problem(err))
		} else {
			w.limiter, err = ratelimit.New(rules, defaultRule, w.opts...)
			h.say("new%s\n = %s", rulesText(rules, defaultRule), problem(err))
		}
		if err == nil {
			return w, true
		}
	}
	return w, false
}

// A mix says how often the random steps of a history are steps of each kind, in percent. All other
// steps move the clock.
type mix struct{ decides, changes, resets, reserves, explains, counts int }

// play makes the random steps of a history. The mix m gives the percentage of each kind of step,
// and all other steps move the clock.
func (w *world) play(m mix) {
	for range 10 + w.IntN(25) {
		if w.store != nil {
			w.store.faults()
		}
		n := w.IntN(100)
		of := func(percent int) bool {
			n -= percent
			return n < 0
		}
		switch {
		case of(m.decides):
			w.decides()
		case of(m.changes):
			w.changes()
		case of(m.resets):
			w.resets()
		case of(m.reserves):
			w.reserves()
		case of(m.explains):
			w.explains(w.drawRequest())
		case of(m.counts):
			w.counts()
		default:
			w.step(w.store != nil)
		}
	}
	w.counts()
}

func playRules(_ *testing.T, h *history) {
	if w, ok := newWorld(h, false, false); ok {
		w.play(mix{decides: 65, changes: 8, resets: 3, counts: 4})
	}
}

func playStores(_ *testing.T, h *history) {
	if w, ok := newWorld(h, true, false); ok {
		w.play(mix{decides: 65, changes: 5, resets: 3, counts: 5})
	}
}

func playReserve(_ *testing.T, h *history) {
	if w, ok := newWorld(h, h.chance(40), h.chance(10)); ok {
		w.play(mix{decides: 20, changes: 5, resets: 3, reserves: 45, explains: 2, counts: 5})
	}
}

func playIDs(_ *testing.T, h *history) {
	if w, ok := newWorld(h, h.chance(40), true); ok {
		w.play(mix{decides: 65, changes: 5, resets: 3, reserves: 5, counts: 4})
	}
}

func playExplain(_ *testing.T, h *history) {
	w, ok := newWorld(h, h.chance(40), h.chance(20))
	if !ok {
		return
	}
	w.explain = true
	w.play(mix{decides: 55, changes: 8, resets: 3, reserves: 8, counts: 4})
}
