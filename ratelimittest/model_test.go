package ratelimittest_test

import (
	"math"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

const (
	ms    = time.Millisecond
	s     = time.Second
	never = ratelimit.Never
)

// A step asks a model, or changes its rate. The table has the fields of the answer except
// Limit, which is that of the rate in force.
type step struct {
	at   time.Duration
	n    int
	rate ratelimit.Rate // of a change; n is then 0

	allowed                       bool
	remaining                     int
	retryAfter, resetAfter, delay time.Duration

	why string
}

// playSteps plays steps on a new model, and compares whole Results.
func playSteps(t *testing.T, model func(time.Time, ratelimit.Rate) ratelimittest.Model, start time.Time, r ratelimit.Rate, steps []step) {
	t.Helper()
	m := model(start, r)
	for i, st := range steps {
		at := start.Add(st.at)
		if st.rate != (ratelimit.Rate{}) {
			r = st.rate
			m.SetRate(at, r)
			continue
		}
		limit := r.Burst
		if limit == 0 {
			limit = r.Requests
		}
		want := ratelimit.Result{
			Allowed: st.allowed, Limit: limit, Remaining: st.remaining,
			RetryAfter: st.retryAfter, ResetAfter: st.resetAfter, Delay: st.delay,
		}
		if !want.Allowed {
			want.Reason = ratelimit.ReasonLimit
		}
		if got := m.Ask(at, st.n); got != want {
			t.Errorf("step %d, %d at %v: %s:\n got %+v\nwant %+v", i, st.n, st.at, st.why, got, want)
		}
	}
}

func TestTokenBucketModel(t *testing.T) {
	playSteps(t, ratelimittest.TokenBucketModel, time.Time{}, ratelimit.Rate{Requests: 10, Per: s, Burst: 3}, []step{
		{at: 0, n: 0, allowed: true, remaining: 3, why: "a look at a new key"},
		{at: 0, n: 4, remaining: 3, retryAfter: never, why: "more than the burst never fits"},
		{at: 0, n: 3, allowed: true, resetAfter: 300 * ms, why: "starts full"},
		{at: 0, n: 1, retryAfter: 100 * ms, resetAfter: 300 * ms, why: "empty"},
		{at: 100*ms - 1, n: 1, retryAfter: 1, resetAfter: 200*ms + 1, why: "one nanosecond early"},
		{at: 100 * ms, n: 1, allowed: true, resetAfter: 300 * ms, why: "exactly on time"},
		{at: 50 * ms, n: 1, retryAfter: 150 * ms, resetAfter: 350 * ms,
			why: "a clock that steps back counts as standing still, and the step is waited for too"},
		{at: 160 * ms, n: 1, retryAfter: 40 * ms, resetAfter: 240 * ms, why: "a denial later"},
		{at: 120 * ms, n: 0, retryAfter: 80 * ms, resetAfter: 280 * ms, why: "the denial has not moved the key's clock"},
		{at: 300 * ms, rate: ratelimit.Rate{Requests: 10, Per: s, Burst: 6}, why: "two units available"},
		{at: 300 * ms, n: 0, allowed: true, remaining: 2, resetAfter: 400 * ms, why: "a higher burst grants nothing"},
		{at: 300 * ms, rate: ratelimit.Rate{Requests: 1, Per: 3 * s, Burst: 6}, why: "a slower rate"},
		{at: 3300*ms - 1, n: 0, allowed: true, remaining: 2, resetAfter: 9*s + 1, why: "the new rate counts from the change"},
		{at: 3300 * ms, n: 0, allowed: true, remaining: 3, resetAfter: 9 * s, why: "one unit every 3 s"},
		{at: 3300 * ms, rate: ratelimit.Rate{Requests: 1, Per: 3 * s, Burst: 4}, why: "three of six fit"},
		{at: 3300 * ms, n: 2, allowed: true, remaining: 1, resetAfter: 9 * s, why: "three are left; two of them are taken"},
		{at: 3300 * ms, rate: ratelimit.Rate{Requests: 1, Per: 3 * s, Burst: 2}, why: "one is left, and fits"},
		{at: 3300 * ms, n: 0, allowed: true, remaining: 1, resetAfter: 3 * s, why: "a lower burst takes nothing that fits"},
		{at: 6300*ms - 1, rate: ratelimit.Rate{Requests: 1, Per: 3 * s, Burst: 3}, why: "a nanosecond before it is full"},
		{at: 6300*ms - 1, n: 0, allowed: true, remaining: 1, resetAfter: 3*s + 1, why: "a higher burst grants nothing"},
		{at: 9300 * ms, rate: ratelimit.Rate{Requests: 1, Per: 3 * s, Burst: 5}, why: "full"},
		{at: 9300 * ms, n: 2, allowed: true, remaining: 3, resetAfter: 6 * s, why: "full stays full"},
		{at: 9300 * ms, rate: ratelimit.Rate{Requests: 1, Per: 3 * s, Burst: 2}, why: "three are left, two fit"},
		{at: 9300 * ms, n: 0, allowed: true, remaining: 2, why: "full"},
	})
	playSteps(t, ratelimittest.TokenBucketModel, time.Unix(0, 0), ratelimit.Rate{Requests: 1, Per: 366 * 24 * time.Hour, Burst: 1000}, []step{
		{at: 0, n: 1000, allowed: true, resetAfter: never, why: "a thousand years do not fit into a Duration"},
		{at: 0, n: 1, retryAfter: 366 * 24 * time.Hour, resetAfter: never, why: "one year fits into a Duration"},
		{at: 0, n: 500, retryAfter: never, resetAfter: never, why: "500 years are longer than a Duration"},
		{at: math.MaxInt64, n: 0, allowed: true, remaining: 291, resetAfter: never, why: "the last instant of a Duration"},
	})
}

func TestLeakyBucketModel(t *testing.T) {
	playSteps(t, ratelimittest.LeakyBucketModel, time.Unix(0, 0), ratelimit.Rate{Requests: 3, Per: 10, Burst: 4}, []step{
		{at: 0, n: 1, allowed: true, remaining: 3, resetAfter: 4, why: "leaves at once; a third of 10 ns rounds up"},
		{at: 0, n: 0, allowed: true, remaining: 3, resetAfter: 4, delay: 4, why: "a look shows the Delay"},
		{at: 0, n: 2, allowed: true, remaining: 1, resetAfter: 10, delay: 4, why: "leaves when the first has"},
		{at: 1, n: 1, allowed: true, remaining: 0, resetAfter: 13, delay: 9, why: "leaves when the three have, at 10"},
		{at: 1, n: 1, retryAfter: 3, resetAfter: 13, why: "no Delay when denied"},
		{at: 1, n: 5, retryAfter: never, resetAfter: 13, why: "more than the burst"},
		{at: 4, rate: ratelimit.Rate{Requests: 3, Per: 10, Burst: 8}, why: "2.8 units are queued"},
		{at: 4, n: 0, allowed: true, remaining: 1, resetAfter: 23, delay: 10, why: "a higher burst delays no request"},
	})
	playSteps(t, ratelimittest.LeakyBucketModel, time.Unix(0, 0), ratelimit.Rate{Requests: 1, Per: s, Burst: 10}, []step{
		{at: 0, n: 10, allowed: true, resetAfter: 10 * s, why: "the queue is full"},
		{at: 0, rate: ratelimit.Rate{Requests: 1, Per: s, Burst: 5}, why: "ten are queued where five fit"},
		{at: 0, n: 0, retryAfter: s, resetAfter: 10 * s, why: "as new when the queue is empty"},
		{at: 5 * s, n: 0, allowed: true, remaining: 5, resetAfter: 5 * s, delay: 5 * s, why: "five are still queued"},
	})
}

func TestFixedWindowModel(t *testing.T) {
	playSteps(t, ratelimittest.FixedWindowModel, time.Unix(-1, 0), ratelimit.Rate{Requests: 3, Per: 4 * s}, []step{
		{at: 0, n: 0, allowed: true, remaining: 3, why: "new"},
		{at: 0, n: 2, allowed: true, remaining: 1, resetAfter: s, why: "before 1970 a window ends at the epoch too"},
		{at: s - 1, n: 2, remaining: 1, retryAfter: 1, resetAfter: 1, why: "the last nanosecond"},
		{at: s, n: 3, allowed: true, remaining: 0, resetAfter: 4 * s, why: "the next window"},
		{at: 0, n: 1, retryAfter: 5 * s, resetAfter: 5 * s,
			why: "a clock that steps back counts as standing still, and the step is waited for too"},
		{at: 2 * s, rate: ratelimit.Rate{Requests: 5, Per: 4 * s}, why: "same windows"},
		{at: 2 * s, n: 0, allowed: true, remaining: 2, resetAfter: 3 * s, why: "the new limit minus what was used"},
		{at: 2 * s, rate: ratelimit.Rate{Requests: 2, Per: 10 * s}, why: "other windows"},
		{at: 2 * s, n: 1, retryAfter: 9 * s, resetAfter: 9 * s, why: "the count is carried"},
		{at: 11*s - 1, n: 3, remaining: 0, retryAfter: never, resetAfter: 1, why: "never fits"},
		{at: 11 * s, n: 0, allowed: true, remaining: 2, why: "the window has ended"},
	})
}

func TestSlidingWindowLogModel(t *testing.T) {
	playSteps(t, ratelimittest.SlidingWindowLogModel, time.Time{}, ratelimit.Rate{Requests: 4, Per: 10}, []step{
		{at: 0, n: 1, allowed: true, remaining: 3, resetAfter: 10, why: "new"},
		{at: 3, n: 2, allowed: true, remaining: 1, resetAfter: 10, why: "the newest counts for ResetAfter"},
		{at: 9, n: 2, remaining: 1, retryAfter: 1, resetAfter: 4, why: "the first is 9 old"},
		{at: 9, n: 3, remaining: 1, retryAfter: 4, resetAfter: 4, why: "two must leave"},
		{at: 10, n: 2, allowed: true, remaining: 0, resetAfter: 10, why: "exactly Per old is outside"},
		{at: 5, n: 1, retryAfter: 8, resetAfter: 15, why: "a clock that steps back counts as standing still, and the step is waited for too"},
		{at: 12, rate: ratelimit.Rate{Requests: 5, Per: 5}, why: "the grants at 3 are outside at this instant"},
		{at: 12, n: 0, allowed: true, remaining: 3, resetAfter: 3, why: "the two grants at 10 are inside"},
		{at: 12, rate: ratelimit.Rate{Requests: 5, Per: 50}, why: "a longer Per"},
		{at: 12, n: 0, allowed: true, remaining: 3, resetAfter: 48, why: "grants that have left do not come back"},
	})
}

func TestSlidingWindowCounterModel(t *testing.T) {
	playSteps(t, ratelimittest.SlidingWindowCounterModel, time.Unix(0, 0), ratelimit.Rate{Requests: 4, Per: 10}, []step{
		{at: 0, n: 0, allowed: true, remaining: 4, why: "new"},
		{at: 9, n: 4, allowed: true, remaining: 0, resetAfter: 11, why: "the end of the next window"},
		{at: 9, n: 1, retryAfter: 4, resetAfter: 11, why: "at 13 the previous window weighs 2.8"},
		{at: 12, n: 1, retryAfter: 1, resetAfter: 8, why: "3.2 weighed, and the end of this window"},
		{at: 13, n: 1, allowed: true, remaining: 0, resetAfter: 17, why: "2.8 and one"},
		{at: 13, n: 4, remaining: 0, retryAfter: 17, resetAfter: 17, why: "four units need two empty windows"},
		{at: 13, n: 3, remaining: 0, retryAfter: 7, resetAfter: 17, why: "at the edge, the current count becomes the previous one"},
		{at: 15, rate: ratelimit.Rate{Requests: 5, Per: 8}, why: "the estimate is 3"},
		{at: 15, n: 0, allowed: true, remaining: 2, resetAfter: 9, why: "carried as the current count of [8, 16)"},
	})
	playSteps(t, ratelimittest.SlidingWindowCounterModel, time.Unix(0, 0), ratelimit.Rate{Requests: 100, Per: 200}, []step{
		{at: 199, n: 100, allowed: true, remaining: 0, resetAfter: 201, why: "the last nanosecond of a window"},
		{at: 398, n: 99, allowed: true, remaining: 0, resetAfter: 202, why: "199 in 199 ns: 2L - 1 within Per"},
		{at: 399, n: 1, remaining: 0, retryAfter: 1, resetAfter: 201, why: "half a unit of the previous window is too much"},
	})
}

func TestModelReset(t *testing.T) {
	for _, a := range algorithms {
		start := time.Unix(100, 0)
		r := ratelimit.Rate{Requests: 3, Per: s}
		used, fresh := a.model(start, r), a.model(start, r)
		used.Ask(start.Add(time.Hour), 2)
		used.SetRate(start.Add(time.Hour), ratelimit.Rate{Requests: 4, Per: 2 * s})
		used.SetRate(start.Add(time.Hour), r)
		used.Reset()
		if got, want := used.Ask(start, 1), fresh.Ask(start, 1); got != want {
			t.Errorf("%s: after Reset, which also resets the clock of the key: got %+v, want %+v", a.name, got, want)
		}
	}
}

// TestModelRetryAfter searches, nanosecond by nanosecond, for the first instant at which
// each denied ask is granted.
func TestModelRetryAfter(t *testing.T) {
	start := time.Unix(0, 0)
	for _, a := range algorithms {
		for _, r := range []ratelimit.Rate{{Requests: 1, Per: 5}, {Requests: 3, Per: 10}, {Requests: 10, Per: 3}, {Requests: 4, Per: 7}} {
			for n := 1; n <= r.Requests; n++ {
				m := a.model(start, r)
				history := 0
				for at := range time.Duration(40) {
					res := m.Ask(start.Add(at), n)
					if res.Allowed {
						history++
						continue
					}
					again := a.model(start, r)
					for past := range at {
						again.Ask(start.Add(past), n)
					}
					wait := time.Duration(1)
					for again.Ask(start.Add(at+wait), n).RetryAfter != 0 {
						wait++
					}
					if wait != res.RetryAfter {
						t.Fatalf("%s %v: %d units at %v: RetryAfter %v, granted after %v", a.name, r, n, at, res.RetryAfter, wait)
					}
				}
				if history == 0 {
					t.Fatalf("%s %v: nothing granted", a.name, r)
				}
			}
		}
	}
}
