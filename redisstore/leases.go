package redisstore

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// leases holds the units that were taken ahead for keys that are asked for often. They have
// been charged in the server, and are spent in this process.
//
// Each call to the server for a key decides how many units to take ahead. The number
// doubles if the previous call was a short time ago, and halves otherwise, so that a key
// that is seldom asked for takes none. It is at most an eighth of what is left, so that
// near its limit each request for a key asks the server.
type leases struct {
	maxUnits int64                         // most units that one key may have here
	back     func(key string, l lot) error // gives units back to the server
	note     func(key, process string) (string, error)
	process  string        // the name of this store in the server
	term     time.Duration // how long units are kept that no request spends

	mu     sync.Mutex
	calls  int64                // the number of the last call that takes units ahead
	lost   map[int64]*aheadCall // those whose replies were lost, by number
	held   map[stateID]*lease
	closed bool
	errs   []error
	giving sync.WaitGroup
}

const (
	// soon is how soon after another a call must come for the number of units to double.
	soon = 100 * time.Millisecond

	// leaseTerm is the usual term of leases.
	leaseTerm = 500 * time.Millisecond

	// maxLeases is how many keys have a lease.
	maxLeases = 1 << 14

	// leaseShare sets how much is taken ahead: at most 1/leaseShare of what is left.
	leaseShare = 8
)

// A lease is what is known of one key that has been asked for, with the units that were
// taken ahead for it.
type lease struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate

	key    string // in the server
	limit  int64
	want   int64     // how many units to take the next time
	asked  time.Time // when the server was last asked
	units  int64     // sum of all lots
	lots   []lot     // oldest first
	filled time.Time // when the last lot came
	left   int       // what remained in the server at that time
	reset  time.Duration
	expiry *time.Timer
	lost   int // number of calls whose replies were lost, and of which it is not known yet what they have taken
}

// A lot is a number of units that were charged together, at an instant of the server's
// clock.
type lot struct {
	kind      byte
	units, at int64
	call      leaseCall
}

func newLeases(set *settings, back func(string, lot) error, note func(key, process string) (string, error)) *leases {
	if set.leases == 0 {
		return nil
	}
	process := strconv.FormatUint(rand.Uint64(), 36)
	return &leases{maxUnits: set.leases, term: set.leaseTerm, back: back, note: note, process: process, held: make(map[stateID]*lease), lost: make(map[int64]*aheadCall)}
}

// A stateID stands for the rule and key of a state: two hashes of them, of 64 bits each,
// under random seeds of this process. Keys may be long, and are not kept.
type stateID [2]uint64

var (
	keySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	ruleSeed = maphash.MakeSeed()
)

// stateIDOf returns the identity of the state that a names.
func stateIDOf(a *ratelimit.Ask) stateID {
	rule := maphash.String(ruleSeed, a.Rule) // once: rules are few, and 64 bits tell them apart
	return stateID{maphash.String(keySeeds[0], a.Key) ^ rule, maphash.String(keySeeds[1], a.Key) ^ rule}
}

// of returns the lease for a, or nil if there is none. The caller must hold ls.mu.
func (ls *leases) of(a *ratelimit.Ask) *lease {
	l := ls.held[stateIDOf(a)]
	if l == nil || l.algorithm != a.Algorithm || l.rate != a.Rate {
		return nil
	}
	return l
}

