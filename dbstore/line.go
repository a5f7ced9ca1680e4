package dbstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxFlights = 4       // the largest number of transactions of a Store that run at the same time
	maxRows    = 64      // the largest number of rows of a transaction, unless a single call has more
	maxCalls   = 1000    // the largest number of calls that one scan of the queue takes, or that join one group
	maxWaiting = 1 << 14 // the largest number of callers of a Store that wait at the same time
	apartFor   = time.Second
	maxPause   = 5 * time.Millisecond
	pauseShare = 4 // a pause lasts at most 4 times as long as the last transaction took
)

// A line has the calls of a Store that wait for a transaction. When a transaction starts, it takes the waiting calls whose rows are in
// no running transaction of this process. So calls that arrive while a transaction runs share the next one, and a busy database gets
// few large transactions.
type line struct {
	store *Store

	mu      sync.Mutex
	queue   []*call              // guarded by mu
	waiting int                  // how many calls have not ended; guarded by mu
	flights []*flight            // the transactions that run; guarded by mu
	busy    map[string]struct{}  // the keys of the rows in the running transactions; guarded by mu
	apart   map[string]time.Time // until when a row shares no transaction with rows of other calls, by the key of the row; guarded by mu

	number atomic.Uint64 // the number of the transaction that was sent last
	took   atomic.Int64  // how long the last transaction took
}

// A flight is a transaction for one or more groups of calls; calls of one group share rows. If another process has changed rows of
// some groups first, the flight is sent to the database again for these groups.
type flight struct {
	groups []*group
	number uint64 // the number of the transaction in the last attempt; guarded by line.mu
}

// errNotMade is the error of a call that was never sent to the database, because the caller had already stopped waiting for it.
var errNotMade = errors.New("the call was not made")

// add puts the call c into the queue. It returns an error if too many calls are waiting.
func (l *line) add(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting >= maxWaiting {
		return &Error{Err: fmt.Errorf("%d callers wait for the database", maxWaiting), notDone: true, class: "busy"}
	}
	l.waiting++
	l.queue = append(l.queue, c)
	l.start()
	return nil
}

// late returns the error for the caller of c, who has waited for the whole time limit.
func (l *line) late(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lateLocked(c)
}

// lateLocked does what late does; the caller holds l.mu. If c is in no transaction yet, the error gets the number of a transaction for
// which c has waited. If that transaction fails, too, its error and this one have the same number, and count as one failure.
func (l *line) lateLocked(c *call) error {
	e := &Error{Err: errTimeout, call: c.number, notDone: c.number == 0, class: classTimeout}
	if c.number == 0 {
		if e.call = l.number.Load(); len(l.flights) > 0 && l.flights[0].number > 0 {
			e.call = l.flights[0].number
		}
	}
	return e
}

// start starts transactions for the calls in the queue, until maxFlights of them run or no call can be taken. The caller holds l.mu.
func (l *line) start() {
	for len(l.flights) < maxFlights && len(l.queue) > 0 {
		picked := l.pick()
		if len(picked) == 0 {
			return
		}
		f := &flight{groups: groupsOf(picked)}
		for _, g := range f.groups {
			for _, key := range g.keys {
				l.busy[key] = struct{}{}
			}
		}
		l.flights = append(l.flights, f)
		go l.fly(f)
	}
}

// drop ends the call c if nobody needs the answer: the caller of c has stopped waiting, or the time limit of c is over. It reports
// whether it has ended c. In that case, scan does not keep c in the queue.
func (l *line) drop(c *call, now time.Time) bool {
	if !c.gone() && now.Before(c.deadline) {
		return false
	}
	l.waiting--
	err := errNotMade
	if !c.gone() {
		err = l.lateLocked(c)
	}
	go c.fail(err) // in a goroutine of its own: fail may call functions of others, which must not run while l.mu is held
	return true
}

// A shunned has the keys of some rows. A call that a scan leaves in the queue adds the keys of its rows here. The scan takes no later
// call with one of these rows, so that calls for the same row stay in order.
type shunned map[string]struct{}

func (s *shunned) add(keys []string) {
	if *s == nil {
		*s = make(shunned)
	}
	for _, key := range keys {
		(*s)[key] = struct{}{}
	}
}

func (s shunned) has(key string) bool {
	_, ok := s[key]
	return ok
}

