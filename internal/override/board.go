package override

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A Layer is one of the lists of overrides of a limiter.
type Layer int

// The layers. Overrides of all layers apply together.
const (
	Code   Layer = iota // set by a call in this process
	File                // read from a file, and replaced with each reload
	Shared              // a copy of the list in the store
	numLayers
)

// MaxOwn and MaxShared are the largest numbers of overrides that the layer Code or File, and the list in a store, can have.
const (
	MaxOwn    = 1 << 16
	MaxShared = 10_000
)

// A Board keeps the overrides of one limiter. The zero Board is empty. Decisions read it without a lock. Only one goroutine
// at a time may call Plan, or the function that Plan returns.
type Board struct {
	// The requests that an override has changed, by its effect.
	Blocked, Exempted, Rated atomic.Uint64

	// Barred is how many callers of Wait wait for the end of a block.
	Barred atomic.Int64

	set     atomic.Pointer[Set]
	layers  [numLayers]map[string][]Entry // the overrides by Entry.whom
	lens    [numLayers]int                // how many overrides each layer has
	sweepAt [numLayers]int                // from which number on the next change forgets those of the layer that have ended
	ahead   atomic.Int64                  // how far the clock of the store is ahead of the clock of this process, in nanoseconds
	changed atomic.Pointer[chan struct{}] // closed with the next change; nil if nobody waits for it

	version Version      // of the layer Shared
	read    atomic.Int64 // when the list in the store was last read, as the caller of BeginRead counts time; 0 if it was not
	reading atomic.Bool  // whether the list in the store is being read
}

// A Version is the version of a list of overrides in a store.
type Version struct {
	List   uint64 // which list it is: after the store was emptied, there is another one
	Number uint64 // grows with each change
}

// Version returns the version of the layer Shared. Only one goroutine at a time may call Version or SetVersion.
func (b *Board) Version() Version { return b.version }

// Unknown is a version that no list in a store has. If the layer Shared has it, the next read brings the whole list.
var Unknown = Version{List: math.MaxUint64}

// SetVersion says that the layer Shared will have the version to, after changes that were made since the version from. If
// whole is true, the changes are the whole list. It returns false, and does nothing, if the layer has a version to which
// these changes cannot be applied: a later one, or that of another list.
func (b *Board) SetVersion(from, to Version, whole bool) bool {
	now := b.version
	later := now.List == to.List && now.Number <= to.Number && (whole || from.List == now.List && from.Number <= now.Number)
	if now != from && !later {
		return false
	}
	b.version = to
	return true
}

// BeginRead reports whether the list in the store must be read again, because it was last read more than a second before
// the instant now. If so, the caller calls EndRead afterwards; until then, BeginRead returns false.
func (b *Board) BeginRead(now int64) bool {
	last := b.read.Load()
	if last != 0 && now-last <= int64(time.Second) || !b.reading.CompareAndSwap(false, true) {
		return false
	}
	b.read.Store(now)
	return true
}

// EndRead ends what BeginRead has begun.
func (b *Board) EndRead() { b.reading.Store(false) }

// Set returns the overrides of all layers, or nil if there are none.
func (b *Board) Set() *Set { return b.set.Load() }

// All returns the overrides of these layers, in the order of the clients and then the addresses.
func (b *Board) All(layers ...Layer) (all []Entry) {
	for _, l := range layers {
		for _, entries := range b.layers[l] {
			all = append(all, entries...)
		}
	}
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

// Plan plans to change the layer l: each change is set, or lifts others if its Effect is Lift. If whole is true, the changes
// take the place of the whole layer. The result touched has the changes and what they replace: only requests that it
// meets may be decided differently afterwards. The result n is how many overrides the layer will have. The function commit
// makes the change.
func (b *Board) Plan(l Layer, changes []Entry, whole bool, now time.Time) (touched *Set, n int, commit func()) {
	next := make(map[string][]Entry) // the clients and prefixes that change, with what they will have in the layer
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
		for _, layer := range []Layer{Code, Shared, File} { // of equal overrides in two layers, the first decides
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

// minSweep is the number of overrides of a layer below which none are forgotten because they have ended.
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

// SetClock says that the clock of the store showed store when the clock of this process showed here.
func (b *Board) SetClock(store, here time.Time) { b.ahead.Store(int64(store.Sub(here))) }

// Now returns the time by which overrides end, when the clock of this process shows here.
func (b *Board) Now(here time.Time) time.Time { return here.Add(time.Duration(b.ahead.Load())) }

// Wake closes the channel that Changed returns, as a change does.
func (b *Board) Wake() {
	if changed := b.changed.Swap(nil); changed != nil {
		close(*changed)
	}
}
