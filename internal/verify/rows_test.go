package verify

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/books"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/packed"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

var all = append(ratelimit.Algorithms(), ratelimit.AlgorithmInFlight)

// begin is when the histories begin.
var begin = time.Date(2026, 3, 1, 12, 34, 56, 789012345, time.UTC)

// A rows is a MemoryStore that forgets everything after each call. It keeps what its engine has dumped, and loads it
// before the next call.
type rows struct {
	*ratelimit.MemoryStore
	clock *ratelimit.FakeClock
	rows  map[string]row
	drops bool // whether a row is dropped once it may be
	heals bool

	loads, drop, largest int
}

type row struct {
	bytes []byte
	keep  keytable.Instant
}

func newRows(t *testing.T) *rows {
	t.Helper()
	clock := ratelimit.NewFakeClock(time.Unix(0, 0))
	m, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	clock.Set(begin)
	return &rows{MemoryStore: m, clock: clock, rows: make(map[string]row)}
}

func chargeOfAsk(a *ratelimit.Ask) *engine.Charge {
	c := &engine.Charge{Rule: a.Rule, Algorithm: string(a.Algorithm), Key: a.Key, Shadow: a.Shadow, Penalty: penalty.Rule(a.Penalty)}
	if a.Warmup != (ratelimit.Warmup{}) {
		c.Warmup = &engine.Warmup{From: int64(a.Warmup.From), Over: a.Warmup.Over, Raise: true}
	}
	return c
}

func nameOfAsk(a *ratelimit.Ask) string {
	return fmt.Sprintf("%q %q %q %t", a.Rule, a.Algorithm, a.Key, a.Warmup != ratelimit.Warmup{})
}

// do loads the rows of the asks, calls the function call, and dumps the rows.
func (m *rows) do(asks []ratelimit.Ask, call func()) error {
	book := books.Of(m.MemoryStore)
	now := keytable.InstantAt(time.Duration(m.clock.Now().UnixNano()))
	defer book.Forget()
	for i := range asks {
		r, ok := m.rows[nameOfAsk(&asks[i])]
		switch {
		case !ok:
		case m.drops && r.keep <= now:
			m.drop++
			delete(m.rows, nameOfAsk(&asks[i]))
		default:
			m.loads++
			if err := book.Load(chargeOfAsk(&asks[i]), r.bytes, m.heals); err != nil {
				return err
			}
		}
	}
	call()
	for i := range asks {
		bytes, keep := book.Dump(chargeOfAsk(&asks[i]))
		m.largest = max(m.largest, len(bytes))
		if m.rows[nameOfAsk(&asks[i])] = (row{bytes, keep}); bytes == nil {
			delete(m.rows, nameOfAsk(&asks[i]))
		}
	}
	return nil
}

// An openAsk is a charge that may be given back until a time.
type openAsk struct {
	ask   ratelimit.Ask
	until time.Time
}

// A rowHistory makes random calls of two stores, of which one dumps its rows after each call.
type rowHistory struct {
	*rand.Rand
	kept   *ratelimit.MemoryStore
	clock  *ratelimit.FakeClock
	dumped *rows
	asks   []ratelimit.Ask // the last ask of each key
	open   []openAsk       // the charges that may be given back
	latest time.Time       // the latest time so far
	calls  int
	grants int
	denied int
}

func newRowHistory(t *testing.T, a ratelimit.Algorithm, seed uint64, back bool) *rowHistory {
	t.Helper()
	h := &rowHistory{Rand: rand.New(rand.NewPCG(seed, 25)), clock: ratelimit.NewFakeClock(begin), dumped: newRows(t)}
	var err error
	// A store for few keys has one table of blocks, so that a history is the same in each run.
	h.kept, err = ratelimit.NewMemoryStore(ratelimit.WithClock(h.clock), ratelimit.WithMaxKeys(1000))
	require.NoError(t, err)
	for _, rule := range []string{"user", "all"} {
		first := ratelimit.Ask{Rule: rule, Algorithm: a, Rate: h.rate(a)}
		if h.IntN(3) == 0 && a != ratelimit.AlgorithmInFlight {
			first.Warmup = ratelimit.Warmup{From: 1 + h.IntN(2), Over: time.Duration(1+h.IntN(20)) * time.Second}
		}
		if h.IntN(2) == 0 {
			first.Penalty = ratelimit.Penalty{After: 1 + h.IntN(4)}
			first.Penalty.Within, first.Penalty.For = time.Duration(1+h.IntN(9))*time.Second, time.Duration(1+h.IntN(5))*time.Second
			if h.IntN(2) == 0 {
				first.Penalty.Most = first.Penalty.For * time.Duration(1+h.IntN(9))
			}
		}
		keys := 1 + h.IntN(2)
		if first.Penalty.After > 0 && back {
			keys = 1 // a denial may make the kept store forget ended blocks of other keys, which run again if the clock steps back
		}
		for k := range keys {
			ask := first
			ask.Key = string(rune('a' + k))
			h.asks = append(h.asks, ask)
		}
	}
	return h
}

