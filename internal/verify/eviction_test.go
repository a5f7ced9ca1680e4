package verify

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// A pair keeps the same keys in two ways: in one limiter, whose table keeps forgetting some
// of them, and in a separate limiter for each key, which never forgets.
type pair struct {
	algorithm algorithm
	clock     *manualClock
	rate      ratelimit.Rate
	crowded   limiter
	alone     map[string]limiter
	noise     int // number of further keys, which crowd the table
}

// own returns the separate limiter of key.
func (p *pair) own(t require.TestingT, key string) limiter {
	if p.alone[key] == nil {
		// It is made at the instant at which the crowded limiter was made, and from then on
		// reads the same clock.
		p.alone[key] = p.algorithm.start(t, p.rate, ratelimit.WithClock(&sinceStart{p.clock, false}))
	}
	return p.alone[key]
}

// A sinceStart is a clock whose first reading is starts[0]. All other readings are those of
// another clock.
type sinceStart struct {
	*manualClock
	read bool
}

func (c *sinceStart) Now() time.Time {
	if !c.read {
		c.read = true
		return starts[0]
	}
	return c.manualClock.Now()
}

// ask asks both limiters for n units, and compares the answers.
func (p *pair) ask(t require.TestingT, key string, n int) ratelimit.Result {
	want, err := p.own(t, key).Take(context.Background(), key, n)
	require.NoError(t, err)
	got, err := p.crowded.Take(context.Background(), key, n)
	require.NoError(t, err)
	require.Equal(t, want, got, "%s: %d units for %q at %+d ns and %#v", p.algorithm.name, n, key, p.clock.now.Sub(starts[0]), p.rate)
	return got
}

// grow asks for up to n keys that were never asked for before.
func (p *pair) grow(t require.TestingT, n int) {
	for range n {
		p.noise++
		p.ask(t, "noise"+strconv.Itoa(p.noise), 1)
	}
}

// squeeze asks for one key that was never asked for before, if the one before it is as good
// as new. The keys that are not as good as new thus never outnumber the slots.
func (p *pair) squeeze(t require.TestingT) {
	before := "noise" + strconv.Itoa(p.noise)
	if p.noise > 0 && p.own(t, before).Peek(before).ResetAfter > 0 {
		return
	}
	p.grow(t, 1)
}

// TestPropertiesOfEviction requires that a table that forgets keys answers as limiters that
// do not forget, as long as the clock does not step back.
func TestPropertiesOfEviction(t *testing.T) {
	const observed, calls = 4, 60
	each(t, func(t *testing.T, a algorithm) {
		schedules, noise, forgotten := 0, 0, 0
		rapid.Check(t, func(t *rapid.T) {
			p := &pair{algorithm: a, clock: &manualClock{starts[0]}, alone: make(map[string]limiter)}
			rates := a.those(oneBurst)
			p.rate = rapid.SampledFrom(rates).Draw(t, "rate")
			opts := []ratelimit.Option{ratelimit.WithClock(p.clock)}
			bounded := rapid.Bool().Draw(t, "bounded")
			if bounded {
				opts = append(opts, ratelimit.WithMaxKeys(observed+1))
			}
			p.crowded = a.start(t, p.rate, opts...)
			var last ratelimit.Result
			for range calls {
				switch move := rapid.IntRange(0, 9).Draw(t, "move"); {
				case move < 4:
				case move < 7:
					p.clock.now = p.clock.now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "ns")))
				case move < 9:
					p.clock.now = p.clock.now.Add(last.ResetAfter)
				case last.RetryAfter != ratelimit.Never:
					p.clock.now = p.clock.now.Add(last.RetryAfter)
				}
				key := fmt.Sprint("k", rapid.IntRange(0, observed-1).Draw(t, "key"))
				switch act := rapid.IntRange(0, 19).Draw(t, "act"); {
				case act < 12:
					last = p.ask(t, key, rapid.IntRange(0, 6).Draw(t, "n"))
				case act < 18 && bounded:
					p.squeeze(t)
				case act < 18:
					p.grow(t, rapid.IntRange(1, 12).Draw(t, "keys"))
				case act == 18:
					require.NoError(t, p.own(t, key).Reset(key))
					require.NoError(t, p.crowded.Reset(key))
				default:
					p.rate = rapid.SampledFrom(rates).Draw(t, "rate")
					require.NoError(t, p.crowded.SetRate(p.rate))
					for _, l := range p.alone {
						require.NoError(t, l.SetRate(p.rate))
					}
				}
			}
			schedules, noise = schedules+1, noise+p.noise
			forgotten += len(p.alone) - p.crowded.Len()
		})
		t.Logf("%s: %d schedules of %d calls, %d other keys, %d keys forgotten: 0 differences", a.name, schedules, calls, noise, forgotten)
		require.GreaterOrEqual(t, schedules, wantChecks())
		require.Positive(t, forgotten)
	})
}

