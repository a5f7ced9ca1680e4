package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A routing says which keys may be decided together, by one script.
type routing uint8

const (
	toOne  routing = iota // all keys: there is one server
	bySlot                // the keys of one slot of a cluster
	byTag                 // the keys with the same hash tag, because the kind of the client is unknown
)

func routingOf(client redis.UniversalClient) routing {
	switch client.(type) {
	case *redis.Client:
		return toOne
	case *redis.ClusterClient:
		return bySlot
	}
	return byTag
}

// parts divides the items (requests for units of one key each) into groups, so that one script can decide each
// group. Each group is a list of indexes into the slice items.
func (r routing) parts(items []item) [][]int {
	var parts [][]int
	known := make(map[string]int, 1)
	for i := range items {
		where := r.where(items[i].key)
		at, ok := known[where]
		if !ok {
			at = len(parts)
			known[where] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], i)
	}
	return parts
}

// The method where returns a text that says where the key k is. If it returns the same text for two keys,
// one script may decide both.
func (r routing) where(k key) string {
	switch r {
	case bySlot:
		return strconv.Itoa(slot(k.tag))
	case byTag:
		return k.tag
	}
	return ""
}

// Part returns the number of the part of the store that holds the state of the ask. In a Cluster, a part
// is 256 adjacent slots; otherwise the whole store is part 0. A part can fail while the rest of the store
// still answers; see [ratelimit.Store].
func (s *Store) Part(a ratelimit.Ask) int {
	if s == nil || s.routing != bySlot {
		return 0
	}
	return partOf(s.keyOf(&a))
}

// partOf returns the number of the part of a Cluster (256 adjacent slots) that holds the key k.
func partOf(k key) int { return slot(k.tag) / 256 }

// A partial is the error of a decision that failed because parts of a Cluster have failed. It names these
// parts; the other parts may still work.
type partial struct {
	error
	parts []int
}

// Parts returns the parts that have failed; see [ratelimit.Store].
func (p *partial) Parts() []int { return p.parts }

// Unwrap returns the error of the first part that has failed.
func (p *partial) Unwrap() error { return p.error }

// joinFailures joins the errors of several calls. errs[i] is the error of the call for the items at the
// indexes in parts[i]. joinFailures returns nil if no call failed, and the error of ctx if ctx has ended.
// Otherwise it returns a partial that names the failed parts of the Cluster and wraps the first of their
// errors. If the method Answered of an error returns true, the server of that part works although the call
// failed. Parts with such errors are named only if no part has another error.
func joinFailures(ctx context.Context, errs []error, items []item, parts [][]int) error {
	var failed, answered partial
	for i, err := range errs {
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return &leftParts{ctx.Err(), errs, items, parts}
		}
		p := &failed
		if e := (*Error)(nil); errors.As(err, &e) && e.Answered() {
			p = &answered
		}
		if p.error == nil {
			p.error = err
		}
		p.parts = append(p.parts, partOf(items[parts[i][0]].key))
	}
	switch {
	case failed.error != nil:
		return &failed
	case answered.error != nil:
		return &answered
	}
	return nil
}

// A leftParts is the error of a caller whose context ended while its calls for several parts of a Cluster
// were under way. It keeps the arguments of joinFailures, because its method Later joins the errors of these
// calls after they have ended.
type leftParts struct {
	error
	errs  []error
	items []item
	parts [][]int
}

// Unwrap returns the error of the caller's context.
func (e *leftParts) Unwrap() error { return e.error }

// Later calls the function f when all calls have ended. It passes the joined error of the calls, or nil if
// none failed. If a call was never made, and no other call failed, it passes the error of the caller's context.
func (e *leftParts) Later(f func(error)) {
	var open atomic.Int64
	open.Store(int64(len(e.errs)))
	ended := func(i int, err error) {
		e.errs[i] = err
		if open.Add(-1) > 0 {
			return
		}
		var unknown error
		for i, err := range e.errs {
			if errors.Is(err, e.error) { // this call was never made, so its error does not show whether this part of the Cluster works
				e.errs[i], unknown = nil, e.error
			}
		}
		if err = joinFailures(context.Background(), e.errs, e.items, e.parts); err == nil {
			err = unknown
		}
		f(err)
	}
	for i, err := range e.errs {
		if later := (*leftError)(nil); errors.As(err, &later) {
			later.Later(func(err error) { ended(i, err) })
		} else {
			ended(i, err)
		}
	}
}

