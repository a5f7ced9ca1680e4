package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// The constant settlements is how many reservations are settled for each line of the output.
const settlements = 1000

// The variable places lists ways to choose which reservation of a key is settled next. The function pick
// returns the index of one of n open reservations. The oldest of them has the index 0.
var places = []struct {
	name string
	pick func(n int) int
}{
	{"oldest", func(int) int { return 0 }},
	{"newest", func(n int) int { return n - 1 }},
	{"middle", func(n int) int { return n / 2 }},
	{"random", rand.IntN},
}

// A crowd is a key with many open reservations, and the times of the Settle calls for it. The
// output has one line for each crowd.
type crowd struct {
	store *redisstore.Store
	ask   ratelimit.Ask
	open  []int // the numbers of the open reservations, the oldest first
	made  int   // how many reservations were made so far

	name  string          // the name of the line in the output
	size  int             // how many reservations are open before each Settle
	pick  func(n int) int // returns which reservation is settled next: its index among the n open ones
	times []int64         // how long the server has worked on each Settle, in nanoseconds
	sum   int64           // the sum of times, in nanoseconds
}

// fill makes reservations until n are open.
func (c *crowd) fill(ctx context.Context, n int) error {
	for len(c.open) < n {
		if err := take(ctx, c.store, true, held(c.ask, c.made)); err != nil {
			return err
		}
		c.open = append(c.open, c.made)
		c.made++
	}
	return nil
}

// settle settles the open reservation with the index i.
func (c *crowd) settle(ctx context.Context, i int) error {
	err := end(ctx, c.store, held(c.ask, c.open[i]))
	c.open = slices.Delete(c.open, i, i+1)
	return err
}

// measureOpen prints how long the server takes for a call of Settle, first for a key with one open
// reservation, and then for keys with n open reservations. It measures the algorithms for which the name
// "Open/algorithm" contains the text in the parameter lines. The keys take turns, so that other work of the
// machine slows all of them alike.
func measureOpen(ctx context.Context, out io.Writer, client *redis.Client, store *redisstore.Store, lines string, n int) error {
	for _, a := range all {
		name := "Open/" + string(a)
		if !strings.Contains(name, lines) {
			continue
		}
		crowds := []*crowd{{store: store, ask: an(a, ample, name), name: name + "/one", size: 1, pick: places[0].pick}}
		for _, place := range places {
			crowds = append(crowds, &crowd{
				store: store, ask: an(a, ample, name+place.name), name: fmt.Sprintf("%s/%d/%s", name, n, place.name), size: n, pick: place.pick,
			})
		}
		for range settlements {
			for _, c := range crowds {
				if err := c.measure(ctx, client); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
		}
		one := crowds[0].median()
		for _, c := range crowds {
			median := c.median()
			fmt.Fprintf(out, "Benchmark%s %d %d ns/op %d mean-ns %.2f x-one\n",
				c.name, settlements, median, c.sum/settlements, float64(median)/float64(one))
		}
	}
	return nil
}

// measure makes reservations until c.size of them are open, and settles one of them. It records how long
// the server's script took for this Settle.
func (c *crowd) measure(ctx context.Context, client *redis.Client) error {
	if err := c.fill(ctx, c.size); err != nil {
		return err
	}
	before, err := scripts(ctx, client)
	if err != nil {
		return err
	}
	if err = c.settle(ctx, c.pick(len(c.open))); err != nil {
		return err
	}
	after, err := scripts(ctx, client)
	if err != nil {
		return err
	}
	c.times = append(c.times, 1000*(after-before))
	c.sum += 1000 * (after - before)
	return nil
}

// median returns the median time of a Settle, in nanoseconds.
func (c *crowd) median() int64 {
	slices.Sort(c.times)
	return c.times[len(c.times)/2]
}
