package ratelimittest

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Config tells [TestLimiter] how to make the limiters that it tests, and what to compare
// them with. Only New is required.
type Config struct {
	// New returns a limiter with the rate r. The limiter reads the given clock and shares no
	// state with any other limiter. New is called several times for each random list of calls.
	New func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error)

	// Model returns the model of one key, for a limiter that was made at the instant start.
	// Each answer of the limiter must equal the answer of the model. If Model is nil,
	// TestLimiter checks only what holds for every limiter.
	Model func(start time.Time, r ratelimit.Rate) Model

	// Bound checks that no more is granted than the algorithm allows. If it is nil, no bound
	// is checked.
	Bound Bound

	// Rates are the rates to test with; New must accept each of them. If Rates is nil, the
	// kit uses a mix of small and extreme rates, with and without a burst, and leaves out
	// those that New refuses.
	Rates []ratelimit.Rate

	// Starts are the instants at which a limiter may be made. If Starts is nil, the kit
	// uses a mix that includes the Unix epoch, the year 1 and the year 9999.
	Starts []time.Time

	// Span is how far the clock may move away from its start. Zero means the longest
	// Duration, 292 years.
	Span time.Duration

	// Resolution is the precision of the limiter's clock and of the Durations in its
	// answers. All instants are multiples of it, and Durations are rounded up to it before
	// they are compared. Zero means 1 ns.
	Resolution time.Duration

	// KeepRate set to true stops the kit from calling the limiter's SetRate, if it has one.
	KeepRate bool

	// Schedules is the number of random schedules (lists of calls), and Steps the number of
	// calls in each. Zero Schedules means 2000, or 200 with go test -short. Zero Steps means 60.
	Schedules, Steps int

	// Seed is where the random numbers start: with the same Seed, a test makes the same calls
	// again. If a random schedule fails, the text of the failure names the Seed.
	Seed uint64
}

// TestLimiter checks that the limiters made by c.New keep the promises below. Each promise
// has a subtest. If a promise is broken, the subtest shows a short schedule of calls that
// breaks it, as Go code.
//
//   - well-formed: Allowed is true if and only if RetryAfter is 0, Remaining is in
//     [0, Limit], a denial has no Delay, and a decision neither fails nor panics.
//   - look-agrees: n units are granted if and only if a look at the same
//     instant finds at least n remaining. (A look is a Take of 0 units.)
//   - exact-use: granting n units lowers Remaining by exactly n.
//   - look-is-free, denial-is-free: later answers are the same as without
//     the look, or without the denied request.
//   - negative-count, ended-context: Take returns the error that
//     [ratelimit.Limiter] promises and the zero Result, and takes nothing.
//   - monotone: while nothing is granted for a key, its Remaining does not
//     fall as time passes.
//   - retry-after: a client that waits RetryAfter is granted if no other
//     request came first; one Resolution earlier it is denied.
//   - reset-after: a key that gets no requests for ResetAfter has its Limit
//     remaining.
//   - never: a request for more than Limit is denied with [ratelimit.Never].
//   - clock: a clock that has stepped back behind the key's last granted
//     request counts as standing still at the instant of that request. RetryAfter
//     and ResetAfter include the time until the clock reaches that instant again.
//   - keys: requests for one key change no answer for another key.
//   - split: units that are granted at once would also be granted one by one,
//     with the same state afterwards.
//   - shortcuts: Allow answers as Take of one unit does. Peek, if the limiter
//     has it, answers as Take of 0 units does.
//   - reset: if the limiter has a method Reset(key string) error, the whole Limit
//     of a key remains after a call of it.
//   - rate-change: if the limiter has a method SetRate(ratelimit.Rate) error, the
//     units that a key has remaining after a call of it are at most the larger of
//     two numbers: the units that the key had before, and the new limit minus the
//     used units. This is not checked if the new rate has a shorter Per. SetRate
//     refuses an invalid rate.
//   - same-rate: setting the rate that is in force changes nothing.
//   - bound: c.Bound holds.
//   - model: the whole Result equals the Result of c.Model.
//   - has-Peek, has-Reset, has-SetRate, has-Wait, has-Len: a few calls of the
//     method do what the same method of [ratelimit.TokenBucket] does. If the
//     limiter does not have the method, the subtest is skipped.
//   - concurrent: the units that many goroutines take at one instant add up to
//     the units that remained before.
//
// A limiter that has no limit must answer with Limit and Remaining -1, and grant
// everything.
func TestLimiter(t *testing.T, c Config) {
	t.Helper()
	k, err := newKit(c)
	if err != nil {
		t.Fatal(err)
	}
	broken := k.run()
	var tests []subtest
	for _, p := range promises {
		tests = append(tests, subtest{p.name, func() (skip string, err error) {
			if p.name == "model" && c.Model == nil || p.name == "bound" && c.Bound == nil {
				return "the Config has none", nil
			}
			if f, ok := broken[p.name]; ok {
				err = errors.New(f.String())
			}
			return k.lacking(p.name), err
		}})
	}
	for _, x := range extras {
		tests = append(tests, subtest{"has-" + x.name, func() (string, error) { return k.extra(x) }})
	}
	report(t, append(tests, subtest{"concurrent", func() (string, error) { return "", k.concurrent() }}))
}

