package ratelimittest_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// An event is a number of asks for n units each at the instant at. All but the last are
// granted; the fields give the answer to the last.
type event struct {
	at    time.Duration
	times int
	n     int

	allowed    bool
	remaining  int
	retryAfter time.Duration
	delay      time.Duration
}

// traces are decisions that were worked out by hand. Each is checked with the model and the
// limiter of one algorithm.
var traces = []struct {
	algorithm string
	rate      ratelimit.Rate
	events    []event
	why       string
}{
	{"TokenBucket", ratelimit.Rate{Requests: 5, Per: 10 * s, Burst: 5}, []event{
		{at: 0, times: 1, n: 1, allowed: true, remaining: 4},
		{at: 0, times: 4, n: 1, allowed: true, remaining: 0},
		{at: 100 * ms, times: 1, n: 1, retryAfter: 1900 * ms},
		{at: 2 * s, times: 1, n: 1, allowed: true},
		{at: 12 * s, times: 5, n: 1, allowed: true},
		{at: 12 * s, times: 1, n: 1, retryAfter: 2 * s},
	}, "a unit every 2 s"},
	{"TokenBucket", ratelimit.Rate{Requests: 1, Per: s, Burst: 10}, []event{
		{at: 0, times: 1, n: 1, allowed: true, remaining: 9},
		{at: 500 * ms, times: 1, n: 1, allowed: true, remaining: 8},
		{at: 500 * ms, times: 8, n: 1, allowed: true},
		{at: 500 * ms, times: 1, n: 1, retryAfter: 500 * ms},
	}, "half a unit is earned"},
	{"TokenBucket", ratelimit.Rate{Requests: 10, Per: s, Burst: 10}, []event{
		{at: 0, times: 1, n: 1, allowed: true, remaining: 9},
		{at: 100 * ms, times: 1, n: 1, allowed: true, remaining: 9},
		{at: 150 * ms, times: 1, n: 1, allowed: true, remaining: 8},
		{at: 160 * ms, times: 8, n: 1, allowed: true},
		{at: 160 * ms, times: 1, n: 1, retryAfter: 40 * ms},
	}, "fractions are kept"},
	{"TokenBucket", ratelimit.PerSecond(1), []event{
		{at: 0, times: 1, n: 1, allowed: true},
		{at: 200 * ms, times: 1, n: 1, retryAfter: 800 * ms},
	}, "0.2 units are left"},
	{"TokenBucket", ratelimit.PerSecond(10), []event{
		{at: 0, times: 1, n: 10, allowed: true},
		{at: 30 * ms, times: 1, n: 1, retryAfter: 70 * ms},
	}, "0.3 units are left"},
	{"TokenBucket", ratelimit.Rate{Requests: 1, Per: s, Burst: 5}, []event{
		{at: 0, times: 1, n: 1, allowed: true, remaining: 4},
		{at: 100 * ms, times: 1, n: 1, allowed: true, remaining: 3},
	}, "3.1 units are left"},
	{"TokenBucket", ratelimit.Rate{Requests: 10, Per: s, Burst: 1000}, []event{
		{at: 0, times: 1000, n: 1, allowed: true},
		{at: 0, times: 1, n: 1, retryAfter: 100 * ms},
	}, "the burst at once"},
	{"FixedWindow", ratelimit.PerMinute(100), []event{
		{at: 59 * s, times: 100, n: 1, allowed: true},
		{at: 61 * s, times: 100, n: 1, allowed: true},
		{at: 61 * s, times: 1, n: 1, retryAfter: 59 * s},
	}, "twice the limit across an edge"},
	{"FixedWindow", ratelimit.Rate{Requests: 3, Per: 60 * s}, []event{
		{at: 5 * s, times: 1, n: 1, allowed: true, remaining: 2},
		{at: 5 * s, times: 1, n: 1, allowed: true, remaining: 1},
		{at: 5 * s, times: 1, n: 1, allowed: true, remaining: 0},
		{at: 5 * s, times: 1, n: 1, retryAfter: 55 * s},
		{at: 5 * s, times: 1, n: 1, retryAfter: 55 * s},
	}, "the end of the minute"},
	{"SlidingWindowLog", ratelimit.Rate{Requests: 1, Per: 60 * s}, []event{
		{at: 50 * s, times: 1, n: 1, allowed: true},
		{at: 105 * s, times: 1, n: 1, retryAfter: 5 * s},
		{at: 110 * s, times: 1, n: 1, allowed: true},
	}, "exactly a minute later"},
	{"SlidingWindowLog", ratelimit.PerMinute(100), []event{
		{at: 59 * s, times: 100, n: 1, allowed: true},
		{at: 61 * s, times: 1, n: 1, retryAfter: 58 * s},
	}, "no edge to use"},
	{"SlidingWindowCounter", ratelimit.PerMinute(100), []event{
		{at: 59 * s, times: 100, n: 1, allowed: true},
		{at: 90 * s, times: 50, n: 1, allowed: true},
		{at: 90 * s, times: 1, n: 1, retryAfter: 600 * ms},
	}, "the previous window weighs one half"},
	{"LeakyBucket", ratelimit.Rate{Requests: 5, Per: 10 * s, Burst: 5}, []event{
		{at: 0, times: 1, n: 1, allowed: true, remaining: 4},
		{at: 0, times: 1, n: 1, allowed: true, remaining: 3, delay: 2 * s},
		{at: 0, times: 1, n: 1, allowed: true, remaining: 2, delay: 4 * s},
		{at: 0, times: 1, n: 1, allowed: true, remaining: 1, delay: 6 * s},
		{at: 0, times: 1, n: 1, allowed: true, remaining: 0, delay: 8 * s},
		{at: 0, times: 1, n: 1, retryAfter: 2 * s},
	}, "evenly spaced"},
}

