package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A lowModel knows for each receipt of one key the lowest debt since its charge. It looks at all of them.
type lowModel struct {
	b    exact.Bucket
	ids  []Receipt
	lows []exact.Level
	cost []receipt // the charges
}

func (m *lowModel) lower(debt exact.Level) {
	for i := range m.lows {
		m.lows[i] = lesser(m.lows[i], debt)
	}
}

// settle ends the receipt number i and returns what comes back for its units.
func (m *lowModel) settle(i int, units int64) exact.Level {
	e := &m.cost[i]
	paid := m.b.Minus(e.cost(&m.b, e.n), e.cost(&m.b, e.n-units))
	back := lesser(paid, m.lows[i])
	rest := m.b.Minus(m.lows[i], back)
	for j := range m.lows {
		if j < i {
			m.lows[j] = lesser(m.lows[j], rest)
		} else {
			m.lows[j] = m.b.Minus(m.lows[j], back)
		}
	}
	m.ids = append(m.ids[:i], m.ids[i+1:]...)
	m.lows = append(m.lows[:i], m.lows[i+1:]...)
	m.cost = append(m.cost[:i], m.cost[i+1:]...)
	return back
}

// TestLayersAsAModel plays random charges, drains, settlements and changes of the rate for two keys. It
// checks that each settlement gives back what the model says, that no layer stays behind, and that the
// way from a receipt to its layer is short.
func TestLayersAsAModel(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 21))
		r := &receipts{max: 1 << 20}
		keys := [2]struct {
			hash keytable.Hash
			link uint32
			debt exact.Level
			m    lowModel
		}{{hash: keytable.HashOf("a")}, {hash: keytable.HashOf("b")}}
		for i := range keys {
			keys[i].m.b = exact.Bucket{Unit: 1 + rnd.Int64N(20)}
		}
		for step := range 400 {
			k := &keys[rnd.IntN(2)]
			m := &k.m
			switch act := rnd.IntN(10); {
			case act < 5:
				e := receipt{n: 1 + rnd.Int64N(4), portion: Portion{Units: 7, Of: 7 + rnd.Int64N(7)}}
				k.debt = m.b.Plus(k.debt, m.b.Cost(e.portion, e.n))
				charged := e
				var id Receipt
				id, k.link = r.issue(k.link, k.hash, &e, k.debt, &m.b, 0)
				m.ids, m.lows, m.cost = append(m.ids, id), append(m.lows, k.debt), append(m.cost, charged)
			case act < 7:
				k.debt = m.b.Minus(k.debt, exact.Level{Whole: rnd.Int64N(1 + 3*rnd.Int64N(4)), Frac: rnd.Int64N(m.b.Unit)})
				require.Equal(t, len(m.ids) > 0, r.lower(k.link, k.hash, k.debt))
				m.lower(k.debt)
			case act < 8 && rnd.IntN(5) == 0:
				to := exact.Bucket{Unit: 1 + rnd.Int64N(20)}
				for i := range m.lows {
					if to.Unit == m.b.Unit {
						break // nothing is rounded
					}
					m.lows[i] = to.RescaledDown(m.lows[i], &m.b)
					if e := &m.cost[i]; e.portion.Units != e.portion.Of {
						e.each, e.portion = m.b.CostDown(e.portion), Portion{}
					}
					m.cost[i].each = to.RescaledDown(m.cost[i].each, &m.b)
				}
				r.rescale(k.link, k.hash, &to, &m.b)
				k.debt, m.b = to.Rescaled(k.debt, &m.b), to
			case len(m.ids) > 0:
				i := rnd.IntN(len(m.ids))
				id, n := m.ids[i], r.named(m.ids[i]).n
				stay := rnd.Int64N(n + 1)
				want := m.settle(i, n-stay)
				got, found, last := r.settle(k.link, k.hash, id, stay, 0)
				require.True(t, found)
				require.Equal(t, want, got.Debt, "seed %d, step %d", seed, step)
				require.Equal(t, len(m.ids) == 0, last)
				k.debt = m.b.Minus(k.debt, want)
				if last {
					k.link = 0
				}
			}
		}
		for i := range keys {
			for _, id := range keys[i].m.ids {
				r.settle(keys[i].link, keys[i].hash, id, 0, 0)
			}
		}
		unused := 0
		for i := r.layers.free; i != 0; i = r.layers.all[i].below {
			unused++
		}
		require.Equal(t, max(len(r.layers.all)-1, 0), unused, "all layers are unused again")
	}
}

// TestLayersStayShallow checks that no settlement gets slow by the mergers before it: in whatever order
// the layers of 65,536 receipts are merged, the way from a receipt to its layer has at most 16 steps.
func TestLayersStayShallow(t *testing.T) {
	const most = 1 << 16
	orders := map[string]func(i int) int{
		"oldest first": func(i int) int { return i },
		"newest first": func(i int) int { return most - 1 - i },
		"random":       func(i int) int { return i * 25173 % most },
		"in pairs": func(i int) int { // each second one, then each second one of the others, and so on
			step := 1
			for i >= most/2/step && step < most/2 {
				i, step = i-most/2/step, 2*step
			}
			return (2*i + 1) * step % most
		},
	}
	for name, at := range orders {
		r, h, link, b := &receipts{max: most}, keytable.HashOf("a"), uint32(0), exact.Bucket{Unit: 1}
		ids := make([]Receipt, most)
		for i := range ids {
			ids[i], link = r.issue(link, h, &receipt{n: 2, portion: Portion{Units: 1, Of: 1}}, exact.Level{Whole: int64(2*i + 2)}, &b, 0)
		}
		c, longest := &r.chains[link], 0
		for i := range ids {
			layer := r.layers.find(r.named(ids[at(i)]).layer)
			r.layers.take(c, layer, r.layers.all[layer].size)
		}
		for _, id := range ids {
			steps := 0
			for i := r.named(id).layer; r.layers.all[i].merged; i = r.layers.all[i].below {
				steps++
			}
			longest = max(longest, steps)
		}
		require.LessOrEqual(t, longest, 16, name)
		require.Zero(t, c.debt, name)
		t.Logf("%s: %d steps at most", name, longest)
	}
}
