package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// revocable returns an ask for n units at r whose charge has a receipt.
func revocable(a ratelimit.Algorithm, r ratelimit.Rate, n int, id uint64, term time.Duration) ratelimit.Ask {
	u := ask(a, r, n)
	u.Receipt, u.HoldFor = id, term
	return u
}

// settle lets stay units of the charge of u stay charged, and gives the others back.
func settle(t testing.TB, s *redisstore.Store, u ratelimit.Ask, stay int) {
	t.Helper()
	u.Charged, u.N = u.N, stay
	require.NoError(t, s.Settle(context.Background(), []ratelimit.Ask{u}))
}

// TestSettleStored checks what the server stores of receipts: a sorted set beside a state that ends in
// " +", which both go with the last receipt, and with a Reset.
func TestSettleStored(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	ctx, rate := t.Context(), ratelimit.PerDay(5000)
	for _, a := range all {
		key := s.KeyOf(ask(a, rate, 1))
		list := key + ";r"
		stored := func() string {
			if a == ratelimit.AlgorithmSlidingWindowLog {
				return client.LIndex(ctx, key, 0).Val()
			}
			return client.Get(ctx, key).Val()
		}
		one, two := revocable(a, rate, 3, 1<<63+7, time.Minute), revocable(a, rate, 2, 8, time.Hour)
		take(t, s, one)
		assert.Regexp(t, ` \+$`, stored(), a)
		members := []string{"1:1772323260000000 1772323200000000 3 0", fmt.Sprint(uint64(1<<63 + 7))}
		if a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket {
			members = append(members, "1=3 0 0", "=3 0 0")
		}
		assert.Equal(t, members, client.ZRange(ctx, list, 0, -1).Val(), a)
		require.Equal(t, 5000-3-2, take(t, s, two).Remaining, a)
		require.Equal(t, 5000-3-2-1, take(t, s, ask(a, rate, 1)).Remaining, "%s: beside receipts", a)
		settle(t, s, one, 1)
		require.Equal(t, 5000-1-2-1, left(t, s, one), a)
		settle(t, s, one, 0)
		require.Equal(t, 5000-1-2-1, left(t, s, one), "%s: a receipt is settled once", a)
		require.EqualValues(t, 1, client.ZCount(ctx, list, "1", "1000000").Val(), a)
		settle(t, s, two, 0)
		require.Equal(t, 5000-1-1, left(t, s, one), a)
		assert.NotRegexp(t, `\+`, stored(), "%s: the fast way again", a)
		assert.Zero(t, client.Exists(ctx, list).Val(), a)

		take(t, s, two)
		require.NoError(t, s.Reset(ctx, []ratelimit.Ask{two}))
		assert.Zero(t, client.Exists(ctx, list, key).Val(), a)
		take(t, s, ask(a, rate, 1))
		settle(t, s, two, 0)
		require.Equal(t, 4999, left(t, s, two), "%s: what was charged before a Reset does not come back", a)

		take(t, s, two)
		require.NoError(t, client.Del(ctx, list).Err())
		require.Equal(t, 4996, take(t, s, ask(a, rate, 1)).Remaining, a)
		assert.NotRegexp(t, `\+`, stored(), "%s: the receipts have expired", a)
		require.NoError(t, client.Set(ctx, list, "foreign", 0).Err())
		require.Equal(t, 4994, take(t, s, two).Remaining, "%s: a foreign value where the receipts should be", a)
		settle(t, s, two, 0)
		require.Equal(t, 4996, left(t, s, two), a)
	}
}

