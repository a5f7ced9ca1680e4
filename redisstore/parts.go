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
func (r routing) parts(units []unit) [][]int {
	var parts [][]int
	known := make(map[string]int, 1)
	for i := range units {
		where := ""
		switch r {
		case bySlot:
			where = strconv.Itoa(slot(units[i].key.tag))
		case byTag:
			where = units[i].key.tag
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

// each calls do with 0 to n-1 at once and waits for all.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := 1; i < n; i++ {
		all.Go(func() { do(i) })
	}
	if n > 0 {
		do(0)
	}
	all.Wait()
}

// takeApart decides about units in several slots, a script for each part of them.
// If one of them denies, or fails, what the others have charged is given back.
func (s *Store) takeApart(ctx context.Context, units []unit, parts [][]int) ([]ratelimit.Result, error) {
	answers := make([]answer, len(units))
	errs := make([]error, len(parts))
	each(len(parts), func(i int) {
		some := make([]unit, len(parts[i]))
		for j, place := range parts[i] {
			some[j] = units[place]
		}
		var got []answer
		if got, errs[i] = s.take(ctx, some, true); errs[i] == nil {
			for j, place := range parts[i] {
				answers[place] = got[j]
			}
		}
	})
	failed := firstOf(ctx, errs)
	passes := failed == nil
	for i := range answers {
		passes = passes && (units[i].shadow || answers[i].granted)
	}
	if !passes {
		s.giveBack(ctx, units, answers, parts)
	}
	if failed != nil {
		return nil, failed
	}
	results := make([]ratelimit.Result, len(units))
	for i := range answers {
		a := &answers[i]
		if !passes {
			a.left, a.reset = a.leftBefore, a.resetBefore
		}
		results[i] = a.result(units[i].limit)
	}
	return results, nil
}

// giveBack gives back what answers say was charged, even if ctx is over. What can
// not be given back stays taken.
func (s *Store) giveBack(ctx context.Context, units []unit, answers []answer, parts [][]int) {
	ctx = context.WithoutCancel(ctx)
	each(len(parts), func(i int) {
		var keys []string
		var args []any
		for _, place := range parts[i] {
			if a := &answers[place]; a.charged() {
				keys = append(keys, units[place].key.text)
				args = append(args, string(units[place].kind), units[place].n, a.at, a.before, a.after)
			}
		}
		if len(keys) > 0 {
			_, _ = s.conn.run(ctx, giveBackScript, keys, args)
		}
	})
}
