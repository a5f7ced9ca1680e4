package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// onStore returns a limiter with this name and its state in store.
func onStore(t *testing.T, a algorithm, r ratelimit.Rate, store ratelimit.Store, name string, opts ...ratelimit.Option) limiter {
	t.Helper()
	return a.start(t, r, append(opts, ratelimit.WithStore(store), ratelimit.WithName(name))...)
}

// TestMemoryStoreAnswersAsALimiterWithoutAStore proves with random calls that a limiter answers the
// same with and without a MemoryStore.
func TestMemoryStoreAnswersAsALimiterWithoutAStore(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		r := rand.New(rand.NewPCG(11, 1))
		for range 60 {
			clock := ratelimit.NewFakeClock(epoch.Add(time.Duration(r.Int64N(int64(minute)))))
			rate := ratelimit.Rate{Requests: 1 + r.IntN(12), Per: time.Duration(1+r.IntN(3000)) * ms}
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			here := a.start(t, rate, ratelimit.WithClock(clock))
			there := onStore(t, a, rate, store, "n", ratelimit.WithClock(clock))
			for i := range 80 {
				key := string(rune('a' + r.IntN(3)))
				switch n := r.IntN(6) - 1; {
				case n < 0 && r.IntN(4) == 0:
					require.NoError(t, here.Reset(key))
					require.NoError(t, there.Reset(key))
				case n < 0:
					require.Equal(t, here.Allow(key), there.Allow(key), "step %d", i)
				default:
					require.Equal(t, take(t, here, key, n), take(t, there, key, n), "step %d", i)
				}
				require.Equal(t, here.Peek(key), there.Peek(key), "step %d", i)
				clock.Advance(time.Duration(r.Int64N(int64(rate.Per))) - rate.Per/8) // sometimes backwards
			}
		}
	})
}

// TestMemoryStoreIsSharedByName proves that limiters share state in a store if they have the same
// name and algorithm, and only then.
func TestMemoryStoreIsSharedByName(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		rate := ratelimit.PerMinute(5)
		first := onStore(t, a, rate, store, "login", ratelimit.WithClock(clock))
		second := onStore(t, a, rate, store, "login", ratelimit.WithClock(clock))
		other := onStore(t, a, rate, store, "search", ratelimit.WithClock(clock))
		spend(t, first, "key", 3)
		require.Equal(t, 2, second.Peek("key").Remaining, "limiters of one name share their state")
		spend(t, second, "key", 2)
		denied(t, first, "key")
		require.Equal(t, 5, other.Peek("key").Remaining, "a limiter of another name does not")
		require.Equal(t, 5, first.Peek("other").Remaining, "keys do not share either")
		require.NoError(t, second.Reset("key"))
		require.Equal(t, 5, first.Peek("key").Remaining, "a reset by one limiter holds for all")

		spend(t, first, "key", 1)
		require.NoError(t, second.SetRate(ratelimit.PerMinute(3)))
		require.Equal(t, ratelimit.PerMinute(3), second.Rate())
		left := 2
		if a.name == "token bucket" {
			left = 3 // four of five were left
		}
		require.Equal(t, left, second.Peek("key").Remaining, "a limiter's new rate holds from its next call on")
		require.Equal(t, ratelimit.PerMinute(5), first.Rate(), "the other limiter keeps its own rate")
		for _, another := range algorithms {
			if another.name != a.name {
				l := onStore(t, another, rate, store, "login", ratelimit.WithClock(clock))
				require.Equal(t, 5, l.Peek("key").Remaining, "another algorithm has another state")
			}
		}
	})
}

