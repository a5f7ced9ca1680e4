package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A Store is a [ratelimit.Store] that keeps its states in Redis or Valkey. Make one with
// [New], and give it to a limiter with [ratelimit.WithStore].
type Store struct {
	settings
	conn    *conn
	routing routing
	plans   planCache
}

var (
	_ ratelimit.StoreSupporter   = (*Store)(nil)
	_ ratelimit.StoreSettler     = (*Store)(nil)
	_ ratelimit.StoreReplayer    = (*Store)(nil)
	_ ratelimit.StorePartitioner = (*Store)(nil)
	_ ratelimit.StoreDenier      = (*Store)(nil)
	_ ratelimit.StorePardoner    = (*Store)(nil)
	_ ratelimit.StoreOverrider   = (*Store)(nil)
)

// New returns a Store that uses client. It does not contact the server, which need not be
// running yet. The Store makes its calls through a copy of client, which shares the connections
// of client and obeys [WithTimeout]. Hooks that were added to client do not see these calls. The
// errors of New match [ratelimit.ErrInvalidConfig].
//
// New refuses a [redis.Ring]. When a server does not answer, a Ring moves the keys of that server to
// other servers, where no units are charged yet, and moves the keys back later.
//
// The server must be Redis 6.2 or later, or Valkey. Its maxmemory-policy should be noeviction:
// if the server evicts a key, the Store no longer knows which units of the key were used.
func New(client redis.UniversalClient, opts ...Option) (*Store, error) {
	set := newSettings(opts)
	err := set.validate()
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		err = errors.Join(err, &ratelimit.ConfigError{Field: "client", Value: client, Reason: "must not be nil"})
	}
	if _, ok := client.(*redis.Ring); ok {
		err = errors.Join(err, &ratelimit.ConfigError{Field: "client", Value: "a *redis.Ring", Reason: "must not be a Ring: " +
			"when it drops a server that does not answer, it moves keys to others, which know nothing of what was used"})
	}
	if err != nil {
		return nil, err
	}
	s := &Store{settings: set, routing: routingOf(client)}
	s.conn = newConn(client, &s.settings)
	return s, nil
}

// Supports returns nil if the store can decide exactly with this algorithm and this rate. Otherwise it
// returns an error that says why the store cannot do so.
func (s *Store) Supports(a ratelimit.Algorithm, r ratelimit.Rate) error {
	_, err := planOf(a, r)
	var field *ratelimit.ConfigError
	if errors.As(err, &field) {
		return fmt.Errorf("%s %s", field.Field, field.Reason)
	}
	return err
}

// Take charges all asks or none, and returns one result for each; see [ratelimit.Store]. If the asks
// are in several slots of a Cluster and one of them is denied, the units of the other asks may stay
// charged until Take has given them back.
//
// Take returns within the time of [WithTimeout]. It may take twice as long if its call had to wait for an
// earlier call, or if it has to give units back. If ctx ends, Take returns at once, with one exception: if
// few callers wait and the server answered the previous call quickly, the goroutine of the caller sends
// the call itself. It then returns when the reply comes, or after the time of [WithTimeout].
//
// An error of the server or of the connection is an [*Error] and matches
// [ratelimit.ErrStore]. Other errors match [ratelimit.ErrInvalidConfig] or
// [ratelimit.ErrInvalidCount], or are the error of ctx.
func (s *Store) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return nil, err
	}
	if len(asks) == 1 {
		a := &asks[0]
		if a.Receipt == 0 && a.Warmup == (ratelimit.Warmup{}) && a.Algorithm != ratelimit.AlgorithmInFlight && a.Rate.Window == "" {
			return s.takeOne(ctx, a)
		}
		remembered := penalized(a) || a.Receipt == 0 && a.Rate.Window != "" // whether takeInOne may have put a denial into the denial cache
		if res := (ratelimit.Result{}); remembered && s.conn.denied(a, &res) {
			return []ratelimit.Result{res}, nil
		}
	}
	items, looks := make([]item, len(asks)), 0
	for i := range asks {
		if items[i], err = s.item(&asks[i]); err != nil {
			return nil, err
		}
		if asks[i].Look {
			looks++
		}
	}
	switch looks {
	case 0:
		s.conn.stats.decisions.Add(1)
		s.conn.denials.forget(asks)
		return s.takeAll(ctx, items, 0)
	case len(items):
		return s.takeAll(ctx, items, rehearsing)
	}
	return nil, &ratelimit.ConfigError{Field: "look", Value: "true and false", Reason: "must be the same in all asks of one call"}
}

