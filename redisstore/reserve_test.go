package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// desk returns a RateLimiter of a rule by each algorithm, whose keys are on the server.
func desk(t testing.TB, s ratelimit.Store, rate ratelimit.Rate, clock ratelimit.Clock) *ratelimit.RateLimiter {
	t.Helper()
	var rules []ratelimit.Rule
	for _, a := range all {
		rules = append(rules, ratelimit.Rule{Name: string(a), Algorithm: a, Rate: rate})
	}
	l, err := ratelimit.New(rules, nil, ratelimit.WithStore(s), ratelimit.WithName("desk"), ratelimit.WithClock(clock))
	require.NoError(t, err)
	return l
}

// TestReserve reserves of rules by all algorithms together, whose keys are in several slots of a
// cluster, and settles for less and for more.
func TestReserve(t *testing.T) {
	t.Parallel()
	_, cluster := startReplicated(t)
	for name, client := range map[string]redis.UniversalClient{"standalone": startReal(t).client(t), "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
			l := desk(t, newStore(t, client, redisstore.WithClock(clock)), ratelimit.PerHour(100), clock)
			req := ratelimit.Request{Client: "a", Cost: 40}
			for _, a := range all {
				req.Rules = append(req.Rules, string(a))
			}
			left := func(want int) {
				t.Helper()
				for _, rule := range req.Rules {
					res, err := l.Peek(t.Context(), ratelimit.Request{Client: "a", Rules: []string{rule}})
					require.NoError(t, err)
					require.Equal(t, want, res.Remaining, rule)
				}
			}
			reserve := func() *ratelimit.Reservation {
				r, err := l.Reserve(t.Context(), req, time.Hour)
				require.NoError(t, err)
				require.True(t, r.Result().Allowed)
				return r
			}
			r, other := reserve(), reserve()
			left(20)
			require.NoError(t, r.Settle(13))
			left(47)
			require.Equal(t, ratelimit.ErrSettled, r.Settle(13))
			require.NoError(t, other.Settle(60))
			left(27)
			req.Cost = 1
			r = reserve()
			require.NoError(t, r.Settle(2000))
			left(0)
			res, err := l.Check(t.Context(), req)
			require.NoError(t, err)
			require.False(t, res.Allowed)
			require.Greater(t, res.RetryAfter, 10*time.Hour, "a bucket owes all of it")
		})
	}
}

// TestSettleSaturates charges far more units than any limit, many times. The state stays one that
// the scripts read, and forgives nothing.
func TestSettleSaturates(t *testing.T) {
	client := start(t).client(t)
	for _, a := range all {
		clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
		s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
		u := revocable(a, ratelimit.PerDay(8), 1, 1, time.Hour)
		take(t, s, u)
		for range 4 {
			settle(t, s, u, math.MaxInt32)
			clock.Advance(time.Second)
		}
		if math.MaxInt > math.MaxInt32 {
			more := int64(1 << 60)
			settle(t, s, u, int(more))
		}
		clock.Advance(23*time.Hour + 59*time.Minute)
		require.Zero(t, left(t, s, u), a)
		u.Rate = ratelimit.PerDay(9)
		require.False(t, take(t, s, u).Allowed, a)
		u.Rate = ratelimit.PerDay(7)
		res := take(t, s, u)
		require.False(t, res.Allowed, a)
		require.Zero(t, res.Remaining, a)
		require.Positive(t, res.RetryAfter, a)
	}
}

// TestSettleBeyondOnce loses the reply to a call that charges units beyond those reserved: it is
// not sent again.
func TestSettleBeyondOnce(t *testing.T) {
	srv := start(t)
	p := startProxy(t, srv.addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	s, direct := newStore(t, client, frozen()), newStore(t, srv.client(t), frozen())
	for _, a := range all {
		u := revocable(a, ratelimit.PerDay(100), 5, 1, time.Hour)
		take(t, s, u)
		settle(t, direct, revocable(a, ratelimit.PerDay(100), 0, 9, time.Hour), 1) // so that the server knows the script
		p.will(loses, 1)
		u.Charged, u.N = 5, 8
		require.Error(t, s.Settle(context.Background(), []ratelimit.Ask{u}), a)
		require.EqualValues(t, 1, p.met.Load(), a)
		p.will(loses, 0)
		require.Equal(t, 100-8-1, left(t, direct, u), a)
	}
}

// TestSettleFullLog charges units beyond a log that has as many entries as it may have, and one
// whose totals are near the end of the numbers.
func TestSettleFullLog(t *testing.T) {
	client := start(t).client(t)
	begin := time.Unix(1772323200, 0)
	clock := ratelimit.NewFakeClock(begin)
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	u := revocable(ratelimit.AlgorithmSlidingWindowLog, ratelimit.PerDay(1<<16), 0, 1, time.Hour)
	key, ctx := s.KeyOf(u), t.Context()
	fill := func(entries int, base int64) {
		values := []any{fmt.Sprintf("%d %d %d", (24 * time.Hour).Microseconds(), begin.UnixMicro(), base)}
		for i := range entries {
			values = append(values, begin.UnixMicro()+int64(i), base+int64(i)+1)
		}
		require.NoError(t, client.Del(ctx, key).Err())
		require.NoError(t, client.RPush(ctx, key, values...).Err())
		clock.Set(begin.Add(time.Hour))
	}
	const most = 1<<16 + 1
	fill(most, 0)
	settle(t, s, u, 3)
	require.EqualValues(t, 1+2*most, client.LLen(ctx, key).Val(), "the units join the newest entry")
	require.Equal(t, []string{fmt.Sprint(begin.Add(time.Hour).UnixMicro()), fmt.Sprint(most + 3)}, client.LRange(ctx, key, -2, -1).Val())
	clock.Set(begin.Add(25*time.Hour - time.Microsecond))
	require.Equal(t, 1<<16-4, left(t, s, u), "the newest entry counts from then on")

	fill(5, 1<<52-6)
	settle(t, s, u, 3)
	entries := client.LRange(ctx, key, 1, -1).Val()
	require.Equal(t, []string{fmt.Sprint(begin.Add(time.Hour).UnixMicro()), "8"}, entries, "one entry of all units")
	fill(5, 0)
	settle(t, s, u, math.MaxInt32)
	settle(t, s, u, math.MaxInt32)
	settle(t, s, u, math.MaxInt32)
	require.Equal(t, "4294967295", client.LIndex(ctx, key, -1).Val())
	require.EqualValues(t, 3, client.LLen(ctx, key).Val())
}

// TestSettleBeyondKeepsItsPlace requires that a leaky bucket's queue does not shrink before units
// beyond, when an earlier charge is given back.
func TestSettleBeyondKeepsItsPlace(t *testing.T) {
	s := newStore(t, start(t).client(t), frozen())
	u := func(n int, id uint64) ratelimit.Ask {
		return revocable(ratelimit.AlgorithmLeakyBucket, ratelimit.PerSecond(1).WithBurst(20), n, id, time.Hour)
	}
	take(t, s, u(2, 1))
	take(t, s, u(3, 2))
	settle(t, s, u(2, 1), 4)
	settle(t, s, u(3, 2), 0)
	require.Equal(t, 7*time.Second, take(t, s, u(1, 3)).Delay)
}
