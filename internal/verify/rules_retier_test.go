package verify

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// A role is a rate that a rule grants, and the rate that it becomes when the rule is
// changed.
type role struct{ from, to ratelimit.Rate }

// roles returns the rates of old, its own and those of its tiers, with the rates that they
// become in r.
func roles(old, r bookRule) []role {
	all := []role{{old.Rate, r.Rate}}
	for tier, rate := range old.Tiers {
		to, ok := r.Tiers[tier]
		if !ok {
			to = r.Rate
		}
		all = append(all, role{rate, to})
	}
	return all
}

// became returns the rate that a change of old to r announces to a key that was last
// charged at rate. It returns false if the change announces none: because no tier has that
// rate, or because several have it and become different.
func became(old, r bookRule, rate ratelimit.Rate) (to ratelimit.Rate, announced bool) {
	alike := func(a, b ratelimit.Rate) bool {
		return a == b || named(r.Algorithm).bucket && same(a, b)
	}
	all := slices.DeleteFunc(roles(old, r), func(o role) bool { return !alike(o.from, rate) })
	differs := func(o role) bool { return !alike(o.to, all[0].to) }
	switch {
	case len(all) > 0 && !slices.ContainsFunc(all, differs):
		return all[0].to, true
	case !named(r.Algorithm).bucket && r.Rate.Per != rate.Per:
		return r.Rate, true // all rates of a window have one length
	}
	return rate, false
}

// rerate tells the accounts of old that the rule is now r.
func (b *book) rerate(t *table, old, r bookRule) {
	for _, a := range b.accounts[r.Name] {
		var rate ratelimit.Rate
		switch a := a.(type) {
		case *meter:
			rate = a.rate
		case *tier:
			rate = a.rate
		}
		if to, announced := became(old, r, rate); announced {
			a.SetRate(t.clock.now, to)
		}
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
		b.book.rerate(b, old, r)
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
		for tier := range r.Tiers {
			if rapid.IntRange(0, 3).Draw(t, "alike") == 0 {
				r.Tiers[tier] = r.Rate
			}
		}
		b.book.rerate(b, old, r)
		b.book.rules[i] = r
	}
	list, defaultRule := written(b.book.rules)
	require.NoError(t, b.limiter.Replace(list, defaultRule))
}

// TestPropertiesOfChangedTiers changes the rates of rules and of their tiers, while keys
// are asked for at tiers that change. If a rate becomes the same new rate for all tiers
// that have it, keys at that rate are told. Other keys meet the new rate unannounced.
func TestPropertiesOfChangedTiers(t *testing.T) {
	t.Parallel()
	schedules, changes := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rules := drawTieredRules(t, false)
		for i := range rules {
			rules[i].Resolve = nil // Resolve would have to keep the Per
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
