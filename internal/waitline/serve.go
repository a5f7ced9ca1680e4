package waitline

import (
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// near is how far ahead of its turn a caller that has others before it sets an alarm. It then
// needs not be woken to set one when it becomes the head of its line: two wake-ups, one after the
// other, would stall a fast line for longer than it lasts.
const near = 10 * time.Millisecond

// place puts w into its line. It serves w if nobody is ahead and the units are there, and
// refuses w if they will never be there, or not in time, or if too many callers wait.
func (ls *Lines) place(w *Waiter, now keytable.Instant) {
	l := ls.lines[w.Set]
	w.foretold, w.tail = 0, nil
	if !ls.behind(w.Set, w.Spots) {
		ls.begin(w)
		ls.judge(w.line, now, true)
		return
	}
	f := ls.foretell(w.Set, w.Spots, w.N, now)
	if err := ls.refusal(w, now, f.at, f.delay); err != nil {
		engine.Unlock(w.Spots, w.Counted, false)
		w.Refused = err
		ls.conclude(w, now)
		return
	}
	engine.Unlock(w.Spots, false, false)
	if !w.anew && f.at.Since(now) <= uint64(near) {
		w.due.Store(uint64(f.at))
	}
	if q := ls.queueAt(&w.Spots[f.binding]); q != nil && q.tail.keys != nil && (l == nil || l.standsAt(q)) {
		q.tail.charge(w, f.at, f.binding)
		w.tail, w.tailAt = q, f.at
	}
	if l != nil {
		if l.future.keys != nil {
			l.future.charge(w, f.at, -1)
			w.foretold = f.at
		}
		l.join(w)
		return
	}
	ls.begin(w)
	ls.work.push(w.line)
}

// begin makes w the head of a new line.
func (ls *Lines) begin(w *Waiter) {
	l := &line{set: w.Set}
	ls.lines[w.Set] = l
	l.join(w)
}

// refusal returns the reason for which w does not wait for a grant at the instant at, with
// this Delay, or nil.
func (ls *Lines) refusal(w *Waiter, now, at keytable.Instant, delay time.Duration) error {
	switch {
	case at == keytable.End:
		return ErrNever
	case at.Add(delay) >= w.until:
		w.Wait = time.Duration(min(at.Add(delay).Since(now), uint64(engine.Never)))
		return ErrLate
	case w.anew || w.Hold: // it is counted already
		return nil
	case ls.All() > ls.most:
		return ErrFull
	}
	return nil
}

// judgeAll decides, at the instant at, on the heads of all lines in ls.work, by arrival.
func (ls *Lines) judgeAll(at keytable.Instant) {
	for len(ls.work) > 0 {
		l := ls.work[0]
		ls.work.remove(l)
		ls.judge(l, at, false)
	}
}

// judge decides on the head of l at the instant at. It charges the head if all its keys have
// the units and nobody who came earlier stands at one of them; otherwise, the head stands in
// the queue of the key that it lacks longest. fresh says that the head has just come, so that
// it may be refused.
func (ls *Lines) judge(l *line, at keytable.Instant, fresh bool) {
	w, was := l.first, l.was
	l.was = false
	stood := ls.vacate(l)
	if read := engine.Lock(w.Spots, at); fresh {
		at = read
	}
	if w.Record != nil && w.Record.Find(at) {
		engine.Unlock(w.Spots, false, false)
		ls.finish(l, stood, at, ErrReplayed)
		return
	}
	need, binding, fits, blocked := keytable.Instant(0), -1, true, false
	for i := range w.Spots {
		s := &w.Spots[i]
		if s.Shadow {
			continue
		}
		due, behind := at, false
		if q := ls.queueAt(s); q != nil && q.first().before(l) {
			if behind = true; q.inDue != 0 {
				due = max(at, q.due)
			}
			s.Verdict, s.Delay = engine.Verdict{RetryAfter: max(time.Duration(due.Since(at)), 1)}, 0
		} else {
			due = s.Ahead(at, w.N)
			fits = fits && s.Granted()
		}
		if binding < 0 || due > need || due == need && behind {
			need, binding = due, i
		}
		blocked = blocked || behind
	}
	switch {
	case fits && !blocked:
		if delay := longest(w.Spots); delay > 0 && at.Add(delay) >= w.until {
			for i := range w.Spots {
				w.Spots[i].DenyDelay(time.Duration(min(w.until.Since(at), uint64(engine.Never))))
			}
			engine.Unlock(w.Spots, w.Counted, false)
			w.Wait = delay
			ls.finish(l, stood, at, ErrLate)
			return
		}
		for i := range w.Spots {
			w.Spots[i].Take(at, w.N, w.Hold)
		}
		if w.Record != nil {
			w.Record.Keep(at)
		}
		engine.Unlock(w.Spots, true, true)
		ls.charged(w, stood, at)
		ls.finish(l, stood, at, nil)
		return
	case fresh || need == keytable.End:
		if err := ls.refusal(w, at, need, delayAt(w.Spots, need, w.N)); err != nil && (fresh || need == keytable.End) {
			engine.Unlock(w.Spots, w.Counted, false)
			ls.finish(l, stood, at, err)
			return
		}
	}
	// Who was due for one key and lacks another holds its place at all of them, if that
	// stops others for no longer than it has waited itself.
	hold := was && need.Since(at) <= max(at, w.since).Since(w.since)
	l.need = need
	for i := range w.Spots {
		if s := &w.Spots[i]; !s.Shadow && (i == binding || hold) {
			ls.stand(l, s)
		}
	}
	engine.Unlock(w.Spots, false, false)
	ls.left(l, stood)
	ls.setAlarm(l)
}

// longest returns the longest Delay of spots that are no shadows.
func longest(spots []engine.Spot) (delay time.Duration) {
	for i := range spots {
		if !spots[i].Shadow {
			delay = max(delay, spots[i].Delay)
		}
	}
	return delay
}

// delayAt returns the longest Delay of spots at the instant at. They are locked.
func delayAt(spots []engine.Spot, at keytable.Instant, n int64) (delay time.Duration) {
	if at == keytable.End {
		return 0
	}
	for i := range spots {
		if s := &spots[i]; !s.Shadow {
			delay = max(delay, s.DelayAt(at, n))
		}
	}
	return delay
}

// left sees to the queues that l stood in before it was decided on: a queue whose first line
// has no due instant has to get one, and an empty one loses its mark in the end.
func (ls *Lines) left(l *line, stood []*queue) {
	for _, q := range stood {
		switch {
		case len(q.lines) == 0:
			ls.emptied = append(ls.emptied, q)
		case q.inDue == 0 && q.first().inWork == 0:
			ls.work.push(q.first())
		}
		if !l.standsAt(q) {
			q.tail.drop()
		}
	}
	w := l.first
	for _, s := range l.stands {
		if w.tail != s.queue && !slices.Contains(stood, s.queue) {
			s.queue.tail.drop()
		}
	}
	if w.tail != nil && !l.standsAt(w.tail) {
		w.tail.tail.drop()
		w.tail = nil
	}
}

// setAlarm sets the instant at which the head of l has to look at the clock: the earliest one
// at which it is due, or none.
func (ls *Lines) setAlarm(l *line) {
	due := keytable.Instant(0)
	for _, s := range l.stands {
		if s.queue.first() == l {
			due = l.need
		}
	}
	if w := l.first; keytable.Instant(w.due.Swap(uint64(due))) != due {
		w.nudge()
	}
}

// charged notes in the copies that w, the head of a line that stood in these queues, was
// charged at the instant at.
func (ls *Lines) charged(w *Waiter, stood []*queue, at keytable.Instant) {
	w.line.future.served(w.foretold, at)
	for _, q := range stood {
		if w.tail == q {
			q.tail.served(w.tailAt, at)
		} else {
			q.tail.drop()
		}
	}
}

// finish ends the wait of the head of l, which stood in these queues, and goes on with the
// next one.
func (ls *Lines) finish(l *line, stood []*queue, at keytable.Instant, refused error) {
	w := l.first
	ls.unlink(w)
	w.Refused = refused
	if refused != nil {
		l.future.drop()
		for _, q := range stood {
			q.tail.drop()
		}
	}
	ls.goOn(l, stood)
	ls.conclude(w, at)
}

// goOn has the next head of l decided on, and those that are now first in the queues that l
// stood in.
func (ls *Lines) goOn(l *line, stood []*queue) {
	if l.size > 0 && l.inWork == 0 {
		ls.work.push(l)
	}
	for _, q := range stood {
		switch {
		case len(q.lines) == 0:
			ls.emptied = append(ls.emptied, q)
		case q.inDue == 0 && q.first().inWork == 0:
			ls.work.push(q.first())
		}
	}
}
