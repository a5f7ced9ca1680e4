package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
)

// A conn makes calls to the servers, each of which ends by a deadline: by a sender for
// each server of which it is known what it serves, else by one for all.
type conn struct {
	set     *settings
	client  processor
	cluster *redis.ClusterClient // if that is what the client is

	// together says that all keys are on one server, so that one script may be
	// about any of them.
	oneServer bool

	denials *denials // nil if none are kept
	leases  *leases  // nil if nothing is taken ahead
	stats   counters
	origin  time.Time

	anyServer   *sender
	routesKnown atomic.Bool // whether the client knows which server of the cluster serves what
	callContext atomic.Pointer[callContext]
	reloaded    atomic.Int64 // when it was last told to ask, in Unix nanoseconds

	mu      sync.Mutex
	masters map[*redis.Client]*sender
}

// A processor is what of a client is used.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

const (
	// Flights to one server at a time, and calls in one of them: more of either
	// has only made answers late.
	maxPipelines     = 3
	maxPipelineCalls = 64

	// maxSeparateCalls is how many calls are made at a time, each by itself, where it is
	// not known which server is asked: one that hangs must not hold up the others.
	maxSeparateCalls = 1024

	// maxSenders is how many lanes of servers there may be that nobody waits in.
	maxSenders = 256

	// reloadEvery is how long a state of a cluster is trusted. It is read a second
	// time after so long: the first may have been that of before an election.
	reloadEvery = 100 * time.Millisecond
	reloadAgain = 250 * time.Millisecond
)

func newConn(client redis.UniversalClient, set *settings) *conn {
	c := &conn{set: set, client: client, denials: newDenials(set), origin: time.Now()}
	c.leases = newLeases(set.leases, c.giveBack)
	switch client := client.(type) {
	case *redis.Client:
		c.oneServer = true
		c.client = client.WithTimeout(set.timeout) // so that it gives up as soon as nobody waits
		c.anyServer = newSender(c, c.client, maxPipelines, maxPipelineCalls)
		return c
	case *redis.ClusterClient:
		c.cluster = client
		c.masters = make(map[*redis.Client]*sender)
	}
	c.anyServer = newSender(c, client, maxSeparateCalls, 1)
	return c
}