func TestTraces(t *testing.T) {
	for _, tr := range traces {
		for _, a := range algorithms {
			if a.name != tr.algorithm {
				continue
			}
			t.Run(a.name+"/"+tr.why, func(t *testing.T) {
				start := time.Unix(0, 0)
				clock := ratelimit.NewFakeClock(start)
				l, err := a.new(tr.rate, clock)
				if err != nil {
					t.Fatal(err)
				}
				m := a.model(start, tr.rate)
				for _, e := range tr.events {
					clock.Set(start.Add(e.at))
					for i := range e.times {
						got, err := l.Take(context.Background(), "k", e.n)
						model := m.Ask(start.Add(e.at), e.n)
						if err != nil || got != model {
							t.Errorf("at %v: limiter and model differ:\n%+v, %v\n%+v", e.at, got, err, model)
						}
						if i < e.times-1 {
							if !model.Allowed {
								t.Errorf("at %v: ask %d of %d is denied", e.at, i+1, e.times)
							}
							continue
						}
						want := ratelimit.Result{
							Allowed: e.allowed, Limit: model.Limit, Remaining: e.remaining,
							RetryAfter: e.retryAfter, ResetAfter: model.ResetAfter, Delay: e.delay,
						}
						if !want.Allowed {
							want.Reason = ratelimit.ReasonLimit
						}
						if model != want {
							t.Errorf("at %v:\n got %+v\nwant %+v", e.at, model, want)
						}
					}
				}
			})
		}
	}
}

// TestIdle checks that every algorithm starts with its full limit, and has it again after a
// year.
func TestIdle(t *testing.T) {
	start := time.Unix(0, 0)
	r := ratelimit.Rate{Requests: 3, Per: 7 * s}
	for _, a := range algorithms {
		m := a.model(start, r)
		for _, at := range []time.Duration{0, 365 * 24 * time.Hour} {
			fresh := ratelimit.Result{Allowed: true, Limit: 3, Remaining: 3}
			if got := m.Ask(start.Add(at), 0); got != fresh {
				t.Errorf("%s: a look at %v: got %+v, want %+v", a.name, at, got, fresh)
			}
			if got := m.Ask(start.Add(at), 3); !got.Allowed || got.Remaining != 0 {
				t.Errorf("%s: three units at %v: got %+v", a.name, at, got)
			}
		}
	}
}

