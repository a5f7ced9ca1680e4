package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestPenaltyAtOnce has many callers of two processes ask for one key at once, and requires that each of them strikes in
// turn: only those before the third denial are denied by the rule.
func TestPenaltyAtOnce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		stores := []*redisstore.Store{newStore(t, connect(), frozen()), newStore(t, connect(), frozen())}
		for round := range 20 {
			a := penalized(1)
			a.Key, a.Client = strconv.Itoa(round), strconv.Itoa(round)
			a.Rate, a.Penalty.After = ratelimit.PerHour(5), 7
			var granted, denied, blocked atomic.Int32
			var ready, all sync.WaitGroup
			ready.Add(1)
			for g := range 64 {
				all.Go(func() {
					ready.Wait()
					switch res := take(t, stores[g%2], a); {
					case res.Allowed:
						granted.Add(1)
					case res.Reason == ratelimit.ReasonPenalty:
						blocked.Add(1)
					default:
						denied.Add(1)
					}
				})
			}
			ready.Done()
			all.Wait()
			require.Equal(t, []int32{5, 6, 53}, []int32{granted.Load(), denied.Load(), blocked.Load()}, "round %d", round)
		}
	})
}

// TestStrikesInTurn decides about several callers of a key in one call, and requires that each of them gets the answer that
// it would get if it came alone, after the one before.
func TestStrikesInTurn(t *testing.T) {
	p := newPenalTest(t)
	random := rand.New(rand.NewPCG(1, 2))
	seen := make(map[ratelimit.Reason]int)
	fast, slow := 0, 0
	for round := range schedules(500) {
		a := ask(all[round%len(all)], ratelimit.Rate{Requests: 3, Per: 3 * time.Second}, 0)
		a.Penalty = ratelimit.Penalty{After: 1 + random.IntN(3), Within: 2 * time.Second, For: time.Second, Most: 3 * time.Second}
		a.NoStrike = random.IntN(5) == 0
		a.Rule = strconv.Itoa(round)
		apart := a
		apart.Rule += "apart"
		for range 6 {
			costs := make([]int64, 1+random.IntN(5))
			var want []ratelimit.Result
			for i := range costs {
				costs[i] = int64(random.IntN(6) % 4)
				apart.N = int(costs[i])
				want = append(want, take(t, p.Store, apart))
				seen[want[i].Reason]++
			}
			a.N = 1
			got, decided, err := p.Joined(t.Context(), a, costs)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s, round %d: %v", a.Algorithm, round, costs)
			looks := []ratelimit.Ask{a, apart}
			for i := range looks {
				looks[i].N, looks[i].Penalty = 0, ratelimit.Penalty{}
			}
			require.Equal(t, take(t, p.Store, looks[1]), take(t, p.Store, looks[0]), "what the rule itself would say")
			if decided {
				fast++
			} else {
				slow++
			}
			p.clock.Advance(time.Duration(random.IntN(5)) * 250 * time.Millisecond)
		}
		require.Equal(t, p.client.Get(t.Context(), p.KeyOf(apart)+";p").Val(), p.client.Get(t.Context(), p.KeyOf(a)+";p").Val())
	}
	require.NotZero(t, fast)
	require.NotZero(t, slow)
	require.NotZero(t, seen[ratelimit.ReasonPenalty])
	t.Logf("%d calls by the fast path, %d by the general code; results by reason: %v", fast, slow, seen)
}

// TestPenaltyInSeveralSlots makes decisions about keys in several slots, and requires that only the key that denies is
// struck, and only once.
func TestPenaltyInSeveralSlots(t *testing.T) {
	p := newPenalTest(t)
	store := newStore(t, wrapped{p.client}, redisstore.WithClock(p.clock), redisstore.WithDenialCache(0))
	asks := apart(ratelimit.AlgorithmFixedWindow, ratelimit.PerHour(10), 3)
	for i := range asks {
		asks[i].Penalty = ratelimit.Penalty{After: 2, Within: time.Minute, For: time.Minute}
	}
	asks[1].Rate.Requests = 1
	both := func() (reasons [3]ratelimit.Reason, left [3]int) {
		results, err := store.Take(t.Context(), asks)
		require.NoError(t, err)
		for i, res := range results {
			reasons[i], left[i] = res.Reason, res.Remaining
		}
		return reasons, left
	}
	penalty := ratelimit.ReasonPenalty
	for i, want := range []ratelimit.Reason{"", ratelimit.ReasonLimit, penalty, penalty} {
		reasons, left := both()
		require.Equal(t, [3]ratelimit.Reason{"", want, ""}, reasons, "request %d", i+1)
		require.Equal(t, [3]int{9, 0, 9}, left, "request %d", i+1)
	}
	require.Len(t, p.client.Keys(t.Context(), "*;p").Val(), 1)
	asks[1].Rate.Requests = 10
	_, left := both()
	require.Equal(t, [3]int{9, 0, 9}, left, "the block denies what the rule would grant, and charges nothing elsewhere")
	asks[1].N = 1
	require.NoError(t, store.Pardon(t.Context(), asks))
	_, left = both()
	require.Equal(t, [3]int{8, 8, 8}, left)
}