// TestMemoryStoreOfRateLimiters proves that RateLimiters of one name share the state of their rules
// in a store.
func TestMemoryStoreOfRateLimiters(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	rules := []ratelimit.Rule{
		{Name: "a", Endpoint: "/e", Rate: ratelimit.PerMinute(5)},
		{Name: "b", Endpoint: "/e", Rate: ratelimit.PerMinute(3), Key: ratelimit.KeyGlobal},
		{Name: "s", Endpoint: "/e", Rate: ratelimit.PerMinute(1), Mode: ratelimit.ModeShadow},
	}
	opts := []ratelimit.Option{ratelimit.WithStore(store), ratelimit.WithClock(clock)}
	first, second := newRules(t, rules, nil, opts...), newRules(t, rules, nil, opts...)
	other := newRules(t, rules, nil, append(opts, ratelimit.WithName("other"))...)
	require.Equal(t, by("b", yes(3, 2, 20*sec)), first.Allow("c", "/e"))
	require.Equal(t, by("b", yes(3, 1, 40*sec)), second.Allow("c", "/e"), "two RateLimiters share their rules' state")
	require.Equal(t, by("b", yes(3, 2, 20*sec)), other.Allow("c", "/e"), "one of another name does not")
	res, err := first.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 2})
	require.NoError(t, err)
	require.Equal(t, by("b", no(3, 1, 20*sec, 40*sec)), res)
	res, err = first.Peek(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"a"}})
	require.NoError(t, err)
	require.Equal(t, by("a", yes(5, 3, 24*sec)), res, "a denial charges no rule")
	require.Equal(t, []ratelimit.RuleStats{
		{Rule: "a", Allowed: 1, LiveKeys: 1}, {Rule: "b", Allowed: 1, Denied: 1, LiveKeys: 1},
		{Rule: "s", Allowed: 1, ShadowDenied: 1, LiveKeys: 1},
	}, first.Stats())
}

// TestMemoryStoreRefuses proves which options and asks a MemoryStore refuses, and that a refused
// call takes nothing.
func TestMemoryStoreRefuses(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	observer := observing(func(ratelimit.Decision) {})
	for _, row := range []struct {
		opt ratelimit.Option
		why string
	}{
		{ratelimit.WithClock(nil), "no clock"},
		{ratelimit.WithMaxKeys(0), "room for no key"},
		{ratelimit.WithName("n"), "the name is part of each Ask"},
		{ratelimit.WithFailurePolicy(ratelimit.FailOpen), "a MemoryStore does not fail"},
		{ratelimit.WithObserver(observer), "a store does not make decisions of its own"},
		{ratelimit.WithObservedRequests(), "a store does not see requests"},
		{nil, "a nil option"},
	} {
		store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock), row.opt)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, row.why)
		require.Nil(t, store)
	}
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
	require.NoError(t, err)
	_, err = ratelimit.NewMemoryStore(ratelimit.WithStore(store))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "a store in a store")

	good := ratelimit.Ask{Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(5), N: 5}
	with := func(change func(a *ratelimit.Ask)) ratelimit.Ask {
		a := good
		change(&a)
		return a
	}
	for _, row := range []struct {
		ctx context.Context
		bad ratelimit.Ask
		err error
		why string
	}{
		{t.Context(), with(func(a *ratelimit.Ask) { a.Algorithm = "Guess" }), ratelimit.ErrInvalidConfig, "an unknown algorithm"},
		{t.Context(), with(func(a *ratelimit.Ask) { a.Rate = ratelimit.Rate{} }), ratelimit.ErrInvalidConfig, "an invalid rate"},
		{t.Context(), with(func(a *ratelimit.Ask) { a.N = -1 }), ratelimit.ErrInvalidCount, "a negative count"},
		{t.Context(), with(func(a *ratelimit.Ask) { a.Receipt = 1 }), ratelimit.ErrInvalidConfig, "a receipt without a term"},
		{t.Context(), with(func(a *ratelimit.Ask) { a.Receipt, a.HoldFor = 1, time.Microsecond-1 }), ratelimit.ErrInvalidConfig,
			"a term that is too short"},
		{t.Context(), with(func(a *ratelimit.Ask) { a.Receipt, a.HoldFor = 1, 366*24*time.Hour+1 }), ratelimit.ErrInvalidConfig,
			"a term that is too long"},
		{canceled(), good, context.Canceled, "the caller has given up"},
	} {
		results, err := store.Take(row.ctx, []ratelimit.Ask{good, row.bad})
		require.ErrorIs(t, err, row.err, row.why)
		require.Nil(t, results, row.why)
	}
	require.ErrorIs(t, store.Reset(canceled(), []ratelimit.Ask{good}), context.Canceled)
	results, err := store.Take(t.Context(), []ratelimit.Ask{good})
	require.NoError(t, err)
	require.Equal(t, []ratelimit.Result{yes(5, 0, minute)}, results, "the refused calls took nothing")
	require.NoError(t, store.Reset(t.Context(), []ratelimit.Ask{good, with(func(a *ratelimit.Ask) { a.Rule = "unknown" })}))
	results, err = store.Take(t.Context(), []ratelimit.Ask{good})
	require.NoError(t, err)
	require.Equal(t, []ratelimit.Result{yes(5, 0, minute)}, results)
	results, err = store.Take(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, results, "without asks there are no answers")
}

