package topk_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/topk"
)

func TestCounter(t *testing.T) {
	c := topk.New(2)
	require.Empty(t, c.Top(5))
	for _, name := range []string{"a", "b", "a"} {
		c.Add(name, 1)
	}
	require.Equal(t, []topk.Item{{"a", 2, 0}, {"b", 1, 0}}, c.Top(5))
	require.Equal(t, uint64(1), c.Missed())
	c.Add("c", 3)
	require.Equal(t, []topk.Item{{"c", 4, 1}, {"a", 2, 0}}, c.Top(5), "c takes the counter of b")
	require.Equal(t, []topk.Item{{"c", 4, 1}}, c.Top(1))
	require.Equal(t, uint64(6), c.Total())
	require.Equal(t, uint64(2), c.Missed())
}

func TestLongNames(t *testing.T) {
	c, long := topk.New(10), strings.Repeat("x", 1000)
	c.Add(long+"1", 1)
	c.Add(long+"2", 1)
	c.Add(long+"1", 1)
	top := c.Top(10)
	require.Len(t, top, 2, "they differ at the end")
	require.Equal(t, uint64(2), top[0].Count)
	require.LessOrEqual(t, len(top[0].Name), 200)
}

// TestBounds compares the counts with true ones, at each step of random sequences.
func TestBounds(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, counts := topk.New(1+r.IntN(20)), map[string]uint64{}
		for range 300 {
			name, n := fmt.Sprint(r.IntN(40)), uint64(1+r.IntN(3))
			c.Add(name, n)
			counts[name] += n
			kept := map[string]bool{}
			for _, item := range c.Top(100) {
				kept[item.Name] = true
				require.GreaterOrEqual(t, item.Count, counts[item.Name])
				require.LessOrEqual(t, item.Count-item.Error, counts[item.Name])
			}
			for name, n := range counts {
				require.True(t, kept[name] || n <= c.Missed())
			}
		}
	}
}

// TestZipf requires that the ten names that come most often are among the first twenty.
func TestZipf(t *testing.T) {
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 2))
		zipf := rand.NewZipf(r, 1.05, 1, 1<<20)
		c, counts := topk.New(1000), map[string]uint64{}
		for range 300_000 {
			name := fmt.Sprint(zipf.Uint64())
			c.Add(name, 1)
			counts[name]++
		}
		require.Greater(t, len(counts), 20_000, "far more names than counters")
		names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
		top := c.Top(20)
		for _, name := range names[:10] {
			require.True(t, slices.ContainsFunc(top, func(item topk.Item) bool { return item.Name == name }), "%q, which came %d times", name,
				counts[name])
		}
		least := uint64(math.MaxUint64)
		for _, item := range top {
			require.LessOrEqual(t, item.Error, c.Total()/1000, "the bound of the algorithm")
			least = min(least, item.Count-item.Error)
		}
		require.Positive(t, least)
	}
}
