package redisstore

import (
	"context"
	"strconv"
	"sync"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A routing says which keys one script can have.
type routing uint8

const (
	toOne  routing = iota // all: there is one server
	bySlot                // those in one slot of a cluster
	byTag                 // those with the same hash tag: nothing is known of the client
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

// parts returns the places of the units that one script each can decide about.
func (r routing) parts(items []item) [][]int {
	var parts [][]int
	known := make(map[string]int, 1)
	for i := range items {
		where := ""
		switch r {
		case bySlot:
			where = strconv.Itoa(slot(items[i].key.tag))
		case byTag:
			where = items[i].key.tag
		}
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

// Part returns which part of the store has the state of a: of a Cluster, the 256
// slots that it is among; of others, there is one. One part may fail while others
// answer; see [ratelimit.Store].
func (s *Store) Part(a ratelimit.Ask) int {
	if s == nil || s.routing != bySlot {
		return 0
	}
	return partOf(s.keyOf(&a))
}

// partOf returns the part of a Cluster that has k.
func partOf(k key) int { return slot(k.tag) / 256 }

// A partial is the failure of some parts of a Cluster.
type partial struct {
	error
	parts []int
}

// Parts returns which have failed; see [ratelimit.Store].
func (p *partial) Parts() []int { return p.parts }

// Unwrap returns what one of them has failed by.
func (p *partial) Unwrap() error { return p.error }

// failed returns the first of errs, those of calls about parts of units, and says
// which parts have failed; or nil; or the error of ctx if that is over.
func joinFailures(ctx context.Context, errs []error, items []item, parts [][]int) error {
	var p partial
	for i, err := range errs {
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if p.error == nil {
			p.error = err
		}
		p.parts = append(p.parts, partOf(items[parts[i][0]].key))
	}
	if p.error == nil {
		return nil
	}
	return &p
}

// each calls do with 0 to n-1 at once and waits for all.
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

// takeInSeveral decides about units in several slots, a script for each part of them.
// If one of them denies, or fails, what the others have charged is given back.
func (s *Store) takeInSeveral(ctx context.Context, items []item, parts [][]int) ([]ratelimit.Result, error) {
	answers := make([]answer, len(items))
	errs := make([]error, len(parts))
	inParallel(len(parts), func(i int) {
		some := make([]item, len(parts[i]))
		for j, place := range parts[i] {
			some[j] = items[place]
		}
		var got []answer
		var reply any
		if reply, errs[i] = s.take(ctx, some, true); errs[i] == nil {
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
	if !passes {
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

// giveBack gives back what answers say was charged, even if ctx is over. What can
// not be given back stays taken.
func (s *Store) giveBack(ctx context.Context, items []item, answers []answer, parts [][]int) {
	ctx = context.WithoutCancel(ctx)
	inParallel(len(parts), func(i int) {
		var keys []string
		var args []any
		for _, place := range parts[i] {
			if a := &answers[place]; a.charged() {
				keys = append(keys, items[place].key.text)
				args = append(args, string(items[place].kind), items[place].n, a.at, a.before, a.after)
			}
		}
		if len(keys) > 0 {
			_, _ = s.conn.run(ctx, giveBackScript, keys, args)
		}
	})
}