// A subtest is a check that TestLimiter or TestStore runs under a name of its own.
type subtest struct {
	name string
	run  func() (skip string, err error) // returns the reason to skip the subtest, or the error with which it fails
}

// report runs each of the subtests, and reports whether it passes, fails or is skipped.
func report(t *testing.T, tests []subtest) {
	t.Helper()
	for _, s := range tests {
		t.Run(s.name, func(t *testing.T) {
			skip, err := s.run()
			if skip != "" {
				t.Skip(skip)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A kit is a Config with its defaults filled in. Its methods make the checks of TestLimiter.
type kit struct {
	Config
	thorough bool // whether the method named "sample" checks all calls of a list, and not only a few of them
}

func newKit(c Config) (*kit, error) {
	k := &kit{Config: c}
	if k.New == nil {
		return nil, errors.New("ratelimittest: Config.New is nil")
	}
	k.Resolution = max(k.Resolution, 1)
	if k.Span <= 0 {
		k.Span = math.MaxInt64
	}
	k.Span -= k.Span % k.Resolution
	if k.Schedules == 0 {
		k.Schedules = 2000
		if testing.Short() {
			k.Schedules = 200
		}
	}
	if k.Steps == 0 {
		k.Steps = 60
	}
	if k.Starts == nil {
		k.Starts = defaultStarts(k.Resolution)
	}
	rates := k.Rates
	if rates == nil {
		rates = defaultRates(k.Resolution)
	}
	k.Rates = nil
	for _, r := range rates {
		_, err := k.New(r, &manualClock{k.Starts[0]})
		if err == nil {
			k.Rates = append(k.Rates, r)
		} else if c.Rates != nil {
			return nil, fmt.Errorf("ratelimittest: New refuses %#v: %w", r, err)
		}
	}
	if len(k.Rates) == 0 {
		return nil, errors.New("ratelimittest: New refuses every rate")
	}
	return k, nil
}

// defaultRates returns rates for a clock whose resolution is the given duration. Most of the rates are
// small, so that requests often fall on the instants at which the answers change.
func defaultRates(unit time.Duration) []ratelimit.Rate {
	const year = 366 * 24 * time.Hour
	return []ratelimit.Rate{
		{Requests: 1, Per: unit},
		{Requests: 1, Per: 10 * unit},
		{Requests: 3, Per: 10 * unit},
		{Requests: 10, Per: 3 * unit},
		{Requests: 4, Per: 8 * unit},
		{Requests: 2, Per: 7 * unit},
		{Requests: 6, Per: 100 * unit},
		{Requests: 1, Per: 10 * unit, Burst: 3},
		{Requests: 3, Per: 10 * unit, Burst: 7},
		{Requests: 10, Per: 3 * unit, Burst: 2},
		{Requests: 5, Per: 10 * time.Second},
		{Requests: 100, Per: time.Minute},
		{Requests: 123457, Per: 24 * time.Hour},
		{Requests: 7e8, Per: time.Second},
		{Requests: math.MaxInt32, Per: year},
		{Requests: 5, Per: 10 * time.Second, Burst: 1},
		{Requests: 1, Per: year, Burst: 1000},
		{Requests: math.MaxInt32, Per: unit, Burst: math.MaxInt32},
		{Requests: 1, Per: year, Burst: math.MaxInt32},
	}
}

func defaultStarts(unit time.Duration) []time.Time {
	starts := []time.Time{
		time.Date(2026, 3, 1, 12, 34, 56, 789012345, time.UTC),
		time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(0, 0),
		time.Unix(-1, 7),
		{},
		time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
	}
	for i := range starts {
		starts[i] = starts[i].UTC().Truncate(unit)
	}
	return starts
}
