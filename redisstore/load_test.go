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

// A load is a number of goroutines that make requests, each up to a thousand a second.
type load struct {
	stop func() // ends the goroutines and waits for them

	mu              sync.Mutex
	granted, denied int                      // by the store
	failed          map[redisstore.Class]int // requests that the store did not answer
	local           int                      // granted by the failure policy
	since           time.Time                // when the server was stopped, or started again
	back            time.Time                // when the first request made after since was answered
}

// startLoad starts goroutines that call take until the test ends. It fails the test on an
// error that is not one of the store's.
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

// awaits waits until what returns true.
func (l *load) awaits(t *testing.T, what func() bool) {
	t.Helper()
	until(t, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !what() {
			return errors.New("the load has not reached the state that the test waits for")
		}
		return nil
	})
}

// mark makes answered wait for a request that is made from now on.
func (l *load) mark() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.back = time.Now(), time.Time{}
	return l.since
}

// answered waits until a request made after mark has been answered, and returns when that
// was.
func (l *load) answered(t *testing.T) time.Time {
	t.Helper()
	l.awaits(t, func() bool { return !l.back.IsZero() })
	return l.back
}

// errors returns how many requests the store did not answer.
func (l *load) errors() (n int) {
	for _, count := range l.failed {
		n += count
	}
	return n
}

// taking returns a function for startLoad, in which each goroutine repeats one of asks.
func taking(s *redisstore.Store, asks ...ratelimit.Ask) func(int) (ratelimit.Result, error) {
	return func(i int) (ratelimit.Result, error) {
		return together(s, asks[i%len(asks):][:1])
	}
}

// together takes asks in one decision, and returns the result of the first.
func together(s *redisstore.Store, asks []ratelimit.Ask) (ratelimit.Result, error) {
	results, err := s.Take(context.Background(), asks)
	if err != nil {
		return ratelimit.Result{}, err
	}
	return results[0], nil
}

// limited returns a function for startLoad that asks a limiter on s for key. The limiter
// has p as its failure policy.
func limited(t *testing.T, s *redisstore.Store, key string, limit int, p ratelimit.FailurePolicy) func(int) (ratelimit.Result, error) {
	t.Helper()
	l, err := ratelimit.NewTokenBucket(yearly(limit), ratelimit.WithStore(s), ratelimit.WithName("rule"), ratelimit.WithFailurePolicy(p))
	require.NoError(t, err)
	return func(int) (ratelimit.Result, error) { return l.Take(context.Background(), key, 1) }
}

// yearly returns a rate at which no unit comes back while a test runs.
func yearly(limit int) ratelimit.Rate {
	return ratelimit.Rate{Requests: limit, Per: 365 * 24 * time.Hour}
}

// frozen makes a store decide by a clock that does not move.
func frozen() redisstore.Option {
	return redisstore.WithClock(ratelimit.NewFakeClock(time.Unix(1772323200, 0)))
}

// left returns how many units remain for a.
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
