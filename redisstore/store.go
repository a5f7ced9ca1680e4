package redisstore

import (
	"context"
	"errors"
	"fmt"
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

var _ ratelimit.Store = (*Store)(nil)

// New returns a Store that uses client. It does not contact the server, which need not be
// running yet. The Store makes its calls through a copy of client that shares its
// connections and obeys [WithTimeout]; hooks that were added to client do not see them. The
// errors of New match [ratelimit.ErrInvalidConfig].
//
// A [redis.Ring] is refused: when a server does not answer, it moves the keys of that server to
// others, where every limit starts anew, and moves them back later.
//
// The server must be Redis 6.2 or later, or Valkey. Its maxmemory-policy should be
// noeviction: if the server evicts a key, the units used of that key are forgotten.
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

// Supports returns nil if the store can decide exactly by algorithm a at rate r, and
// otherwise an error that says why it cannot.
func (s *Store) Supports(a ratelimit.Algorithm, r ratelimit.Rate) error {
	_, err := planOf(a, r)
	var field *ratelimit.ConfigError
	if errors.As(err, &field) {
		return fmt.Errorf("%s %s", field.Field, field.Reason)
	}
	return err
}

// Take charges all asks or none, and returns one result for each; see [ratelimit.Store].
// Where the asks are in several slots of a Cluster, a denied decision holds units until
// they have been given back.
//
// Take returns within the time of [WithTimeout], or twice that if it has to give units
// back. An error of the server or of the connection is an [*Error] and matches
// [ratelimit.ErrStore]. Other errors match [ratelimit.ErrInvalidConfig] or
// [ratelimit.ErrInvalidCount], or are the error of ctx.
func (s *Store) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return nil, err
	}
	if len(asks) == 1 && asks[0].Receipt == 0 && asks[0].Warmup == (ratelimit.Warmup{}) {
		return s.takeOne(ctx, &asks[0])
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

// takeAll decides items. mode is 0 or rehearsing.
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

// Denied reports whether a is certain to be denied by what this process remembers of
// earlier denials, and if so returns the result. It makes no call; see [WithDenialCache].
func (s *Store) Denied(a ratelimit.Ask) (res ratelimit.Result, denied bool) {
	if s == nil || s.conn == nil || a.Warmup != (ratelimit.Warmup{}) {
		return res, false
	}
	denied = s.conn.denied(&a, &res)
	return res, denied
}

// takeOne decides one ask, in one call with the asks that other callers make for the same
// key at the same time.
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
	u, err := s.item(a)
	if a.Look && err == nil {
		return s.takeAll(ctx, []item{u}, rehearsing)
	}
	s.conn.stats.decisions.Add(1)
	if err != nil {
		return nil, err
	}
	return s.conn.sender(ctx, u.key.text).ask(ctx, &u)
}

// Reset deletes the states of asks, so that their keys are as good as new. It fails with
// the same errors as [Store.Take].
func (s *Store) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return err
	}
	items := make([]item, len(asks))
	for i := range asks {
		if algorithms[asks[i].Algorithm] == 0 {
			return noAlgorithm(asks[i].Algorithm)
		}
		items[i].key = s.keyOf(&asks[i])
	}
	s.conn.leases.forget(asks)
	defer s.conn.denials.reset(asks)
	parts := s.routing.parts(items)
	errs := make([]error, len(parts))
	inParallel(len(parts), func(i int) {
		var keys []string
		for _, j := range parts[i] {
			keys = append(keys, items[j].key.text, aheadKey(items[j].key.text), receiptsKey(items[j].key.text))
		}
		errs[i] = s.conn.del(ctx, keys)
	})
	return joinFailures(ctx, errs, items, parts)
}

// Close gives back the units that were taken ahead; see [WithLeases]. The store can still
// be used afterwards, but takes no more units ahead. Close does not close the client.
func (s *Store) Close() error {
	if s == nil || s.conn == nil {
		return nil
	}
	return s.conn.leases.close()
}

// checkContext returns ctx, or a background context in place of nil, and an error if no
// call can be made: s is a zero Store, or ctx has ended.
func (s *Store) checkContext(ctx context.Context) (context.Context, error) {
	if s == nil || s.conn == nil {
		return nil, &ratelimit.ConfigError{Field: "store", Value: "the zero value", Reason: "must be made by New"}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return ctx, ctx.Err()
}

// An item is an ask, prepared for the script: its key and its plan.
type item struct {
	ask *ratelimit.Ask
	key key
	*cachedPlan
	n      int64
	shadow bool
	id     uint64 // of the receipt of the charge, or 0
	term   int64  // of the receipt, in microseconds
	warmup string // the numbers of a key that warms up, see warmup.lua; otherwise empty
}

func (s *Store) item(a *ratelimit.Ask) (item, error) {
	if a.N < 0 {
		return item{}, ratelimit.ErrInvalidCount
	}
	p, err := s.plans.planOf(a.Algorithm, a.Rate)
	if err != nil {
		return item{}, err
	}
	// An ask for more than the limit never fits. One more than the limit says the same, and
	// is a number that a double holds.
	n := min(int64(a.N), p.limit+1)
	if err := checkTerm(a); err != nil {
		return item{}, err
	}
	if err := checkWarmup(a); err != nil {
		return item{}, err
	}
	u := item{a, s.keyOf(a), p, n, a.Shadow, a.Receipt, a.Term.Microseconds(), warmupOf(a, p.burst)}
	if a.Look {
		u.id = 0 // no charge is made
	}
	return u, nil
}

// takeInOne decides items, which are in one slot, by one script.
func (s *Store) takeInOne(ctx context.Context, items []item, mode int) ([]ratelimit.Result, error) {
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
	results := make([]ratelimit.Result, len(items))
	for i := range answers {
		results[i] = answers[i].result(items[i].limit)
	}
	return results, nil
}

// What a script that decides several asks is told beside them, as a sum.
const (
	returnable   = 1  // its reply must have what is needed to give the charges back
	withReceipts = 2  // there are receipts among the asks
	denied       = 4  // they are denied elsewhere: none is charged
	looking      = 8  // nothing must change; denied is set too
	withWarmup   = 16 // there are keys that warm up
	rehearsing   = 32 // it writes nothing, and answers as if it did
)

// take runs the script that decides items, which are in one slot, and returns its reply. mode is a
// sum of the numbers above without withReceipts and withWarmup.
func (s *Store) take(ctx context.Context, items []item, mode int) (any, error) {
	keys, args, needs := s.arguments(items, mode)
	return s.conn.run(ctx, takeScripts[needs], keys, args)
}

// arguments returns the keys and the arguments of the script that decides items, and which
// families it needs.
func (s *Store) arguments(items []item, mode int) (keys []string, args []any, needs family) {
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
		u := &items[i]
		needs |= familyOf[u.kind]
		keys[i] = u.key.text
		if u.warmup == "" {
			args = append(args, string(u.kind), u.n, flag(u.shadow), u.gain, u.unit, u.burst)
		} else {
			needs |= warms
			args = append(args, u.letter(), u.n, flag(u.shadow), u.gain, u.unit, u.warmup)
		}
		if mode&withReceipts != 0 {
			args = append(args, strconv.FormatUint(u.id, 10), u.term)
			keys = append(keys, receiptsKey(u.key.text))
		}
	}
	return keys, args, needs
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// defaultPad is how much longer than necessary the server keeps a key.
const defaultPad = time.Second
