package ratelimittest

import (
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// FixedWindowModel returns the [Model] of one key of a [ratelimit.FixedWindow] that was
// made at the instant start. The rate must be valid and have no burst. It may have a [ratelimit.Window]. In that
// case, start and the times that the Model gets must be wall-clock times, and the machine must know the time zone
// of the Window.
//
// With the Window "first", an [Account] with this Model is right only as long as nothing is given back.
func FixedWindowModel(start time.Time, r ratelimit.Rate) Model {
	return &fixedWindow{windows{history{start: start}, r}}
}

// SlidingWindowCounterModel returns the [Model] of one key of a
// [ratelimit.SlidingWindowCounter] that was made at the instant start. The rate must be valid
// and have no burst.
func SlidingWindowCounterModel(start time.Time, r ratelimit.Rate) Model {
	return &slidingCounter{windows{history{start: start}, r}}
}

// windows has the fields and methods that all models with windows share. The methods window, begin and count
// are only for windows that begin at multiples of Per since the Unix epoch.
type windows struct {
	history
	rate ratelimit.Rate
}

func (m *windows) limit() int              { return m.rate.Requests }
func (m *windows) delay(*big.Int) *big.Int { return num(0) }
func (m *windows) per() *big.Int           { return num(int64(m.rate.Per)) }
func (m *windows) requests() *big.Int      { return num(int64(m.rate.Requests)) }

// window returns the number of the window that contains the instant u.
func (m *windows) window(u *big.Int) *big.Int {
	return floorDiv(add(sinceEpoch(m.start), u), m.per())
}

// begin returns the instant at which window number w begins.
func (m *windows) begin(w *big.Int) *big.Int {
	return sub(mul(w, m.per()), sinceEpoch(m.start))
}

// count returns the units granted in window number w.
func (m *windows) count(w *big.Int) *big.Int {
	sum := num(0)
	for _, g := range m.grants {
		if m.window(g.at).Cmp(w) == 0 {
			sum = add(sum, g.n)
		}
	}
	return sum
}

func (m *windows) copied() windows { return windows{m.history.copied(), m.rate} }

// setRate changes the rate at the instant u. If Per or Window changes, the windows begin and end at other times, so the
// old counts no longer fit. The given function then returns how many units count as granted in the new window.
func (m *windows) setRate(u *big.Int, r ratelimit.Rate, used func(u *big.Int) *big.Int) {
	if m.last != nil && (r.Per != m.rate.Per || r.Window != m.rate.Window) {
		m.carry(u, used(u))
	}
	m.rate = r
}

// A fixedWindow grants n units if at most Requests units, including these n, are granted in the present window.
type fixedWindow struct{ windows }

// Ask takes n units at the given time. If not all of them fit, Ask takes none.
func (m *fixedWindow) Ask(at time.Time, n int) ratelimit.Result {
	return ask(m, &m.history, at, n)
}

func (m *fixedWindow) peek(at time.Time, n int) ratelimit.Result {
	return decide(m, &m.history, at, n, false)
}

func (m *fixedWindow) clone() keeper { return &fixedWindow{m.copied()} }

// adopt does the same as SetRate. The two methods differ only for a bucket, because a bucket earns units as time passes.
func (m *fixedWindow) adopt(at time.Time, r ratelimit.Rate) { m.SetRate(at, r) }

func (m *fixedWindow) meet(at time.Time, r ratelimit.Rate, n int) ratelimit.Result {
	return meet(m, at, r, n)
}

// SetRate changes the rate. Units granted in the present window still count.
func (m *fixedWindow) SetRate(at time.Time, r ratelimit.Rate) {
	m.setRate(m.instant(at), r, m.used)
}

// span returns the begin and the end of the window that contains the instant u.
func (m *fixedWindow) span(u *big.Int) (begin, end *big.Int) {
	switch m.rate.Window {
	case "":
		w := m.window(u)
		return m.begin(w), m.begin(add(w, num(1)))
	case "first":
		begin = u
		// The first grant begins a window, and so does each grant after the end of the window before.
		for i, g := range m.grants {
			if i == 0 || sub(g.at, begin).Cmp(m.per()) >= 0 {
				begin = g.at
			}
		}
		if sub(u, begin).Cmp(m.per()) >= 0 {
			begin = u
		}
		return begin, add(begin, m.per())
	}
	start := sinceEpoch(m.start)
	begin, end = parseCalendar(m.rate.Window).edges(add(start, u))
	return sub(begin, start), sub(end, start)
}

func (m *fixedWindow) used(u *big.Int) *big.Int {
	begin, end := m.span(u)
	sum := num(0)
	for _, g := range m.grants {
		if g.at.Cmp(begin) >= 0 && g.at.Cmp(end) < 0 {
			sum = add(sum, g.n)
		}
	}
	return sum
}

func (m *fixedWindow) free(u *big.Int) *big.Int { return sub(m.requests(), m.used(u)) }
func (m *fixedWindow) wait(u, _ *big.Int) *big.Int {
	_, end := m.span(u)
	return sub(end, u)
}

func (m *fixedWindow) renewal(u *big.Int) *big.Int {
	if m.used(u).Sign() == 0 {
		return num(0)
	}
	return m.wait(u, nil)
}

// A slidingCounter grants n units if its estimate, with these units, does not exceed the limit. The
// estimate is the number of units granted in the present window plus a fraction of those granted in
// the previous window. The fraction is the part of the present window that is still to come. For example,
// after a quarter of the present window, three quarters of the units of the previous window count.
type slidingCounter struct{ windows }

// Ask takes n units at the given time. If not all of them fit, Ask takes none.
func (m *slidingCounter) Ask(at time.Time, n int) ratelimit.Result {
	return ask(m, &m.history, at, n)
}

func (m *slidingCounter) peek(at time.Time, n int) ratelimit.Result {
	return decide(m, &m.history, at, n, false)
}

func (m *slidingCounter) clone() keeper { return &slidingCounter{m.copied()} }

// adopt does the same as SetRate. The two methods differ only for a bucket, because a bucket earns units as time passes.
func (m *slidingCounter) adopt(at time.Time, r ratelimit.Rate) { m.SetRate(at, r) }

func (m *slidingCounter) meet(at time.Time, r ratelimit.Rate, n int) ratelimit.Result {
	return meet(m, at, r, n)
}

// SetRate changes the rate. The units of the estimate before the change, rounded up, still count as granted.
func (m *slidingCounter) SetRate(at time.Time, r ratelimit.Rate) {
	m.setRate(m.instant(at), r, func(u *big.Int) *big.Int {
		return ceilDiv(m.estimate(u), m.per())
	})
}

// counts returns the number of units granted in the current window, which contains the instant u, and
// in the previous window.
func (m *slidingCounter) counts(u *big.Int) (previous, current *big.Int) {
	w := m.window(u)
	return m.count(sub(w, num(1))), m.count(w)
}

// estimate returns how many units count as granted in the interval of length Per that ends at the instant u. To
// avoid fractions, the result is the number of units multiplied by Per.
func (m *slidingCounter) estimate(u *big.Int) *big.Int {
	previous, current := m.counts(u)
	elapsed := sub(u, m.begin(m.window(u)))
	return add(mul(previous, sub(m.per(), elapsed)), mul(current, m.per()))
}

func (m *slidingCounter) free(u *big.Int) *big.Int {
	return floorDiv(sub(mul(m.requests(), m.per()), m.estimate(u)), m.per())
}

// wait returns the nanoseconds until n units fit. As time passes, the grants of the previous window count
// less and less. If n units would not fit even without these grants, they can fit only in the next window.
// There, the grants of the present window count less and less.
func (m *slidingCounter) wait(u, n *big.Int) *big.Int {
	earlier, current := m.counts(u)
	spare := sub(sub(m.requests(), current), n)
	next := add(m.window(u), num(1))
	if spare.Sign() < 0 {
		earlier, spare = current, sub(m.requests(), n)
		next = add(next, num(1))
	}
	overlap := floorDiv(mul(spare, m.per()), earlier)
	return sub(sub(m.begin(next), overlap), u)
}

func (m *slidingCounter) renewal(u *big.Int) *big.Int {
	previous, current := m.counts(u)
	next := add(m.window(u), num(1))
	switch {
	case current.Sign() > 0:
		return sub(m.begin(add(next, num(1))), u)
	case previous.Sign() > 0:
		return sub(m.begin(next), u)
	}
	return num(0)
}
