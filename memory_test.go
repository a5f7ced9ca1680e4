package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestNoAllocs proves that no decision of a limiter, granted or denied, allocates memory once the
// key has a state.
func TestNoAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ctx := t.Context()
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			l, err := a.make(ratelimit.PerSecond(1000), ratelimit.WithClock(clock))
			require.NoError(t, err)
			for range 2000 { // a log's ring grows to its full size
				clock.Advance(ms)
				l.Allow("granted")
			}
			spend(t, l, "denied", 1000)
			assertNoAllocs := func(what string, f func()) {
				t.Helper()
				assert.Zero(t, testing.AllocsPerRun(2000, f), what)
			}
			assertNoAllocs("Allow, granted", func() { clock.Advance(2 * ms); ok(t, l.Allow("granted"), true) })
			assertNoAllocs("Take, granted", func() {
				clock.Advance(2 * ms)
				res, _ := l.Take(ctx, "granted", 1)
				ok(t, res, true)
			})
			assertNoAllocs("Peek, granted", func() { clock.Advance(2 * ms); ok(t, l.Peek("granted"), true) })
			require.NoError(t, l.Reset("denied"))
			_, err = l.Take(ctx, "denied", 1000)
			require.NoError(t, err)
			assertNoAllocs("Allow, denied", func() { ok(t, l.Allow("denied"), false) })
			assertNoAllocs("Take, denied", func() {
				res, _ := l.Take(ctx, "denied", 1)
				ok(t, res, false)
			})
			assertNoAllocs("Take, never to be granted", func() {
				res, _ := l.Take(ctx, "granted", 1001)
				ok(t, res, false)
			})
			assertNoAllocs("Peek, denied", func() { ok(t, l.Peek("denied"), false) })
			assertNoAllocs("Peek, unknown key", func() { ok(t, l.Peek("unknown"), true) })
		})
	}
}

// TestNoAllocsOnMachineClock proves that limiters on the machine's clock do not allocate either.
func TestNoAllocsOnMachineClock(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, a := range algorithms {
		l, err := a.make(ratelimit.PerHour(60_000))
		require.NoError(t, err)
		spend(t, l, "key", 40_000) // a log's ring grows beyond what the test needs
		assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, l.Allow("key"), true) }), a.name)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, l.Peek("key"), true) }), a.name)
	}
}

// ok fails the test if res.Allowed is not allowed. It does not allocate.
func ok(t *testing.T, res ratelimit.Result, allowed bool) {
	if res.Allowed != allowed {
		t.Errorf("allowed %t, want %t", res.Allowed, allowed)
	}
}

