package ratelimittest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit"
)

// goroutines is the number of goroutines that call the limiter or the store at the same time.
const goroutines = 8

// The method concurrent lets several goroutines take single units, all at one instant. Before that, a Take
// of 0 units tells how many units remain. The method returns an error unless exactly this number of
// units is granted.
func (k *kit) concurrent() error {
	const enough = 1000
	for _, r := range k.Rates {
		clock := ratelimit.NewFakeClock(k.Starts[0])
		l, err := k.New(r, clock)
		if err != nil {
			return fmt.Errorf("ratelimittest: New fails the second time: %w", err)
		}
		clock.Advance(k.Resolution)
		look, err := l.Take(context.Background(), keys[0], 0)
		if err != nil {
			return fmt.Errorf("a look at %#v: %w", r, err)
		}
		if look.Remaining < 0 || look.Remaining > enough {
			continue
		}
		var granted atomic.Int64
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range look.Remaining/goroutines + 2 {
					if l.Allow(keys[0]).Allowed {
						granted.Add(1)
					}
				}
			})
		}
		all.Wait()
		if got := int(granted.Load()); got != look.Remaining {
			return fmt.Errorf("%#v: %d goroutines got %d units at one instant where %d remained", r, goroutines, got, look.Remaining)
		}
	}
	return nil
}