// TestSettleBytes measures what receipts take in the server, of keys that warm up too.
func TestSettleBytes(t *testing.T) {
	client := startReal(t).client(t)
	s, ctx := newStore(t, client, redisstore.WithDenialCache(0)), t.Context()
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow} {
		for kind, warmup := range map[string]ratelimit.Warmup{"a key": {}, "a key that warms up": {From: 700, Over: 24 * time.Hour}} {
			u := revocable(a, ratelimit.PerDay(5000), 1, 0, time.Hour)
			u.Key, u.Warmup = strings.Repeat("a", 24), warmup
			u.Client = u.Key
			bytes := func(receipts int) int64 {
				for range receipts {
					u.Receipt = rand.Uint64() | 1<<63
					require.True(t, take(t, s, u).Allowed)
				}
				n, err := client.MemoryUsage(ctx, s.KeyOf(u)+";r", 0).Result()
				require.NoError(t, err)
				return n
			}
			one := bytes(1)
			more := float64(bytes(100)-one) / 100
			assert.Less(t, one, int64(450))
			assert.Less(t, more, 480.0)
			t.Logf("%s: the receipts of %s, of a client whose name has 24 bytes, take %d bytes, and %.1f for each after the first",
				a, kind, one, more)
		}
	}
}

// TestSettleAmongMany checks that a settlement runs as many commands among 1,024 receipts as among 3.
func TestSettleAmongMany(t *testing.T) {
	client := startReal(t).client(t)
	s, ctx, rate := newStore(t, client), t.Context(), ratelimit.PerDay(5000)
	for _, a := range all {
		commands := func(open uint64) (calls int) {
			for i := range open {
				take(t, s, revocable(a, rate, 3, 1+i, time.Hour))
			}
			settle(t, s, revocable(a, rate, 3, 1<<40, time.Hour), 0) // the script is known to the server now
			require.NoError(t, client.ConfigResetStat(ctx).Err())
			settle(t, s, revocable(a, rate, 3, 2, time.Hour), 1)
			for line := range strings.Lines(client.Info(ctx, "commandstats").Val()) {
				var n int
				if _, rest, ok := strings.Cut(line, "calls="); ok {
					_, err := fmt.Sscanf(rest, "%d,", &n)
					require.NoError(t, err)
					calls += n
				}
			}
			require.NoError(t, s.Reset(ctx, []ratelimit.Ask{ask(a, rate, 1)}))
			return calls
		}
		require.Equal(t, commands(3), commands(1024), a)
	}
}

// TestSettleLayers checks how much comes back for one receipt after another was settled.
func TestSettleLayers(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	rate := ratelimit.PerSecond(1).WithBurst(10)
	of := func(id uint64) ratelimit.Ask { return revocable(all[0], rate, 5, id, time.Hour) }
	again := func() { require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{of(1)})) }

	take(t, s, of(1))
	take(t, s, of(2))
	settle(t, s, of(1), 0)
	settle(t, s, of(2), 0)
	require.Equal(t, 10, left(t, s, of(1)))
	again()

	take(t, s, of(1))
	take(t, s, of(2))
	clock.Advance(4 * time.Second)
	take(t, s, ask(all[0], rate, 1))
	settle(t, s, of(1), 4)
	settle(t, s, of(2), 0)
	require.Equal(t, 9, left(t, s, of(1)), "the four units that stay have drained, so all of the second comes back")
	again()

	take(t, s, of(1))
	clock.Advance(500 * time.Millisecond)
	take(t, s, ask(all[0], rate, 2))
	clock.Advance(500 * time.Millisecond)
	twice := ratelimit.PerSecond(2).WithBurst(10)
	take(t, s, ask(all[0], twice, 1))
	first := of(1)
	first.Rate = twice
	settle(t, s, first, 0)
	require.Equal(t, 7, left(t, s, first), "half a unit had drained before the other charges: it owes 2.5")
}