// TestOnceWithPenalty requires that a request with an ID that is denied strikes as any other, and that its replay does not,
// whether the key is in the slot of the record or in another one.
func TestOnceWithPenalty(t *testing.T) {
	for name, client := range map[string]string{"in the slot of the record": "a", "in another slot": "b"} {
		t.Run(name, func(t *testing.T) {
			p := newPenalTest(t)
			store := newStore(t, wrapped{p.client}, redisstore.WithClock(p.clock))
			once := func(id string, asks ...ratelimit.Ask) (ratelimit.Result, bool) {
				results, replayed, err := store.Once(t.Context(), ratelimit.Attempt{Client: client, ID: id, TTL: time.Hour}, asks)
				require.NoError(t, err)
				return results[0], replayed
			}
			a := penalized(1)
			res, _ := once("first", a)
			require.True(t, res.Allowed)
			for range 4 {
				res, replayed := once("first", a)
				require.True(t, replayed)
				require.True(t, res.Allowed)
			}
			require.Empty(t, p.client.Keys(t.Context(), "*;p").Val(), "a replay is no strike")
			own := ratelimit.Ask{Rule: "own", Key: "b", Client: "b", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(9), N: 1}
			for i := range 5 {
				res, replayed := once("second", a, own)
				require.False(t, replayed)
				require.Equal(t, i >= 2, res.Reason == ratelimit.ReasonPenalty, "denial %d", i+1)
				require.Equal(t, ratelimit.Result{Limit: 1, RetryAfter: time.Hour, ResetAfter: time.Hour, Reason: res.Reason}, res)
			}
			res, replayed := once("first", a)
			require.True(t, replayed, "a block does not concern what was granted before")
			require.True(t, res.Allowed)
			require.Equal(t, 9, left(t, store, own), "nothing was charged")
			looks, _, err := store.Once(t.Context(), ratelimit.Attempt{Client: client, ID: "third", TTL: time.Hour, Look: true}, []ratelimit.Ask{a})
			require.NoError(t, err)
			require.Equal(t, ratelimit.ReasonPenalty, looks[0].Reason)
			require.NoError(t, store.Pardon(t.Context(), []ratelimit.Ask{a}))
			for range 3 {
				_, _, err = store.Once(t.Context(), ratelimit.Attempt{Client: client, ID: "third", TTL: time.Hour, Look: true}, []ratelimit.Ask{a})
				require.NoError(t, err)
			}
			a.NoStrike = true
			for range 3 {
				once("third", a)
			}
			require.Empty(t, p.client.Keys(t.Context(), "*;p").Val(), "neither a look nor who waits strikes")
		})
	}
}

// TestPenaltyJoined makes callers of one key wait at the same time, and requires that one call decides about all that strike
// alike, each in turn.
func TestPenaltyJoined(t *testing.T) {
	srv := startReal(t)
	store := newStore(t, srv.client(t), frozen(), redisstore.WithDenialCache(0))
	a := penalized(1)
	a.Rate = ratelimit.PerHour(3)
	before := store.Stats()
	c := gather(t, srv, store, 10)
	c.asks(t.Context(), 0, a)
	for i, n := range []int{1, 2, 2, 0, 1, 2, 1, 1, 0} {
		b := a
		b.N = n
		c.asks(t.Context(), i+1, b)
	}
	c.goes()
	var got []string
	for i, res := range c.answers {
		require.NoError(t, c.errs[i])
		got = append(got, fmt.Sprintf("%t %d %s", res.Allowed, res.Remaining, res.Reason))
	}
	assert.Equal(t, []string{
		"true 2 ", "true 1 ", "false 1 limit", "false 1 limit", "true 1 ", "true 0 ",
		"false 0 penalty", "false 0 penalty", "false 0 penalty", "false 0 penalty",
	}, got)
	after := store.Stats()
	assert.EqualValues(t, 5, after.Calls-after.NoScripts-before.Calls, "those that want nothing have calls of their own")
}

