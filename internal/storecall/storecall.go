// Package storecall calls a store, such as a database that several processes share. A [Caller] makes a call if the
// circuit breakers of the store permit it, and tells them how the call has ended.
package storecall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/backlog"
	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Store decides on asks (questions for units of one key each) of the type A, and answers each with a result of
// the type R. It may also have the methods Part, Once and Settle, which the following interfaces describe.
type Store[A, R any] interface {
	// Take decides on all asks together, and returns a result for each.
	Take(ctx context.Context, asks []A) ([]R, error)

	// Reset makes the store forget the states that the asks name.
	Reset(ctx context.Context, asks []A) error
}

// A partitioner is a Store that has several parts, each with a circuit breaker of its own.
type partitioner[A any] interface {
	Part(a A) int // the number of the part that holds the state of the key in the ask
}

// A replayer is a Store that charges a request only once. T is the type of an attempt at a request. If an earlier
// attempt at the same request was granted, Once returns the results of that earlier attempt, and replayed is true.
type replayer[A, R, T any] interface {
	Once(ctx context.Context, attempt T, asks []A) (results []R, replayed bool, err error)
}

// A settler is a Store that can change what it has charged.
type settler[A any] interface {
	Settle(ctx context.Context, asks []A) error
}

// Terms are what a [Caller] needs to know in order to call a store.
type Terms[A any] struct {
	Now      func() keytable.Instant // reads the clock
	Wrap     func(err error) error   // changes an error of the store, or a refusal of the circuit breakers, into the error that callers get
	NotReset error                   // returned by the store's method Reset if it could not reset a key, although the call succeeded

	// Lasts returns for how long a failed call of Settle with this ask is repeated; 0 if it is not repeated.
	Lasts func(a *A) time.Duration
}

// A Caller calls a store. It is safe for concurrent use by multiple goroutines.
type Caller[A, R, T any] struct {
	Breakers *breaker.Set // the circuit breakers of the store

	store Store[A, R]
	parts partitioner[A]     // the store; nil if it has no parts
	once  replayer[A, R, T]  // the store; nil if it has no method Once
	terms Terms[A]           // stored once, because a new method value, such as clock.Now, allocates memory for each call
	late  backlog.Backlog[A] // asks of failed calls of Settle, which later calls repeat
}

// New returns a Caller for the store.
func New[A, R, T any](store Store[A, R], terms Terms[A]) *Caller[A, R, T] {
	c, parts := &Caller[A, R, T]{store: store, terms: terms}, 1
	if c.parts, _ = store.(partitioner[A]); c.parts != nil {
		parts = breaker.MaxParts
	}
	c.once, _ = store.(replayer[A, R, T])
	c.Breakers = breaker.New(parts, terms.Wrap)
	return c
}

// HasParts reports whether the store has several parts.
func (c *Caller[A, R, T]) HasParts() bool { return c.parts != nil }

// PartsOf returns which parts of the store hold the states of the asks, with one bit set for each part.
func (c *Caller[A, R, T]) PartsOf(asks ...A) (parts uint64) {
	if c.parts == nil {
		return 1
	}
	for i := range asks {
		parts |= breaker.Bit(c.parts.Part(asks[i]))
	}
	return parts
}

// Take calls the method Once of the store for the given attempt. If attempt is nil, it calls the method Take of
// the store instead. The parameter pass is the permission that the circuit breakers have given for this call.
// Take returns an error of the store unchanged.
func (c *Caller[A, R, T]) Take(
	ctx context.Context, pass breaker.Pass, attempt *T, asks []A,
) (results []R, replayed bool, err error) {
	err = c.Breakers.Guard(ctx, pass, c.terms.Now, func() error {
		results, replayed, err = c.take(ctx, attempt, asks)
		return err
	})
	c.sendLate(ctx, err)
	return results, replayed && err == nil, err
}

// Look does what Take does, but only if the circuit breakers of these parts of the store would permit a call at the
// instant now. The breakers do not learn how the call has ended. Look is for a call that changes nothing.
func (c *Caller[A, R, T]) Look(
	ctx context.Context, parts uint64, now keytable.Instant, attempt *T, asks []A,
) (results []R, replayed bool, err error) {
	if err = c.Breakers.Refusal(parts, now); err != nil {
		return nil, false, err
	}
	return c.take(ctx, attempt, asks)
}

// take calls Once or Take, and returns an error if there is not a result for each ask.
func (c *Caller[A, R, T]) take(ctx context.Context, attempt *T, asks []A) (results []R, replayed bool, err error) {
	if attempt != nil {
		results, replayed, err = c.once.Once(ctx, *attempt, asks)
	} else {
		results, err = c.store.Take(ctx, asks)
	}
	if err == nil && len(results) != len(asks) {
		err = fmt.Errorf("%d results for %d asks", len(results), len(asks))
	}
	return results, replayed, err
}

// maxLate is how many asks of failed calls of Settle are sent again after one successful call of the store.
const maxLate = 256

// sendLate is called after a call of the method Take, Once or Settle of the store, with the error of that call. If
// the call succeeded, sendLate repeats failed calls of Settle.
func (c *Caller[A, R, T]) sendLate(ctx context.Context, err error) {
	if err != nil {
		return
	}
	c.late.Send(c.terms.Now, maxLate, func(asks []A) error {
		_, err := c.settle(context.WithoutCancel(ctx), asks)
		return err
	})
}

// Settle calls the method Settle of the store, which must have one. If the circuit breakers refuse the call, sent
// is false. If the call fails, it is repeated after later calls of the store, but only with the asks for which the
// function Lasts in the [Terms] returns more than 0.
func (c *Caller[A, R, T]) Settle(ctx context.Context, asks []A) (sent bool, err error) {
	sent, err = c.settle(ctx, asks)
	for i := 0; i < len(asks) && err != nil; i++ {
		if lasts := c.terms.Lasts(&asks[i]); lasts > 0 {
			c.late.Add(asks[i], c.terms.Now().Add(lasts))
		}
	}
	c.sendLate(ctx, err)
	return sent, err
}

func (c *Caller[A, R, T]) settle(ctx context.Context, asks []A) (sent bool, err error) {
	pass, err := c.Breakers.Admit(c.PartsOf(asks...), c.terms.Now())
	if sent = err == nil; sent {
		err = c.Breakers.Guard(ctx, pass, c.terms.Now, func() error { return c.store.(settler[A]).Settle(ctx, asks) })
	}
	if err != nil {
		err = c.terms.Wrap(err)
	}
	return sent, err
}

// Reset calls the method Reset of the store, even if the circuit breakers refuse calls: bad state may be why earlier
// calls have failed, and a Reset removes such state. An error that matches NotReset in the [Terms] means that a key
// could not be reset, although the call itself has succeeded. Any other error of the store is passed to c.Error, and
// Reset returns the result.
func (c *Caller[A, R, T]) Reset(ctx context.Context, asks []A) (notReset error) {
	pass, _ := c.Breakers.Admit(c.PartsOf(asks...), c.terms.Now()) // if the breakers refuse, pass is empty, and they do not count the call
	err := c.Breakers.Guard(ctx, pass, c.terms.Now, func() error {
		err := c.store.Reset(ctx, asks)
		if errors.Is(err, c.terms.NotReset) {
			notReset, err = err, nil
		}
		return err
	})
	if err == nil {
		return notReset
	}
	return c.Error(ctx, err)
}

// Error returns the error that callers get for err, the error of a call of the store: the error of ctx if ctx has
// ended, and otherwise what Wrap of the [Terms] makes of err.
func (c *Caller[A, R, T]) Error(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.terms.Wrap(err)
}
