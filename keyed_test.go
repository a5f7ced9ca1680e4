package ratelimit_test

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// overAll runs test for each of the five.
func overAll(t *testing.T, test func(t *testing.T, a algorithm)) {
	t.Helper()
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) { test(t, a) })
	}
}

// start returns a limiter for r that must be possible.
func (a algorithm) start(tb testing.TB, r ratelimit.Rate, opts ...ratelimit.Option) limiter {
	tb.Helper()
	l, err := a.make(r, opts...)
	require.NoError(tb, err)
	return l
}

// take asks for n units and returns the answer, which must not be an error.
func take(t *testing.T, l ratelimit.Limiter, key string, n int) ratelimit.Result {
	t.Helper()
	res, err := l.Take(t.Context(), key, n)
	require.NoError(t, err)
	return res
}

// over returns a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestKeysAreBytes(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	overAll(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(2), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		for i, row := range []struct{ key, why string }{
			{"", "the empty key is a key"},
			{"\x00", "so is a NUL"},
			{"\x00\x00", "two are another"},
			{"a", "a letter"},
			{"a\x00", "nothing ends at a NUL"},
			{"\xff", "invalid UTF-8 is a key"},
			{"\xfe", "and is not replaced"},
			{"\ufffd", "by what replaces it elsewhere"},
			{"\u00e9", "a letter with an accent"},
			{"e\u0301", "is not normalised"},
			{long, "a megabyte"},
			{long[1:] + "x", "counts to its last byte"},
			{"x" + long[1:], "and from its first"},
		} {
			assert.Equal(t, 2, l.Peek(row.key).Remaining, row.why)
			spend(t, l, row.key, 2)
			denied(t, l, row.key)
			assert.Equal(t, i+1, l.Len(), row.why)
		}
	})
}

func TestPeekIsWhatAllowAnswers(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(clock))
		r := rand.New(rand.NewPCG(1, 1))
		for range 500 {
			clock.Advance(time.Duration(r.IntN(300)-50) * ms)
			keys := l.Len()
			look := l.Peek("key")
			require.Equal(t, look, l.Peek("key"), "a look changes nothing")
			require.Equal(t, look, take(t, l, "key", 0), "no units are a look")
			require.Equal(t, keys, l.Len(), "a look makes no key")
			got := l.Allow("key")
			want := look
			if want.Allowed { // what one unit changes
				want.Remaining--
				want.ResetAfter = got.ResetAfter
				require.Greater(t, got.ResetAfter, time.Duration(0))
			}
			require.Equal(t, want, got)
		}
	})
}

func TestWhatIsNotGrantedChangesNothing(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
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
				_, err := noisy.Take(over(), "key", 1)
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

func TestTakeRefuses(t *testing.T) {
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	overAll(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		for _, row := range []struct {
			ctx  context.Context
			n    int
			want error
			why  string
		}{
			{over(), 1, context.Canceled, "the caller has given up"},
			{over(), 0, context.Canceled, "even on a look"},
			{expired, 1, context.DeadlineExceeded, "the caller's deadline has passed"},
			{t.Context(), -1, ratelimit.ErrInvalidCount, "fewer than none"},
			{t.Context(), math.MinInt, ratelimit.ErrInvalidCount, "the fewest"},
			{nil, -1, ratelimit.ErrInvalidCount, "fewer than none, and no context"},
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

func TestMoreThanEverFits(t *testing.T) {
	counts := []int{6, math.MaxInt32 - 1, math.MaxInt32, math.MaxInt - 1, math.MaxInt}
	if strconv.IntSize == 64 {
		for _, low := range []uint64{0, 1, 3} { // what 32 bits of them would say
			counts = append(counts, int(uint64(1)<<32+low), int(uint64(1)<<62+low))
		}
	}
	overAll(t, func(t *testing.T, a algorithm) {
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

func TestReset(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		fresh := l.Peek("key")
		require.NoError(t, l.Reset("key"), "a key that was never seen")
		require.Zero(t, l.Len())
		spend(t, l, "key", 5)
		spend(t, l, "other", 3)
		other := l.Peek("other")
		require.NoError(t, l.Reset("key"))
		assert.Equal(t, fresh, l.Peek("key"), "as good as new")
		assert.Equal(t, other, l.Peek("other"), "nobody else is touched")
		assert.Equal(t, 1, l.Len())
		spend(t, l, "key", 5)
		denied(t, l, "key")
	})
}

func TestDecisionsAreCountedOnce(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithMaxKeys(1))
		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(mins-1))
		defer cancel()
		var want keytable.Counts
		for _, row := range []struct {
			call                        func()
			allowed, denied, overflowed uint64
			why                         string
		}{
			{func() { l.Peek("key") }, 0, 0, 0, "a look is no decision"},
			{func() { take(t, l, "key", 0) }, 0, 0, 0, "nor is an ask for no units"},
			{func() { _, _ = l.Take(over(), "key", 1) }, 0, 0, 0, "nor one that is not answered"},
			{func() { l.Allow("key") }, 1, 0, 0, "a grant"},
			{func() { take(t, l, "key", 1) }, 1, 0, 0, "a grant of more"},
			{func() { _, _ = l.Wait(t.Context(), "key", 1) }, 1, 0, 0, "a grant that was waited for"},
			{func() { l.Allow("key") }, 0, 1, 0, "a denial"},
			{func() { take(t, l, "key", 4) }, 0, 1, 0, "a denial for ever"},
			{func() { _, _ = l.Wait(expired, "key", 3) }, 0, 0, 0, "a wait that fails has decided nothing"},
			{func() { take(t, l, "other", 1) }, 1, 0, 1, "a grant from the shared debt"},
			{func() { take(t, l, "other", 3) }, 0, 1, 0, "a denial by it"},
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
