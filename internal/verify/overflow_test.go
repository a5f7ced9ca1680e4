package verify

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A crowd is a limiter that is asked for more keys than it has slots, with what each key
// was granted.
type crowd struct {
	algorithm algorithm
	limiter   limiter
	clock     *manualClock
	rate      ratelimit.Rate
	granted   map[string]*oracle

	victim  ratelimittest.Model // model of the key that was asked for first
	tracked bool                // whether that key has kept its slot ever since
	victims int                 // number of answers for it that were compared
}

const victim = "victim"

// ask asks for n units of key. If key is the victim, it compares the answer.
func (c *crowd) ask(t require.TestingT, key string, n int) ratelimit.Result {
	res, err := c.limiter.Take(context.Background(), key, n)
	require.NoError(t, err)
	now := epoch(c.clock.now)
	if res.Allowed && n > 0 {
		o := c.granted[key]
		if o == nil {
			o = &oracle{rate: c.rate, made: starts[0], fits: c.algorithm.fits}
			c.granted[key] = o
		}
		o.grant(now, rat(n))
	}
	switch {
	case key == victim && c.tracked:
		require.Equal(t, c.victim.Ask(c.clock.now, n), res, "a key that has a slot is not affected by others")
		c.victims++
	case c.victim.Ask(c.clock.now, 0).ResetAfter == 0:
		c.tracked = false // the victim's slot may have been given away
	}
	return res
}

// sound requires that an ask for one unit is granted after RetryAfter if no other came
// first, and denied one nanosecond earlier.
func (c *crowd) sound(t require.TestingT, key string, res ratelimit.Result) {
	now := c.clock.now
	defer func() { c.clock.now = now }()
	c.clock.now = now.Add(res.RetryAfter)
	require.True(t, c.limiter.Peek(key).Allowed, "granted after RetryAfter %d", res.RetryAfter)
	c.clock.now = now.Add(res.RetryAfter - 1)
	require.False(t, c.limiter.Peek(key).Allowed, "denied just before RetryAfter %d", res.RetryAfter)
}

// TestPropertiesOfOverflow asks for more keys than there are slots. No key, with a slot or
// without, may be granted more than a limiter of its own would grant.
func TestPropertiesOfOverflow(t *testing.T) {
	const calls = 60
	each(t, func(t *testing.T, a algorithm) {
		schedules, asks, most, victims := 0, 0, 0, 0
		rapid.Check(t, func(t *rapid.T) {
			c := &crowd{algorithm: a, clock: &manualClock{starts[0]}, granted: make(map[string]*oracle), tracked: true}
			c.rate = rapid.SampledFrom(a.those(oneBurst)).Draw(t, "rate")
			c.victim = a.model(starts[0], c.rate)
			slots := rapid.IntRange(2, 8).Draw(t, "slots")
			others := rapid.IntRange(6, 20).Draw(t, "keys")
			c.limiter = a.start(t, c.rate, ratelimit.WithClock(c.clock), ratelimit.WithMaxKeys(slots))
			c.ask(t, victim, 1)
			for range calls {
				if rapid.IntRange(0, 2).Draw(t, "move") == 0 {
					c.clock.now = c.clock.now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "ns")))
				}
				key := victim
				if k := rapid.IntRange(0, others+3).Draw(t, "key"); k < others {
					key = strconv.Itoa(k)
				}
				n := rapid.IntRange(1, 6).Draw(t, "n")
				res := c.ask(t, key, n)
				if n == 1 && !res.Allowed {
					c.sound(t, key, res)
				}
				require.LessOrEqual(t, c.limiter.Len(), slots)
				most = max(most, c.limiter.Len())
				asks++
			}
			for key, o := range c.granted {
				require.Empty(t, o.broken(a.laws), "%s at %#v, key %q", a.name, c.rate, key)
			}
			schedules, victims = schedules+1, victims+c.victims
		})
		t.Logf("%s: %d schedules, %d asks, %d of them for a victim; worst excess 0, differences for the victim 0", a.name, schedules, asks, victims)
		require.GreaterOrEqual(t, schedules, wantChecks())
	})
}

// TestPropertiesOfOverflowUnderAClockThatStepsBack does the same with a clock that also
// steps back. The bound of a key then holds from its earliest reading to the latest reading
// of any key.
func TestPropertiesOfOverflowUnderAClockThatStepsBack(t *testing.T) {
	for _, a := range []algorithm{algorithms[0], algorithms[4]} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				r := rapid.SampledFrom(a.those(oneBurst)).Draw(t, "rate")
				clock := &manualClock{starts[0]}
				l := a.start(t, r, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(rapid.IntRange(1, 4).Draw(t, "slots")))
				taken := make(map[string]int)
				earliest, latest := int64(math.MaxInt64), int64(0)
				for range stepsEach {
					clock.now = starts[0].Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "ns")))
					key := strconv.Itoa(rapid.IntRange(0, 7).Draw(t, "key"))
					taken[key] += greedy2(t, l, key)
					now := int64(clock.now.Sub(starts[0]))
					earliest, latest = min(earliest, now), max(latest, now)
				}
				for key, n := range taken {
					earned := (latest - earliest) * int64(r.Requests) / int64(r.Per)
					require.LessOrEqual(t, int64(n), int64(r.Burst)+earned, "%#v, key %q", r, key)
				}
			})
		})
	}
}

