package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A leaseCall identifies a call that takes units ahead. The call leaves a note with this identity in the
// server.
type leaseCall struct {
	process string // the name of the store that made the call, as in leases.process
	number  int64  // the number of the call, counted by its store
}

// The method args returns the process and the number, which are the last arguments of a script that takes
// units ahead.
func (l leaseCall) args() []any { return []any{l.process, l.number} }

// An aheadCall is a call that may have taken units ahead, and whose reply was lost. If the server has run
// the call, a note in the server contains the reply.
type aheadCall struct {
	leaseCall
	id             stateID
	key            string
	plan           plan
	costs          []int64
	ahead, reserve int64
	tries          int
	timer          *time.Timer
}

const (
	// When the duration findAfter has passed after a reply was lost, the method find looks in the server for
	// the note that the call leaves there. If it finds no note, the call may still be on its way to the server,
	// so find looks again after four times as long. When it has looked maxFinds times without success, it
	// assumes that the server did not run the call.
	findAfter = 250 * time.Millisecond
	maxFinds  = 4
)

// The method lose must be called when a call that takes units ahead has failed with an error of this class.
// If the server may have run the call, the method find will look for the units that the call took, and give
// them back.
func (ls *leases) lose(shared *shared, class Class) {
	if class != ClassTimeout && class != ClassConnection && class != ClassOther {
		return
	}
	c := &aheadCall{
		leaseCall: shared.lease, id: stateIDOf(shared.ask), key: shared.key.text, plan: shared.plan,
		costs: slices.Clone(shared.costs), ahead: shared.ahead, reserve: shared.reserve,
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.held[c.id]; l != nil {
		l.lost++
	}
	ls.lost[c.number] = c
	c.timer = time.AfterFunc(findAfter, func() { ls.find(c) })
}

// find looks in the server for the note of the call c. It gives back the units that c has taken ahead.
func (ls *leases) find(c *aheadCall) {
	text, err := ls.note(c.key, c.process)
	taken, found := c.taken(text)
	ls.mu.Lock()
	if c.tries++; !found && c.tries < maxFinds && !ls.closed {
		c.timer.Reset(findAfter << (2 * c.tries))
		ls.mu.Unlock()
		return
	}
	delete(ls.lost, c.number)
	if l := ls.held[c.id]; l != nil && l.lost > 0 {
		l.lost--
	}
	ls.mu.Unlock()
	if found && taken.units > 0 {
		err = ls.back(c.key, taken)
	}
	if err != nil {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if ls.closed {
			ls.errs = append(ls.errs, err)
		}
	}
}

// The method taken returns the units that the call c has taken ahead. It reads them from the argument note:
// the text that the process left in the server when it last took units ahead for the key. It returns false if
// this text is empty, or is the note of an earlier call.
func (c *aheadCall) taken(note string) (lot, bool) {
	_, note, _ = strings.Cut(note, " ")
	number, text, _ := strings.Cut(note, " ")
	last, err := strconv.ParseInt(number, 10, 64)
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
	return lot{c.plan.kind, units, state.at, c.leaseCall}, true
}

// giveBack gives back the units of the lot l, which were taken ahead for the given key. It does nothing if
// the key was reset after they were taken.
func (c *conn) giveBack(key string, l lot) error {
	args := append([]any{"", string(l.kind), 0, l.units, 0, l.at, "", ""}, l.call.args()...)
	reply, err := c.run(context.Background(), aheadBackScript, []string{key, receiptsKey(key), aheadKey(key)}, args)
	if err == nil && reply == int64(0) {
		c.stats.returned.Add(uint64(l.units))
	}
	return err
}

// The method note reads the text that the given process left in the server when it last took units ahead for
// the given key.
func (c *conn) note(key, process string) (string, error) {
	reply, err := c.run(context.Background(), aheadNoteScript, []string{aheadKey(key)}, []any{process})
	text, _ := reply.(string)
	return text, err
}
