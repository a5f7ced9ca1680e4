package ratelimit_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestBadInput proves that every constructor refuses bad rates and options, and reports all
// problems at once.
func TestBadInput(t *testing.T) {
	var noMock *clock.Mock
	good := ratelimit.PerMinute(5)
	for _, tt := range []struct {
		why  string
		rate ratelimit.Rate
		opts []ratelimit.Option
		want string // the error of every constructor
	}{
		{"the zero rate", ratelimit.Rate{}, nil,
			"ratelimit: requests is 0: must be at least 1\n" +
				"ratelimit: per is 0s: must be longer than zero"},
		{"a negative count", ratelimit.PerMinute(-5), nil, "ratelimit: requests is -5: must be at least 1"},
		{"a negative time", ratelimit.Rate{Requests: 1, Per: -1}, nil, "ratelimit: per is -1ns: must be longer than zero"},
		{"a negative burst", good.WithBurst(-1), nil,
			"ratelimit: burst is -1: must be at least 1, or 0 for as many as requests"},
		{"room for no key", good, []ratelimit.Option{ratelimit.WithMaxKeys(0)}, "ratelimit: maxKeys is 0: must be at least 1"},
		{"room for fewer", good, []ratelimit.Option{ratelimit.WithMaxKeys(-1)}, "ratelimit: maxKeys is -1: must be at least 1"},
		{"no clock", good, []ratelimit.Option{ratelimit.WithClock(nil)}, "ratelimit: clock is <nil>: must not be nil"},
		{"a clock that is a nil pointer", good, []ratelimit.Option{ratelimit.WithClock(noMock)},
			"ratelimit: clock is <nil>: must not be nil"},
		{"a nil option", good, []ratelimit.Option{ratelimit.WithMaxKeys(1), nil}, "ratelimit: options[1] is <nil>: must not be nil"},
		{"everything at once", ratelimit.Rate{Requests: -1}, []ratelimit.Option{ratelimit.WithClock(nil), ratelimit.WithMaxKeys(0)},
			"ratelimit: requests is -1: must be at least 1\n" +
				"ratelimit: per is 0s: must be longer than zero\n" +
				"ratelimit: clock is <nil>: must not be nil\n" +
				"ratelimit: maxKeys is 0: must be at least 1"},
	} {
		for _, a := range algorithms {
			t.Run(tt.why+"/"+a.name, func(t *testing.T) {
				l, err := a.make(tt.rate, tt.opts...)
				require.EqualError(t, err, tt.want)
				require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
				require.Nil(t, l)
			})
		}
	}
}

// TestAlgorithmRefuses proves which rates only some algorithms refuse, in the constructor and in
// SetRate, and that the largest rates are accepted.
func TestAlgorithmRefuses(t *testing.T) {
	for _, tt := range []struct {
		why  string
		make func(ratelimit.Rate, ...ratelimit.Option) (limiter, error)
		rate ratelimit.Rate
		want string
	}{
		{"a burst", fixedWindow, ratelimit.PerMinute(5).WithBurst(3),
			"ratelimit: burst is 3: must be 0: a fixed window has no burst"},
		{"a burst", slidingLog, ratelimit.PerMinute(5).WithBurst(3),
			"ratelimit: burst is 3: must be 0: a sliding window log has no burst"},
		{"a burst", slidingCounter, ratelimit.PerMinute(5).WithBurst(3),
			"ratelimit: burst is 3: must be 0: a sliding window counter has no burst"},
		{"too much to remember", slidingLog, ratelimit.PerMinute(65_537),
			"ratelimit: requests is 65537: must be at most 65536: each is stored; a sliding window counter has no such bound"},
		{"windows too long to wait for two", slidingCounter, ratelimit.Rate{Requests: 1, Per: math.MaxInt64/2 + 1},
			"ratelimit: per is 1281023h53m38.427387904s: must be at most 146 years: a wait may last two windows"},
	} {
		l, err := tt.make(tt.rate)
		require.EqualError(t, err, tt.want, tt.why)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.Nil(t, l)

		l, err = tt.make(ratelimit.PerMinute(5))
		require.NoError(t, err)
		require.EqualError(t, l.SetRate(tt.rate), tt.want, "SetRate refuses what the constructor refuses")
		assert.Equal(t, ratelimit.PerMinute(5), l.Rate(), "the rate in force is kept")
	}
	for _, r := range []ratelimit.Rate{
		{Requests: math.MaxInt, Per: math.MaxInt64}, {Requests: math.MaxInt, Per: 1}, {Requests: 1, Per: math.MaxInt64},
	} {
		_, err := fixedWindow(r)
		assert.NoError(t, err, "a window takes any count and any time")
		_, err = tokenBucket(r.WithBurst(math.MaxInt32))
		assert.NoError(t, err, "a bucket takes any rate")
		_, err = leakyBucket(r.WithBurst(math.MaxInt32))
		assert.NoError(t, err, "a leaky bucket takes any rate")
	}
	_, err := slidingLog(ratelimit.Rate{Requests: 65_536, Per: math.MaxInt64})
	assert.NoError(t, err, "the most that a log remembers")
	_, err = slidingCounter(ratelimit.Rate{Requests: math.MaxInt, Per: math.MaxInt64 / 2})
	assert.NoError(t, err, "the longest window of a counter")
}

