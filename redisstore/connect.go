package redisstore

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
)

// causeHolds is for how long after a failed attempt to connect the store reports the reason of the failure. If a
// call cannot be sent in this time, its error contains the reason. If the dialer of the client is still busy with
// the attempt at the end of this time, the store reports the reason until the dialer returns.
const causeHolds = time.Second

// A cause holds the reason for which no connection could be made.
type cause struct {
	err error
	at  time.Time // when the attempt failed
}

// ready reports whether the client still has a free connection if the given number of pipelines each use one.
// If ready returns false, the client must first set up a connection. This takes several commands, and so may
// take much longer than a call.
func (s *sender) ready(pipelines int) bool {
	if !s.warm.Load() {
		return false
	}
	stats := s.pool.PoolStats()
	return stats.IdleConns > 0 && int(stats.TotalConns) > pipelines
}

// makeCalls sends the calls of the pipeline p. If the client must first set up a connection, that may take
// longer than the callers wait. The connection is then completed for the next call, and the calls of p
// charge nothing.
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
	if err := p.calls[0].err; err != nil && s.pool != nil && !p.written.Load() && classOf(err) == ClassConnection {
		s.findCause(p) // the server has closed the connection during the handshake
		if err = s.knownCause(); err != nil {
			for _, c := range p.calls {
				c.err = err
			}
		}
	}
	s.learn(p.calls[0])
}

// The method learn gets a call that has ended. It records whether the connections of the client work, and whether
// the server is quick. If no connection could be made, it also records the reason.
func (s *sender) learn(c *call) {
	if quick := c.ended-c.began < s.conn.set.timeout/quickShare; s.quick.Load() != quick {
		s.quick.Store(quick)
	}
	// With ClassDial, no connection was made. Its error may be a redis.Error, too, because the server may have
	// refused a command of the handshake. Such an error is not an answer to a call.
	refused := c.err != nil && classOf(c.err) == ClassDial
	answered := c.err == nil || errors.As(c.err, new(redis.Error)) && !refused
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
	case refused:
		s.cause.Store(&cause{c.err, time.Now()})
	}
}