// TestForgottenTimeIsNotGivenBack takes all units of a key, lets the key be forgotten once
// it is as good as new, and turns the clock back. The key may then get all units once more,
// but not twice: as if its clock had stood still.
func TestForgottenTimeIsNotGivenBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		maxKeys int
		keys    int
		others  int
		why     string
	}{
		{"growth", 1 << 20, 30, 200, "a table that grows drops keys that are as good as new, also in shards that have split since"},
		{"bound", 1, 1, 1, "a full table makes room"},
		{"two slots", 2, 1, 2, "a full table makes room, and the key gets a slot again"},
	} {
		for _, a := range algorithms {
			t.Run(c.name+"/"+a.name, func(t *testing.T) {
				rate := a.rate(ratelimit.Rate{Requests: 4, Per: time.Minute, Burst: 4})
				begin := time.Unix(0, 0)
				clock := &manualClock{begin}
				l := a.start(t, rate, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(c.maxKeys))
				taken := make([]int, c.keys)
				key := func(i int) string { return "k" + strconv.Itoa(i) }
				for i := range taken {
					require.Equal(t, 4, greedy(t, l, key(i)))
				}
				clock.now = begin.Add(l.Peek(key(0)).ResetAfter)
				for i := range c.others {
					l.Allow(strconv.Itoa(i))
				}
				clock.now = begin
				for i := range taken {
					taken[i] = greedy(t, l, key(i))
				}
				clock.now = begin.Add(2 * time.Minute)
				if a.name != "SlidingWindowCounter" {
					clock.now = begin.Add(time.Minute)
				}
				for i := range taken {
					require.LessOrEqual(t, taken[i]+greedy(t, l, key(i)), 4, c.why)
				}
			})
		}
	}
}

// TestRaisedBurstAfterEviction shows what a key without a slot has left after the burst is
// raised: the whole new burst, as if it had kept its slot.
func TestRaisedBurstAfterEviction(t *testing.T) {
	for _, a := range []algorithm{algorithms[0], algorithms[4]} {
		clock := &manualClock{starts[0]}
		l := a.start(t, ratelimit.PerMinute(6).WithBurst(2), ratelimit.WithClock(clock))
		for i := range 200 {
			require.True(t, l.Allow(strconv.Itoa(i)).Allowed)
			clock.now = clock.now.Add(time.Minute)
		}
		require.Less(t, l.Len(), 200, "some keys must have been forgotten")
		require.NoError(t, l.SetRate(ratelimit.PerMinute(6).WithBurst(5)))
		for i := range 199 {
			require.Equal(t, 5, l.Peek(strconv.Itoa(i)).Remaining, "%s: key %d", a.name, i)
		}
		for i := range 5000 {
			require.True(t, l.Allow(fmt.Sprint("new", i)).Allowed)
		}
		for i := range 199 {
			require.Equal(t, 5, l.Peek(strconv.Itoa(i)).Remaining, "%s: key %d, after shards have split", a.name, i)
		}
		clock.now = clock.now.Add(30 * time.Second)
		for i := range 199 {
			require.Equal(t, 5, l.Peek(strconv.Itoa(i)).Remaining, "%s: key %d", a.name, i)
		}
	}
}

