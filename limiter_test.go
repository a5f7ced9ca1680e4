package ratelimit_test

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// TestKeysAreBytes proves that a key is any sequence of bytes and is compared byte by byte.
func TestKeysAreBytes(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(2), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		for i, row := range []struct{ key, why string }{
			{"", "the empty key is a key"},
			{"\x00", "a NUL"},
			{"\x00\x00", "two NULs are another key"},
			{"a", "a letter"},
			{"a\x00", "a key does not end at a NUL"},
			{"\xff", "invalid UTF-8 is a key"},
			{"\xfe", "another invalid byte is another key"},
			{"\ufffd", "the character that often replaces invalid bytes"},
			{"\u00e9", "a letter with an accent"},
			{"e\u0301", "the same letter in two characters is another key"},
			{long, "a megabyte"},
			{long[1:] + "x", "a megabyte that differs in its last byte"},
			{"x" + long[1:], "a megabyte that differs in its first byte"},
		} {
			assert.Equal(t, 2, l.Peek(row.key).Remaining, row.why)
			spend(t, l, row.key, 2)
			denied(t, l, row.key)
			assert.Equal(t, i+1, l.Len(), row.why)
		}
	})
}

// TestPeekIsWhatAllowAnswers proves that Peek answers what the next Allow would, and changes
// nothing.
func TestPeekIsWhatAllowAnswers(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(clock))
		r := rand.New(rand.NewPCG(1, 1))
		for range 500 {
			clock.Advance(time.Duration(r.IntN(300)-50) * ms)
			keys := l.Len()
			look := l.Peek("key")
			require.Equal(t, look, l.Peek("key"), "a look changes nothing")
			require.Equal(t, look, take(t, l, "key", 0), "Take of no units is a look")
			require.Equal(t, keys, l.Len(), "a look makes no state for the key")
			got := l.Allow("key")
			want := look
			if want.Allowed { // Allow takes one unit, Peek none
				want.Remaining--
				want.ResetAfter = got.ResetAfter
				require.Greater(t, got.ResetAfter, time.Duration(0))
			}
			require.Equal(t, want, got)
		}
	})
}

// TestDeniedRequestsChangeNothing proves that a limiter that got many denied, cancelled and invalid
// requests answers as one that got none of them.
func TestDeniedRequestsChangeNothing(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		quiet := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(clock))
		noisy := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(clock))
		r := rand.New(rand.NewPCG(2, 1))
		for range 400 {
			clock.Advance(time.Duration(r.IntN(400)-100) * ms)
			for range r.IntN(3) {
				before := noisy.Peek("key")
				require.False(t, take(t, noisy, "key", before.Remaining+1+r.IntN(9)).Allowed)
				require.Equal(t, ratelimit.Never, take(t, noisy, "key", 8).RetryAfter)
				_, err := noisy.Take(canceled(), "key", 1)
				require.ErrorIs(t, err, context.Canceled)
				_, err = noisy.Take(t.Context(), "key", -1)
				require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
				require.Equal(t, before, noisy.Peek("key"))
			}
			require.Equal(t, quiet.Len(), noisy.Len())
			n := r.IntN(5)
			require.Equal(t, take(t, quiet, "key", n), take(t, noisy, "key", n))
		}
	})
}

// TestTakeRefuses proves which calls of Take return an error, and that they take nothing.
func TestTakeRefuses(t *testing.T) {
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		for _, row := range []struct {
			ctx  context.Context
			n    int
			want error
			why  string
		}{
			{canceled(), 1, context.Canceled, "the caller has given up"},
			{canceled(), 0, context.Canceled, "the caller has given up, and only looks"},
			{expired, 1, context.DeadlineExceeded, "the caller's deadline has passed"},
			{t.Context(), -1, ratelimit.ErrInvalidCount, "a negative count"},
			{t.Context(), math.MinInt, ratelimit.ErrInvalidCount, "the smallest count"},
			{nil, -1, ratelimit.ErrInvalidCount, "a negative count, without a context"},
		} {
			res, err := l.Take(row.ctx, "key", row.n)
			assert.Equal(t, row.want, err, row.why)
			assert.Equal(t, ratelimit.Result{}, res, row.why)
			assert.Zero(t, l.Len(), row.why)
		}
		var none context.Context
		res, err := l.Take(none, "key", 2)
		require.NoError(t, err, "a nil context is never over")
		assert.Equal(t, 3, res.Remaining)
	})
}

