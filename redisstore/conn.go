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

// A conn makes the calls to all servers of the store. It has one sender for each server. While it does not
// know which server has which key, it uses a single sender for all servers.
type conn struct {
	set     *settings
	client  processor
	cluster *redis.ClusterClient // the Redis client of the store, if it is a client of a Redis Cluster; otherwise nil

	// oneServer is true if all keys are on one server, so that one script can decide any keys
	// together.
	oneServer bool

	// ahead is by how many microseconds the server's clock is ahead of the clock of this process, as far as that is known.
	ahead atomic.Int64

	lastPipeline atomic.Uint64 // the number of the pipeline that was started last

	denials *denials // the denial cache; nil if it is turned off
	leases  *leases  // the units taken ahead for later requests; nil if WithLeases is not used
	stats   counters
	origin  time.Time // when the conn was made

	callContext, connectingContext contexts

	anyServer   *sender
	routesKnown atomic.Bool // whether the client knows which server of the cluster serves which slot

	// reloaded is the Unix time in nanoseconds at which the client was last told to read the state of the
	// cluster.
	reloaded atomic.Int64

	mu      sync.Mutex
	masters map[*redis.Client]*sender
}

// A processor has the methods of a Redis client that a conn calls.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

const (
	// maxPipelines is how many pipelines (groups of calls that are sent together) to one server may be under
	// way at the same time. Calls that a caller sends itself are not counted. maxPipelineCalls is how many
	// calls a pipeline may contain. In measurements, callers waited longer if either number was larger.
	maxPipelines     = 3
	maxPipelineCalls = 64

	// maxSeparateCalls is how many calls may be under way at the same time while it is not known which
	// server answers which call. Each call is then sent alone, so that a server that hangs delays no calls
	// to the servers that work.
	maxSeparateCalls = 1024

	// maxConnecting limits how long a pipeline may go on waiting for a connection after its calls have
	// timed out.
	maxConnecting = time.Second

	// The client may take stepTimeouts times the timeout of the store for one step, such as one command of
	// the handshake. Callers wait for only one timeout. The longer time lets the client finish a slow
	// connection, which later calls then use.
	stepTimeouts = 2

	// maxSenders is how many senders, one for each server, a conn keeps. When it needs one more, it drops
	// all senders, and makes the sender for a server again when it is needed.
	maxSenders = 256

	// reloadEvery is the shortest time between two requests to the client to read the state of the cluster.
	// The client reads the state a second time when reloadAgain has passed after a request, because the
	// first reading may show the state before a new master was elected.
	reloadEvery = 100 * time.Millisecond
	reloadAgain = 250 * time.Millisecond
)

func newConn(client redis.UniversalClient, set *settings) *conn {
	c := &conn{set: set, client: client, denials: newDenials(set), origin: time.Now()}
	c.leases = newLeases(set, c)
	switch client := client.(type) {
	case *redis.Client:
		c.oneServer = true
		c.client = client.WithTimeout(stepTimeouts * set.timeout) // this timeout is longer than the callers wait
		c.anyServer = newSender(c, c.client, maxPipelines, maxPipelineCalls)
		return c
	case *redis.ClusterClient:
		c.cluster = client
		c.masters = make(map[*redis.Client]*sender)
	}
	c.anyServer = newSender(c, client, maxSeparateCalls, 1)
	return c
}