// TestSettleOfAList checks that the receipts of an earlier version, which are a list, count as final.
func TestSettleOfAList(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	u := revocable(ratelimit.AlgorithmTokenBucket, ratelimit.PerDay(100), 5, 7, time.Hour)
	key := s.KeyOf(u)
	require.NoError(t, client.Set(t.Context(), key, "1 864000000 100 1772323200 0 4320000000 +", time.Hour).Err())
	require.NoError(t, client.RPush(t.Context(), key+";r", "7 1772326800000000 1772323200000000 5 0 5 0 0").Err())
	settle(t, s, u, 0)
	require.Equal(t, 95, left(t, s, u))
	u.Receipt = 8
	require.Equal(t, 90, take(t, s, u).Remaining)
	settle(t, s, u, 0)
	require.Equal(t, 95, left(t, s, u))
}

// TestSettleTerms checks that a charge can be given back for as long as its term, that the list
// expires with the longest of them, and that a key has 1,024 receipts at most.
func TestSettleTerms(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	ctx, rate := t.Context(), ratelimit.PerDay(1e4)
	for _, a := range all {
		list := s.KeyOf(ask(a, rate, 1)) + ";r"
		late, never := revocable(a, rate, 1, 1, time.Second), revocable(a, rate, 1, 2, time.Second)
		take(t, s, late)
		take(t, s, never)
		clock.Advance(time.Second)
		settle(t, s, late, 0)
		require.Equal(t, 9999, left(t, s, late), "%s: the term has just not passed", a)
		clock.Advance(time.Microsecond)
		settle(t, s, never, 0)
		require.Equal(t, 9999, left(t, s, never), "%s: it has passed", a)
		take(t, s, revocable(a, rate, 1, 3, time.Second))
		require.EqualValues(t, 1, client.ZCount(ctx, list, "1", "1000000").Val(), "%s: what is final is dropped", a)
		for i := range uint64(1024) {
			take(t, s, revocable(a, rate, 1, 10+i, time.Minute))
		}
		require.EqualValues(t, 1024, client.ZCount(ctx, list, "1", "1000000").Val(), a)
		before := left(t, s, never)
		settle(t, s, revocable(a, rate, 1, 3, time.Second), 0)
		require.Equal(t, before, left(t, s, never), "%s: the oldest has become final", a)
		settle(t, s, revocable(a, rate, 1, 10, time.Second), 0)
		require.Equal(t, before+1, left(t, s, never), a)
	}

	genuine := newStore(t, client)
	u := revocable(all[0], rate, 1, 1, time.Hour)
	u.Key = "expires"
	take(t, genuine, u)
	u.Receipt, u.HoldFor = 2, time.Minute
	take(t, genuine, u)
	expires := client.PTTL(ctx, genuine.KeyOf(u)+";r").Val()
	assert.Greater(t, expires, 59*time.Minute)
	assert.LessOrEqual(t, expires, time.Hour+time.Second)
	settle(t, genuine, revocable(all[0], rate, 1, 9, time.Hour), 0)
}

// TestSettleOfAnEarlierState checks that the receipts of a state that is gone are of no use, also if
// their list is still there.
func TestSettleOfAnEarlierState(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	rate := ratelimit.PerDay(100)
	for _, a := range all {
		first, second := revocable(a, rate, 5, 1, time.Hour), revocable(a, rate, 5, 2, time.Hour)
		gone := func() { require.NoError(t, client.Del(t.Context(), s.KeyOf(first)).Err()) }
		take(t, s, first)
		gone() // as if it had expired
		settle(t, s, first, 0)
		take(t, s, ask(a, rate, 9))
		settle(t, s, first, 0)
		require.Equal(t, 91, left(t, s, first), "%s: a state without receipts", a)
		take(t, s, second)
		settle(t, s, first, 0)
		require.Equal(t, 86, left(t, s, first), "%s: a state with receipts of its own", a)
		settle(t, s, second, 0)
		require.Equal(t, 91, left(t, s, first), a)
	}
}

