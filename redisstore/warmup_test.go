package redisstore_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// warmAsk is an ask for n units of a key that warms up from 2 to 10 in an hour.
func warmAsk(a ratelimit.Algorithm, n int) ratelimit.Ask {
	u := ask(a, ratelimit.Rate{Requests: 10, Per: time.Second}, n)
	u.Warmup = ratelimit.Warmup{From: 2, Over: time.Hour}
	return u
}

// TestWarmupIsKept proves that the server keeps a key that warms up for as long as its age counts,
// under a key of its own, and that another key with the same names and no warm-up is another state.
func TestWarmupIsKept(t *testing.T) {
	client := start(t).client(t)
	clock := ratelimit.NewFakeClock(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithPrefix("p"))
	for i, letter := range []string{"T", "L", "F", "C", "S"} {
		a := []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket, ratelimit.AlgorithmFixedWindow,
			ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmSlidingWindowLog}[i]
		require.True(t, take(t, newStore(t, client, redisstore.WithPrefix("real")), warmAsk(a, 1)).Allowed)
		ttl, err := client.PTTL(t.Context(), "real:{ca}:1"+letter+":rule").Result()
		require.NoError(t, err)
		require.Greater(t, ttl, time.Hour, "%s: the idle key is kept", a)
		require.Less(t, ttl, time.Hour+time.Minute, a)
		more := warmAsk(a, 2)
		more.Receipt, more.Charged = 1, 1
		genuine := newStore(t, client, redisstore.WithPrefix("real"))
		require.NoError(t, genuine.Settle(t.Context(), []ratelimit.Ask{more}))
		ttl, err = client.PTTL(t.Context(), "real:{ca}:1"+letter+":rule").Result()
		require.NoError(t, err)
		require.Greater(t, ttl, time.Hour, "%s: also after units beyond", a)
		require.True(t, take(t, s, warmAsk(a, 1)).Allowed)
		require.Equal(t, 9, take(t, s, ask(a, ratelimit.Rate{Requests: 10, Per: time.Second}, 1)).Remaining)
		clock.Advance(1350 * time.Second) // three eighths of the hour
		require.Equal(t, 5, take(t, s, warmAsk(a, 0)).Remaining, a)
		require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{warmAsk(a, 0)}))
		require.Equal(t, 2, take(t, s, warmAsk(a, 0)).Remaining, "%s: a key that was reset is new", a)
	}
	require.True(t, take(t, s, warmAsk(ratelimit.AlgorithmTokenBucket, 1)).Allowed)
	value, err := client.Get(t.Context(), "p:{ca}:1T:rule").Result()
	require.NoError(t, err)
	first := strconv.FormatInt(clock.Now().UnixMicro(), 10)
	require.Equal(t, "1 100000 10 "+first[:10]+" 0 500000 @"+first+" 10", value)
}

// TestWarmupRefuses has what the store refuses of a Warmup.
func TestWarmupRefuses(t *testing.T) {
	s := newStore(t, start(t).client(t))
	for _, row := range []struct {
		change func(a *ratelimit.Ask)
		want   string
	}{
		{func(a *ratelimit.Ask) { a.Warmup.From = 0 }, "ratelimit: warmup.from is 0: must be at least 1"},
		{func(a *ratelimit.Ask) { a.Rate.Burst = 2; a.Warmup.From = 4 },
			"ratelimit: warmup.from is 4: must be at least 5: with less, a burst of 2 grants a new key nothing"},
		{func(a *ratelimit.Ask) { a.Warmup.Over = 0 }, "ratelimit: warmup.over is 0s: must be from a microsecond to 366 days"},
		{func(a *ratelimit.Ask) { a.Warmup.Over = 366*24*time.Hour + 1000 },
			"ratelimit: warmup.over is 8784h0m0.000001s: must be from a microsecond to 366 days"},
		{func(a *ratelimit.Ask) { a.Warmup.Over++ },
			"ratelimit: warmup.over is 1h0m0.000000001s: must be whole microseconds in a Redis store: its clock has no finer ones"},
	} {
		a := warmAsk(ratelimit.AlgorithmTokenBucket, 1)
		row.change(&a)
		require.EqualError(t, s.Accepts(a), row.want)
		_, err := s.Take(t.Context(), []ratelimit.Ask{a})
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.EqualError(t, err, row.want)
		a.Receipt, a.Charged = 1, 0
		require.EqualError(t, s.Settle(t.Context(), []ratelimit.Ask{a}), row.want)
	}
	if strconv.IntSize == 64 {
		a := warmAsk(ratelimit.AlgorithmTokenBucket, 1)
		requests := int64(math.MaxInt32) << 20
		a.Rate = ratelimit.Rate{Requests: int(requests), Per: time.Hour, Burst: math.MaxInt32}
		a.Warmup.From = a.Rate.Requests
		require.Error(t, s.Accepts(a))
	}
	require.NoError(t, s.Accepts(warmAsk(ratelimit.AlgorithmTokenBucket, 1)))
}