// TestWhoJoins requires that callers share a call only if their denials have the same effect.
func TestWhoJoins(t *testing.T) {
	srv := startReal(t)
	store := newStore(t, srv.client(t), frozen(), redisstore.WithDenialCache(0))
	a := penalized(1)
	require.True(t, take(t, store, a).Allowed)
	waits, other, none := a, a, a
	waits.NoStrike, other.Penalty.After, none.Penalty = true, 1, ratelimit.Penalty{}
	before := store.Stats()
	asks := []ratelimit.Ask{a, a, a, waits, waits, none, none, other, other, other}
	c := gather(t, srv, store, len(asks))
	for i, ask := range asks {
		c.asks(t.Context(), i, ask)
	}
	c.goes()
	after := store.Stats()
	assert.EqualValues(t, 5, after.Coalesced-before.Coalesced)
	assert.EqualValues(t, 5, after.Calls-after.NoScripts-(before.Calls-before.NoScripts), "one for the first caller, and one for each kind")
	var reasons []ratelimit.Reason
	for _, res := range c.answers {
		require.False(t, res.Allowed)
		reasons = append(reasons, res.Reason)
	}
	const limit, penalty = ratelimit.ReasonLimit, ratelimit.ReasonPenalty
	assert.Equal(t, []ratelimit.Reason{limit, limit, penalty, penalty, penalty, limit, limit, penalty, penalty, penalty}, reasons)
	require.NoError(t, store.Pardon(t.Context(), asks[:1]))

	c = gather(t, srv, store, len(asks))
	for i, ask := range []ratelimit.Ask{waits, waits, a, waits, waits, waits, a, a} {
		c.asks(t.Context(), i, ask)
	}
	c.goes()
	reasons = nil
	for _, res := range c.answers[:8] {
		reasons = append(reasons, res.Reason)
	}
	assert.Equal(t, []ratelimit.Reason{limit, limit, limit, limit, limit, limit, limit, penalty}, reasons, "three of them strike")
}

// TestPenaltyInPipeline makes callers of many keys wait at the same time, and requires that each of them strikes.
func TestPenaltyInPipeline(t *testing.T) {
	srv := startReal(t)
	store := newStore(t, srv.client(t), frozen())
	c := gather(t, srv, store, 20)
	for i := range c.answers {
		a := penalized(2)
		a.Key, a.Client, a.Penalty.After = strconv.Itoa(i), strconv.Itoa(i), 1
		c.asks(t.Context(), i, a)
	}
	c.goes()
	for i, res := range c.answers {
		require.NoError(t, c.errs[i])
		require.Equal(t, ratelimit.ReasonPenalty, res.Reason)
	}
}

// TestPenaltyBesideLeases requires that units that were taken ahead are not spent for a key with a Penalty, and that none are
// taken ahead for it.
func TestPenaltyBesideLeases(t *testing.T) {
	store := newStore(t, startReal(t).client(t), redisstore.WithLeases(100))
	a := ask(ratelimit.AlgorithmTokenBucket, ratelimit.PerHour(1_000_000), 1)
	for range 50 {
		require.True(t, take(t, store, a).Allowed)
	}
	require.NotZero(t, store.Stats().LeaseHits)
	before := store.Stats()
	a.Penalty = ratelimit.Penalty{After: 1, Within: time.Hour, For: time.Hour}
	for range 50 {
		require.True(t, take(t, store, a).Allowed)
	}
	a.N = 1_000_001
	require.Equal(t, ratelimit.ReasonPenalty, take(t, store, a).Reason)
	a.N = 1
	require.Equal(t, ratelimit.ReasonPenalty, take(t, store, a).Reason)
	after := store.Stats()
	require.Equal(t, before.LeaseHits, after.LeaseHits)
	require.Equal(t, before.Leased, after.Leased)
	require.NoError(t, store.Close())
}