// TestSettleRefuses checks which asks are refused, and that a refused call changes nothing.
func TestSettleRefuses(t *testing.T) {
	s := newStore(t, start(t).client(t))
	ctx, rate := t.Context(), ratelimit.PerDay(10)
	for _, term := range []time.Duration{0, time.Microsecond - 1, 366*24*time.Hour + 1} {
		u := revocable(all[0], rate, 1, 1, term)
		_, err := s.Take(ctx, []ratelimit.Ask{u})
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.ErrorIs(t, s.Accepts(u), ratelimit.ErrInvalidConfig)
	}
	u := revocable(all[0], rate, 3, 1, time.Minute)
	require.NoError(t, s.Accepts(u))
	require.Error(t, s.Accepts(ask("Guess", rate, 1)))
	take(t, s, u)
	for _, row := range []struct {
		id           uint64
		n, was       int
		a            ratelimit.Algorithm
		err          error
		why          string
		ends, zeroed bool
	}{
		{0, 0, 3, all[0], ratelimit.ErrInvalidConfig, "no receipt", false, false},
		{1, -1, 3, all[0], ratelimit.ErrInvalidCount, "a negative count", false, false},
		{1, 0, -3, all[0], ratelimit.ErrInvalidCount, "a negative count of before", false, false},
		{1, 0, 3, "Guess", ratelimit.ErrInvalidConfig, "an unknown algorithm", false, false},
		{1, 0, 3, all[0], context.Canceled, "the caller has left", true, false},
		{1, 0, 3, all[0], ratelimit.ErrInvalidConfig, "a zero store", false, true},
	} {
		good, bad := u, u
		good.N, good.Charged = 0, 3
		bad.Receipt, bad.N, bad.Charged, bad.Algorithm = row.id, row.n, row.was, row.a
		of, with := s, ctx
		if row.zeroed {
			of = new(redisstore.Store)
		}
		if row.ends {
			over, cancel := context.WithCancel(ctx)
			cancel()
			with = over
		}
		require.ErrorIs(t, of.Settle(with, []ratelimit.Ask{good, bad}), row.err, row.why)
		require.Equal(t, 7, left(t, s, u), row.why)
	}
}

// TestSettleLaterReceipts checks that a bucket gives back what no later charge has made up for.
func TestSettleLaterReceipts(t *testing.T) {
	client := startReal(t).client(t)
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
		s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
		rate := ratelimit.PerSecond(1).WithBurst(10)
		of := func(n int, id uint64) ratelimit.Ask { return revocable(a, rate, n, id, time.Hour) }
		first, second := of(5, 1), of(3, 2)
		again := func() { require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{first})) }

		take(t, s, first)
		take(t, s, of(1, 2))
		clock.Advance(6 * time.Second)
		require.Equal(t, 6, take(t, s, ask(a, rate, 4)).Remaining)
		settle(t, s, first, 0)
		require.Equal(t, 6, left(t, s, first), "all of the first had drained when the last came")
		again()

		take(t, s, first)
		take(t, s, second)
		clock.Advance(4 * time.Second)
		take(t, s, ask(a, rate, 1))
		settle(t, s, first, 0)
		settle(t, s, second, 0)
		require.Equal(t, 9, left(t, s, first), "what comes back for the first does not come back for the second again")
		again()

		take(t, s, first)
		take(t, s, second)
		clock.Advance(4 * time.Second)
		take(t, s, ask(a, rate, 1))
		settle(t, s, second, 0)
		settle(t, s, first, 0)
		require.Equal(t, 9, left(t, s, first), "nor the other way round")
		again()
	}

	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	leaky, rate := ratelimit.AlgorithmLeakyBucket, ratelimit.PerSecond(1).WithBurst(10)
	first := revocable(leaky, rate, 2, 1, time.Hour)
	take(t, s, first)
	require.Equal(t, 2*time.Second, take(t, s, ask(leaky, rate, 1)).Delay)
	settle(t, s, first, 0)
	require.Equal(t, 3*time.Second, take(t, s, ask(leaky, rate, 1)).Delay, "two requests never leave at once")
}

