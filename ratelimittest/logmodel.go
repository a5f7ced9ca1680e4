package ratelimittest

import (
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// SlidingWindowLogModel returns the [Model] of one key of a [ratelimit.SlidingWindowLog]
// that was made at the instant start. The rate must be valid and have no burst.
func SlidingWindowLogModel(start time.Time, r ratelimit.Rate) Model {
	return &slidingLog{history{start: start}, r}
}

// A slidingLog grants n units if at most Requests units, including these n, are granted in the interval
// of length Per that ends now. A grant that is exactly as old as Per does not count.
type slidingLog struct {
	history
	rate ratelimit.Rate
}

// Ask takes n units at the given time. If not all of them fit, Ask takes none.
func (m *slidingLog) Ask(at time.Time, n int) ratelimit.Result {
	return ask(m, &m.history, at, n)
}

func (m *slidingLog) peek(at time.Time, n int) ratelimit.Result {
	return decide(m, &m.history, at, n, false)
}

func (m *slidingLog) clone() keeper { return &slidingLog{m.copied(), m.rate} }

// adopt does the same as SetRate. The two methods differ only for a bucket, because a bucket earns units as time passes.
func (m *slidingLog) adopt(at time.Time, r ratelimit.Rate) { m.SetRate(at, r) }

func (m *slidingLog) meet(at time.Time, r ratelimit.Rate, n int) ratelimit.Result {
	return meet(m, at, r, n)
}

// SetRate changes the rate. If Per changes, the log forgets the grants that no longer count at the
// given time. If it kept them, they would count again with a longer Per, or after the clock steps back.
func (m *slidingLog) SetRate(at time.Time, r ratelimit.Rate) {
	if m.last != nil && r.Per != m.rate.Per {
		u := m.instant(at)
		m.grants, m.last = m.inside(u), u
	}
	m.rate = r
}

// leaves returns the instant from which the grant g no longer counts.
func (m *slidingLog) leaves(g grant) *big.Int { return add(g.at, num(int64(m.rate.Per))) }

// inside returns the grants in the interval of length Per that ends at the instant u.
func (m *slidingLog) inside(u *big.Int) []grant {
	var in []grant
	for _, g := range m.grants {
		if m.leaves(g).Cmp(u) > 0 {
			in = append(in, g)
		}
	}
	return in
}

func (m *slidingLog) limit() int              { return m.rate.Requests }
func (m *slidingLog) delay(*big.Int) *big.Int { return num(0) }

func (m *slidingLog) free(u *big.Int) *big.Int {
	free := num(int64(m.rate.Requests))
	for _, g := range m.inside(u) {
		free = sub(free, g.n)
	}
	return free
}

func (m *slidingLog) wait(u, n *big.Int) *big.Int {
	free := m.free(u)
	for _, g := range m.inside(u) {
		free = add(free, g.n)
		if free.Cmp(n) >= 0 {
			return sub(m.leaves(g), u)
		}
	}
	panic("unreachable: an empty log has room for n")
}

func (m *slidingLog) renewal(u *big.Int) *big.Int {
	in := m.inside(u)
	if len(in) == 0 {
		return num(0)
	}
	return sub(m.leaves(in[len(in)-1]), u)
}
