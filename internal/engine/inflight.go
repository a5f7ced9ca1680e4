package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/packed"
)

// MaxHolds is the largest number of holds (units in use by running work) of one key. A further request
// is denied, as if the limit were reached.
const MaxHolds = 1 << 16

// inFlight is the [Algorithm] of a rule that limits how much work is in flight, see NewInFlight.
type inFlight struct {
	limit int64         // how many units of a key may be held at the same time
	per   time.Duration // the longest time for which a unit is held
}

// NewInFlight returns the Keys of a rule that limits how much work is in flight: at most Rate.Requests
// units of a key are in use at the same time. A granted request holds its units until its receipt is
// settled, but for at most Rate.Per. The charges of the rule are therefore called holds. A key has up
// to [MaxHolds] of them. The limits on the number of receipts do not apply to holds: each hold can be
// ended. The function validate returns an error for an invalid rate.
func NewInFlight(t *Timeline, r Rates, maxKeys int, validate func(Rate) error, refusals *Refusals) (Keys, error) {
	return NewKeys[held](t, r, maxKeys, func(r Rate, _ *Warmup) (*inFlight, error) {
		return &inFlight{int64(r.Requests), r.Per}, validate(r)
	}, refusals)
}

// A holder is an [Algorithm] whose charges are holds: they end when their receipts are settled. The
// state of a key contains the numbers of its holds, so no receipts are stored elsewhere.
type holder[S any] interface {
	// newest returns the number of the latest hold of s.
	newest(s *S) Receipt

	// end ends the hold with the number id, and returns how many units it has held: 0 if s has no such hold.
	end(s *S, id Receipt) (n int64)

	// extend ends the hold with the number id, and starts a hold of the same units at the instant now. The
	// new hold ends by itself after the duration in the parameter per. extend returns the number of the new
	// hold. It returns 0 if s has no hold with the number id, or if that hold is over at the instant now.
	extend(s *S, id Receipt, now keytable.Instant, per time.Duration) Receipt

	// count returns how many holds s has at the instant now.
	count(s *S, now keytable.Instant) int

	// held returns how many units s holds at the instant now, and for how long the oldest hold has lasted.
	held(s *S, now keytable.Instant) Held

	// pack writes the holds of s to a row, and unpack reads them from a row.
	pack(s *S, f *packed.Form, named naming)
	unpack(s *S, f *packed.Form, opened func(id uint64, e *receipt))
}

// A Held says how many units a key holds.
type Held struct {
	N int // units held

	// Oldest is for how long the oldest hold has lasted since it began or was extended. It is computed from
	// the instant at which the hold will be over and the present Rate.Per, so it is wrong for a hold that
	// began before a change of Per.
	Oldest time.Duration
}

// held is the state of one key of a rule that limits work in flight. A plain copy of a held shares the
// holds with the original; the method Clone makes a copy that does not.
type held struct{ *holds }

// holds are the holds of one key, in the order in which they were granted. They also run out in this
// order, if nobody ends them before.
type holds struct {
	list []hold
	open int              // number of holds in the list that nobody has ended
	sum  int64            // how many units these holds have
	last keytable.Instant // when the newest hold was granted

	// The fields below count the holds at the front of the list that had run out at the instant in the
	// field seen. With these counts, a decision on a key with many such holds need not count them again.
	seen      keytable.Instant
	over      int   // how many holds at the front of the list have run out, including those that were ended before
	overOpen  int   // how many of these holds ran out without having been ended before
	overUnits int64 // how many units the holds counted in overOpen have
}

// A hold is a number of units that one request holds.
type hold struct {
	id    Receipt          // the number of the hold, higher than the numbers of earlier holds; 0 if several holds were merged into this one
	n     int64            // how many units are held; 0 after the hold was ended
	until keytable.Instant // when the hold is over, if nobody ends it before
}

// lastHold is the number that the newest hold of all keys has got. The next hold gets this number plus 1.
var lastHold atomic.Uint64