// TestNoAllocsOfRules proves that decisions of a RateLimiter do not allocate, for every kind of key
// and of rule.
func TestNoAllocsOfRules(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	rate := ratelimit.PerHour(30_000)
	rule := ratelimit.Rule{Name: "a", Endpoint: "/e", Rate: rate}
	with := func(change func(r *ratelimit.Rule)) []ratelimit.Rule {
		r := rule
		change(&r)
		return []ratelimit.Rule{r}
	}
	several := func(n int) (rules []ratelimit.Rule) {
		keys := []ratelimit.KeyType{ratelimit.KeyUser, ratelimit.KeyEndpoint, ratelimit.KeyUserEndpoint, ratelimit.KeyIP, ratelimit.KeyGlobal}
		for i := range n {
			r := rule
			r.Name, r.Key = fmt.Sprint(i), keys[i%len(keys)]
			rules = append(rules, r)
		}
		return rules
	}
	asked := 0
	resolve := func(ratelimit.Request) (ratelimit.Rate, bool) {
		asked++
		return ratelimit.PerHour(30_000 + asked%500), true
	}
	observed := ratelimit.WithObserver(observing(func(ratelimit.Decision) {}))
	for _, row := range []struct {
		rules []ratelimit.Rule
		opts  []ratelimit.Option
		why   string
	}{
		{several(1), nil, "by client"},
		{with(func(r *ratelimit.Rule) { r.Key = ratelimit.KeyEndpoint }), nil, "by endpoint"},
		{with(func(r *ratelimit.Rule) { r.Key = ratelimit.KeyUserEndpoint }), nil, "by client and endpoint"},
		{with(func(r *ratelimit.Rule) { r.Key = ratelimit.KeyIP }), nil, "by address"},
		{with(func(r *ratelimit.Rule) { r.Key = ratelimit.KeyGlobal }), nil, "one key for all"},
		{with(func(r *ratelimit.Rule) { r.Endpoint = "/*" }), nil, "by a prefix"},
		{with(func(r *ratelimit.Rule) { r.Algorithm = ratelimit.AlgorithmFixedWindow }), nil, "a fixed window"},
		{with(func(r *ratelimit.Rule) { r.Algorithm = ratelimit.AlgorithmSlidingWindowCounter }), nil, "a sliding window counter"},
		{with(func(r *ratelimit.Rule) { r.Algorithm = ratelimit.AlgorithmLeakyBucket }), nil, "a leaky bucket"},
		{several(2), nil, "two rules"},
		{several(5), nil, "five rules"},
		{with(func(r *ratelimit.Rule) { r.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerHour(90_000)} }), nil, "tiers"},
		{with(func(r *ratelimit.Rule) { r.Resolve = resolve }), nil, "Resolve, with many rates"},
		{with(func(r *ratelimit.Rule) { r.Mode = ratelimit.ModeShadow }), nil, "a shadow"},
		{with(func(r *ratelimit.Rule) { r.Limiter = answering(yes(1, 1, 0), nil) }), nil, "a custom limiter that does not allocate"},
		{several(1), []ratelimit.Option{observed}, "an observer that does nothing"},
		{several(5), []ratelimit.Option{observed}, "an observer, and five rules"},
		{several(1), []ratelimit.Option{observed, ratelimit.WithObservedRequests()}, "an observer that is told of requests"},
		{nil, nil, "no rule"},
	} {
		clock := ratelimit.NewFakeClock(epoch)
		l := newRules(t, row.rules, nil, append(row.opts, ratelimit.WithClock(clock))...)
		req := ratelimit.Request{Client: "c", Endpoint: "/e", IP: "192.0.2.1", Tier: "paid"}
		zero := func(allowed bool, what string) {
			t.Helper()
			assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, l.Allow("c", "/e"), allowed) }), "%s: Allow, %s", row.why, what)
			assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, checked(l.Check(t.Context(), req)), allowed) }), "%s: Check, %s", row.why, what)
			assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, checked(l.Peek(t.Context(), req)), allowed) }), "%s: Peek, %s", row.why, what)
		}
		l.Allow("c", "/e")
		for range 500 { // Resolve returns all its rates
			checked(l.Check(t.Context(), req))
		}
		zero(true, "granted")
		if len(row.rules) == 0 || row.rules[0].Mode == ratelimit.ModeShadow || row.rules[0].Limiter != nil || row.rules[0].Tiers != nil {
			continue
		}
		for _, n := range []int{20_000, 5_000, 1_000, 500, 200, 100, 50, 20, 10, 5, 2, 1} {
			for range 2 {
				req.Cost = n
				_, err := l.Check(t.Context(), req)
				assert.NoError(t, err)
			}
		}
		req.Cost = 0
		if row.rules[0].Resolve == nil {
			for checked(l.Peek(t.Context(), req)).Allowed {
				l.Allow("c", "/e")
				checked(l.Check(t.Context(), req))
			}
			if row.rules[0].Key == ratelimit.KeyIP {
				for l.Allow("c", "/e").Allowed { // Allow passes no address, so this is another key
					continue
				}
			}
			zero(false, "denied")
		}
	}
}

// TestNoAllocsOfCompositeKeys proves that decisions by keys of up to five parts do not allocate,
// with and without an additional rule.
func TestNoAllocsOfCompositeKeys(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	tenant, region := ratelimit.KeyAttr("tenant"), ratelimit.KeyAttr("region")
	for _, key := range []ratelimit.KeyType{
		tenant,
		ratelimit.KeyOf(tenant, ratelimit.KeyUser),
		ratelimit.KeyOf(tenant, ratelimit.KeyUser, ratelimit.KeyIP),
		ratelimit.KeyOf(tenant, region, ratelimit.KeyUser, ratelimit.KeyIP),
		ratelimit.KeyOf(tenant, region, ratelimit.KeyUser, ratelimit.KeyIP, ratelimit.KeyEndpoint),
	} {
		rs := []ratelimit.Rule{{Endpoint: "/e", Key: key, Rate: ratelimit.PerHour(30_000)}}
		global := ratelimit.Rule{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(30_000)}
		req := ratelimit.Request{Client: "c", Endpoint: "/e", IP: "192.0.2.1", Attrs: map[string]string{"tenant": "acme", "region": "eu"}}
		for _, rs := range [][]ratelimit.Rule{rs, append(rs, global)} {
			l := newRules(t, rs, nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
			for _, names := range [][]string{nil, {"/e"}} {
				req.Rules = names
				checked(l.Check(t.Context(), req))
				assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, checked(l.Check(t.Context(), req)), true) }), "%s: Check", key)
				assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, checked(l.Peek(t.Context(), req)), true) }), "%s: Peek", key)
			}
			assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, l.Allow("c", "/e"), true) }), "%s: Allow", key)
		}
	}
}

