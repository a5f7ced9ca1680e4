package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A partedStore is a MemoryStore of three parts, any of which may be dead. A key's first
// byte says in which it is.
type partedStore struct {
	ratelimit.Store
	clock *ratelimit.FakeClock
	shift int  // added to the numbers of parts
	mute  bool // whether errors do not say which parts have failed

	mu    sync.Mutex
	dead  [3]bool
	calls [3]int // of each part
}

func newPartedStore(t *testing.T) *partedStore {
	t.Helper()
	clock := ratelimit.NewFakeClock(epoch)
	memory, err := newMemory(clock)
	require.NoError(t, err)
	return &partedStore{Store: memory, clock: clock}
}

// limiter returns a RateLimiter on s, of a rule by client, and for the endpoint "2" of one
// by endpoint as well.
func (s *partedStore) limiter(t *testing.T) *ratelimit.RateLimiter {
	t.Helper()
	rate := ratelimit.PerSecond(1000)
	return newRules(t, []ratelimit.Rule{
		{Name: "client", Endpoint: "2", Rate: rate},
		{Name: "endpoint", Endpoint: "2", Rate: rate, Key: ratelimit.KeyEndpoint, OnStoreError: ratelimit.FailClosed},
	}, &ratelimit.Rule{Rate: rate}, ratelimit.WithStore(s), ratelimit.WithClock(s.clock))
}

// A deadParts is the error of parts of a store.
type deadParts []int

func (e deadParts) Error() string { return fmt.Sprint("no answer of ", []int(e)) }
func (e deadParts) Parts() []int  { return e }

var errMute = errors.New("no answer")

func (s *partedStore) Part(a ratelimit.Ask) int { return s.shift + int(a.Key[0]-'0') }

// call counts a call, and fails if a part is dead.
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

// die makes these parts dead, and no others.
func (s *partedStore) die(parts ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = [3]bool{}
	for _, i := range parts {
		s.dead[i] = true
	}
}

// called returns how often each part has been asked, and forgets it.
func (s *partedStore) called() [3]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = [3]int{}
	return calls
}

func TestPartsOfAStoreFailAlone(t *testing.T) {
	for _, shift := range []int{0, 61, 62, 64, 6400, -64, -3} {
		store := newPartedStore(t)
		store.shift = shift
		l := store.limiter(t)
		store.die(1)
		for range 10 {
			require.False(t, l.Allow("0", "").Degraded)
			require.True(t, l.Allow("1", "").Degraded)
			require.False(t, l.Allow("2", "").Degraded)
		}
		require.Equal(t, [3]int{10, 5, 10}, store.called(), "the dead part is left alone")
		stats := l.StoreStats()
		require.ErrorIs(t, stats.LastError, ratelimit.ErrStore)
		require.ErrorContains(t, stats.LastError, "no answer of ")
		stats.LastError = nil
		require.Equal(t, ratelimit.StoreStats{Parts: 3, Open: 1, Opened: 1}, stats)
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "1"})
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.True(t, res.Degraded)
		require.ErrorIs(t, l.Reset("1", ""), ratelimit.ErrStore)
		require.NoError(t, l.Reset("0", ""))
		require.Equal(t, [3]int{1, 0, 0}, store.called())

		store.die()
		store.clock.Advance(50 * ms)
		require.False(t, l.Allow("1", "").Degraded, "the part is back")
		stats = l.StoreStats()
		require.Zero(t, stats.Open)
		require.EqualValues(t, 1, stats.Opened)
	}
}

func TestDecisionsOfADeadAndALivePart(t *testing.T) {
	store := newPartedStore(t)
	l := store.limiter(t)
	store.die(2)
	for range 20 {
		require.Equal(t, named("endpoint", degraded(no(1000, 0, sec, sec))), l.Allow("0", "2"), "each rule's policy answers")
	}
	require.Equal(t, [3]int{5, 0, 5}, store.called())
	require.Equal(t, 1, l.StoreStats().Open)
	require.False(t, l.Allow("0", "").Degraded, "the live part has not been blamed")
	require.True(t, l.Allow("2", "").Degraded)

	store.die()
	store.clock.Advance(50 * ms)
	require.False(t, l.Allow("0", "2").Degraded)
	require.Zero(t, l.StoreStats().Open)
}

