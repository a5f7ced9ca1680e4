package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// These Warmups give a new key a lower limit, which grows to the full limit. With the Warmup in the variable
// warming, the limit grows during the whole measurement. With the Warmup in the variable grown, the limit is full
// after a microsecond.
var (
	warming = ratelimit.Warmup{From: 1 << 15, Over: 24 * time.Hour}
	grown   = ratelimit.Warmup{From: 1 << 15, Over: time.Microsecond}
)

// held returns the given ask (a request to the store) as a reservation for an hour. Each number i
// gives the reservation a different receipt (the number by which it is settled).
func held(a ratelimit.Ask, i int) ratelimit.Ask {
	a.Receipt, a.HoldFor = uint64(i+2), time.Hour
	return a
}

// The function named "end" settles the given reservation and reports that it used no units. All of its units are then free
// again.
func end(ctx context.Context, s *redisstore.Store, a ratelimit.Ask) error {
	a.Charged, a.N = a.N, 0
	return s.Settle(ctx, []ratelimit.Ask{a})
}

// once calls s.Once with the given ask (a request to the store) and the ID i. The parameter replays says what the
// store must do: return an answer that it has recorded before (true), or make a new decision (false). If the store
// does the other thing, the function returns an error.
func once(ctx context.Context, s *redisstore.Store, a ratelimit.Ask, i int, replays bool) error {
	_, replayed, err := s.Once(ctx, ratelimit.Attempt{Client: a.Client, ID: strconv.Itoa(i), TTL: time.Hour}, []ratelimit.Ask{a})
	if err == nil && replayed != replays {
		err = errors.New("it was not decided as is to be measured")
	}
	return err
}

// inFlight returns a work (a sequence of measured steps) with a single step. The step reserves a unit of a key, and
// then ends the reservation. At that time, the key also has other open reservations. The parameter open is their number.
// Before the step is measured, a call of the step with i = -1 makes these other reservations.
func inFlight(a ratelimit.Algorithm, open int) work {
	ask := an(a, ample, "one key for all "+strconv.Itoa(open))
	name := "HoldAndEnd/" + string(a) + "/" + strconv.Itoa(open)
	return work{name, []step{{"", func(ctx context.Context, s *redisstore.Store, _ string, i int) error {
		if i < 0 {
			for n := range open {
				if err := take(ctx, s, true, held(ask, n)); err != nil {
					return err
				}
			}
		}
		if err := take(ctx, s, true, held(ask, open)); err != nil {
			return err
		}
		return end(ctx, s, held(ask, open))
	}}}}
}

func init() {
	extras = append(extras, inFlight(ratelimit.AlgorithmTokenBucket, 0), inFlight(ratelimit.AlgorithmFixedWindow, 0),
		inFlight(ratelimit.AlgorithmInFlight, 0), inFlight(ratelimit.AlgorithmInFlight, 10), inFlight(ratelimit.AlgorithmInFlight, 10_000))
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmSlidingWindowCounter} {
		of := func(w ratelimit.Warmup) func(key string) ratelimit.Ask {
			return func(key string) ratelimit.Ask {
				u := an(a, ample, key)
				u.Warmup = w
				return u
			}
		}
		for _, kind := range []struct {
			name string
			ask  func(key string) ratelimit.Ask
		}{{"", of(ratelimit.Warmup{})}, {"/young", of(warming)}} {
			extras = append(extras, work{"Receipts/" + string(a) + kind.name, []step{
				{"/take", func(ctx context.Context, s *redisstore.Store, key string, i int) error {
					return take(ctx, s, true, held(kind.ask(key), i))
				}},
				{"/beside", func(ctx context.Context, s *redisstore.Store, key string, _ int) error {
					return take(ctx, s, true, kind.ask(key))
				}},
				{"/settle", func(ctx context.Context, s *redisstore.Store, key string, i int) error {
					return end(ctx, s, held(kind.ask(key), i))
				}},
			}})
		}
		extras = append(extras,
			work{"ID/" + string(a), []step{
				{"/first", func(ctx context.Context, s *redisstore.Store, key string, i int) error {
					return once(ctx, s, an(a, ample, key), i, false)
				}},
				{"/replay", func(ctx context.Context, s *redisstore.Store, key string, i int) error {
					return once(ctx, s, an(a, ample, key), i, true)
				}},
			}},
			work{"WarmUp/" + string(a), []step{
				{"/young", func(ctx context.Context, s *redisstore.Store, key string, _ int) error {
					return take(ctx, s, true, of(warming)("young"+key))
				}},
				{"/grown", func(ctx context.Context, s *redisstore.Store, key string, _ int) error {
					return take(ctx, s, true, of(grown)("grown"+key))
				}},
			}})
	}
}