// TestNoAllocsOfUnlimitedTiers proves that a decision does not allocate if one of its two rules
// does not limit the tier.
func TestNoAllocsOfUnlimitedTiers(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	vip := ratelimit.Rule{Name: "vip", Endpoint: "/e", Rate: ratelimit.PerHour(1),
		Tiers: map[string]ratelimit.Rate{"vip": ratelimit.Unlimited}}
	other := ratelimit.Rule{Name: "other", Endpoint: "/e", Rate: ratelimit.PerHour(30_000)}
	l := newRules(t, []ratelimit.Rule{vip, other}, nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
	req := ratelimit.Request{Client: "c", Endpoint: "/e", Tier: "vip"}
	checked(l.Check(t.Context(), req))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, checked(l.Check(t.Context(), req)), true) }))
}

// TestNoAllocsWhileTheStoreIsDown proves that decisions do not allocate while the breaker keeps
// requests from the store.
func TestNoAllocsWhileTheStoreIsDown(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	rule := ratelimit.Rule{Name: "a", Endpoint: "/e", Rate: ratelimit.PerHour(30_000)}
	two := []ratelimit.Rule{rule, {Name: "b", Endpoint: "/e", Rate: ratelimit.PerHour(30_000), Key: ratelimit.KeyGlobal}}
	tiers := rule
	tiers.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerHour(90_000)}
	observed := ratelimit.WithObserver(observing(func(ratelimit.Decision) {}))
	for _, row := range []struct {
		rules []ratelimit.Rule
		opts  []ratelimit.Option
		why   string
	}{
		{two[:1], nil, "one rule"},
		{two, nil, "two rules"},
		{[]ratelimit.Rule{tiers}, nil, "tiers"},
		{two, []ratelimit.Option{observed}, "an observer"},
		{two, []ratelimit.Option{ratelimit.WithFailurePolicy(ratelimit.FailLocal(3))}, "a local share of a third"},
		{two, []ratelimit.Option{ratelimit.WithFailurePolicy(ratelimit.FailOpen)}, "a policy that fails open"},
	} {
		store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
		store.from(errsBefore)
		l := newRules(t, row.rules, nil, append(row.opts, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))...)
		for range 5 {
			l.Allow("c", "/e")
		}
		assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, l.Allow("c", "/e"), true) }), row.why)
	}
}

// A promptStore answers every call with the same Result.
type promptStore struct {
	ratelimit.Store
	results []ratelimit.Result
}

func (s promptStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return s.results, nil
}

// TestOneStoredRuleAllocatesOnlyItsAsk proves that a decision by one rule in a store allocates the
// Ask that the store gets: one allocation for each decision.
func TestOneStoredRuleAllocatesOnlyItsAsk(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	store := promptStore{results: []ratelimit.Result{{Allowed: true, Limit: 9, Remaining: 8}}}
	rule := ratelimit.Rule{Name: "a", Endpoint: "/e", Rate: ratelimit.PerHour(9)}
	tiers := rule
	tiers.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerHour(90_000)}
	observed := ratelimit.WithObserver(observing(func(ratelimit.Decision) {}))
	for _, row := range []struct {
		rule   ratelimit.Rule
		policy ratelimit.FailurePolicy
		opts   []ratelimit.Option
		why    string
	}{
		{rule, ratelimit.FailLocal(3), nil, "a local share of a third"},
		{rule, ratelimit.FailOpen, nil, "a policy that fails open"},
		{tiers, ratelimit.FailClosed, nil, "tiers"},
		{rule, ratelimit.FailOpen, []ratelimit.Option{observed}, "an observer"},
	} {
		l := newRules(t, []ratelimit.Rule{row.rule}, nil,
			append(row.opts, ratelimit.WithStore(store), ratelimit.WithName("n"), ratelimit.WithFailurePolicy(row.policy))...)
		req := ratelimit.Request{Client: "c", Endpoint: "/e", Tier: "paid"}
		assert.EqualValues(t, 1, testing.AllocsPerRun(1000, func() { ok(t, l.Allow("c", "/e"), true) }), "%s: Allow", row.why)
		assert.EqualValues(t, 1, testing.AllocsPerRun(1000, func() { ok(t, checked(l.Check(t.Context(), req)), true) }), "%s: Check", row.why)
	}
}

