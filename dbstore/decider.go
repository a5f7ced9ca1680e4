package dbstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/books"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

// A decider decides on the calls of a group with the code of a MemoryStore: it loads the rows of the group into the store, lets the
// store decide, and reads the new values of the rows from the store. After that, the store forgets all keys.
type decider struct {
	store *ratelimit.MemoryStore
	book  *engine.Book
	time  time.Time // what the clock of the store shows
}

// Now returns the time of the decision.
func (d *decider) Now() time.Time { return d.time }

// deciders has the deciders that are not in use.
var deciders = sync.Pool{New: func() any {
	d := &decider{time: time.Unix(0, 0)} // the instants in a row are counted from this time, the Unix epoch
	var err error
	if d.store, err = ratelimit.NewMemoryStore(ratelimit.WithClock(d), ratelimit.WithMaxKeys(1<<20)); err != nil {
		panic(err) // the options are valid
	}
	d.book = books.Of(d.store)
	return d
}}

// A row is what a group knows about one row of the database.
type row struct {
	key     string
	old     []byte        // the value that the row has, as far as is known
	seen    bool          // whether old is set
	guessed bool          // whether old is only a guess: the Store knows nothing of the row, and assumes that there is none
	record  bool          // whether the row is the record of a request with an ID
	charge  engine.Charge // the names (rule, algorithm and key) by which the engine finds the row's state; not used for a record
	used    bool          // whether a decision of the last attempt has used the row
	broken  error         // why the value could not be loaded in the last attempt
	new     []byte        // the value after the decisions of the last attempt
	expires time.Time
}

// chargeOf returns the names by which the engine knows the state of the ask.
func chargeOf(a *ratelimit.Ask) engine.Charge {
	c := engine.Charge{Rule: a.Rule, Algorithm: string(a.Algorithm), Key: a.Key, Shadow: a.Shadow, Penalty: penalty.Rule(a.Penalty)}
	if a.Warmup != (ratelimit.Warmup{}) {
		c.Warmup = &engine.Warmup{From: int64(a.Warmup.From), Over: a.Warmup.Over, Raise: true}
	}
	return c
}

// A group has calls that share rows, and these rows. The calls are decided one after the other, in the order of the slice calls.
type group struct {
	calls  []*call
	rows   map[string]*row
	keys   []string // the keys of the rows, sorted
	misses int      // how many attempts have failed because another process had changed a row first
}

// add adds the call c and the rows of c to g.
func (g *group) add(c *call) {
	g.calls = append(g.calls, c)
	for i, key := range c.keys {
		r := g.rows[key]
		if r == nil {
			r = &row{key: key}
			g.rows[key] = r
			at, _ := slices.BinarySearch(g.keys, key)
			g.keys = slices.Insert(g.keys, at, key)
		}
		if r.record = i >= len(c.asks); r.record {
			continue
		}
		if r.charge.Rule == "" && r.charge.Key == "" || c.asks[i].Penalty.After > 0 && !c.asks[i].Shadow {
			r.charge = chargeOf(&c.asks[i])
		}
	}
}

// decide decides on all calls of g, at the given time, and sets the new values of the rows of g. If the parameter heal is set, a state
// that a wrong clock has written, far ahead of this time, is moved back to this time.
func (d *decider) decide(g *group, at time.Time, heal bool) {
	d.time = at
	for _, r := range g.rows {
		r.used, r.broken, r.new, r.expires = false, nil, r.old, time.Time{}
	}
	for _, c := range g.calls {
		c.results, c.replayed = nil, false
		c.err = d.run(c, g, heal)
	}
	for _, r := range g.rows {
		if r.used && r.broken == nil && !r.record {
			d.dump(r)
		}
	}
	d.book.Forget()
}

// dump sets the new value of the row r to the state that the store of d has after the decisions.
func (d *decider) dump(r *row) {
	content, keep := d.book.Dump(&r.charge)
	if r.new = seal(r.key, content); r.new != nil {
		r.expires = timeOf(keep).Add(lateness)
	}
	if r.new != nil && bytes.Equal(r.new, r.old) {
		r.new = r.old
	}
}

// lateness is added to the time at which a row expires. So a row is not deleted too early if the clock of the database makes a small
// step.
const lateness = time.Minute

// timeOf converts an instant of the engine to a time. The instants of the engine are counted from the Unix epoch.
func timeOf(at keytable.Instant) time.Time { return time.Unix(0, 0).Add(at.Duration()) }

// load loads the state of the row r into the store of d, unless that was done before. It returns an error if the value of r is broken.
func (d *decider) load(r *row, heal bool) error {
	if r.used {
		return r.broken
	}
	if r.used = true; r.old == nil {
		return nil
	}
	content, err := unseal(r.key, r.old)
	if err == nil {
		err = d.book.Load(&r.charge, content, heal)
	}
	if err != nil {
		r.broken = brokenError(r, err)
	}
	return r.broken
}

// run makes the call c on the store of d. It sets the results of c, and returns the error.
func (d *decider) run(c *call, g *group, heal bool) (err error) {
	ctx := context.Background()
	if c.what == resets {
		for i := range c.asks {
			r := g.rows[c.keys[i]]
			if r.used && r.broken == nil {
				err = d.store.Reset(ctx, c.asks[i:i+1])
			}
			r.used, r.broken = true, nil // the old value does not matter any more, even if it is broken
		}
		return err
	}
	if c.what == onces {
		if found, err := d.replay(c, g.rows[c.keys[len(c.asks)]]); found || err != nil {
			return err
		}
	}
	for i := range c.asks {
		if err := d.load(g.rows[c.keys[i]], heal); err != nil {
			return err
		}
	}
	switch c.what {
	case takes:
		c.results, err = d.store.Take(ctx, c.asks)
	case onces:
		if c.results, _, err = d.store.Once(ctx, c.once, c.asks); err == nil {
			d.record(c, g.rows[c.keys[len(c.asks)]])
		}
	case settles:
		err = d.store.Settle(ctx, c.asks)
	case pardons:
		err = d.store.Pardon(ctx, c.asks)
	default:
		err = fmt.Errorf("dbstore: call %d", c.what)
	}
	return err
}
