package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

const most = 1 << 50

// atMost returns n as an int, or the largest int if n is larger.
func atMost(n int64) int { return int(min(n, math.MaxInt)) }

// products is the script of TestProducts. It computes with four numbers at a time.
const products = `
local out = {}
for i = 1, #ARGV, 4 do
  local a, b, c, d = tonumber(ARGV[i]), tonumber(ARGV[i+1]), tonumber(ARGV[i+2]), tonumber(ARGV[i+3])
  local q, rest = muldiv(a, b, c)
  out[#out+1] = format('%.0f', q)
  out[#out+1] = format('%.0f', rest)
  out[#out+1] = less(a, b, c, d) and '1' or '0'
  local half, r = muldiv(a, b, 2 * c)
  local more, last = divide(r, c)
  local us = twice(half, more)
  out[#out+1] = type(us) == 'string' and us or format('%.0f', us)
end
return out`

// denial returns the Result of a request that is denied because the limit is reached.
func denial(limit, remaining int, retry, reset time.Duration) ratelimit.Result {
	return ratelimit.Result{
		Limit: limit, Remaining: remaining, RetryAfter: retry, ResetAfter: reset, Reason: ratelimit.ReasonLimit,
	}
}

// TestProducts compares the arithmetic of the scripts with that of big integers, mostly
// near the largest numbers that a double holds.
func TestProducts(t *testing.T) {
	client := start(t).client(t)
	r := rand.New(rand.NewPCG(1, 2))
	up := func(limit int64) int64 { // a number near a power of two, or any
		n := int64(1) << r.IntN(51)
		if r.IntN(2) == 0 {
			n += r.Int64N(n) - r.Int64N(3)
		}
		return min(max(n+r.Int64N(3)-1, 1), limit)
	}
	const rounds, batch = 50, 500
	long := 0
	for range rounds {
		var args []any
		var nums []int64
		for range batch {
			a, b, c, d := up(most), up(most), up(most), up(most)
			switch r.IntN(4) { // make the two products nearly equal
			case 0:
				c, d = b, a+r.Int64N(3)-1
			case 1:
				a, b, c, d = a+1, max(a-r.Int64N(2), 1), a, a
			}
			for _, n := range []int64{a, b, max(c, 1), max(d, 0)} {
				args, nums = append(args, n), append(nums, n)
			}
		}
		out, err := client.Eval(context.Background(), redisstore.Exact()+products, nil, args...).StringSlice()
		require.NoError(t, err)
		for i := 0; i < len(nums); i += 4 {
			if !sameProduct(t, nums[i:i+4], out[i:i+4]) {
				return
			}
			if len(out[i+3]) > 15 {
				long++
			}
		}
	}
	t.Logf("%d products, 0 mismatches; %d quotients of more than 15 digits", rounds*batch, long)
}

// sameProduct checks the results of the scripts for four numbers.
func sameProduct(t *testing.T, n []int64, got []string) bool {
	t.Helper()
	a, b, c, d := big.NewInt(n[0]), big.NewInt(n[1]), big.NewInt(n[2]), big.NewInt(n[3])
	ab, cd := new(big.Int).Mul(a, b), new(big.Int).Mul(c, d)
	q, rest := new(big.Int).QuoRem(ab, c, new(big.Int))
	ok := true
	if q.BitLen() <= 53 {
		ok = assert.Equal(t, []string{q.String(), rest.String()}, got[:2], "%v", n)
	}
	less := "0"
	if ab.Cmp(cd) < 0 {
		less = "1"
	}
	ok = assert.Equal(t, less, got[2], "%v: a*b < c*d", n) && ok
	us := q.String()
	if q.Cmp(big.NewInt(math.MaxInt64/1000)) > 0 {
		digits, err := strconv.ParseInt(got[3], 10, 64)
		return assert.True(t, got[3] == "-1" || err == nil && digits > math.MaxInt64/1000, "%v: %s is longer than any", n, got[3]) && ok
	}
	return assert.Equal(t, us, got[3], "%v", n) && ok
}