// TestBounds checks that each bound allows what its formula says, and not one unit or one
// nanosecond more.
func TestBounds(t *testing.T) {
	r := ratelimit.Rate{Requests: 3, Per: 10}
	burst := r.WithBurst(5)
	first := ratelimit.Rate{Requests: 3, Per: 10, Window: "first"}
	day := ratelimit.Rate{Requests: 3, Window: ratelimit.Calendar("day", "Europe/Berlin")}
	dawn := time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC).UnixNano() // the begin of a day of 23 hours in Berlin
	dusk := dawn + int64(23*time.Hour)
	tests := []struct {
		name    string
		bound   ratelimittest.Bound
		rate    ratelimit.Rate
		charges []charge
		holds   bool
		why     string
	}{
		{"token bucket", ratelimittest.TokenBucketBound, burst, []charge{{0, 5, 0}, {10, 3, 0}}, true, "the burst and all that 10 ns earn"},
		{"token bucket", ratelimittest.TokenBucketBound, burst, []charge{{0, 5, 0}, {9, 3, 0}}, false, "9 ns earn 2.7"},
		{"token bucket", ratelimittest.TokenBucketBound, burst, []charge{{0, 1, 0}, {90, 6, 0}}, false, "more than the burst at once"},
		{"leaky bucket", ratelimittest.LeakyBucketBound, burst,
			[]charge{{0, 1, 0}, {0, 1, 4}, {0, 1, 7}, {0, 1, 10}}, true, "3.3 ns apart, rounded up"},
		{"leaky bucket", ratelimittest.LeakyBucketBound, burst,
			[]charge{{0, 1, 0}, {0, 1, 4}, {0, 1, 6}}, false, "the third leaves 6 ns after the first"},
		{"leaky bucket", ratelimittest.LeakyBucketBound, burst, []charge{{0, 5, 0}, {9, 3, 7}}, false, "a token bucket's bound"},
		{"fixed window", ratelimittest.FixedWindowBound, r, []charge{{-1, 3, 0}, {0, 3, 0}, {10, 3, 0}}, true, "aligned to the Unix epoch"},
		{"fixed window", ratelimittest.FixedWindowBound, r, []charge{{0, 3, 0}, {9, 1, 0}}, false, "four in one window"},
		{"calendar", ratelimittest.FixedWindowBound, day, []charge{{dawn - 1, 3, 0}, {dawn, 3, 0}, {dusk, 3, 0}}, true, "three days"},
		{"calendar", ratelimittest.FixedWindowBound, day, []charge{{dawn, 3, 0}, {dusk - 1, 1, 0}}, false, "four in one day"},
		{"first", ratelimittest.FixedWindowBound, first, []charge{{5, 3, 0}, {15, 3, 0}, {28, 3, 0}}, true, "the third begins late"},
		{"first", ratelimittest.FixedWindowBound, first, []charge{{5, 3, 0}, {18, 2, 0}, {27, 2, 0}}, false, "the second ends at 28"},
		{"first", ratelimittest.FixedWindowBound, first, []charge{{5, 2, 0}, {14, 3, 0}, {24, 3, 0}}, true, "the first began before 5"},
		{"first", ratelimittest.FixedWindowBound, first, []charge{{5, 2, 0}, {9, 1, 0}, {14, 3, 0}, {15, 1, 0}}, false,
			"if a window ends before 14, the next one has 14 and 15"},
		{"first", ratelimittest.FixedWindowBound, first, []charge{{5, 3, 0}, {9, 1, 0}, {14, 3, 0}}, false, "no window ends between 5 and 9"},
		{"sliding log", ratelimittest.SlidingWindowLogBound, r, []charge{{5, 3, 0}, {15, 3, 0}}, true, "exactly Per apart"},
		{"sliding log", ratelimittest.SlidingWindowLogBound, r, []charge{{5, 2, 0}, {8, 1, 0}, {14, 1, 0}}, false, "four in 9 ns"},
		{"sliding counter", ratelimittest.SlidingWindowCounterBound, r, []charge{{9, 3, 0}, {18, 2, 0}}, true, "2L - 1"},
		{"sliding counter", ratelimittest.SlidingWindowCounterBound, r, []charge{{9, 3, 0}, {18, 3, 0}}, false, "2L"},
		{"sliding counter", ratelimittest.SlidingWindowCounterBound, r, []charge{{10, 2, 0}, {19, 2, 0}}, false, "four in one aligned window"},
	}
	for _, test := range tests {
		var charges []ratelimittest.Charge
		for _, c := range test.charges {
			charges = append(charges, ratelimittest.Charge{At: time.Unix(0, c.at), N: c.n, Delay: c.delay})
		}
		if err := test.bound(test.rate, charges, 1); (err == nil) != test.holds {
			t.Errorf("%s: %s: %v", test.name, test.why, err)
		}
	}
}

// A charge is a ratelimittest.Charge whose instant is a time since the Unix epoch.
type charge struct {
	at    int64
	n     int
	delay time.Duration
}
