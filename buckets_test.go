package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// TestTokenBucketOddRates proves that rates that do not divide a nanosecond lose no
// fraction of a token.
func TestTokenBucketOddRates(t *testing.T) {
	begin(t, tokenBucket, ratelimit.Rate{Requests: 3, Per: 10, Burst: 2}).
		take(2, yes(2, 0, 7), "two tokens take 6.7 ns").
		at(3).take(1, no(2, 0, 1, 4), "0.9 earned: a third of a nanosecond is missing").
		at(4).take(1, yes(2, 0, 6), "1.2 earned; 0.2 kept").
		at(6).take(1, no(2, 0, 1, 4), "0.8: two thirds of a nanosecond are missing").
		at(7).take(1, yes(2, 0, 7), "1.1: nothing was lost").
		at(10).take(1, yes(2, 0, 7), "exactly 1.0").
		at(20).look(yes(2, 2, 0), "full")
	begin(t, tokenBucket, ratelimit.Rate{Requests: 700_000_000, Per: sec, Burst: 7}).
		take(7, yes(7, 0, 10), "seven tokens take exactly 10 ns").
		at(9).take(7, no(7, 6, 1, 1), "6.3 earned").
		at(10).take(7, yes(7, 0, 10), "7 per 10 ns, not 1 per ns")
}

// TestTokenBucketExtremes proves that the slowest, the fastest and the largest bucket do
// not overflow.
func TestTokenBucketExtremes(t *testing.T) {
	const year = 366 * 24 * time.Hour
	begin(t, tokenBucket, ratelimit.Rate{Requests: 1, Per: year, Burst: math.MaxInt32}).
		take(math.MaxInt32, yes(math.MaxInt32, 0, ratelimit.Never), "2^31-1 years are beyond a Duration").
		take(1, no(math.MaxInt32, 0, year, ratelimit.Never), "one year is not").
		take(291, no(math.MaxInt32, 0, 291*year, ratelimit.Never), "291 years are not").
		take(292, no(math.MaxInt32, 0, ratelimit.Never, ratelimit.Never), "292 years are").
		at(year-1).take(1, no(math.MaxInt32, 0, 1, ratelimit.Never), "a nanosecond is missing after a year").
		at(year).take(1, yes(math.MaxInt32, 0, ratelimit.Never), "one token")
	begin(t, tokenBucket, ratelimit.Rate{Requests: math.MaxInt32, Per: 1, Burst: 1}).
		take(1, yes(1, 0, 1), "2^31-1 tokens a nanosecond").
		take(1, no(1, 0, 1, 1), "none within the same nanosecond").
		at(1).take(1, yes(1, 0, 1), "the burst bounds what is kept")
	begin(t, tokenBucket, ratelimit.Rate{Requests: 1, Per: math.MaxInt64}).
		take(1, yes(1, 0, ratelimit.Never), "one in 292 years").
		at(math.MaxInt64-1).take(1, no(1, 0, 1, 1), "a nanosecond is missing").
		at(math.MaxInt64).take(1, yes(1, 0, ratelimit.Never), "the last instant of all")
}

// TestTokenBucketKeepsItsTokens proves that a change of the burst leaves a key the tokens that it
// has, as far as they fit, and that a full bucket stays full.
func TestTokenBucketKeepsItsTokens(t *testing.T) {
	hundred := ratelimit.PerSecond(10).WithBurst(100)
	begin(t, tokenBucket, hundred).
		take(70, yes(100, 30, 7*sec), "30 of 100").
		set(hundred.WithBurst(50)).
		look(yes(50, 30, 2*sec), "stay 30 of 50").
		set(hundred).
		look(yes(100, 30, 7*sec), "and a raise adds none")
	begin(t, tokenBucket, hundred).
		take(10, yes(100, 90, sec), "90 of 100").
		set(hundred.WithBurst(50)).
		look(yes(50, 50, 0), "become 50 of 50").
		take(1, yes(50, 49, 100*ms), "one is taken").
		set(hundred).
		look(yes(100, 49, 5100*ms), "and a raise adds none").
		at(5100*ms-1).set(hundred.WithBurst(200)).
		look(yes(200, 99, 10*sec+1), "a nanosecond before it is full, a raise adds none")
	begin(t, tokenBucket, hundred).
		take(10, yes(100, 90, sec), "90 of 100").
		at(sec).set(hundred.WithBurst(200)).
		look(yes(200, 200, 0), "full at the change: as a key that was never seen").
		at(0).take(200, yes(200, 0, 21*sec), "and a clock that steps back takes nothing from it")
}