// sender returns the sender to the server of key.
func (c *conn) sender(ctx context.Context, key string) *sender {
	if c.cluster == nil || !c.routesKnown.Load() {
		return c.anyServer // to find out might take long
	}
	master, err := c.cluster.MasterForKey(ctx, key)
	if err != nil {
		return c.anyServer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.masters[master]
	if l == nil {
		if len(c.masters) >= maxSenders {
			clear(c.masters) // what is under way ends all the same
		}
		l = newSender(c, master.WithTimeout(c.set.timeout), maxPipelines, maxPipelineCalls)
		c.masters[master] = l
	}
	return l
}

// run runs s and returns its reply.
func (c *conn) run(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	return c.sender(ctx, keys[0]).do(ctx, &call{script: s, keys: keys, args: args})
}

// del deletes keys, which are in one slot.
func (c *conn) del(ctx context.Context, keys []string) error {
	_, err := c.sender(ctx, keys[0]).do(ctx, &call{keys: keys})
	return err
}

// giveBack gives back what was taken ahead of a key.
func (c *conn) giveBack(key string, l lot) error {
	_, err := c.run(context.Background(), giveBackScript, []string{key}, []any{string(l.kind), l.units, l.at, "", ""})
	if err == nil {
		c.stats.returned.Add(uint64(l.units))
	}
	return err
}

// A callContext is a context for calls that are made at about the same time.
type callContext struct {
	ctx      context.Context
	cancel   context.CancelFunc
	deadline time.Time
}

// context returns a context that ends when a call that is made now has to have ended,
// or up to a tenth of that time later: so calls have one in common.
func (c *conn) context() context.Context {
	now := time.Now()
	if b := c.callContext.Load(); b != nil && b.deadline.Sub(now) >= c.set.timeout {
		return b.ctx
	}
	b := &callContext{deadline: now.Add(c.set.timeout + c.set.timeout/10)}
	b.ctx, b.cancel = context.WithDeadline(context.Background(), b.deadline)
	c.callContext.Store(b)
	return b.ctx
}

// send makes calls by client.
func (c *conn) send(client processor, calls []*call) {
	ctx := c.context()
	for _, call := range calls {
		if j := call.shared; j != nil {
			j.ahead, j.reserve = c.leases.ahead(j)
		}
	}
	direct, astray := calls, []*call(nil)
	if c.cluster != nil && client != c.client {
		// What has failed at the server of the sender, the client is to look for.
		direct, astray = firstTries(calls)
	}
	var undecided []*call
	sent := c.batched(direct)
	c.exchange(ctx, client, sent)
	for _, call := range sent {
		undecided = append(undecided, call.split()...)
	}
	c.exchange(ctx, client, undecided)
	for _, call := range direct {
		if c.cluster != nil && isRedirect(call.err) {
			astray = append(astray, call)
		}
	}
	// The client follows a key that moves at noRetry only if it is asked for that startDirect.
	inParallel(len(astray), func(i int) { c.exchange(ctx, c.client, astray[i:i+1]) })
}

// firstTries returns the calls that are made for the first time, and the others.
func firstTries(calls []*call) (first, others []*call) {
	for _, call := range calls {
		if call.tries == 1 {
			first = append(first, call)
		} else {
			others = append(others, call)
		}
	}
	return first, others
}

// exchange makes calls by client, and again those whose script the server does not
// know. A panic of the client is their error.
func (c *conn) exchange(ctx context.Context, client processor, calls []*call) {
	if len(calls) == 0 {
		return
	}
	began, resets := c.clock(), c.denials.resetCount()
	defer func() {
		ended, p := c.clock(), recover()
		for _, call := range calls {
			call.began, call.ended, call.resets = began, ended, resets
			if p != nil {
				call.reply, call.err = nil, &Error{ClassOther, fmt.Errorf("panic: %v", p)}
			}
		}
	}()
	c.tryOnce(ctx, client, calls, false)
	var unknown []*call
	for _, call := range calls {
		if redis.HasErrorPrefix(call.err, "NOSCRIPT") {
			unknown = append(unknown, call)
		}
	}
	if len(unknown) > 0 {
		c.stats.noScripts.Add(uint64(len(unknown)))
		c.tryOnce(ctx, client, unknown, true)
	}
}

// tryOnce sends calls and reads their replies: scripts by their hash, or whole.
func (c *conn) tryOnce(ctx context.Context, client processor, calls []*call, whole bool) {
	c.stats.roundTrips.Add(1)
	c.stats.calls.Add(uint64(len(calls)))
	if len(calls) == 1 {
		cmd := calls[0].command(ctx, c.set.env(), whole)
		_ = client.Process(ctx, cmd)
		calls[0].reply, calls[0].err = cmd.Result()
		return
	}
	pipe := client.Pipeline()
	commands := make([]noRetry, len(calls))
	for i, call := range calls {
		commands[i] = call.command(ctx, c.set.env(), whole)
		_ = pipe.Process(ctx, commands[i])
	}
	_, _ = pipe.Exec(ctx)
	for i, call := range calls {
		call.reply, call.err = commands[i].Result()
	}
}

// failure returns err as an error that a caller can make something of.
func (c *conn) countFailure(err error) error {
	failed := errorOf(err)
	c.stats.countError(failed.Class)
	c.reloadRoutes(failed.Class)
	return failed
}

// clock returns the time since c was made or, in tests, that of the server.
func (c *conn) clock() time.Duration {
	if c.set.now != nil {
		return time.Duration(c.set.now().UnixMicro()) * time.Microsecond
	}
	return time.Since(c.origin)
}

// doubt has a client of a cluster that may be wrong about who serves what ask for
// that: else it would find out after a minute.
func (c *conn) reloadRoutes(class Class) {
	if c.cluster == nil {
		return
	}
	switch class {
	case ClassTimeout, ClassConnection, ClassDial, ClassReadOnly, ClassClusterDown:
		now, last := time.Now().UnixNano(), c.reloaded.Load()
		if now-last >= int64(reloadEvery) && c.reloaded.CompareAndSwap(last, now) {
			c.cluster.ReloadState(context.Background())
			time.AfterFunc(reloadAgain, func() { c.cluster.ReloadState(context.Background()) })
		}
	}
}

// retry notes that call is made another time.
func (c *conn) retry(call *call) {
	c.stats.retries.Add(1)
	c.reloadRoutes(classOf(call.err))
}

// heard notes that the client knows who serves what, noRetry a server has answered.
func (c *conn) learnRoutes(call *call) {
	if c.cluster != nil && call.err == nil && !c.routesKnown.Load() {
		c.routesKnown.Store(true)
	}
}

// results returns what each caller of call is told, if it was shared and has not failed.
func (c *conn) results(call *call) []ratelimit.Result {
	j := call.shared
	if j == nil || call.err != nil {
		return nil
	}
	results, state, taken, err := readOne(&j.plan, call.reply, j.costs, j.ahead, j.reserve)
	if err != nil {
		call.err = err
		return nil
	}
	denied := slices.ContainsFunc(results, func(r ratelimit.Result) bool { return r.RetryAfter > 0 })
	c.denials.learn(call, state, denied)
	c.stats.leased.Add(uint64(taken))
	c.leases.fill(j, taken, state.at, results[len(results)-1])
	return results
}

// tell tells who waits for call how it has ended.
func (c *conn) answer(call *call) {
	results := c.results(call)
	for i, w := range call.waiters {
		o := outcome{reply: call.reply, err: call.err}
		if results != nil {
			o.result = results[i]
		}
		w.settle(o)
	}
}