// findCause finds out why the pipeline p has no connection yet. The client repeats a failed attempt to
// connect, and reports the reason only when it gives up. That is too late for the callers, so findCause
// makes an attempt of its own.
func (s *sender) findCause(p *pipeline) {
	if p.written.Load() || s.poolUsedUp() || !s.searching.CompareAndSwap(false, true) {
		return
	}
	if c := s.cause.Load(); c != nil && time.Since(c.at) >= causeHolds {
		s.cause.CompareAndSwap(c, nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.conn.set.timeout/2)
	defer cancel()
	if err := refusal(ctx, s.pool, func() { s.searching.Store(false) }); err != nil {
		s.cause.Store(&cause{err, time.Now()})
	}
}

// knownCause returns the reason for which no connection could be made a short time ago, or nil.
func (s *sender) knownCause() error {
	c := s.cause.Load()
	if c == nil || time.Since(c.at) >= causeHolds && !s.searching.Load() {
		return nil
	}
	return c.err
}

// refusal makes one attempt to connect to the server of client. It returns the reason if the server cannot be
// reached, or refuses the connection. It returns nil if the server answers, and also if the server is silent
// until ctx ends. It calls the function ended when the dialer of the client has returned.
func refusal(ctx context.Context, client *redis.Client, ended func()) error {
	conn, err := dial(ctx, client, ended)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	// Send a PING and read the answer. A server that has too many clients, or that expects TLS, accepts
	// the connection at first, and then closes it.
	_, writeErr := conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
	line, err := bufio.NewReader(conn).ReadString('\n')
	var timeout net.Error
	switch {
	case err == nil:
		if text, failed := strings.CutPrefix(line, "-"); failed && classOfReply(text) == ClassDial {
			return dialError(client, errors.New(strings.TrimSpace(text)))
		}
		return nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil
	}
	reason := "the server closed the connection before it answered"
	if client.Options().TLSConfig == nil {
		reason += "; it may expect TLS"
	}
	return dialError(client, fmt.Errorf("%s: %w", reason, cmp.Or(writeErr, err)))
}

// The function dial makes one attempt to connect to the server of client. It returns when ctx ends, even if the
// dialer of the client ignores ctx, as the dialer of go-redis does with TLS. It calls the function ended when
// the dialer has returned, which may be later.
func dial(ctx context.Context, client *redis.Client, ended func()) (conn net.Conn, err error) {
	made := make(chan func() (net.Conn, error))
	go func() {
		conn, err := tryDial(ctx, client)
		ended()
		select {
		case made <- func() (net.Conn, error) { return conn, err }:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case result := <-made:
		return result()
	case <-ctx.Done():
	}
	if err = ctx.Err(); client.Options().TLSConfig != nil {
		err = fmt.Errorf("the TLS handshake has not ended; the server may not use TLS: %w", err)
	}
	return nil, dialError(client, err)
}

// tryDial calls the dialer of client.
func tryDial(ctx context.Context, client *redis.Client) (conn net.Conn, err error) {
	defer func() {
		if p := recover(); p != nil { // the dialer may be a function of the user, and this function may panic
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	opt := client.Options()
	if conn, err = opt.Dialer(ctx, opt.Network, opt.Addr); conn == nil && err == nil {
		err = errors.New("the dialer returned no connection")
	}
	return conn, err
}

// dialError returns an error of the class ClassDial: no connection to the server of client could be made,
// for the given reason.
func dialError(client *redis.Client, reason error) error {
	opt := client.Options()
	return &net.OpError{Op: "dial", Net: opt.Network, Addr: address{opt.Network, opt.Addr}, Err: reason}
}

// An address is the address of a server, as it is in the options of a client.
type address struct{ network, text string }

// Network returns the name of the network, such as tcp.
func (a address) Network() string { return a.network }

// String returns the address as text.
func (a address) String() string { return a.text }

// within calls the function do in a goroutine. It returns the error of do, or the error of ctx if ctx ends first.
func within(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
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
		err = within(ctx, func() error { // the client ignores ctx while it reads the state of the cluster, so use within
			if err := client.ForEachMaster(ctx, s.pingOne); err != nil {
				return err
			}
			return s.pingScripts(ctx, client)
		})
	default:
		err = within(ctx, func() error { return s.pingScripts(ctx, client) })
	}
	if err != nil {
		return newError(classOf(err), err)
	}
	return nil
}

// pingOne connects to the server of the client. Without a Cluster, it also runs the scripts of Ping there.
func (s *Store) pingOne(ctx context.Context, client *redis.Client) error {
	conn, err := dial(ctx, client, func() {})
	if err != nil {
		return err // do not send a command, because the client would repeat the attempt to connect, possibly until ctx ends
	}
	_ = conn.Close()
	opt := client.Options()
	limit := max(opt.DialTimeout, opt.ReadTimeout, s.timeout)
	patient := client.WithTimeout(limit)
	patient.Options().ContextTimeoutEnabled = true // changes only this copy of the client
	err = within(ctx, func() error {
		if s.conn.cluster != nil {
			return patient.Ping(ctx).Err()
		}
		return s.pingScripts(ctx, patient)
	})
	if err != nil && classOf(err) == ClassConnection {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err = cmp.Or(refusal(ctx, client, func() {}), err)
	}
	return err
}

// pingScripts runs a script that reads one key and changes nothing. It first sends only the hash of the
// script. If the server does not know this script, it then sends the text.
func (s *Store) pingScripts(ctx context.Context, client processor) error {
	it, err := s.item(&ratelimit.Ask{Rule: "ping", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerSecond(1)})
	if err != nil {
		return err
	}
	c := &call{script: oneScripts[it.kind], keys: []string{it.key.text}, args: oneArgs(nil, s.env(), &it, []int64{0}, 0, 0)}
	for _, whole := range []bool{false, true} { // first with the hash, to see whether the server permits EVALSHA; then with the text
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

// unsent returns the error for a call that was not sent within the timeout. The argument slow says whether
// the server is slow to answer earlier calls. If so, and if no other reason is known, the error says that the
// server is slow.
func (s *sender) unsent(slow bool) *Error {
	class, err := ClassTimeout, errors.New("no connection is ready yet")
	cause := s.knownCause()
	switch {
	case cause != nil:
		class, err = classOf(cause), cause
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

// context returns a context for a call that is made now. Calls that are made at about the same time
// share a context. So the context may end a little late: at some time between one timeout and 1.1 timeouts
// from now.
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
