package bench

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A StoreAsk is a function that requests one unit for the key from a limiter with its state in a
// server, such as Redis or PostgreSQL. It reports whether the unit is granted. If it returns an
// error, nothing was decided.
type StoreAsk func(ctx context.Context, key string) (allowed bool, err error)

// errDenied means that a call was denied in a workload that allows all calls.
var errDenied = errors.New("denied")

// errAllowed means that a call was allowed in a workload that denies all calls.
var errAllowed = errors.New("allowed")

// granted requests a unit for the key. If the unit is denied, granted returns an error.
func (ask StoreAsk) granted(ctx context.Context, key string) error {
	allowed, err := ask(ctx, key)
	if err == nil && !allowed {
		err = errDenied
	}
	return err
}

// errDegraded means that the limiter decided without its store, for example because the store did
// not answer in time.
var errDegraded = errors.New("bench: decided without the store")

// takeStored returns a function that takes units from a TokenBucket with a store. If the TokenBucket
// decides a call without its store, for example after a timeout, the function returns an error.
func takeStored(limiter *ratelimit.TokenBucket) StoreAsk {
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Take(ctx, key, 1)
		if err == nil && res.Degraded {
			err = errDegraded
		}
		return err == nil && res.Allowed, err
	}
}

// atOnce calls the function f for each number from 0 to n-1, all at the same time. If one of these
// calls returns an error, atOnce returns this error.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() { errs[i] = f(i) })
	}
	done.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// repeat makes the calls of one caller, each with the next key: at least one, and further calls until
// the instant end. It appends the duration of each call to the slice times, and returns it. An error
// of ask ends it.
func repeat(ask func(key string) error, keys *Keys, times []time.Duration, end time.Time) ([]time.Duration, error) {
	for now := time.Now(); ; {
		key := strings.Clone(keys.Next()) // a limiter may keep the string for a while
		err := ask(key)
		then := now
		now = time.Now()
		times = append(times, now.Sub(then))
		if err != nil || !now.Before(end) {
			return times, err
		}
	}
}
