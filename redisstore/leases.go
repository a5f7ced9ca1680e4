package redisstore

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// leases holds units that were taken ahead: the server has charged them to a key with many requests, and
// later requests in this process spend them without a call. The units of one key are a lease.
//
// Before each call to the server for a key, this process decides how many units to take for later
// requests. The number doubles if the previous call was a short time ago, and halves otherwise, so that
// nothing is taken for a key with few requests. At most an eighth of the units that remain is taken, so
// that a key near its limit calls the server for each request.
type leases struct {
	maxUnits int64 // how many unspent units this process may have for one key
	notes    leaseNotes
	process  string        // the name of this store in its notes to the server about units taken for later requests
	term     time.Duration // how long unspent units are kept before they are given back

	mu      sync.Mutex
	calls   int64                // how many calls were made that may take units for later requests; also the number of the last of them
	returns int64                // how many lots (units that one call took) the store began to give back; also the number of the last lot
	open    map[stateID]int      // for each state, how many calls without a known result may have taken units for later requests
	lost    map[int64]*aheadCall // the calls that may have taken units ahead and whose replies were lost, by the number of the call
	held    map[stateID]*lease
	refunds map[string]*refund // the units to give back, by the name of the key in the server
	closed  bool
	noted   map[string]stateID // set by close: the keys for which the server may still have a note of this store
	failed  error              // the last error of a call that gives units back or reads a note
	kept    int64              // how many units stay charged because they could not be given back in time
	unread  int                // number of calls whose notes could not be read in time; if such a call took units, they stay charged
	running int                // how many goroutines are giving units back or reading notes
	ended   sync.Cond          // signals each decrease of the field running; the method close waits for it
}

// leaseNotes has the calls to the server for units that were taken for later requests. A conn
// implements it.
type leaseNotes interface {
	giveBack(key string, l lot) error
	note(key, process string) (string, error)
	forgetNote(key, process string) error
}

const (
	// soon decides whether a key has many requests: if a call for a key comes within this time after
	// the previous call, it takes more units for later requests than the previous call did.
	soon = 100 * time.Millisecond

	// leaseTerm is how long units are kept that were taken for later requests and not spent. Only
	// tests use another time.
	leaseTerm = 500 * time.Millisecond

	// maxLeases is the largest number of keys with a lease.
	maxLeases = 1 << 14

	// leaseShare limits how much is taken for later requests: at most 1/leaseShare of the units that
	// remain.
	leaseShare = 8
)

// A lease holds the units that were taken for later requests for one key, and the numbers from which
// the next call computes how many units to take.
type lease struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate

	key    string // the name of the state in the server
	limit  int64
	want   int64         // how many units the last call for the key wanted to take for later requests
	asked  time.Time     // when the server was last called for the key
	units  int64         // how many units taken for later requests are not spent yet; they are in lots
	lots   []lot         // the unspent units, grouped by the call that took them, the oldest first
	filled time.Time     // when units taken for later requests were last added to the lease
	left   int           // how many units remained in the server when units were last added to the lease
	reset  time.Duration // the ResetAfter of the key when units were last added to the lease
	expiry *time.Timer
	noted  bool // whether a call for the key may have noted in the server how many units this process has taken for later requests
}

// A lot is the units that one call has taken for later requests. They were charged together, at one instant of the
// server's clock.
type lot struct {
	kind      byte
	units, at int64
	call      leaseCall
	taken     time.Time // when the reply came, by the clock of this process
	back      int64     // a number by which the server recognizes a repeated return of these units; 0 before the first try to return them
}

func newLeases(set *settings, notes leaseNotes) *leases {
	if set.leases == 0 {
		return nil
	}
	ls := &leases{
		maxUnits: set.leases, term: set.leaseTerm, notes: notes, process: strconv.FormatUint(rand.Uint64(), 36),
		open: make(map[stateID]int), lost: make(map[int64]*aheadCall),
		held: make(map[stateID]*lease), refunds: make(map[string]*refund), noted: make(map[string]stateID),
	}
	ls.ended.L = &ls.mu
	return ls
}

// A stateID identifies a state by two 64-bit hashes of the name of the rule and the key, so that its size does not
// depend on the length of these texts. The hashes are valid only in this process.
type stateID [2]uint64

var (
	keySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	ruleSeed = maphash.MakeSeed()
)

