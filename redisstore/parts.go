package redisstore

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A routing says which keys one script may decide together.
type routing uint8

const (
	toOne  routing = iota // all keys: there is one server
	bySlot                // the keys of one slot of a cluster
	byTag                 // the keys with the same hash tag: the client is of an unknown kind
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

// parts divides items into groups that one script each can decide. A group is a list of
// indexes of items.
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

// where returns a text that is the same for keys that one script may decide together.
func (r routing) where(k key) string {
	switch r {
	case bySlot:
		return strconv.Itoa(slot(k.tag))
	case byTag:
		return k.tag
	}
	return ""
}

// Part returns the number of the part of the store that holds the state of a. In a Cluster,
// a part is 256 adjacent slots. Otherwise the whole store is part 0. One part may fail
// while the others still answer; see [ratelimit.Store].
func (s *Store) Part(a ratelimit.Ask) int {
	if s == nil || s.routing != bySlot {
		return 0
	}
	return partOf(s.keyOf(&a))
}

// partOf returns the part of a Cluster that holds k.
func partOf(k key) int { return slot(k.tag) / 256 }

// A partial is an error that says which parts of a Cluster have failed.
type partial struct {
	error
	parts []int
}

// Parts returns the parts that have failed; see [ratelimit.Store].
func (p *partial) Parts() []int { return p.parts }

// Unwrap returns the error of the first part that has failed.
func (p *partial) Unwrap() error { return p.error }

// joinFailures returns nil if none of errs is an error. If ctx has ended, it returns one that
// matches the error of ctx, and otherwise the first of errs as a partial that names all parts
// that have failed. A part that has answered with an error has failed only if all have answered.
// The i-th error is that of the call about parts[i], which are indexes of items.
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

// A leftParts is the error of the context of a caller that has left its calls about parts. The
// other fields are what joinFailures was called with.
type leftParts struct {
	error
	errs  []error
	items []item
	parts [][]int
}

// Unwrap returns the error of the context.
func (e *leftParts) Unwrap() error { return e.error }

// Later calls f when all calls have ended; see [leftError.Later].
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
			if errors.Is(err, e.error) { // it was never made, and says nothing of its part
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

// inParallel calls do with 0 to n-1, each in its own goroutine, and waits for all of them.
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

// takeInSeveral decides items that are in several slots, by one script for each of parts.
// If one of the scripts denies or fails, it gives back what the others have charged. mode is 0 or
// rehearsing.
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

// giveBack gives back the charges that answers report, even if ctx has ended. What cannot
// be given back stays charged.
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
