package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A fault is what goes wrong in one call of a faultyStore.
type fault int

const (
	sound      fault = iota // the call works
	errsBefore              // the call fails, and nothing is taken
	errsAfter               // the call fails, but the units are taken
	hangs                   // the call waits until ctx ends or release is closed, and takes nothing
	loses                   // the store loses all its state, then answers
	miscounts               // the call returns too few answers
	overcounts              // the call returns too many answers
	panics                  // the call panics
)

// errFault is the error of a faultyStore.
var errFault = errors.New("connection refused")

// A faultyStore is a MemoryStore whose calls fail as a script says.
type faultyStore struct {
	clock *ratelimit.FakeClock // nil for the machine's clock

	mu       sync.Mutex
	memory   *ratelimit.MemoryStore
	script   []fault // the faults of the next calls
	then     fault   // the fault of all calls after those
	calls    [][]ratelimit.Ask
	resets   [][]ratelimit.Ask
	resetErr error

	release chan struct{} // closed to end the calls that hang
}

// newFaultyStore returns a faultyStore that works until it is told to fail.
func newFaultyStore(t *testing.T, clock *ratelimit.FakeClock) *faultyStore {
	t.Helper()
	s := &faultyStore{clock: clock, release: make(chan struct{})}
	s.lose(t)
	return s
}

// lose makes s lose its state.
func (s *faultyStore) lose(t *testing.T) {
	memory, err := newMemory(s.clock)
	if t != nil {
		require.NoError(t, err)
	}
	s.memory = memory
}

// newMemory returns a MemoryStore on clock, or on the machine's clock if clock is nil.
func newMemory(clock *ratelimit.FakeClock) (*ratelimit.MemoryStore, error) {
	if clock == nil {
		return ratelimit.NewMemoryStore()
	}
	return ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
}

// next records a call. It returns the fault of the call, and the MemoryStore that answers it.
func (s *faultyStore) next(asks []ratelimit.Ask) (fault, *ratelimit.MemoryStore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, slices.Clone(asks))
	f := s.then
	if len(s.script) > 0 {
		f, s.script = s.script[0], s.script[1:]
	}
	if f == loses {
		s.lose(nil)
	}
	return f, s.memory
}

func (s *faultyStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	return s.call(ctx, asks, func(memory *ratelimit.MemoryStore) ([]ratelimit.Result, error) { return memory.Take(ctx, asks) })
}

func (s *faultyStore) Once(
	ctx context.Context, once ratelimit.Attempt, asks []ratelimit.Ask,
) (results []ratelimit.Result, replayed bool, err error) {
	results, err = s.call(ctx, asks, func(memory *ratelimit.MemoryStore) (results []ratelimit.Result, err error) {
		results, replayed, err = memory.Once(ctx, once, asks)
		return results, err
	})
	return results, replayed, err
}

// call calls take with the present MemoryStore, unless the fault of the call prevents it.
func (s *faultyStore) call(
	ctx context.Context, asks []ratelimit.Ask, take func(*ratelimit.MemoryStore) ([]ratelimit.Result, error),
) ([]ratelimit.Result, error) {
	f, memory := s.next(asks)
	switch f {
	case errsBefore:
		return nil, errFault
	case errsAfter:
		if _, err := take(memory); err != nil {
			return nil, err
		}
		return nil, errFault
	case hangs:
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.release:
			return nil, errFault
		}
	case panics:
		panic(errFault)
	}
	results, err := take(memory)
	switch f {
	case miscounts:
		results = results[:len(results)-1]
	case overcounts:
		results = append(results, ratelimit.Result{Allowed: true})
	}
	return results, err
}

func (s *faultyStore) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resets = append(s.resets, slices.Clone(asks))
	if s.resetErr != nil {
		return s.resetErr
	}
	return s.memory.Reset(ctx, asks)
}

// do sets the faults of the next calls, one for each call.
func (s *faultyStore) do(script ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// from sets the fault of all calls from now on.
func (s *faultyStore) from(f fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.then = nil, f
}

// called returns how often Take was called since the last call of called.
func (s *faultyStore) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.calls)
	s.calls = nil
	return n
}

// A simulation records the decisions of a limiter whose store fails at random.
type simulation struct {
	burst, requests, replicas int // requests a second
	steps                     []simulated
}

// A simulated is one decision of a simulation.
type simulated struct {
	at      time.Duration // after the epoch
	granted int
	left    int  // left in the store, if the store answered
	local   bool // whether the local share decided
	lost    bool // whether the store lost its state right before
}

