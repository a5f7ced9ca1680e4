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

// A conn makes the calls to all servers, each of which ends by a deadline. It has a sender
// for each server once it knows which keys that serves, and until then one sender for all.
type conn struct {
	set     *settings
	client  processor
	cluster *redis.ClusterClient // if the client is one of a cluster

	// oneServer reports that all keys are on one server, so that one script can decide any
	// of them together.
	oneServer bool

	lastPipeline atomic.Uint64 // the number of the pipeline that was started last

	denials *denials // nil if there is no denial cache
	leases  *leases  // nil if no units are taken ahead
	stats   counters
	origin  time.Time

	callContext, connectingContext contexts

	anyServer   *sender
	routesKnown atomic.Bool // whether the client knows which server of the cluster serves which slot

	// reloaded is when the client was last told to ask for the state of the cluster, in Unix
	// nanoseconds.
	reloaded atomic.Int64

	mu      sync.Mutex
	masters map[*redis.Client]*sender
}

// A processor is the part of a client that a conn uses.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

const (
	// maxPipelines is how many pipelines to one server may be under way at the same time,
	// and maxPipelineCalls how many calls one of them has. When we measured more of either,
	// answers only became later.
	maxPipelines     = 3
	maxPipelineCalls = 64

	// maxSeparateCalls is how many calls may be under way at the same time where it is not
	// known which server answers them. Each is sent by itself, so that a server that hangs
	// does not delay the calls to the others.
	maxSeparateCalls = 1024

	// maxConnecting is how long a connection may take to make, beyond the timeout of the calls
	// that it was made for.
	maxConnecting = time.Second

	// stepTimeouts is how many timeouts one step may take, such as a command of the handshake.
	// Callers do not wait for more than one; a connection that is only slow is worth keeping.
	stepTimeouts = 2

	// maxSenders is how many senders are kept. When there are more, all are dropped and
	// made again as they are needed.
	maxSenders = 256

	// reloadEvery is the least time between two readings of the state of the cluster. After
	// reloadAgain it is read a second time, because the first reading may have shown the
	// state before an election.
	reloadEvery = 100 * time.Millisecond
	reloadAgain = 250 * time.Millisecond
)

func newConn(client redis.UniversalClient, set *settings) *conn {
	c := &conn{set: set, client: client, denials: newDenials(set), origin: time.Now()}
	c.leases = newLeases(set, c.giveBack, c.note)
	switch client := client.(type) {
	case *redis.Client:
		c.oneServer = true
		c.client = client.WithTimeout(stepTimeouts * set.timeout) // the client gives up some time after the callers
		c.anyServer = newSender(c, c.client, maxPipelines, maxPipelineCalls)
		return c
	case *redis.ClusterClient:
		c.cluster = client
		c.masters = make(map[*redis.Client]*sender)
	}
	c.anyServer = newSender(c, client, maxSeparateCalls, 1)
	return c
}

// sender returns the sender for the server that has key.
func (c *conn) sender(ctx context.Context, key string) *sender {
	if c.cluster == nil || !c.routesKnown.Load() {
		return c.anyServer // MasterForKey would ask the cluster, which might take long
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
			clear(c.masters) // calls that are under way end nevertheless
		}
		l = newSender(c, master.WithTimeout(stepTimeouts*c.set.timeout), maxPipelines, maxPipelineCalls)
		c.masters[master] = l
	}
	return l
}

// run runs the script s and returns its reply.
func (c *conn) run(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	return c.sender(ctx, keys[0]).do(ctx, &call{script: s, keys: keys, args: args})
}

// del deletes keys, which are in one slot.
func (c *conn) del(ctx context.Context, keys []string) error {
	_, err := c.sender(ctx, keys[0]).do(ctx, &call{keys: keys})
	return err
}

// A sending is one attempt to make calls by a client.
type sending struct {
	ctx    context.Context
	client processor
	wrote  func() // called when the client writes the first of the calls, and perhaps again
}

// send makes calls, and sets the reply and the error of each.
func (c *conn) send(by sending, calls []*call) {
	for _, call := range calls {
		if j := call.shared; j != nil {
			j.ahead, j.reserve, j.lease = c.leases.ahead(j)
		}
	}
	direct, rerouted := calls, []*call(nil)
	if c.cluster != nil && by.client != c.client {
		// The server of this sender has failed a call that is repeated, so the cluster's
		// client looks for the server that has its key now.
		direct, rerouted = firstTries(calls)
	}
	var undecided []*call
	sent := c.batched(direct)
	c.exchange(by, sent)
	for _, call := range sent {
		undecided = append(undecided, call.split()...)
	}
	c.exchange(by, undecided)
	for _, call := range direct {
		if c.cluster != nil && isRedirect(call.err) {
			rerouted = append(rerouted, call)
		}
	}
	if len(rerouted) == 0 {
		return
	}
	// The cluster's client follows a key that is moving, but only in a call that is sent by
	// itself. So each call is sent separately.
	by.client = c.client
	inParallel(len(rerouted), func(i int) { c.exchange(by, rerouted[i:i+1]) })
}