// rate returns a random rate for the algorithm.
func (h *rowHistory) rate(a ratelimit.Algorithm) ratelimit.Rate {
	r := ratelimit.Rate{Requests: 1 + h.IntN(12), Per: time.Duration(1+h.IntN(9)) * time.Second}
	switch {
	case h.IntN(3) == 0:
		r.Per = time.Duration(1 + h.Int64N(int64(10*time.Second)))
	case h.IntN(10) == 0:
		r.Requests = 1 + h.IntN(1<<30)
		if a == ratelimit.AlgorithmSlidingWindowLog {
			r.Requests = 1 + h.IntN(1<<16)
		}
	}
	switch {
	case !a.Windowed() && h.IntN(2) == 0:
		r.Burst = 1 + h.IntN(20)
	case a == ratelimit.AlgorithmFixedWindow && h.IntN(3) == 0:
		r.Window = "first"
		if h.IntN(2) == 0 {
			r.Per, r.Window = 0, []ratelimit.Window{"day", "month Europe/Berlin", "week", "month from day 17"}[h.IntN(4)]
		}
	}
	return r
}

// step makes one call of both stores. It returns what differs.
func (h *rowHistory) step(t *testing.T, back bool) {
	t.Helper()
	h.move(back)
	h.calls++
	p := h.IntN(100)
	if len(h.open) > 0 && p < 25 {
		h.settle(t, back)
		return
	}
	asks := h.choose()
	both := func(f func(ratelimit.Store) (any, error)) {
		want, wantErr := f(h.kept)
		var got any
		var err error
		require.NoError(t, h.dumped.do(asks, func() { got, err = f(h.dumped.MemoryStore) }), "call %d", h.calls)
		require.Equal(t, wantErr, err, "call %d", h.calls)
		require.Equal(t, want, got, "call %d: %+v", h.calls, asks)
	}
	switch {
	case p < 28:
		both(func(s ratelimit.Store) (any, error) { return nil, s.Reset(t.Context(), asks) })
	case p < 31:
		both(func(s ratelimit.Store) (any, error) {
			return nil, s.(ratelimit.StorePardoner).Pardon(t.Context(), asks)
		})
	default:
		both(func(s ratelimit.Store) (any, error) {
			results, err := s.Take(t.Context(), asks)
			if s == h.kept {
				h.note(asks, results)
			}
			return results, err
		})
	}
}

// note keeps the charges that may be given back.
func (h *rowHistory) note(asks []ratelimit.Ask, results []ratelimit.Result) {
	for i, res := range results {
		if h.grants++; !res.Allowed {
			h.grants--
			h.denied++
		}
		if asks[i].Receipt != 0 && asks[i].N > 0 {
			// A denied ask is added too: its Settle must change nothing.
			h.open = append(h.open, openAsk{asks[i], h.clock.Now().Add(asks[i].HoldFor)})
		}
	}
}