// TestLater compares the sum of two times, as the scripts compute it, with that of integers,
// mostly where a double does not hold the sum.
func TestLater(t *testing.T) {
	const exact = 1 << 53
	client := start(t).client(t)
	for _, row := range []struct{ time, ahead, want int64 }{
		{0, 7, 0}, {-1, 7, -1}, {5, 0, 5}, {5, 7, 12}, {99_999_999, 1, 100_000_000},
		{exact - 2, 1, exact - 1}, {exact - 1, 1, exact}, {exact - 1, 2, exact + 1}, {exact - 1, exact - 1, 2*exact - 2},
		{1, exact - 1, exact}, {exact, 0, exact}, {exact + 1, 0, exact + 1}, {exact + 1, 2, exact + 3},
		{exact + 3, 100_000_000, exact + 100_000_003}, {9_100_000_099_999_999, 3, 9_100_000_100_000_002},
	} {
		begins := strconv.FormatInt(row.time, 10)
		if row.time >= exact {
			begins = "'" + begins + "'"
		}
		script := fmt.Sprintf("local us = later(%s, %d)\nreturn type(us) == 'string' and us or format('%%.0f', us)", begins, row.ahead)
		sum, err := client.Eval(context.Background(), redisstore.Exact()+script, nil).Text()
		require.NoError(t, err)
		assert.Equal(t, strconv.FormatInt(row.want, 10), sum, "%+v", row)
	}
}

// extreme returns rates whose products do not fit into a double, and whose tokens do not
// divide into whole numbers of anything.
func extreme() map[ratelimit.Algorithm][]ratelimit.Rate {
	const year, µs = 366 * 24 * time.Hour, time.Microsecond
	windows := []ratelimit.Rate{
		{Requests: math.MaxInt32, Per: year},
		{Requests: math.MaxInt32, Per: year - 7*µs},
		{Requests: atMost(most), Per: year},
		{Requests: atMost(most - 1), Per: most * µs},
		{Requests: 1, Per: most * µs},
		{Requests: 1e6, Per: 24 * time.Hour},
	}
	buckets := []ratelimit.Rate{
		{Requests: math.MaxInt32, Per: year, Burst: atMost(math.MaxUint32)},
		{Requests: math.MaxInt32, Per: year - 7*µs, Burst: 3},
		{Requests: 1, Per: year - µs, Burst: math.MaxInt32},
		{Requests: 1, Per: most * µs, Burst: atMost(math.MaxUint32)},
		{Requests: 3, Per: year - µs, Burst: 293},
		{Requests: 1, Per: year, Burst: 292},
		{Requests: math.MaxInt32, Per: µs, Burst: atMost(math.MaxUint32)},
		{Requests: atMost(most - 1), Per: time.Second - µs, Burst: 5},
		{Requests: atMost(1 << 40), Per: year - µs, Burst: atMost(math.MaxUint32)},
		{Requests: 3, Per: 1500, Burst: 7},
		{Requests: 7, Per: 13, Burst: 9},
	}
	logs := []ratelimit.Rate{{Requests: 65536, Per: year}, {Requests: 1000, Per: most * µs}, {Requests: 2, Per: year - µs}}
	return map[ratelimit.Algorithm][]ratelimit.Rate{
		ratelimit.AlgorithmTokenBucket:          buckets,
		ratelimit.AlgorithmLeakyBucket:          buckets,
		ratelimit.AlgorithmFixedWindow:          windows,
		ratelimit.AlgorithmSlidingWindowCounter: windows,
		ratelimit.AlgorithmSlidingWindowLog:     logs,
	}
}

// TestExtremes checks all promises of a Store at the extreme rates.
func TestExtremes(t *testing.T) {
	t.Parallel()
	client := startReal(t).client(t)
	conform(t, client, ratelimittest.StoreConfig{Schedules: schedules(40), Steps: 40, Rates: extreme(), Seed: 2})
}

func TestSupports(t *testing.T) {
	s := nowhere(t)
	const year = 366 * 24 * time.Hour
	token, fixed, log := ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog
	type row struct {
		algorithm ratelimit.Algorithm
		rate      ratelimit.Rate
		says, why string
	}
	rows := []row{
		{token, ratelimit.Rate{Requests: math.MaxInt32, Per: year, Burst: math.MaxInt32}, "", "the largest that memory always takes"},
		{fixed, ratelimit.Rate{Requests: math.MaxInt32, Per: year}, "", "the same of windows"},
		{token, ratelimit.Rate{Requests: 1, Per: 1500}, "", "a bucket of a fraction of a microsecond is as exact"},
		{fixed, ratelimit.Rate{Requests: 1, Per: 1500}, "whole microseconds", "a window is not"},
		{fixed, ratelimit.Rate{Requests: 1, Per: (most + 1) * time.Microsecond}, "2^50", "as long"},
		{token, ratelimit.Rate{Requests: 1, Per: math.MaxInt64, Burst: 1}, "2^50", "as slow"},
		{fixed, ratelimit.Rate{Requests: 1, Per: time.Second, Burst: 2}, "no burst", "as in memory"},
		{log, ratelimit.Rate{Requests: 65537, Per: time.Second}, "65536", "as in memory"},
		{"Other", ratelimit.PerSecond(1), "five", "not an algorithm"},
		{token, ratelimit.Rate{}, "requests", "not a rate"},
	}
	if strconv.IntSize > 32 {
		rows = append(rows,
			row{fixed, ratelimit.Rate{Requests: atMost(most + 1), Per: year}, "at most 1125899906842624",
				"no double holds more than a few of these"},
			row{token, ratelimit.Rate{Requests: atMost(1 << 62), Per: 3, Burst: 1}, "2^50", "as fast"},
			row{token, ratelimit.Rate{Requests: 1, Per: 1, Burst: atMost(math.MaxUint32 + 1)}, "4294967295", "as in memory"},
		)
	}
	for _, row := range rows {
		err := s.Supports(row.algorithm, row.rate)
		if row.says == "" {
			assert.NoError(t, err, row.why)
		} else if assert.Error(t, err, row.why) {
			assert.Contains(t, err.Error(), row.says, row.why)
		}
	}
}

