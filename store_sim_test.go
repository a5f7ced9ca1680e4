package ratelimit_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A simulation is a limiter whose store fails by chance, and what it has granted.
type simulation struct {
	burst, requests, replicas int // requests a second
	steps                     []simulated
}

// A simulated is one decision of a simulation.
type simulated struct {
	at      time.Duration // since the epoch
	granted int
	left    int  // in the store, if it answered
	local   bool // whether the share of this process decided
	lost    bool // whether the store lost its state right before
}

// simulate makes n decisions on one key, by chance.
func simulate(t *testing.T, a algorithm, r *rand.Rand, n int) *simulation {
	s := &simulation{burst: 1 + r.IntN(8), requests: 1 + r.IntN(20), replicas: 1 + r.IntN(3)}
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := a.start(t, ratelimit.PerSecond(s.requests).WithBurst(s.burst), ratelimit.WithStore(store), ratelimit.WithName("n"),
		ratelimit.WithClock(store.clock), ratelimit.WithFailurePolicy(ratelimit.FailLocal(s.replicas)))
	faults := []fault{sound, sound, sound, errsBefore, errsAfter, loses, miscounts}
	bad := r.IntN(2) == 0 // whether faults come in a row
	f := sound
	for range n {
		store.clock.Advance(time.Duration(r.IntN(4)) * time.Duration(r.IntN(100_000_000)))
		if !bad || r.IntN(5) == 0 {
			f = faults[r.IntN(len(faults))]
		}
		store.do(f)
		cost := 1 + r.IntN(min(s.burst+1, 3))
		res, err := l.Take(t.Context(), "key", cost)
		if res.Degraded != errors.Is(err, ratelimit.ErrStore) {
			t.Fatalf("degraded %t with error %v", res.Degraded, err)
		}
		step := simulated{at: store.clock.Now().Sub(epoch), local: res.Degraded, left: res.Remaining}
		step.lost = f == loses && store.called() > 0
		store.called()
		if res.Allowed {
			step.granted = cost
		}
		s.steps = append(s.steps, step)
	}
	return s
}

// check fails the test if more was granted than the faults account for.
func (s *simulation) check(t *testing.T) {
	t.Helper()
	for i := range s.steps {
		granted, losses := 0, 0
		for j := i; j < len(s.steps); j++ {
			if j > i && s.steps[j].lost {
				losses++
			}
			if s.steps[j].local {
				continue
			}
			granted += s.steps[j].granted
			if elapsed := s.steps[j].at - s.steps[i].at; !within(granted, (losses+1)*s.burst, s.requests, 1, elapsed) {
				t.Fatalf("the store granted %d in %v with %d losses: %+v", granted, elapsed, losses, *s)
			}
		}
	}
	share := max(s.burst/s.replicas, 1)
	from, granted, outages, out := simulated{left: share * s.replicas}, 0, 0, time.Duration(0)
	all, losses := 0, 0
	for i, step := range s.steps {
		all += step.granted
		if step.lost {
			losses++
		}
		if !step.local {
			from, granted = step, 0
			continue
		}
		if i == 0 || !s.steps[i-1].local {
			outages++
		}
		granted += step.granted
		if elapsed := step.at - from.at; !within(granted, from.left/s.replicas, s.requests, s.replicas, elapsed) {
			t.Fatalf("step %d: the share of a store with %d left granted %d in %v: %+v", i, from.left, granted, elapsed, *s)
		}
		if i == 0 || !s.steps[i-1].local {
			out += step.at - from.at
		} else {
			out += step.at - s.steps[i-1].at
		}
	}
	// All that was granted: what the store may grant, and the share in its absence.
	last := s.steps[len(s.steps)-1].at
	ns := int64(s.replicas) * int64(sec)
	most := int64((losses+1)*s.burst+outages*share)*ns + int64(s.requests)*(int64(last)*int64(s.replicas)+int64(out))
	require.LessOrEqual(t, int64(all)*ns, most)
}

// within reports whether granted is at most burst + requests/replicas a second.
func within(granted, burst, requests, replicas int, elapsed time.Duration) bool {
	return int64(granted-burst)*int64(replicas)*int64(sec) <= int64(requests)*int64(elapsed)
}

func TestStoreFaultsGrantNoMoreThanTheyAccountFor(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 7))
	local, lost, granted := 0, 0, 0
	for _, a := range []algorithm{{"token bucket", tokenBucket}, {"leaky bucket", leakyBucket}} {
		for range 1000 {
			s := simulate(t, a, r, 50)
			s.check(t)
			for _, step := range s.steps {
				granted += step.granted
				if step.local {
					local++
				}
				if step.lost {
					lost++
				}
			}
		}
	}
	require.Greater(t, local, 10_000, "the store did fail")
	require.Greater(t, lost, 1000, "and lose its state")
	require.Greater(t, granted, 10_000, "and something was granted")
}