// settle settles a charge. A charge that was once too old to be settled is not settled after a step back of the clock: which of
// these a store forgets depends on what it has charged meanwhile.
func (h *rowHistory) settle(t *testing.T, back bool) {
	t.Helper()
	i := h.IntN(len(h.open))
	a := h.open[i].ask
	if late := back && !h.latest.Before(h.open[i].until); late || h.IntN(5) > 0 {
		h.open = slices.Delete(h.open, i, i+1)
		if late {
			return
		}
	}
	a.Charged, a.Shadow, a.HoldFor, a.Look = a.N, false, 0, false
	if a.N = h.IntN(a.N + 1); h.IntN(4) == 0 {
		a.N = a.Charged + h.IntN(3)
	}
	if a.Algorithm == ratelimit.AlgorithmInFlight {
		if a.N = 0; h.IntN(2) == 0 {
			a.N = a.Charged + 1
		}
	}
	asks := []ratelimit.Ask{a}
	want := h.kept.Settle(t.Context(), asks)
	require.NoError(t, h.dumped.do(asks, func() { require.Equal(t, want, h.dumped.Settle(t.Context(), asks)) }), "call %d", h.calls)
}

// choose returns the asks of a call.
func (h *rowHistory) choose() (asks []ratelimit.Ask) {
	look := h.IntN(6) == 0
	for _, i := range h.Perm(len(h.asks))[:1+h.IntN(min(len(h.asks), 2))] {
		if h.IntN(8) == 0 {
			next := h.rate(h.asks[i].Algorithm)
			if h.asks[i].Algorithm == ratelimit.AlgorithmInFlight || h.IntN(2) == 0 {
				next.Per = h.asks[i].Rate.Per
				next.Window = h.asks[i].Rate.Window
			}
			h.asks[i].Rate = next
		}
		a := h.asks[i]
		a.N, a.Look, a.Shadow, a.NoStrike = h.IntN(4), look, h.IntN(5) == 0, h.IntN(5) == 0
		if h.IntN(4) == 0 {
			a.N = h.IntN(min(max(a.Rate.Requests, a.Rate.Burst), 1<<20) + 2)
		}
		if h.IntN(2) == 0 || a.Algorithm == ratelimit.AlgorithmInFlight {
			a.Receipt, a.HoldFor = h.Uint64(), time.Duration(1+h.IntN(8000))*time.Millisecond
			if a.Algorithm == ratelimit.AlgorithmInFlight {
				a.HoldFor = a.Rate.Per
			}
		}
		asks = append(asks, a)
	}
	return asks
}

// move moves the clocks.
func (h *rowHistory) move(back bool) {
	now := h.clock.Now()
	switch p := h.IntN(20); {
	case p < 6:
	case p < 15:
		now = now.Add(time.Duration(h.Int64N(int64(2 * time.Second))))
	case p < 18:
		now = now.Add(time.Duration(h.Int64N(int64(30 * time.Second))))
	case p == 18 && back:
		now = now.Add(-time.Duration(h.Int64N(int64(5 * time.Second))))
	case p == 19 && h.IntN(5) == 0:
		now = now.Add(time.Duration(h.Int64N(int64(400 * time.Hour))))
	}
	h.clock.Set(now)
	h.dumped.clock.Set(now)
	if now.After(h.latest) {
		h.latest = now
	}
}

// TestRowsHaveEverything proves with random calls that a store whose engine dumps each key after each call, forgets it, and
// loads it before the next call, gives the answers of a store that never does so. In half of the histories the clock never steps
// back; there, a row is also dropped as soon as Dump has said that it may be.
func TestRowsHaveEverything(t *testing.T) {
	oneGoroutine(t)
	histories := 1500
	if testing.Short() {
		histories = 150
	}
	for _, a := range all {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			sum := struct{ calls, loads, dropped, grants, denied, largest int }{}
			for seed := range histories {
				back := seed%2 == 0
				h := newRowHistory(t, a, uint64(seed), back)
				h.dumped.drops = !back
				for range 80 {
					h.step(t, back)
				}
				sum.calls += h.calls
				sum.loads += h.dumped.loads
				sum.dropped += h.dumped.drop
				sum.grants += h.grants
				sum.denied += h.denied
				sum.largest = max(sum.largest, h.dumped.largest)
			}
			t.Logf("%+v", sum)
			require.NotZero(t, sum.dropped)
		})
	}
}

// broken changes a few bytes of a row.
func broken(r *rand.Rand, row []byte) []byte {
	row = slices.Clone(row)
	for range 1 + r.IntN(3) {
		switch i := r.IntN(len(row) + 1); {
		case i == len(row) || r.IntN(8) == 0:
			row = append(row, byte(r.Uint32()))
		case r.IntN(8) == 0 && len(row) > 1:
			row = slices.Delete(row, i, i+1)
		case r.IntN(2) == 0:
			row[i] ^= 1 << r.IntN(8)
		default:
			row[i] = byte(r.Uint32()) | 0x80
		}
	}
	return row
}

