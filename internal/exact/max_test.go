package exact

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests below compare the results with an exhaustive search. After each instant, the search has
// all states that a key can be in, and for each the most units that can be granted until then. The
// steps between states follow the definitions of the algorithms.

// TestMaxOfBucket: a token has p parts, an instant drains l of them.
func TestMaxOfBucket(t *testing.T) {
	cases, lossy := 0, 0
	for l := 1; l <= 12; l++ {
		for p := 1; p <= 9; p++ {
			for burst := 1; burst <= 4; burst++ {
				b := NewBucket(int64(l), int64(p), int64(burst))
				best := []int{0}
				for range burst * p {
					best = append(best, -1)
				}
				for d := range 24 {
					largest := 0
					next := make([]int, len(best))
					for i := range next {
						next[i] = -1
					}
					for debt, granted := range best {
						if d > 0 {
							debt = max(debt-l, 0)
						}
						for n := 0; granted >= 0 && debt+n*p <= burst*p; n++ {
							next[debt+n*p] = max(next[debt+n*p], granted+n)
							largest = max(largest, granted+n)
						}
					}
					best = next
					require.EqualValues(t, largest, b.MaxGranted(uint64(d)), "%d per %d, burst %d, within %d", l, p, burst, d)
					if cases++; largest < burst+d*l/p {
						lossy++
					}
				}
			}
		}
	}
	t.Log(cases, "cases, in", lossy, "of which something is lost")
	require.Greater(t, lossy, 1000)
}

func TestMaxOfWindows(t *testing.T) {
	cases := 0
	for l := 1; l <= 5; l++ {
		for p := 1; p <= 8; p++ {
			for d := range 40 {
				largest := 0
				for start := range p {
					used, granted := 0, 0
					for at := start; at <= start+d; at++ {
						if at%p == 0 {
							used = 0
						}
						granted += l - used // to take later what is there now gains nothing
						used = l
					}
					largest = max(largest, granted)
				}
				cases++
				require.EqualValues(t, largest, MaxOfWindows(uint64(l), uint64(p), uint64(d)), "%d per %d, within %d", l, p, d)
			}
		}
	}
	t.Log(cases, "cases")
}

// TestMaxOfLog: a state is the units granted at each of the last p-1 instants, as digits.
func TestMaxOfLog(t *testing.T) {
	cases := 0
	for l := 1; l <= 5; l++ {
		for p := 1; p <= 5; p++ {
			oldest := 1
			for range p - 1 {
				oldest *= l + 1
			}
			best := map[int]int{0: 0}
			for d := range 48 {
				largest, next := 0, map[int]int{}
				for state, granted := range best {
					recent := 0
					for digits := state; digits > 0; digits /= l + 1 {
						recent += digits % (l + 1)
					}
					for n := 0; recent+n <= l; n++ {
						to := (state*(l+1) + n) % oldest
						if known, ok := next[to]; !ok || known < granted+n {
							next[to] = granted + n
						}
						largest = max(largest, granted+n)
					}
				}
				best = next
				cases++
				require.EqualValues(t, largest, MaxOfLog(uint64(l), uint64(p), uint64(d)), "%d per %d, within %d", l, p, d)
			}
		}
	}
	t.Log(cases, "cases")
}

// TestMaxOfCounter: a state is the units granted in the window before and in this one.
func TestMaxOfCounter(t *testing.T) {
	cases := 0
	for l := 1; l <= 9; l++ {
		for p := 1; p <= 7; p++ {
			largest := make([]int, 32)
			for start := range p {
				best := map[[2]int]int{{}: 0}
				for d := range largest {
					offset, next := (start+d)%p, map[[2]int]int{}
					for s, granted := range best {
						prev, cur := s[0], s[1]
						if offset == 0 {
							prev, cur = cur, 0
						}
						weighted := (prev*(p-offset) + p - 1) / p
						for n := 0; n == 0 || weighted+cur+n <= l; n++ {
							to := [2]int{prev, cur + n}
							if known, ok := next[to]; !ok || known < granted+n {
								next[to] = granted + n
							}
							largest[d] = max(largest[d], granted+n)
						}
					}
					best = next
				}
			}
			for d, want := range largest {
				cases++
				require.EqualValues(t, want, MaxOfCounter(uint64(l), uint64(p), uint64(d)), "%d per %d, within %d", l, p, d)
			}
		}
	}
	t.Log(cases, "cases")
}

// TestMaxOfLarge compares the results for numbers at the ends of their ranges with the same
// formulas in math/big, and, for the counter, with its sum one by one.
func TestMaxOfLarge(t *testing.T) {
	number := func(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
	down := func(a, b, c uint64) *big.Int {
		return new(big.Int).Div(new(big.Int).Mul(number(a), number(b)), number(c))
	}
	up := func(a, c uint64) *big.Int {
		return new(big.Int).Div(new(big.Int).Add(number(a), number(c-1)), number(c))
	}
	limit := number(math.MaxUint64)
	same := func(want *big.Int, got uint64, what ...uint64) {
		if want.Cmp(limit) > 0 {
			want = limit
		}
		require.Equal(t, want.Uint64(), got, "%d", what)
	}
	r := rand.New(rand.NewPCG(1, 12))
	for range 50_000 {
		l, p, d := uint64(edgy(r, math.MaxInt64)), uint64(edgy(r, math.MaxInt64)), uint64(edgy(r, math.MaxInt64))
		burst := uint64(edgy(r, MaxBurst))
		one := number(1)
		same(new(big.Int).Mul(number(l), new(big.Int).Add(one, up(d, p))), MaxOfWindows(l, p, d), l, p, d)
		same(new(big.Int).Mul(number(l), new(big.Int).Add(one, down(d, 1, p))), MaxOfLog(l, p, d), l, p, d)

		b := NewBucket(int64(l), int64(p), int64(burst))
		full := new(big.Int).Mul(number(burst-1), number(uint64(b.Unit)))
		lost := new(big.Int).Sub(number(uint64(b.Gain)), full)
		want := new(big.Int).Add(number(burst), down(d, l, p))
		if lost.Sign() > 0 {
			cycle := up(uint64(b.Unit), lost.Uint64())
			want = new(big.Int).Mul(number(burst-1), new(big.Int).Add(number(d), one))
			want.Add(want, one).Add(want, new(big.Int).Div(number(d), cycle))
		}
		same(want, b.MaxGranted(d), l, p, burst, d)

		if d = d % p * r.Uint64N(100); d == 0 {
			require.Equal(t, l, MaxOfCounter(l, p, d))
			continue
		}
		windows, rest := (d-1)/p+1, (d-1)%p
		count, sum := number(l), number(l)
		for range windows - 1 {
			next := up(count.Uint64(), p)
			count = next.Sub(number(l), next)
			sum.Add(sum, count)
		}
		last := new(big.Int).Mul(count, number(p-rest))
		last.Add(last, number(p-1)).Div(last, number(p))
		same(sum.Add(sum, number(l)).Sub(sum, last), MaxOfCounter(l, p, d), l, p, d)
	}
}
