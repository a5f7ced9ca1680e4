package engine

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// maxPlans is the largest number of different rates that requests can ask for in Wanted.Rate, for one rule.
// When requests have asked for so many rates, the rates that no key uses any more are forgotten, see
// Keys.Admit.
const maxPlans = 1 << 16

// A Rate is a limit: Requests units are granted in each period Per, and at most Burst units at once. A
// Burst of 0 means as many units as Requests. The fields are those of the Rate in the root package.
type Rate struct {
	Requests int           // at least 1
	Per      time.Duration // above 0; 0 if Window is a calendar
	Burst    int           // at least 0
	Window   string        // names the windows in which units are counted; empty if they begin at multiples of Per since the Unix epoch
}

// sharesWindows reports whether keys of one rule may have the rates r and q. They may if both rates count units in
// the same windows. If the windows are the months of a calendar, the day on which these begin may differ.
func (r Rate) sharesWindows(q Rate) bool { return r.Per == q.Per && calendar.Alike(r.Window, q.Window) }

// sameWindows reports whether both rates count units in the same windows.
func (r Rate) sameWindows(q Rate) bool { return r.Per == q.Per && r.Window == q.Window }

// reduced returns the rate r in lowest terms: Requests and Per, in nanoseconds, are divided by their greatest common
// divisor, so that 20 per 2 s becomes 1 per 100 ms. If Burst is 0, the result has the Requests of r as its Burst. A bucket
// decides the same at r and at the result. The rate r must be valid.
func (r Rate) reduced() Rate {
	burst := r.Burst
	if burst == 0 {
		burst = r.Requests
	}
	d := exact.GCD(int64(r.Requests), int64(r.Per))
	return Rate{Requests: r.Requests / int(d), Per: r.Per / time.Duration(d), Burst: burst}
}

// Rates are the rates of one rule.
type Rates struct {
	Base    Rate            // the rule's own rate
	Tiers   map[string]Rate // the rates of the tiers, by the name of the tier
	MayGrow bool            // whether a request may ask for a rate of its own
	SamePer bool            // whether a rate that a request asks for must share the windows of Base, see Rate.sharesWindows
	Learns  bool            // whether even a denied request may give its key another rate, see [Probe]; only a store needs this
	Windows bool            // whether the algorithm counts in windows, so that 10 per second and 20 per 2 seconds are different rates
	Warmup  *Warmup         // how the limit of a new key grows; nil if a new key has the full limit
}

// Refusals holds the functions that make the error for a Wanted.Rate which a rule cannot use.
type Refusals struct {
	OtherPer func(base, r Rate) error // for a rate r whose windows differ from those of base, the rate of the rule
	TooMany  func(Rate) error         // for a new rate, when the rule has the largest number of rates already
}

// Wanted selects the rate of a request. If the field Rate is not nil, this rate is used. Otherwise, the
// rate of the tier with the name Tier is used. If the rule has no such tier, the rule's own rate is
// used.
type Wanted struct {
	Tier string // name of a tier; the rule may have no tier of this name
	Rate *Rate  // the rate that the request asks for; nil if it asks for none
}

// A ratePlan, or plan, is one of the rates of a rule together with the configuration of the algorithm for
// this rate. The rule's own rate and the rate of each tier have a plan each, even if some of these rates are
// equal: a change of the rule may change one of them and leave the others. A rate that a request asks for
// has a plan of its own too, which stays the same when the rule changes.
type ratePlan[S, C any] struct {
	id     tag  // 1 for the first plan of the rule, and so on
	rate   Rate // the rate of the plan; for a bucket without a Warmup, in lowest terms, see Rate.reduced
	config C
	debts  Debtor[S] // the field config, if it computes with debts of keys; nil if the algorithm counts in windows, so that keys have no debt
	ages   aging[S]  // the field config as an algorithm whose new keys have a lower limit; nil if the rule has no Warmup
	holds  holder[S] // the field config as an algorithm that limits running work; nil if the rule does not do that
}

// newRatePlan returns the plan for the given rate, whose configuration is config.
func newRatePlan[S any, C Algorithm[S, C]](id tag, rate Rate, config C) *ratePlan[S, C] {
	p := &ratePlan[S, C]{id: id, rate: rate, config: config}
	if d, ok := any(config).(Debtor[S]); ok && d.Arithmetic() != nil {
		p.debts = d
	}
	p.ages, _ = any(config).(aging[S])
	p.holds, _ = any(config).(holder[S])
	return p
}