// greedy2 takes all units of key, in two asks.
func greedy2(t require.TestingT, l limiter, key string) (taken int) {
	for _, n := range []int{(l.Peek(key).Remaining + 1) / 2, l.Peek(key).Remaining / 2} {
		res, err := l.Take(context.Background(), key, n)
		require.NoError(t, err)
		if res.Allowed {
			taken += n
		}
	}
	return taken
}

// TestOverflowIsInherited fills the only slot, lets another key use up what keys without a
// slot share, and frees the slot. The other key gets the slot, but nothing more; the key
// that was reset is as good as new.
func TestOverflowIsInherited(t *testing.T) {
	for _, a := range algorithms {
		r := a.rate(ratelimit.Rate{Requests: 4, Per: time.Hour, Burst: 4})
		clock := &manualClock{time.Unix(0, 0)}
		l := a.start(t, r, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		require.Equal(t, 4, greedy(t, l, "holder"), a.name)
		require.Equal(t, 4, greedy(t, l, "other"), "%s: keys without a slot share a whole limit", a.name)
		require.Equal(t, 0, greedy(t, l, "third"), "%s: keys without a slot share the limit only once", a.name)
		require.Equal(t, 0, greedy(t, l, "holder"), a.name)

		require.NoError(t, l.Reset("holder"))
		require.Equal(t, 4, l.Peek("holder").Remaining, "%s: a key that is reset owes nothing of what others share", a.name)
		require.Equal(t, 0, greedy(t, l, "other"), "%s: a key owes what it shared", a.name)
		require.Equal(t, 1, l.Len(), a.name)

		clock.now = clock.now.Add(l.Peek("other").RetryAfter)
		require.True(t, l.Allow("other").Allowed, "%s: a key owes no more than what it shared", a.name)
		require.LessOrEqual(t, l.Peek("holder").Remaining, 4, a.name)

		l = a.start(t, r, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		require.Equal(t, 4, greedy(t, l, "holder"), a.name)
		for range 3 {
			require.True(t, l.Allow("other").Allowed, a.name)
		}
		require.NoError(t, l.Reset("holder"))
		require.True(t, l.Allow("other").Allowed, "%s: the fourth of four units, with which the key gets the slot", a.name)
		require.Equal(t, 0, l.Peek("other").Remaining, "%s: the slot holds what the key shared before", a.name)
	}
}

// TestNewcomersAreNotLockedOut floods a full table whose keys all stay in debt. A new key
// must be told how long to wait and then get its unit, again and again.
func TestNewcomersAreNotLockedOut(t *testing.T) {
	for _, a := range algorithms {
		r := a.rate(ratelimit.Rate{Requests: 10, Per: time.Minute, Burst: 10})
		clock := &manualClock{time.Unix(0, 0)}
		l := a.start(t, r, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(4))
		served := 0
		for i := range 1000 {
			for k := range 4 {
				greedy(t, l, fmt.Sprint("tracked", k))
			}
			newcomer := fmt.Sprint("newcomer", i)
			res := l.Allow(newcomer)
			if !res.Allowed {
				require.LessOrEqual(t, res.RetryAfter, 2*r.Per, a.name)
				clock.now = clock.now.Add(res.RetryAfter)
				require.True(t, l.Allow(newcomer).Allowed, "%s: newcomer %d", a.name, i)
			}
			served++
		}
		t.Logf("%s: %d newcomers, all served, within %v of the clock", a.name, served, clock.now.Sub(time.Unix(0, 0)))
	}
}

// TestOverflowOfALogKeepsItsEntries frees a slot while keys without one share three entries
// of different ages. A key that is then denied must be told when the oldest entry leaves,
// as if the slot were still taken.
func TestOverflowOfALogKeepsItsEntries(t *testing.T) {
	clock := &manualClock{starts[0]}
	l := algorithms[2].start(t, ratelimit.Rate{Requests: 3, Per: 10}, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(2))
	at := func(ns time.Duration) { clock.now = starts[0].Add(ns) }
	require.True(t, l.Allow("first").Allowed)
	at(1)
	require.True(t, l.Allow("second").Allowed)
	at(3)
	require.True(t, l.Allow("late").Allowed)
	at(5)
	require.Equal(t, 2, greedy(t, l, "late"))
	require.EqualValues(t, 8, l.Allow("late").RetryAfter, "the shared unit of 3 ns leaves at 13 ns")
	at(10) // the first key is as good as new
	res := l.Allow("late")
	require.False(t, res.Allowed)
	at(13)
	require.True(t, l.Peek("late").Allowed)
	require.EqualValues(t, 3, res.RetryAfter, "asked at 10 ns, granted at 13 ns")
}
