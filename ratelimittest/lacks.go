package ratelimittest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit"
)

// Methods that a limiter may have in addition to those of ratelimit.Limiter.
type (
	waiter interface {
		Wait(ctx context.Context, key string, n int) (ratelimit.Result, error)
	}
	counter interface{ Len() int }
)

// An extra is a method that a limiter may have in addition to those of ratelimit.Limiter.
type extra struct {
	name   string   // name of the method
	proven []string // the promises that can be checked only if the limiter has the method
	has    func(l ratelimit.Limiter) bool

	// check calls the method of l, a new limiter with the rate r. It returns an error if the method
	// does something wrong.
	check func(k *kit, l ratelimit.Limiter, r ratelimit.Rate) error
}

// has reports whether l has all methods of the interface M.
func has[M any](l ratelimit.Limiter) bool { _, ok := l.(M); return ok }

// extras lists the optional methods that TestLimiter checks. The subtest of a method is skipped if the
// limiter does not have the method.
var extras = []extra{
	{"Peek", nil, has[peeker], checkPeek},
	{"Reset", []string{"reset"}, has[resetter], checkReset},
	{"SetRate", []string{"rate-change", "same-rate"}, has[rateSetter], checkSetRate},
	{"Wait", nil, has[waiter], checkWait},
	{"Len", nil, has[counter], checkLen},
}

// lacking returns the reason why the promise cannot be checked for the limiter, or "" if the
// promise can be checked.
func (k *kit) lacking(promise string) string {
	for _, x := range extras {
		for _, name := range x.proven {
			if name != promise {
				continue
			}
			if l, err := k.New(k.Rates[0], &manualClock{k.Starts[0]}); err == nil && !x.has(l) {
				return "the limiter has no " + x.name
			}
			if k.KeepRate && x.name == "SetRate" {
				return "the Config has KeepRate"
			}
		}
	}
	return ""
}

// extra checks the method x at every rate. skip is the reason why the method cannot be checked, or
// empty.
func (k *kit) extra(x extra) (skip string, err error) {
	for _, r := range k.Rates {
		l, err := k.New(r, &manualClock{k.Starts[0]})
		if err != nil {
			return "", err
		}
		if !x.has(l) {
			return "the limiter has no " + x.name, nil
		}
		if k.KeepRate && x.name == "SetRate" {
			return "the Config has KeepRate", nil
		}
		if err := x.check(k, l, r); err != nil {
			return "", fmt.Errorf("at %#v: %w", r, err)
		}
	}
	return "", nil
}

// look returns the answer of l to a Take of 0 units for the key "a". It shows the state of the key, and
// takes nothing.
func look(l ratelimit.Limiter) ratelimit.Result {
	res, _ := l.Take(context.Background(), "a", 0)
	return res
}

func checkPeek(_ *kit, l ratelimit.Limiter, _ ratelimit.Rate) error {
	if got, want := l.(peeker).Peek("a"), look(l); got != want {
		return fmt.Errorf("Peek returns %+v, and Take of 0 units %+v", got, want)
	}
	return nil
}

func checkReset(_ *kit, l ratelimit.Limiter, _ ratelimit.Rate) error {
	before := look(l).Remaining
	l.Allow("a")
	if err := l.(resetter).Reset("a"); err != nil {
		return fmt.Errorf("Reset: %w", err)
	}
	if got := look(l).Remaining; got != before {
		return fmt.Errorf("%d remain after Allow and Reset, and %d before", got, before)
	}
	return nil
}

func checkSetRate(k *kit, l ratelimit.Limiter, r ratelimit.Rate) error {
	for _, to := range k.Rates {
		other, err := k.New(to, &manualClock{k.Starts[0]})
		if err != nil {
			return err
		}
		want := look(other).Limit
		if to.Per != r.Per || look(l).Limit == want {
			continue
		}
		if err := l.(rateSetter).SetRate(to); err != nil {
			return fmt.Errorf("SetRate(%#v): %w", to, err)
		}
		if got := look(l).Limit; got != want {
			return fmt.Errorf("the Limit is %d after SetRate(%#v), and should be %d", got, to, want)
		}
		return nil
	}
	return nil
}

func checkWait(_ *kit, l ratelimit.Limiter, _ ratelimit.Rate) error {
	before := look(l)
	if _, err := l.(waiter).Wait(context.Background(), "a", -1); !errors.Is(err, ratelimit.ErrInvalidCount) {
		return fmt.Errorf("Wait for -1 units returns the error %w", err)
	}
	if _, err := l.(waiter).Wait(ended, "a", 1); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("Wait with a context that has ended returns the error %w", err)
	}
	if !before.Allowed || before.Delay > 0 {
		return nil
	}
	res, err := l.(waiter).Wait(context.Background(), "a", 1)
	if err != nil || !res.Allowed {
		return fmt.Errorf("Wait for a unit that is there returns %+v and the error %w", res, err)
	}
	if got := look(l); before.Limit >= 0 && got.Remaining != before.Remaining-1 {
		return fmt.Errorf("%d remain after Wait for one unit, and %d before", got.Remaining, before.Remaining)
	}
	return nil
}

func checkLen(_ *kit, l ratelimit.Limiter, _ ratelimit.Rate) error {
	if n := l.(counter).Len(); n != 0 {
		return fmt.Errorf("Len is %d before any request", n)
	}
	if l.Allow("a").Limit < 0 {
		return nil
	}
	if n := l.(counter).Len(); n != 1 {
		return fmt.Errorf("Len is %d after a request for one key", n)
	}
	return nil
}
