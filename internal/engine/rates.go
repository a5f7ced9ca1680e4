package engine

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// maxPlans bounds how many distinct rates a rule grants, from one change of the
// rule to the next.
const maxPlans = 1 << 16

// A Rate is what a limit is: Requests units granted every Per, and at most Burst at
// once; a Burst of 0 means Requests.
type Rate struct {
	Requests int           // at least 1
	Per      time.Duration // above 0
	Burst    int           // at least 0
}

// reduced returns the rate with the smallest Requests and Per that a bucket cannot tell
// from r. r is valid.
func (r Rate) reduced() Rate {
	burst := r.Burst
	if burst == 0 {
		burst = r.Requests
	}
	d := exact.GCD(int64(r.Requests), int64(r.Per))
	return Rate{r.Requests / int(d), r.Per / time.Duration(d), burst}
}

// Rates are what the keys of one rule are granted.
type Rates struct {
	Base    Rate            // where nothing else is asked for
	Tiers   map[string]Rate // by name
	MayGrow bool            // whether a request may ask for a rate that is not among them
	SamePer bool            // whether that must have the Per of Base
	Windows bool            // whether Per is the length of a window, not a part of a quotient
}

// Refusals make the errors that say why a rate is not granted.
type Refusals struct {
	OtherPer func(Rate) error // its Per is not that of the rule
	TooMany  func(Rate) error // the rule has too many rates already
}

// Wanted says at which rate a request is to be decided: at Rate if that is set, else at
// that of Tier, else at the rule's own.
type Wanted struct {
	Tier string // name of a tier of the rule, or of none
	Rate *Rate  // may be nil
}

// A ratePlan is one of the rates of a rule, ready to decide by.
type ratePlan[C any] struct {
	id     uint32 // its place among the rule's plans, from 1 on
	rate   Rate   // of the rates that mean the same, the reduced one
	config C
}

// ratePlans are the plans of one rule: of its own rate, of its tiers, and of the rates
// that requests have asked for. Each shard works by one ratePlans, and is handed another
// one when the rule is changed.
//
// A plan is added when its rate is first met, and never dropped. It is found without
// a lock.
type ratePlans[S any, C Algorithm[S, C]] struct {
	rates     Rates
	refusals  *Refusals
	configure func(Rate) (C, error)
	base      *ratePlan[C]
	tiers     map[string]*ratePlan[C]

	mu    sync.Mutex // held while an entry is added
	count int        // entries; guarded by mu

	byID    atomic.Pointer[[]*ratePlan[C]]
	entries atomic.Pointer[[]atomic.Pointer[rateEntry[C]]] // open-addressed by rate, at most half full
}

// A rateEntry says which plan a rate has. Rates that mean the same have one plan.
type rateEntry[C any] struct {
	rate Rate
	plan *ratePlan[C]
}

// newRatePlans returns the plans of a rule that grants r, or the problem with one of its
// rates.
func newRatePlans[S any, C Algorithm[S, C]](r Rates, configure func(Rate) (C, error), refusals *Refusals) (ps *ratePlans[S, C], err error) {
	ps = &ratePlans[S, C]{rates: r, configure: configure, refusals: refusals}
	ps.byID.Store(new([]*ratePlan[C]))
	entries := make([]atomic.Pointer[rateEntry[C]], 2)
	ps.entries.Store(&entries)
	if ps.base, err = ps.at(r.Base); err != nil {
		return nil, err
	}
	if len(r.Tiers) > 0 {
		ps.tiers = make(map[string]*ratePlan[C], len(r.Tiers))
	}
	for tier, rate := range r.Tiers {
		if ps.tiers[tier], err = ps.at(rate); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

// hasOneRate reports whether there is one plan, and can be no other.
func (ps *ratePlans[S, C]) hasOneRate() bool { return ps.tiers == nil && !ps.rates.MayGrow }

// ofTier returns the plan of a tier, or that of the rule's own rate if there is no such
// tier.
func (ps *ratePlans[S, C]) ofTier(tier string) *ratePlan[C] {
	if ps.tiers != nil {
		if p := ps.tiers[tier]; p != nil {
			return p
		}
	}
	return ps.base
}

// pick returns the plan for want. If that asks for an invalid rate, it is the plan of
// the rule's own, and err says why.
func (ps *ratePlans[S, C]) pick(want Wanted) (p *ratePlan[C], err error) {
	if want.Rate == nil {
		return ps.ofTier(want.Tier), nil
	}
	if p, err = ps.at(*want.Rate); err != nil {
		return ps.base, err
	}
	return p, nil
}

// at returns the plan of rate.
func (ps *ratePlans[S, C]) at(rate Rate) (*ratePlan[C], error) {
	if p := ps.known(rate); p != nil {
		return p, nil
	}
	config, err := ps.configure(rate)
	if err == nil && ps.rates.SamePer && rate.Per != ps.rates.Base.Per {
		err = ps.refusals.OtherPer(rate)
	}
	if err != nil {
		return nil, err
	}
	same := rate
	if !ps.rates.Windows {
		same = rate.reduced()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p, byID := ps.known(same), *ps.byID.Load()
	switch {
	case p == nil && len(byID) >= maxPlans, ps.count >= 2*maxPlans:
		return nil, ps.refusals.TooMany(rate)
	case p == nil:
		p = &ratePlan[C]{uint32(len(byID) + 1), same, config}
		byID = append(byID, p)
		ps.byID.Store(&byID)
		ps.addLocked(same, p)
	}
	ps.addLocked(rate, p)
	return p, nil
}

// known returns the plan that rate is known to have, or nil.
func (ps *ratePlans[S, C]) known(rate Rate) *ratePlan[C] {
	if e := place(*ps.entries.Load(), rate).Load(); e != nil {
		return e.plan
	}
	return nil
}

// addLocked notes that rate has the plan p. It must be called with ps.mu held.
func (ps *ratePlans[S, C]) addLocked(rate Rate, p *ratePlan[C]) {
	if ps.known(rate) != nil {
		return
	}
	entries := *ps.entries.Load()
	if ps.count++; 2*ps.count > len(entries) {
		entries = make([]atomic.Pointer[rateEntry[C]], 2*len(entries))
		for i := range *ps.entries.Load() {
			if e := (*ps.entries.Load())[i].Load(); e != nil {
				place(entries, e.rate).Store(e)
			}
		}
	}
	place(entries, rate).Store(&rateEntry[C]{rate, p})
	ps.entries.Store(&entries)
}

var rateSeed = maphash.MakeSeed()

// place returns where the entry of rate is, or is to be put.
func place[C any](entries []atomic.Pointer[rateEntry[C]], rate Rate) *atomic.Pointer[rateEntry[C]] {
	for i := maphash.Comparable(rateSeed, rate); ; i++ {
		at := &entries[i&uint64(len(entries)-1)]
		if e := at.Load(); e == nil || e.rate == rate {
			return at
		}
	}
}
