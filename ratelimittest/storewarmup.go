package ratelimittest

import (
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// cold returns why the store is not tested with asks that are like this one and have a Warmup, or "".
func (k *storeKit) cold(ask ratelimit.Ask) string {
	s, ok := k.store.(interface{ Accepts(a ratelimit.Ask) error })
	if !ok {
		return "the store has no Accepts"
	}
	ask.Rate, ask.Warmup = ratelimit.PerSecond(10), ratelimit.Warmup{From: 1, Over: time.Hour}
	if err := s.Accepts(ask); err != nil {
		return fmt.Sprintf("the store does not accept a warm-up: %v", err)
	}
	return ""
}

// warmup makes up a rate and a Warmup. Both are short, because the model tries every instant.
func (w *storeWriter) warmup(name ratelimit.Algorithm) (ratelimit.Rate, ratelimit.Warmup) {
	r := ratelimit.Rate{Requests: 1 + w.IntN(12), Per: time.Duration(1+w.IntN(60)) * w.Resolution}
	least := 1
	if algorithmNamed(name).bursts {
		r.Burst = 1 + w.IntN(2*r.Requests)
		least = (r.Requests-1)/burst(r) + 1
	}
	over := up(max(time.Duration(1+w.IntN(90))*w.Resolution, time.Microsecond), w.Resolution)
	return r, ratelimit.Warmup{From: least + w.IntN(r.Requests-least+1), Over: over}
}

// warmer makes up a rate to change to for a state that warms up. Its burst is the present one.
func (w *storeWriter) warmer(p *target) ratelimit.Rate {
	r := p.ask.Rate
	if w.IntN(3) == 0 {
		return p.rates[w.IntN(len(p.rates))]
	}
	r.Per = time.Duration(1+w.IntN(60)) * w.Resolution
	if most := p.ask.Warmup.From * max(r.Burst, 1); r.Burst == 0 || most > 1 {
		r.Requests = 1 + w.IntN(12)
		if r.Burst > 0 { // so that a new key is granted something
			r.Requests = 1 + w.IntN(min(most, 12))
		}
	}
	p.rates = append(p.rates, r)
	return r
}
