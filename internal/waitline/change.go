package waitline

import (
	"cmp"
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Change calls commit, which changes rates or the states of keys, with the instant of the change.
// Callers that are due are served before. Afterwards, those in lines for which touched returns
// true of the head, and those who stand at a queue with them, are placed anew in order of arrival,
// as if they came now. If touched is nil, all are. The caller of Change has called Renew of the
// timeline.
func (ls *Lines) Change(commit func(now keytable.Instant), touched func(*Waiter) bool) {
	ls.change(commit, func(l *line) bool { return touched == nil || touched(l.first) }, false)
}

// ChangeRules is Change for a change of the rules. touched says whether a caller meets other rules
// than before: its line is placed anew by them. A caller without a key that can deny is served.
func (ls *Lines) ChangeRules(commit func(now keytable.Instant), touched func(*Waiter) bool) {
	ls.change(commit, func(l *line) bool {
		w := l.first
		for w != nil && !touched(w) {
			w = w.after
		}
		return w != nil
	}, true)
}

func (ls *Lines) change(commit func(now keytable.Instant), touched func(*line) bool, rules bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.settleLocked()
	commit(now)
	if rules {
		ls.version.Add(1)
	}
	if ls.Len() == 0 {
		return
	}
	for _, w := range ls.remove(touched) {
		if rules {
			ls.again(w)
		}
		if w.Refused != nil || !denies(w.Spots) {
			ls.conclude(w, now)
			continue
		}
		ls.place(w, now)
		ls.judgeAll(now)
	}
	ls.judgeAll(now)
	ls.unmark()
}

// freed decides again on those who wait for k, which has got units back.
func (ls *Lines) freed(k key) {
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.settleLocked()
	if q := ls.queues[k]; q != nil {
		q.tail.drop()
		for _, s := range q.lines {
			s.line.future.drop()
		}
		ls.work.push(q.first())
		ls.judgeAll(now)
		ls.unmark()
	}
}

// Version returns how often the rules have changed.
func (ls *Lines) Version() uint64 { return ls.version.Load() }

// Restart calls commit, which makes all keys as new after the clock was set to a usual time. The
// instants before are not comparable with those after. All callers are placed anew.
func (ls *Lines) Restart(commit func()) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	commit()
	ls.last = ls.time.Now()
	for _, w := range ls.remove(func(*line) bool { return true }) {
		w.since = ls.last
		ls.place(w, ls.last)
		ls.judgeAll(ls.last)
	}
	ls.unmark()
}

// Touches reports whether w waits for the key of hash h of keys.
func (w *Waiter) Touches(keys engine.Lockable, h keytable.Hash) bool {
	for i := range w.Spots {
		if s := &w.Spots[i]; s.Keys == keys && s.Hash == h {
			return true
		}
	}
	return false
}

// remove takes out of the lines, in order of arrival, all callers in lines that are touched,
// and in those that stand at a queue with them.
func (ls *Lines) remove(touched func(*line) bool) (waiters []*Waiter) {
	var lines []*line
	chosen := make(map[*line]bool)
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
		if i == len(lines) { // lines grows meanwhile
			break
		}
		for _, s := range lines[i].stands {
			for _, other := range s.queue.lines {
				choose(other.line)
			}
		}
		for w := lines[i].first; w != nil; w = w.after {
			waiters = append(waiters, w)
		}
	}
	for _, w := range waiters { // before anything changes, as a clock may panic
		w.until = ls.patience(w, ls.last)
	}
	for _, l := range lines {
		for _, q := range ls.vacate(l) {
			q.tail.drop()
			if len(q.lines) == 0 {
				ls.emptied = append(ls.emptied, q)
			}
		}
		delete(ls.lines, l.set)
	}
	for _, w := range waiters {
		w.line, w.links, w.anew = nil, links[*Waiter]{}, true
		w.due.Store(0)
	}
	slices.SortFunc(waiters, func(a, b *Waiter) int { return cmp.Compare(a.arrival, b.arrival) })
	return waiters
}