// TestSettleAcrossWindows checks that units come back to the window in which they were charged, and
// that another length of the window makes all charges final.
func TestSettleAcrossWindows(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	rate, longer := ratelimit.PerMinute(10), ratelimit.PerHour(10)
	for _, row := range []struct {
		a       ratelimit.Algorithm
		onTurn  int // what is left in the next window, when a charge of the one before comes back
		onOther int // what is left under another length
	}{
		{ratelimit.AlgorithmFixedWindow, 8, 4}, {ratelimit.AlgorithmSlidingWindowCounter, 8, 4}, {ratelimit.AlgorithmSlidingWindowLog, 8, 4},
	} {
		u := revocable(row.a, rate, 4, 1, time.Hour)
		take(t, s, u)
		clock.Advance(time.Minute)
		take(t, s, ask(row.a, rate, 2))
		settle(t, s, u, 0)
		require.Equal(t, row.onTurn, left(t, s, u), row.a)
		require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{u}))

		take(t, s, u)
		other := ask(row.a, longer, 2)
		take(t, s, other)
		settle(t, s, u, 0)
		require.Equal(t, row.onOther, left(t, s, other), "%s: with another length", row.a)
		require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{u}))
		clock.Set(time.Unix(1772323200, 0))
	}

	// A log with thousands of entries before and after the charges.
	log := ratelimit.AlgorithmSlidingWindowLog
	big := ratelimit.PerHour(20_000)
	first, second := revocable(log, big, 3, 1, time.Hour), revocable(log, big, 3, 2, time.Hour)
	more := func(entries int) {
		for range entries {
			clock.Advance(time.Microsecond)
			take(t, s, ask(log, big, 1))
		}
	}
	oldest := revocable(log, big, 3, 3, time.Hour)
	take(t, s, oldest)
	more(4096)
	clock.Advance(time.Microsecond)
	take(t, s, first)
	clock.Advance(time.Millisecond)
	take(t, s, second)
	more(4096)
	before, elements := left(t, s, first), client.LLen(t.Context(), s.KeyOf(first)).Val()
	settle(t, s, first, 0)
	require.Equal(t, before+3, left(t, s, first), "more than 4,096 entries are earlier, and as many are later")
	require.Equal(t, elements-2, client.LLen(t.Context(), s.KeyOf(first)).Val(), "its entry is gone")
	settle(t, s, oldest, 1)
	require.Equal(t, before+5, left(t, s, first), "no entry is earlier")
	settle(t, s, second, 1)
	require.Equal(t, before+7, left(t, s, first))
	require.Contains(t, client.LIndex(t.Context(), s.KeyOf(first), 0).Val(), " -5 ", "no call changes the totals of so many entries")
	clock.Advance(time.Hour - time.Microsecond)
	require.Equal(t, 20_000-1, left(t, s, first), "all but the last entry have left")
}

