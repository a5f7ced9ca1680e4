package verify

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A mixedCrowd is a rule that is asked for more clients than it has slots. Each client has
// a rate of its own.
type mixedCrowd struct {
	algorithm algorithm
	limiter   *ratelimit.RateLimiter
	clock     *manualClock
	rates     map[string]ratelimit.Rate
	granted   map[string]*oracle

	victim  ratelimittest.Model // model of the client that was asked for first
	tracked bool                // whether that client has kept its slot ever since
	victims int
}

// drawCrowd returns a rule of one algorithm, and the rates of its clients.
func drawCrowd(t *rapid.T, a algorithm, clients int) *mixedCrowd {
	c := &mixedCrowd{
		algorithm: a, clock: &manualClock{starts[0]}, tracked: true,
		rates: make(map[string]ratelimit.Rate), granted: make(map[string]*oracle),
	}
	base := bookRule{Rule: ratelimit.Rule{Name: "r", Endpoint: "/", Algorithm: ratelimit.Algorithm(a.name)}}
	base.Rate = drawRate(t, base.Algorithm)
	names := []string{victim}
	for i := range clients {
		names = append(names, strconv.Itoa(i))
	}
	c.rates = drawTiers(t, base, names)
	base.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
		r, ok := c.rates[req.Client]
		return r, ok
	}
	var err error
	slots := rapid.IntRange(1, 4).Draw(t, "slots")
	c.limiter, err = ratelimit.New([]ratelimit.Rule{base.Rule}, nil, ratelimit.WithClock(c.clock), ratelimit.WithMaxKeys(slots))
	require.NoError(t, err)
	c.victim = a.model(starts[0], c.rates[victim])
	return c
}

// ask asks for n units of a client, or looks if n is 0. If the client is the victim, it
// compares the answer.
func (c *mixedCrowd) ask(t require.TestingT, client string, n int) ratelimit.Result {
	req := ratelimit.Request{Client: client, Endpoint: "/", Cost: n}
	var res ratelimit.Result
	var err error
	if n == 0 {
		res, err = c.limiter.Peek(context.Background(), req)
	} else {
		res, err = c.limiter.Check(context.Background(), req)
	}
	require.NoError(t, err)
	require.GreaterOrEqual(t, res.Remaining, 0)
	require.LessOrEqual(t, res.Remaining, res.Limit)
	if res.Allowed && n > 0 {
		if c.granted[client] == nil {
			c.granted[client] = &oracle{rate: c.rates[client], made: starts[0], fits: c.algorithm.fits}
		}
		c.granted[client].grant(epoch(c.clock.now), rat(n))
	}
	switch {
	case client == victim && c.tracked:
		want := c.victim.Ask(c.clock.now, n)
		want.Rule = "r"
		require.Equal(t, want, res, "a client that has a slot is not affected by others")
		c.victims++
	case c.victim.Ask(c.clock.now, 0).ResetAfter == 0:
		c.tracked = false // the victim's slot may have been given away
	}
	return res
}

// sound requires that an ask for n units is granted after RetryAfter if no other came
// first, and denied one nanosecond earlier.
func (c *mixedCrowd) sound(t require.TestingT, client string, n int, res ratelimit.Result) {
	now := c.clock.now
	defer func() { c.clock.now = now }()
	if res.RetryAfter == ratelimit.Never {
		require.Greater(t, n, res.Limit)
		return
	}
	c.clock.now = now.Add(res.RetryAfter)
	later := c.ask(t, client, 0)
	require.GreaterOrEqual(t, later.Remaining, n, "granted after RetryAfter %d: %+v", res.RetryAfter, later)
	c.clock.now = now.Add(res.RetryAfter - 1)
	earlier := c.ask(t, client, 0)
	require.Less(t, earlier.Remaining, n, "denied just before RetryAfter %d: %+v", res.RetryAfter, earlier)
}

// TestPropertiesOfMixedOverflow asks for more clients than there are slots, each at a rate
// of its own. No client, with a slot or without, may be granted more than its own rate ever
// grants.
func TestPropertiesOfMixedOverflow(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		schedules, asks, victims := 0, 0, 0
		overflowed := uint64(0)
		rapid.Check(t, func(t *rapid.T) {
			clients := rapid.IntRange(3, 10).Draw(t, "clients")
			c := drawCrowd(t, a, clients)
			c.ask(t, victim, 1)
			for range stepsEach {
				if rapid.IntRange(0, 2).Draw(t, "move") == 0 {
					c.clock.now = c.clock.now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "ns")))
				}
				client := victim
				if k := rapid.IntRange(0, clients+1).Draw(t, "client"); k < clients {
					client = strconv.Itoa(k)
				}
				n := rapid.IntRange(1, 6).Draw(t, "n")
				if res := c.ask(t, client, n); !res.Allowed {
					c.sound(t, client, n, res)
				}
				asks++
			}
			for client, o := range c.granted {
				require.Empty(t, o.broken(a.laws), "%s at %#v, client %q", a.name, o.rate, client)
			}
			schedules, victims = schedules+1, victims+c.victims
			overflowed += c.limiter.Stats()[0].Overflowed
		})
		t.Logf("%s: %d schedules, %d asks, %d of them for a victim, %d from shared debts; worst excess 0, differences for the victim 0", a.name, schedules, asks, victims, overflowed)
		require.GreaterOrEqual(t, schedules, wantChecks())
		require.Positive(t, overflowed)
	})
}

// TestPropertiesOfMixedOverflowUnderAClockThatStepsBack does the same with a clock that
// also steps back. The bound of a client of a bucket then holds from the earliest reading
// to the latest.
func TestPropertiesOfMixedOverflowUnderAClockThatStepsBack(t *testing.T) {
	for _, a := range []algorithm{algorithms[0], algorithms[4]} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				c := drawCrowd(t, a, 7)
				c.tracked = false
				taken := make(map[string]int)
				earliest, latest := starts[0].Add(time.Hour), starts[0]
				for range stepsEach {
					c.clock.now = starts[0].Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "ns")))
					client := strconv.Itoa(rapid.IntRange(0, 6).Draw(t, "client"))
					n := c.ask(t, client, 0).Remaining
					if n > 0 && c.ask(t, client, n).Allowed {
						taken[client] += n
					}
					if c.clock.now.Before(earliest) {
						earliest = c.clock.now
					}
					if c.clock.now.After(latest) {
						latest = c.clock.now
					}
				}
				for client, n := range taken {
					o := oracle{rate: c.rates[client]}
					most := add(rat(o.limit()), div(rat(latest.Sub(earliest)), o.perUnit()))
					require.False(t, less(most, rat(n)), "%d units at %#v", n, o.rate)
				}
			})
		})
	}
}