// survives loads a row that may be broken, and makes calls of all kinds. None may panic. A row that is accepted must be one that
// Dump can return.
func survives(t *testing.T, a ratelimit.Ask, row []byte) (accepted bool) {
	t.Helper()
	m := newRows(t)
	book := books.Of(m.MemoryStore)
	for range 2 {
		if err := book.Load(chargeOfAsk(&a), row, false); err != nil {
			require.ErrorIs(t, err, packed.ErrBroken)
			book.Forget()
			return false
		}
		again, _ := book.Dump(chargeOfAsk(&a))
		book.Forget()
		if again != nil { // a key that holds nothing has no row
			require.NoError(t, book.Load(chargeOfAsk(&a), again, true), "what was accepted and dumped is accepted again")
			book.Forget()
		}
		require.NoError(t, book.Load(chargeOfAsk(&a), row, false))
		for i := range 6 {
			a.N, a.Receipt, a.HoldFor = i%4, uint64(i%2), time.Duration(i%2)*time.Minute
			if m.Accepts(a) == nil {
				_, err := m.Take(t.Context(), []ratelimit.Ask{a})
				require.NoError(t, err)
			}
			a.Rate.Requests++
		}
		for id := range uint64(3) {
			back := a
			back.Receipt, back.Charged, back.N = id+1, 3, 1
			if err := m.Settle(t.Context(), []ratelimit.Ask{back}); err != nil {
				require.ErrorIs(t, err, ratelimit.ErrSettled)
			}
		}
		dumped, _ := book.Dump(chargeOfAsk(&a))
		book.Forget()
		if dumped != nil {
			require.NoError(t, book.Load(chargeOfAsk(&a), dumped, false), "what Dump returns is accepted")
		}
		require.NoError(t, m.Reset(t.Context(), []ratelimit.Ask{a}))
		book.Forget()
	}
	return true
}

// TestBrokenRows changes bytes of rows at random. No such row makes a call panic.
func TestBrokenRows(t *testing.T) {
	oneGoroutine(t)
	histories := 60
	if testing.Short() {
		histories = 12
	}
	for _, a := range all {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			accepted, refused := 0, 0
			for seed := range histories {
				h := newRowHistory(t, a, uint64(seed), true)
				for range 40 {
					h.step(t, true)
				}
				for _, ask := range h.asks {
					r, ok := h.dumped.rows[nameOfAsk(&ask)]
					if !ok {
						continue
					}
					require.True(t, survives(t, ask, r.bytes))
					for range 40 {
						if survives(t, ask, broken(h.Rand, r.bytes)) {
							accepted++
						} else {
							refused++
						}
					}
				}
			}
			t.Logf("%d accepted, %d refused", accepted, refused)
			require.NotZero(t, accepted)
			require.NotZero(t, refused)
		})
	}
}