// TestMemoryStoreSettles proves what Settle gives back, and which calls of it are refused.
func TestMemoryStoreSettles(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		var store *ratelimit.MemoryStore
		ask := func(n int, receipt uint64, term time.Duration) ratelimit.Ask {
			return ratelimit.Ask{Rule: "r", Key: "k", Algorithm: a.inRules(), Rate: ratelimit.PerDay(5000), N: n, Receipt: receipt, HoldFor: term}
		}
		take := func(a ratelimit.Ask) int {
			results, err := store.Take(t.Context(), []ratelimit.Ask{a})
			require.NoError(t, err)
			return results[0].Remaining
		}
		settle := func(n, was int, receipt uint64) int {
			settled := ask(n, receipt, 0)
			settled.Charged = was
			require.NoError(t, store.Settle(t.Context(), []ratelimit.Ask{settled}))
			return take(ask(0, 0, 0))
		}
		begin := func(opts ...ratelimit.Option) {
			var err error
			store, err = ratelimit.NewMemoryStore(append(opts, ratelimit.WithClock(clock))...)
			require.NoError(t, err)
		}

		begin()
		require.Equal(t, 4995, take(ask(5, 1, sec)))
		require.Equal(t, 4992, take(ask(3, 2, sec)))
		require.Equal(t, 4992, settle(0, 4, 3), "nobody has that receipt")
		require.Equal(t, 4994, settle(3, 5, 1), "three of five stay charged")
		require.Equal(t, 4994, settle(0, 5, 1), "a receipt is settled once")
		require.NoError(t, store.Reset(t.Context(), []ratelimit.Ask{ask(0, 0, 0)}))
		require.Equal(t, 4999, take(ask(1, 4, sec)))
		require.Equal(t, 4999, settle(0, 3, 2), "the state was reset")
		require.Equal(t, 4998, take(ask(1, 4, sec)))
		require.Equal(t, 4999, settle(0, 1, 4), "the latest charge of a number that was used twice")
		require.Equal(t, 4999, settle(0, 1, 4), "the other one has become final")

		begin()
		require.Equal(t, 4995, take(ask(5, 1, sec)))
		require.Equal(t, 4992, take(ask(3, 2, 2*sec)))
		clock.Advance(sec)
		require.Equal(t, 4995, settle(0, 3, 2))
		require.Equal(t, 5000, settle(0, 5, 1), "the term has just not passed")
		require.Equal(t, 4995, take(ask(5, 1, sec)))
		clock.Advance(sec + 1)
		require.Equal(t, 4995, settle(0, 5, 1), "it has passed")

		begin()
		for i := range uint64(1026) {
			take(ask(1, i+1, minute))
		}
		require.Equal(t, 5000-1026, settle(0, 1, 2), "1,024 charges of one state are open: the oldest two have become final")
		require.Equal(t, 5000-1025, settle(0, 1, 3))

		begin(ratelimit.WithMaxKeys(3))
		take(ask(1, 1, sec))
		clock.Advance(sec + 1)
		for i := range uint64(4) {
			take(ask(1, i+2, minute))
		}
		require.Equal(t, 4995, settle(0, 1, 2), "of a rule, as many as it may have keys: the oldest has become final")
		require.Equal(t, 4996, settle(0, 1, 3))

		bad := ask(1, 4, 0)
		for _, row := range []struct {
			ctx     context.Context
			n, was  int
			receipt uint64
			err     error
			why     string
		}{
			{t.Context(), 0, 1, 0, ratelimit.ErrInvalidConfig, "no receipt"},
			{t.Context(), -1, 1, 4, ratelimit.ErrInvalidCount, "a negative count"},
			{t.Context(), 0, -1, 4, ratelimit.ErrInvalidCount, "a negative count of before"},
			{canceled(), 0, 1, 4, context.Canceled, "the caller has given up"},
		} {
			good := ask(0, 5, 0)
			good.Charged, bad.N, bad.Charged, bad.Receipt = 1, row.n, row.was, row.receipt
			require.ErrorIs(t, store.Settle(row.ctx, []ratelimit.Ask{good, bad}), row.err, row.why)
			require.Equal(t, 4996, take(ask(0, 0, 0)), "a refused call gives nothing back")
		}
		bad = ask(2, 4, 0)
		bad.Charged, bad.Rate = 1, ratelimit.Rate{}
		require.ErrorIs(t, store.Settle(t.Context(), []ratelimit.Ask{bad}), ratelimit.ErrInvalidConfig, "units beyond need a rate")
		bad.Rate, bad.Algorithm = ratelimit.PerDay(5000), "Guess"
		require.ErrorIs(t, store.Settle(t.Context(), []ratelimit.Ask{bad}), ratelimit.ErrInvalidConfig)
		bad.Algorithm, bad.Rule = a.inRules(), "beyond"
		require.NoError(t, store.Settle(t.Context(), []ratelimit.Ask{bad}), "of a rule that nobody has asked for")
		bad.N, bad.Receipt = 0, 0
		require.Equal(t, 4999, take(bad))
		other := ask(0, 4, 0)
		other.Rule = "unknown"
		require.NoError(t, store.Settle(t.Context(), []ratelimit.Ask{other}), "nothing was charged there")

		begin(ratelimit.WithMaxKeys(1))
		holder := ask(1, 1, minute)
		holder.Key = "holder"
		take(holder)
		take(ask(3, 7, minute))
		require.Less(t, settle(0, 3, 7), 4998, "keys without a state of their own share a debt, of which nothing is given back")
	})
}

