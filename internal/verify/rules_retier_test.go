package verify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// became returns the plan of a key that was last charged by the plan p, when its rule has
// become r.
func became(r bookRule, p plan) plan {
	switch p.of {
	case ofTier:
		if rate, ok := r.Tiers[p.tier]; ok {
			return plan{ofTier, p.tier, rate}
		}
	case ofResolve:
		if named(r.Algorithm).bucket || p.rate.Per == r.Rate.Per { // all rates of a window have one length
			return p
		}
	}
	return plan{of: ofRule, rate: r.Rate}
}

// rerate tells the accounts of the rule with the name of r that the rule is now r.
func (b *book) rerate(at time.Time, r bookRule) {
	for _, a := range b.accounts[r.Name] {
		a := a.(planned)
		if m, ok := a.(*meter); ok {
			m.slowest = became(r, m.slowest)
		}
		a.become(at, became(r, a.last()))
	}
}

// retier changes the rates of some rules, their own or those of tiers. It replaces the
// rules, or updates the rate of one.
func (b *table) retier(t *rapid.T) {
	if rapid.Bool().Draw(t, "update") {
		i := rapid.IntRange(0, len(b.book.rules)-1).Draw(t, "rule")
		old := b.book.rules[i]
		r := old
		r.Rate = drawRate(t, r.Algorithm)
		if !named(r.Algorithm).bucket {
			r.Rate.Per = old.Rate.Per
		}
		require.NoError(t, b.limiter.UpdateRate(r.Name, r.Rate))
		b.book.rerate(b.clock.now, r)
		b.book.rules[i] = r
		return
	}
	for i := range b.book.rules {
		old := b.book.rules[i]
		if rapid.Bool().Draw(t, "keep") {
			continue
		}
		r := old
		r.Rate = drawRate(t, r.Algorithm)
		r.Tiers = drawTiers(t, r, tierNames[:rapid.IntRange(0, 4).Draw(t, "tiers")])
		equate(t, r, r.Tiers)
		b.book.rerate(b.clock.now, r)
		b.book.rules[i] = r
	}
	list, defaultRule := written(b.book.rules)
	require.NoError(t, b.limiter.Replace(list, defaultRule))
}

// equate makes some of the given rates equal to the rate of r.
func equate(t *rapid.T, r bookRule, rates map[string]ratelimit.Rate) {
	for _, tier := range tierNames {
		if _, ok := rates[tier]; ok && rapid.IntRange(0, 2).Draw(t, "alike") == 0 {
			rates[tier] = r.Rate
		}
	}
}

// TestPropertiesOfChangedTiers changes the rates of rules and of their tiers, while keys
// are asked for at tiers that change. Many of the rates are equal, but each is the rate of
// its own tier: its change is announced to the keys that were last charged at this tier, and
// to no others. A rate that Resolve returns stays as it is, whatever it is equal to.
func TestPropertiesOfChangedTiers(t *testing.T) {
	t.Parallel()
	schedules, changes := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rules := drawTieredRules(t, false)
		for i := range rules {
			r := &rules[i]
			r.Resolve = nil
			equate(t, *r, r.Tiers)
			if named(r.Algorithm).bucket && rapid.Bool().Draw(t, "resolve") { // for a window, Resolve would have to keep the Per
				rates := drawTiers(t, *r, tierNames[2:4])
				equate(t, *r, rates)
				r.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
					rate, ok := rates[req.Tier]
					return rate, ok
				}
			}
		}
		b := newTable(t, rapid.SampledFrom(starts[:5]).Draw(t, "made"), rules)
		b.few, b.free = true, rapid.Bool().Draw(t, "back")
		b.book.open, b.tiers = newTiered, tierNames
		for range stepsEach {
			b.ask(t)
			if rapid.IntRange(0, 5).Draw(t, "change") == 5 {
				b.retier(t)
				changes++
			}
		}
		schedules++
	})
	t.Logf("%d schedules, %d calls, %d changes: 0 counterexamples", schedules, schedules*stepsEach, changes)
	require.GreaterOrEqual(t, schedules, wantChecks())
}