// TestCountAboveTheLimitIsNever proves that a count above the limit is denied with Never, up to the
// largest int.
func TestCountAboveTheLimitIsNever(t *testing.T) {
	counts := []int{6, math.MaxInt32 - 1, math.MaxInt32, math.MaxInt - 1, math.MaxInt}
	if strconv.IntSize == 64 {
		for _, low := range []uint64{0, 1, 3} { // if only the low 32 bits counted, they would fit
			counts = append(counts, int(uint64(1)<<32+low), int(uint64(1)<<62+low))
		}
	}
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		spend(t, l, "key", 2)
		look := l.Peek("key")
		for _, n := range counts {
			want := no(5, 3, ratelimit.Never, look.ResetAfter)
			require.Equal(t, want, take(t, l, "key", n), "%d units of 5", n)
			require.Equal(t, no(5, 5, ratelimit.Never, 0), take(t, l, "new", n), "%d units of 5", n)
		}
		require.Equal(t, 1, l.Len())
		require.Equal(t, look, l.Peek("key"))
	})
}

// TestReset proves that Reset forgets everything that one key has used, and affects no other key.
func TestReset(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		fresh := l.Peek("key")
		require.NoError(t, l.Reset("key"), "a key that was never seen can be reset")
		require.Zero(t, l.Len())
		spend(t, l, "key", 5)
		spend(t, l, "other", 3)
		other := l.Peek("other")
		require.NoError(t, l.Reset("key"))
		assert.Equal(t, fresh, l.Peek("key"), "as good as new")
		assert.Equal(t, other, l.Peek("other"), "the other key is not touched")
		assert.Equal(t, 1, l.Len())
		spend(t, l, "key", 5)
		denied(t, l, "key")
	})
}

// TestDecisionsAreCountedOnce proves that every decision is counted once, and that looks and failed
// calls are not counted.
func TestDecisionsAreCountedOnce(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithMaxKeys(1))
		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(minute-1))
		defer cancel()
		var want keytable.Counts
		for _, row := range []struct {
			call                        func()
			allowed, denied, overflowed uint64
			why                         string
		}{
			{func() { l.Peek("key") }, 0, 0, 0, "a look is no decision"},
			{func() { take(t, l, "key", 0) }, 0, 0, 0, "a Take of no units is none either"},
			{func() { _, _ = l.Take(canceled(), "key", 1) }, 0, 0, 0, "a call that fails is none either"},
			{func() { l.Allow("key") }, 1, 0, 0, "a grant"},
			{func() { take(t, l, "key", 1) }, 1, 0, 0, "a second grant"},
			{func() { _, _ = l.Wait(t.Context(), "key", 1) }, 1, 0, 0, "a grant that was waited for"},
			{func() { l.Allow("key") }, 0, 1, 0, "a denial"},
			{func() { take(t, l, "key", 4) }, 0, 1, 0, "a denial with Never"},
			{func() { _, _ = l.Wait(expired, "key", 3) }, 0, 1, 0, "what Wait refuses is denied"},
			{func() { take(t, l, "other", 1) }, 1, 0, 1, "a grant from the shared debt"},
			{func() { take(t, l, "other", 3) }, 0, 1, 0, "a denial by the shared debt"},
		} {
			if a.name == "leaky bucket" && row.why == "a grant that was waited for" {
				l.Allow("key") // a Wait would last for the Delay
			} else {
				row.call()
			}
			want.Allowed += row.allowed
			want.Denied += row.denied
			want.Overflowed += row.overflowed
			require.Equal(t, want, l.(interface{ Counts() keytable.Counts }).Counts(), row.why)
		}
	})
}

// TestSetRateRefusesInvalidRates proves that SetRate refuses an invalid rate and keeps the old one.
func TestSetRateRefusesInvalidRates(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
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
			{ratelimit.PerMinute(-1), "a negative count of requests"},
			{ratelimit.Rate{Requests: 1, Per: -1}, "a negative time"},
			{ratelimit.PerMinute(5).WithBurst(-1), "a negative burst"},
		} {
			assert.ErrorIs(t, l.SetRate(row.rate), ratelimit.ErrInvalidConfig, row.why)
			assert.Equal(t, old, l.Rate(), row.why)
			assert.Equal(t, look, l.Peek("key"), row.why)
		}
	})
}

