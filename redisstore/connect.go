package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
)

// causeHolds is how long after a connection could not be made the reason is given for calls that
// were not sent.
const causeHolds = time.Second

// A cause is why no connection could be made.
type cause struct {
	err error
	at  time.Time
}

// ready reports whether the client has a connection that was set up. If it has not, setting one
// up takes a step for each of several commands, so that it may take much longer than a call.
func (s *sender) ready() bool { return s.warm.Load() && s.pool.PoolStats().IdleConns > 0 }

// makeCalls makes the calls of p. If the client has no connection for them, it may take longer
// than the callers wait: then the calls ask for nothing any more, but the connection is made, and
// serves the next call.
func (s *sender) makeCalls(p *pipeline) {
	by := sending{s.conn.context(), s.client, func() { s.write(p) }}
	if s.pool != nil {
		by.ctx = s.conn.connectContext()
		if !s.ready() {
			search := time.AfterFunc(s.conn.set.timeout/4, func() { s.findCause(p) })
			defer search.Stop()
		}
	}
	s.conn.send(by, p.calls)
	s.learn(p.calls[0].err)
}

// learn records what err, the error of a call or nil, says of the connections of the client.
func (s *sender) learn(err error) {
	var reply redis.Error
	answered := err == nil || errors.As(err, &reply)
	if s.warm.Load() != answered {
		s.warm.Store(answered)
	}
	switch {
	case answered:
		if s.cause.Load() != nil {
			s.cause.Store(nil)
		}
	case classOf(err) == ClassDial:
		s.cause.Store(&cause{err, time.Now()})
	}
}

// findCause finds out why p has no connection yet. The client repeats an attempt that fails, and
// says why only when it gives up, which is too late; so findCause makes one attempt itself.
func (s *sender) findCause(p *pipeline) {
	if p.written.Load() || s.pool.PoolStats().TotalConns > 0 || !s.searching.CompareAndSwap(false, true) {
		return // it has one, or waits for the setting up of one, or for one that is in use
	}
	defer s.searching.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), s.conn.set.timeout/2)
	defer cancel()
	if err := tryDial(ctx, s.pool); err != nil {
		s.cause.Store(&cause{err, time.Now()})
	}
}

// tryDial makes one attempt to connect to the server of client.
func tryDial(ctx context.Context, client *redis.Client) (err error) {
	defer func() {
		if p := recover(); p != nil { // the dialer may be the user's
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	opt := client.Options()
	conn, err := opt.Dialer(ctx, opt.Network, opt.Addr)
	if err == nil {
		err = conn.Close()
	}
	return err
}

// Ping returns nil if the server can be reached, and runs the scripts of the store. A program may
// call it when it starts, to find out at once that an address, a password or an access list is
// wrong. It charges nothing and writes nothing.
//
// In a Cluster, Ping asks every master. The time limits are those of ctx and of the client, not
// that of [WithTimeout]. The error is an [*Error] that matches [ratelimit.ErrStore].
func (s *Store) Ping(ctx context.Context) error {
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return err
	}
	switch client := s.conn.client.(type) {
	case *redis.Client:
		err = s.pingOne(ctx, client)
	case *redis.ClusterClient:
		if err = client.ForEachMaster(ctx, s.pingOne); err == nil {
			err = s.pingScripts(ctx, client)
		}
	default:
		err = s.pingScripts(ctx, client)
	}
	if err != nil {
		return newError(classOf(err), err)
	}
	return nil
}

// pingOne asks the server of client, whether it can run scripts unless it is one of a Cluster.
func (s *Store) pingOne(ctx context.Context, client *redis.Client) error {
	if err := tryDial(ctx, client); err != nil {
		return err // the client would repeat the attempt, perhaps until ctx ends
	}
	opt := client.Options()
	client = client.WithTimeout(max(opt.DialTimeout, opt.ReadTimeout, s.timeout))
	client.Options().ContextTimeoutEnabled = true // of this copy only
	if s.conn.cluster != nil {
		return client.Ping(ctx).Err()
	}
	return s.pingScripts(ctx, client)
}

// pingScripts makes client run a script that looks at a key.
func (s *Store) pingScripts(ctx context.Context, client processor) error {
	u, err := s.item(&ratelimit.Ask{Rule: "ping", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerSecond(1)})
	if err != nil {
		return err
	}
	c := &call{script: oneScripts[u.kind], keys: []string{u.key.text}, args: oneArgs(nil, s.env(), &u, []int64{0}, 0, 0)}
	for _, whole := range []bool{false, true} { // the first shows that EVALSHA is permitted
		cmd := c.command(ctx, s.env(), whole, func() {})
		if err = client.Process(ctx, cmd); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
	}
	return err
}

// poolUsedUp reports whether all connections that the client may have are in use.
func (s *sender) poolUsedUp() bool {
	if s.pool == nil {
		return false
	}
	stats := s.pool.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= s.pool.Options().PoolSize
}

// unsent returns the error for a call that was not sent within the timeout. If slow is true, the
// reason is that the server has not answered earlier calls.
func (s *sender) unsent(slow bool) *Error {
	class, err := ClassTimeout, errors.New("no connection is ready yet")
	c := s.cause.Load()
	switch {
	case c != nil && time.Since(c.at) < causeHolds:
		class, err = classOf(c.err), c.err
	case s.poolUsedUp():
		class, err = ClassPool, errors.New("all connections of the client are in use")
	case slow:
		class, err = ClassBusy, errors.New("the server is slow to answer others")
	}
	failed := newError(class, fmt.Errorf("not sent within %v: %w", s.conn.set.timeout, withoutTimeout(err)))
	failed.notSent = true
	return failed
}

// withoutTimeout returns err, or only its text if it matches the error of a context: it is not
// the context of the caller that has ended.
func withoutTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.New(err.Error())
	}
	return err
}

// unwritten reports whether none of the pipelines under way has been sent. The caller must hold
// s.mu.
func (s *sender) unwritten() bool {
	for _, p := range s.pipelines {
		if p.written.Load() {
			return false
		}
	}
	return true
}

// A callContext is a context that calls made at about the same time have in common.
type callContext struct {
	ctx      context.Context
	cancel   context.CancelFunc
	deadline time.Time
}

// context returns a context for a call that is made now. It ends when the call must have
// ended, or up to a tenth of the timeout later, so that several calls can use one context.
func (c *conn) context() context.Context { return c.callContext.get(c.set.timeout, c.set.timeout/10) }

// connectContext returns a context for a pipeline that starts now and may have to wait for a
// connection. The connection is made to the end, although its callers will have left.
func (c *conn) connectContext() context.Context {
	return c.connectingContext.get(c.set.timeout+maxConnecting, maxConnecting/10)
}

// contexts keeps the last context that it has made.
type contexts struct{ last atomic.Pointer[callContext] }

// get returns a context that ends after d, or up to slack later.
func (c *contexts) get(d, slack time.Duration) context.Context {
	now := time.Now()
	if b := c.last.Load(); b != nil && b.deadline.Sub(now) >= d {
		return b.ctx
	}
	b := &callContext{deadline: now.Add(d + slack)}
	b.ctx, b.cancel = context.WithDeadline(context.Background(), b.deadline)
	c.last.Store(b)
	return b.ctx
}
