package ratelimittest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// Methods that a store may have in addition to those of ratelimit.Store.
type (
	supporter interface {
		Supports(a ratelimit.Algorithm, r ratelimit.Rate) error
	}
	partitioned interface{ Part(a ratelimit.Ask) int }
	denier      interface {
		Denied(a ratelimit.Ask) (ratelimit.Result, bool)
	}
)

// A storeExtra is a method that a store may have in addition to those of ratelimit.Store.
type storeExtra struct {
	name string // name of the method
	has  func(s ratelimit.Store) bool

	// check returns an error if the method does something wrong. The store must not know the key of
	// the given ask yet.
	check func(k *storeKit, a ratelimit.Ask) error
}

// storeExtras lists the optional methods that TestStore checks. The subtest of a method is skipped if
// the store does not have the method.
var storeExtras = []storeExtra{
	{"Supports", storeHas[supporter], checkSupports},
	{"Accepts", storeHas[settler], checkAccepts},
	{"Settle", storeHas[settler], checkSettle},
	{"Once", storeHas[oncer], checkOnce},
	{"Part", storeHas[partitioned], checkPart},
	{"Denied", storeHas[denier], checkDenied},
}

// storeHas reports whether s has all methods of the interface M.
func storeHas[M any](s ratelimit.Store) bool { _, ok := s.(M); return ok }

// extra checks the method x for every algorithm and rate. skip is the reason why the method cannot
// be checked, or empty.
func (k *storeKit) extra(x storeExtra) (skip string, err error) {
	if !x.has(k.store) {
		return "the store has no " + x.name, nil
	}
	k.clock.Set(k.Starts[0])
	for _, name := range k.Algorithms {
		for _, r := range k.Rates[name] {
			a := ratelimit.Ask{Rule: k.prefix() + "has", Key: "a", Client: "a", Algorithm: name, Rate: r, N: 1}
			if err := x.check(k, a); err != nil {
				return "", fmt.Errorf("%s: %s at %#v: %w", x.name, name, r, err)
			}
		}
	}
	return "", nil
}

func checkSupports(k *storeKit, a ratelimit.Ask) error {
	if k.store.(supporter).Supports("Guess", a.Rate) == nil {
		return fmt.Errorf("it takes an unknown algorithm")
	}
	return nil
}

func checkAccepts(k *storeKit, a ratelimit.Ask) error {
	unknown, tooShort, tooLong := a, a, a
	unknown.Algorithm = "Guess"
	tooShort.Receipt, tooShort.HoldFor = 1, time.Microsecond-1
	tooLong.Receipt, tooLong.HoldFor = 1, 366*24*time.Hour+1
	for _, bad := range []ratelimit.Ask{unknown, tooShort, tooLong} {
		if k.store.(settler).Accepts(bad) == nil {
			return fmt.Errorf("it takes %s", askText(bad))
		}
	}
	return nil
}

// checkSettle checks that Settle refuses invalid calls. Other subtests check what valid calls give
// back.
func checkSettle(k *storeKit, a ratelimit.Ask) error {
	s := k.store.(settler)
	a.Receipt, a.HoldFor = 1, time.Second
	if res, err := k.store.Take(context.Background(), []ratelimit.Ask{a}); err != nil || len(res) != 1 || !res[0].Allowed {
		return fmt.Errorf("the first unit is denied: %v, %w", res, err)
	}
	a.N, a.Charged = 0, 1
	none, below := a, a
	none.Receipt, below.N = 0, -1
	for _, bad := range []ratelimit.Ask{none, below} {
		if s.Settle(context.Background(), []ratelimit.Ask{bad}) == nil {
			return fmt.Errorf("it takes %s", askText(bad))
		}
	}
	if s.Settle(ended, []ratelimit.Ask{a}) == nil {
		return fmt.Errorf("it takes a context that has ended")
	}
	if err := s.Settle(context.Background(), []ratelimit.Ask{a}); err != nil {
		return err
	}
	a.N = 0
	look, err := k.store.Take(context.Background(), []ratelimit.Ask{a})
	if err != nil || len(look) != 1 || look[0].Remaining != look[0].Limit {
		return fmt.Errorf("afterwards a look shows %v, %w", look, err)
	}
	return nil
}

func checkPart(k *storeKit, a ratelimit.Ask) error {
	s, other := k.store.(partitioned), a
	other.Rate.Requests, other.N, other.Shadow, other.Receipt, other.HoldFor = 1, 7, true, 7, time.Second
	if first, second := s.Part(a), s.Part(other); first != second {
		return fmt.Errorf("%d of %s, and %d of %s", first, askText(a), second, askText(other))
	}
	return nil
}

func checkDenied(k *storeKit, a ratelimit.Ask) error {
	s := k.store.(denier)
	if res, denied := s.Denied(a); denied {
		return fmt.Errorf("the first unit of a new state: %+v", res)
	}
	a.N = min(burst(a.Rate), math.MaxInt32)
	if _, err := k.store.Take(context.Background(), []ratelimit.Ask{a}); err != nil {
		return err
	}
	a.N = 1
	taken, err := k.store.Take(context.Background(), []ratelimit.Ask{a})
	if err != nil {
		return err
	}
	if res, denied := s.Denied(a); denied && (res.Allowed || res.RetryAfter <= 0 || taken[0].Allowed) {
		return fmt.Errorf("it returns %+v, and Take %+v", res, taken[0])
	}
	return nil
}
