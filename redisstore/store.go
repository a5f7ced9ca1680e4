package redisstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A Store is a [ratelimit.Store] in Redis or Valkey. Make one with [New].
type Store struct {
	settings
	conn    *conn
	routing routing
	plans   planCache
}

var _ ratelimit.Store = (*Store)(nil)

// New returns a Store that asks client, and asks it nothing yet: the server need
// not be there. Hooks of client do not see the calls: they are made by a copy of it,
// of the same connections, that keeps to [WithTimeout]. The errors match
// [ratelimit.ErrInvalidConfig].
//
// The server must be Redis 6.2 or later, or Valkey. It should have a maxmemory-policy
// of noeviction: a key that is evicted forgets what was used.
func New(client redis.UniversalClient, opts ...Option) (*Store, error) {
	set := newSettings(opts)
	err := set.validate()
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		err = errors.Join(err, &ratelimit.ConfigError{Field: "client", Value: client, Reason: "must not be nil"})
	}
	if err != nil {
		return nil, err
	}
	s := &Store{settings: set, routing: routingOf(client)}
	s.conn = newConn(client, &s.settings)
	return s, nil
}

// Supports returns why the store can not grant r by a, or nil.
func (s *Store) Supports(a ratelimit.Algorithm, r ratelimit.Rate) error {
	_, err := planOf(a, r)
	var field *ratelimit.ConfigError
	if errors.As(err, &field) {
		return fmt.Errorf("%s %s", field.Field, field.Reason)
	}
	return err
}

// Take charges all asks or, in the end, none; see [ratelimit.Store].
//
// It takes at most as long as [WithTimeout] says, and as long again if something
// has to be given back. Its errors match [ratelimit.ErrStore] and are an [*Error],
// or match [ratelimit.ErrInvalidConfig], [ratelimit.ErrInvalidCount] or ctx's.
func (s *Store) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return nil, err
	}
	if len(asks) == 1 {
		return s.takeOne(ctx, &asks[0])
	}
	s.conn.stats.decisions.Add(1)
	items := make([]item, len(asks))
	for i := range asks {
		if items[i], err = s.item(&asks[i]); err != nil {
			return nil, err
		}
	}
	s.conn.denials.forget(asks)
	switch parts := s.routing.parts(items); len(parts) {
	case 0:
		return []ratelimit.Result{}, nil
	case 1:
		return s.takeInOne(ctx, items)
	default:
		return s.takeInSeveral(ctx, items, parts)
	}
}

// Denied answers a without a call, if it is sure to be denied; see [WithDenialCache].
func (s *Store) Denied(a ratelimit.Ask) (res ratelimit.Result, denied bool) {
	if s == nil || s.conn == nil {
		return res, false
	}
	denied = s.conn.denied(&a, &res)
	return res, denied
}

// takeOne decides about one ask, together with those of others for the same key.
func (s *Store) takeOne(ctx context.Context, a *ratelimit.Ask) ([]ratelimit.Result, error) {
	var known ratelimit.Result
	if s.conn.denied(a, &known) {
		return []ratelimit.Result{known}, nil
	}
	if res, granted := s.conn.leases.spend(a); granted {
		s.conn.stats.leaseHits.Add(1)
		return []ratelimit.Result{res}, nil
	}
	s.conn.stats.decisions.Add(1)
	u, err := s.item(a)
	if err != nil {
		return nil, err
	}
	res, err := s.conn.sender(ctx, u.key.text).ask(ctx, &u)
	if err != nil {
		return nil, err
	}
	return []ratelimit.Result{res}, nil
}

// Reset makes the keys of asks as good as new. Its errors are as those of Take.
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
			keys = append(keys, items[j].key.text)
		}
		errs[i] = s.conn.del(ctx, keys)
	})
	return joinFailures(ctx, errs, items, parts)
}

// Close gives back what was taken ahead; see [WithLeases]. The store still works, and
// takes nothing ahead any more. It leaves the client open.
func (s *Store) Close() error {
	if s == nil || s.conn == nil {
		return nil
	}
	return s.conn.leases.close()
}

// begin returns the context of a call that may be made.
func (s *Store) checkContext(ctx context.Context) (context.Context, error) {
	if s == nil || s.conn == nil {
		return nil, &ratelimit.ConfigError{Field: "store", Value: "the zero value", Reason: "must be made by New"}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return ctx, ctx.Err()
}

// A unit is an ask as the script wants it.
type item struct {
	ask *ratelimit.Ask
	key key
	plan
	args   []any // what the scripts for one key are told of the plan
	n      int64
	shadow bool
}

func (s *Store) item(a *ratelimit.Ask) (item, error) {
	if a.N < 0 {
		return item{}, ratelimit.ErrInvalidCount
	}
	p, err := s.plans.planOf(a.Algorithm, a.Rate)
	if err != nil {
		return item{}, err
	}
	// What never fits is all the same to a double.
	n := min(int64(a.N), p.plan.limit+1)
	return item{a, s.keyOf(a), p.plan, p.args, n, a.Shadow}, nil
}

// takeInOne has one script decide.
func (s *Store) takeInOne(ctx context.Context, items []item) ([]ratelimit.Result, error) {
	reply, err := s.take(ctx, items, false)
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

// take runs the script that decides about units, which are in one slot.
func (s *Store) take(ctx context.Context, items []item, returnable bool) (any, error) {
	keys := make([]string, len(items))
	args := make([]any, 0, 2+6*len(items))
	args = append(args, s.env(), flag(returnable))
	var needs family
	for i := range items {
		u := &items[i]
		needs |= familyOf[u.kind]
		keys[i] = u.key.text
		args = append(args, string(u.kind), u.n, flag(u.shadow), u.gain, u.unit, u.burst)
	}
	return s.conn.run(ctx, takeScripts[needs], keys, args)
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// defaultPad is how much longer than necessary a key is kept.
const defaultPad = time.Second