// TestNoAllocsForUnseenKeys proves that denying a key without a state does not allocate: if another
// rule denies the request, and if the key shares a debt with other keys, at a rate that differs
// from theirs.
func TestNoAllocsForUnseenKeys(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	rate := ratelimit.PerHour(1)
	user := ratelimit.Rule{Name: "user", Endpoint: "/e", Rate: rate}
	for _, tiers := range []map[string]ratelimit.Rate{nil, {"paid": ratelimit.PerHour(2)}} {
		user.Tiers = tiers
		l := newRules(t, []ratelimit.Rule{user, {Name: "all", Endpoint: "/e", Key: ratelimit.KeyGlobal, Rate: rate}}, nil,
			ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithMaxKeys(1))
		ok(t, l.Allow("first", "/e"), true)
		ok(t, checked(l.Check(t.Context(), ratelimit.Request{Client: "second", Rules: []string{"user"}})), true)
		for name, ask := range map[string]func() ratelimit.Result{
			"Allow": func() ratelimit.Result { return l.Allow("third", "/e") },
			"Check": func() ratelimit.Result {
				return checked(l.Check(t.Context(), ratelimit.Request{Client: "third", Endpoint: "/e", Tier: "paid"}))
			},
		} {
			assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, ask(), false) }), "%s, tiers %v", name, tiers)
		}
	}
}

// TestResultSize proves that the size of a Result is a multiple of 16 bytes. Compiled code copies 16 bytes at once. If 8
// bytes remain at the end, it copies the last 16 bytes again, and a second copy then waits for these overlapping writes:
// with 88 bytes, RateLimiter.Check took a fifth longer.
func TestResultSize(t *testing.T) {
	if size := unsafe.Sizeof(ratelimit.Result{}); strconv.IntSize == 64 {
		require.Zero(t, size%16)
	}
}

// TestReserveAllocatesOnlyTheReservation proves that reserving and settling allocates the
// Reservation: one allocation for both calls.
func TestReserveAllocatesOnlyTheReservation(t *testing.T) {
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(10)}}, nil)
	ctx, req := t.Context(), ratelimit.Request{Client: "a", Endpoint: "/"}
	each := testing.AllocsPerRun(1000, func() {
		r, err := l.Reserve(ctx, req, time.Minute)
		if err != nil || r.Settle(0) != nil {
			t.Error("reserve and settle")
		}
	})
	require.LessOrEqual(t, each, 1.0)
}

// TestKeysBeyondMaxKeysShareADebt proves that keys beyond WithMaxKeys share one debt, which is
// never forgiven, and that keys with a slot do not pay for it.
func TestKeysBeyondMaxKeysShareADebt(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		spend(t, l, "first", 1)
		first := l.Peek("first")
		spend(t, l, "second", 2)
		assert.Equal(t, 1, l.Len())
		assert.Equal(t, first, l.Peek("first"), "a key with a slot does not pay for other keys")
		assert.Equal(t, 1, l.Peek("third").Remaining, "a key without a slot owes what all of them took")
		assert.Equal(t, l.Peek("second"), l.Peek("third"))
		spend(t, l, "third", 1)
		denied(t, l, "second")
		denied(t, l, "third")
		require.ErrorIs(t, l.Reset("third"), ratelimit.ErrNotReset, "it has no slot, so there is nothing of its own to reset")
		denied(t, l, "third")

		clock.Advance(24 * time.Hour)
		for _, key := range []string{"second", "third"} {
			spend(t, l, key, 3)
			assert.Equal(t, 1, l.Len())
			denied(t, l, key)
			clock.Advance(24 * time.Hour)
		}
	})
}

