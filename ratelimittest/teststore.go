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
	// New returns a store that has no state and reads clock. It is called once. Before each
	// call of the store the clock is set, sometimes to an earlier instant. The store must
	// keep every state until the test is over, even a state that is as good as new by the
	// clock: a change of the rate treats a key that was charged differently from a new one.
	New func(clock ratelimit.Clock) (ratelimit.Store, error)

	// Algorithms are the algorithms to test. Nil means all five.
	Algorithms []ratelimit.Algorithm

	// Rates are the rates to test each algorithm with. If the store has Supports, it must
	// accept each of them. For an algorithm that is not in Rates, the kit uses a mix of
	// small and extreme rates, with and without a burst, and leaves out those that Supports
	// refuses.
	Rates map[ratelimit.Algorithm][]ratelimit.Rate

	// Starts are the instants at which a schedule may begin. If Starts is nil, the kit uses
	// a mix that includes the Unix epoch, the year 1 and the year 9999.
	Starts []time.Time

	// Span is how far the clock may move away from the start of a schedule, at most 146
	// years. Zero means 100 years.
	Span time.Duration

	// Resolution is the precision of the store's clock and of the Durations in its answers.
	// All instants are multiples of it, and Durations are rounded up to it before they are
	// compared. Zero means 1 ns.
	Resolution time.Duration

	// Schedules is the number of random schedules in each subtest, and Steps the number of
	// calls in each schedule. Zero Schedules means 200, or 40 with go test -short. Zero
	// Steps means 40.
	Schedules, Steps int

	// Seed determines the schedules: the same seed makes the same schedules. Each failure
	// reports it.
	Seed uint64
}