// simulate makes n decisions for one key, with random costs, pauses and faults.
func simulate(t *testing.T, a algorithm, r *rand.Rand, n int) *simulation {
	s := &simulation{burst: 1 + r.IntN(8), requests: 1 + r.IntN(20), replicas: 1 + r.IntN(3)}
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := a.start(t, ratelimit.PerSecond(s.requests).WithBurst(s.burst), ratelimit.WithStore(store), ratelimit.WithName("n"),
		ratelimit.WithClock(store.clock), ratelimit.WithFailurePolicy(ratelimit.FailLocal(s.replicas)))
	faults := []fault{sound, sound, sound, errsBefore, errsAfter, loses, miscounts}
	bad := r.IntN(2) == 0 // whether a fault goes on for several calls
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

// check fails the test if more was granted than the bound allows, given the faults.
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
	from, granted, alone, all, losses := simulated{left: share * s.replicas}, 0, 0, 0, 0
	for i, step := range s.steps {
		all += step.granted
		if step.lost {
			losses++
		}
		if !step.local {
			from, granted = step, 0
			continue
		}
		granted += step.granted
		alone += step.granted
		if elapsed := step.at - from.at; !within(granted, from.left/s.replicas, s.requests, s.replicas, elapsed) {
			t.Fatalf("step %d: the share of a store with %d left granted %d in %v: %+v", i, from.left, granted, elapsed, *s)
		}
		if !within(alone, share, s.requests, s.replicas, step.at) {
			t.Fatalf("step %d: the share granted %d in %v, in all outages: %+v", i, alone, step.at, *s)
		}
	}
	// In all, no more was granted than the store may grant, plus the local share once more.
	last := s.steps[len(s.steps)-1].at
	ns := int64(s.replicas) * int64(sec)
	most := int64((losses+1)*s.burst+share)*ns + int64(s.requests)*int64(last)*int64(s.replicas+1)
	require.LessOrEqual(t, int64(all)*ns, most)
}

// within reports whether granted is at most burst plus requests/replicas for each second of
// elapsed.
func within(granted, burst, requests, replicas int, elapsed time.Duration) bool {
	return int64(granted-burst)*int64(replicas)*int64(sec) <= int64(requests)*int64(elapsed)
}

// TestRandomStoreFaultsStayWithinTheBound proves with random faults that a limiter grants no more
// than the bound of the store, plus what the store has lost, plus the local share during outages.
func TestRandomStoreFaultsStayWithinTheBound(t *testing.T) {
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
	require.Greater(t, lost, 1000, "the store did lose its state")
	require.Greater(t, granted, 10_000, "units were granted")
}

// A partedStore is a MemoryStore of three parts, each of which may be dead. The first character of
// a key is the number of its part.
type partedStore struct {
	ratelimit.Store
	clock *ratelimit.FakeClock
	shift int  // added to the number of every part
	mute  bool // whether errors do not say which parts have failed

	mu    sync.Mutex
	dead  [3]bool
	calls [3]int // calls of each part
}

func newPartedStore(t *testing.T) *partedStore {
	t.Helper()
	clock := ratelimit.NewFakeClock(epoch)
	memory, err := newMemory(clock)
	require.NoError(t, err)
	return &partedStore{Store: memory, clock: clock}
}

// limiter returns a RateLimiter on s. Its default rule is by client. For the endpoint "2" it has a
// rule by client and a rule by endpoint, whose key is in part 2.
func (s *partedStore) limiter(t *testing.T) *ratelimit.RateLimiter {
	t.Helper()
	rate := ratelimit.PerSecond(1000)
	return newRules(t, []ratelimit.Rule{
		{Name: "client", Endpoint: "2", Rate: rate},
		{Name: "endpoint", Endpoint: "2", Rate: rate, Key: ratelimit.KeyEndpoint, OnStoreError: ratelimit.FailClosed},
	}, &ratelimit.Rule{Rate: rate}, ratelimit.WithStore(s), ratelimit.WithClock(s.clock))
}

// A deadParts is an error that names the parts of a store that have failed.
type deadParts []int

func (e deadParts) Error() string { return fmt.Sprint("no answer of ", []int(e)) }
func (e deadParts) Parts() []int  { return e }

var errMute = errors.New("no answer")

func (s *partedStore) Part(a ratelimit.Ask) int { return s.shift + int(a.Key[0]-'0') }

// call counts a call for each part that holds a key of asks, and fails if one of these parts is
// dead.
func (s *partedStore) call(asks []ratelimit.Ask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bad deadParts
	for i := range s.dead {
		if !slices.ContainsFunc(asks, func(a ratelimit.Ask) bool { return s.Part(a) == s.shift+i }) {
			continue
		}
		s.calls[i]++
		if s.dead[i] {
			bad = append(bad, s.shift+i)
		}
	}
	switch {
	case len(bad) == 0:
		return nil
	case s.mute:
		return errMute
	}
	return fmt.Errorf("take: %w", bad)
}

func (s *partedStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if err := s.call(asks); err != nil {
		return nil, err
	}
	return s.Store.Take(ctx, asks)
}

func (s *partedStore) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	if err := s.call(asks); err != nil {
		return err
	}
	return s.Store.Reset(ctx, asks)
}

// die makes these parts dead, and all others alive.
func (s *partedStore) die(parts ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = [3]bool{}
	for _, i := range parts {
		s.dead[i] = true
	}
}

// called returns how often each part was called since the last call of called.
func (s *partedStore) called() [3]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = [3]int{}
	return calls
}