// TestWarmupRules proves that rules that warm up work over the store, that they can be reserved of,
// and that they may stand beside a custom limiter.
func TestWarmupRules(t *testing.T) {
	s := newStore(t, start(t).client(t))
	warm := ratelimit.Rule{Endpoint: "/e", Rate: ratelimit.PerDay(10), Warmup: ratelimit.Warmup{From: 2, Over: 24 * time.Hour}}
	opts := []ratelimit.Option{ratelimit.WithStore(s), ratelimit.WithName("n")}
	l, err := ratelimit.New([]ratelimit.Rule{warm}, nil, opts...)
	require.NoError(t, err)
	require.True(t, l.Allow("a", "/e").Allowed)
	require.True(t, l.Allow("a", "/e").Allowed)
	res := l.Allow("a", "/e")
	require.False(t, res.Allowed)
	require.False(t, res.Degraded)
	require.Equal(t, 10, res.Limit)
	require.Less(t, res.RetryAfter, 24*time.Hour)

	reserved, err := l.Reserve(t.Context(), ratelimit.Request{Client: "b", Endpoint: "/e", Cost: 2}, time.Hour)
	require.NoError(t, err)
	require.True(t, reserved.Result().Allowed)
	require.False(t, l.Allow("b", "/e").Allowed)
	require.NoError(t, reserved.Settle(1))
	require.True(t, l.Allow("b", "/e").Allowed, "one of two units has come back")
	require.False(t, l.Allow("b", "/e").Allowed)

	inner, err := ratelimit.NewTokenBucket(ratelimit.PerDay(1))
	require.NoError(t, err)
	l, err = ratelimit.New([]ratelimit.Rule{warm, {Name: "own", Endpoint: "/e", Key: ratelimit.KeyGlobal, Limiter: inner}}, nil, opts...)
	require.NoError(t, err)
	require.True(t, l.Allow("c", "/e").Allowed)
	for range 5 {
		require.Equal(t, "own", l.Allow("c", "/e").Rule, "it denies, and the key that warms up gets its units back")
	}
	require.NoError(t, inner.Reset("global"))
}

// TestDenialsDoNotWarmUp proves that what is known of a state without a warm-up does not decide on
// one of the same names that has one.
func TestDenialsDoNotWarmUp(t *testing.T) {
	s := newStore(t, start(t).client(t))
	plain := ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerDay(10), 10)
	require.True(t, take(t, s, plain).Allowed)
	require.False(t, take(t, s, plain).Allowed)
	_, denied := s.Denied(plain)
	require.True(t, denied)
	plain.Warmup = ratelimit.Warmup{From: 10, Over: time.Hour}
	_, denied = s.Denied(plain)
	require.False(t, denied)
	require.True(t, take(t, s, plain).Allowed)
}

