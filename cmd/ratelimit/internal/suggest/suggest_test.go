package suggest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// randomSample returns a Sample of requests of a few clients, most of one unit.
func randomSample(seed uint64, n, most int) *Sample {
	r := rand.New(rand.NewPCG(seed, 3))
	s, now := NewSample(most), int64(1_791_633_600_000_000_000)
	for range n {
		now += r.Int64N(int64(time.Second)) - int64(50*time.Millisecond) // out of order at times
		cost := 1
		if r.IntN(5) == 0 {
			cost = 1 + r.IntN(4)
		}
		s.Add(&Request{now, fmt.Sprint("c", r.IntN(6)*r.IntN(6)), fmt.Sprint("/", r.IntN(3)), cost})
	}
	return s
}

func upTo(n uint64) func(uint64) uint64 { return func(uint64) uint64 { return n } }

func all(n uint64) uint64 { return n }

// TestSmallest compares the limits with those that are found by trying all.
func TestSmallest(t *testing.T) {
	for seed := range uint64(10) {
		for _, g := range randomSample(seed, 300, 10_000).Groups(2) {
			for _, goal := range []Goal{{upTo(0), all}, {upTo(7), all}, {all, upTo(1)}, {upTo(20), upTo(3)}} {
				limits := map[ratelimit.Algorithm]int{}
				for _, a := range Algorithms {
					got, err := g.Smallest(t.Context(), a, 10*time.Second, goal)
					require.NoError(t, err)
					limits[a] = got
					rate := func(n int) ratelimit.Rate { return ratelimit.Rate{Requests: n, Per: 10 * time.Second} }
					ok, err := g.meets(t.Context(), a, rate(got), goal)
					require.NoError(t, err)
					require.True(t, ok)
					for n := 1; n < got; n++ {
						ok, err := g.meets(t.Context(), a, rate(n), goal)
						require.NoError(t, err)
						require.False(t, ok, "%s with %d, and %d was found", a, n, got)
					}
				}
				require.Equal(t, limits[ratelimit.AlgorithmTokenBucket], limits[ratelimit.AlgorithmLeakyBucket])
			}
		}
	}
}

func TestSmallestOfNone(t *testing.T) {
	s := NewSample(1000)
	s.Add(&Request{1, "a", "/", 70_000})
	g := s.Groups(1)[0]
	goal := Goal{upTo(0), all}
	got, err := g.Smallest(t.Context(), ratelimit.AlgorithmTokenBucket, time.Minute, goal)
	require.NoError(t, err)
	require.Equal(t, 70_000, got)
	got, err = g.Smallest(t.Context(), ratelimit.AlgorithmSlidingWindowLog, time.Minute, goal)
	require.NoError(t, err)
	require.Zero(t, got, "a log has at most 65,536 entries")
	got, err = g.Smallest(t.Context(), ratelimit.AlgorithmFixedWindow, time.Minute, Goal{all, all})
	require.NoError(t, err)
	require.Equal(t, 1, got, "anything will do")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Smallest(ctx, ratelimit.AlgorithmTokenBucket, time.Minute, goal)
	require.ErrorIs(t, err, context.Canceled)
	_, err = g.Smallest(t.Context(), "Dice", time.Minute, goal)
	require.ErrorContains(t, err, `no algorithm "Dice"`)
}

// TestSampleBounded requires that a Sample keeps no more than it may, and of each client all or
// nothing.
func TestSampleBounded(t *testing.T) {
	s := NewSample(5000)
	for i := range 200_000 {
		s.Add(&Request{int64(i), fmt.Sprint("c", i%4000), "/", 1})
		require.LessOrEqual(t, s.n, 5000)
	}
	require.Greater(t, s.Part(), uint64(16))
	groups := s.Groups(10)
	require.Len(t, groups, 1)
	g := groups[0]
	require.Equal(t, uint64(200_000), g.Requests)
	require.Len(t, g.events, 50*g.Clients, "all of each client")
	require.Equal(t, uint64(50), g.maxUnits)
	require.Less(t, g.Clients*int(s.Part()), 8000, "about 4,000")
	require.Greater(t, g.Clients*int(s.Part()), 2000)
	last := int64(-1)
	for _, e := range g.events {
		require.Greater(t, e.time, last, "in order")
		last = e.time
	}
	s = NewSample(10)
	for i := range 100 {
		s.Add(&Request{int64(i), "one", "/", 1})
	}
	require.LessOrEqual(t, s.n, 10, "one client alone has more")
}

func TestGroups(t *testing.T) {
	s := NewSample(1 << 20)
	add := func(endpoint string, n int) {
		for range n {
			s.Add(&Request{1, "c", endpoint, 1})
		}
	}
	names := func(top int) (names []string) {
		for _, g := range s.Groups(top) {
			names = append(names, fmt.Sprint(g.Endpoint, " ", g.Requests, " ", len(g.events)))
		}
		return names
	}
	fill := func() {
		for _, bad := range []string{"", "default", "/a*", "/\xff", string(make([]byte, 2000))} {
			add(bad, 100)
		}
		add("/b", 4)
		add("/a", 4)
		add("/c", 9)
		add("/d", 1)
	}
	fill()
	require.Equal(t, []string{"/c 9 9", "/a 4 4", "/b 4 4", " 501 501"}, names(3))
	s = NewSample(1 << 20)
	fill()
	require.Equal(t, []string{" 518 518"}, names(0))
	s = NewSample(1 << 20)
	fill()

	// A flood of endpoints does not push out those that come often.
	for i := range 3 * maxEndpoints {
		add(fmt.Sprint("/flood/", i), 1)
		require.LessOrEqual(t, len(s.endpoints), maxEndpoints+1)
	}
	require.Equal(t, uint64(518+3*maxEndpoints), s.requests)
	total := 0
	groups := s.Groups(3)
	for _, g := range groups {
		total += len(g.events)
	}
	require.Equal(t, []string{"/c", "/a", "/b", ""}, []string{groups[0].Endpoint, groups[1].Endpoint, groups[2].Endpoint, groups[3].Endpoint})
	require.Equal(t, 518+3*maxEndpoints, total)
}
