package override

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Layer is one of the lists of overrides (exceptions to the rules) of a limiter.
type Layer int

// The layers. Overrides of all layers apply together.
const (
	Code   Layer = iota // set by a call in this process
	File                // read from a file, and replaced with each reload
	Shared              // a copy of the list in the store
	numLayers
)

// inOrder returns the layers, the strongest first: if two overrides for one client and the same rules have the same effect and
// end at the same time, the override in the stronger layer decides.
func inOrder() [numLayers]Layer { return [...]Layer{Code, Shared, File} }

// MaxOwn is the largest number of overrides in the layer Code, and also in the layer File. MaxShared is the largest number of
// overrides in the list that a store keeps.
const (
	MaxOwn    = 1 << 16
	MaxShared = 10_000
)

// A Host is what a Board needs to know about its limiter.
type Host struct {
	Wall   func() time.Time                  // the date and the time of day, by which overrides end
	Now    func() keytable.Instant           // the instant now, by the clock with which the limiter decides
	Change func(commit func(), touched *Set) // calls commit, then decides again for waiting callers to whom an override in touched applies
	Source Source                            // the list in a store that processes share; nil if the limiter has none
}

// A Board keeps the overrides (exceptions to the rules) of one limiter. Decisions read the overrides without a lock. The zero
// Board is empty and cannot be changed.
type Board struct {
	Host // set before the Board is used, and never changed

	// How many requests an override has blocked, has exempted from a rule, and has given a rate of its own.
	Blocked, Exempted, Rated atomic.Uint64

	// Barred is how many callers of Wait wait for the end of a block, by an override or by a Penalty.
	Barred atomic.Int64

	set     atomic.Pointer[Set]
	changed atomic.Pointer[chan struct{}] // a channel that the next change closes; nil if nobody waits for a change
	read    atomic.Int64                  // when Poll last began to read the list in the store, as a keytable.Instant; 0 if never
	reading atomic.Bool                   // whether a goroutine that Poll has started reads the list
	ahead   atomic.Int64                  // how far the clock of the store is ahead of the clock of this process, in nanoseconds

	mu      sync.Mutex                    // held while the overrides change
	layers  [numLayers]map[string][]Entry // the overrides, by client or prefix (Entry.whom); guarded by mu, as are the fields below
	lens    [numLayers]int                // how many overrides each layer has
	sweepAt [numLayers]int                // if a layer has at least so many overrides, the next change removes those that have ended
	version Version                       // the version that the list in the store had when the layer Shared was copied from it
}

// Set returns the overrides of all layers, or nil if there are none.
func (b *Board) Set() *Set { return b.set.Load() }

// Meets reports whether there may be an override for a request of this client from this address. It allocates nothing.
func (b *Board) Meets(client, ip string) bool {
	return (b.Source != nil || b.set.Load() != nil) && b.meets(client, ip)
}

// meets does what Meets does. Meets is short so that the compiler inlines it: most limiters have no overrides.
func (b *Board) meets(client, ip string) bool {
	b.Poll()
	set := b.set.Load()
	if set == nil {
		return false
	}
	met := set.Find(client, ip)
	return !met.None()
}

// All returns the overrides of all layers that have not ended, in the order of the clients and then the addresses.
func (b *Board) All() (all []Entry) {
	if b.Set() == nil {
		return nil
	}
	b.mu.Lock()
	for _, l := range inOrder() {
		for _, entries := range b.layers[l] {
			all = append(all, entries...)
		}
	}
	b.mu.Unlock()
	now := b.Time()
	all = slices.DeleteFunc(all, func(e Entry) bool { return e.Ended(now) })
	slices.SortFunc(all, func(x, y Entry) int {
		if c := strings.Compare(x.whom(), y.whom()); c != 0 {
			return c
		}
		if c := slices.Compare(x.Rules, y.Rules); c != 0 {
			return c
		}
		return rank(x.Effect) - rank(y.Effect)
	})
	return all
}

// Apply changes the layer l: each of the changes adds an override or, if its Effect is Lift, removes others. If whole is true,
// the changes that have not ended yet replace the whole layer. The result n is how many overrides the layer has then. If n would
// be above MaxOwn, nothing changes, and the result ok is false.
func (b *Board) Apply(l Layer, changes []Entry, whole bool) (n int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Time()
	if whole {
		changes = slices.DeleteFunc(changes, func(e Entry) bool { return e.Ended(now) })
	}
	touched, n, commit := b.plan(l, changes, whole, now)
	if n > MaxOwn {
		return n, false
	}
	b.Change(commit, touched)
	return n, true
}

