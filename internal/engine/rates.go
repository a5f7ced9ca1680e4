package engine

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// maxPlans is the largest number of distinct rates of a rule, from one change of the rule to
// the next.
const maxPlans = 1 << 16

// A Rate is a limit: Requests units are granted every Per, and at most Burst units at once. A
// Burst of 0 means Requests. It has the fields of the Rate of the root package.
type Rate struct {
	Requests int           // at least 1
	Per      time.Duration // above 0
	Burst    int           // at least 0
}

// reduced returns the rate with the smallest Requests and Per that means the same as r to a
// bucket. r is valid.
func (r Rate) reduced() Rate {
	burst := r.Burst
	if burst == 0 {
		burst = r.Requests
	}
	d := exact.GCD(int64(r.Requests), int64(r.Per))
	return Rate{r.Requests / int(d), r.Per / time.Duration(d), burst}
}

// Rates are the rates of one rule.
type Rates struct {
	Base    Rate            // the rule's own rate
	Tiers   map[string]Rate // by name
	MayGrow bool            // whether a request may ask for a rate that is not among them
	SamePer bool            // whether that rate must have the Per of Base
	Windows bool            // whether 10 per second and 20 per 2 seconds differ, as windows do
	Warmup  *Warmup         // how the limit of a new key grows; nil if that has the full limit
}

// Refusals make the errors for a rate that a request asks for and does not get.
type Refusals struct {
	OtherPer func(Rate) error // the rate's Per is not that of the rule
	TooMany  func(Rate) error // the rule has too many rates already
}

// Wanted says at which rate a request is decided: at Rate if that is not nil; otherwise at the
// rate of Tier if the rule has that tier; otherwise at the rule's own rate.
type Wanted struct {
	Tier string // may be a name that is no tier of the rule
	Rate *Rate  // may be nil
}

// A ratePlan is one of the rates of a rule, with its configuration ready to decide by.
type ratePlan[S, C any] struct {
	id     uint32 // 1 for the first plan of the rule, and so on
	rate   Rate   // reduced, if the algorithm is a bucket without a Warmup
	config C
	debts  Debtor[S] // config, if keys owe; nil if it counts in windows
	ages   aging[S]  // config, if it has a Warmup; otherwise nil
}

// newRatePlan returns the plan of this id for rate, which config decides by.
func newRatePlan[S any, C Algorithm[S, C]](id uint32, rate Rate, config C) *ratePlan[S, C] {
	p := &ratePlan[S, C]{id: id, rate: rate, config: config}
	if d, ok := any(config).(Debtor[S]); ok && d.Arithmetic() != nil {
		p.debts = d
	}
	p.ages, _ = any(config).(aging[S])
	return p
}

// arithmetic returns that of the debts of keys at p, or nil if p counts in windows.
func (p *ratePlan[S, C]) arithmetic() *exact.Bucket {
	if p.debts == nil {
		return nil
	}
	return p.debts.Arithmetic()
}

// ratePlans are the plans of one rule: for its own rate, for those of its tiers, and for the
// rates that requests have asked for. Each shard decides by one ratePlans, and gets another
// one when the rule is changed.
//
// A plan is added when a request first asks for its rate, and never removed. Finding a plan
// takes no lock.
type ratePlans[S any, C Algorithm[S, C]] struct {
	rates     Rates
	refusals  *Refusals
	configure func(Rate, *Warmup) (C, error)
	held      *heldReceipts // the same for all plans that the rule ever has
	base      *ratePlan[S, C]
	tiers     map[string]*ratePlan[S, C]

	mu    sync.Mutex // held while an entry is added
	count int        // entries; guarded by mu

	byID atomic.Pointer[[]*ratePlan[S, C]] // plan number id is at index id-1

	// entries is a hash table, open-addressed by rate and at most half full.
	entries atomic.Pointer[[]atomic.Pointer[rateEntry[S, C]]]
}

// A rateEntry says which plan a rate has. Rates that mean the same share one plan.
type rateEntry[S, C any] struct {
	rate Rate
	plan *ratePlan[S, C]
}

