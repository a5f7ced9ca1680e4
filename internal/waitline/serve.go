package waitline

import (
	"errors"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A new caller that can be served within the time alarmLead sets an alarm at once, although other
// callers are ahead of it in its line. So the caller is woken only once: to be served. Without the
// alarm, it would be woken twice: when it becomes the first caller of its line, and to be served. That
// would delay a line whose callers are served in quick succession.
const alarmLead = 10 * time.Millisecond

// place puts the caller w into its line. If no caller is ahead of w and the units are available, place
// serves w. If another caller waits for the same request, w waits for the answer to that caller. place
// refuses w in three cases: the units will never be available, they will be available too
// late for the deadline of w, or too many callers wait. If the same request was granted earlier and
// w.Record finds the recorded answer, place ends the wait of w with ErrReplayed.
func (ls *Lines) place(w *Waiter, now keytable.Instant) {
	l := ls.lines[w.Set]
	w.foretold, w.tail = 0, nil
	if !ls.behind(w.Set, w.Spots) {
		ls.attempts.add(w.ID, w)
		ls.begin(w)
		ls.decideHead(w.line, now, true)
		return
	}
	f := ls.foretell(w.Set, w.Spots, now)
	leader, follows := ls.attempts.leader(w.ID)
	if follows {
		f.at, f.delay = leader.earliest(now), 0
	}
	err := ls.refusal(w, now, f.at, f.sure, f.delay)
	if w.Record != nil && w.Record.Find(now) {
		err = ErrReplayed
	}
	engine.Unlock(w.Spots, w.Counted && err != nil && !errors.Is(err, ErrReplayed), false)
	if err != nil {
		w.Refused = err
		ls.conclude(w, now)
		return
	}
	if w.follows = ls.attempts.add(w.ID, w); follows {
		return
	}
	if !w.placedBefore && f.at.Since(now) <= uint64(alarmLead) {
		w.due.Store(uint64(f.at))
	}
	if l == nil {
		ls.begin(w)
		ls.work.push(w.line)
		return
	}
	l.join(w)
	if l.future.fits(l) {
		w.foretold = l.future.ready(w.Spots, max(l.need, now), nil)
		l.future.add(w.Spots, w.foretold, nil)
	}
	for i := range l.places {
		p := &l.places[i]
		if q := p.queue; q.key == keyOf(f.binding) && p.run.size == l.size-1 && q.tail.made {
			s := w.spotOf(q.key)
			q.tail.add(s, f.at, nil)
			p.extend(1, s[0].N, w)
			w.tail, w.tailAt = q, f.at
		}
	}
}

// begin starts a new line with the caller w as its head.
func (ls *Lines) begin(w *Waiter) {
	l := &line{set: w.Set}
	ls.lines[w.Set] = l
	l.join(w)
}

// refusal returns the reason for which the caller w is refused, or nil if w may wait. w will be served
// between two instants: not before the instant sure, and not after the instant at. They differ if the units
// of a key come back when other requests end, see [engine.NewInFlight]. The last parameter is the Delay of w:
// how long w must still wait when it has its units.
func (ls *Lines) refusal(w *Waiter, now, at, sure keytable.Instant, delay time.Duration) error {
	switch {
	case at == keytable.End:
		return ErrNever
	case sure.Add(delay) >= w.until:
		w.Wait = time.Duration(min(sure.Add(delay).Since(now), uint64(engine.Never)))
		return ErrLate
	case w.placedBefore || w.Hold: // ls.limit was already checked when such a caller arrived
		return nil
	case ls.All() > ls.limit:
		return ErrFull
	}
	return nil
}

// decideAll decides for each line in ls.work whether its head (first caller) can be served at the given
// instant. It takes the heads in order of arrival, until ls.work is empty.
func (ls *Lines) decideAll(at keytable.Instant) {
	for len(ls.work) > 0 {
		l := ls.work[0]
		ls.work.remove(l)
		ls.decideHead(l, at, false)
	}
}

// An outcome is the result of a decision on the head of a line.
type outcome uint8

const (
	served   outcome = iota // the first caller of the line is granted its units, and its keys are charged
	replayed                // the same request was granted earlier, so nothing is charged now
	refused                 // the first caller of the line stops waiting, without a grant
	waiting                 // the first caller of the line goes on waiting, and the line is in the queue of at least one key
)

// A survey is the result of looking at all keys that the head (first caller) of a line waits for.
type survey struct {
	outcome outcome
	reason  error            // why the head stops waiting without a charge; otherwise nil
	need    keytable.Instant // when all keys will have the units that the head waits for; keytable.End if a key never will
	sure    keytable.Instant // the head cannot be served before this instant, even if other requests end at once and return their units
	binding *engine.Spot     // the key that the head must wait for longest
}

// decideHead decides whether the head (first caller) of the line l can be served at the given instant.
// It serves the head if all keys of the head have the units and no earlier caller waits in the queue of
// one of these keys. Otherwise, it puts l into the queue of the key that the head must wait for
// longest, or refuses the head. The parameter fresh says whether the head has just arrived.
func (ls *Lines) decideHead(l *line, at keytable.Instant, fresh bool) {
	w := l.first
	ls.vacate(l)
	if read := engine.Lock(w.Spots, at); fresh {
		at = read
	}
	s := ls.survey(l, at, fresh)
	switch s.outcome {
	case served:
		w.charge(at)
		engine.Unlock(w.Spots, true, true)
	case replayed:
		engine.Unlock(w.Spots, false, false)
	case refused:
		engine.Unlock(w.Spots, w.Counted, false)
	case waiting:
		ls.queueUp(l, s, at)
		engine.Unlock(w.Spots, false, false)
		ls.leftQueues(l)
		ls.updateRuns(l, at)
		ls.setAlarm(l)
		return
	}
	w.uncharge(s.outcome == served, at)
	if s.outcome == refused {
		ls.succeed(w)
	} else {
		ls.answerFollowers(w, at)
	}
	ls.unlink(w)
	w.Refused = s.reason
	ls.decideNext(l)
	ls.conclude(w, at)
}

// survey finds out whether the head (first caller) of the line l can be served at the given instant. It
// stores the answers of the keys in the field Spots of the head. The keys are locked. The parameter
// fresh says whether the head has just arrived.
func (ls *Lines) survey(l *line, at keytable.Instant, fresh bool) survey {
	w := l.first
	if w.Record != nil && w.Record.Find(at) {
		return survey{outcome: replayed, reason: ErrReplayed}
	}
	s := ls.checkKeys(l, at)
	switch {
	case s.outcome == served:
		if delay := longest(w.Spots); delay > 0 && at.Add(delay) >= w.until {
			for i := range w.Spots {
				w.Spots[i].DenyDelay(time.Duration(min(w.until.Since(at), uint64(engine.Never))))
			}
			w.Wait = delay
			s.outcome, s.reason = refused, ErrLate
		}
	case fresh || s.need == keytable.End:
		if s.reason = ls.refusal(w, at, s.need, s.sure, delayAt(w.Spots, s.need)); s.reason != nil {
			s.outcome = refused
		}
	}
	return s
}

// checkKeys finds out when all keys of the head (first caller) of the line l will have the units that
// the head waits for. If the head can have the units at the given instant, the field outcome of the result
// has the value served, otherwise the value waiting.
func (ls *Lines) checkKeys(l *line, at keytable.Instant) (s survey) {
	for k, spot := range enforcing(l.first.Spots) {
		due, behind := ls.checkKey(l, k, spot, at)
		if !spot.Ends {
			s.sure = max(s.sure, due)
		}
		if s.binding == nil || due > s.need || due == s.need && behind {
			s.need, s.binding = due, spot
		}
		if behind || !spot.Granted() {
			s.outcome = waiting
		}
	}
	return s
}

// checkKey asks one key of the head (first caller) of the line l for the units that the head waits for.
// The parameter s is this key, an element of the field Spots of the head; checkKey stores the answer in
// it. The parameter k is the index of the key among the keys that can deny. The result due is the instant
// at which the head can have the units, as far as is known now. The result behind says whether an earlier
// caller waits in the queue of this key.
func (ls *Lines) checkKey(l *line, k int, s *engine.Spot, at keytable.Instant) (due keytable.Instant, behind bool) {
	var q *queue
	if l.places != nil {
		q = l.places[k].queue
	} else {
		q = ls.queueAt(s)
	}
	if q == nil || len(q.lines) == 0 || !q.first().before(l) {
		return s.Ahead(at), false
	}
	due = max(at, q.opens())
	s.Verdict, s.Delay = engine.Verdict{RetryAfter: max(time.Duration(due.Since(at)), 1)}, 0
	return due, true
}

// charge takes from each key of the caller w the units for which w waits. The keys must be locked and
// have the units.
func (w *Waiter) charge(at keytable.Instant) {
	for i := range w.Spots {
		w.Spots[i].Take(at, w.Reserves, w.Hold)
	}
	if w.Record != nil {
		w.Record.Add(at)
	}
}

// queueUp puts the line l into the queue of the key that the head (first caller) of l must wait for
// longest. Under these conditions, it also puts l into the queues of all other keys of the head:
//
//   - The head was due before, but one of its keys lacked the units.
//   - l is the first line in the queue of the key that the head must wait for longest.
//   - The head must wait for this key no longer than it has waited so far.
//   - The units of this key do not come back when other requests end. (If they did, nobody could know how
//     long the head must wait.)
//
// In the other queues, l keeps later callers from taking the units that the head needs. So even a head
// that needs two busy keys is served at some time, and it stops other callers for no longer than it has
// waited itself. If another line is the first in the queue of the key that the head must wait for
// longest, l does not stop callers at its other keys. There is a new decision on l when l becomes the
// first line in that queue.
func (ls *Lines) queueUp(l *line, s survey, at keytable.Instant) {
	ls.takePlaces(l)
	l.need = s.need
	hold := false
	for k, spot := range enforcing(l.first.Spots) {
		if p := &l.places[k]; spot == s.binding {
			since := l.first.since
			first := len(p.queue.lines) == 0 || l.before(p.queue.first())
			hold = l.headDue && first && !spot.Ends && s.need.Since(at) <= max(at, since).Since(since)
			ls.stand(p, spot, true)
		}
	}
	for k, spot := range enforcing(l.first.Spots) {
		if hold && spot != s.binding {
			ls.stand(&l.places[k], spot, false)
		}
	}
}

// updateRuns is called after a decision by which the first caller of the line l goes on waiting. A queue
// may hold a copy of its key's state, to which the callers that take units next are charged (a forecast).
// For each queue that l is in, updateRuns charges the callers at the front of l to this copy. For the
// other queues, it notes that these callers do not take units next.
func (ls *Lines) updateRuns(l *line, at keytable.Instant) {
	for i := range l.places {
		if p := &l.places[i]; p.inQueue == 0 {
			p.endRun()
		} else {
			ls.inTail(p, at)
		}
	}
}

// longest returns the longest Delay in the answers of the keys that can deny.
func longest(spots []engine.Spot) (delay time.Duration) {
	for _, s := range enforcing(spots) {
		delay = max(delay, s.Delay)
	}
	return delay
}

// delayAt returns how long a request must be delayed if it is granted at the given instant: the
// longest Delay of the keys that can deny. The keys are locked.
func delayAt(spots []engine.Spot, at keytable.Instant) (delay time.Duration) {
	if at == keytable.End {
		return 0
	}
	for _, s := range enforcing(spots) {
		delay = max(delay, s.DelayAt(at))
	}
	return delay
}

// setAlarm sets the alarm of the head (first caller) of the line l. If l is the first line in the queue
// of the key that the head must wait for longest, the alarm rings at the instant l.need. Otherwise the
// head has no alarm.
func (ls *Lines) setAlarm(l *line) {
	due := keytable.Instant(0)
	for i := range l.places {
		if p := &l.places[i]; p.binding && p.queue.first() == l {
			due = l.need
		}
	}
	if w := l.first; keytable.Instant(w.due.Swap(uint64(due))) != due {
		w.nudge()
	}
}

// decideNext puts into ls.work the lines that need a decision after the head (first caller) of the line
// l has left: l itself, and the line that is now first in each queue that l was in.
func (ls *Lines) decideNext(l *line) {
	if l.size > 0 && l.inWork == 0 {
		ls.work.push(l)
	}
	ls.leftQueues(l)
}
