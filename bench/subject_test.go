package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A subject that does not limit, or mixes up its keys, is no one to compare
// with.
func TestSubjectsLimitEachKey(t *testing.T) {
	for _, s := range Specs() {
		if s.Kind != Ours && s.Kind != Peer {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			subject, err := s.New(Limit{Rate: 2, Per: forever, Burst: 2, MaxKeys: 100})
			require.NoError(t, err)
			for _, key := range []string{"a", "b", "ab", ""} {
				assert.True(t, subject.Allow(key), "first of two for %q", key)
				assert.True(t, subject.Allow(key), "second of two for %q", key)
				assert.False(t, subject.Allow(key), "third of two for %q", key)
			}
			for i := range 50 {
				assert.True(t, subject.Allow(Varied.Key(i)), "first for key %d", i)
			}
		})
	}
}

func TestReferencesAllowEverything(t *testing.T) {
	for _, s := range Specs() {
		if s.Kind != Reference && s.Kind != Unkeyed {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			subject, err := s.New(Limit{Rate: 1, Per: forever, Burst: 1, MaxKeys: 1})
			require.NoError(t, err)
			for range 10 {
				assert.True(t, subject.Allow("a"))
			}
		})
	}
}

// The floor does the work that it stands for: it finds each key again.
func TestFloorKeepsKeys(t *testing.T) {
	subject, err := newFloor(Limit{})
	require.NoError(t, err)
	f := subject.(*floor)
	for range 3 {
		Fill(f, Varied, 1000)
	}
	keys := 0
	for i := range f.shards {
		for key, e := range f.shards[i].keys {
			keys++
			assert.EqualValues(t, 3, e.count, key)
			assert.Positive(t, e.last, key)
		}
	}
	assert.Equal(t, 1000, keys)
}

func TestEverySubjectDoesItsWorkloads(t *testing.T) {
	for _, s := range Specs() {
		for _, w := range workloads() {
			if !s.Can(w) {
				continue
			}
			t.Run(s.Name+"/"+w.String(), func(t *testing.T) {
				r, err := NewRun(s, w)
				require.NoError(t, err)
				defer r.Close()
				_, err = r.Time(2000)
				require.NoError(t, err, "every ask has the workload's outcome, if that is one")
			})
		}
	}
}

func workloads() (ws []Workload) {
	for _, keys := range []int{1, 300} {
		for _, outcome := range []Outcome{Allowed, Denied} {
			for _, parallel := range []bool{false, true} {
				ws = append(ws, Workload{Keys: keys, Outcome: outcome, Parallel: parallel})
			}
		}
	}
	return append(ws,
		Workload{Keys: 1, Outcome: Mixed},
		Workload{Keys: 1, Names: Long, Outcome: Allowed},
		Workload{Keys: 300, Names: Even, Outcome: Denied},
	)
}

// TestSubjectsCountInTheirWindows asks the subjects with a Window for the time until their windows end.
// The three kinds of windows end at three different times.
func TestSubjectsCountInTheirWindows(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Date(2026, time.March, 10, 0, 0, 0, 0, time.UTC))
	limit := Limit{Rate: 2, Per: forever, MaxKeys: 100, Clock: clock}
	april := time.Date(2026, time.March, 31, 22, 0, 0, 0, time.UTC) // the month of Berlin ends in summer time
	for name, want := range map[string]time.Duration{
		"fixedwindow":                forever - time.Duration(clock.Now().UnixNano())%forever,
		"fixedwindow-calendar":       april.Sub(clock.Now()),
		"fixedwindow-first":          forever,
		"rules-fixedwindow":          forever - time.Duration(clock.Now().UnixNano())%forever,
		"rules-fixedwindow-calendar": april.Sub(clock.Now()),
		"rules-fixedwindow-first":    forever,
	} {
		s, err := Find(name)
		require.NoError(t, err)
		subject, err := s.New(limit)
		require.NoError(t, err)
		var res ratelimit.Result
		switch l := subject.(type) {
		case fixedWindow:
			res = l.FixedWindow.Allow("a")
		case ruled:
			res = l.RateLimiter.Allow("a", l.endpoint)
		}
		assert.Equal(t, want, res.ResetAfter, name)
	}
}

