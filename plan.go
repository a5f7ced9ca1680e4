package ratelimit

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// maxPlans bounds how many distinct rates a rule grants, from one change of the
// rule to the next.
const maxPlans = 1 << 16

// A plan is one of the rates of a rule, ready to decide by.
type plan[C any] struct {
	id     uint32 // its place among the rule's plans, from 1 on
	rate   Rate   // of those that mean the same, the reduced one
	config C
}

// rates say what a rule grants to whom.
type rates struct {
	base    Rate
	tiers   map[string]Rate
	open    bool // whether code may come up with others
	samePer bool // whether those must have the Per of base
	windows bool // whether Per is the length of a window, not a part of a quotient
}

// A wish says which rate of a rule a request is to be decided by.
type wish struct {
	tier     string
	rate     Rate // if resolved
	resolved bool
}

// plans are the rates of one rule: its own, those of its tiers, and those that code
// has come up with. Each shard works by one plans, and is handed another when the
// rule is changed.
//
// A plan is added when its rate is first met and never dropped. It is found without
// a lock.
type plans[S any, C algorithm[S, C]] struct {
	rates     rates
	configure func(Rate) (C, error)
	base      *plan[C]
	tiers     map[string]*plan[C]

	mu    sync.Mutex // held while a quote is added
	count int        // quotes; guarded by mu

	byID   atomic.Pointer[[]*plan[C]]
	quotes atomic.Pointer[[]atomic.Pointer[quote[C]]] // open-addressed by rate, at most half full
}

// A quote says which plan a rate is. Rates that mean the same are one plan.
type quote[C any] struct {
	rate Rate
	plan *plan[C]
}

// newPlans returns the plans of a rule that grants r, or the problem of one of its
// rates.
func newPlans[S any, C algorithm[S, C]](r rates, configure func(Rate) (C, error)) (ps *plans[S, C], err error) {
	ps = &plans[S, C]{rates: r, configure: configure}
	ps.byID.Store(new([]*plan[C]))
	quotes := make([]atomic.Pointer[quote[C]], 2)
	ps.quotes.Store(&quotes)
	if ps.base, err = ps.at(r.base); err != nil {
		return nil, err
	}
	if len(r.tiers) > 0 {
		ps.tiers = make(map[string]*plan[C], len(r.tiers))
	}
	for tier, rate := range r.tiers {
		if ps.tiers[tier], err = ps.at(rate); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

// pick returns the plan for w. If that asks for an invalid rate, it is the base
// plan, and err says why.
func (ps *plans[S, C]) pick(w *wish) (p *plan[C], err error) {
	if w.resolved {
		if p, err = ps.at(w.rate); err == nil {
			return p, nil
		}
	} else if p = ps.tiers[w.tier]; p != nil {
		return p, nil
	}
	return ps.base, err
}

// at returns the plan of rate.
func (ps *plans[S, C]) at(rate Rate) (*plan[C], error) {
	if q := place(*ps.quotes.Load(), rate).Load(); q != nil {
		return q.plan, nil
	}
	config, err := ps.configure(rate)
	if err == nil && ps.rates.samePer && rate.Per != ps.rates.base.Per {
		err = errOtherWindow(rate)
	}
	if err != nil {
		return nil, err
	}
	same := rate
	if !ps.rates.windows {
		same = rate.reduced()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p, byID := ps.quoted(same), *ps.byID.Load()
	switch {
	case p == nil && len(byID) >= maxPlans, ps.count >= 2*maxPlans:
		return nil, &ConfigError{"rate", rate, "must be one of the 65,536 rates that a rule has at most"}
	case p == nil:
		p = &plan[C]{uint32(len(byID) + 1), same, config}
		byID = append(byID, p)
		ps.byID.Store(&byID)
		ps.quote(same, p)
	}
	ps.quote(rate, p)
	return p, nil
}

// quoted returns the plan that rate is known to be, or nil.
func (ps *plans[S, C]) quoted(rate Rate) *plan[C] {
	if q := place(*ps.quotes.Load(), rate).Load(); q != nil {
		return q.plan
	}
	return nil
}

// quote notes that rate is p. It must be called with ps.mu held.
func (ps *plans[S, C]) quote(rate Rate, p *plan[C]) {
	if ps.quoted(rate) != nil {
		return
	}
	quotes := *ps.quotes.Load()
	if ps.count++; 2*ps.count > len(quotes) {
		quotes = make([]atomic.Pointer[quote[C]], 2*len(quotes))
		for i := range *ps.quotes.Load() {
			if q := (*ps.quotes.Load())[i].Load(); q != nil {
				place(quotes, q.rate).Store(q)
			}
		}
	}
	place(quotes, rate).Store(&quote[C]{rate, p})
	ps.quotes.Store(&quotes)
}

var rateSeed = maphash.MakeSeed()

// place returns where the quote of rate is, or is to be put.
func place[C any](quotes []atomic.Pointer[quote[C]], rate Rate) *atomic.Pointer[quote[C]] {
	for i := maphash.Comparable(rateSeed, rate); ; i++ {
		at := &quotes[i&uint64(len(quotes)-1)]
		if q := at.Load(); q == nil || q.rate == rate {
			return at
		}
	}
}