// TestMemoryStoreChargesAllOrNone proves that one Take charges all enforcing asks or none of them.
func TestMemoryStoreChargesAllOrNone(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	ask := func(rule string, limit, n int, shadow bool) ratelimit.Ask {
		return ratelimit.Ask{Rule: rule, Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(limit), N: n, Shadow: shadow}
	}
	for _, row := range []struct {
		asks []ratelimit.Ask
		want []ratelimit.Result
		why  string
	}{
		{[]ratelimit.Ask{ask("a", 5, 2, false), ask("b", 9, 2, false)},
			[]ratelimit.Result{yes(5, 3, minute), yes(9, 7, minute)}, "both fit: both are charged"},
		{[]ratelimit.Ask{ask("a", 5, 4, false), ask("b", 9, 4, false)},
			[]ratelimit.Result{no(5, 3, minute, minute), yes(9, 7, minute)},
			"one does not fit: each answers as if it were alone, and none is charged"},
		{[]ratelimit.Ask{ask("a", 5, 1, false), ask("s", 1, 1, true)},
			[]ratelimit.Result{yes(5, 2, minute), yes(1, 0, minute)}, "a shadow that fits is charged with the others"},
		{[]ratelimit.Ask{ask("a", 5, 1, false), ask("s", 1, 1, true)},
			[]ratelimit.Result{yes(5, 1, minute), no(1, 0, minute, minute)}, "a shadow that does not fit does not deny the others"},
		{[]ratelimit.Ask{ask("a", 5, 2, false), ask("t", 9, 2, true)},
			[]ratelimit.Result{no(5, 1, minute, minute), yes(9, 9, 0)}, "a shadow is not charged for what another rule denies"},
		{[]ratelimit.Ask{ask("a", 5, 0, false), ask("b", 9, 0, false), ask("s", 1, 0, true)},
			[]ratelimit.Result{yes(5, 1, minute), yes(9, 7, minute), no(1, 0, minute, minute)}, "a look charges nothing"},
	} {
		results, err := store.Take(t.Context(), row.asks)
		require.NoError(t, err, row.why)
		require.Equal(t, row.want, results, row.why)
	}
}