// sender returns the sender for the server that holds this key.
func (c *conn) sender(ctx context.Context, key string) *sender {
	if c.cluster == nil || !c.routesKnown.Load() {
		return c.anyServer // while the routes are not known, MasterForKey might call the cluster, and that can take long
	}
	master, err := c.cluster.MasterForKey(ctx, key)
	if err != nil {
		return c.anyServer
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.masters[master]
	if known == nil {
		if len(c.masters) >= maxSenders {
			clear(c.masters) // senders that are dropped here still answer the calls that are under way
		}
		known = newSender(c, master.WithTimeout(stepTimeouts*c.set.timeout), maxPipelines, maxPipelineCalls)
		c.masters[master] = known
	}
	return known
}

// run runs the script s and returns its reply.
func (c *conn) run(ctx context.Context, s *script, keys []string, args []any) (any, error) {
	return c.sender(ctx, keys[0]).do(ctx, &call{script: s, keys: keys, args: args})
}

// runAt does what run does for a script that may need the edges of calendar windows: when they begin and end. The
// list edges says which of the arguments must contain such edges. runAt writes the edges into these arguments.
func (c *conn) runAt(ctx context.Context, s *script, keys []string, args []any, edges []edged) (any, error) {
	call := &call{script: s, keys: keys, args: args, edges: edges}
	if len(edges) > 0 {
		call.place(c.serverTime(), nil)
	}
	return c.sender(ctx, keys[0]).do(ctx, call)
}

// del deletes the given keys, which must be in one slot.
func (c *conn) del(ctx context.Context, keys []string) error {
	_, err := c.sender(ctx, keys[0]).do(ctx, &call{keys: keys})
	return err
}

// A sending belongs to one attempt to send some calls. It contains the context and the client for this attempt, and
// a function to call when the client sends the calls.
type sending struct {
	ctx    context.Context
	client processor
	wrote  func() // called when the client begins to write the calls; may also be called again for each further call
}

// The method send sends the calls and sets the reply and the error of each call. It uses the context and the
// client in its first parameter.
func (c *conn) send(by sending, calls []*call) {
	for _, call := range calls {
		if shared := call.shared; shared != nil {
			shared.ahead, shared.reserve, shared.lease = c.leases.ahead(shared)
		}
	}
	direct, rerouted := calls, []*call(nil)
	if c.cluster != nil && by.client != c.client {
		// Put the calls that failed before into rerouted. They are repeated through the client of the
		// cluster, which looks up again which server has the key.
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
	// If a key is moving to another server, the cluster's client finds the key only for a command outside
	// of a pipeline. So each call in rerouted is sent alone.
	by.client = c.client
	inParallel(len(rerouted), func(i int) { c.exchange(by, rerouted[i:i+1]) })
}

// firstTries separates the calls that are sent for the first time (first) from the calls that are repeated
// (others).
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

// exchange sends the calls and reads their replies. If the server does not know the script of a call by its
// hash, exchange sends the call again with the text of the script. If the server's time is outside of the
// calendar windows in the arguments of a call, exchange sends the call again with other windows. If the client
// panics, the panic becomes the error of the calls.
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
	var outside []*call
	for _, call := range calls {
		if c.replace(call) {
			outside = append(outside, call)
		}
	}
	if len(outside) > 0 {
		c.tryOnce(by, outside, false)
	}
}

// tryOnce sends the calls once and reads their replies. The calls name scripts by their hash or, if whole
// is true, contain the text of the script.
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
	commands := make([]*noRetry, len(calls))
	for i, call := range calls {
		commands[i] = call.command(by.ctx, c.set.env(), whole, by.wrote)
		_ = pipe.Process(by.ctx, commands[i])
	}
	_, _ = pipe.Exec(by.ctx)
	for i, call := range calls {
		call.reply, call.err = commands[i].Result()
	}
}

// countFailure counts the failure of a call, and returns the error of the call as an [*Error].
func (c *conn) countFailure(o outcome) error {
	failed := *errorOf(o.err) // a copy, because several callers may share the error
	failed.call = o.call
	failed.notSent = failed.notSent || o.unsent
	c.stats.countError(failed.Class)
	c.reloadRoutes(failed.Class)
	return &failed
}

// clock returns the time since the conn was made. If a test sets the time of the server, clock returns the
// time from the test.
func (c *conn) clock() time.Duration {
	if c.set.now != nil {
		return time.Duration(c.set.now().UnixMicro()) * time.Microsecond
	}
	return time.Since(c.origin)
}

// reloadRoutes is called after a failure of the given class. If such a failure may mean that servers of
// the cluster have changed, reloadRoutes tells the client to read again which server serves which slot. By
// itself, the client would do so only after its ClusterStateReloadInterval, by default 10 seconds.
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

// The method retry is called before a failed call is sent again. It counts the repetition, and records that
// the failed call has taken no units for later requests. If the servers of a cluster may have changed, it
// makes the client look up again which server has which keys.
func (c *conn) retry(call *call) {
	c.stats.retries.Add(1)
	if call.shared != nil {
		c.leases.lose(call.shared, classOf(call.err), false)
	}
	c.reloadRoutes(classOf(call.err))
}

// learnRoutes records, after the first successful call, that the client of a cluster knows which server
// serves which slot.
func (c *conn) learnRoutes(call *call) {
	if c.cluster != nil && call.err == nil && !c.routesKnown.Load() {
		c.routesKnown.Store(true)
	}
}

// results returns one result for each caller of a shared call (a call for one key that several callers may
// join). For any other call, and for a failed call, it returns nil. It also stores in the denial cache
// what the reply shows of the key, and in the leases the units that the call has taken for later requests.
// If it cannot read the reply, it sets call.err.
func (c *conn) results(call *call) []ratelimit.Result {
	shared := call.shared
	if shared == nil || call.err != nil {
		if shared != nil {
			c.leases.lose(shared, classOf(call.err), call.in.written.Load())
		}
		return nil
	}
	results, state, taken, err := readOne(&shared.plan, call.reply, shared.costs, shared.ahead, shared.reserve)
	if err != nil {
		call.err = err
		c.leases.lose(shared, ClassOther, true)
		return nil
	}
	denied := slices.ContainsFunc(results, func(r ratelimit.Result) bool { return r.RetryAfter > 0 })
	if penalized(shared.ask) && state.known != 'b' {
		denied, state = false, snapshot{} // cache no denial, because the server must count the next denial too
	}
	c.denials.learn(call, state, denied)
	c.stats.leased.Add(uint64(taken))
	c.leases.fill(shared, taken, state.at, results[len(results)-1])
	return results
}

// answer passes an outcome to each caller that waits for the call.
func (c *conn) answer(call *call) {
	results := c.results(call)
	for i, w := range call.waiters {
		o := outcome{reply: call.reply, err: call.err, call: call.pipeline, unsent: !call.in.written.Load()}
		if results != nil {
			o.results = results[i : i+1 : i+1]
		}
		w.answer(o)
		w.tell()
	}
}