// TestWarmupAsMemory compares random asks for keys that warm up with a MemoryStore, which the kit
// compares with the model. It counts in microseconds here, as the server does.
func TestWarmupAsMemory(t *testing.T) {
	client := startReal(t).client(t)
	for _, a := range all {
		for round := range schedules(30) {
			r := rand.New(rand.NewPCG(uint64(round), 7))
			clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
			memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			there := newStore(t, client, redisstore.WithClock(clock))
			u := ratelimit.Ask{Rule: "rule", Key: strconv.Itoa(round), Algorithm: a}
			u.Warmup = ratelimit.Warmup{From: 1 + r.IntN(5), Over: time.Duration(1+r.IntN(3000)) * time.Microsecond}
			draw := func() {
				u.Rate.Requests, u.Rate.Per = 1+r.IntN(12), time.Duration(1+r.IntN(900))*time.Microsecond
				if a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket {
					u.Rate.Burst = 12 + r.IntN(12)
				}
			}
			draw()
			next := time.Duration(0)
			for step := range 50 {
				switch r.IntN(9) {
				case 0:
					clock.Advance(u.Warmup.Over)
				case 1, 2:
					clock.Advance(time.Duration(r.IntN(1000)-100) * time.Microsecond)
				case 3, 4:
					clock.Advance(next)
				case 5:
					clock.Advance(max(next-time.Microsecond, 0))
				case 6:
					if r.IntN(3) == 0 {
						draw()
					}
				}
				u.N = r.IntN(8)
				want, err := memory.Take(t.Context(), []ratelimit.Ask{u})
				require.NoError(t, err)
				want[0].RetryAfter, want[0].ResetAfter, want[0].Delay = ceil(want[0].RetryAfter), ceil(want[0].ResetAfter), ceil(want[0].Delay)
				got, err := there.Take(t.Context(), []ratelimit.Ask{u})
				require.NoError(t, err)
				require.Equal(t, want[0], got[0], "round %d, step %d: %#v", round, step, u)
				if next = got[0].RetryAfter; next == 0 || next == ratelimit.Never {
					next = got[0].ResetAfter
				}
			}
		}
	}
}

// A youngKey is a key that warms up, in a MemoryStore and in a store on a server. The two
// are asked the same after each step.
type youngKey struct {
	t      *testing.T
	memory *ratelimit.MemoryStore
	there  *redisstore.Store
	clock  *ratelimit.FakeClock
	ask    ratelimit.Ask
	step   int
}

func newYoungKey(t *testing.T, client redis.UniversalClient, a ratelimit.Algorithm) *youngKey {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	there := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	ask := warmAsk(a, 0)
	ask.Rate = ratelimit.PerDay(10)
	return &youngKey{t: t, memory: memory, there: there, clock: clock, ask: ask}
}

func (k *youngKey) both(u ratelimit.Ask) {
	want, err := k.memory.Take(k.t.Context(), []ratelimit.Ask{u})
	require.NoError(k.t, err)
	want[0].RetryAfter, want[0].ResetAfter, want[0].Delay = ceil(want[0].RetryAfter), ceil(want[0].ResetAfter), ceil(want[0].Delay)
	got, err := k.there.Take(k.t.Context(), []ratelimit.Ask{u})
	require.NoError(k.t, err)
	require.Equal(k.t, want[0], got[0], "%s, step %d", u.Algorithm, k.step)
}

func (k *youngKey) look() {
	k.step++
	k.both(k.ask)
}

func (k *youngKey) charge(n int, receipt uint64) {
	u := k.ask
	if u.N, u.Receipt = n, receipt; receipt != 0 {
		u.HoldFor = 24 * time.Hour
	}
	k.both(u)
	k.look()
}

func (k *youngKey) end(receipt uint64, was, n int) {
	u := k.ask
	u.Receipt, u.Charged, u.N = receipt, was, n
	require.NoError(k.t, k.memory.Settle(k.t.Context(), []ratelimit.Ask{u}))
	require.NoError(k.t, k.there.Settle(k.t.Context(), []ratelimit.Ask{u}))
	k.look()
}

func (k *youngKey) wait(d time.Duration) {
	k.clock.Advance(d)
	k.look()
}

func (k *youngKey) again() {
	require.NoError(k.t, k.memory.Reset(k.t.Context(), []ratelimit.Ask{k.ask}))
	require.NoError(k.t, k.there.Reset(k.t.Context(), []ratelimit.Ask{k.ask}))
	k.look()
}

