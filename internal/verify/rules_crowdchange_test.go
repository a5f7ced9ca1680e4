package verify

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// TestPropertiesOfMixedOverflowWithChanges asks for more clients than there are slots. Each
// client stays in its tier, while the rates of tiers change. No bucket may grant a client
// more in any interval than its burst and what the rates of its tier earn in it. That also
// holds for clients that share a debt, among whom a change may make another client the
// slowest.
func TestPropertiesOfMixedOverflowWithChanges(t *testing.T) {
	for _, a := range []algorithm{algorithms[0], algorithms[4]} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			schedules, changes, overflowed := 0, 0, uint64(0)
			rapid.Check(t, func(t *rapid.T) {
				c := newTierCrowd(t, a)
				for range stepsEach {
					if rapid.IntRange(0, 2).Draw(t, "move") == 0 {
						c.clock.now = c.clock.now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "ns")))
					}
					c.take(t, rapid.IntRange(0, 5).Draw(t, "client"), rapid.IntRange(1, 4).Draw(t, "n"))
					if rapid.IntRange(0, 7).Draw(t, "change") == 7 {
						c.change(t)
						changes++
					}
				}
				for _, l := range c.ledgers {
					require.Empty(t, l.broken(), "%s, rates %v", a.name, l.rates)
				}
				schedules++
				overflowed += c.limiter.Stats()[0].Overflowed
			})
			t.Logf("%s: %d schedules, %d changes, %d asks from shared debts; worst excess 0", a.name, schedules, changes, overflowed)
			require.Positive(t, overflowed)
		})
	}
}

// A tierCrowd is a rule with more clients than slots. Each client is in a tier.
type tierCrowd struct {
	limiter *ratelimit.RateLimiter
	clock   *manualClock
	rule    ratelimit.Rule
	ledgers map[int]*ledger
}

// crowdTiers are the tiers of clients, in rotation. No rule knows the first of them.
var crowdTiers = []string{"", "free", "paid"}

func newTierCrowd(t *rapid.T, a algorithm) *tierCrowd {
	c := &tierCrowd{clock: &manualClock{starts[0]}, ledgers: make(map[int]*ledger)}
	c.rule = ratelimit.Rule{Name: "r", Endpoint: "/", Algorithm: ratelimit.Algorithm(a.name)}
	c.draw(t)
	slots := rapid.IntRange(1, 3).Draw(t, "slots")
	var err error
	c.limiter, err = ratelimit.New([]ratelimit.Rule{c.rule}, nil, ratelimit.WithClock(c.clock), ratelimit.WithMaxKeys(slots))
	require.NoError(t, err)
	return c
}

// draw gives the rule new rates, some of which may be equal.
func (c *tierCrowd) draw(t *rapid.T) {
	rate := rapid.SampledFrom([]ratelimit.Rate{oneBurst[0], oneBurst[1], oneBurst[2], oneBurst[4]})
	c.rule.Rate = rate.Draw(t, "rate")
	c.rule.Tiers = map[string]ratelimit.Rate{"free": rate.Draw(t, "free"), "paid": rate.Draw(t, "paid")}
}

// rateOf returns the rate of a client.
func (c *tierCrowd) rateOf(client int) ratelimit.Rate {
	return bookRule{Rule: c.rule}.plan(ratelimit.Request{Tier: crowdTiers[client%3]}).rate
}

// take takes n units for a client, if they are available.
func (c *tierCrowd) take(t require.TestingT, client, n int) {
	req := ratelimit.Request{Client: strconv.Itoa(client), Tier: crowdTiers[client%3], Endpoint: "/", Cost: n}
	res, err := c.limiter.Check(context.Background(), req)
	require.NoError(t, err)
	if !res.Allowed {
		return
	}
	l := c.ledgers[client]
	if l == nil {
		l = &ledger{bucket: true, rates: []ratesince{{epoch(c.clock.now), c.rateOf(client), rat(0)}}}
		c.ledgers[client] = l
	}
	l.grants = append(l.grants, grant{at: epoch(c.clock.now), n: rat(n)})
	l.bursts = append(l.bursts, res.Limit)
}

// change changes the rates.
func (c *tierCrowd) change(t *rapid.T) {
	look := func(client int) ratelimit.Result {
		req := ratelimit.Request{Client: strconv.Itoa(client), Tier: crowdTiers[client%3], Endpoint: "/"}
		res, err := c.limiter.Peek(context.Background(), req)
		require.NoError(t, err)
		return res
	}
	before := make(map[int]ratelimit.Result)
	for client := range c.ledgers {
		before[client] = look(client)
	}
	c.draw(t)
	require.NoError(t, c.limiter.Replace([]ratelimit.Rule{c.rule}, nil))
	for client, l := range c.ledgers {
		gift, is := rat(0), look(client)
		if before[client].ResetAfter == 0 && is.ResetAfter == 0 {
			gift = rat(max(is.Limit-before[client].Limit, 0))
		}
		l.rates = append(l.rates, ratesince{epoch(c.clock.now), c.rateOf(client), gift})
	}
}
