package redisstore

import (
	"fmt"
	"slices"
	"time"
)

// noteTerm is how long the server keeps a note about units that were taken for later requests. Without the note,
// units cannot be given back.
const noteTerm = time.Minute

// A chore is work that calls the server, such as giving units back. A goroutine does the work. If the work
// fails, it is done again later.
//
// The methods of leases for chores must be called with ls.mu held.
type chore struct {
	do    func()      // does the work once; it is called while ls.mu is not held
	waits bool        // true while the chore waits to be done, and false while a goroutine does the work
	timer *time.Timer // starts the chore when it has waited long enough; may be nil
}

// runAfter makes the chore c wait to be done again after the duration d. After the store was closed, no timer
// is set: only a new call of the method close does the chore again.
func (ls *leases) runAfter(c *chore, d time.Duration) {
	c.waits = true
	if ls.closed {
		return
	}
	c.timer = time.AfterFunc(d, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		ls.run(c)
	})
}

// run starts a goroutine that does the chore c, if c waits.
func (ls *leases) run(c *chore) {
	if !c.waits {
		return
	}
	if c.waits = false; c.timer != nil {
		c.timer.Stop()
	}
	ls.running++
	go func() {
		defer func() {
			ls.mu.Lock()
			defer ls.mu.Unlock()
			ls.running--
			ls.ended.Broadcast()
		}()
		c.do()
	}()
}

// A refund is the chore of giving back units of one key that were taken for later requests. It gives
// back one lot (the units that one call has taken) after the other.
type refund struct {
	chore
	key   string
	lots  []lot
	tries int // how many times in a row the refund has failed
}

// giveBack gives the lots of the given key back to the server, in a goroutine. The caller must hold ls.mu.
func (ls *leases) giveBack(key string, lots ...lot) {
	if len(lots) == 0 {
		return
	}
	r := ls.refunds[key]
	if r == nil {
		r = &refund{key: key, chore: chore{waits: true}}
		r.do = func() { ls.refund(r) }
		ls.refunds[key] = r
	}
	r.lots = append(r.lots, lots...)
	if r.tries == 0 {
		ls.run(&r.chore)
	}
}

// The method refund gives back the lots of r, one after the other. If a call fails, the server may still have
// given the units back. Each return of a lot therefore has a number, and a repeated try uses the same number
// again: if the server has already seen this number, it does nothing.
func (ls *leases) refund(r *refund) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for len(r.lots) > 0 {
		if r.lots[0].back == 0 {
			ls.returns++
			r.lots[0].back = ls.returns
		}
		some := r.lots[0]
		ls.mu.Unlock()
		err := ls.notes.giveBack(r.key, some)
		ls.mu.Lock()
		switch {
		case err == nil:
			r.tries = 0
		case time.Since(some.taken) < noteTerm:
			ls.failed = err
			ls.runAfter(&r.chore, findAfter<<min(r.tries, 4))
			r.tries++
			return
		default:
			ls.failed = err
			ls.kept += some.units
		}
		r.lots = r.lots[1:]
	}
	delete(ls.refunds, r.key)
}

// close gives back all units that were taken for later requests, and waits until that is done or has failed.
// From then on, no call takes units for later requests. If units could not be given back, the error says how
// many, and close may be called again.
func (ls *leases) close() error {
	if ls == nil {
		return nil
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for id, l := range ls.held {
		ls.empty(l)
		if l.noted {
			ls.noted[l.key] = id
		}
	}
	clear(ls.held)
	for _, c := range ls.lost {
		ls.run(&c.chore)
	}
	for _, r := range ls.refunds {
		ls.run(&r.chore)
	}
	for ls.running > 0 {
		ls.ended.Wait()
	}
	ls.forgetNotes()
	units, calls := ls.kept, ls.unread
	for _, r := range ls.refunds {
		for i := 0; r.waits && i < len(r.lots); i++ {
			units += r.lots[i].units
		}
	}
	for _, c := range ls.lost {
		if c.waits {
			calls++
		}
	}
	if units == 0 && calls == 0 {
		return nil
	}
	more := ""
	if calls > 0 {
		more = fmt.Sprintf(", nor those of %d calls whose replies were lost", calls)
	}
	return fmt.Errorf("redisstore: %d units that were taken ahead could not be given back%s: %w", units, more, ls.failed)
}

// forgetNotes deletes the notes of this store in the server, except notes that are still needed to give units
// back. It stops at the first error: the server drops the remaining notes when they are old. The caller must
// hold ls.mu.
func (ls *leases) forgetNotes() {
	const atOnce = 1024
	var keys []string
	for key, id := range ls.noted {
		if ls.refunds[key] == nil && ls.open[id] == 0 {
			keys = append(keys, key)
			delete(ls.noted, key)
		}
	}
	ls.mu.Unlock()
	defer ls.mu.Lock()
	for some := range slices.Chunk(keys, atOnce) {
		errs := make([]error, len(some))
		inParallel(len(some), func(i int) { errs[i] = ls.notes.forgetNote(some[i], ls.process) })
		if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			return
		}
	}
}