func TestCan(t *testing.T) {
	can := func(name string, w Workload) bool {
		s, err := Find(name)
		require.NoError(t, err)
		return s.Can(w)
	}
	assert.True(t, can("uber", Workload{Keys: 1, Outcome: Allowed, Parallel: true}))
	assert.False(t, can("uber", Workload{Keys: 1, Outcome: Denied, Parallel: true}), "it cannot deny")
	assert.False(t, can("uber", Workload{Keys: 2, Outcome: Allowed, Parallel: true}), "it has no keys")
	assert.True(t, can("map", Workload{Keys: 5, Outcome: Denied}))
	assert.False(t, can("map", Workload{Keys: 5, Outcome: Allowed, Parallel: true}), "it has no lock")
	assert.True(t, can("tokenbucket", Workload{Keys: 5, Outcome: Denied, Parallel: true}))

	assert.True(t, can("tokenbucket", Workload{Keys: 1, Outcome: Mixed}))
	assert.True(t, can("fixedwindow-first", Workload{Keys: 1, Outcome: Mixed}))
	assert.False(t, can("fixedwindow-calendar", Workload{Keys: 1, Outcome: Mixed}), "it has no windows of a millisecond")
	assert.False(t, can("tokenbucket", Workload{Keys: 2, Outcome: Mixed}), "the rate is one key's")
	assert.False(t, can("tokenbucket", Workload{Keys: 1, Outcome: Mixed, Parallel: true}), "asked by one core")
	for _, outcome := range []Outcome{Allowed, Denied} {
		second := Workload{Keys: 1, Outcome: outcome, Window: time.Second}
		assert.True(t, can("floor", second))
		assert.True(t, can("fixedwindow", second))
		assert.True(t, can("slidingwindowcounter", second))
		assert.False(t, can("tokenbucket", second), "it has no windows")
		assert.False(t, can("sethvargo", second), "its windows begin elsewhere")
		assert.Equal(t, outcome == Denied, can("slidingwindowlog", second), "a log cannot allow millions")
	}
	assert.True(t, can("slidingwindowlog", Workload{Keys: 1, Outcome: Allowed, Window: time.Millisecond}))
	assert.False(t, can("fixedwindow", Workload{Keys: 2, Outcome: Denied, Window: time.Second}))
}

func TestCheck(t *testing.T) {
	ours, peer, floor := Spec{Kind: Ours}, Spec{Kind: Peer}, Spec{Kind: Reference}
	allowed, denied := Workload{Outcome: Allowed}, Workload{Outcome: Denied}

	assert.NoError(t, ours.check(allowed, 10, 10))
	assert.Error(t, ours.check(allowed, 9, 10), "one was denied")
	assert.NoError(t, peer.check(denied, 0, 10))
	assert.Error(t, peer.check(denied, 1, 10), "one was allowed")
	assert.NoError(t, floor.check(denied, 10, 10), "the floor denies nothing")

	mixed, turning := Workload{Outcome: Mixed}, Workload{Outcome: Denied, Window: 1}
	for allowed := range 11 {
		assert.NoError(t, ours.check(mixed, allowed, 10), "a batch may be too short")
		assert.NoError(t, ours.check(turning, allowed, 10), "a batch may lie at the beginning of a window")
	}
	turning.Outcome = Allowed
	assert.EqualError(t, ours.check(turning, 9, 10), "bench: /keys=0/outcome=allowed/cpus=1/window=1ns: 9 of 10 asks were allowed, not 10")
}

func TestFind(t *testing.T) {
	s, err := Find("floor")
	require.NoError(t, err)
	assert.Equal(t, Reference, s.Kind)
	_, err = Find("ceiling")
	assert.ErrorContains(t, err, `"ceiling"`)
}

func TestTimingShares(t *testing.T) {
	timing := Timing{Took: 100, Asks: 4, Allowed: 1}
	assert.Equal(t, 25.0, timing.Each())
	assert.Equal(t, 0.25, timing.Share())
}

func TestWorkloadString(t *testing.T) {
	assert.Equal(t, "keys=1/outcome=allowed/cpus=1/names=long", Workload{Keys: 1, Names: Long, Outcome: Allowed}.String())
	assert.Equal(t, "keys=1/outcome=denied/cpus=1/window=10ms",
		Workload{Keys: 1, Outcome: Denied, Window: 10 * time.Millisecond}.String())
	assert.Equal(t, "keys=1M/outcome=denied/cpus=all", Workload{Keys: 1_000_000, Outcome: Denied, Parallel: true}.String())
	assert.Equal(t, "keys=1k/outcome=allowed/cpus=1", Workload{Keys: 1000, Outcome: Allowed}.String())
	for n, want := range map[int]string{1: "1", 999: "999", 1500: "1500", 100_000: "100k", 10_000_000: "10M"} {
		assert.Equal(t, want, Count(n))
	}
}
