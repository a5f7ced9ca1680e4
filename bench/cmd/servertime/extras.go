package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// warming is a Warmup that lasts for longer than the measurement, and grown one that is over at once.
var (
	warming = ratelimit.Warmup{From: 1 << 15, Over: 24 * time.Hour}
	grown   = ratelimit.Warmup{From: 1 << 15, Over: time.Microsecond}
)

// held returns a, with a receipt the number of which follows from i.
func held(a ratelimit.Ask, i int) ratelimit.Ask {
	a.Receipt, a.Term = uint64(i+2), time.Hour
	return a
}

// end gives back the charge of a.
func end(ctx context.Context, s *redisstore.Store, a ratelimit.Ask) error {
	a.Was, a.N = a.N, 0
	return s.Settle(ctx, []ratelimit.Ask{a})
}

// once asks for a unit of the state of key by the i-th ID.
func once(ctx context.Context, s *redisstore.Store, a ratelimit.Ask, i int, replays bool) error {
	_, replayed, err := s.Once(ctx, ratelimit.Once{Client: a.Client, ID: strconv.Itoa(i), TTL: time.Hour}, []ratelimit.Ask{a})
	if err == nil && replayed != replays {
		err = errors.New("it was not decided as is to be measured")
	}
	return err
}

func init() {
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