// takeAll decides the items, which may be in several slots. The parameter mode is 0, or rehearsing for a dry
// run that charges nothing.
func (s *Store) takeAll(ctx context.Context, items []item, mode int) ([]ratelimit.Result, error) {
	switch parts := s.routing.parts(items); len(parts) {
	case 0:
		return []ratelimit.Result{}, nil
	case 1:
		return s.takeInOne(ctx, items, mode)
	default:
		return s.takeInSeveral(ctx, items, parts, mode)
	}
}

// Denied reports whether the denial cache of this process shows that the server would deny the ask. In that
// case it also returns the result of the denial. It does not call the server; see [WithDenialCache].
func (s *Store) Denied(a ratelimit.Ask) (res ratelimit.Result, denied bool) {
	if s == nil || s.conn == nil {
		return res, false
	}
	denied = s.conn.denied(&a, &res)
	return res, denied
}

// takeOne decides a single ask: from the denial cache, from units taken ahead, or by a call to the server. Other
// callers that want units of the same key may share this call.
func (s *Store) takeOne(ctx context.Context, a *ratelimit.Ask) ([]ratelimit.Result, error) {
	var known ratelimit.Result
	if s.conn.denied(a, &known) {
		return []ratelimit.Result{known}, nil
	}
	if res, granted := s.conn.leases.spend(a); granted {
		if !a.Look {
			s.conn.stats.leaseHits.Add(1)
		}
		return []ratelimit.Result{res}, nil
	}
	it, err := s.item(a)
	if a.Look && err == nil {
		return s.takeAll(ctx, []item{it}, rehearsing)
	}
	s.conn.stats.decisions.Add(1)
	if err != nil {
		return nil, err
	}
	return s.conn.sender(ctx, it.key.text).ask(ctx, &it)
}

// Reset deletes the states of the keys that the asks name, so that these keys count as unused. It also ends
// the time for which a Penalty blocks these keys, and forgets the denials that count toward a Penalty. Reset fails
// with the same errors as [Store.Take].
func (s *Store) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	if s != nil && s.conn != nil {
		s.conn.leases.forget(asks)
	}
	return s.deleteKeys(ctx, asks, func(key string) []string {
		return []string{key, aheadKey(key), receiptsKey(key), penaltyKey(key)}
	})
}

// Close gives back the units that were taken ahead; see [WithLeases]. Afterwards the store still
// works, but takes no more units ahead. Close does not close the client. If units could not be given
// back, the error says how many, and Close may be called again within a minute.
func (s *Store) Close() error {
	if s == nil || s.conn == nil {
		return nil
	}
	return s.conn.leases.close()
}

