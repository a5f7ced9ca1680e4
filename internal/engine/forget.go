package engine

import "github.com/ratelimit-go/ratelimit/internal/keytable"

// AdmitAll calls Keys.Admit for each part whose request asks for a rate of its own. It must be called
// before any function that decides on such a part. [DecideAll] calls it itself.
func AdmitAll(parts []Part) {
	for i := range parts {
		if p := &parts[i]; p.Want.Rate != nil && p.Keys != nil {
			_ = p.Keys.Admit(p.Want.Rate) // the decision reports the same error later, by the method refusal
		}
	}
}

func (k *ratedKeys[S, C]) Admit(r *Rate) error {
	ps := k.plans.Load()
	if r == nil || !ps.scarce.Load() || ps.knownPlan(*r) != nil {
		return nil
	}
	ps = k.forgetRates(ps)
	_, err := ps.planFor(*r)
	if err != nil {
		ps.mu.Lock()
		ps.since++
		ps.mu.Unlock()
	}
	return err
}

// forgetRates forgets the rates that no key uses any more: it evicts the keys that owe nothing, and gives the
// remaining keys new plans (rates with their configurations) for the same rates. Nothing else in the states of
// the keys changes. It returns the plans that k then has. It does nothing in two cases:
//
//   - Another call has replaced the given plans (old) meanwhile.
//   - An earlier call has made these plans, and the number of rates that were added or refused since then is
//     below a quarter of the largest number of rates. A call that visits all keys takes long, so it must be
//     rare, even if all rates are in use.
func (k *ratedKeys[S, C]) forgetRates(old *ratePlans[S, C]) *ratePlans[S, C] {
	k.changing.Lock()
	defer k.changing.Unlock()
	old.mu.Lock()
	due := old.since >= old.most/4
	old.mu.Unlock()
	if k.plans.Load() == old && due {
		now := k.time.Now()
		// No error is possible: the rates were valid before.
		_ = k.renewLocked(old.rates, func(ps *ratePlans[S, C]) {
			ps.since = 0
			k.table.Sweep(now)
		})
		old.mu.Lock()
		old.most *= 2 // more room, because a Future (a copy of a state) may still add rates to the old plans
		old.mu.Unlock()
	}
	return k.plans.Load()
}

// renewLocked gives the keys new plans (rates with their configurations), made from the parameter r. The rates
// in r may differ from the present ones only in the Warmup. The limits and what each key has used stay as they
// are. Before the new plans are in use, renewLocked passes them to the function in its last parameter. The caller
// holds k.changing.
func (k *ratedKeys[S, C]) renewLocked(r Rates, before func(*ratePlans[S, C])) error {
	old := k.plans.Load()
	ps, err := newRatePlans[S](r, k.configure, k.refusals, &k.receipts)
	if err != nil {
		return err
	}
	before(ps)
	successors := ps.successors(old)
	k.table.Reconfigure(ps, func(_ keytable.Hash, s *ratedState[S], _ bool) {
		if from := old.planOf(s); from != nil {
			to := ps.successor(from, successors)
			ps.moveTo(s, to, old, successors)
		}
	})
	k.plans.Store(ps)
	return nil
}
