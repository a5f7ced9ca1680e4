package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A leaseCall names a call that takes units ahead, as the server notes it.
type leaseCall struct {
	process string
	number  int64
}

// args returns the arguments that name l to the scripts.
func (l leaseCall) args() []any { return []any{l.process, l.number} }

// An aheadCall is a call that may have taken units ahead, and whose reply was lost. The server
// has noted the reply if the call was run.
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
	// findAfter is how long after the loss of a reply the note is looked for. Each time that it
	// is not there, because the call may still be on its way, the next time is four times as
	// long, and after maxFinds times the call is taken not to have been run.
	findAfter = 250 * time.Millisecond
	maxFinds  = 4
)

// lose records that the reply to a call for j was lost, which took units ahead. class is the
// class of its error. If the call may have been run, what it has taken is given back later.
func (ls *leases) lose(j *shared, class Class) {
	if class != ClassTimeout && class != ClassConnection && class != ClassOther {
		return
	}
	c := &aheadCall{leaseCall: j.lease, id: stateIDOf(j.ask), key: j.key.text, plan: j.plan, costs: slices.Clone(j.costs), ahead: j.ahead, reserve: j.reserve}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.held[c.id]; l != nil {
		l.lost++
	}
	ls.lost[c.number] = c
	c.timer = time.AfterFunc(findAfter, func() { ls.find(c) })
}

// find looks for the note of c, and gives back what c has taken.
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

// taken returns the units that c has taken ahead according to the note of its process, and
// reports whether the note is that of c or of a later call.
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

// giveBack gives back the units of l, which were taken ahead of key, unless that was reset.
func (c *conn) giveBack(key string, l lot) error {
	args := append([]any{"", string(l.kind), 0, l.units, 0, l.at, "", ""}, l.call.args()...)
	reply, err := c.run(context.Background(), aheadBackScript, []string{key, receiptsKey(key), aheadKey(key)}, args)
	if err == nil && reply == int64(0) {
		c.stats.returned.Add(uint64(l.units))
	}
	return err
}

// note returns what the last call of this process has noted that took units ahead of key.
func (c *conn) note(key, process string) (string, error) {
	reply, err := c.run(context.Background(), aheadNoteScript, []string{aheadKey(key)}, []any{process})
	text, _ := reply.(string)
	return text, err
}
