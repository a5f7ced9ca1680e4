package override

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Lists has a List for each limiter of a store in memory. It is safe for concurrent use by multiple goroutines. The zero Lists
// are empty.
type Lists struct {
	mu    sync.Mutex
	lists map[string]*List // by the name of the limiter; guarded by mu
}

// Edit changes the List of the limiter, as [List.Edit] says.
func (l *Lists) Edit(limiter string, changes []Entry, now time.Time) (n int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lists == nil {
		l.lists = make(map[string]*List)
	}
	if l.lists[limiter] == nil {
		l.lists[limiter] = NewList()
	}
	return l.lists[limiter].Edit(changes, now)
}

// Since returns what has changed in the List of the limiter, as [List.Since] says. If the limiter has no List, the version is
// the zero Version.
func (l *Lists) Since(limiter string, v Version) (now Version, set, lifted []Entry, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.lists[limiter]; list != nil {
		return list.Since(v)
	}
	return Version{}, nil, nil, v != Version{}
}

// A List is the list of overrides (exceptions to the rules) of one limiter in a store in memory. It also knows which overrides
// were lifted (removed), so that a reader can ask for what has changed. It is not safe for concurrent use.
type List struct {
	version Version
	items   map[string][]item // the items of each client or prefix; the key of the map is Entry.whom
	dropped uint64            // a reader that has an older version than this one must read the whole list
}

// An item is an override, or a note that an override was lifted (removed).
type item struct {
	Entry
	number uint64 // the Version.Number that the List got when this item was set or lifted
	lifted bool
}

// NewList returns an empty List.
func NewList() *List { return &List{version: Version{List: max(rand.Uint64(), 1)}} }

// Edit sets or lifts (removes) the given overrides at the time now. The result n is how many overrides the List has then. If n
// is above MaxShared, the result ok is false, and the List stays as it was.
func (l *List) Edit(changes []Entry, now time.Time) (n int, ok bool) {
	next := List{l.version, make(map[string][]item, len(l.items)), l.dropped}
	next.version.Number++
	for whom, items := range l.items {
		items = slices.Clone(items)
		for i := range items {
			if x := &items[i]; !x.lifted && x.Ended(now) {
				x.lifted, x.number = true, next.version.Number
			}
		}
		next.items[whom] = items
	}
	for _, c := range changes {
		items := next.items[c.whom()]
		for i := range items {
			if x := &items[i]; !x.lifted && c.replaces(&x.Entry) {
				x.lifted, x.number = true, next.version.Number
			}
		}
		if c.stays() {
			same := func(x item) bool { return c.Effect == x.Effect && slices.Equal(c.Rules, x.Rules) }
			items = append(slices.DeleteFunc(items, same), item{c, next.version.Number, false})
		}
		next.items[c.whom()] = items
	}
	if n = next.forget(); n > MaxShared {
		return n, false
	}
	*l = next
	return n, true
}

// forget forgets the oldest notes about overrides that were lifted (removed), if there are more than MaxShared such
// notes. A reader that has not read these notes yet must read the whole list. The result of forget is the number of
// overrides.
func (l *List) forget() (n int) {
	var lifted []uint64
	for _, items := range l.items {
		for _, x := range items {
			if x.lifted {
				lifted = append(lifted, x.number)
			} else {
				n++
			}
		}
	}
	if len(lifted) <= MaxShared {
		return n
	}
	slices.Sort(lifted)
	l.dropped = lifted[len(lifted)-MaxShared/2]
	for whom, items := range l.items {
		items = slices.DeleteFunc(items, func(x item) bool { return x.lifted && x.number <= l.dropped })
		if l.items[whom] = items; len(items) == 0 {
			delete(l.items, whom)
		}
	}
	return n
}

// Since returns the present version, and what has changed since the given version: the overrides that were set, and the
// overrides that were lifted (removed). If the last result is true, the second result is the whole list instead.
func (l *List) Since(v Version) (now Version, set, lifted []Entry, whole bool) {
	if whole = v.List != l.version.List || v.Number < l.dropped; whole {
		v.Number = 0
	}
	var items []item
	for _, all := range l.items {
		for _, x := range all {
			if x.number > v.Number && (!whole || !x.lifted) {
				items = append(items, x)
			}
		}
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.number, b.number) })
	for _, x := range items {
		if x.lifted {
			lifted = append(lifted, x.Entry)
		} else {
			set = append(set, x.Entry)
		}
	}
	return l.version, set, lifted, whole
}
