package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// tiers finds, for each state whose rule has tiers, the rate with which the state was written. The stored value of a bucket
// contains this rate. The value of a window does not contain it, so such a state keeps the rate of its rule.
func (w *watch) tiers(ctx context.Context, states []redisstore.Stored) error {
	var at []int
	for i := range states {
		if r, ok := w.rule(&states[i]); ok && len(r.Tiers) > 0 && !r.Algorithm.Windowed() {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	values := make([]*redis.StringCmd, len(at))
	err := w.within(ctx, func(ctx context.Context) error {
		_, err := w.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, j := range at {
				values[i] = p.Get(ctx, states[j].Name)
			}
			return nil
		})
		var reply redis.Error
		if errors.As(err, &reply) { // a key has gone, or has a value of another type
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, j := range at {
		r, _ := w.rule(&states[j])
		for _, rate := range r.Tiers {
			if rate != ratelimit.Unlimited && isRateOf(values[i].Val(), rate) {
				states[j].Ask.Rate = rate
			}
		}
	}
	return nil
}

// isRateOf reports whether the value of a bucket begins with the numbers of the given rate. These are the two numbers of a
// fraction, which says how many tokens drain in a microsecond, and the burst.
func isRateOf(value string, r ratelimit.Rate) bool {
	fields := strings.Fields(value)
	if len(fields) < 3 {
		return false
	}
	var numbers [3]int64
	for i := range numbers {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || n <= 0 {
			return false
		}
		numbers[i] = n
	}
	gain, unit, burst := numbers[0], numbers[1], numbers[2]
	want := int64(r.Burst)
	if r.Burst == 0 {
		want = int64(r.Requests)
	}
	requests, micros := int64(r.Requests), r.Per.Microseconds()
	divisor := gcd(requests, micros)
	return burst == want && gain == requests/divisor && unit == micros/divisor && r.Per%time.Microsecond == 0
}

// gcd returns the greatest common divisor of two numbers above 0.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
