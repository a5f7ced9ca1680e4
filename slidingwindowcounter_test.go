package ratelimit_test

import (
	"testing"

	"github.com/ratelimit-go/ratelimit"
)

// TestSlidingWindowCounterFades proves how the previous window weighs less and less, to the
// nanosecond.
func TestSlidingWindowCounterFades(t *testing.T) {
	begin(t, slidingCounter, ratelimit.Rate{Requests: 4, Per: 10}).
		at(9).take(4, yes(4, 0, 11), "the last nanosecond of a window").
		take(1, no(4, 0, 4, 11), "weighs 3 from 12.5 on: 13").
		at(12).take(1, no(4, 0, 1, 8), "a nanosecond early").
		at(13).take(1, yes(4, 0, 17), "4·7/10 + 1 = 3.8").
		take(2, no(4, 0, 5, 17), "4·2/10 + 3 = 3.8 at 18").
		at(18).take(2, yes(4, 0, 12), "after exactly the advised wait").
		take(4, no(4, 0, 12, 12), "when both have gone, at 30").
		at(20).take(1, yes(4, 0, 20), "3 fade: 3·10/10 + 1 = 4").
		at(29).look(yes(4, 2, 11), "3·1/10 + 1 = 1.3").
		at(30).look(yes(4, 3, 10), "what was current is previous").
		at(40).look(yes(4, 4, 0), "two windows later nothing is left")
}

// TestSlidingWindowCounterResetAfter proves that ResetAfter reaches to the instant at which
// nothing counts any more.
func TestSlidingWindowCounterResetAfter(t *testing.T) {
	begin(t, slidingCounter, ratelimit.PerMinute(4)).
		at(15*sec).take(1, yes(4, 3, 105*sec), "until the end of the next window").
		at(60*sec).look(yes(4, 3, 60*sec), "that window has begun").
		at(61*sec).look(yes(4, 3, 59*sec), "any weight, however small, costs one of the four units").
		at(120*sec).look(yes(4, 4, 0), "gone").
		at(15*sec).look(yes(4, 3, 105*sec), "a look does not move the key's clock")
}

// TestSlidingWindowCounterSetRate proves what a change of the rate does to the counts of
// both windows.
func TestSlidingWindowCounterSetRate(t *testing.T) {
	begin(t, slidingCounter, ratelimit.PerMinute(10)).
		at(30*sec).take(9, yes(10, 1, 90*sec), "9 in the first window").
		at(90*sec).set(ratelimit.PerMinute(20)).look(yes(20, 15, 30*sec), "9 weigh 4.5: counts are kept").
		set(ratelimit.PerMinute(3)).look(no(3, 0, 16_666_666_667, 30*sec), "a cut leaves nothing until 9 weigh 2").
		set(ratelimit.PerMinute(10)).
		set(ratelimit.PerHour(10)).look(yes(10, 5, 118*mins+30*sec), "with another Per the estimate, rounded up, is the count").
		at(60*sec).look(yes(10, 5, 118*mins+30*sec), "the change has moved the key's clock")
}
