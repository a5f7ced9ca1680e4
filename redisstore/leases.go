package redisstore

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Leases is what was taken ahead for keys that are asked for often, and is spent
// here.
//
// How many units are taken doubles with each call that a key needs soon after the
// last, and halves otherwise: a key that is seldom asked for takes none. No more are
// taken than an eighth of what is left, so that near its limit a key asks for each
// unit.
type leases struct {
	maxUnits int64                         // units of a key
	back     func(key string, l lot) error // gives units back

	mu     sync.Mutex
	held   map[keytable.Hash]*lease
	closed bool
	errs   []error
	giving sync.WaitGroup
}

const (
	// soon is how quickly what was taken ahead is to be spent.
	soon = 100 * time.Millisecond

	// leaseTerm is how long units are kept that nobody spends.
	leaseTerm = 500 * time.Millisecond

	// maxLeases is how many keys are known to be asked for.
	maxLeases = 1 << 14

	// leaseShare says which part of what is left is taken ahead, at most.
	leaseShare = 8
)

// A lease is what is known of one key.
type lease struct {
	ask    ratelimit.Ask
	key    string
	limit  int64
	want   int64     // how many units to take the next time
	asked  time.Time // when the server was last asked
	units  int64     // of all lots
	lots   []lot     // oldest first
	filled time.Time // when the last came
	left   int       // what the server said to remain then
	reset  time.Duration
	expiry *time.Timer
}

// A lot is units that were charged at one instant, by the server's clock.
type lot struct {
	kind      byte
	units, at int64
}

func newLeases(maxUnits int64, back func(string, lot) error) *leases {
	if maxUnits == 0 {
		return nil
	}
	return &leases{maxUnits: maxUnits, back: back, held: make(map[keytable.Hash]*lease)}
}

// of returns the lease for a, or nil. It must be called with ls.mu held.
func (ls *leases) of(a *ratelimit.Ask) *lease {
	l := ls.held[keytable.HashOfPair(a.Rule, a.Key)]
	if l == nil || l.ask.Algorithm != a.Algorithm || l.ask.Rate != a.Rate {
		return nil
	}
	return l
}

// spend answers a by units that were taken ahead, if there are enough.
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
	l.units -= int64(a.N)
	for n := int64(a.N); n > 0; {
		some := min(n, l.lots[0].units)
		n -= some
		if l.lots[0].units -= some; l.lots[0].units == 0 {
			l.lots = l.lots[1:]
		}
	}
	return ratelimit.Result{
		Allowed:    true,
		Limit:      int(l.limit),
		Remaining:  l.left + int(l.units),
		ResetAfter: max(l.reset-time.Since(l.filled), 0),
	}, true
}

// ahead returns how many units to take ahead by a call for j that is made now, if
// reserve are left then.
func (ls *leases) ahead(j *shared) (units, reserve int64) {
	// Each unit of a leaky bucket has a time to go by, and a look takes nothing.
	if ls == nil || j.kind == 'l' || slices.Max(j.costs) == 0 {
		return 0, 0
	}
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return 0, 0
	}
	l := ls.of(j.ask)
	if l == nil {
		ls.replace(&lease{ask: *j.ask, key: j.key.text, limit: j.limit, asked: now})
		return 0, 0
	}
	if now.Sub(l.asked) <= soon {
		l.want = min(2*l.want+1, ls.maxUnits)
	} else {
		l.want /= 2
	}
	l.asked = now
	units = min(l.want, ls.maxUnits-l.units)
	return units, (leaseShare - 1) * units
}

// replace makes l be known, in place of that of the same key, or, where there are
// too many, of another. It must be called with ls.mu held.
func (ls *leases) replace(l *lease) {
	h := keytable.HashOfPair(l.ask.Rule, l.ask.Key)
	out := h
	if ls.held[h] == nil && len(ls.held) == maxLeases {
		for out = range ls.held {
			break
		}
	}
	if ls.held[out] != nil {
		ls.giveBack(ls.held[out])
		delete(ls.held, out)
	}
	ls.held[h] = l
}

// fill notes that units were taken ahead by a call for j, at an instant of the
// server, and what it answered.
func (ls *leases) fill(j *shared, units, at int64, res ratelimit.Result) {
	if units == 0 {
		return
	}
	taken := lot{j.kind, units, at}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.of(j.ask)
	if ls.closed {
		go func() { _ = ls.back(j.key.text, taken) }() // the call was under way
		return
	}
	if l == nil {
		ls.giveBack(&lease{key: j.key.text, lots: []lot{taken}})
		return
	}
	if over := l.units + units - ls.maxUnits; over > 0 { // two calls were under way
		ls.giveBack(&lease{key: l.key, lots: []lot{{j.kind, over, at}}})
		taken.units -= over
	}
	l.lots = append(l.lots, taken)
	l.units += taken.units
	l.left, l.reset, l.filled = res.Remaining-int(units), res.ResetAfter, time.Now()
	if l.expiry == nil {
		l.expiry = time.AfterFunc(leaseTerm, func() {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			ls.giveBack(l)
		})
	} else {
		l.expiry.Reset(leaseTerm)
	}
}

// giveBack gives back what l has. It must be called with ls.mu held.
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

// forget drops what was taken ahead for asks, which are being reset.
func (ls *leases) forget(asks []ratelimit.Ask) {
	if ls == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := range asks {
		if l := ls.held[keytable.HashOfPair(asks[i].Rule, asks[i].Key)]; l != nil {
			l.lots, l.units = nil, 0
		}
	}
}

// close gives everything back and has nothing more be taken ahead.
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
	ls.mu.Unlock()
	ls.giving.Wait()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return errors.Join(ls.errs...)
}