// TestSetRateToAnEqualRate proves that SetRate to an equal rate, such as 60 a minute for 1 a
// second, changes no answer.
func TestSetRateToAnEqualRate(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
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

// TestSetRateNeverGrants proves with random changes of the rate that no key ever has more units
// left than its use allows.
func TestSetRateNeverGrants(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
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
			case a.name == "token bucket" && before.ResetAfter == 0:
				require.Equal(t, to.Requests, after.Remaining, "%v to %v: full stays full", from, to)
			case a.name == "token bucket":
				require.Equal(t, min(before.Remaining, to.Requests), after.Remaining, "%v to %v with %v left", from, to, before)
			case a.name == "leaky bucket":
				want := before.Remaining - max(from.Requests-to.Requests, 0)
				require.Equal(t, max(want, 0), after.Remaining, "%v to %v with %v left", from, to, before)
			case a.name == "sliding window log" && to.Per < from.Per:
				require.GreaterOrEqual(t, after.Remaining, max(to.Requests-used, 0), "a shorter window may let entries leave, but takes nothing")
			default:
				require.Equal(t, max(to.Requests-used, 0), after.Remaining, "%v to %v with %v left", from, to, before)
			}
			require.Equal(t, to.Requests, l.Peek("unseen").Remaining, "a key that has used nothing has the whole new limit")
		}
	})
}

// TestSetRateAtAnInstant compares the whole Result right after a change of the rate, case
// by case.
func TestSetRateAtAnInstant(t *testing.T) {
	per := func(n int, per time.Duration) ratelimit.Rate { return ratelimit.Rate{Requests: n, Per: per} }
	for _, row := range []struct {
		name     string
		make     func(ratelimit.Rate, ...ratelimit.Option) (limiter, error)
		from, to ratelimit.Rate
		use      int           // units taken at the epoch
		at       time.Duration // instant of the change and of the look, after the epoch
		want     ratelimit.Result
		why      string
	}{
		{"token bucket", tokenBucket, per(1, sec), per(10, sec).WithBurst(1), 1, 500 * ms, no(1, 0, 50*ms, 50*ms),
			"half a token is earned at the old rate, the other half at the new one"},
		{"token bucket", tokenBucket, per(1, sec).WithBurst(4), per(1, sec).WithBurst(9), 3, 0, peeked(9, 1, 8*sec),
			"a larger burst has to be earned"},
		{"leaky bucket", leakyBucket, per(1, sec).WithBurst(4), per(1, sec).WithBurst(9), 3, 0, delayed(3*sec, peeked(9, 1, 8*sec)),
			"a larger burst has to be earned, and the Delay stays"},
		{"token bucket", tokenBucket, per(1, sec).WithBurst(9), per(1, sec).WithBurst(4), 6, 0, peeked(4, 3, 1*sec),
			"the tokens stay, as far as they fit"},
		{"fixed window", fixedWindow, per(5, minute), per(8, minute), 5, 20 * sec, peeked(8, 3, 40*sec),
			"what was used counts under a larger limit"},
		{"fixed window", fixedWindow, per(5, minute), per(3, minute), 5, 20 * sec, no(3, 0, 40*sec, 40*sec),
			"more was used than the new limit: nothing is left"},
		{"fixed window", fixedWindow, per(5, minute), per(5, 30*sec), 5, 20 * sec, no(5, 0, 10*sec, 10*sec),
			"the count goes into the new window of the present instant"},
		{"sliding log", slidingLog, per(5, minute), per(5, 30*sec), 5, 20 * sec, no(5, 0, 10*sec, 10*sec),
			"entries keep their instants"},
		{"sliding log", slidingLog, per(5, 30*sec), per(5, minute), 5, 30 * sec, peeked(5, 5, 0),
			"entries that had left do not come back"},
		{"sliding counter", slidingCounter, per(4, minute), per(4, 30*sec), 3, 90 * sec, peeked(4, 2, minute),
			"the estimate, one and a half, is rounded up and goes into the new window of the present instant"},
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

// TestSetRateWhileOthersDecide proves that each answer during changes of the rate is by the old
// rate or by the new one.
func TestSetRateWhileOthersDecide(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
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
						t.Errorf("the answer fits neither rate: %+v", res)
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

// TestSetRateAfterResetAtTheBound proves that a key that was reset has the whole new rate. When the
// limiter has as many keys as it may, the key must keep its slot: without it, the key would share
// the debt of other keys.
func TestSetRateAfterResetAtTheBound(t *testing.T) {
	for _, a := range []algorithm{algorithms[0], algorithms[4]} {
		l := a.start(t, ratelimit.PerMinute(2), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithMaxKeys(1))
		spend(t, l, "key", 2)
		spend(t, l, "other", 2)
		require.NoError(t, l.Reset("key"))
		require.NoError(t, l.SetRate(ratelimit.PerMinute(5)))
		require.Equal(t, 5, l.Peek("key").Remaining, "%s: the key that was reset has the whole new rate", a.name)
		require.Equal(t, 0, l.Peek("other").Remaining, "%s: the shared debt is still owed", a.name)
	}
}
