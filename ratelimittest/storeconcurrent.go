package ratelimittest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit"
)

// enough is the largest limit in the test with several goroutines. The test takes all units of a limit, one by one.
const enough = 100

// concurrent lets several goroutines take single units, all at one instant. It tests calls for one key
// and calls for two keys, in either order. It returns an error unless exactly as many units are
// granted as the limit permits.
func (k *storeKit) concurrent() error {
	const rounds = 3
	k.clock.Set(k.Starts[0])
	var asks []ratelimit.Ask
	for _, name := range k.Algorithms {
		if r, ok := k.hammered(name, enough); ok {
			asks = append(asks, ratelimit.Ask{Rule: string(name), Key: "a", Client: "a", Algorithm: name, Rate: r, N: 1})
		}
	}
	for range rounds {
		for i, a := range asks {
			other := asks[(i+1)%len(asks)]
			other.Rule += " too"
			if r, ok := k.hammered(other.Algorithm, burst(a.Rate)-1); ok {
				other.Rate = r // a lower limit, so the units of this second ask run out first
			}
			apart := other
			apart.Key, apart.Client = "b", "b"
			for _, together := range [][]ratelimit.Ask{{a}, {a, other}, {a, apart}} {
				if err := k.hammer(together); err != nil {
					return fmt.Errorf("%d goroutines taking %v at one instant: %w", goroutines, together, err)
				}
			}
		}
	}
	return nil
}

// hammered picks one of the algorithm's rates for the method hammer, which takes all units of a limit. Of the
// rates whose limit is not above the given number, it returns the rate with the largest limit.
func (k *storeKit) hammered(name ratelimit.Algorithm, most int) (best ratelimit.Rate, ok bool) {
	for _, r := range k.Rates[name] {
		if burst(r) <= most && burst(r) > burst(best) {
			best, ok = r, true
		}
	}
	return best, ok
}

// hammer lets several goroutines take single units of new states (new keys of the store), until none are left.
//
// A call for several states may be denied although units are left, because another call has taken
// them for a moment and gives them back. So after all goroutines have ended, one goroutine takes
// what is left.
func (k *storeKit) hammer(asks []ratelimit.Ask) error {
	prefix := k.prefix()
	limit := enough
	for _, a := range asks {
		limit = min(limit, burst(a.Rate))
	}
	var granted atomic.Int64
	take := func(asks []ratelimit.Ask) error {
		a := k.do(storeCall{asks: asks}, prefix)
		if a.err == nil && len(a.results) != len(asks) {
			a.err = fmt.Errorf("%d results for %d asks", len(a.results), len(asks))
		}
		if a.err == nil && allowed(a.results) {
			granted.Add(1)
		}
		return a.err
	}
	turned := asks
	if len(asks) == 2 {
		turned = []ratelimit.Ask{asks[1], asks[0]}
	}
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := 0; i < limit/goroutines+2 && errs[g] == nil; i++ {
				errs[g] = take([][]ratelimit.Ask{asks, turned}[g%2])
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for before := int64(-1); len(asks) == 2 && before != granted.Load() && before <= int64(limit); {
		before = granted.Load()
		if err := take(asks); err != nil {
			return err
		}
	}
	return k.settled(prefix, asks, int(granted.Load()), limit)
}

// settled returns an error unless the number of granted units equals limit, and a look at each
// state shows that Remaining has fallen by the same number.
func (k *storeKit) settled(prefix string, asks []ratelimit.Ask, granted, limit int) error {
	if granted != limit {
		return fmt.Errorf("%d units are granted, the limit is %d", granted, limit)
	}
	for _, a := range asks {
		a.N = 0
		look := k.do(storeCall{asks: []ratelimit.Ask{a}}, prefix)
		if look.err != nil {
			return fmt.Errorf("a look at %v after that: %w", a, look.err)
		}
		if left := burst(a.Rate) - granted; len(look.results) != 1 || look.results[0].Remaining != left {
			return fmt.Errorf("a look at %v after that: %v, but %d must remain by count", a, look.results, left)
		}
	}
	return nil
}

// allowed reports whether all results are allowed.
func allowed(results []ratelimit.Result) bool {
	for _, res := range results {
		if !res.Allowed {
			return false
		}
	}
	return true
}