// scan goes through the queue in order. It removes and returns the calls for which the function takes returns true, at most maxCalls.
// If a call stays in the queue, all later calls with one of its rows stay, too. The caller holds l.mu.
func (l *line) scan(takes func(c *call) bool) (taken []*call) {
	var shunned shunned
	now, rest := time.Now(), l.queue[:0]
	for _, c := range l.queue {
		switch {
		case l.drop(c, now):
		case len(taken) < maxCalls && !slices.ContainsFunc(c.keys, shunned.has) && takes(c):
			taken = append(taken, c)
		default:
			shunned.add(c.keys)
			rest = append(rest, c)
		}
	}
	clear(l.queue[len(rest):])
	l.queue = rest
	return taken
}

// pick removes the calls of the next transaction from the queue, and returns them. The caller holds l.mu.
func (l *line) pick() []*call {
	keys, alone, full := make(map[string]struct{}), false, false
	now := time.Now()
	return l.scan(func(c *call) bool {
		fresh, apart := 0, false
		for _, key := range c.keys {
			if _, busy := l.busy[key]; busy {
				return false
			}
			if _, known := keys[key]; !known {
				fresh++
			}
			apart = apart || l.isApart(key, now)
		}
		full = full || len(keys) > 0 && len(keys)+fresh > maxRows
		if full || (alone || apart && len(keys) > 0) && fresh > 0 {
			return false
		}
		alone = alone || apart
		for _, key := range c.keys {
			keys[key] = struct{}{}
		}
		return true
	})
}

// isApart reports whether the row with this key must be in a transaction of its own. The caller holds l.mu.
func (l *line) isApart(key string, now time.Time) bool {
	until, ok := l.apart[key]
	if ok && now.After(until) {
		delete(l.apart, key)
		return false
	}
	return ok
}

// groupsOf divides the calls into groups, so that no two groups have a row in common.
func groupsOf(calls []*call) (groups []*group) {
	first := make(map[string]int) // for each key, the index of the first call that has it
	parent := make([]int, len(calls))
	find := func(i int) int {
		for parent[i] != i {
			i = parent[i]
		}
		return i
	}
	for i, c := range calls {
		parent[i] = i
		for _, key := range c.keys {
			if at, ok := first[key]; ok {
				a, b := find(at), find(i)
				parent[max(a, b)] = min(a, b)
			} else {
				first[key] = i
			}
		}
	}
	made := make(map[int]*group)
	for i, c := range calls {
		g := made[find(i)]
		if g == nil {
			g = &group{rows: make(map[string]*row)}
			made[find(i)] = g
			groups = append(groups, g)
		}
		g.add(c)
	}
	return groups
}

// gather moves calls from the queue into the flight f: it adds a call to a group of f if this group has all rows of the call.
func (l *line) gather(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return
	}
	of := make(map[string]*group)
	for _, g := range f.groups {
		for _, key := range g.keys {
			of[key] = g
		}
	}
	l.scan(func(c *call) bool {
		g := of[c.keys[0]]
		if g == nil || len(g.calls) >= maxCalls || slices.ContainsFunc(c.keys, func(key string) bool { return of[key] != g }) {
			return false
		}
		g.add(c)
		return true
	})
}

// release lets other transactions use the rows of the group g, which has ended. The caller holds l.mu.
func (l *line) release(g *group) {
	for _, key := range g.keys {
		delete(l.busy, key)
	}
	l.waiting -= len(g.calls)
}