// FuzzRows loads any bytes as a row.
func FuzzRows(f *testing.F) {
	for i, a := range all {
		for seed := range uint64(4) {
			h := newRowHistory(new(testing.T), a, seed, true)
			for range 30 {
				h.step(new(testing.T), true)
			}
			for _, ask := range h.asks {
				if r, ok := h.dumped.rows[nameOfAsk(&ask)]; ok {
					f.Add(uint8(i), ask.Warmup != ratelimit.Warmup{}, r.bytes)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, warms bool, row []byte) {
		ask := ratelimit.Ask{Rule: "r", Key: "k", Algorithm: all[int(i)%len(all)], Rate: ratelimit.PerMinute(10),
			Penalty: ratelimit.Penalty{After: 3, Within: time.Minute, For: time.Minute, Most: time.Hour}}
		if warms && ask.Algorithm != ratelimit.AlgorithmInFlight {
			ask.Warmup = ratelimit.Warmup{From: 1, Over: time.Minute}
		}
		survives(t, ask, row)
	})
}

// TestHeal charges keys while the clock is far ahead, and sets it back. A key whose last charge is so far ahead that a new key
// would be unused again by then counts as charged now; with any other, a caller waits for the clock.
func TestHeal(t *testing.T) {
	for _, a := range all {
		t.Run(string(a), func(t *testing.T) {
			for _, step := range []struct {
				ahead time.Duration
				heals bool
				moved bool
				why   string
			}{
				{time.Hour, true, true, "far ahead"},
				{59 * time.Second, true, false, "the clock will come to that soon"},
				{time.Hour, false, false, "without healing"},
			} {
				m := newRows(t)
				start := begin.Truncate(time.Minute)
				ask := ratelimit.Ask{Rule: "r", Key: "k", Algorithm: a, Rate: ratelimit.PerMinute(10), N: 10, Receipt: 7, HoldFor: time.Minute,
					Penalty: ratelimit.Penalty{After: 1, Within: time.Minute, For: time.Second}}
				take := func() (res ratelimit.Result) {
					require.NoError(t, m.do([]ratelimit.Ask{ask}, func() {
						all, err := m.Take(t.Context(), []ratelimit.Ask{ask})
						require.NoError(t, err)
						res = all[0]
					}))
					return res
				}
				m.clock.Set(start.Add(step.ahead))
				require.True(t, take().Allowed)
				require.False(t, take().Allowed)
				m.heals = step.heals
				m.clock.Set(start)
				ask.NoStrike = true
				res := take()
				require.False(t, res.Allowed, step.why)
				if wait := res.RetryAfter; step.moved {
					require.LessOrEqual(t, wait, 2*time.Minute, step.why)
				} else {
					require.Greater(t, wait, step.ahead-time.Second, step.why)
				}
				back := ask
				back.Charged, back.N = 10, 0
				require.NoError(t, m.do([]ratelimit.Ask{back}, func() { require.NoError(t, m.Settle(t.Context(), []ratelimit.Ask{back})) }))
				ask.N, ask.Penalty = 0, ratelimit.Penalty{}
				require.True(t, take().Remaining == 10 || a == ratelimit.AlgorithmLeakyBucket, "%s: the units are given back", step.why)
			}
		})
	}
}

// TestTwoChargesOfOneNumber changes the number of a charge in a row to that of another charge.
func TestTwoChargesOfOneNumber(t *testing.T) {
	for _, a := range all {
		m := newRows(t)
		ask := ratelimit.Ask{Rule: "r", Key: "k", Algorithm: a, Rate: ratelimit.PerMinute(10), N: 1, HoldFor: time.Minute}
		for _, ask.Receipt = range []uint64{0x1122334455667788, 0x99aabbccddeeff00} {
			asks := []ratelimit.Ask{ask}
			require.NoError(t, m.do(asks, func() {
				_, err := m.Take(t.Context(), asks)
				require.NoError(t, err)
			}))
		}
		row := m.rows[nameOfAsk(&ask)].bytes
		first, second := binary.LittleEndian.AppendUint64(nil, 0x1122334455667788), binary.LittleEndian.AppendUint64(nil, 0x99aabbccddeeff00)
		require.Equal(t, 1, bytes.Count(row, first), "%s", a)
		require.Equal(t, 1, bytes.Count(row, second), "%s", a)
		book := books.Of(m.MemoryStore)
		require.ErrorIs(t, book.Load(chargeOfAsk(&ask), bytes.Replace(row, second, first, 1), false), packed.ErrBroken, "%s", a)
		book.Forget()
		require.NoError(t, book.Load(chargeOfAsk(&ask), row, false))
	}
}

// TestHealAfterAStrike moves a key to now that has strikes too.
func TestHealAfterAStrike(t *testing.T) {
	m := newRows(t)
	m.heals = true
	ask := ratelimit.Ask{Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(10), N: 10,
		Penalty: ratelimit.Penalty{After: 1, Within: time.Hour, For: time.Second}}
	take := func() (res ratelimit.Result) {
		asks := []ratelimit.Ask{ask}
		require.NoError(t, m.do(asks, func() {
			results, err := m.Take(t.Context(), asks)
			require.NoError(t, err)
			res = results[0]
		}))
		return res
	}
	m.clock.Set(begin.Add(time.Hour))
	require.True(t, take().Allowed)
	require.False(t, take().Allowed)
	m.clock.Set(begin)
	ask.NoStrike = true
	require.Equal(t, time.Minute, take().RetryAfter, "the key was used up now")
}
