package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A call is one step of a trace: Take of n units at an instant, and the whole expected answer.
type call struct {
	at   time.Duration // after the epoch
	n    int
	want ratelimit.Result
	why  string
}

// play makes the calls for one key, and compares each answer as a whole.
func play(t *testing.T, construct func(ratelimit.Rate, ...ratelimit.Option) (limiter, error), r ratelimit.Rate, calls []call) {
	t.Helper()
	clock := ratelimit.NewFakeClock(epoch)
	l, err := construct(r, ratelimit.WithClock(clock))
	require.NoError(t, err)
	for i, c := range calls {
		require.NotEmpty(t, c.why, "call %d", i)
		clock.Set(epoch.Add(c.at))
		got, err := l.Take(t.Context(), "key", c.n)
		require.NoError(t, err, c.why)
		require.Equal(t, c.want, got, "call %d at %v: %s", i, c.at, c.why)
	}
}

// TestTraces compares the whole Result of every call in fixed sequences, worked out by hand
// from each algorithm's definition.
func TestTraces(t *testing.T) {
	per := func(n int, per time.Duration) ratelimit.Rate { return ratelimit.Rate{Requests: n, Per: per} }
	for _, tt := range []struct {
		name  string
		make  func(ratelimit.Rate, ...ratelimit.Option) (limiter, error)
		rate  ratelimit.Rate
		calls []call
	}{
		{"token bucket, 5 per 10 s, burst 5", tokenBucket, per(5, 10*sec).WithBurst(5), []call{
			{0, 1, yes(5, 4, 2*sec), "1st of 5 at once"},
			{0, 1, yes(5, 3, 4*sec), "2nd of 5 at once"},
			{0, 1, yes(5, 2, 6*sec), "3rd of 5 at once"},
			{0, 1, yes(5, 1, 8*sec), "4th of 5 at once"},
			{0, 1, yes(5, 0, 10*sec), "5th of 5 at once"},
			{100 * ms, 1, no(5, 0, 1900*ms, 9900*ms), "a token takes 2 s"},
			{2 * sec, 1, yes(5, 0, 10*sec), "one token earned"},
			{12 * sec, 1, yes(5, 4, 2*sec), "five earned, 1st"},
			{12 * sec, 4, yes(5, 0, 10*sec), "the other four"},
			{12 * sec, 1, no(5, 0, 2*sec, 10*sec), "the 6th"},
		}},
		{"token bucket, 10 capacity, 1/s", tokenBucket, per(1, sec).WithBurst(10), []call{
			{0, 1, yes(10, 9, 1*sec), "starts full"},
			{500 * ms, 1, yes(10, 8, 1500*ms), "half a token refilled"},
			{500 * ms, 8, yes(10, 0, 9500*ms), "8.5 left, 8 at once"},
			{500 * ms, 1, no(10, 0, 500*ms, 9500*ms), "half a token is missing"},
		}},
		{"token bucket, 10/s, capacity 10", tokenBucket, per(10, sec).WithBurst(10), []call{
			{0, 1, yes(10, 9, 100*ms), "starts full"},
			{100 * ms, 1, yes(10, 9, 100*ms), "refilled in between"},
			{150 * ms, 1, yes(10, 8, 150*ms), "8.5 kept"},
			{160 * ms, 1, yes(10, 7, 240*ms), "1st of nine; 7.6 kept"},
			{160 * ms, 1, yes(10, 6, 340*ms), "2nd"},
			{160 * ms, 1, yes(10, 5, 440*ms), "3rd"},
			{160 * ms, 1, yes(10, 4, 540*ms), "4th"},
			{160 * ms, 1, yes(10, 3, 640*ms), "5th"},
			{160 * ms, 1, yes(10, 2, 740*ms), "6th"},
			{160 * ms, 1, yes(10, 1, 840*ms), "7th"},
			{160 * ms, 1, yes(10, 0, 940*ms), "8th; 0.6 kept"},
			{160 * ms, 1, no(10, 0, 40*ms, 940*ms), "0.4 is missing"},
		}},
		{"token bucket, 0.2 token left, 1/s", tokenBucket, per(1, sec), []call{
			{0, 1, yes(1, 0, 1*sec), "takes the only one"},
			{200 * ms, 1, no(1, 0, 800*ms, 800*ms), "0.2 left"},
		}},
		{"token bucket, 0.3 token left, 10/s", tokenBucket, per(10, sec).WithBurst(1), []call{
			{0, 1, yes(1, 0, 100*ms), "takes the only one"},
			{30 * ms, 1, no(1, 0, 70*ms, 70*ms), "0.3 left"},
		}},
		{"token bucket, capacity 5, 1/s", tokenBucket, per(1, sec).WithBurst(5), []call{
			{0, 1, yes(5, 4, 1*sec), "starts full"},
			{100 * ms, 1, yes(5, 3, 1900*ms), "3.1 kept"},
		}},
		{"fixed window, 100 per minute", fixedWindow, per(100, minute), []call{
			{59 * sec, 100, yes(100, 0, 1*sec), "100 at 0:59"},
			{61 * sec, 100, yes(100, 0, 59*sec), "100 at 1:01: 200 within 2 s, the stated bound 2L"},
			{61 * sec, 1, no(100, 0, 59*sec, 59*sec), "the 201st, until 2:00"},
			{120 * sec, 1, yes(100, 99, 60*sec), "2:00"},
		}},
		{"fixed window, 3 per 60 s", fixedWindow, per(3, 60*sec), []call{
			{5 * sec, 1, yes(3, 2, 55*sec), "1st"},
			{5 * sec, 1, yes(3, 1, 55*sec), "2nd"},
			{5 * sec, 1, yes(3, 0, 55*sec), "3rd"},
			{5 * sec, 1, no(3, 0, 55*sec, 55*sec), "4th"},
			{5 * sec, 1, no(3, 0, 55*sec, 55*sec), "5th: the denial has changed nothing"},
		}},
		{"sliding log, 1 per 60 s", slidingLog, per(1, 60*sec), []call{
			{50 * sec, 1, yes(1, 0, 60*sec), "at 50 s"},
			{105 * sec, 1, no(1, 0, 5*sec, 5*sec), "55 s later"},
			{110 * sec, 1, yes(1, 0, 60*sec), "exactly 60 s later"},
		}},
		{"sliding log, 100 per minute", slidingLog, per(100, minute), []call{
			{59 * sec, 100, yes(100, 0, 60*sec), "100 at 0:59"},
			{61 * sec, 1, no(100, 0, 58*sec, 58*sec), "one at 1:01"},
		}},
		{"sliding counter, 100 per minute", slidingCounter, per(100, minute), []call{
			{59 * sec, 100, yes(100, 0, 61*sec), "100 at 0:59"},
			{90 * sec, 50, yes(100, 0, 90*sec), "at 1:30 the previous window weighs one half"},
			{90 * sec, 1, no(100, 0, 600*ms, 90*sec), "the 51st: one more fits when 49 of 100 are left"},
		}},
		{"leaky bucket, 5 per 10 s, capacity 5", leakyBucket, per(5, 10*sec).WithBurst(5), []call{
			{0, 1, delayed(0*sec, yes(5, 4, 2*sec)), "leaves at once"},
			{0, 1, delayed(2*sec, yes(5, 3, 4*sec)), "leaves 2 s later"},
			{0, 1, delayed(4*sec, yes(5, 2, 6*sec)), "leaves 4 s later"},
			{0, 1, delayed(6*sec, yes(5, 1, 8*sec)), "leaves 6 s later"},
			{0, 1, delayed(8*sec, yes(5, 0, 10*sec)), "leaves 8 s later"},
			{0, 1, no(5, 0, 2*sec, 10*sec), "the queue is full"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { play(t, tt.make, tt.rate, tt.calls) })
	}
}

// TestTraceThousandAndOneAtOnce proves that a burst of 1,000 grants exactly 1,000 requests
// at once.
func TestTraceThousandAndOneAtOnce(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(10).WithBurst(1000), ratelimit.WithClock(clock))
	require.NoError(t, err)
	for i := range 1000 {
		require.Equal(t, yes(1000, 999-i, time.Duration(i+1)*100*ms), l.Allow("key"))
	}
	require.Equal(t, no(1000, 0, 100*ms, 100*sec), l.Allow("key"))
}

// TestNewKeyHasFullQuota proves that a key that was never seen may use its whole limit,
// whatever other keys have used.
func TestNewKeyHasFullQuota(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			l, err := a.make(ratelimit.PerMinute(7), ratelimit.WithClock(clock))
			require.NoError(t, err)
			spend(t, l, "other", 7)
			require.Equal(t, 7, l.Peek("key").Remaining)
			spend(t, l, "key", 7)
			denied(t, l, "key")
		})
	}
}

