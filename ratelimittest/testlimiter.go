package ratelimittest

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Config says what [TestLimiter] tests, and against what. Only New is
// required.
type Config struct {
	// New returns a limiter at the rate r that reads clock and shares no
	// state with any other. It is called several times for each schedule.
	New func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error)

	// Model returns what each answer for one key must equal: a [Model] as of
	// start, when the limiter was made. Nil checks only what holds for every
	// limiter.
	Model func(start time.Time, r ratelimit.Rate) Model

	// Bound says how much may be granted. Nil checks no bound.
	Bound Bound

	// Rates are the rates to test at; New must accept each. Nil means a mix
	// of small and extreme rates, with and without a burst, less those that
	// New refuses.
	Rates []ratelimit.Rate

	// Starts are the instants at which a limiter may be made. Nil means a
	// mix that has the Unix epoch, the year 1 and the year 9999.
	Starts []time.Time

	// Span is the furthest that the clock may be from its start. Zero means
	// as far as a Duration reaches, 292 years.
	Span time.Duration

	// Resolution is what the limiter's clock and the Durations in its
	// answers are exact to: all instants are multiples of it, and Durations
	// are rounded up to it before they are compared. Zero means 1 ns.
	Resolution time.Duration

	// KeepRate leaves the limiter's SetRate alone, where it has one.
	KeepRate bool

	// Schedules is how many random schedules to run, and Steps how many
	// calls each has. Zero means 2000, or 200 with go test -short, and 60.
	Schedules, Steps int

	// Seed makes the schedules: the same seed, the same schedules. Each
	// failure names it.
	Seed uint64
}

// TestLimiter checks that the limiters that c.New makes keep these promises, a
// subtest for each, and shows a short schedule that breaks one that is broken:
//
//   - well-formed: Allowed if and only if RetryAfter is 0, Remaining in
//     [0, Limit], no Delay for what is denied, no error, no panic.
//   - look-agrees: n units are granted if and only if a look at the same
//     instant finds n remaining.
//   - exact-use: what is granted leaves Remaining lower by just that.
//   - look-is-free, denial-is-free: later answers are as if it had not been.
//   - negative-count, ended-context: the error that [ratelimit.Limiter]
//     promises, the zero Result, nothing taken.
//   - monotone: left alone, a key never has less remaining later.
//   - retry-after: a lone client that waits just that long is granted, and one
//     Resolution less is denied.
//   - reset-after: a key left alone for that long has its Limit remaining.
//   - never: more than the Limit is denied with [ratelimit.Never].
//   - clock: a clock that steps back is read as standing still at the key's
//     last granted ask.
//   - keys: what other keys ask changes no answer.
//   - split: what is granted at once is granted as single units too, with the
//     same state after.
//   - shortcuts: Allow, and Peek if it has one, answer as Take does for one
//     unit and for none.
//   - reset: after Reset(key string) error, if it has one, the key is as new.
//   - rate-change: SetRate(ratelimit.Rate) error, if it has one, leaves nobody
//     more than what remained or the new limit less what was used, and refuses
//     what is invalid.
//   - same-rate: changing to the same rate changes nothing.
//   - bound: c.Bound holds.
//   - model: the whole Result is that of c.Model.
//   - concurrent: units taken by many goroutines at one instant add up to what
//     remained.
//
// A limiter without a limit has Limit and Remaining -1, and grants everything.
func TestLimiter(t *testing.T, c Config) {
	t.Helper()
	k, err := newKit(c)
	if err != nil {
		t.Fatal(err)
	}
	broken := k.run()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			if p.name == "model" && c.Model == nil || p.name == "bound" && c.Bound == nil {
				t.Skip("the Config has none")
			}
			if f, ok := broken[p.name]; ok {
				t.Error(f)
			}
		})
	}
	t.Run("concurrent", func(t *testing.T) {
		if err := k.concurrent(); err != nil {
			t.Error(err)
		}
	})
}

// A kit is a Config with its defaults filled in.
type kit struct {
	Config
	thorough bool // check all the answers of a schedule, not a sample
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

// defaultRates are mostly small, so that asks meet at the instants at which
// something changes.
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