// pass counts the holds that have run out at the instant now. It returns how many holds are still
// open at that instant, and how many units they have.
func (h *holds) pass(now keytable.Instant) (open int, held int64) {
	if now < h.seen {
		h.again()
	}
	for h.seen = now; h.over < len(h.list) && h.list[h.over].until <= now; h.over++ {
		if n := h.list[h.over].n; n > 0 {
			h.overOpen++
			h.overUnits += n
		}
	}
	return h.open - h.overOpen, h.sum - h.overUnits
}

// again sets the fields from seen to overUnits to 0, so that the next call of pass counts from the
// beginning of the list.
func (h *holds) again() { h.seen, h.over, h.overOpen, h.overUnits = 0, 0, 0, 0 }

// trim removes the holds that have run out at the instant now, and the ended holds at both ends of the
// list. If more than half of the remaining holds were ended, it removes all ended holds.
func (h *holds) trim(now keytable.Instant) {
	h.pass(now)
	h.list, h.open, h.sum = h.list[h.over:], h.open-h.overOpen, h.sum-h.overUnits
	for len(h.list) > 0 && h.list[0].n == 0 {
		h.list = h.list[1:]
	}
	for len(h.list) > 0 && h.list[len(h.list)-1].n == 0 {
		h.list = h.list[:len(h.list)-1]
	}
	if len(h.list) > 2*h.open+16 {
		h.list = slices.DeleteFunc(h.list, func(e hold) bool { return e.n == 0 })
	}
	h.again()
}

// start starts a hold of n units at the instant now. The hold ends by itself after the duration in the parameter per.
func (h *holds) start(now keytable.Instant, n int64, per time.Duration) {
	h.trim(now)
	h.add(Receipt(lastHold.Add(1)), n, now, now.Add(per))
}

// add adds a hold of n units, which begins at the instant now and is over at the instant in the parameter until.
func (h *holds) add(id Receipt, n int64, now, until keytable.Instant) {
	if len(h.list) > 0 {
		until = max(until, h.list[len(h.list)-1].until) // so that the holds stay in order if the clock steps back or Per becomes shorter
	}
	h.list = append(h.list, hold{id, n, until})
	h.open++
	h.sum += n
	h.last = max(h.last, now)
}

// find returns the hold with the number id that nobody has ended, or nil.
func (h *holds) find(id Receipt) *hold {
	if h == nil || id == 0 {
		return nil
	}
	i, ok := slices.BinarySearchFunc(h.list, id, func(e hold, id Receipt) int {
		switch {
		case e.id < id:
			return -1
		case e.id > id:
			return 1
		}
		return 0
	})
	if !ok || h.list[i].n == 0 {
		return nil
	}
	return &h.list[i]
}

// freeAt returns the instant at which the given number of units will have come back, if nobody ends a
// hold before. It looks only at the next 64 holds. If these have fewer units, it returns the instant at
// which all holds have run out.
func (h *holds) freeAt(units int64) keytable.Instant {
	live := h.list[h.over:]
	for i := range min(len(live), 64) {
		if units -= live[i].n; units <= 0 {
			return live[i].until
		}
	}
	return live[len(live)-1].until
}

// Step decides on n units at the instant now, as [Algorithm] says. The RetryAfter of a denial is an upper
// bound: the units come back earlier if somebody ends a hold.
func (c *inFlight) Step(s *held, _ *inFlight, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration) {
	open, held := 0, int64(0)
	if s.holds != nil {
		if now < s.last {
			return StepAhead(c, s, c, s.last, now, n, charge)
		}
		open, held = s.pass(now)
	}
	if v.Limit, v.Left = c.limit, max(c.limit-held, 0); open >= MaxHolds {
		v.Left = 0
	}
	if n > v.Left {
		if v.RetryAfter = Never; n <= c.limit {
			v.RetryAfter = now.Until(s.freeAt(max(held+n-c.limit, 1)))
		}
	} else if charge {
		v.Left -= n
		c.Exceed(s, now, n)
		held += n
	}
	if held > 0 {
		v.ResetAfter = now.Until(s.list[len(s.list)-1].until)
	}
	return v, 0
}