// TestSharedLogKeepsItsEntries proves that units leave the shared debt of a sliding window log one
// by one.
func TestSharedLogKeepsItsEntries(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l := algorithm{"sliding window log", slidingLog}.start(t, ratelimit.PerMinute(3),
		ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
	for range 3 {
		spend(t, l, "first", 1) // takes the only slot
		spend(t, l, "second", 1)
		clock.Advance(20 * sec)
	}
	assert.Equal(t, yes(3, 1, 40*sec), l.Peek("third"), "units leave a shared log one by one")
}

// TestFloodOfKeysGainsNothing proves that a flood of keys gives no key more than its limit, and
// uses no more slots than the bound.
func TestFloodOfKeysGainsNothing(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithMaxKeys(40))
		granted := make(map[string]int)
		r := rand.New(rand.NewPCG(3, 3))
		for range 3000 {
			key := strconv.Itoa(r.IntN(200))
			if r.IntN(20) == 0 {
				if err := l.Reset(key); l.Peek(key).Remaining == 3 {
					require.NoError(t, err)
					granted[key] = 0
				}
			}
			if l.Allow(key).Allowed {
				granted[key]++
			}
			require.LessOrEqual(t, granted[key], 3, "the clock stands still, and %s got more than the limit", key)
			require.LessOrEqual(t, l.Len(), 40)
		}
	})
}

// TestUnusedLimiterIsSmall proves that a limiter that has seen no key uses less than a kilobyte.
func TestUnusedLimiterIsSmall(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		const limiters = 1000
		kept := make([]limiter, limiters)
		opt := ratelimit.WithClock(ratelimit.NewFakeClock(epoch))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range kept {
			kept[i] = a.start(t, ratelimit.PerMinute(5), opt)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		assert.Less(t, int64(after.HeapAlloc-before.HeapAlloc)/limiters, int64(1024), "bytes that a limiter keeps")
		runtime.KeepAlive(kept)
	})
}

// TestKeysAreNotRetained proves that a limiter keeps no reference to the bytes of a key.
func TestKeysAreNotRetained(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		bytes := useOwnKey(t, l)
		runtime.GC()
		assert.Nil(t, bytes.Value(), "the bytes of a key are still reachable")
		assert.Equal(t, 1, l.Len())
		runtime.KeepAlive(l)
	})
}

// useOwnKey calls every method of l with a newly allocated key, and returns a weak pointer to its
// memory.
func useOwnKey(t *testing.T, l limiter) weak.Pointer[[64]byte] {
	bytes := new([64]byte)
	copy(bytes[:], "a client's key in a buffer of its own")
	key := unsafe.String(&bytes[0], len(bytes))
	spend(t, l, key, 1)
	take(t, l, key, 2)
	l.Peek(key)
	require.NoError(t, l.Reset(key))
	_, err := l.Wait(t.Context(), key, 1)
	require.NoError(t, err)
	return weak.Make(bytes)
}

// TestAnswersWhileKeysComeAndGo proves that a key gets the same answers as it would alone, while
// other keys appear, are reset and are forgotten.
func TestAnswersWhileKeysComeAndGo(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		alone := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(clock))
		crowded := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(clock))
		var wg sync.WaitGroup
		for c := range uint64(2) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(c, 9))
				for range 3000 {
					key := strconv.Itoa(r.IntN(500))
					crowded.Allow(key)
					if r.IntN(9) == 0 {
						_ = crowded.Reset(key)
					}
				}
			})
		}
		r := rand.New(rand.NewPCG(4, 4))
		for range 1000 {
			clock.Advance(time.Duration(r.IntN(200)) * ms)
			n := r.IntN(4)
			require.Equal(t, take(t, alone, "key", n), take(t, crowded, "key", n))
		}
		wg.Wait()
	})
}

// TestUnusedRuleIsSmall proves that a rule that has decided nothing uses less than 1,600 bytes.
func TestUnusedRuleIsSmall(t *testing.T) {
	const count = 10_000
	var rs []ratelimit.Rule
	for i := range count {
		rs = append(rs, ratelimit.Rule{Endpoint: fmt.Sprintf("/%d", i), Rate: ratelimit.PerHour(1)})
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	l, err := ratelimit.New(rs, nil)
	require.NoError(t, err)
	each := (heap() - before) / count
	assert.Less(t, each, int64(1680), "bytes that a rule keeps")
	runtime.KeepAlive(l)
	runtime.KeepAlive(rs)
}
