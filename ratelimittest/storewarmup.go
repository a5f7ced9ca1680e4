package ratelimittest

import (
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// cold returns the reason why the store cannot be tested with a Warmup in asks like the given one,
// or "" if the store can be tested.
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

// warmup picks a rate and a Warmup. Their Per and Over are short, because the model tries every instant.
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

// The method named "warmer" picks a new rate for the target p, a state that warms up. The burst does not change.
func (w *storeWriter) warmer(p *target) ratelimit.Rate {
	r := p.ask.Rate
	if w.IntN(3) == 0 {
		return p.rates[w.IntN(len(p.rates))]
	}
	r.Per = time.Duration(1+w.IntN(60)) * w.Resolution
	if most := p.ask.Warmup.From * max(r.Burst, 1); r.Burst == 0 || most > 1 {
		r.Requests = 1 + w.IntN(12)
		if r.Burst > 0 { // if Requests were above From * Burst (most), a new key could not take even one unit
			r.Requests = 1 + w.IntN(min(most, 12))
		}
	}
	p.rates = append(p.rates, r)
	return r
}
