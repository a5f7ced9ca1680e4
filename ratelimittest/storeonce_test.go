package ratelimittest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// An onceStore is a MemoryStore with one fault.
type onceStore struct {
	*ratelimit.MemoryStore
	once func(ctx context.Context, s *ratelimit.MemoryStore, once ratelimit.Attempt, asks []ratelimit.Ask) ([]ratelimit.Result, bool, error)
}

func (s onceStore) Once(ctx context.Context, once ratelimit.Attempt, asks []ratelimit.Ask) ([]ratelimit.Result, bool, error) {
	return s.once(ctx, s.MemoryStore, once, asks)
}

// onceTelling returns a store that changes what the MemoryStore is told.
func onceTelling(change func(once *ratelimit.Attempt, asks []ratelimit.Ask)) onceStore {
	return onceStore{once: func(
		ctx context.Context, s *ratelimit.MemoryStore, once ratelimit.Attempt, asks []ratelimit.Ask,
	) ([]ratelimit.Result, bool, error) {
		change(&once, asks)
		return s.Once(ctx, once, asks)
	}}
}

// onceAnswering returns a store that changes what the MemoryStore answers.
func onceAnswering(change func(results []ratelimit.Result, replayed *bool)) onceStore {
	return onceStore{once: func(
		ctx context.Context, s *ratelimit.MemoryStore, once ratelimit.Attempt, asks []ratelimit.Ask,
	) ([]ratelimit.Result, bool, error) {
		results, replayed, err := s.Once(ctx, once, asks)
		change(results, &replayed)
		return results, replayed, err
	}}
}

// onceMutants are faults of Once that the schedules of the kit must find.
var onceMutants = map[string]onceStore{
	"nothing is kept": {once: func(
		ctx context.Context, s *ratelimit.MemoryStore, _ ratelimit.Attempt, asks []ratelimit.Ask,
	) ([]ratelimit.Result, bool, error) {
		results, err := s.Take(ctx, asks)
		return results, false, err
	}},
	"the client does not matter": onceTelling(func(once *ratelimit.Attempt, _ []ratelimit.Ask) { once.Client = "a" }),
	"the ID does not matter":     onceTelling(func(once *ratelimit.Attempt, _ []ratelimit.Ask) { once.ID = "1" }),
	"the TTL is too long":        onceTelling(func(once *ratelimit.Attempt, _ []ratelimit.Ask) { once.TTL = 366 * 24 * time.Hour }),
	"the TTL is one short": onceTelling(func(once *ratelimit.Attempt, _ []ratelimit.Ask) {
		once.TTL = max(once.TTL-1, time.Microsecond)
	}),
	"a look charges":     onceTelling(func(once *ratelimit.Attempt, _ []ratelimit.Ask) { once.Look = false }),
	"nothing is charged": onceTelling(func(once *ratelimit.Attempt, _ []ratelimit.Ask) { once.Look = true }),
	"the time since is not counted": onceAnswering(func(results []ratelimit.Result, replayed *bool) {
		for i := range results {
			if *replayed && results[i].ResetAfter > 0 {
				results[i].ResetAfter++
			}
		}
	}),
	"it does not say so": onceAnswering(func(_ []ratelimit.Result, replayed *bool) { *replayed = false }),
	"it says so always":  onceAnswering(func(_ []ratelimit.Result, replayed *bool) { *replayed = true }),
	"the order of the asks matters": {once: func(
		ctx context.Context, s *ratelimit.MemoryStore, once ratelimit.Attempt, asks []ratelimit.Ask,
	) ([]ratelimit.Result, bool, error) {
		once.ID += asks[0].Rule + asks[0].Key + string(asks[0].Algorithm)
		return s.Once(ctx, once, asks)
	}},
	"the number of units does not matter": {once: func(
		ctx context.Context, s *ratelimit.MemoryStore, once ratelimit.Attempt, asks []ratelimit.Ask,
	) ([]ratelimit.Result, bool, error) {
		one := append([]ratelimit.Ask(nil), asks...)
		for i := range one {
			one[i].N = 1
		}
		look := once
		look.Look = true
		if results, replayed, err := s.Once(ctx, look, one); replayed {
			return results, replayed, err
		}
		return s.Once(ctx, once, asks)
	}},
}

// TestOnceMutants checks that the kit finds each fault of Once, and none without a fault.
func TestOnceMutants(t *testing.T) {
	for name, m := range onceMutants {
		k := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store {
			m.MemoryStore = s
			return m
		})
		broken := k.run(k.onceKinds()[0])
		require.NotNil(t, broken, name)
		require.Contains(t, broken.String(), "s.Once(ctx, ratelimit.Attempt{", name)
	}
	k := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store { return s })
	require.Nil(t, k.run(k.onceKinds()[0]))
}

// TestOnceSchedules checks that the schedules have requests of all kinds.
func TestOnceSchedules(t *testing.T) {
	k := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store { return s })
	seen := make(map[string]int)
	for i := range 100 {
		start, calls := k.write(k.onceKinds()[0], i)
		models := newModelStore(start, 1, false)
		for _, c := range calls {
			at := start.Add(c.at)
			switch {
			case c.reset:
				models.reset(c.asks)
			case c.once.ID == "":
				models.take(at, c.asks)
			default:
				known := models.grants[onceText(c.once, c.asks)]
				_, replayed := models.once(at, c.once, c.asks)
				switch {
				case replayed && c.once.Look:
					seen["looks at a grant"]++
				case replayed && at.Equal(known.at):
					seen["replays at once"]++
				case replayed:
					seen["replays later"]++
				case known != nil:
					seen["after its time"]++
				}
			}
		}
	}
	for _, kind := range []string{"looks at a grant", "replays at once", "replays later", "after its time"} {
		require.Greater(t, seen[kind], 10, "%v", seen)
	}
}
