package ratelimit_test

import (
	"testing"

	"github.com/ratelimit-go/ratelimit"
)

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