// TestBurstChanges checks that a token bucket on a real server keeps its tokens when its burst
// changes, that a full one stays full, and that under a smaller burst only a charge changes it.
func TestBurstChanges(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	of := func(burst int) ratelimit.Rate { return ratelimit.PerSecond(10).WithBurst(burst) }
	left := func(burst, n int) ratelimit.Result {
		return take(t, store, ask(ratelimit.AlgorithmTokenBucket, of(burst), n))
	}
	require.Equal(t, 30, left(100, 70).Remaining)
	assert.Equal(t, 30, left(50, 0).Remaining, "30 of 100 stay 30 of 50")
	assert.Equal(t, 29, left(50, 1).Remaining, "and the charge is under the new burst")
	assert.Equal(t, 28, left(100, 1).Remaining, "a raise adds none")
	clock.Advance(6 * time.Second)
	assert.Equal(t, 88, left(100, 0).Remaining)
	assert.Equal(t, 50, left(50, 0).Remaining, "88 of 100 become 50 of 50")
	assert.Equal(t, 49, left(50, 1).Remaining)
	assert.Equal(t, 49, left(200, 0).Remaining, "a raise adds none")
	clock.Advance(100 * time.Millisecond)
	assert.Equal(t, 200, left(200, 0).Remaining, "full at the change, so as a new key")

	require.Equal(t, 0, left(200, 200).Remaining)
	held := dump(t, client)
	assert.Equal(t, denial(50, 0, 100*time.Millisecond, 5*time.Second), left(50, 1))
	clock.Advance(5 * time.Second)
	assert.False(t, left(50, 51).Allowed, "never fits")
	assert.Equal(t, 50, left(50, 0).Remaining)
	assert.Equal(t, held, dump(t, client), "denials and looks under a smaller burst change nothing")
	assert.Equal(t, 50, left(200, 0).Remaining, "full under the smaller burst is not full under the larger one")

	// A value that an earlier version has written: its last number is dropped.
	for key := range held {
		value := fmt.Sprintf("1 100000 200 %d 100000 150 0 0 30", clock.Now().Unix())
		require.NoError(t, client.Set(t.Context(), key, value, time.Minute).Err())
	}
	assert.Equal(t, ratelimit.Result{Allowed: true, Limit: 200, Remaining: 50, ResetAfter: 15 * time.Second}, left(200, 0), "150 are missing")
}

// TestBurstOfLeakyBucketChanges requires that a drained leaky bucket is as a new key when its burst is
// raised, and that a denial under a smaller burst leaves the key as it is.
func TestBurstOfLeakyBucketChanges(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	left := func(burst, n int) ratelimit.Result {
		return take(t, store, ask(ratelimit.AlgorithmLeakyBucket, ratelimit.PerSecond(10).WithBurst(burst), n))
	}
	require.Equal(t, 9, left(10, 1).Remaining)
	clock.Advance(100*time.Millisecond - time.Microsecond)
	assert.Equal(t, 9, left(100, 0).Remaining, "a microsecond is left, and a raise adds none")
	clock.Advance(time.Microsecond)
	assert.Equal(t, 100, left(100, 0).Remaining, "drained, so as a new key")
	assert.Equal(t, 60, left(100, 40).Remaining)

	held := dump(t, client)
	assert.Equal(t, denial(5, 0, 3600*time.Millisecond, 4*time.Second), left(5, 1))
	assert.Equal(t, held, dump(t, client), "a denial under a smaller burst changes nothing")
	assert.Equal(t, 60, left(100, 0).Remaining)
	clock.Advance(3600*time.Millisecond - time.Microsecond)
	assert.Equal(t, time.Microsecond, left(5, 1).RetryAfter)
	clock.Advance(time.Microsecond)
	assert.Equal(t, ratelimit.Result{
		Allowed: true, Limit: 5, Remaining: 0, ResetAfter: 500 * time.Millisecond, Delay: 400 * time.Millisecond,
	}, left(5, 1))
}

