package keytable

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A family makes hashes of one kind that may be difficult for a table.
type family struct {
	name string
	hash func(r *rand.Rand) Hash
}

var families = []family{
	{"spread over all shards", func(r *rand.Rand) Hash { return Hash{r.Uint64() | 1, r.Uint64()} }},
	{"of few keys", func(r *rand.Rand) Hash { return spread(r.IntN(40), 40) }},
	{"with one Hi", func(r *rand.Rand) Hash { return Hash{1 << 63, r.Uint64N(300)} }},
	{"with the least Hi", func(r *rand.Rand) Hash { return Hash{1, r.Uint64N(300)} }},
	{"with the greatest Hi", func(r *rand.Rand) Hash { return Hash{math.MaxUint64, r.Uint64N(300)} }},
	{"in the first shard", func(r *rand.Rand) Hash { return Hash{1 + r.Uint64N(1<<40), r.Uint64()} }},
	{"in the last shard", func(r *rand.Rand) Hash { return Hash{math.MaxUint64 - r.Uint64N(1<<40), r.Uint64()} }},
	{"on two sides of a cut", func(r *rand.Rand) Hash { return Hash{1<<63 - 4 + r.Uint64N(8), r.Uint64N(30)} }},
	{"at both ends", func(r *rand.Rand) Hash {
		if r.IntN(2) == 0 {
			return Hash{1 + r.Uint64N(3), r.Uint64N(90)}
		}
		return Hash{math.MaxUint64 - r.Uint64N(3), r.Uint64N(90)}
	}},
}

// A model records in a map what every key owes, and what the keys that share a debt owe. It never
// forgets a key.
type model struct {
	own     map[Hash]Instant
	strict  bool // whether no key has shared a debt yet
	version int
}

// TestModel makes random calls, and compares with the model what every key owes.
func TestModel(t *testing.T) {
	for _, f := range families {
		for _, maxKeys := range []int{1, 7, 200, 1 << 20} {
			t.Run(fmt.Sprintf("keys %s, at most %d", f.name, maxKeys), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(3) {
					play(t, f, maxKeys, rand.New(rand.NewPCG(seed, 1)))
				}
			})
		}
	}
}

// play makes one random sequence of calls.
func play(t *testing.T, f family, maxKeys int, r *rand.Rand) {
	table := newDebts(maxKeys)
	m := model{own: make(map[Hash]Instant), strict: true, version: 1}
	now := at(0)
	for range 500 {
		h := f.hash(r)
		switch op := r.IntN(100); {
		case op < 60:
			m.owe(t, table, h, now, time.Duration(1+r.IntN(400)))
		case op < 75:
			m.compare(t, table, h, now)
		case op < 83:
			if has(table, h) {
				delete(m.own, h)
			}
			reset(table, h)
			if m.strict {
				require.Zero(t, owed(table, h, now), "a key that was reset is as good as new")
			}
		case op < 90:
			now = now.Add(time.Duration(r.IntN(100)))
		case op < 91:
			now = now.Add(time.Duration(r.IntN(50_000))) // sometimes so much that most keys become idle
		case op < 92:
			m.reconfigure(t, table)
		default:
			m.compare(t, table, f.hash(r), now)
		}
		table.check(t)
	}
	for h := range m.own {
		m.compare(t, table, h, now)
	}
}

// owe adds d to the debt of h, in the table and in the model.
func (m *model) owe(t *testing.T, table *debts, h Hash, now Instant, d time.Duration) {
	full, before, known := table.Len() >= int(table.maxKeys), owed(table, h, now), has(table, h)
	owe(table, h, now, d)
	m.own[h] = max(m.own[h], now).Add(d)
	if !has(table, h) {
		require.True(t, full, "a key shares a debt below the bound")
		require.False(t, known, "a key loses its slot to its own request")
		m.strict = false
	}
	require.GreaterOrEqual(t, owed(table, h, now), max(before, now).Add(d), "a charge is lost")
}

// compare verifies that the table has not forgotten any debt of h.
func (m *model) compare(t *testing.T, table *debts, h Hash, now Instant) {
	got, want := owed(table, h, now), m.own[h]
	if want <= now {
		want = 0 // the key may have been forgotten
	}
	if m.strict && got > now {
		require.Equal(t, want, got, "key %x", h)
	}
	require.GreaterOrEqual(t, got, want, "key %x was forgiven a debt", h)
}

// reconfigure changes the configuration, and verifies that every state that has been used
// is converted exactly once.
func (m *model) reconfigure(t *testing.T, table *debts) {
	from := m.version
	m.version++
	converted := 0
	table.Reconfigure(&drain{m.version}, func(_ Hash, s *debt, _ bool) {
		require.Contains(t, []int{0, from}, s.version, "a state was converted twice, or was left out before")
		s.version = m.version
		converted++
	})
	unused := 0
	for _, s := range table.shards() {
		require.Equal(t, m.version, s.Algorithm.version)
		for i := range s.slots {
			switch at := s.slots[i]; {
			case at.hash.Hi == 0:
			case at.state == debt{}:
				unused++ // the key was reset
			default:
				require.Equal(t, m.version, at.state.version, "a key was left out")
			}
		}
	}
	require.GreaterOrEqual(t, converted+unused, table.Len())
}