// spend grants a from units that were taken ahead, if there are enough of them. For a Look, it
// spends none.
func (ls *leases) spend(a *ratelimit.Ask) (ratelimit.Result, bool) {
	if ls == nil || a.N < 0 {
		return ratelimit.Result{}, false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of(a)
	if l == nil || l.units < int64(max(a.N, 1)) {
		return ratelimit.Result{}, false
	}
	left := l.units - int64(a.N)
	if !a.Look {
		l.units = left
		for n := int64(a.N); n > 0; {
			some := min(n, l.lots[0].units)
			n -= some
			if l.lots[0].units -= some; l.lots[0].units == 0 {
				l.lots = l.lots[1:]
			}
		}
	}
	return ratelimit.Result{
		Allowed:    true,
		Limit:      int(l.limit),
		Remaining:  l.left + int(left),
		ResetAfter: max(l.reset-time.Since(l.filled), 0),
	}, true
}

// ahead returns how many units the next call for j is to take ahead, and how many must be
// left in the server afterwards.
func (ls *leases) ahead(j *shared) (units, reserve int64, call leaseCall) {
	// Each unit of a leaky bucket has its own time to leave, so none can be taken for
	// later. A call that only looks charges nothing, not even ahead.
	if ls == nil || j.kind == 'l' || slices.Max(j.costs) == 0 {
		return 0, 0, call
	}
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return 0, 0, call
	}
	l := ls.of(j.ask)
	if l == nil {
		ls.replace(stateIDOf(j.ask), &lease{algorithm: j.ask.Algorithm, rate: j.ask.Rate, key: j.key.text, limit: j.limit, asked: now})
		return 0, 0, call
	}
	if now.Sub(l.asked) <= soon {
		l.want = min(2*l.want+1, ls.maxUnits)
	} else {
		l.want /= 2
	}
	l.asked = now
	if units = min(l.want, ls.maxUnits-l.units); units <= 0 || l.lost > 0 {
		return 0, 0, call // another call would note its reply in the place of the lost one
	}
	ls.calls++
	return units, (leaseShare - 1) * units, leaseCall{ls.process, ls.calls}
}

// replace puts l in the place of the lease of the state with this identity. If there is none, it
// looks at two leases in no particular order, and drops those of keys that have not been asked for
// of late; if leases is full, it drops one in any case. The caller must hold ls.mu.
func (ls *leases) replace(id stateID, l *lease) {
	if old := ls.held[id]; old != nil {
		ls.giveBack(old)
	} else {
		looked := 0
		for other, old := range ls.held {
			if l.asked.Sub(old.asked) > 2*ls.term || len(ls.held) == maxLeases {
				ls.giveBack(old)
				delete(ls.held, other)
			}
			if looked++; looked == 2 {
				break
			}
		}
	}
	ls.held[id] = l
}

// fill records that a call for j took units ahead, charged at an instant of the server's
// clock, and that its last result was res.
func (ls *leases) fill(j *shared, units, at int64, res ratelimit.Result) {
	if units == 0 {
		return
	}
	taken := lot{j.kind, units, at, j.lease}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of(j.ask)
	if ls.closed {
		go func() { _ = ls.back(j.key.text, taken) }() // the call was under way when the store was closed
		return
	}
	if l == nil {
		ls.giveBack(&lease{key: j.key.text, lots: []lot{taken}})
		return
	}
	if over := l.units + units - ls.maxUnits; over > 0 { // two calls for the key were under way
		ls.giveBack(&lease{key: l.key, lots: []lot{{j.kind, over, at, j.lease}}})
		taken.units -= over
	}
	l.lots = append(l.lots, taken)
	l.units += taken.units
	l.left, l.reset, l.filled = res.Remaining-int(units), res.ResetAfter, time.Now()
	if l.expiry == nil {
		l.expiry = time.AfterFunc(ls.term, func() {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			ls.giveBack(l)
		})
	} else {
		l.expiry.Reset(ls.term)
	}
}

// giveBack starts to give back all units of l. The caller must hold ls.mu.
func (ls *leases) giveBack(l *lease) {
	if l.expiry != nil {
		l.expiry.Stop()
	}
	lots := l.lots
	l.lots, l.units = nil, 0
	if len(lots) == 0 {
		return
	}
	ls.giving.Go(func() {
		for _, some := range lots {
			err := ls.back(l.key, some)
			ls.mu.Lock()
			if ls.closed && err != nil {
				ls.errs = append(ls.errs, err)
			}
			ls.mu.Unlock()
		}
	})
}

// forget drops the units that were taken ahead for asks, which are being reset.
func (ls *leases) forget(asks []ratelimit.Ask) {
	if ls == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := range asks {
		if l := ls.held[stateIDOf(&asks[i])]; l != nil {
			l.lots, l.units = nil, 0
		}
	}
}

// close gives back all units, waits until that is done, and stops units from being taken
// ahead.
func (ls *leases) close() error {
	if ls == nil {
		return nil
	}
	ls.mu.Lock()
	ls.closed = true
	for _, l := range ls.held {
		ls.giveBack(l)
	}
	clear(ls.held)
	for _, c := range ls.lost {
		if c.timer.Stop() {
			ls.giving.Go(func() { ls.find(c) })
		}
	}
	ls.mu.Unlock()
	ls.giving.Wait()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return errors.Join(ls.errs...)
}