func TestErrorsThatDoNotSayWhichPart(t *testing.T) {
	store := newPartedStore(t)
	store.mute = true
	l := store.limiter(t)
	store.die(2)
	for range 10 {
		l.Allow("0", "2")
		l.Allow("1", "")
	}
	require.Equal(t, [3]int{5, 10, 5}, store.called())
	require.Equal(t, 2, l.StoreStats().Open, "both that were asked")
	require.True(t, l.Allow("0", "").Degraded)
	store.clock.Advance(50 * ms)
	require.False(t, l.Allow("0", "").Degraded, "one of them has not been dead")
	require.True(t, l.Allow("2", "").Degraded)
	require.Equal(t, 1, l.StoreStats().Open)
}

func TestProbesOfAPartThatAnotherOneHoldsUp(t *testing.T) {
	store := newPartedStore(t)
	l := store.limiter(t)
	open := func(part string) {
		t.Helper()
		for range 5 {
			require.True(t, l.Allow(part, "").Degraded)
		}
	}
	store.die(0, 2)
	open("0")
	store.clock.Advance(50 * ms)
	open("2")
	store.die(2)
	for range 10 {
		require.True(t, l.Allow("0", "2").Degraded, "0 may be probed, but 2 pauses")
	}
	require.Equal(t, [3]int{5, 0, 5}, store.called())
	require.False(t, l.Allow("0", "").Degraded, "the probe of 0 is still to be had")

	store.die(0, 2)
	open("0")
	store.clock.Advance(500 * ms)
	store.die(2)
	require.True(t, l.Allow("0", "2").Degraded, "both are probed; 2 is to blame")
	require.Equal(t, 2, l.StoreStats().Open, "of 0 nobody knows")
	require.False(t, l.Allow("0", "").Degraded, "so it is probed again")
	store.die()
	store.clock.Advance(500 * ms)
	require.False(t, l.Allow("0", "2").Degraded)
	require.Zero(t, l.StoreStats().Open)
}

func TestPartsUnderConcurrency(t *testing.T) {
	store := newPartedStore(t)
	l := store.limiter(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				client := string(rune('0' + (g+i)%3))
				switch i % 4 {
				case 0:
					l.Allow(client, "2")
				case 1:
					_ = l.Reset(client, "2")
				default:
					if res := l.Allow(client, ""); res.Degraded && client != "1" {
						t.Errorf("part %s is live", client)
					}
				}
				if g == 0 && i%100 == 0 {
					store.die([][]int{{1}, {}}[i/100%2]...)
				}
				store.clock.Advance(ms)
			}
		})
	}
	wg.Wait()
	store.die()
	store.clock.Advance(500 * ms)
	for part := range 3 {
		require.False(t, l.Allow(fmt.Sprint(part), "").Degraded, "part %d is back", part)
		require.False(t, l.Allow(fmt.Sprint(part), "2").Degraded)
	}
	stats := l.StoreStats()
	require.Zero(t, stats.Open)
	require.Positive(t, stats.Opened, "it was away")
	require.Equal(t, 3, stats.Parts)
	t.Logf("a part was left alone %d times", stats.Opened)
}

func TestStoreStats(t *testing.T) {
	var zero ratelimit.RateLimiter
	require.Zero(t, zero.StoreStats())
	rule := ratelimit.Rule{Rate: ratelimit.PerSecond(1000)}
	require.Zero(t, newRules(t, nil, &rule).StoreStats(), "without a store")

	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &rule, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	require.Zero(t, l.StoreStats(), "not asked yet")
	l.Allow("c", "")
	require.Equal(t, ratelimit.StoreStats{Parts: 1}, l.StoreStats())
	store.from(errsBefore)
	for range 4 {
		l.Allow("c", "")
	}
	require.Equal(t, ratelimit.StoreStats{Parts: 1}, l.StoreStats(), "still asked")
	l.Allow("c", "")
	for range 2 {
		stats := l.StoreStats()
		require.ErrorIs(t, stats.LastError, errFault)
		require.True(t, strings.HasPrefix(stats.LastError.Error(), "ratelimit: "), stats.LastError)
		stats.LastError = nil
		require.Equal(t, ratelimit.StoreStats{Parts: 1, Open: 1, Opened: 1}, stats)
		store.clock.Advance(time.Second)
		l.Allow("c", "") // a probe that fails opens nothing
	}
	store.from(sound)
	store.clock.Advance(time.Second)
	l.Allow("c", "")
	stats := l.StoreStats()
	require.ErrorIs(t, stats.LastError, errFault, "why it last did")
	require.Zero(t, stats.Open)
}
