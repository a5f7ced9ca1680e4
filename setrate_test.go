package ratelimit_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

func TestSetRateRefusesAndKeepsTheOldOne(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		old := ratelimit.PerMinute(5)
		l := a.start(t, old, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		spend(t, l, "key", 2)
		look := l.Peek("key")
		for _, row := range []struct {
			rate ratelimit.Rate
			why  string
		}{
			{ratelimit.Rate{}, "the zero rate"},
			{ratelimit.PerMinute(0), "no requests"},
			{ratelimit.PerMinute(-1), "fewer than none"},
			{ratelimit.Rate{Requests: 1, Per: -1}, "a negative time"},
			{ratelimit.PerMinute(5).WithBurst(-1), "a negative burst"},
		} {
			assert.ErrorIs(t, l.SetRate(row.rate), ratelimit.ErrInvalidConfig, row.why)
			assert.Equal(t, old, l.Rate(), row.why)
			assert.Equal(t, look, l.Peek("key"), row.why)
		}
	})
}

func TestSetRateToAnEqualOneChangesNothing(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		rate := ratelimit.PerSecond(7)
		left := a.start(t, rate, ratelimit.WithClock(clock))
		set := a.start(t, rate, ratelimit.WithClock(clock))
		r := rand.New(rand.NewPCG(6, 1))
		for range 300 {
			clock.Advance(time.Duration(r.IntN(300)-50) * ms)
			require.NoError(t, set.SetRate(rate))
			n := r.IntN(4)
			require.Equal(t, take(t, left, "key", n), take(t, set, "key", n))
		}
	})
	for _, a := range []algorithm{{"token bucket", tokenBucket}, {"leaky bucket", leakyBucket}} {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerSecond(3).WithBurst(5), ratelimit.WithClock(clock))
		spend(t, l, "key", 5)
		clock.Advance(100 * ms)
		look := l.Peek("key")
		same := ratelimit.PerMinute(180).WithBurst(5)
		require.NoError(t, l.SetRate(same))
		assert.Equal(t, look, l.Peek("key"), "%s: 180 a minute are 3 a second", a.name)
		assert.Equal(t, same, l.Rate(), a.name)
	}
}

func TestSetRateNeverGrants(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		r := rand.New(rand.NewPCG(7, 1))
		pers := []time.Duration{time.Second, 3 * time.Second, 7 * time.Second, 1234567 * time.Microsecond}
		for range 2000 {
			clock := ratelimit.NewFakeClock(epoch.Add(time.Duration(r.Int64N(int64(time.Minute)))))
			from := ratelimit.Rate{Requests: 1 + r.IntN(20), Per: pers[r.IntN(4)]}
			to := ratelimit.Rate{Requests: 1 + r.IntN(20), Per: pers[r.IntN(4)]}
			l := a.start(t, from, ratelimit.WithClock(clock))
			if take(t, l, "key", 1+r.IntN(from.Requests)).Allowed && r.IntN(2) == 0 {
				clock.Advance(time.Duration(r.Int64N(int64(from.Per))))
				take(t, l, "key", 1+r.IntN(from.Requests))
			}
			before := l.Peek("key")
			require.NoError(t, l.SetRate(to))
			require.Equal(t, to, l.Rate())
			after := l.Peek("key")

			require.Equal(t, to.Requests, after.Limit)
			used := from.Requests - before.Remaining
			switch {
			case strings.HasSuffix(a.name, "bucket"):
				want := before.Remaining - max(from.Requests-to.Requests, 0)
				require.Equal(t, max(want, 0), after.Remaining, "%v to %v with %v left", from, to, before)
			case a.name == "sliding window log" && to.Per < from.Per:
				require.GreaterOrEqual(t, after.Remaining, max(to.Requests-used, 0), "entries may leave, and nothing else may change")
			default:
				require.Equal(t, max(to.Requests-used, 0), after.Remaining, "%v to %v with %v left", from, to, before)
			}
			require.Equal(t, to.Requests, l.Peek("unseen").Remaining, "a key that used nothing has the new limit")
		}
	})
}

