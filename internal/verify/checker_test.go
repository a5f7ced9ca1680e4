package verify

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A faulty limiter is a token bucket that follows the sequential specification. Its decide
// function locks rightly or wrongly.
type faulty struct {
	clock *hostileClock
	mu    sync.Mutex
	keys  [3]seqState
	take  func(f *faulty, s *seqState, n int64) ratelimit.Result
}

func (f *faulty) Take(_ context.Context, key string, n int) (ratelimit.Result, error) {
	i, err := strconv.Atoi(key)
	if err != nil {
		return ratelimit.Result{}, err
	}
	return f.take(f, &f.keys[i], int64(n)), nil
}

// insideTheLock is right: it reads the clock under the lock under which it decides.
func insideTheLock(f *faulty, s *seqState, n int64) (res ratelimit.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.now = f.clock.Now().UnixNano()
	*s, res = seqBucket(*s, n, false)
	return res
}

// clampedAtTheLock is right too: if another reading came to the lock first and is later, it
// counts in place of its own.
func clampedAtTheLock(f *faulty, s *seqState, n int64) (res ratelimit.Result) {
	now := f.clock.Now().UnixNano()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.now = max(s.now, now)
	*s, res = seqBucket(*s, n, false)
	return res
}

// rewinding is wrong: a reading that comes to the lock late moves the key's clock back, so
// that the time in between is earned twice.
func rewinding(f *faulty, s *seqState, n int64) (res ratelimit.Result) {
	now := f.clock.Now().UnixNano()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.now, s.last = now, min(s.last, now)
	*s, res = seqBucket(*s, n, false)
	return res
}

// notClamped is wrong: it does not earn time twice, but if its reading comes to the lock
// late, a denial or a look answers for an instant that has passed.
func notClamped(f *faulty, s *seqState, n int64) (res ratelimit.Result) {
	now := f.clock.Now().UnixNano()
	f.mu.Lock()
	defer f.mu.Unlock()
	s.now = now
	*s, res = seqBucket(*s, n, false)
	return res
}

// actsAfterUnlock is wrong: it decides under the lock and charges under the lock, but
// unlocks in between.
func actsAfterUnlock(f *faulty, s *seqState, n int64) ratelimit.Result {
	f.mu.Lock()
	s.now = f.clock.Now().UnixNano()
	next, res := seqBucket(*s, n, false)
	f.mu.Unlock()
	f.clock.Now() // lets other goroutines run
	f.mu.Lock()
	defer f.mu.Unlock()
	*s = next
	return res
}

// TestLinearizabilityCheckerFindsFaults requires that the checker rejects histories of
// wrong limiters, and accepts those of right ones.
func TestLinearizabilityCheckerFindsFaults(t *testing.T) {
	const histories = 60
	for _, c := range []struct {
		name  string
		take  func(f *faulty, s *seqState, n int64) ratelimit.Result
		least int // at least so many histories must be rejected
		most  int
		why   string
	}{
		{"clock read under the lock", insideTheLock, 0, 0, "it is linearizable"},
		{"clock read before the lock, clamped", clampedAtTheLock, 0, 0, "clamping moves the decision to a later instant of the call"},
		{"clock read before the lock, last rewinds", rewinding, 45, histories, "time is earned twice"},
		{"clock read before the lock, not clamped", notClamped, 5, histories, "an answer is for an instant before one already answered for"},
		{"check, unlock, act", actsAfterUnlock, 45, histories, "a unit is granted twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := examine(algorithms[0], histories, func(clock *hostileClock) asker {
				return &faulty{clock: clock, take: c.take}
			})
			t.Logf("%s: %d of %d histories illegal", c.name, v.illegal, v.histories)
			require.Zero(t, v.unknown)
			require.GreaterOrEqual(t, v.illegal, c.least, c.why)
			require.LessOrEqual(t, v.illegal, c.most, c.why)
		})
	}
}
