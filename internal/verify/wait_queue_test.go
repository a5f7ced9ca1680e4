package verify

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// twoBusyRules are two rules that requests name. Each has one budget.
func twoBusyRules(t *testing.T, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "a", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1)},
		{Name: "b", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1)},
		{Name: "c", Rate: ratelimit.PerSecond(1000)},
	}, nil, opts...)
	require.NoError(t, err)
	return l
}

// queueUp starts a Wait and returns a channel that is closed when it is served.
func queueUp(t *testing.T, l *ratelimit.RateLimiter, client string, rules ...string) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := l.Wait(context.Background(), ratelimit.Request{Client: client, Rules: rules})
		require.NoError(t, err)
	}()
	synctest.Wait()
	return done
}

func served(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// TestQueueOfAKey has requests with different keys wait for one that they share: they are served
// in order of arrival.
func TestQueueOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
		l := twoBusyRules(t, ratelimit.WithClock(clock))
		_, err := l.Check(t.Context(), ratelimit.Request{Rules: []string{"a"}})
		require.NoError(t, err)
		var all []<-chan struct{}
		for i := range 9 {
			all = append(all, queueUp(t, l, fmt.Sprint(i), "a", "c"))
		}
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "x", Rules: []string{"a", "c"}})
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, res.RetryAfter, "it counts all who wait there")
		for i := range all {
			clock.Advance(time.Second)
			synctest.Wait()
			for j, done := range all {
				require.Equal(t, j <= i, served(done), "after %d seconds, waiter %d", i+1, j)
			}
		}
	})
}

// TestNobodyStarves has a request wait for two keys whose units come at different times, while
// others wait for one of them each: it is served all the same.
func TestNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
		l := twoBusyRules(t, ratelimit.WithClock(clock))
		for _, rule := range []string{"a", "b"} {
			_, err := l.Check(t.Context(), ratelimit.Request{Rules: []string{rule}})
			require.NoError(t, err)
			clock.Advance(500 * time.Millisecond)
		}
		both := queueUp(t, l, "", "a", "b")
		one := map[string]<-chan struct{}{}
		for i := 0; !served(both); i++ {
			require.Less(t, i, 20, "it starves")
			for _, rule := range []string{"a", "b"} {
				for _, n := range []string{"1", "2"} {
					if done := one[rule+n]; done == nil || served(done) {
						one[rule+n] = queueUp(t, l, "", rule)
					}
				}
			}
			clock.Advance(500 * time.Millisecond)
			synctest.Wait()
		}
		clock.Advance(time.Minute)
		synctest.Wait()
	})
}

// TestMarksSurviveSplits has many keys waited for while the table grows: nobody overtakes
// those who wait, although the keys lie in other shards then.
func TestMarksSurviveSplits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
		l, err := ratelimit.NewTokenBucket(ratelimit.PerHour(1), ratelimit.WithClock(clock))
		require.NoError(t, err)
		const waiters = 64
		for i := range waiters {
			key := fmt.Sprint("waiter ", i)
			require.True(t, l.Allow(key).Allowed)
			go func() {
				_, err := l.Wait(context.Background(), key, 1)
				require.NoError(t, err)
			}()
		}
		synctest.Wait()
		for i := range 60_000 { // several splits of each shard
			l.Allow(fmt.Sprint(i))
		}
		for i := range waiters {
			require.Equal(t, 2*time.Hour, l.Peek(fmt.Sprint("waiter ", i)).RetryAfter, "a look comes behind the waiter")
		}
		clock.Advance(time.Hour)
		for i := range waiters {
			require.False(t, l.Allow(fmt.Sprint("waiter ", i)).Allowed, "the unit is the waiter's")
		}
		synctest.Wait()
	})
}