// TestZeroMemoryStore proves that the zero MemoryStore returns errors and does not panic.
func TestZeroMemoryStore(t *testing.T) {
	store := new(ratelimit.MemoryStore)
	_, err := store.Take(t.Context(), []ratelimit.Ask{{}})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorIs(t, store.Reset(t.Context(), []ratelimit.Ask{{}}), ratelimit.ErrInvalidConfig)
	l := onStore(t, algorithms[0], ratelimit.PerMinute(5), store, "n")
	res, err := l.Take(t.Context(), "key", 1)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.True(t, res.Degraded, "the failure policy answers for a store that does not work")
}

// TestLimitersOnAStore proves that every method of a limiter works in a store.
func TestLimitersOnAStore(t *testing.T) {
	eachInBubble(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		l := onStore(t, a, ratelimit.PerMinute(2), store, "n", ratelimit.WithClock(clock))
		require.Zero(t, l.Len())
		spend(t, l, "key", 2)
		require.Equal(t, 1, l.Len(), "Len counts the keys that this process knows")
		look := l.Peek("key")
		require.False(t, look.Allowed)
		res, err := l.Take(t.Context(), "key", 3)
		require.NoError(t, err)
		require.Equal(t, no(2, 0, ratelimit.Never, look.ResetAfter), res, "more than ever fits")
		for _, n := range []int{-1, -5} {
			_, err = l.Take(t.Context(), "key", n)
			require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
			_, err = l.Wait(t.Context(), "key", n)
			require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
		}
		res, err = l.Wait(t.Context(), "key", 0)
		require.NoError(t, err)
		require.Equal(t, look, res, "a look does not wait")

		w := startWait(t.Context(), l, "key", 1)
		synctest.Wait()
		clock.Advance(look.RetryAfter - 1)
		synctest.Wait()
		require.False(t, w.returned(), "one nanosecond early")
		clock.Advance(1)
		synctest.Wait()
		clock.Advance(time.Hour) // longer than any Delay of a leaky bucket
		require.Empty(t, w.served(t).Rule)

		spend(t, l, "key", 2)
		w = startWait(t.Context(), l, "key", 1)
		synctest.Wait()
		require.False(t, w.returned())
		require.NoError(t, l.Reset("key"))
		synctest.Wait()
		require.True(t, w.returned(), "a reset wakes the waiter")

		spend(t, l, "key", 1)
		w = startWait(t.Context(), l, "key", 1)
		synctest.Wait()
		require.ErrorIs(t, l.SetRate(ratelimit.Rate{}), ratelimit.ErrInvalidConfig)
		require.Equal(t, ratelimit.PerMinute(2), l.Rate())
		clock.Advance(time.Hour)
		w.served(t)
		require.NoError(t, l.SetRate(ratelimit.PerMinute(9)))
		require.Equal(t, ratelimit.PerMinute(9), l.Rate())
		require.Equal(t, 9, l.Peek("unseen").Limit)
	})
}

// TestMemoryStoreIsSafeForConcurrentUse proves that concurrent callers with several rules are
// granted exactly the limit in all.
func TestMemoryStoreIsSafeForConcurrentUse(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	const callers, each, limit = 4, 200, 300
	granted := make([]int, callers)
	var wg sync.WaitGroup
	for c := range callers {
		l := newRules(t, []ratelimit.Rule{
			{Name: "a", Endpoint: "/e", Rate: ratelimit.PerHour(limit)}, {Name: "b", Endpoint: "/e", Rate: ratelimit.PerHour(limit + c%2)},
		}, nil, ratelimit.WithStore(store), ratelimit.WithClock(clock))
		wg.Go(func() {
			for range each {
				if l.Allow("c", "/e").Allowed {
					granted[c]++
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range granted {
		sum += n
	}
	assert.Equal(t, limit, sum)
}