// TestSettleYoung settles charges of young keys, on a server and in a MemoryStore.
func TestSettleYoung(t *testing.T) {
	client := start(t).client(t)
	for _, a := range all {
		key := newYoungKey(t, client, a)
		charge, end, wait, again := key.charge, key.end, key.wait, key.again
		charge(1, 1) // the first charge comes back, then the second: the key is new
		wait(30 * time.Minute)
		charge(1, 2)
		end(1, 1, 0)
		wait(20 * time.Minute)
		end(2, 1, 0)
		wait(time.Minute)
		charge(2, 0)
		again()

		charge(1, 1) // a part of the first stays
		wait(30 * time.Minute)
		charge(2, 2)
		end(2, 2, 1)
		end(1, 1, 1)
		wait(20 * time.Minute)
		again()

		charge(1, 1) // the second has been followed when it comes back, and then the first does
		charge(1, 2)
		wait(30 * time.Minute)
		charge(1, 0)
		end(2, 1, 0)
		end(1, 1, 0)
		wait(20 * time.Minute)
		again()

		charge(1, 1) // a part of the second stays, and then the first comes back
		wait(30 * time.Minute)
		charge(2, 2)
		end(2, 2, 1)
		end(1, 1, 0)
		wait(20 * time.Minute)
		again()

		end(9, 1, 2) // units beyond are the first of the key, and further ones are beside it
		for range 12 {
			wait(7 * time.Minute)
			end(9, 0, 1)
		}
		again()

		charge(1, 1) // under another rate
		wait(8 * time.Minute)
		charge(1, 2)
		key.ask.Rate.Requests = 7
		wait(time.Minute)
		charge(0, 0)
		wait(time.Hour)
		charge(1, 0)
		end(2, 1, 0)
		end(1, 1, 0)
		again()
	}
}

// TestWarmupCountsTheRoundingOnce charges and settles several units of a young bucket, whose cost is rounded up once.
func TestWarmupCountsTheRoundingOnce(t *testing.T) {
	client := start(t).client(t)
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		key := newYoungKey(t, client, a)
		key.ask.Rate, key.ask.Warmup.From = ratelimit.PerSecond(10), 6
		left := func() int {
			res, err := key.there.Take(t.Context(), []ratelimit.Ask{key.ask})
			require.NoError(t, err)
			return res[0].Remaining
		}
		require.Equal(t, 6, left(), a)
		key.charge(6, 1)
		require.Zero(t, left(), "%s: a new key has 6 of 10", a)
		key.end(1, 6, 4)
		require.Equal(t, 1, left(), "%s: as if 4 had been charged", a)
		key.again()
		key.charge(6, 1)
		key.end(1, 6, 3)
		require.Equal(t, 3, left(), "%s: as if 3 had been charged", a)
		key.charge(2, 2)
		require.Zero(t, left(), "%s: each request is rounded up", a)
	}
}

// TestWarmupFits looks at young buckets that have room for exactly a number of units, or a little less. Their numbers
// have more digits than a double.
func TestWarmupFits(t *testing.T) {
	client := start(t).client(t)
	for _, burst := range []int{10, 999_999_990, atMost(math.MaxUint32)} {
		for from := 1; from < 10; from++ {
			key := newYoungKey(t, client, ratelimit.AlgorithmTokenBucket)
			key.ask.Rate = ratelimit.Rate{Requests: 10, Per: 30*365*24*time.Hour + time.Microsecond, Burst: burst}
			key.ask.Warmup.From = from
			for _, n := range []int{1, 1, 2, burst / 40, burst / 41, burst / 42} {
				key.charge(n, 0)
			}
			key.again()
		}
	}
}