// TestSlowerRateKeepsKey uses a bucket at two rates, while another key needs its slot. The bucket must not be
// forgotten when it owes nothing at the faster rate: a request at the slower rate would find a new key,
// although at that rate nothing has been refilled yet.
// A store in memory and a rule with tiers keep their keys alike; redisstore has a test with the same name.
func TestSlowerRateKeepsKey(t *testing.T) {
	const day = 24 * time.Hour
	fast, slow := ratelimit.PerSecond(10), ratelimit.PerDay(10)
	check := func(t *testing.T, clock *ratelimit.FakeClock, take func(client string, r ratelimit.Rate, n int) ratelimit.Result) {
		require.Equal(t, 9, take("x", slow, 1).Remaining)
		require.Equal(t, 4, take("x", fast, 5).Remaining)
		clock.Advance(time.Second)
		require.Equal(t, 5, take("x", fast, 5).Remaining)
		clock.Advance(time.Second)
		require.Equal(t, 9, take("x", fast, 1).Remaining, "the decisions are those of the faster rate")
		clock.Advance(time.Hour)
		take("y", fast, 1)
		require.Equal(t, 8, take("x", slow, 1).Remaining, "the unit of an hour ago has not come back; a new key would have 9")

		clock.Advance(2 * day)
		require.Equal(t, 5, take("x", fast, 5).Remaining)
		require.Equal(t, 5, take("x", slow, 0).Remaining)
		clock.Advance(time.Second)
		take("y", fast, 1)
		require.Equal(t, 9, take("x", slow, 1).Remaining, "a look changes nothing, so the key was forgotten at the rate of its use")

		require.Equal(t, 8, take("x", fast, 1).Remaining)
		clock.Advance(2 * day)
		require.Equal(t, 9, take("x", fast, 1).Remaining, "nobody has used the slower rate for two days")
		clock.Advance(time.Second)
		take("y", fast, 1)
		require.Equal(t, 9, take("x", slow, 1).Remaining, "so the key was forgotten")
	}
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		for _, warmup := range []ratelimit.Warmup{{}, {From: 10, Over: time.Microsecond}} {
			clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
			require.NoError(t, err)
			check(t, clock, func(client string, r ratelimit.Rate, n int) ratelimit.Result {
				results, err := store.Take(t.Context(), []ratelimit.Ask{{Rule: "r", Algorithm: a, Key: client, Rate: r, Warmup: warmup, N: n}})
				require.NoError(t, err)
				return results[0]
			})
		}
		clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
		rule := ratelimit.Rule{Name: "r", Endpoint: "*", Algorithm: a, Rate: slow, Tiers: map[string]ratelimit.Rate{fast.String(): fast}}
		l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		require.NoError(t, err)
		check(t, clock, func(client string, r ratelimit.Rate, n int) ratelimit.Result {
			req := ratelimit.Request{Client: client, Endpoint: "/", Tier: r.String(), Cost: n}
			ask := l.Check
			if n == 0 {
				ask = l.Peek
			}
			res, err := ask(t.Context(), req)
			require.NoError(t, err)
			return res
		})
	}
}

// TestNewKeyHasOneRate charges a key at a slow rate and waits until it counts as new. After a charge at a faster rate, it is new as
// soon as it owes nothing at this rate: the slow rate counts no more.
func TestNewKeyHasOneRate(t *testing.T) {
	fast, slow := ratelimit.PerSecond(10), ratelimit.PerHour(10)
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		for _, first := range [][]ratelimit.Rate{{slow}, {slow, fast}} {
			clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
			rule := ratelimit.Rule{Name: "r", Endpoint: "*", Algorithm: a, Rate: slow, Tiers: map[string]ratelimit.Rate{"fast": fast}}
			l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock))
			require.NoError(t, err)
			check := func(r ratelimit.Rate, n int) ratelimit.Result {
				req := ratelimit.Request{Client: "x", Endpoint: "/", Cost: n}
				if r == fast {
					req.Tier = "fast"
				}
				res, err := l.Check(t.Context(), req)
				require.NoError(t, err)
				return res
			}
			for _, r := range first {
				require.True(t, check(r, 1).Allowed)
			}
			clock.Advance(time.Hour)
			require.True(t, check(fast, 5).Allowed)
			res := check(slow, 10)
			require.Equal(t, 500*time.Millisecond, res.RetryAfter, "%s after charges at %v", a, first)
			require.Equal(t, 500*time.Millisecond, res.ResetAfter, "%s after charges at %v", a, first)
			clock.Advance(res.RetryAfter)
			require.Equal(t, 9, check(slow, 1).Remaining, "%s after charges at %v", a, first)
		}
	}
}