// plan plans a change of the layer l, as the method Apply describes it, at the time now. The first result is a Set with the new
// overrides and those that they replace: the change matters only to requests to which an override in this Set applies. The
// second result is how many overrides the layer will have. The third result is a function that makes the change. The caller
// holds b.mu.
func (b *Board) plan(l Layer, changes []Entry, whole bool, now time.Time) (touched *Set, n int, commit func()) {
	next := make(map[string][]Entry) // the clients and prefixes that change, each with the overrides that it will have in the layer
	old := func(whom string) []Entry {
		if _, known := next[whom]; !known {
			next[whom] = slices.DeleteFunc(slices.Clone(b.layers[l][whom]), func(e Entry) bool { return whole || e.Ended(now) })
		}
		return next[whom]
	}
	if whole || b.lens[l]+len(changes) >= max(b.sweepAt[l], minSweep) {
		for whom := range b.layers[l] {
			old(whom)
		}
	}
	for _, c := range changes {
		whom := c.whom()
		kept := slices.DeleteFunc(old(whom), func(e Entry) bool { return c.replaces(&e) })
		if c.stays() {
			kept = append(kept, c)
		}
		next[whom] = kept
	}
	n = b.lens[l]
	var touches []Entry
	all, gone := make(map[string][]Entry), make(map[string]Entry)
	for whom, entries := range next {
		was := b.layers[l][whom]
		touches = append(append(touches, was...), entries...)
		n += len(entries) - len(was)
		var of []Entry
		for _, layer := range inOrder() {
			if layer == l {
				of = append(of, entries...)
			} else {
				of = append(of, b.layers[layer][whom]...)
			}
		}
		if len(of) > 0 {
			all[whom] = of
		} else if len(was) > 0 {
			gone[whom] = was[0]
		}
	}
	set := b.set.Load().with(all, gone)
	return NewSet(touches), n, func() {
		if b.layers[l] == nil {
			b.layers[l] = make(map[string][]Entry)
		}
		for whom, entries := range next {
			if b.layers[l][whom] = entries; len(entries) == 0 {
				delete(b.layers[l], whom)
			}
		}
		if b.lens[l] = n; len(next) >= len(b.layers[l]) {
			b.sweepAt[l] = min(2*n, MaxOwn)
		}
		b.set.Store(set)
		b.Wake()
	}
}

// minSweep is how many overrides a layer must have before a change searches the whole layer for overrides that have ended, to
// remove them.
const minSweep = 1024

// Changed returns a channel that is closed when the overrides change.
func (b *Board) Changed() <-chan struct{} {
	for {
		if c := b.changed.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		b.changed.CompareAndSwap(nil, &c)
	}
}

// Count adds a request to Exempted and Rated, if the Ruling r says that an override made it exempt or changed its rate.
func (b *Board) Count(r *Ruling) {
	if r.Freed > 0 {
		b.Exempted.Add(1)
	}
	if r.Rated > 0 {
		b.Rated.Add(1)
	}
}

// Stats are the totals of a Board. They have the fields of OverrideStats in the root package.
type Stats struct {
	Blocked, Exempted, Rated  uint64 // how many requests an override has blocked, has exempted from a rule, or has given another rate
	Blocks, Exemptions, Rates int    // overrides of each effect that have not ended
}

// Stats returns the totals of b.
func (b *Board) Stats() Stats {
	s := Stats{Blocked: b.Blocked.Load(), Exempted: b.Exempted.Load(), Rated: b.Rated.Load()}
	if set := b.Set(); set != nil {
		now := b.Time()
		s.Blocks, s.Exemptions, s.Rates = set.live(Block, now), set.live(Exempt, now), set.live(Rate, now)
	}
	return s
}

// Time returns the time that decides which overrides have ended. It is the time of the store if processes share a list of
// overrides in a store, and otherwise the time of this process.
func (b *Board) Time() time.Time { return b.Wall().Add(time.Duration(b.ahead.Load())) }

// Wake closes the channel that Changed returns, so that goroutines that wait for a change decide again.
func (b *Board) Wake() {
	if changed := b.changed.Swap(nil); changed != nil {
		close(*changed)
	}
}