// firstTries separates the calls that are made for the first time from the others.
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

// exchange makes calls. Where the server does not know a script by its hash, it
// sends the call again with the text. A panic of the client becomes the error of the calls.
func (c *conn) exchange(by sending, calls []*call) {
	if len(calls) == 0 {
		return
	}
	began, resets := c.clock(), c.denials.resetCount()
	defer func() {
		ended, p := c.clock(), recover()
		for _, call := range calls {
			call.began, call.ended, call.resets = began, ended, resets
			if p != nil {
				call.reply, call.err = nil, newError(ClassOther, fmt.Errorf("panic: %v", p))
			}
		}
	}()
	c.tryOnce(by, calls, false)
	var unknown []*call
	for _, call := range calls {
		if call.err != nil && redis.HasErrorPrefix(call.err, "NOSCRIPT") {
			unknown = append(unknown, call)
		}
	}
	if len(unknown) > 0 {
		c.stats.noScripts.Add(uint64(len(unknown)))
		c.tryOnce(by, unknown, true)
	}
}

// tryOnce sends calls and reads their replies. Scripts are named by their hash, or sent as
// text if whole is true.
func (c *conn) tryOnce(by sending, calls []*call, whole bool) {
	c.stats.roundTrips.Add(1)
	c.stats.calls.Add(uint64(len(calls)))
	if len(calls) == 1 {
		cmd := calls[0].command(by.ctx, c.set.env(), whole, by.wrote)
		_ = by.client.Process(by.ctx, cmd)
		calls[0].reply, calls[0].err = cmd.Result()
		return
	}
	pipe := by.client.Pipeline()
	commands := make([]noRetry, len(calls))
	for i, call := range calls {
		commands[i] = call.command(by.ctx, c.set.env(), whole, by.wrote)
		_ = pipe.Process(by.ctx, commands[i])
	}
	_, _ = pipe.Exec(by.ctx)
	for i, call := range calls {
		call.reply, call.err = commands[i].Result()
	}
}

// countFailure counts the failure o, and returns its error as an [*Error].
func (c *conn) countFailure(o outcome) error {
	failed := *errorOf(o.err) // a copy, because callers have the error in common
	failed.call = o.call
	failed.notSent = failed.notSent || o.unsent
	c.stats.countError(failed.Class)
	c.reloadRoutes(failed.Class)
	return &failed
}

// clock returns the time since c was made or, in a test, the time of the server.
func (c *conn) clock() time.Duration {
	if c.set.now != nil {
		return time.Duration(c.set.now().UnixMicro()) * time.Microsecond
	}
	return time.Since(c.origin)
}

// reloadRoutes makes the client of a cluster ask again which server serves which slot, if a
// failure of this class may mean that it is wrong about that. By itself the client would
// ask only after a minute.
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

// retry counts that call is repeated.
func (c *conn) retry(call *call) {
	c.stats.retries.Add(1)
	c.reloadRoutes(classOf(call.err))
}

// learnRoutes records that the client knows which server serves which slot, which is so as
// soon as one server has answered.
func (c *conn) learnRoutes(call *call) {
	if c.cluster != nil && call.err == nil && !c.routesKnown.Load() {
		c.routesKnown.Store(true)
	}
}

// results returns the result for each caller of call, or nil if the call is not shared or
// has failed. It also stores what the reply says for denials and leases.
func (c *conn) results(call *call) []ratelimit.Result {
	j := call.shared
	if j == nil || call.err != nil {
		if j != nil && j.ahead > 0 && call.in.written.Load() {
			c.leases.lose(j, classOf(call.err))
		}
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

// answer gives each waiter of call its outcome.
func (c *conn) answer(call *call) {
	results := c.results(call)
	for i, w := range call.waiters {
		o := outcome{reply: call.reply, err: call.err, call: call.pipeline, unsent: !call.in.written.Load()}
		if results != nil {
			o.results = results[i : i+1 : i+1]
		}
		w.settle(o)
		w.tell()
	}
}