// fly sends the flight f to the database, again and again, until each of its calls has ended or is back in the queue.
func (l *line) fly(f *flight) {
	for {
		l.pause(f)
		l.gather(f)
		if l.leave(f); len(f.groups) == 0 {
			break
		}
		began := time.Now()
		if err := l.attempt(f); err != nil {
			l.failed(f, err)
			break
		}
		l.took.Store(int64(time.Since(began)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flights = slices.DeleteFunc(l.flights, func(other *flight) bool { return other == f })
	l.start()
}

// leave ends the calls of f whose callers have stopped waiting, or whose time limit is over, and removes these calls from f. Nothing
// was charged for them, because no attempt has done their group yet.
func (l *line) leave(f *flight) {
	late := make(map[*call]error)
	now := time.Now()
	l.mu.Lock()
	f.groups = slices.DeleteFunc(f.groups, func(g *group) bool {
		g.calls = slices.DeleteFunc(g.calls, func(c *call) bool {
			switch gone := c.gone(); {
			case !gone && now.Before(c.deadline):
				return false
			case c.number > 0:
				late[c] = &Error{Err: errContended, call: c.number, notDone: true, answered: true, class: "contended"}
			case gone:
				late[c] = errNotMade
			default:
				late[c] = l.lateLocked(c)
			}
			l.waiting--
			return true
		})
		if len(g.calls) > 0 {
			return false
		}
		l.release(g)
		return true
	})
	l.mu.Unlock()
	for c, err := range late {
		c.fail(err)
	}
}

// errContended is the cause of an [Error] if other processes have changed a row again and again, for the whole time limit.
var errContended = errors.New("other processes have changed the row again and again, until the time limit was over")

// pause waits for a random time before f is sent, if other processes change rows of f, too. Without the pause, the process that has
// just changed a row would usually be the first to change the row again, because it is the first to know the new value. During the
// pause, more calls can join f. A group whose field misses is above 0 (another process was faster before) causes no further pause.
func (l *line) pause(f *flight) {
	contended, now := false, l.store.now()
	for _, g := range f.groups {
		contended = contended || g.misses == 0 && l.store.known.contended(g.keys, now)
	}
	if most := min(pauseShare*time.Duration(l.took.Load()), maxPause); contended && most > 0 {
		<-time.After(rand.N(most))
	}
}

// attempt decides on all calls of f, and sends the new values of the rows to the database. It ends the calls of the groups that were
// done, and removes these groups from f. If the time of the database is not known yet, attempt only reads the rows.
func (l *line) attempt(f *flight) error {
	s := l.store
	deadline := l.send(f)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	now := s.now()
	at, known := s.guess(now)
	swap := make([]Group, len(f.groups))
	if known {
		d := deciders.Get().(*decider)
		for i, g := range f.groups {
			s.recall(g, now)
			d.decide(g, at, s.clock == nil)
			swap[i].Changes = g.changes()
		}
		deciders.Put(d)
	} else {
		for i, g := range f.groups {
			swap[i].Changes = g.reads()
		}
	}
	read := reading{sent: s.now()}
	s.stats.swaps.Add(1)
	db, err := s.backend.Swap(ctx, at, swap)
	if err != nil {
		return err
	}
	read.db, read.received = db, s.now()
	s.learnTime(read)
	l.finish(f, swap, read, known)
	return nil
}

// send gives f and its calls the number of a new transaction. It returns the deadline by which the database must answer.
func (l *line) send(f *flight) (deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.number = l.number.Add(1)
	for _, g := range f.groups {
		for _, c := range g.calls {
			c.number = f.number
			if c.deadline.After(deadline) {
				deadline = c.deadline
			}
		}
	}
	if len(f.groups) > 1 { // if the transaction fails, enough time must be left to try each group alone
		deadline = deadline.Add(-time.Until(deadline) / 2)
	}
	return deadline
}

// finish stores what the database has answered in swap. It ends the calls of the groups that are done, and removes these groups from
// f. The parameter decided is false if the transaction has only read the rows.
func (l *line) finish(f *flight, swap []Group, read reading, decided bool) {
	var done []*group
	rest := f.groups[:0]
	for i, g := range f.groups {
		l.store.learn(g, &swap[i], read, decided)
		if swap[i].Done {
			done = append(done, g)
			continue
		}
		rest = append(rest, g)
	}
	f.groups = rest
	if len(done) > 0 {
		l.mu.Lock()
		for _, g := range done {
			l.release(g)
		}
		l.start()
		l.mu.Unlock()
	}
	for _, g := range done {
		for _, c := range g.calls {
			c.end()
		}
	}
}

// failed handles the error err of the transaction of f. If f has several groups, and err says that none of them was done, a single row
// may be the cause of the error. Then the calls go back into the queue, and each group gets a transaction of its own. In all other
// cases, failed ends the calls of f with the error.
func (l *line) failed(f *flight, err error) {
	groups := f.groups
	f.groups = nil
	again := len(groups) > 1 && wasNotDone(err)
	l.mu.Lock()
	number := f.number
	if again {
		var calls []*call
		now := time.Now()
		until := now.Add(apartFor)
		maps.DeleteFunc(l.apart, func(_ string, until time.Time) bool { return now.After(until) })
		for _, g := range groups {
			calls = append(calls, g.calls...)
			for _, key := range g.keys {
				delete(l.busy, key)
				l.apart[key] = until
			}
		}
		l.queue = append(calls, l.queue...)
	} else {
		for _, g := range groups {
			l.release(g)
		}
	}
	l.mu.Unlock()
	if again {
		return
	}
	failure := errorOf(err, number)
	for _, g := range groups {
		for _, key := range g.keys {
			l.store.known.forget(key)
		}
		for _, c := range g.calls {
			c.fail(failure)
		}
	}
}