// TestYearIdleGivesFullQuota proves that a key has its full limit again after a year without
// requests, and that this answer does not take longer because many windows have passed.
func TestYearIdleGivesFullQuota(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			l, err := a.make(ratelimit.Rate{Requests: 7, Per: time.Microsecond}, ratelimit.WithClock(clock))
			require.NoError(t, err)
			spend(t, l, "key", 7)
			denied(t, l, "key")
			clock.Advance(366 * 24 * time.Hour) // 3e13 windows: a loop over them would not end
			require.Equal(t, ratelimit.Result{Allowed: true, Limit: 7, Remaining: 7}, l.Peek("key"))
			spend(t, l, "key", 7)
			denied(t, l, "key")
		})
	}
}

// unmoved is an Observer that does nothing.
type unmoved struct{}

func (unmoved) Observe(context.Context, ratelimit.Decision) {}

// exemplars holds, for each algorithm, its reference model and its bound.
var exemplars = map[string]struct {
	model func(start time.Time, r ratelimit.Rate) ratelimittest.Model
	bound ratelimittest.Bound
}{
	"token bucket":           {ratelimittest.TokenBucketModel, ratelimittest.TokenBucketBound},
	"fixed window":           {ratelimittest.FixedWindowModel, ratelimittest.FixedWindowBound},
	"sliding window log":     {ratelimittest.SlidingWindowLogModel, ratelimittest.SlidingWindowLogBound},
	"sliding window counter": {ratelimittest.SlidingWindowCounterModel, ratelimittest.SlidingWindowCounterBound},
	"leaky bucket":           {ratelimittest.LeakyBucketModel, ratelimittest.LeakyBucketBound},
}

