package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
				assert.True(t, subject.Allow(Key(i)), "first for key %d", i)
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
		Fill(f, 1000)
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
				_, err = r.Time(2000)
				require.NoError(t, err, "every ask has the workload's outcome")
			})
		}
	}
}

func workloads() (ws []Workload) {
	for _, keys := range []int{1, 300} {
		for _, outcome := range []Outcome{Allowed, Denied} {
			for _, parallel := range []bool{false, true} {
				ws = append(ws, Workload{keys, outcome, parallel})
			}
		}
	}
	return ws
}

func TestCan(t *testing.T) {
	can := func(name string, w Workload) bool {
		s, err := Find(name)
		require.NoError(t, err)
		return s.Can(w)
	}
	assert.True(t, can("uber", Workload{1, Allowed, true}))
	assert.False(t, can("uber", Workload{1, Denied, true}), "it can not deny")
	assert.False(t, can("uber", Workload{2, Allowed, true}), "it has no keys")
	assert.True(t, can("map", Workload{5, Denied, false}))
	assert.False(t, can("map", Workload{5, Allowed, true}), "it has no lock")
	assert.True(t, can("tokenbucket", Workload{5, Denied, true}))
}

func TestCheck(t *testing.T) {
	ours, peer, floor := Spec{Kind: Ours}, Spec{Kind: Peer}, Spec{Kind: Reference}
	allowed, denied := Workload{Outcome: Allowed}, Workload{Outcome: Denied}

	assert.NoError(t, ours.check(allowed, 10, 10))
	assert.Error(t, ours.check(allowed, 9, 10), "one was denied")
	assert.NoError(t, peer.check(denied, 0, 10))
	assert.Error(t, peer.check(denied, 1, 10), "one was allowed")
	assert.NoError(t, floor.check(denied, 10, 10), "the floor denies nothing")
}

func TestFind(t *testing.T) {
	s, err := Find("floor")
	require.NoError(t, err)
	assert.Equal(t, Reference, s.Kind)
	_, err = Find("ceiling")
	assert.ErrorContains(t, err, `"ceiling"`)
}

func TestWorkloadString(t *testing.T) {
	assert.Equal(t, "keys=1M/outcome=denied/cpus=all", Workload{1_000_000, Denied, true}.String())
	assert.Equal(t, "keys=1k/outcome=allowed/cpus=1", Workload{1000, Allowed, false}.String())
	for n, want := range map[int]string{1: "1", 999: "999", 1500: "1500", 100_000: "100k", 10_000_000: "10M"} {
		assert.Equal(t, want, Count(n))
	}
}
