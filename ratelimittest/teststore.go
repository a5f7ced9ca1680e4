package ratelimittest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A StoreConfig tells [TestStore] how to make the store that it tests, and how to test it. Only New
// is required.
type StoreConfig struct {
	// New returns a store that has no state and reads the given clock. New is called once. Before
	// each call of the store the clock is set, sometimes to an earlier instant. The store must
	// keep every state until the test is over, even a state whose units are all free again:
	// after a change of the rate, a key that was once charged gets other answers than a new
	// key.
	New func(clock ratelimit.Clock) (ratelimit.Store, error)

	// Algorithms are the algorithms to test. Nil means all five.
	Algorithms []ratelimit.Algorithm

	// Rates are the rates to test each algorithm with. If the store has the method Supports,
	// this method must accept each of them. For an algorithm that is not in Rates, the kit uses
	// a mix of small and extreme rates, with and without a burst, and leaves out those that
	// Supports refuses.
	Rates map[ratelimit.Algorithm][]ratelimit.Rate

	// Starts are the instants at which a schedule (a random list of calls) may begin. If Starts
	// is nil, the kit uses a mix that includes the Unix epoch, the year 1 and the year 9999.
	Starts []time.Time

	// Span is how far the clock may move away from the start of a schedule, at most 146
	// years. Zero means 100 years.
	Span time.Duration

	// Resolution is the precision of the store's clock and of the Durations in its answers.
	// All instants are multiples of it, and Durations are rounded up to it before they are
	// compared. Zero means 1 ns.
	Resolution time.Duration

	// Schedules is the number of random schedules (lists of calls) in each subtest, and Steps
	// the number of calls in each. Zero Schedules means 200, or 40 with go test -short. Zero
	// Steps means 40.
	Schedules, Steps int

	// Seed is where the random numbers start: with the same Seed, a test makes the same calls
	// again. If a random schedule fails, the text of the failure names the Seed.
	Seed uint64
}