// Exceed starts a hold of n units, whatever the limit.
func (c *inFlight) Exceed(s *held, now keytable.Instant, n int64) {
	if s.holds == nil {
		s.holds = new(holds)
	}
	s.start(max(now, s.last), n, c.per)
}

func (c *inFlight) newest(s *held) Receipt { return s.list[len(s.list)-1].id }

func (c *inFlight) end(s *held, id Receipt) (n int64) {
	e := s.find(id)
	if e == nil {
		return 0
	}
	n, e.n = e.n, 0
	s.open--
	s.sum -= n
	s.trim(0)
	return n
}

func (c *inFlight) extend(s *held, id Receipt, now keytable.Instant, per time.Duration) Receipt {
	e := s.find(id)
	if e == nil || e.until <= max(now, s.last) {
		return 0
	}
	s.start(max(now, s.last), c.end(s, id), per)
	return c.newest(s)
}

func (c *inFlight) count(s *held, now keytable.Instant) int {
	if s.holds == nil {
		return 0
	}
	open, _ := s.pass(max(now, s.last))
	return open
}

func (c *inFlight) held(s *held, now keytable.Instant) (h Held) {
	if s.holds == nil {
		return h
	}
	now = max(now, s.last)
	if _, n := s.pass(now); n > 0 {
		live := s.list[s.over:]
		first := slices.IndexFunc(live, func(e hold) bool { return e.n > 0 })
		h = Held{int(n), max(c.per-now.Until(live[first].until), 0)}
	}
	return h
}

// Carry and Resize do nothing, because a change of the limit leaves all holds as they are. For the same
// reason, Fills returns false (no change makes a used key seem unused), and so does Slower (no limit is
// slower than another).

func (*inFlight) Carry(*held, *inFlight, keytable.Instant)     {}
func (*inFlight) Resize(*held, *inFlight, bool) (lost bool)    { return false }
func (*inFlight) Fills(*inFlight) bool                         { return false }
func (*inFlight) Slower(*inFlight) bool                        { return false }
func (c *inFlight) Reached(s *held) keytable.Instant           { return c.Charged(s) }
func (c *inFlight) Inherit(s *held, now keytable.Instant) held { return c.merged(s, now, 0) }

// Charged returns the instant of the last charge of s.
func (*inFlight) Charged(s *held) keytable.Instant {
	if s.holds == nil {
		return 0
	}
	return s.last
}

// GiveBack takes the returned units from the newest holds.
func (c *inFlight) GiveBack(s *held, back Returned) {
	for back.N > 0 && s.holds != nil && len(s.list) > 0 {
		e := &s.list[len(s.list)-1]
		n := min(e.n, back.N)
		back.N -= n
		s.sum -= n
		if e.n -= n; e.n == 0 {
			s.open--
		}
		s.trim(0)
	}
}

// Clone returns a copy of s from which later decisions can be computed. The copy has the first 64 holds of
// s. All further holds are merged into one.
func (c *inFlight) Clone(s *held) held { return c.merged(s, 0, 64) }

// merged returns a copy of s without the holds that have run out at the instant now. The copy keeps as
// many holds from the front of the list as the parameter first says. All other holds are merged into
// one hold, which runs out at the instant at which the last of them would have run out.
func (c *inFlight) merged(s *held, now keytable.Instant, first int) held {
	if s.holds == nil {
		return held{}
	}
	s.pass(now)
	live, rest := s.list[s.over:], s.sum-s.overUnits
	out := &holds{last: s.last}
	for i := 0; i < len(live) && i < first; i++ {
		if live[i].n > 0 {
			out.add(live[i].id, live[i].n, s.last, live[i].until)
			rest -= live[i].n
		}
	}
	if rest > 0 {
		out.add(0, rest, s.last, live[len(live)-1].until)
	}
	return held{out}
}

// Idle reports whether the key holds nothing at the instant now.
func (c *inFlight) Idle(s *held, now keytable.Instant) bool {
	if s.holds == nil || s.sum == 0 {
		return true
	}
	_, held := s.pass(now)
	return held == 0 && now >= s.last
}
