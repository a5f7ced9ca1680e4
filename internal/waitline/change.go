package waitline

import (
	"cmp"
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Change serves the callers that are due. Then it calls the function commit, which changes rates at the
// instant now. Afterwards, Change takes all waiting callers out of their lines and places them again, in
// order of arrival, as if they came now. The code that calls Change must have called Timeline.Renew before, as
// before every decision.
func (ls *Lines) Change(commit func(now keytable.Instant)) {
	ls.change(commit, func(*line) bool { return true }, false)
}

// ChangeRules does what Change does, for a change of the rules. It places only a part of the waiting
// callers again: those in lines that the change affects, and those in lines that share a queue with
// such a line. The function touched reports whether the change affects a waiting caller. If it affects
// any caller of a line, all callers of this line are placed again by the new rules. A caller whom no
// key can deny under the new rules is served at once.
func (ls *Lines) ChangeRules(commit func(now keytable.Instant), touched func(*Waiter) bool) {
	ls.change(commit, func(l *line) bool {
		w := l.first
		for w != nil && !touched(w) && !slices.ContainsFunc(ls.attempts.followers(w.ID), touched) {
			w = w.after
		}
		return w != nil
	}, true)
}

func (ls *Lines) change(commit func(now keytable.Instant), touched func(*line) bool, rules bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.serveDueLocked()
	commit(now)
	if rules {
		ls.version.Add(1)
	}
	if ls.Len() == 0 {
		return
	}
	for _, w := range ls.remove(touched) {
		if rules {
			ls.rematch(w)
		}
		if w.Refused != nil || !denies(w.Spots) {
			ls.conclude(w, now)
			continue
		}
		ls.place(w, now)
		ls.decideAll(now)
	}
	ls.decideAll(now)
	ls.unmark()
}

// Adjust serves the callers that are due, and then calls the function commit, which changes the states
// of the given keys at the instant now. Afterwards, Adjust decides for each of these keys whether the
// first caller in the queue of the key can be served. The function commit may be nil, if the states
// have changed already.
func (ls *Lines) Adjust(commit func(now keytable.Instant), keys ...Key) {
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.serveDueLocked()
	if commit != nil {
		commit(now)
	}
	for _, k := range keys {
		q := ls.queues[k]
		if q == nil {
			continue
		}
		q.tail.drop()
		if q.uses.size == 1 {
			q.uses.first.line.future.drop()
		}
		if len(q.lines) > 0 && q.first().inWork == 0 {
			ls.work.push(q.first())
		}
	}
	ls.decideAll(now)
	ls.unmark()
}

// Version returns the number of changes of the rules so far.
func (ls *Lines) Version() uint64 { return ls.version.Load() }

// Restart is called when a clock that was far off has been corrected. Instants before the correction
// cannot be compared with later instants. Restart calls the function commit, which forgets the states
// of all keys. Then it puts all waiting callers into lines again, in order of arrival, as if they came
// now.
func (ls *Lines) Restart(commit func()) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	commit()
	ls.last = ls.time.Now()
	for _, w := range ls.remove(func(*line) bool { return true }) {
		w.since = ls.last
		ls.place(w, ls.last)
		ls.decideAll(ls.last)
	}
	ls.unmark()
}

// remove dissolves each line for which the function touched returns true, and each line that shares a
// queue with a dissolved line. It returns the callers of these lines in order of arrival.
func (ls *Lines) remove(touched func(*line) bool) (waiters []*Waiter) {
	var lines []*line
	chosen, walked := make(map[*line]bool), make(map[*queue]bool)
	choose := func(l *line) {
		if !chosen[l] {
			chosen[l] = true
			lines = append(lines, l)
		}
	}
	for _, l := range ls.lines {
		if touched(l) {
			choose(l)
		}
	}
	for i := 0; ; i++ {
		if i == len(lines) { // a range loop would not do, because the loop body makes the slice lines longer
			break
		}
		for k := range lines[i].places {
			if p := &lines[i].places[k]; p.inQueue != 0 && !walked[p.queue] {
				walked[p.queue] = true
				for _, other := range p.queue.lines {
					choose(other.line)
				}
			}
		}
		for w := lines[i].first; w != nil; w = w.after {
			waiters = append(append(waiters, w), ls.attempts.followers(w.ID)...)
		}
	}
	for _, w := range waiters { // before any change, because patience reads the clock, and the clock may panic
		w.until = ls.patience(w, ls.last)
	}
	for _, l := range lines {
		ls.vacate(l)
	}
	for _, l := range lines { // a separate loop, because all of these lines must have left their queues before
		ls.dissolve(l)
	}
	for _, w := range waiters {
		delete(ls.attempts, w.ID)
		w.line, w.links, w.follows, w.placedBefore = nil, links[*Waiter]{}, false, true
		w.due.Store(0)
	}
	slices.SortFunc(waiters, func(a, b *Waiter) int { return cmp.Compare(a.arrival, b.arrival) })
	return waiters
}