// TestDenialAtSlowerRate denies a bucket units at a slower rate than that of its last charge. That changes
// nothing, also if the burst is larger. Memory and Redis answer alike.
func TestDenialAtSlowerRate(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	redis := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		of := func(r ratelimit.Rate, n int) ratelimit.Result {
			res := take(t, redis, ask(a, r, n))
			want, err := memory.Take(t.Context(), []ratelimit.Ask{ask(a, r, n)})
			require.NoError(t, err)
			require.Equal(t, want[0], res, a)
			return res
		}
		fast := ratelimit.PerSecond(100).WithBurst(10)
		require.Equal(t, 1, of(fast, 9).Remaining)
		held := dump(t, client)
		soon := denial(20, 1, 90*time.Millisecond, 90*time.Millisecond)
		slow := ratelimit.PerHour(1).WithBurst(20)
		assert.Equal(t, soon, of(slow, 5), "%s: the key was charged at the fast rate only, and is new when it owes nothing at this rate", a)
		assert.Equal(t, soon, of(slow, 11), a)
		assert.Equal(t, soon, of(slow, 20), a)
		assert.Equal(t, held, dump(t, client), a)
		clock.Advance(90*time.Millisecond - time.Microsecond)
		assert.Equal(t, time.Microsecond, of(slow, 5).RetryAfter, a)
		clock.Advance(time.Microsecond)
		assert.Equal(t, 20, of(slow, 0).Remaining, a)
		assert.Equal(t, 10, of(fast, 0).Remaining, "%s: the time counts at the rate of the last charge", a)

		require.NoError(t, client.FlushAll(t.Context()).Err())
		require.NoError(t, memory.Reset(t.Context(), []ratelimit.Ask{ask(a, slow, 1)}))
		n := 9
		require.True(t, of(ratelimit.PerDay(1).WithBurst(20), 1).Allowed) // at this rate, the key is new only after 9 days
		if a == ratelimit.AlgorithmLeakyBucket {
			n-- // the unit is in the queue, however small the burst becomes
		}
		require.Equal(t, 1, of(fast, n).Remaining)
		held = dump(t, client)
		hours := func(n int) ratelimit.Result {
			return denial(20, 1, time.Duration(n)*time.Hour, 9*time.Hour)
		}
		assert.Equal(t, hours(4), of(slow, 5), "%s: 5 of the 10 that the key may have", a)
		assert.Equal(t, hours(9), of(slow, 11), "%s: more than it may have, so it must owe nothing first", a)
		assert.Equal(t, hours(9), of(slow, 20), a)
		assert.Equal(t, held, dump(t, client), a)
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
}

// TestQueueLongerThanBurst changes the rate of a leaky bucket whose queue is longer than its burst, because
// units were returned while later requests had their Delay already. Memory and Redis answer alike, also
// to a settlement after the change.
func TestQueueLongerThanBurst(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	play := func(store ratelimit.Store) (results []ratelimit.Result) {
		clock.Set(time.Unix(1772323200, 0))
		l, err := ratelimit.New([]ratelimit.Rule{{
			Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(5),
		}}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("n"))
		require.NoError(t, err)
		req := func(n int) ratelimit.Request { return ratelimit.Request{Client: "c", Endpoint: "/", Cost: n} }
		check := func(n int) {
			res, err := l.Check(t.Context(), req(n))
			require.NoError(t, err)
			results = append(results, res)
		}
		first, err := l.Reserve(t.Context(), req(4), time.Minute)
		require.NoError(t, err)
		check(1)
		require.NoError(t, first.Cancel())
		second, err := l.Reserve(t.Context(), req(3), time.Minute)
		require.NoError(t, err)
		check(1)
		require.NoError(t, l.UpdateRate("/", ratelimit.PerSecond(2).WithBurst(5)))
		check(1)
		require.NoError(t, second.Cancel())
		check(1)
		clock.Advance(500 * time.Millisecond)
		check(1)
		return results
	}
	want := play(memory)
	require.Equal(t, 500*time.Millisecond, want[2].RetryAfter, "the bucket owes its burst, although its queue is longer")
	require.Equal(t, want, play(newStore(t, startReal(t).client(t), redisstore.WithClock(clock), redisstore.WithDenialCache(0))))
}