// TestSettleAsMemory compares a Redis server with a MemoryStore, where rates and bursts change
// between charges and settlements. In every other round the keys warm up.
func TestSettleAsMemory(t *testing.T) {
	client := startReal(t).client(t)
	rounds := schedules(80)
	for _, a := range all {
		steps, settled := 0, 0
		for round := range rounds {
			r := rand.New(rand.NewPCG(uint64(round), 5))
			clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
			memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			there := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
			var open []ratelimit.Ask
			var warmup ratelimit.Warmup
			rate := ratelimit.Rate{Requests: 3, Per: 997 * time.Microsecond} // a prime, so that no change of the rate rounds
			if a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket {
				rate.Burst = 5
			}
			if round%2 == 1 {
				warmup = ratelimit.Warmup{From: 2 + r.IntN(3), Over: time.Duration(1+r.IntN(3000)) * time.Microsecond}
			}
			for step := range 60 {
				steps++
				u := revocable(a, rate, 1+r.IntN(3), uint64(step+1), time.Hour)
				u.Key, u.Warmup = fmt.Sprint(round), warmup
				both := func(u ratelimit.Ask) {
					want, err := memory.Take(t.Context(), []ratelimit.Ask{u})
					require.NoError(t, err)
					want[0].RetryAfter, want[0].ResetAfter, want[0].Delay = ceil(want[0].RetryAfter), ceil(want[0].ResetAfter), ceil(want[0].Delay)
					got, err := there.Take(t.Context(), []ratelimit.Ask{u})
					require.NoError(t, err)
					require.Equal(t, want[0], got[0], "%s, round %d, step %d", a, round, step)
				}
				switch p := r.IntN(10); {
				case p < 3:
					both(u)
					open = append(open, u)
				case p < 5:
					u.Receipt, u.HoldFor = 0, 0
					both(u)
				case p < 6:
					clock.Advance(time.Duration(r.IntN(997)) * time.Microsecond)
				case p < 7:
					rate = drawRate(r, rate, warmup)
				case len(open) > 0:
					u := open[r.IntN(len(open))]
					u.Charged, u.N = u.N, r.IntN(u.N+3)
					require.NoError(t, memory.Settle(t.Context(), []ratelimit.Ask{u}))
					require.NoError(t, there.Settle(t.Context(), []ratelimit.Ask{u}))
					settled++
				}
				u.N = 0
				both(u)
			}
		}
		t.Logf("%s: %d steps, %d settlements, 0 mismatches", a, steps, settled)
	}
}

// drawRate returns rate with other numbers, drawn from r.
func drawRate(r *rand.Rand, rate ratelimit.Rate, warmup ratelimit.Warmup) ratelimit.Rate {
	rate.Requests = 1 + r.IntN(9)
	if rate.Burst > 0 && (warmup.From > 0 || r.IntN(2) == 0) {
		rate.Burst = 1 + r.IntN(9)
	}
	if warmup.From > 0 && rate.Burst > 0 { // so that a new key is granted something
		rate.Requests = min(rate.Requests, 2*rate.Burst)
	}
	return rate
}

// ceil rounds d up to a microsecond.
func ceil(d time.Duration) time.Duration {
	if d != ratelimit.Never && d%time.Microsecond > 0 {
		d += time.Microsecond - d%time.Microsecond
	}
	return d
}

// TestSettleRepliesLost loses replies to settlements, and settlements themselves. What has come back
// does not come back again, whatever is repeated.
func TestSettleRepliesLost(t *testing.T) {
	srv := start(t)
	p := startProxy(t, srv.addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	s, direct := newStore(t, client, frozen()), newStore(t, srv.client(t), frozen())
	for _, a := range all {
		for lose, fails := range []bool{false, false, true, true} {
			first, other := revocable(a, ratelimit.PerDay(100), 5, 1, time.Hour), revocable(a, ratelimit.PerDay(100), 3, 2, time.Hour)
			require.NoError(t, direct.Reset(t.Context(), []ratelimit.Ask{first}))
			take(t, s, first)
			take(t, s, other)
			u := first
			u.Charged, u.N = 5, 1
			settle(t, direct, revocable(a, ratelimit.PerDay(100), 5, 9, time.Hour), 0) // so that the server knows the script
			p.will(loses, lose)
			err := s.Settle(t.Context(), []ratelimit.Ask{u})
			require.Equal(t, fails, err != nil, "%s, %d replies lost: %v", a, lose, err)
			require.Equal(t, min(lose, 2), int(p.met.Load()), "%s: a settlement is repeated once", a)
			p.will(loses, 0)
			require.Equal(t, 100-1-3, left(t, direct, u), "%s, %d replies lost", a, lose)
			require.NoError(t, s.Settle(t.Context(), []ratelimit.Ask{u}), "%s: once more", a)
			require.Equal(t, 100-1-3, left(t, direct, u), "%s, %d replies lost", a, lose)
		}
	}
}