// TestStore checks that the store made by c.New keeps the promises below. Each promise has
// a subtest. If a promise is broken, the subtest shows a short schedule of calls that
// breaks it, as Go code. Every subtest compares the whole Result of every ask (a
// [ratelimit.Ask]) with the Result of a [Model]. If a call changes something that it should
// not change, later answers show it.
//
// A state is what the store knows about one Algorithm, Rule and Key.
//
//   - answers: if a call has a single ask, the ask gets the answer of its
//     algorithm. The calls use several states, and ask for no, few and too many
//     units. The clock moves forward and back. A look (an ask for 0 units) and a
//     denial change nothing.
//   - all-or-none: several asks in one call are all charged if each would be
//     granted as the only ask of the call; otherwise none is charged. Each ask is
//     answered as if it were the only one: an ask that fits is allowed even if
//     another ask of the call does not fit. In that case, nothing is charged, and
//     the Remaining of the ask that fits is not reduced.
//   - shadow: a shadow ask never causes the others to be denied. It is charged
//     if it fits and the others are granted.
//   - rate-change: if the rate of an ask differs from the rate of its state,
//     the ask converts the state once, as if SetRate had been called. For the
//     time since the state last changed, a bucket earns units at the slower of
//     the two rates. An algorithm with windows carries over the units that still
//     count by the old Per. An ask for units converts the state even if the ask,
//     or another ask of the call, is denied. There is one exception, for a bucket
//     without a Warmup: if its burst becomes smaller, if its rate becomes slower,
//     or if it is full, it is converted only by a charge. A look is answered as if
//     it converted the state, but does not convert it. The store may forget a
//     bucket as soon as the bucket counts as new, and not earlier. A new bucket is
//     full at any rate. To find out when a bucket counts as new, take the slowest
//     rate at which it was charged since it was new. It counts as new when it would
//     be full if it had earned units at that rate since its last charge.
//   - look: if the store's Accepts accepts asks with Look, the kit makes every
//     second call of Take twice, first with Look. The call with Look must get
//     the same answer and change nothing.
//   - reset: Reset forgets everything about the states of its asks. They may
//     include states that were never used.
//   - names: asks with different bytes in Rule or Key, or with different
//     Algorithms, have different states. All bytes are permitted.
//   - ended-context: the call returns the error of the context, and nothing is
//     charged.
//   - settle: if the store has Settle, and a charge with a Receipt is settled
//     within its HoldFor, the state becomes what it would be if the N of the
//     settlement had been charged in the first place. An [Account] computes this
//     state. In a LeakyBucket, requests that were told a Delay keep this Delay. A
//     charge is settled at most once, and not after a Reset. If N is larger than
//     the first charge, the difference is charged at once, even past the limit,
//     and even if the store no longer knows the charge.
//   - settle-warm-up: the same for states that warm up, if the store accepts asks
//     with a Warmup and a Receipt. All other charges cost what they cost when
//     they were made. If the first charge of a state is given back completely,
//     the age of the state counts from the next charge.
//   - once: if the store has Once, a request that was granted gets the same
//     answer again until its TTL is over, and is not charged again. In the
//     repeated answer, all Durations are shorter by the time since the grant.
//     The asks may come in another order. A denial is not remembered, and a
//     Reset forgets no grant.
//   - warm-up: if the store has Accepts, and accepts a Warmup, a state that warms
//     up gets the answers of [WarmupModel]. An ask with a Warmup and an ask
//     without one have different states.
//   - has-Supports, has-Accepts, has-Settle, has-Once, has-Part, has-Denied: a few
//     calls of the method do what the comment of [ratelimit.Store] says, and
//     refuse what they must. If the store does not have a method, its subtest is
//     skipped. The subtests settle, once and warm-up are then skipped, too, if
//     they need the method.
//   - concurrent: the units that many goroutines take at one instant add up to
//     the limit.
//
// The kit makes only calls that the limiters of package ratelimit make: no call names a
// state twice, a state always has the same Client, and no N is negative. Each schedule uses
// states that no earlier schedule has used.
//
// A store on Redis or Valkey must take its time from the clock that New gets, with a
// Resolution of a microsecond, and must not let keys expire during the test.
func TestStore(t *testing.T, c StoreConfig) {
	t.Helper()
	k, err := newStoreKit(c)
	if err != nil {
		t.Fatal(err)
	}
	tests := slices.Concat(
		k.subtests(k.scheduleKinds(), func(scheduleKind) string { return "" }),
		k.subtests(k.settleKinds(), func(f scheduleKind) string { return k.unsettled(f.algorithms[0], f.warms) }),
		k.subtests(k.onceKinds(), func(scheduleKind) string {
			if storeHas[oncer](k.store) {
				return ""
			}
			return "the store has no Once"
		}),
		k.subtests(k.warmKinds(), func(f scheduleKind) string { return k.cold(ratelimit.Ask{Algorithm: f.algorithms[0]}) }),
	)
	for _, x := range storeExtras {
		tests = append(tests, subtest{"has-" + x.name, func() (string, error) { return k.extra(x) }})
	}
	report(t, append(tests, subtest{"concurrent", func() (string, error) { return "", k.concurrent() }}))
}

// subtests returns a subtest for each of the kinds of schedules. The given function says why the store
// cannot be tested with a kind; it returns "" if the store can be tested with it.
func (k *storeKit) subtests(kinds []scheduleKind, lacks func(scheduleKind) string) (tests []subtest) {
	for _, f := range kinds {
		tests = append(tests, subtest{f.name, func() (skip string, err error) {
			if skip = lacks(f); skip != "" {
				return skip, nil
			}
			if broken := k.run(f); broken != nil {
				err = errors.New(broken.String())
			}
			return "", err
		}})
	}
	return tests
}

// A storeKit is a StoreConfig with its defaults filled in, and the store under test.
type storeKit struct {
	StoreConfig
	store  ratelimit.Store
	clock  *ratelimit.FakeClock
	played int // how many prefixes the method prefix has returned so far; the next prefix is made from this number
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

// setRates fills in the default algorithms, and the default rates of each.
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

// unsettled returns the reason why the kit cannot test Settle with the algorithm, or "" if it can.
// If warms is true, the rules of the test have a Warmup.
func (k *storeKit) unsettled(name ratelimit.Algorithm, warms bool) string {
	s, ok := k.store.(settler)
	if !ok {
		return "the store has no Settle and Accepts"
	}
	if warms {
		return k.cold(ratelimit.Ask{Algorithm: name, Receipt: 1, HoldFor: time.Second})
	}
	for _, r := range k.Rates[name] {
		if err := s.Accepts(ratelimit.Ask{Algorithm: name, Rate: r, Receipt: 1, HoldFor: time.Second}); err != nil {
			return fmt.Sprintf("the store does not accept a receipt at %#v: %v", r, err)
		}
	}
	return ""
}

// refuses returns an error if the algorithm or the store does not accept the rate r.
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