// arithmetic returns the Bucket that computes with the debts of keys at the plan (rate) p, or nil if the
// algorithm counts in windows.
func (p *ratePlan[S, C]) arithmetic() *exact.Bucket {
	if p.debts == nil {
		return nil
	}
	return p.debts.Arithmetic()
}

// equals reports whether the plans p and q have the same rate. If so, the state of a key need not be
// converted from one to the other.
func (p *ratePlan[S, C]) equals(q *ratePlan[S, C]) bool { return p == q || p.rate == q.rate }

// ratePlans are the plans of one rule: for its own rate, for the rates of its tiers, and for the rates
// that requests have asked for. When the rule is changed, each shard (part) of its table of keys gets the
// new ratePlans.
//
// If a request asks for a rate that no request has asked for yet, a plan for this rate is added. Plans are
// never removed from a ratePlans. If there are too many, the shards get new ratePlans with only the plans
// that keys use. A decision finds its plan without a lock.
type ratePlans[S any, C Algorithm[S, C]] struct {
	rates     Rates
	refusals  *Refusals
	configure func(Rate, *Warmup) (C, error)
	receipts  *lazyReceipts // the rule's charges that can be given back; they are kept when the plans change
	base      *ratePlan[S, C]
	tiers     map[string]*ratePlan[S, C]

	mu    sync.Mutex // held while a plan, or an entry of the hash table below, is added
	count int32      // number of rates in the hash table below; guarded by mu
	most  int32      // largest number of plans for rates that requests ask for; guarded by mu
	since int32      // how many rates were added or refused since forgetRates made these plans; large if it did not make them; guarded by mu

	// scarce is set when more than 63/64 of the largest number of plans are in use. From then on,
	// Admit forgets rates that no key uses. The last 64th is left for decisions that called Admit before scarce
	// was set.
	scarce atomic.Bool

	byID atomic.Pointer[[]*ratePlan[S, C]] // all plans: the plan with the id i is at index i-1

	// entries is a hash table. It maps each rate that requests have asked for to the plan of this rate. It
	// uses open addressing, and is at most half full.
	entries atomic.Pointer[[]atomic.Pointer[rateEntry[S, C]]]
}

// A rateEntry maps a rate to its plan. Two rates at which the algorithm decides alike have the same
// plan.
type rateEntry[S, C any] struct {
	rate Rate
	plan *ratePlan[S, C]
}

