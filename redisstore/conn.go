package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A conn makes calls to the server, each of which ends by a deadline. Whatever is
// to be put between decisions and the client goes here.
type conn struct {
	client  processor
	timeout time.Duration
	reload  func(context.Context) // of the state of a cluster, or nil

	calls    chan struct{} // has one for each call that is under way
	reloaded atomic.Int64  // when reload was last called, in Unix milliseconds
}

const (
	// maxCalls is how many calls may be under way, those included that nobody
	// waits for any more: a client may not keep to a deadline.
	maxCalls = 1024

	// maxTries is how often a call is made that is sure not to have run.
	maxTries = 5

	// reloadEvery is how long a state of a cluster is trusted, in milliseconds.
	reloadEvery = 100
)

func newConn(client redis.UniversalClient, timeout time.Duration) *conn {
	c := &conn{client: client, timeout: timeout, calls: make(chan struct{}, maxCalls)}
	switch client := client.(type) {
	case *redis.Client:
		c.client = client.WithTimeout(timeout) // so that it gives up as soon as nobody waits
	case *redis.ClusterClient:
		c.reload = client.ReloadState
	}
	return c
}

// run runs s and returns its reply.
func (c *conn) run(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	return c.bounded(ctx, func(ctx context.Context) (any, error) {
		return s.run(ctx, c.client, keys, args)
	})
}

// del deletes keys.
func (c *conn) del(ctx context.Context, keys []string) error {
	args := []any{"del"}
	for _, k := range keys {
		args = append(args, k)
	}
	_, err := c.bounded(ctx, func(ctx context.Context) (any, error) {
		return nil, c.client.Process(ctx, once{redis.NewCmd(ctx, args...)})
	})
	return err
}

// An outcome is how a call has ended.
type outcome struct {
	reply any
	err   error
}

// bounded makes a call, again where it has not run, and waits for it until the
// deadline. A call that has not ended by then goes on until the client gives up.
func (c *conn) bounded(parent context.Context, call func(context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithTimeout(parent, c.timeout)
	defer cancel()
	var o outcome
	select {
	case c.calls <- struct{}{}:
		done := make(chan outcome, 1)
		go func() {
			defer func() { <-c.calls }()
			done <- c.tries(ctx, call)
		}()
		select {
		case o = <-done:
		case <-ctx.Done():
			select {
			case o = <-done: // just in time
			default:
				o.err = fmt.Errorf("%w after %v", ctx.Err(), c.timeout)
			}
		}
	case <-ctx.Done():
		o.err = &Error{ClassBusy, fmt.Errorf("%d calls are under way", maxCalls)}
	}
	if o.err == nil {
		return o.reply, nil
	}
	if parent.Err() != nil {
		return nil, parent.Err()
	}
	failed := failure(o.err)
	c.refresh(parent, failed.Class)
	return nil, failed
}

// tries makes a call until it has run or ctx is over. A panic is an error.
func (c *conn) tries(ctx context.Context, call func(context.Context) (any, error)) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o.err = &Error{ClassOther, fmt.Errorf("panic: %v", p)}
		}
	}()
	for try := 1; ; try++ {
		o.reply, o.err = call(ctx)
		if o.err == nil || try == maxTries {
			return o
		}
		class := classOf(o.err)
		if !class.transient() {
			return o
		}
		c.refresh(ctx, class)
		pause := time.NewTimer(time.Millisecond << try)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return o
		}
	}
}

// refresh has a client of a cluster ask who serves what, if it may be wrong about
// that: else it would find out after a minute.
func (c *conn) refresh(ctx context.Context, class Class) {
	if c.reload == nil {
		return
	}
	switch class {
	case ClassTimeout, ClassConnection, ClassDial, ClassReadOnly, ClassClusterDown:
		now, last := time.Now().UnixMilli(), c.reloaded.Load()
		if now-last >= reloadEvery && c.reloaded.CompareAndSwap(last, now) {
			c.reload(ctx)
		}
	}
}