// TestStore checks that the store made by c.New keeps the promises below. Each promise has
// a subtest. If a promise is broken, the subtest shows a short schedule of calls that
// breaks it, as Go code. Every subtest compares the whole Result of every ask with that of
// a [Model]. A call that should have changed nothing, but did, is found by the answers
// after it.
//
//   - answers: single asks about several states, for no, few and too many
//     units, get the answers of their algorithm, whether the clock moves
//     forward or back. A look (an ask for 0 units) and a denial change nothing.
//   - all-or-none: several asks in one call are all charged if each would be
//     granted as the only one; otherwise none is charged. Each ask is answered
//     as if it were the only one: an ask that fits, beside another that does
//     not, is allowed and leaves Remaining unreduced.
//   - shadow: a shadow ask never causes the others to be denied. It is charged
//     if it fits and the others are granted.
//   - rate-change: an ask under a rate that differs from the rate of the state
//     converts the state once; after that the state is as if SetRate had been
//     called. The time since the state last changed counts, for a bucket, at
//     the slower of the two rates, and for a window by the old Per. An ask for
//     units converts the state even if it, or another ask of the call, is
//     denied. A look is answered as if it converted the state, but does not.
//   - look: if the store's Accepts accepts asks with Look, every second call of
//     Take is made with Look before, which must answer the same and change nothing.
//   - reset: afterwards the states of the asks are as good as new. It may
//     include states that were never used.
//   - names: asks with different bytes in Rule or Key, or with different
//     Algorithms, have different states. All bytes are permitted.
//   - ended-context: the error is that of the context, and nothing is charged.
//   - settle: if the store has Settle, a charge with a Receipt that is settled
//     within its Term leaves the state as if the N of the settlement had been
//     charged at the time: as a Model says that replays the list of all charges,
//     with that number changed. Only a LeakyBucket keeps its line: who was told
//     a Delay keeps his place. A charge is settled once, and not after a Reset.
//     Units beyond those that were charged are charged at once, also past the
//     limit, and also if there is no such charge any more.
//   - settle-warm-up: the same for states that warm up, if the store accepts asks with
//     a Warmup and a Receipt. All other charges keep what they have cost when they were
//     made. If nothing stays of the first charge of a state, its age counts from the next.
//   - once: if the store has Once, a request that was granted gets the same
//     answer again, less the time since, and is not charged, while its TTL
//     lasts: as a map says, from requests to grants, that a Model is behind. The
//     asks may come in another order. A denial leaves no trace, and a Reset
//     forgets no grant.
//   - warm-up: if the store has Accepts, and accepts a Warmup, a state that warms up
//     gets the answers of [WarmupModel]; its RetryAfter is found by trying every
//     instant. Such a state is another than that of the same names without a Warmup.
//   - has-Supports, has-Accepts, has-Settle, has-Once, has-Part, has-Denied: the
//     method, if the store has it, refuses what it must refuse, or does what the
//     comment of [ratelimit.Store] says, in short. What the store does not have
//     is skipped, and the subtest says so; this also holds for settle, once and
//     warm-up.
//   - concurrent: the units that many goroutines take at one instant add up to
//     the limit.
//
// The kit asks only what the limiters of package ratelimit ask: no state twice in one call,
// a state always with the same Client, no negative N, and no look that could deny in one
// call with asks for units. Each schedule uses states that no earlier schedule has used.
//
// A store on Redis or Valkey must take its time from clock, with a Resolution of a
// microsecond, and must not let keys expire during the test.
func TestStore(t *testing.T, c StoreConfig) {
	t.Helper()
	k, err := newStoreKit(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range k.scheduleKinds() {
		t.Run(f.name, func(t *testing.T) {
			if broken := k.run(f); broken != nil {
				t.Error(broken)
			}
		})
	}
	for _, f := range k.settleKinds() {
		t.Run(f.name, func(t *testing.T) {
			if why := k.unsettled(f.algorithms[0], f.warms); why != "" {
				t.Skip(why)
			}
			if broken := k.run(f); broken != nil {
				t.Error(broken)
			}
		})
	}
	for _, f := range k.onceKinds() {
		t.Run(f.name, func(t *testing.T) {
			if !storeHas[oncer](k.store) {
				t.Skip("the store has no Once")
			}
			if broken := k.run(f); broken != nil {
				t.Error(broken)
			}
		})
	}
	for _, f := range k.warmKinds() {
		t.Run(f.name, func(t *testing.T) {
			if why := k.cold(ratelimit.Ask{Algorithm: f.algorithms[0]}); why != "" {
				t.Skip(why)
			}
			if broken := k.run(f); broken != nil {
				t.Error(broken)
			}
		})
	}
	for _, x := range storeExtras {
		t.Run("has-"+x.name, func(t *testing.T) {
			skip, err := k.extra(x)
			if skip != "" {
				t.Skip(skip)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("concurrent", func(t *testing.T) {
		if err := k.concurrent(); err != nil {
			t.Error(err)
		}
	})
}

// A storeKit is a StoreConfig with its defaults filled in, and the store under test.
type storeKit struct {
	StoreConfig
	store  ratelimit.Store
	clock  *ratelimit.FakeClock
	played int // number of schedules played so far
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
	k.Span = min(k.Span, math.MaxInt64/2) // so that the time between any two instants fits into a Duration
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

// setRates fills in the algorithms, and the rates of each.
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

// unsettled returns why the store is not tested for Settle with the rates of an algorithm, or of
// states that warm up, or "".
func (k *storeKit) unsettled(name ratelimit.Algorithm, warms bool) string {
	s, ok := k.store.(settler)
	if !ok {
		return "the store has no Settle and Accepts"
	}
	if warms {
		return k.cold(ratelimit.Ask{Algorithm: name, Receipt: 1, Term: time.Second})
	}
	for _, r := range k.Rates[name] {
		if err := s.Accepts(ratelimit.Ask{Algorithm: name, Rate: r, Receipt: 1, Term: time.Second}); err != nil {
			return fmt.Sprintf("the store does not accept a receipt at %#v: %v", r, err)
		}
	}
	return ""
}

// refuses returns nil if the algorithm and the store accept r, and otherwise an error that
// says why not.
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