// newRatePlans returns the plans of a rule with the rates r, or an error if one of these rates is
// invalid.
func newRatePlans[S any, C Algorithm[S, C]](
	r Rates, configure func(Rate, *Warmup) (C, error), refusals *Refusals, receipts *lazyReceipts,
) (ps *ratePlans[S, C], err error) {
	ps = &ratePlans[S, C]{rates: r, configure: configure, refusals: refusals, receipts: receipts, most: maxPlans, since: maxPlans}
	ps.byID.Store(new([]*ratePlan[S, C]))
	entries := make([]atomic.Pointer[rateEntry[S, C]], 2)
	ps.entries.Store(&entries)
	if ps.base, err = ps.ownPlan(r.Base); err != nil {
		return nil, err
	}
	if len(r.Tiers) > 0 {
		ps.tiers = make(map[string]*ratePlan[S, C], len(r.Tiers))
	}
	for tier, rate := range r.Tiers {
		if ps.tiers[tier], err = ps.ownPlan(rate); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

// hasOneRate reports whether the rule has only its own rate: it has no tiers, and no request can ask for
// another rate.
func (ps *ratePlans[S, C]) hasOneRate() bool { return ps.tiers == nil && !ps.rates.MayGrow }

// ofTier returns the plan of the given tier or, if the rule has no such tier, the plan of the rule's
// own rate.
func (ps *ratePlans[S, C]) ofTier(tier string) *ratePlan[S, C] {
	if ps.tiers != nil {
		if p := ps.tiers[tier]; p != nil {
			return p
		}
	}
	return ps.base
}

// pick returns the plan that the parameter want selects. If the rule cannot use want.Rate, pick returns
// the plan of the rule's own rate and an error that says why.
func (ps *ratePlans[S, C]) pick(want Wanted) (p *ratePlan[S, C], err error) {
	if want.Rate == nil {
		return ps.ofTier(want.Tier), nil
	}
	if p, err = ps.planFor(*want.Rate); err != nil {
		return ps.base, err
	}
	return p, nil
}

// configured returns the configuration for the given rate. The result same is the rate that the plan for this
// configuration gets. For a bucket without a Warmup, it is the given rate in lowest terms (see Rate.reduced),
// so that equal buckets share a plan. Otherwise it is the given rate. configured returns an error if the rule
// cannot use the rate.
func (ps *ratePlans[S, C]) configured(rate Rate) (config C, same Rate, err error) {
	config, err = ps.configure(rate, ps.rates.Warmup)
	if err == nil && ps.rates.SamePer && !rate.sharesWindows(ps.rates.Base) {
		err = ps.refusals.OtherPer(ps.rates.Base, rate)
	}
	// The limit of a new key grows from Warmup.From to Requests. So if there is a Warmup, Requests stays as it is.
	if !ps.rates.Windows && ps.rates.Warmup == nil && err == nil {
		rate = rate.reduced()
	}
	return config, rate, err
}

// ownPlan adds a plan for the rule's own rate or for the rate of a tier. It is called only before the plans
// are in use.
func (ps *ratePlans[S, C]) ownPlan(rate Rate) (*ratePlan[S, C], error) {
	config, same, err := ps.configured(rate)
	if err != nil {
		return nil, err
	}
	return ps.addPlan(same, config), nil
}

// addPlan adds a plan for the given rate, whose configuration is config. The caller holds ps.mu, unless the
// plans are not in use yet.
func (ps *ratePlans[S, C]) addPlan(rate Rate, config C) *ratePlan[S, C] {
	byID := *ps.byID.Load()
	p := newRatePlan[S](tag(len(byID)+1), rate, config)
	byID = append(byID, p)
	ps.byID.Store(&byID)
	return p
}

// planFor returns the plan for a rate that a request asks for. If there is none yet, planFor adds it. It
// returns an error if the rule cannot use the rate.
func (ps *ratePlans[S, C]) planFor(rate Rate) (*ratePlan[S, C], error) { return ps.find(rate, false) }

// find returns the plan for a rate, and adds the plan if there is none. The caller sets used if a key has been charged at
// this rate. In this case, find adds the plan even if requests have asked for too many rates. It then returns an error only
// if the rule cannot use the rate, or has no id left for another plan.
func (ps *ratePlans[S, C]) find(rate Rate, used bool) (*ratePlan[S, C], error) {
	if p := ps.knownPlan(rate); p != nil {
		return p, nil
	}
	config, same, err := ps.configured(rate)
	if err != nil {
		return nil, err
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.knownPlan(same)
	switch {
	case used && (p != nil || len(*ps.byID.Load()) < maxIDs):
	case used, p == nil && ps.askedLocked() >= ps.most, ps.count >= 2*ps.most:
		return nil, ps.refusals.TooMany(rate)
	default:
		ps.since++
	}
	if p == nil {
		p = ps.addPlan(same, config)
		ps.addLocked(same, p)
	}
	ps.addLocked(rate, p)
	if enough := ps.most - ps.most/64; ps.askedLocked() > enough || ps.count > 2*enough {
		ps.scarce.Store(true)
	}
	return p, nil
}

// askedLocked returns the number of plans for rates that requests have asked for. The caller holds ps.mu.
func (ps *ratePlans[S, C]) askedLocked() int32 {
	return int32(len(*ps.byID.Load()) - 1 - len(ps.tiers))
}

// knownPlan returns the plan for a rate that requests have asked for, or nil if there is no such plan yet.
func (ps *ratePlans[S, C]) knownPlan(rate Rate) *ratePlan[S, C] {
	if e := slot(*ps.entries.Load(), rate).Load(); e != nil {
		return e.plan
	}
	return nil
}

// addLocked adds an entry that maps the given rate to the plan (rate) p. The caller holds ps.mu.
func (ps *ratePlans[S, C]) addLocked(rate Rate, p *ratePlan[S, C]) {
	if ps.knownPlan(rate) != nil {
		return
	}
	entries := *ps.entries.Load()
	if ps.count++; 2*int(ps.count) > len(entries) {
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

// slot returns the slot of the hash table that has the entry for the given rate or, if there is no such
// entry, the free slot where such an entry belongs.
func slot[S, C any](entries []atomic.Pointer[rateEntry[S, C]], rate Rate) *atomic.Pointer[rateEntry[S, C]] {
	for i := maphash.Comparable(rateSeed, rate); ; i++ {
		at := &entries[i&uint64(len(entries)-1)]
		if e := at.Load(); e == nil || e.rate == rate {
			return at
		}
	}
}