// stateIDOf returns the identity of the state that belongs to the rule and the key of the request a.
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

// spend grants the request a from the units that were taken for later requests. It returns false if these units
// are too few. If the field Look of the request is true, nothing is spent.
func (ls *leases) spend(a *ratelimit.Ask) (ratelimit.Result, bool) {
	if ls == nil || a.N < 0 || penalized(a) {
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

// ahead returns how many units a shared call will take for later requests (units), how many units must then
// remain in the server (reserve), and the identity of the call. If the call takes no units ahead, all three
// are zero.
func (ls *leases) ahead(shared *shared) (units, reserve int64, call leaseCall) {
	// Each unit of a leaky bucket belongs to a time at which its request may proceed, so no unit can be
	// kept for a later request. A call that only looks must charge nothing at all. With a Penalty, the server must
	// see each request, because it may have to deny the request by a block even though units are left.
	if ls == nil || shared.kind == 'l' || slices.Max(shared.costs) == 0 || penalized(shared.ask) {
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
	id := stateIDOf(shared.ask)
	if units = min(l.want, ls.maxUnits-l.units); units <= 0 || ls.open[id] > 0 {
		// If ls.open[id] is above 0, the reply of an earlier call is missing and may be lost. In that case
		// only the note of that call in the server shows what that call has taken. A new call that takes units for
		// later requests would overwrite the note.
		return 0, 0, call
	}
	ls.calls++
	ls.open[id]++
	l.noted = true
	return units, (leaseShare - 1) * units, leaseCall{ls.process, ls.calls}
}

// The method replace stores the lease l for the state with this id, in place of the state's old lease. If the
// state has no old lease, replace first looks at two arbitrary leases of other states. It drops such a lease
// if the server was not called for its key during the last 2*ls.term. If there are already maxLeases leases,
// it drops at least one of the two in any case. The caller must hold ls.mu.
func (ls *leases) replace(id stateID, l *lease) {
	if old := ls.held[id]; old != nil {
		l.noted = old.noted && old.key == l.key
		ls.empty(old)
	} else {
		looked := 0
		for other, old := range ls.held {
			if l.asked.Sub(old.asked) > 2*ls.term || len(ls.held) == maxLeases {
				ls.empty(old)
				delete(ls.held, other)
			}
			if looked++; looked == 2 {
				break
			}
		}
	}
	ls.held[id] = l
}

// The method fill records what a shared call has taken for later requests, when its reply has come. The
// arguments are the number of these units, the time of the call by the server's clock (at), and the last result
// of the call (res).
func (ls *leases) fill(shared *shared, units, at int64, res ratelimit.Result) {
	if shared.lease.number == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.known(stateIDOf(shared.ask))
	if units == 0 {
		return
	}
	taken := lot{kind: shared.kind, units: units, at: at, call: shared.lease, taken: time.Now()}
	l := ls.of(shared.ask)
	if l == nil || ls.closed { // the store was closed while the call was under way, or the key has another rate
		ls.giveBack(shared.key.text, taken)
		return
	}
	if over := l.units + units - ls.maxUnits; over > 0 { // a late reply of another call has added units too: give back the surplus
		extra := taken
		extra.units = over
		ls.giveBack(l.key, extra)
		taken.units -= over
	}
	l.lots = append(l.lots, taken)
	l.units += taken.units
	l.left, l.reset, l.filled = res.Remaining-int(units), res.ResetAfter, taken.taken
	if l.expiry == nil {
		l.expiry = time.AfterFunc(ls.term, func() {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			ls.empty(l)
		})
	} else {
		l.expiry.Reset(ls.term)
	}
}

// known is called when it has become known how many units a call for the state with this id has taken for
// later requests. It lowers the number of calls for which this is not known yet. The caller must hold ls.mu.
func (ls *leases) known(id stateID) {
	if ls.open[id]--; ls.open[id] <= 0 {
		delete(ls.open, id)
	}
}

// The method empty gives all units of the lease l back to the server. The caller must hold ls.mu.
func (ls *leases) empty(l *lease) {
	if l.expiry != nil {
		l.expiry.Stop()
	}
	ls.giveBack(l.key, l.lots...)
	l.lots, l.units = nil, 0
}

// forget drops the units that were taken for later requests, for the key of each ask. It is called for a Reset, which
// deletes the states of these keys.
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