// TestAWaitedForKeyKeepsItsSlot fills the table while somebody waits, and has other keys come
// right when the key that is waited for is as good as new: it is not forgotten, and the waiter
// does not come to share the debt of others.
func TestAWaitedForKeyKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
		l, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(1), ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		require.NoError(t, err)
		require.True(t, l.Allow("waiter").Allowed)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := l.Wait(context.Background(), "waiter", 1)
			require.NoError(t, err)
		}()
		synctest.Wait()
		clock.Advance(time.Second)
		require.True(t, l.Allow("another").Allowed, "it shares the debt of those that have no slot")
		require.False(t, l.Allow("a third").Allowed, "and so does this one")
		synctest.Wait()
		require.True(t, served(done), "the waiter is served when it is due")
	})
}

// An alarmClock counts the alarms that are set on it.
type alarmClock struct {
	*ratelimit.FakeClock
	alarms atomic.Int32
}

func (c *alarmClock) After(d time.Duration) <-chan time.Time {
	c.alarms.Add(1)
	return c.FakeClock.After(d)
}

// TestAlarmsAreSetAhead has several wait whose turns come soon. Each has set its alarm when it
// came: nobody has to be woken by the one before to do so, which would stall a fast line.
func TestAlarmsAreSetAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &alarmClock{FakeClock: ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
		l, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(1000).WithBurst(1), ratelimit.WithClock(clock))
		require.NoError(t, err)
		require.True(t, l.Allow("key").Allowed)
		var all []<-chan struct{}
		const waiters, soon = 15, 10
		for i := range waiters {
			done := make(chan struct{})
			all = append(all, done)
			go func() {
				defer close(done)
				_, err := l.Wait(context.Background(), "key", 1)
				require.NoError(t, err)
			}()
			synctest.Wait()
			require.EqualValues(t, min(i+1, soon), clock.alarms.Load(), "whose turn is more than 10 ms away sets none")
		}
		for i := range all {
			clock.Advance(time.Millisecond)
			synctest.Wait()
			require.EqualValues(t, min(max(soon, i+2), waiters), clock.alarms.Load(), "whose turn is soon has set it already")
			for j, done := range all {
				require.Equal(t, j <= i, served(done), "after %d ms, waiter %d", i+1, j)
			}
		}
	})
}

// TestChangesOfOtherRules changes rules while requests wait in one line. Those whose rules stay the
// same are not placed anew, which would make them set their alarms again. One that has got other
// rules is matched with them, although it is not the first in the line.
func TestChangesOfOtherRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &alarmClock{FakeClock: ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
		rule := ratelimit.Rule{Endpoint: "/a/*", Rate: ratelimit.PerSecond(1)}
		other := ratelimit.Rule{Endpoint: "/b", Rate: ratelimit.PerSecond(1)}
		l, err := ratelimit.New([]ratelimit.Rule{rule, other}, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		require.True(t, l.Allow("", "/a/1").Allowed)
		var all [3]chan struct{}
		for i := range all {
			all[i] = make(chan struct{})
			go func() {
				defer close(all[i])
				_, err := l.Wait(context.Background(), ratelimit.Request{Endpoint: fmt.Sprint("/a/", i)})
				require.NoError(t, err)
			}()
			synctest.Wait()
		}
		require.EqualValues(t, 1, clock.alarms.Load())
		require.NoError(t, l.AddRule(ratelimit.Rule{Endpoint: "/c", Rate: ratelimit.PerSecond(1)}))
		require.NoError(t, l.UpdateRate("/b", ratelimit.PerSecond(2)))
		require.NoError(t, l.RemoveRule("/c"))
		other.Rate = ratelimit.PerSecond(3)
		require.NoError(t, l.SetRule(other))
		synctest.Wait()
		require.EqualValues(t, 1, clock.alarms.Load(), "they concern nobody who waits")
		require.NoError(t, l.AddRule(ratelimit.Rule{Endpoint: "/a/1", Rate: ratelimit.PerSecond(1)}))
		synctest.Wait()
		for i, done := range all {
			require.Equal(t, i == 1, served(done), "request %d", i)
		}
		for i := range 2 {
			clock.Advance(time.Second)
			synctest.Wait()
			require.Equal(t, i == 1, served(all[2]), "after %d s", i+1)
		}
		require.True(t, served(all[0]))
	})
}