// TestTokenBucketSetRate proves that a change of the rate grants nothing, and loses nothing
// when it is taken back.
func TestTokenBucketSetRate(t *testing.T) {
	ten := ratelimit.PerSecond(10)
	begin(t, tokenBucket, ten).
		take(4, yes(10, 6, 400*ms), "4 of 10 used").
		set(ratelimit.PerSecond(20)).
		look(yes(20, 6, 700*ms), "a raise grants nothing").
		set(ten).
		look(yes(10, 6, 400*ms), "and back: nothing is lost").
		set(ratelimit.PerSecond(7)).
		look(yes(7, 6, 142_857_143), "a cut leaves what fits").
		set(ratelimit.PerSecond(3)).
		take(3, yes(3, 0, sec), "a deeper cut leaves the new burst").
		take(1, no(3, 0, 333_333_334, sec), "and no more").
		at(333_333_334).take(1, yes(3, 0, sec), "a third of a second, rounded up")
	begin(t, tokenBucket, ten).
		take(4, yes(10, 6, 400*ms), "4 of 10 used").
		set(ratelimit.PerSecond(20)).
		at(250*ms).look(yes(20, 11, 450*ms), "five earned at the new rate").
		take(5, yes(20, 6, 700*ms), "five used").
		set(ten).
		look(yes(10, 6, 400*ms), "six are left, and fit")
	begin(t, tokenBucket, ratelimit.Rate{Requests: 1, Per: 3, Burst: 2}).
		take(2, yes(2, 0, 6), "empty").
		at(4).set(ratelimit.Rate{Requests: 1, Per: 2, Burst: 2}).
		look(yes(2, 1, 2), "1.33 tokens become 1 and no half: rounded down").
		at(5).look(yes(2, 1, 1), "it grows by a half in 1 ns").
		at(3).look(yes(2, 1, 3), "a change moves the key's clock: the time back to it is waited for too")
	begin(t, tokenBucket, ten).
		take(10, yes(10, 0, sec), "empty").
		at(100*ms).set(ratelimit.PerSecond(10).WithBurst(10)).
		at(50*ms).take(1, no(10, 0, 50*ms, 950*ms), "the same rate in other words changes nothing, not even the clock").
		at(100*ms).take(1, yes(10, 0, sec), "0.1 s earned a token")
}

// TestLeakyBucketDelay proves that Delay spaces requests evenly, rounded up to the
// nanosecond.
func TestLeakyBucketDelay(t *testing.T) {
	begin(t, leakyBucket, ratelimit.Rate{Requests: 3, Per: 10, Burst: 4}).
		take(1, delayed(0, yes(4, 3, 4)), "leaves at once").
		take(1, delayed(4, yes(4, 2, 7)), "3.33 ns later, rounded up").
		take(1, delayed(7, yes(4, 1, 10)), "6.67 ns: the rounding does not add up").
		take(1, delayed(10, yes(4, 0, 14)), "exactly 10 ns").
		take(1, no(4, 0, 4, 14), "full").
		at(10).look(delayed(4, yes(4, 3, 4)), "one is left of four").
		at(14).look(delayed(0, yes(4, 4, 0)), "empty")
	begin(t, leakyBucket, ratelimit.PerSecond(10).WithBurst(5)).
		take(3, yes(5, 2, 300*ms), "three at once take three places").
		take(2, delayed(300*ms, yes(5, 0, 500*ms)), "two wait for three").
		take(6, no(5, 0, ratelimit.Never, 500*ms), "six never fit")
}

// TestLeakyBucketSetRate proves that a change of the rate neither grants nor delays what is
// queued.
func TestLeakyBucketSetRate(t *testing.T) {
	five := ratelimit.PerSecond(10).WithBurst(5)
	begin(t, leakyBucket, five).
		take(2, yes(5, 3, 200*ms), "two queued").
		set(ratelimit.PerSecond(10).WithBurst(1000)).
		look(delayed(200*ms, yes(1000, 3, 99_700*ms)), "a raise neither grants nor delays").
		set(five).
		look(delayed(200*ms, yes(5, 3, 200*ms)), "and back: nothing is lost").
		set(ratelimit.PerSecond(10).WithBurst(3)).
		look(delayed(200*ms, yes(3, 1, 200*ms)), "a cut leaves the new burst less what is queued").
		set(ratelimit.PerSecond(10).WithBurst(1)).
		take(1, no(1, 0, 100*ms, 200*ms), "a smaller cut leaves nothing; the two that are queued still leave one by one").
		at(100*ms).look(delayed(100*ms, yes(1, 1, 100*ms)), "one of them has yet to leave").
		at(200*ms).look(yes(1, 1, 0), "as good as new when it has")
	begin(t, leakyBucket, five).
		take(5, yes(5, 0, 500*ms), "full").
		set(ratelimit.PerSecond(20).WithBurst(5)).
		take(1, no(5, 0, 50*ms, 250*ms), "the queue drains at the new rate").
		at(50*ms).take(1, delayed(200*ms, yes(5, 0, 250*ms)), "four are queued")
}
