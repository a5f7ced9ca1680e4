package override

import (
	"context"
	"errors"
	"math"
	"time"
)

// A Source is a function that reads the list of overrides (exceptions to the rules) of one limiter from a store. Several processes
// share this list. A Source returns what has changed in the list since the version v, or the whole list.
type Source func(ctx context.Context, v Version) (Changes, error)

// A Version is the version of a list of overrides in a store.
type Version struct {
	List   uint64 // a number that identifies the list; a list that is made after the store was emptied has another number
	Number uint64 // grows with each change
}

// Changes are the answer of a Source: how its list has changed.
type Changes struct {
	Version     Version   // the version of the list now
	Whole       bool      // whether Set is the whole list, instead of what has changed
	Set, Lifted []Entry   // the overrides that were set, and those that were lifted (removed), each in order of the changes
	Now         time.Time // the time of the store
}

// Unknown is a version that no list in a store has. If the layer Shared has this version, the next read brings the whole list.
var Unknown = Version{List: math.MaxUint64}

// Poll starts a goroutine that reads the list of overrides in the store, if the limiter has such a list, and if the last
// reading began more than a second ago. The caller does not wait for the goroutine. If the store cannot be reached, the copy
// of the list that this process already has stays in use.
func (b *Board) Poll() {
	if b.Source == nil {
		return
	}
	now := int64(b.Now())
	if last := b.read.Load(); last != 0 && now-last <= int64(time.Second) || !b.reading.CompareAndSwap(false, true) {
		return
	}
	b.read.Store(now)
	go func() {
		defer b.reading.Store(false)
		_ = b.Read(context.Background())
	}()
}

// errStale means that another goroutine has changed this process's copy of the list since the read of the list in the store began.
var errStale = errors.New("ratelimit: the overrides have changed meanwhile")

// Read reads what has changed in the list in the store, and changes the copy in this process. It returns an error if the Source
// fails, or if another goroutine has changed the copy meanwhile in each of ten tries.
func (b *Board) Read(ctx context.Context) (err error) {
	const tries = 10
	for range tries {
		if err = b.readOnce(ctx); !errors.Is(err, errStale) {
			return err
		}
	}
	return err
}

// readOnce tries once to do what Read does. It returns errStale if another goroutine has changed the copy meanwhile.
func (b *Board) readOnce(ctx context.Context) error {
	since := b.sharedVersion()
	c, err := b.Source(ctx, since)
	if err != nil {
		return err
	}
	b.ahead.Store(int64(c.Now.Sub(b.Wall())))
	if c.Version == since {
		return nil
	}
	changes := make([]Entry, 0, len(c.Lifted)+len(c.Set))
	for _, e := range c.Lifted {
		changes = append(changes, e.lifting())
	}
	return b.learn(append(changes, c.Set...), c.Whole, since, c.Version)
}

// ReadAfter reads the list in the store after these changes were made there. If the list cannot be read, ReadAfter makes the
// changes in this process's copy of the list, so that this process obeys them at once.
func (b *Board) ReadAfter(ctx context.Context, changes []Entry) {
	if b.Read(ctx) != nil {
		_ = b.learn(changes, false, b.sharedVersion(), Unknown) // an error means that the list was read meanwhile
	}
}

// sharedVersion returns the version that the copy of the list in the store (the layer Shared) has.
func (b *Board) sharedVersion() Version {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// learn applies changes that were made in the store to the copy of the list (the layer Shared). The last two parameters are the
// versions of the list before and after these changes. If another goroutine has changed the copy meanwhile, the changes may
// not fit it any more (the method Permits decides that); learn then returns errStale.
func (b *Board) learn(changes []Entry, whole bool, since, now Version) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.version.Permits(since, now, whole) {
		return errStale
	}
	b.version = now
	touched, _, commit := b.plan(Shared, changes, whole, b.Time())
	b.Change(commit, touched)
	return nil
}

// Permits reports whether changes can be applied to a copy of the list that has the version v. The first two
// parameters are the versions of the list before and after these changes; if whole is true, the changes are the whole
// list instead. The changes can be applied if v is the version before them. They can also be applied to a later
// version of the same list, up to the version after them: the copy then has some of the changes already. They cannot be
// applied to an older version, because other changes would be missing, unless they are the whole list.
func (v Version) Permits(since, now Version, whole bool) bool {
	later := v.List == now.List && v.Number <= now.Number && (whole || since.List == v.List && since.Number <= v.Number)
	return v == since || later
}