// TestBucketRefusesBeyond32Bits proves that the largest burst of a bucket is 2^32-1.
func TestBucketRefusesBeyond32Bits(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("no such int")
	}
	var largest uint32 = math.MaxUint32
	most := int(largest)
	for _, construct := range []func(ratelimit.Rate, ...ratelimit.Option) (limiter, error){tokenBucket, leakyBucket} {
		l, err := construct(ratelimit.PerSecond(most))
		require.NoError(t, err)
		res, err := l.Take(t.Context(), "key", most)
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.EqualError(t, l.SetRate(ratelimit.PerSecond(most+1)),
			"ratelimit: requests is 4294967296: must be at most 4294967295 without a burst")
		_, err = construct(ratelimit.PerSecond(1).WithBurst(most + 1))
		require.EqualError(t, err, "ratelimit: burst is 4294967296: must be at most 4294967295")
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	}
}

// TestLastOptionWins proves that the last of two equal options applies.
func TestLastOptionWins(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(1),
		ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithClock(clock))
	require.NoError(t, err)
	spend(t, l, "key", 1)
	clock.Advance(minute)
	spend(t, l, "key", 1)
}

// TestZeroLimiters proves that every method of a zero limiter denies or returns ErrInvalidConfig.
func TestZeroLimiters(t *testing.T) {
	for _, l := range []limiter{
		new(ratelimit.TokenBucket), new(ratelimit.FixedWindow), new(ratelimit.SlidingWindowLog),
		new(ratelimit.SlidingWindowCounter), new(ratelimit.LeakyBucket),
	} {
		denied := ratelimit.Result{RetryAfter: ratelimit.Never, Reason: ratelimit.ReasonLimit}
		assert.Equal(t, denied, l.Allow("key"), "%T", l)
		assert.Equal(t, denied, l.Peek("key"), "%T", l)
		res, err := l.Take(t.Context(), "key", 1)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%T", l)
		assert.Zero(t, res, "%T", l)
		res, err = l.Wait(t.Context(), "key", 1)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%T", l)
		assert.Zero(t, res, "%T", l)
		assert.ErrorIs(t, l.Reset("key"), ratelimit.ErrInvalidConfig, "%T", l)
		assert.ErrorIs(t, l.SetRate(ratelimit.PerMinute(1)), ratelimit.ErrInvalidConfig, "%T", l)
		assert.Zero(t, l.Rate(), "%T", l)
		assert.Zero(t, l.Len(), "%T", l)
	}
}

// TestZeroValues proves that zero values do not panic, and that no error of the package
// matches another.
func TestZeroValues(t *testing.T) {
	assert.EqualError(t, new(ratelimit.ConfigError), "ratelimit:  is <nil>: ")
	assert.ErrorIs(t, new(ratelimit.ConfigError), ratelimit.ErrInvalidConfig)
	assert.ErrorIs(t, ratelimit.Rate{}.Validate(), ratelimit.ErrInvalidConfig)
	assert.True(t, new(ratelimit.FakeClock).Now().IsZero())
	var errs []error
	for _, err := range []error{ratelimit.ErrInvalidConfig, ratelimit.ErrInvalidCount, ratelimit.ErrExceedsLimit,
		ratelimit.ErrUnknownRule, ratelimit.ErrStore} {
		for _, other := range errs {
			assert.NotErrorIs(t, err, other)
		}
		errs = append(errs, err)
		assert.Regexp(t, "^ratelimit: [a-z ]+$", err.Error())
	}
}