// inParallel calls the function do once for each number from 0 to n-1, all at the same time in separate
// goroutines, and waits until all calls have ended.
func inParallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := 1; i < n; i++ {
		all.Go(func() { do(i) })
	}
	if n > 0 {
		do(0)
	}
	all.Wait()
}

// takeInSeveral decides items that are in several slots. It runs one script for each group of items; parts
// contains the groups. If a script denies its items or fails, takeInSeveral gives back the units that the
// other scripts have charged. The parameter mode is 0, or rehearsing for a dry run that charges nothing.
func (s *Store) takeInSeveral(ctx context.Context, items []item, parts [][]int, mode int) ([]ratelimit.Result, error) {
	answers := make([]answer, len(items))
	errs := make([]error, len(parts))
	inParallel(len(parts), func(i int) {
		some := make([]item, len(parts[i]))
		for j, place := range parts[i] {
			some[j] = items[place]
		}
		var got []answer
		var reply any
		if reply, errs[i] = s.take(ctx, some, mode|returnable); errs[i] == nil {
			got, errs[i] = answersIn(reply, len(some), true)
		}
		for j := range got {
			answers[parts[i][j]] = got[j]
		}
	})
	err := joinFailures(ctx, errs, items, parts)
	passes := err == nil
	for i := range answers {
		passes = passes && (items[i].shadow || answers[i].granted)
	}
	if passes && mode != rehearsing {
		err = s.keepHolds(ctx, items, answers, parts)
		passes = err == nil
	}
	if !passes && mode != rehearsing {
		s.giveBack(ctx, items, answers, parts)
	}
	if err != nil {
		return nil, err
	}
	results := make([]ratelimit.Result, len(items))
	for i := range answers {
		a := &answers[i]
		if !passes {
			a.left, a.reset = a.leftBefore, a.resetBefore
		}
		results[i] = a.result(items[i].limit)
	}
	return results, nil
}

// errHeldTooShort is the error of a decision about requests in flight whose keys are in several slots. At first,
// each slot counts the request as in flight for only a second. This second was over before all slots had granted the
// request.
var errHeldTooShort = errors.New("the decision took longer than a second, so what it holds in flight is over")

// keepHolds is called when all slots have granted a request. A hold counts the request as in flight for a rule.
// At first, each hold lasts for only a second: if another slot denies the request, and this process ends before
// it can end the holds, they soon run out. keepHolds makes the holds in answers last for the Per of their rates.
func (s *Store) keepHolds(ctx context.Context, items []item, answers []answer, parts [][]int) error {
	if !slices.ContainsFunc(items, func(it item) bool { return it.kind == 'h' }) {
		return nil
	}
	errs := make([]error, len(parts))
	inParallel(len(parts), func(i int) {
		call := s.newSettlement(len(parts[i]))
		for _, place := range parts[i] {
			if it := &items[place]; it.kind == 'h' && answers[place].charged() {
				call.addHold(it, it.n, it.n)
			}
		}
		if errs[i] = call.run(ctx, s.conn); errors.Is(errs[i], ratelimit.ErrSettled) {
			errs[i] = newError(ClassTimeout, errHeldTooShort)
		}
	})
	return joinFailures(ctx, errs, items, parts)
}

// giveBack gives back charges that a decision in several slots has made for nothing, for example because
// another slot denied the request. The parameter answers says which items were charged. The units are given
// back even if ctx has ended. If the call to a slot fails, the units in this slot stay charged.
func (s *Store) giveBack(ctx context.Context, items []item, answers []answer, parts [][]int) {
	ctx = context.WithoutCancel(ctx)
	inParallel(len(parts), func(i int) {
		call := s.newSettlement(len(parts[i]))
		for _, place := range parts[i] {
			if a := &answers[place]; a.charged() {
				call.add(&items[place], items[place].n, 0, a)
			}
		}
		_ = call.run(ctx, s.conn)
	})
}
