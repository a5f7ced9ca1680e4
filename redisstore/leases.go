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

// leases holds units that were taken ahead for keys with many requests: the server has charged them, and
// later requests in this process spend them.
//
// Each call to the server decides how many units to take ahead for its key. The number doubles if the
// previous call was a short time ago, and halves otherwise, so that nothing is taken for a key with few
// requests. At most an eighth of the units that remain is taken, so that a key near its limit calls the
// server for each request.
type leases struct {
	maxUnits int64                         // how many unspent units this process may have for one key
	back     func(key string, l lot) error // gives units that were taken ahead back to the server
	note     func(key, process string) (string, error)
	process  string        // the name of this store in its notes to the server about units taken ahead
	term     time.Duration // how long unspent units are kept before they are given back

	mu     sync.Mutex
	calls  int64                // how many calls may have taken units ahead; the last such call has this number
	lost   map[int64]*aheadCall // the calls whose replies were lost, by the number of the call
	held   map[stateID]*lease
	closed bool
	errs   []error        // the errors of calls that could not give units back after the method close was called
	giving sync.WaitGroup // waits for the goroutines that give units back
}

const (
	// soon is a time between two calls for the same key. If the second call comes within this time, it
	// takes more units ahead than the first call.
	soon = 100 * time.Millisecond

	// leaseTerm is how long units are kept that were taken ahead and not spent; only tests change it.
	leaseTerm = 500 * time.Millisecond

	// maxLeases is the largest number of keys with a lease.
	maxLeases = 1 << 14

	// leaseShare limits how much is taken ahead: at most 1/leaseShare of the units that remain.
	leaseShare = 8
)

// A lease holds the units that were taken ahead for one key, and the numbers from which the next call
// computes how many units to take.
type lease struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate

	key    string // the name of the state in the server
	limit  int64
	want   int64         // how many units the last call wanted to take ahead
	asked  time.Time     // when the server was last called for the key
	units  int64         // how many units taken ahead are not spent yet; they are in lots
	lots   []lot         // the unspent units, grouped by the call that took them, the oldest first
	filled time.Time     // when units taken ahead were last added to the lease
	left   int           // how many units remained in the server when units were last added to the lease
	reset  time.Duration // the ResetAfter of the key when units were last added to the lease
	expiry *time.Timer
	lost   int // how many calls have lost their reply; it is not yet known how many units these calls took ahead
}

// A lot is a number of units that were charged together, at one instant of the server's clock.
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
	return &leases{
		maxUnits: set.leases, term: set.leaseTerm, back: back, note: note, process: process,
		held: make(map[stateID]*lease), lost: make(map[int64]*aheadCall),
	}
}

// A stateID identifies a state by two 64-bit hashes. Each of the two depends on the name of the rule and on the
// key, however long these are. The hashes are valid only in this process.
type stateID [2]uint64

var (
	keySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	ruleSeed = maphash.MakeSeed()
)

// stateIDOf returns the identity of the state that the ask names by its rule and key.
func stateIDOf(a *ratelimit.Ask) stateID {
	rule := maphash.String(ruleSeed, a.Rule) // one hash is enough: there are few rules
	return stateID{maphash.String(keySeeds[0], a.Key) ^ rule, maphash.String(keySeeds[1], a.Key) ^ rule}
}

// The method leases.of returns the lease for the key and the rate of the ask, or nil if there is no such
// lease. The caller must hold ls.mu.
func (ls *leases) of(a *ratelimit.Ask) *lease {
	l := ls.held[stateIDOf(a)]
	if l == nil || l.algorithm != a.Algorithm || l.rate != a.Rate {
		return nil
	}
	return l
}

// spend grants the ask from the units that were taken ahead. It returns false if these units are too few.
// If the field Look of the ask is true, nothing is spent.
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

// ahead returns how many units a shared call will take ahead (units), how many units must then remain in
// the server (reserve), and the identity of the call. If the call takes no units ahead, all three are zero.
func (ls *leases) ahead(shared *shared) (units, reserve int64, call leaseCall) {
	// Each unit of a leaky bucket belongs to a time at which its request may proceed, so no unit can be
	// kept for a later request. A call that only looks must charge nothing at all.
	if ls == nil || shared.kind == 'l' || slices.Max(shared.costs) == 0 {
		return 0, 0, call
	}
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return 0, 0, call
	}
	l := ls.of(shared.ask)
	if l == nil {
		a := shared.ask
		ls.replace(stateIDOf(a), &lease{algorithm: a.Algorithm, rate: a.Rate, key: shared.key.text, limit: shared.limit, asked: now})
		return 0, 0, call
	}
	if now.Sub(l.asked) <= soon {
		l.want = min(2*l.want+1, ls.maxUnits)
	} else {
		l.want /= 2
	}
	l.asked = now
	if units = min(l.want, ls.maxUnits-l.units); units <= 0 || l.lost > 0 {
		// After a lost reply (l.lost > 0), a new call that takes units ahead would overwrite the note in the
		// server that shows what the earlier call has taken.
		return 0, 0, call
	}
	ls.calls++
	return units, (leaseShare - 1) * units, leaseCall{ls.process, ls.calls}
}

// The method replace stores the lease l for the state with this id, in place of the state's old lease. If the
// state has no old lease, replace first looks at two arbitrary leases of other states. Of these two, it drops
// those for whose keys the server was not called during the last 2*ls.term. If there are already maxLeases
// leases, it drops at least one of the two in any case. The caller must hold ls.mu.
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

// The method fill records that a shared call took units ahead. The arguments are the number of these units,
// the time of the call by the server's clock (at), and the last result of the call (res).
func (ls *leases) fill(shared *shared, units, at int64, res ratelimit.Result) {
	if units == 0 {
		return
	}
	taken := lot{shared.kind, units, at, shared.lease}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of(shared.ask)
	if ls.closed {
		go func() { _ = ls.back(shared.key.text, taken) }() // the store was closed while the call was under way
		return
	}
	if l == nil {
		ls.giveBack(&lease{key: shared.key.text, lots: []lot{taken}})
		return
	}
	if over := l.units + units - ls.maxUnits; over > 0 { // two calls for the key were under way at the same time, and both took units
		ls.giveBack(&lease{key: l.key, lots: []lot{{shared.kind, over, at, shared.lease}}})
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

// giveBack gives all units of the lease l back to the server, in a goroutine of its own. The caller must
// hold ls.mu.
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

// forget drops the units that were taken ahead for the keys of the asks, because a Reset deletes their
// states.
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

// close gives all units that were taken ahead back, and waits until that is done. Later calls take no units
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
