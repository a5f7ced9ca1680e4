package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// A load is goroutines that ask, each up to a thousand times a second.
type load struct {
	stop func() // ends it, and waits for that

	mu              sync.Mutex
	granted, denied int                      // by the store
	failed          map[redisstore.Class]int // how often the store did not answer
	local           int                      // granted without it
	since           time.Time                // when the server went, or came back
	back            time.Time                // when the first answer came to what was asked since
}

// startLoad has goroutines call take until the test ends. It fails the test if an
// error is not one of the store's.
func startLoad(t *testing.T, goroutines int, take func(goroutine int) (ratelimit.Result, error)) *load {
	l := &load{failed: make(map[redisstore.Class]int)}
	end := make(chan struct{})
	var running sync.WaitGroup
	for i := range goroutines {
		running.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					began := time.Now()
					res, err := take(i)
					l.count(t, began, res, err)
				case <-end:
					return
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		close(end)
		running.Wait()
	})
	t.Cleanup(l.stop)
	return l
}

func (l *load) count(t *testing.T, began time.Time, res ratelimit.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var failed *redisstore.Error
	switch {
	case err != nil:
		if assert.ErrorAs(t, err, &failed) && assert.ErrorIs(t, err, ratelimit.ErrStore) {
			l.failed[failed.Class]++
		}
		if res.Allowed {
			l.local++
		}
		return
	case res.Allowed:
		l.granted++
	default:
		l.denied++
	}
	assert.False(t, res.Degraded)
	if l.back.IsZero() && began.After(l.since) {
		l.back = time.Now()
	}
}

// awaits waits until what says that it is so.
func (l *load) awaits(t *testing.T, what func() bool) {
	t.Helper()
	until(t, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !what() {
			return errors.New("the load has not come that far")
		}
		return nil
	})
}

// mark has answers count as the first if they are to what is asked from here on.
func (l *load) mark() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.back = time.Now(), time.Time{}
	return l.since
}

// answered waits for the first answer since mark, and returns when it came.
func (l *load) answered(t *testing.T) time.Time {
	t.Helper()
	l.awaits(t, func() bool { return !l.back.IsZero() })
	return l.back
}

// errors returns how many asks the store did not answer.
func (l *load) errors() (n int) {
	for _, count := range l.failed {
		n += count
	}
	return n
}

// taking returns what has goroutines take what one ask each wants.
func taking(s *redisstore.Store, asks ...ratelimit.Ask) func(int) (ratelimit.Result, error) {
	return func(i int) (ratelimit.Result, error) {
		return together(s, asks[i%len(asks):][:1])
	}
}

// together takes what several asks want, and returns the result of the first.
func together(s *redisstore.Store, asks []ratelimit.Ask) (ratelimit.Result, error) {
	results, err := s.Take(context.Background(), asks)
	if err != nil {
		return ratelimit.Result{}, err
	}
	return results[0], nil
}

// limited returns what has goroutines ask a limiter on s for a key, and fall back
// on a policy.
func limited(t *testing.T, s *redisstore.Store, key string, limit int, p ratelimit.FailurePolicy) func(int) (ratelimit.Result, error) {
	t.Helper()
	l, err := ratelimit.NewTokenBucket(yearly(limit), ratelimit.WithStore(s), ratelimit.WithName("rule"), ratelimit.WithFailurePolicy(p))
	require.NoError(t, err)
	return func(int) (ratelimit.Result, error) { return l.Take(context.Background(), key, 1) }
}

// yearly is a rate by which nothing comes back while a test runs.
func yearly(limit int) ratelimit.Rate {
	return ratelimit.Rate{Requests: limit, Per: 365 * 24 * time.Hour}
}

// frozen has a store decide by a time that stands still.
func frozen() redisstore.Option {
	return redisstore.WithClock(ratelimit.NewFakeClock(time.Unix(1772323200, 0)))
}

// left returns what remains of what a wants.
func left(t testing.TB, s *redisstore.Store, a ratelimit.Ask) int {
	t.Helper()
	a.N = 0
	return take(t, s, a).Remaining
}

// idle waits until no call of s is under way.
func idle(t testing.TB, s *redisstore.Store) {
	t.Helper()
	until(t, func(context.Context) error {
		if s.CallsUnderWay() > 0 {
			return errors.New("calls are under way")
		}
		return nil
	})
}