// checkContext returns the context for a call: ctx, or a background context if ctx is nil. It returns an
// error if no call can be made, because s is a zero Store or ctx has ended.
func (s *Store) checkContext(ctx context.Context) (context.Context, error) {
	if s == nil || s.conn == nil {
		return nil, &ratelimit.ConfigError{Field: "store", Value: "the zero value", Reason: "must be made by New"}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return ctx, ctx.Err()
}

// An item is an ask, which wants units of one key, together with the values that the script for the ask needs.
type item struct {
	ask *ratelimit.Ask
	key key
	*cachedPlan
	n      int64
	shadow bool
	id     uint64 // the Receipt of the ask: the number by which its charge can be given back; 0 if it has none
	term   int64  // for how many microseconds after the charge its units can be given back
	warmup string // if the ask has a Warmup: its numbers, as the Lua file warmup.lua reads them; otherwise empty

	strikes bool // whether a denial of the ask counts toward the Penalty of its rule
}

func (s *Store) item(a *ratelimit.Ask) (item, error) {
	if a.N < 0 {
		return item{}, ratelimit.ErrInvalidCount
	}
	p, err := s.plans.planOf(a.Algorithm, a.Rate)
	if err != nil {
		return item{}, err
	}
	// An ask for more units than the limit is never granted, however many more it wants. So the script
	// gets at most limit+1 as the number of units. Lua, whose numbers are doubles, always holds limit+1 exactly.
	n := min(int64(a.N), p.limit+1)
	if err := checkTerm(a); err != nil {
		return item{}, err
	}
	if err := checkWarmup(a); err != nil {
		return item{}, err
	}
	if err := checkPenalty(a); err != nil {
		return item{}, err
	}
	it := item{a, s.keyOf(a), p, n, a.Shadow, a.Receipt, a.HoldFor.Microseconds(), warmupOf(a, p.burst), strikes(a)}
	switch {
	case a.Look:
		it.id = 0 // nothing will be charged, so no receipt is needed
	case it.id == 0 && p.kind == 'h':
		it.id = max(rand.Uint64(), 1) // the server stores each request in flight under a number, even a request without a Receipt
	}
	return it, nil
}

// takeInOne decides the items with one script. The items must be in one slot.
func (s *Store) takeInOne(ctx context.Context, items []item, mode int) ([]ratelimit.Result, error) {
	began, resets := time.Duration(0), int64(0)
	learns := len(items) == 1 && mode == 0 && (penalized(items[0].ask) || items[0].frame != "")
	if learns {
		began, resets = s.conn.clock(), s.conn.denials.resetCount()
	}
	reply, err := s.take(ctx, items, mode)
	if err != nil {
		return nil, err
	}
	if results, err := fastResults(items, reply); results != nil || err != nil {
		return results, err
	}
	answers, err := answersIn(reply, len(items), false)
	if err != nil {
		return nil, err
	}
	if learns {
		s.conn.denials.learnDenial(&items[0], &answers[0], began, s.conn.clock(), resets)
	}
	results := make([]ratelimit.Result, len(items))
	for i := range answers {
		results[i] = answers[i].result(items[i].limit)
	}
	return results, nil
}

// The modes of a script that decides several asks. The script gets the sum of the modes that apply. The number 64
// is not used here, because penalty.lua adds it to the sum.
const (
	returnable   = 1   // the reply must contain what is needed to give the charges of this script back
	withReceipts = 2   // some of the charges have receipts
	denied       = 4   // a script for another slot has denied the request: this script charges nothing
	looking      = 8   // only compute answers: charge nothing and change no state; the mode denied is set too
	withWarmup   = 16  // some of the keys warm up
	rehearsing   = 32  // a dry run: the script writes nothing, but answers as if it had charged the units
	tentative    = 128 // a denial must not give a key the rate of the request, because a record in another slot may have the answers
)

// The method take runs the script that decides the items, which must be in one slot, and returns the reply
// of the script. The parameter mode is a sum of modes; take adds withReceipts and withWarmup if the items need
// these modes.
func (s *Store) take(ctx context.Context, items []item, mode int) (any, error) {
	keys, args, edges, needs := s.arguments(items, mode)
	return s.conn.runAt(ctx, takeScripts.of(needs), keys, args, edges)
}

// arguments returns what the script that decides the items needs: its keys, its arguments, a list that says which of
// these arguments must contain the edges of calendar windows (when they begin and end), and the family (set) of the Lua
// files.
func (s *Store) arguments(items []item, mode int) (keys []string, args []any, edges []edged, needs family) {
	width := 6
	for i := range items {
		if items[i].id != 0 {
			mode, width = mode|withReceipts, 8
		}
		if items[i].warmup != "" {
			mode |= withWarmup
		}
	}
	keys = make([]string, len(items), 2*len(items)+1)
	args = make([]any, 0, 4+width*len(items))
	args = append(args, s.env(), mode)
	for i := range items {
		it := &items[i]
		needs |= familyOf[it.kind]
		keys[i] = it.key.text
		if it.frame != "" {
			needs |= frames
			edges = addEdges(edges, it, i+1, len(args)+4)
		}
		if it.warmup == "" {
			args = append(args, string(it.kind), it.n, flag(it.shadow), it.gain, it.length(), it.burst)
		} else {
			needs |= warms
			args = append(args, it.letter(), it.n, flag(it.shadow), it.gain, it.length(), it.warmup)
		}
		if mode&withReceipts != 0 {
			args = append(args, strconv.FormatUint(it.id, 10), it.term)
			keys = append(keys, receiptsKey(it.key.text))
		}
	}
	keys, args, penalties := addPenalties(items, mode, keys, args)
	return keys, args, edges, needs | penalties
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// defaultPad is how long the server keeps a key after the state of the key is no longer needed.
const defaultPad = time.Second
