package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A leaseCall identifies a call that takes units for later requests. The call leaves a note with this
// identity in the server.
type leaseCall struct {
	process string // the name of the store that made the call: a random number as text
	number  int64  // the number of the call, counted by its store
}

// The method args returns the process and the number, which are the last arguments of a script that takes
// units for later requests.
func (l leaseCall) args() []any { return []any{l.process, l.number} }

// An aheadCall is a call that may have taken units ahead, and whose reply was lost. If the server has run
// the call, a note in the server contains the reply.
type aheadCall struct {
	leaseCall
	chore
	id             stateID
	key            string
	plan           plan
	costs          []int64
	ahead, reserve int64
	at             time.Time // when the reply was lost
	tries          int
}

const (
	// When the duration findAfter has passed after a reply was lost, the method find looks in the server for
	// the note that the call leaves there. If it finds no note, the call may still be on its way to the server,
	// so find looks again after four times as long. When it has looked maxFinds times without success, find
	// assumes that the server did not run the call.
	findAfter = 250 * time.Millisecond
	maxFinds  = 4
)

// The method lose must be called when a call that may take units for later requests has failed with an error of
// the given class. If the server may have run the call, the method find will later look in the server for the
// units that the call took, and give them back. The argument sent says whether the call may have been sent.
func (ls *leases) lose(shared *shared, class Class, sent bool) {
	if shared.lease.number == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	id := stateIDOf(shared.ask)
	if !sent || class != ClassTimeout && class != ClassConnection && class != ClassOther {
		ls.known(id)
		return
	}
	c := &aheadCall{
		leaseCall: shared.lease, id: id, key: shared.key.text, plan: shared.plan,
		costs: slices.Clone(shared.costs), ahead: shared.ahead, reserve: shared.reserve, at: time.Now(),
	}
	c.do = func() { ls.find(c) }
	ls.lost[c.number] = c
	ls.runAfter(&c.chore, findAfter)
}

// find looks in the server for the note of the call c. It gives back the units that c has taken for
// later requests.
func (ls *leases) find(c *aheadCall) {
	text, err := ls.notes.note(c.key, c.process)
	taken, found := c.taken(text)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	c.tries++
	switch {
	case err != nil && time.Since(c.at) < noteTerm: // try again until the server answers, or the note has expired
		ls.failed = err
		ls.runAfter(&c.chore, findAfter<<min(2*c.tries, 4))
		return
	case err == nil && !found && c.tries < maxFinds && !ls.closed:
		ls.runAfter(&c.chore, findAfter<<(2*c.tries))
		return
	}
	if err != nil {
		ls.failed = err
		ls.unread++
	}
	delete(ls.lost, c.number)
	ls.known(c.id)
	if found && taken.units > 0 {
		ls.giveBack(c.key, taken)
	}
}

// The method taken returns the units that the call c has taken for later requests. It reads them from the
// argument note: the text that the process left in the server when it last took units of the key for later
// requests. It returns false if this text is empty, or is the note of an earlier call. If it is the note of a
// later call, taken returns no units and true.
func (c *aheadCall) taken(note string) (lot, bool) {
	words := strings.SplitN(note, " ", 5) // see ahead.lua
	if len(words) < 5 {
		return lot{}, false
	}
	text := words[4]
	last, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil || last != c.number {
		return lot{}, err == nil && last > c.number
	}
	var reply any = text
	if strings.Contains(text, ",") {
		var items []any
		for item := range strings.SplitSeq(text, ",") {
			items = append(items, item)
		}
		reply = items
	}
	_, state, units, err := readOne(&c.plan, reply, c.costs, c.ahead, c.reserve)
	if err != nil {
		return lot{}, true
	}
	return lot{kind: c.plan.kind, units: units, at: state.at, call: c.leaseCall, taken: c.at}, true
}

// giveBack gives back the units of the lot l: units of the given key that were taken for later requests. It
// does nothing if the key was reset after they were taken. After an error, it may be called again with the
// same lot.
func (c *conn) giveBack(key string, l lot) error {
	args := append([]any{"", string(l.kind), 0, l.units, 0, l.at, "", ""}, append(l.call.args(), l.back)...)
	reply, err := c.run(context.Background(), aheadBackScript, []string{key, receiptsKey(key), aheadKey(key)}, args)
	if err == nil && reply == int64(0) {
		c.stats.returned.Add(uint64(l.units))
	}
	return err
}

// The method forgetNote deletes the note that the given process left in the server when it last took units
// of the given key for later requests.
func (c *conn) forgetNote(key, process string) error {
	_, err := c.run(context.Background(), aheadForgetScript, []string{aheadKey(key)}, []any{process})
	return err
}

// The method note reads the text that the given process left in the server when it last took units of the
// given key for later requests.
func (c *conn) note(key, process string) (string, error) {
	reply, err := c.run(context.Background(), aheadNoteScript, []string{aheadKey(key)}, []any{process})
	text, _ := reply.(string)
	return text, err
}
