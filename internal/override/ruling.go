package override

import (
	"context"
	"time"
)

// forever is the time that a block without an end lasts.
const forever = time.Duration(1<<63 - 1)

// An At has the overrides (exceptions to the rules) of a limiter at one time. A caller that waits keeps its At, and gets a new
// At only if overrides that apply to the caller have changed meanwhile.
type At struct {
	Set   *Set      // nil if there are no overrides
	Doubt *Doubt    // says that the address of the request may be a proxy's, so that no exemption of it applies; nil if there is no doubt
	now   time.Time // when the overrides were looked up; not set if Set is nil
}

// At returns the overrides of b at the present time. The parameter is the Doubt of the request's context, or nil if the context
// has no Doubt.
func (b *Board) At(doubt *Doubt) At {
	a := At{Set: b.Set(), Doubt: doubt}
	if a.Set != nil {
		a.now = b.Time()
	}
	return a
}

// For returns what At returns for a request with the context ctx. Before that, it calls Poll, which now and then reads the list
// of overrides in the store.
func (b *Board) For(ctx context.Context) At {
	b.Poll()
	a := b.At(nil)
	if a.Set != nil {
		a.Doubt = DoubtOf(ctx)
	}
	return a
}

// A Ruling is what overrides (exceptions to the rules) say about one request and its rules.
type Ruling struct {
	Block *Entry // the block that denies the request; if there are several, the block that ends last; nil if there is none
	Freed int    // from how many rules the request is exempt
	Rated int    // how many rules have the rate of an override

	met   Met
	now   time.Time
	doubt *Doubt
	by    []verdict
}

// A verdict says which override decides for one rule.
type verdict struct {
	rule  string
	entry *Entry
}

// Cleared returns an empty Ruling that uses the memory of r again, so that the next request need not allocate memory.
func (r *Ruling) Cleared() Ruling {
	clear(r.by)
	return Ruling{by: r.by[:0]}
}

// Begin looks up the overrides for a request of this client from this address, and stores them in r.
func (r *Ruling) Begin(a At, client, ip string) {
	r.met, r.now, r.doubt = a.Set.Find(client, ip), a.now, a.Doubt
}

// Rule returns the override that decides for the rule with this name, or nil, and notes it in r. The second parameter is a
// function that reports whether the rule can have the rate of a given override.
func (r *Ruling) Rule(name string, takes func(e *Entry) bool) *Entry {
	if r.met.None() {
		return nil
	}
	e := r.met.For(name, func(e *Entry) bool { return !e.Ended(r.now) && !r.doubt.Refuses(e) && (e.Effect != Rate || takes(e)) })
	switch {
	case e == nil:
		return nil
	case e.Effect == Rate:
		r.Rated++
	case e.Effect == Exempt:
		r.Freed++
	case r.Block == nil || e.Until.IsZero() || !r.Block.Until.IsZero() && e.Until.After(r.Block.Until):
		r.Block = e
	}
	r.by = append(r.by, verdict{name, e})
	return e
}

// None is called after the caller has found that no rule applies to the request. Only a block for all rules can deny
// such a request, and None looks for such a block.
func (r *Ruling) None() {
	if r.met.None() || len(r.by) > 0 {
		return
	}
	r.Block = r.met.For("", func(e *Entry) bool { return !e.Ended(r.now) && !r.doubt.Refuses(e) && e.Effect != Rate })
	if r.Block != nil && r.Block.Effect != Block {
		r.Block = nil
	}
}

// Decides reports whether an override decides for any rule.
func (r *Ruling) Decides() bool { return len(r.by) > 0 }

// Of returns the override that decides for the rule with this name, or nil.
func (r *Ruling) Of(rule string) *Entry {
	for _, v := range r.by {
		if v.rule == rule {
			return v.entry
		}
	}
	return nil
}

// About returns the override that decides for the rule with this name. If no override decides, About looks for one that
// was passed over because its rate does not fit the rule. It returns nil if there is no such override either.
func (r *Ruling) About(rule string) *Entry {
	if e := r.Of(rule); e != nil {
		return e
	}
	return r.met.For(rule, func(e *Entry) bool { return !e.Ended(r.now) && e.Effect == Rate })
}

// Rest returns for how long the block in r.Block still lasts.
func (r *Ruling) Rest() time.Duration {
	if r.Block.Until.IsZero() {
		return forever
	}
	return max(r.Block.Until.Sub(r.now), 1)
}