func TestSetRateAtAnInstant(t *testing.T) {
	per := func(n int, per time.Duration) ratelimit.Rate { return ratelimit.Rate{Requests: n, Per: per} }
	for _, row := range []struct {
		name     string
		make     func(ratelimit.Rate, ...ratelimit.Option) (limiter, error)
		from, to ratelimit.Rate
		use      int           // units taken at the epoch
		at       time.Duration // instant of the change, and of the look
		want     ratelimit.Result
		why      string
	}{
		{"token bucket", tokenBucket, per(1, sec), per(10, sec).WithBurst(1), 1, 500 * ms, no(1, 0, 50*ms, 50*ms),
			"half a token is earned at the old rate, the other half at the new one"},
		{"token bucket", tokenBucket, per(1, sec).WithBurst(4), per(1, sec).WithBurst(9), 3, 0, peeked(9, 1, 8*sec),
			"a larger burst has to be earned"},
		{"leaky bucket", leakyBucket, per(1, sec).WithBurst(4), per(1, sec).WithBurst(9), 3, 0, delayed(3*sec, peeked(9, 1, 8*sec)),
			"a larger burst has to be earned, and nothing leaves later for it"},
		{"token bucket", tokenBucket, per(1, sec).WithBurst(9), per(1, sec).WithBurst(4), 3, 0, peeked(4, 1, 3*sec),
			"what was used counts under a smaller burst"},
		{"fixed window", fixedWindow, per(5, mins), per(8, mins), 5, 20 * sec, peeked(8, 3, 40*sec),
			"what was used counts under a larger limit"},
		{"fixed window", fixedWindow, per(5, mins), per(3, mins), 5, 20 * sec, no(3, 0, 40*sec, 40*sec),
			"more was used than the new limit: nothing is left, not less"},
		{"fixed window", fixedWindow, per(5, mins), per(5, 30*sec), 5, 20 * sec, no(5, 0, 10*sec, 10*sec),
			"the count goes into the window that now lies in"},
		{"sliding log", slidingLog, per(5, mins), per(5, 30*sec), 5, 20 * sec, no(5, 0, 10*sec, 10*sec),
			"entries keep their instants"},
		{"sliding log", slidingLog, per(5, 30*sec), per(5, mins), 5, 30 * sec, peeked(5, 5, 0),
			"what has left does not come back"},
		{"sliding counter", slidingCounter, per(4, mins), per(4, 30*sec), 3, 90 * sec, peeked(4, 2, mins),
			"the estimate, one and a half, is rounded up into the window that now lies in"},
	} {
		clock := ratelimit.NewFakeClock(epoch)
		l, err := row.make(row.from, ratelimit.WithClock(clock))
		require.NoError(t, err)
		require.True(t, take(t, l, "key", row.use).Allowed)
		clock.Advance(row.at)
		require.NoError(t, l.SetRate(row.to))
		assert.Equal(t, row.want, l.Peek("key"), "%s: %s", row.name, row.why)
	}
}

// peeked is a look at a key that has remaining units left.
func peeked(limit, remaining int, reset time.Duration) ratelimit.Result {
	return yes(limit, remaining, reset)
}

func TestSetRateWhileOthersDecide(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		rates := []ratelimit.Rate{ratelimit.PerSecond(5), ratelimit.PerMinute(9)}
		l := a.start(t, rates[0])
		var wg sync.WaitGroup
		for c := range 4 {
			wg.Go(func() {
				for i := range 1000 {
					key := string(rune('a' + (i+c)%20))
					res := l.Allow(key)
					if i%3 == 0 {
						res = l.Peek(key)
					}
					if res.Limit != 5 && res.Limit != 9 || res.Remaining < 0 || res.Remaining > res.Limit ||
						res.Allowed != (res.RetryAfter == 0) {
						t.Errorf("an answer of neither rate: %+v", res)
						return
					}
				}
			})
		}
		for i := range 100 {
			if err := l.SetRate(rates[i%2]); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		require.Equal(t, rates[1], l.Rate())
		require.Equal(t, 9, l.Peek("a").Limit, "all keys have the last rate")
	})
}

// TestSetRateAfterResetAtTheBound resets a key that keeps its slot, because without
// it the key would owe what others share.
func TestSetRateAfterResetAtTheBound(t *testing.T) {
	for _, a := range []algorithm{algorithms[0], algorithms[4]} {
		l := a.start(t, ratelimit.PerMinute(2), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithMaxKeys(1))
		spend(t, l, "key", 2)
		spend(t, l, "other", 2)
		require.NoError(t, l.Reset("key"))
		require.NoError(t, l.SetRate(ratelimit.PerMinute(5)))
		require.Equal(t, 5, l.Peek("key").Remaining, "%s: as good as new is as good as new at the new rate", a.name)
		require.Equal(t, 0, l.Peek("other").Remaining, "%s: what is shared is still owed", a.name)
	}
}