// TestSettleYoungOfAnEarlierVersion settles a receipt that an earlier version of the store has written. That version
// stored the cost of a unit, rounded up, in place of the limits.
func TestSettleYoungOfAnEarlierVersion(t *testing.T) {
	client := startReal(t).client(t)
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		key := newYoungKey(t, client, a)
		key.ask.Warmup.From = 5
		key.charge(3, 1)
		list := key.there.KeyOf(key.ask) + ";r"
		stored, err := client.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: list, ByScore: true, Start: -1, Stop: -1}).Result()
		require.NoError(t, err)
		require.Len(t, stored, 1)
		require.Regexp(t, `^1:\d+ \d+ 3 0 @1 - 5 10$`, stored[0])
		earlier := strings.TrimSuffix(stored[0], " 5 10") + " 2 0 0" // 2 tokens
		require.NoError(t, client.ZRem(t.Context(), list, stored[0]).Err())
		require.NoError(t, client.ZAdd(t.Context(), list, redis.Z{Score: -1, Member: earlier}).Err())
		key.end(1, 3, 1)
	}
}

// TestSettleYoungAfterAnotherRate charges a young key without a receipt at another rate, and then settles a receipt
// from before. Later requests stand in the queue of a leaky bucket, so it does not shrink.
func TestSettleYoungAfterAnotherRate(t *testing.T) {
	client := start(t).client(t)
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		key := newYoungKey(t, client, a)
		key.ask.Rate, key.ask.Warmup.From = ratelimit.PerSecond(10), 6
		key.charge(2, 1)
		key.ask.Rate.Requests = 7 // a token has other parts
		key.charge(0, 0)
		key.wait(time.Second)
		key.charge(1, 0)
		key.end(1, 2, 1)
		key.again()

		key.ask.Rate, key.ask.Warmup.From = ratelimit.Rate{Requests: 1000, Per: time.Microsecond, Burst: 10}, 600
		key.charge(4, 1)
		key.ask.Rate.Requests = 999 // a token had one part, and has 1,000: what a unit has cost is rounded down to 1 token
		key.charge(1, 0)
		key.end(1, 4, 1)
	}
}

// TestWarmupOfAnotherLimit asks for units under another limit after a key was idle for long, beside an
// ask that is denied. The key is new then, also after the clock has stepped back.
func TestWarmupOfAnotherLimit(t *testing.T) {
	client := start(t).client(t)
	for _, a := range all {
		clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
		memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		there := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
		u, denied := warmAsk(a, 1), warmAsk(a, 11)
		denied.Key, denied.Client = "other", "other"
		both := func(asks ...ratelimit.Ask) {
			want, err := memory.Take(t.Context(), asks)
			require.NoError(t, err)
			got, err := there.Take(t.Context(), asks)
			require.NoError(t, err)
			for i := range want {
				require.Equal(t, []int{want[i].Limit, want[i].Remaining}, []int{got[i].Limit, got[i].Remaining}, a)
			}
		}
		both(u)
		clock.Advance(50 * time.Minute)
		both(u)
		clock.Advance(2 * time.Hour)
		u.Rate.Requests = 8
		both(u, denied)
		clock.Advance(-time.Hour - 59*time.Minute)
		u.N = 0
		both(u)
	}
}

// TestWarmupGivenBack denies a request in another slot. A key whose first charge had been settled to
// nothing, beside an older receipt that was followed, stays new.
func TestWarmupGivenBack(t *testing.T) {
	t.Parallel()
	_, client := startCluster(t)
	for _, a := range all {
		clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
		s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
		held := func(receipt uint64) ratelimit.Ask {
			u := warmAsk(a, 1)
			u.Receipt, u.HoldFor = receipt, 24*time.Hour
			return u
		}
		denied := warmAsk(a, 11)
		denied.Key, denied.Client = "other", "other"
		take(t, s, held(1))
		take(t, s, warmAsk(a, 1))
		clock.Advance(2 * time.Hour)
		take(t, s, held(2))
		settle(t, s, held(2), 0)
		require.Equal(t, 2, left(t, s, warmAsk(a, 0)), a)
		results, err := s.Take(t.Context(), []ratelimit.Ask{held(3), denied})
		require.NoError(t, err)
		require.False(t, results[1].Allowed)
		clock.Advance(10 * time.Second)
		require.Equal(t, 2, left(t, s, warmAsk(a, 0)), "%s: it is new", a)
	}
}
