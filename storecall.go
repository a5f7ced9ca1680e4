package ratelimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit/internal/backlog"
	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// A storeCaller calls the store if its circuit breakers allow it, and tells them how each call has ended.
type storeCaller struct {
	settings *settings // the limiter's settings
	store    Store
	time     *engine.Timeline // the limiter's timeline, which the breakers use too
	now      func() instant   // the method Now of the field time; stored once, because a method value allocates memory each time
	breakers *breaker.Set
	ends     backlog.Backlog[Ask] // failed calls of Settle that should have ended requests in flight; sendEnds repeats them

	// The optional methods of the store; nil if it lacks them.
	supports    func(a Ask) error
	partitioned StorePartitioner
	denier      StoreDenier   // nil if there is an observer, which must see each denial
	once        StoreReplayer // nil without WithRequestIDs
}

// newStoreCaller returns a storeCaller for the store of set, or nil if set has none.
func newStoreCaller(set *settings, t *engine.Timeline) *storeCaller {
	st := set.store
	if st == nil {
		return nil
	}
	c, parts := &storeCaller{settings: set, store: st, time: t, now: t.Now, supports: supportsOf(st)}, 1
	if partitioned, ok := st.(StorePartitioner); ok {
		c.partitioned, parts = partitioned, breaker.MaxParts
	}
	if set.observer == nil {
		c.denier, _ = st.(StoreDenier)
	}
	c.breakers = breaker.New(parts, storeError)
	return c
}

// partsOf returns which parts of the store hold the states of the asks, with one bit set for each part.
func (c *storeCaller) partsOf(asks []Ask) (parts uint64) {
	if c.partitioned == nil {
		return 1
	}
	for i := range asks {
		parts |= breaker.Bit(c.partitioned.Part(asks[i]))
	}
	return parts
}

// take calls the method Once of the store for the attempt once or, if that is nil, the method Take. pass is the
// permission of the circuit breakers for this call.
func (c *storeCaller) take(
	ctx context.Context, pass breaker.Pass, once *Attempt, asks []Ask,
) (results []Result, replayed bool, err error) {
	err = c.breakers.Guard(ctx, pass, c.now, func() error {
		if once != nil {
			results, replayed, err = c.once.Once(ctx, *once, asks)
		} else {
			results, err = c.store.Take(ctx, asks)
		}
		return complete(results, asks, err)
	})
	c.sendEnds(ctx, err)
	return results, replayed && err == nil, err
}

// attemptOf returns the Attempt with which Once is called for req.
func (c *storeCaller) attemptOf(req *Request, look bool) *Attempt {
	return &Attempt{Client: req.Client, ID: req.ID, TTL: c.settings.requestIDs, Look: look}
}

// complete returns err, the error of a call of the store, or a new error if err is nil but results are missing.
func complete(results []Result, asks []Ask, err error) error {
	if err == nil && len(results) != len(asks) {
		err = fmt.Errorf("%d results for %d asks", len(results), len(asks))
	}
	return err
}

// maxEnds is how many of the asks in the field ends are sent again after one successful call of the store.
const maxEnds = 256

// sendEnds repeats failed calls of Settle (the field ends) if another call of the store has just succeeded: err is nil.
func (c *storeCaller) sendEnds(ctx context.Context, err error) {
	if err != nil {
		return
	}
	c.ends.Send(c.now, maxEnds, func(asks []Ask) error {
		_, err := c.callSettle(context.WithoutCancel(ctx), asks)
		return err
	})
}

// settle calls the method Settle of the store. If the circuit breakers refuse the call, sent is false. If the call
// should end requests in flight but fails, later calls repeat it until the Per of the rate has passed.
func (c *storeCaller) settle(ctx context.Context, asks []Ask) (sent bool, err error) {
	sent, err = c.callSettle(ctx, asks)
	for i := range asks {
		if a := &asks[i]; err != nil && a.Algorithm == AlgorithmInFlight && a.N == 0 {
			c.ends.Add(*a, c.now().Add(a.Rate.Per))
		}
	}
	c.sendEnds(ctx, err)
	return sent, err
}

func (c *storeCaller) callSettle(ctx context.Context, asks []Ask) (sent bool, err error) {
	pass, err := c.breakers.Admit(c.partsOf(asks), c.time.Now())
	if sent = err == nil; sent {
		err = c.breakers.Guard(ctx, pass, c.now, func() error { return c.store.(StoreSettler).Settle(ctx, asks) })
	}
	if err != nil {
		err = storeError(err)
	}
	return sent, err
}

// reset calls the method Reset of the store, even if the circuit breakers refuse calls: bad state may be the cause of
// their failures, and a Reset removes it. The error is the error of ctx, or matches ErrStore or ErrNotReset.
// ErrNotReset means that a key could not be reset, although the call itself succeeded.
func (c *storeCaller) reset(ctx context.Context, asks []Ask) (notReset error) {
	pass, _ := c.breakers.Admit(c.partsOf(asks), c.time.Now()) // if refused, pass has no parts, and the call is not counted
	err := c.breakers.Guard(ctx, pass, c.now, func() error {
		err := c.store.Reset(ctx, asks)
		if errors.Is(err, ErrNotReset) {
			notReset, err = err, nil
		}
		return err
	})
	if err == nil {
		return notReset
	}
	return callError(ctx, err)
}

// callError returns the error of ctx if ctx has ended; otherwise err, the error of a call of the store, so that it matches
// ErrStore.
func callError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return storeError(err)
}
