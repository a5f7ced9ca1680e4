package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestSlidingWindowLogLeaves proves that each unit leaves the log exactly one window after
// it was granted.
func TestSlidingWindowLogLeaves(t *testing.T) {
	begin(t, slidingLog, ratelimit.Rate{Requests: 5, Per: 10}).
		at(1).take(2, yes(5, 3, 10), "two at 1").
		at(3).take(1, yes(5, 2, 10), "one at 3").
		take(1, yes(5, 1, 10), "and another at the same instant").
		at(4).take(2, no(5, 1, 7, 9), "two fit when the two have left, at 11").
		take(3, no(5, 1, 7, 9), "three fit then as well").
		take(4, no(5, 1, 9, 9), "four fit when all have left").
		take(6, no(5, 1, ratelimit.Never, 9), "six never fit").
		at(2).take(1, yes(5, 0, 10), "a clock that steps back stands still at 3").
		at(11).take(2, yes(5, 0, 10), "after exactly the advised wait").
		take(1, no(5, 0, 2, 10), "when those at 3 leave").
		at(13).look(yes(5, 3, 8), "exactly a window old").
		at(21).look(yes(5, 5, 0), "empty")
}

// TestSlidingWindowLogSetRate proves that a change of the rate keeps the instants of all
// units that are still in the log.
func TestSlidingWindowLogSetRate(t *testing.T) {
	begin(t, slidingLog, ratelimit.Rate{Requests: 5, Per: 10}).
		take(2, yes(5, 3, 10), "two at 0").
		at(5).take(2, yes(5, 1, 10), "two at 5").
		set(ratelimit.Rate{Requests: 9, Per: 10}).look(yes(9, 5, 10), "a raise leaves the new limit less what was used").
		set(ratelimit.Rate{Requests: 3, Per: 10}).look(no(3, 0, 5, 10), "a cut leaves nothing until two have left").
		at(12).set(ratelimit.Rate{Requests: 9, Per: 100}).look(yes(9, 7, 93), "units that had left do not come back").
		set(ratelimit.Rate{Requests: 9, Per: 8}).look(yes(9, 7, 1), "the others keep their instants").
		at(5).look(yes(9, 7, 1), "a change of Per moves the key's clock")
}

// TestSlidingWindowLogRing compares the ring, as it grows and wraps around, with a plain
// list of entries.
func TestSlidingWindowLogRing(t *testing.T) {
	const limit, per = 100, 1000
	s := begin(t, slidingLog, ratelimit.Rate{Requests: limit, Per: per})
	type entry struct {
		at time.Duration
		n  int
	}
	var entries []entry
	for i := range 5000 {
		at := time.Duration(i * 7)
		for len(entries) > 0 && entries[0].at+per <= at {
			entries = entries[1:]
		}
		used := 0
		for _, e := range entries {
			used += e.n
		}
		n := 1 + i%3
		want := yes(limit, limit-used-n, per)
		if used+n > limit {
			want = no(limit, limit-used, 0, entries[len(entries)-1].at+per-at)
			for _, e := range entries {
				if used -= e.n; used+n <= limit {
					want.RetryAfter = e.at + per - at
					break
				}
			}
		} else {
			entries = append(entries, entry{at, n})
		}
		s.at(at).take(n, want, "the plain list of entries agrees")
	}
	require.Equal(t, 1, s.l.Len())
}