// newRatePlans returns the plans of a rule with the rates r, or the error if one is invalid.
func newRatePlans[S any, C Algorithm[S, C]](r Rates, configure func(Rate, *Warmup) (C, error), refusals *Refusals, held *heldReceipts) (ps *ratePlans[S, C], err error) {
	ps = &ratePlans[S, C]{rates: r, configure: configure, refusals: refusals, held: held}
	ps.byID.Store(new([]*ratePlan[S, C]))
	entries := make([]atomic.Pointer[rateEntry[S, C]], 2)
	ps.entries.Store(&entries)
	if ps.base, err = ps.planFor(r.Base); err != nil {
		return nil, err
	}
	if len(r.Tiers) > 0 {
		ps.tiers = make(map[string]*ratePlan[S, C], len(r.Tiers))
	}
	for tier, rate := range r.Tiers {
		if ps.tiers[tier], err = ps.planFor(rate); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

// hasOneRate reports whether the rule can have no other rate than its own.
func (ps *ratePlans[S, C]) hasOneRate() bool { return ps.tiers == nil && !ps.rates.MayGrow }

// ofTier returns the plan of a tier, or that of the rule's own rate if the rule has no such
// tier.
func (ps *ratePlans[S, C]) ofTier(tier string) *ratePlan[S, C] {
	if ps.tiers != nil {
		if p := ps.tiers[tier]; p != nil {
			return p
		}
	}
	return ps.base
}

// pick returns the plan that want asks for. If it asks for a rate that the rule cannot use,
// pick returns the plan of the rule's own rate, and err says why.
func (ps *ratePlans[S, C]) pick(want Wanted) (p *ratePlan[S, C], err error) {
	if want.Rate == nil {
		return ps.ofTier(want.Tier), nil
	}
	if p, err = ps.planFor(*want.Rate); err != nil {
		return ps.base, err
	}
	return p, nil
}

// planFor returns the plan for rate, and adds it if there is none yet. It returns an error if the
// rule cannot use the rate.
func (ps *ratePlans[S, C]) planFor(rate Rate) (*ratePlan[S, C], error) {
	if p := ps.knownPlan(rate); p != nil {
		return p, nil
	}
	config, err := ps.configure(rate, ps.rates.Warmup)
	if err == nil && ps.rates.SamePer && rate.Per != ps.rates.Base.Per {
		err = ps.refusals.OtherPer(rate)
	}
	if err != nil {
		return nil, err
	}
	same := rate
	if !ps.rates.Windows && ps.rates.Warmup == nil { // a young key has a part of Requests
		same = rate.reduced()
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p, byID := ps.knownPlan(same), *ps.byID.Load()
	switch {
	case p == nil && len(byID) >= maxPlans, ps.count >= 2*maxPlans:
		return nil, ps.refusals.TooMany(rate)
	case p == nil:
		p = newRatePlan[S](uint32(len(byID)+1), same, config)
		byID = append(byID, p)
		ps.byID.Store(&byID)
		ps.addLocked(same, p)
	}
	ps.addLocked(rate, p)
	return p, nil
}

// knownPlan returns the plan for rate if there is an entry for it, or nil.
func (ps *ratePlans[S, C]) knownPlan(rate Rate) *ratePlan[S, C] {
	if e := slot(*ps.entries.Load(), rate).Load(); e != nil {
		return e.plan
	}
	return nil
}

// addLocked adds an entry for rate with the plan p. The caller holds ps.mu.
func (ps *ratePlans[S, C]) addLocked(rate Rate, p *ratePlan[S, C]) {
	if ps.knownPlan(rate) != nil {
		return
	}
	entries := *ps.entries.Load()
	if ps.count++; 2*ps.count > len(entries) {
		entries = make([]atomic.Pointer[rateEntry[S, C]], 2*len(entries))
		for i := range *ps.entries.Load() {
			if e := (*ps.entries.Load())[i].Load(); e != nil {
				slot(entries, e.rate).Store(e)
			}
		}
	}
	slot(entries, rate).Store(&rateEntry[S, C]{rate, p})
	ps.entries.Store(&entries)
}

var rateSeed = maphash.MakeSeed()

// slot returns the slot of entries that has the entry for rate or, if there is none, the free
// slot for it.
func slot[S, C any](entries []atomic.Pointer[rateEntry[S, C]], rate Rate) *atomic.Pointer[rateEntry[S, C]] {
	for i := maphash.Comparable(rateSeed, rate); ; i++ {
		at := &entries[i&uint64(len(entries)-1)]
		if e := at.Load(); e == nil || e.rate == rate {
			return at
		}
	}
}