// eachConforms runs the conformance kit on each of the five, with the options that opts returns.
func eachConforms(t *testing.T, keepRate bool, opts func(clock ratelimit.Clock) []ratelimit.Option) {
	t.Helper()
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, exemplars, a.name)
			ratelimittest.TestLimiter(t, ratelimittest.Config{
				New: func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
					return a.make(r, append(opts(clock), ratelimit.WithClock(clock))...)
				},
				Model:     exemplars[a.name].model,
				Bound:     exemplars[a.name].bound,
				KeepRate:  keepRate,
				Schedules: 100,
			})
		})
	}
}

// TestLimitersWithAnObserverConform runs the conformance kit on each of the five with an Observer,
// which must not change how a limiter behaves.
func TestLimitersWithAnObserverConform(t *testing.T) {
	eachConforms(t, false, func(ratelimit.Clock) []ratelimit.Option {
		return []ratelimit.Option{ratelimit.WithObserver(unmoved{})}
	})
}

// TestLimitersWithAStoreConform runs the conformance kit on each of the five in a store. A store
// learns a new rate only with the next request, so the kit for stores tests changes of the rate.
func TestLimitersWithAStoreConform(t *testing.T) {
	eachConforms(t, true, func(clock ratelimit.Clock) []ratelimit.Option {
		return []ratelimit.Option{ratelimit.WithStore(must(ratelimit.NewMemoryStore(ratelimit.WithClock(clock)))), ratelimit.WithName("kit")}
	})
}

// TestMemoryStoreConforms runs the conformance kit for stores on a MemoryStore.
func TestMemoryStoreConforms(t *testing.T) {
	ratelimittest.TestStore(t, ratelimittest.StoreConfig{
		New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
			return ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		},
		// A MemoryStore can represent 292 years before and after it was made.
		Starts: []time.Time{epoch.Add(789012345), epoch, time.Unix(0, 0), time.Unix(-1, 7)},
	})
}

// TestSixthAlgorithm runs the conformance kit on the algorithm of sixthalgorithm_test.go. It needs
// no model, because the kit then checks the promises that every limiter makes.
func TestSixthAlgorithm(t *testing.T) {
	ratelimittest.TestLimiter(t, ratelimittest.Config{
		New: func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
			return ratelimit.NewCooldown(r, ratelimit.WithClock(clock))
		},
		Span: 200 * 365 * 24 * time.Hour, // a key keeps an instant in the future, which must be representable
	})
}
