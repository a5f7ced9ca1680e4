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

// causeHolds is how long the reason of a failed attempt to connect is reported: if a call cannot be sent within
// this time after the attempt, the error of the call contains the reason.
const causeHolds = time.Second

// A cause holds the reason for which no connection could be made.
type cause struct {
	err error
	at  time.Time // when the attempt failed
}

// ready reports whether the client has a free connection even if each of the given number of pipelines uses
// one. If ready returns false, the client must first set up a connection. For this it sends several commands,
// so it may take much longer than a call.
func (s *sender) ready(pipelines int) bool {
	if !s.warm.Load() {
		return false
	}
	stats := s.pool.PoolStats()
	return stats.IdleConns > 0 && int(stats.TotalConns) > pipelines
}

// makeCalls sends the calls of the pipeline p. If the client must first set up a connection, that may take
// longer than the callers wait. In that case the calls charge nothing, but the connection is completed and
// serves the next call.
func (s *sender) makeCalls(p *pipeline) {
	by := sending{s.conn.context(), s.client, func() { s.write(p) }}
	if s.pool != nil {
		by.ctx = s.conn.connectContext()
		if !s.ready(0) {
			search := time.AfterFunc(s.conn.set.timeout/4, func() { s.findCause(p) })
			defer search.Stop()
		}
	}
	s.conn.send(by, p.calls)
	s.learn(p.calls[0].err)
}

// The method learn gets the error of a call that has ended, or nil. It records whether the connections of the
// client work. If no connection could be made, it also records the reason.
func (s *sender) learn(err error) {
	var reply redis.Error
	answered := err == nil || errors.As(err, &reply)
	if answered {
		s.answers.Add(1)
	}
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

// findCause finds out why the pipeline p has no connection yet. The client repeats a failed attempt to
// connect, and reports the reason only when it gives up. That is too late for the callers, so findCause
// makes an attempt of its own.
func (s *sender) findCause(p *pipeline) {
	if p.written.Load() || s.pool.PoolStats().TotalConns > 0 || !s.searching.CompareAndSwap(false, true) {
		return // the pipeline has a connection, or waits for a connection that is in use or being set up
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
		if p := recover(); p != nil { // the dialer may be a function of the user, and this function may panic
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

// Ping returns nil if the server can be reached and can run the scripts of the store. A program may
// call Ping when it starts, to find out at once that an address, a password or an access list is
// wrong. Ping charges nothing and writes nothing.
//
// In a Cluster, Ping calls every master. It is limited by ctx and by the timeouts of the client, not
// by [WithTimeout]. The error is an [*Error] that matches [ratelimit.ErrStore].
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

// pingOne connects to the server of the client. Without a Cluster, it also runs the scripts of Ping there.
func (s *Store) pingOne(ctx context.Context, client *redis.Client) error {
	if err := tryDial(ctx, client); err != nil {
		return err // a command would now repeat the attempt to connect, perhaps until ctx ends
	}
	opt := client.Options()
	client = client.WithTimeout(max(opt.DialTimeout, opt.ReadTimeout, s.timeout))
	client.Options().ContextTimeoutEnabled = true // changes only this copy of the client
	if s.conn.cluster != nil {
		return client.Ping(ctx).Err()
	}
	return s.pingScripts(ctx, client)
}

// pingScripts runs a script that reads one key and changes nothing. It first sends only the hash of the
// script. If the server does not know this script, it then sends the text.
func (s *Store) pingScripts(ctx context.Context, client processor) error {
	it, err := s.item(&ratelimit.Ask{Rule: "ping", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerSecond(1)})
	if err != nil {
		return err
	}
	c := &call{script: oneScripts[it.kind], keys: []string{it.key.text}, args: oneArgs(nil, s.env(), &it, []int64{0}, 0, 0)}
	for _, whole := range []bool{false, true} { // first by the hash, to see whether the server permits EVALSHA
		cmd := c.command(ctx, s.env(), whole, func() {})
		if err = client.Process(ctx, cmd); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
	}
	return err
}

// poolUsedUp reports whether the client uses all the connections that it may open.
func (s *sender) poolUsedUp() bool {
	if s.pool == nil {
		return false
	}
	stats := s.pool.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= s.pool.Options().PoolSize
}

// unsent returns the error for a call that was not sent within the timeout. If the argument slow is true, the
// server is slow to answer earlier calls, and the error says so if no other reason is known.
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

// withoutTimeout returns err, unless err matches the error of a context. In that case it returns a new
// error with only the text of err, so that callers do not think that their own context has ended.
func withoutTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errors.New(err.Error())
	}
	return err
}

// unwritten returns true if none of the pipelines under way has been sent. The caller must hold s.mu.
func (s *sender) unwritten() bool {
	for _, p := range s.pipelines {
		if p.written.Load() {
			return false
		}
	}
	return true
}

// A callContext is a context shared by several calls that are made at about the same time.
type callContext struct {
	ctx      context.Context
	cancel   context.CancelFunc
	deadline time.Time
}

// context returns a context for a call that is made now. So that several calls can share the context, it
// ends at some time between one timeout and 1.1 timeouts from now.
func (c *conn) context() context.Context { return c.callContext.get(c.set.timeout, c.set.timeout/10) }

// connectContext returns a context for a pipeline that starts now and may have to set up a
// connection. It lasts long enough to complete the connection after the callers have left.
func (c *conn) connectContext() context.Context {
	return c.connectingContext.get(c.set.timeout+maxConnecting, maxConnecting/10)
}

// The type contexts makes the contexts for calls. It keeps the last context that it has made, so that calls
// that start soon afterwards can share this context.
type contexts struct{ last atomic.Pointer[callContext] }

// get returns a context that ends at some time between d and d + slack from now.
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
