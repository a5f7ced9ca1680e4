package dbstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A verb says what a call does.
type verb uint8

const (
	takes verb = iota
	onces
	settles
	resets
	pardons
)

// A call is a call of a method of the Store, such as Take, that needs the database.
type call struct {
	what verb
	asks []ratelimit.Ask
	once ratelimit.Attempt
	keys []string // the key of the row of each ask; for Once, also the key of the row with the record of the request

	deadline time.Time // when the caller stops waiting, by the clock of the machine
	number   uint64    // the number of the transaction that the call is part of; 0 if there was none yet; guarded by line.mu

	// The next three fields are the answer, which the last attempt has decided. The caller reads them after the channel done is
	// closed.
	results  []ratelimit.Result
	replayed bool
	err      error

	done chan struct{}

	mu    sync.Mutex
	ended bool          // whether done is closed; guarded by mu
	left  bool          // whether the caller no longer waits for the answer; guarded by mu
	later []func(error) // functions to call when the call has ended; guarded by mu
}

// gone reports whether the caller of c no longer waits for the answer.
func (c *call) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// end ends the call: it tells the caller that the answer in c is final, and calls the functions in c.later. Only the first call of
// end has an effect.
func (c *call) end() {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	later := c.later
	c.later = nil
	close(c.done)
	c.mu.Unlock()
	for _, f := range later {
		f(c.err)
	}
}

// fail ends the call with an error.
func (c *call) fail(err error) {
	c.results, c.replayed, c.err = nil, false, err
	c.end()
}

// whenEnded calls the function f once. When the call c ends, f gets the error of c, or nil. If the time limit of c is over before
// that, f gets a timeout error. If c was never made, f gets ctxErr, which is the error of the caller's context.
func (c *call) whenEnded(ctxErr error, f func(error)) {
	var once sync.Once
	tell := func(err error) {
		if errors.Is(err, errNotMade) {
			err = ctxErr
		}
		once.Do(func() { f(err) })
	}
	c.mu.Lock()
	if !c.ended {
		c.later = append(c.later, tell)
		c.mu.Unlock()
		time.AfterFunc(time.Until(c.deadline), func() { tell(&Error{Err: errTimeout, class: classTimeout}) })
		return
	}
	c.mu.Unlock()
	tell(c.err)
}

// wait waits until the call c has ended, and returns the error of c, or nil. If ctx ends or the deadline of c passes before that,
// wait returns at once, with an error that says so.
func (s *Store) wait(ctx context.Context, c *call) error {
	timer := time.NewTimer(time.Until(c.deadline))
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	case <-timer.C:
	}
	c.mu.Lock()
	ended := c.ended
	c.left = true
	c.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return &leftError{ctx.Err(), c}
	case ended:
		return c.err
	}
	return s.line.late(c)
}
