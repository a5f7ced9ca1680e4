package ratelimittest

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A StoreConfig says what [TestStore] tests. Only New is required.
type StoreConfig struct {
	// New returns a store that has no state and reads clock. It is called
	// once. The clock is set before each call, to earlier instants too. Until
	// the test is over, the store must keep what it was told: a key that is
	// as good as new by the clock, but was charged before, is not a new one
	// to a change of its rate.
	New func(clock ratelimit.Clock) (ratelimit.Store, error)

	// Algorithms are those to test. Nil means all five.
	Algorithms []ratelimit.Algorithm

	// Rates are the rates to test an algorithm at; the store's Supports, if it
	// has one, must accept each. For an algorithm without any there is a mix
	// of small and extreme rates, with and without a burst, less those that
	// Supports refuses.
	Rates map[ratelimit.Algorithm][]ratelimit.Rate

	// Starts are the instants at which a schedule may begin. Nil means a mix
	// that has the Unix epoch, the year 1 and the year 9999.
	Starts []time.Time

	// Span is the furthest that the clock may be from the start of a
	// schedule, at most 146 years. Zero means 100 years.
	Span time.Duration

	// Resolution is what the clock and the Durations in answers are exact
	// to: all instants are multiples of it, and Durations are rounded up to
	// it before they are compared. Zero means 1 ns.
	Resolution time.Duration

	// Schedules is how many random schedules each subtest runs, and Steps how
	// many calls each has. Zero means 200, or 40 with go test -short, and 40.
	Schedules, Steps int

	// Seed makes the schedules: the same seed, the same schedules. Each
	// failure names it.
	Seed uint64
}

// TestStore checks that the store that c.New makes keeps these promises, a
// subtest for each, and shows a short schedule that breaks one that is broken. In
// all of them the whole Result of every ask is compared with that of a [Model],
// so that what should have changed nothing is found by the answers that follow.
//
//   - answers: single asks of several states, for no, few and too many units,
//     get the answers of an algorithm, whichever way the clock steps. A look
//     and a denial change nothing.
//   - all-or-none: of several asks all are charged if each alone would be
//     granted, and else none. Each is answered as if it were alone: what fits
//     among others that do not is allowed, and leaves Remaining unreduced.
//   - shadow: a shadow denies no other, and is charged if it fits and they do.
//   - rate-change: an ask under another rate than that of the state's last
//     change converts the state once, after which it is as if SetRate had been
//     called. The time since that last change counts for a bucket at the slower
//     of the two rates, and for a window by the old Per. An ask for units does
//     so even if it or one beside it is denied; a look is only answered so.
//   - reset: the states of the asks are as new, those never used included.
//   - names: other bytes in Rule or Key, or another Algorithm, are another
//     state, and any bytes will do.
//   - ended-context: the context's error, and nothing charged.
//   - concurrent: units taken by many goroutines at one instant add up to the
//     limit.
//
// The kit asks what the limiters of the package ratelimit ask: no state twice in
// one call, the same state with the same Client, no negative N, and no look that
// could deny beside asks for units. Each schedule has names of its own, so that it
// meets no state of an earlier one.
//
// A Redis or Valkey store has to be told the time by clock, with a Resolution of a
// microsecond, and to let no key expire during the test.
func TestStore(t *testing.T, c StoreConfig) {
	t.Helper()
	k, err := newStoreKit(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range k.flavours() {
		t.Run(f.name, func(t *testing.T) {
			if broken := k.run(f); broken != nil {
				t.Error(broken)
			}
		})
	}
	t.Run("concurrent", func(t *testing.T) {
		if err := k.concurrent(); err != nil {
			t.Error(err)
		}
	})
}

// A storeKit is a StoreConfig with its defaults filled in, and its store.
type storeKit struct {
	StoreConfig
	store  ratelimit.Store
	clock  *ratelimit.FakeClock
	opened int // schedules played so far
}

func newStoreKit(c StoreConfig) (*storeKit, error) {
	k := &storeKit{StoreConfig: c}
	if k.New == nil {
		return nil, errors.New("ratelimittest: StoreConfig.New is nil")
	}
	k.Resolution = max(k.Resolution, 1)
	if k.Span <= 0 {
		k.Span = 100 * 366 * 24 * time.Hour
	}
	k.Span = min(k.Span, math.MaxInt64/2) // so that a Duration holds the time between two instants
	k.Span -= k.Span % k.Resolution
	if k.Schedules == 0 {
		k.Schedules = 200
		if testing.Short() {
			k.Schedules = 40
		}
	}
	if k.Steps == 0 {
		k.Steps = 40
	}
	if k.Starts == nil {
		k.Starts = defaultStarts(k.Resolution)
	}
	k.clock = ratelimit.NewFakeClock(k.Starts[0])
	var err error
	if k.store, err = k.New(k.clock); err != nil {
		return nil, fmt.Errorf("ratelimittest: New fails: %w", err)
	}
	return k, k.setRates()
}

// setRates fills in the algorithms and the rates of each.
func (k *storeKit) setRates() error {
	if k.Algorithms == nil {
		for _, a := range algorithms {
			k.Algorithms = append(k.Algorithms, a.name)
		}
	}
	given := k.Rates
	k.Rates = make(map[ratelimit.Algorithm][]ratelimit.Rate)
	for _, name := range k.Algorithms {
		if algorithmNamed(name) == nil {
			return fmt.Errorf("ratelimittest: there is no algorithm %q", name)
		}
		rates := given[name]
		if rates == nil {
			rates = defaultRates(k.Resolution)
		}
		for _, r := range rates {
			err := k.refuses(name, r)
			if err == nil {
				k.Rates[name] = append(k.Rates[name], r)
			} else if given[name] != nil {
				return fmt.Errorf("ratelimittest: %s refuses %#v: %w", name, r, err)
			}
		}
		if k.Rates[name] == nil {
			return fmt.Errorf("ratelimittest: %s refuses every rate", name)
		}
	}
	return nil
}

// refuses returns why the algorithm or the store refuses r, or nil.
func (k *storeKit) refuses(name ratelimit.Algorithm, r ratelimit.Rate) error {
	if err := algorithmNamed(name).valid(r); err != nil {
		return err
	}
	if s, ok := k.store.(interface {
		Supports(ratelimit.Algorithm, ratelimit.Rate) error
	}); ok {
		return s.Supports(name, r)
	}
	return nil
}
