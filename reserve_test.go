package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A reserver is a RateLimiter of the rule "ours". Its methods act for the client "a" under that rule.
type reserver struct {
	*ratelimit.RateLimiter
	t     *testing.T
	clock *ratelimit.FakeClock
	store *settlingStore // nil without a store
}

// eachReserver runs test with the rule ours, once with its state in this process and once in a store.
func eachReserver(t *testing.T, ours ratelimit.Rule, test func(t *testing.T, l *reserver)) {
	for _, stored := range []bool{false, true} {
		name := "memory"
		if stored {
			name = "store"
		}
		t.Run(name, func(t *testing.T) {
			l := &reserver{t: t, clock: ratelimit.NewFakeClock(epoch)}
			set := []ratelimit.Option{ratelimit.WithClock(l.clock)}
			if stored {
				l.store = newSettlingStore(t, l.clock)
				set = append(set, ratelimit.WithStore(l.store))
			}
			ours.Name, ours.Endpoint = "ours", "/o"
			l.RateLimiter = newRules(t, []ratelimit.Rule{ours}, nil, set...)
			test(t, l)
		})
	}
}

// reserve reserves n units for an hour.
func (l *reserver) reserve(n int) *ratelimit.Reservation {
	l.t.Helper()
	r, err := l.Reserve(l.t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: n}, time.Hour)
	require.NoError(l.t, err)
	return r
}

// reserved reserves n units, which must be granted.
func (l *reserver) reserved(n int) *ratelimit.Reservation {
	l.t.Helper()
	r := l.reserve(n)
	require.True(l.t, r.Result().Allowed, "%d units", n)
	return r
}

// take takes n units without a reservation.
func (l *reserver) take(n int) ratelimit.Result {
	l.t.Helper()
	return check(l.t, l.RateLimiter, ratelimit.Request{Client: "a", Endpoint: "/o", Cost: n})
}

// left returns how many units the client has left.
func (l *reserver) left() int {
	l.t.Helper()
	res, err := l.Peek(l.t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o"})
	require.NoError(l.t, err)
	return res.Remaining
}

// reset resets the key of the client.
func (l *reserver) reset() {
	l.t.Helper()
	require.NoError(l.t, l.Reset(l.t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o"}))
}

// eachReserverAndAlgorithm runs test for each algorithm at the rate r, in this process and in a store.
func eachReserverAndAlgorithm(t *testing.T, r ratelimit.Rate, test func(t *testing.T, l *reserver)) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		eachReserver(t, ratelimit.Rule{Algorithm: a.inRules(), Rate: r}, test)
	})
}

// TestReserve proves what a reservation charges, and what Settle and Cancel give back.
func TestReserve(t *testing.T) {
	eachReserverAndAlgorithm(t, ratelimit.PerHour(100), func(t *testing.T, l *reserver) {
		r := l.reserve(40)
		want := l.take(1)
		want.Remaining, want.ResetAfter, want.Delay = 60, r.Result().ResetAfter, 0
		require.Equal(t, want, r.Result())
		require.NoError(t, r.Settle(13))
		require.Equal(t, 86, l.left())
		require.Equal(t, ratelimit.ErrSettled, r.Settle(13))
		require.NoError(t, r.Cancel(), "settled: for defer")
		require.Equal(t, 86, l.left())

		r = l.reserved(86)
		require.False(t, l.take(1).Allowed)
		require.NoError(t, r.Cancel())
		require.Equal(t, ratelimit.ErrSettled, r.Settle(5))
		require.Equal(t, 86, l.left())

		r = l.reserved(1)
		require.NoError(t, r.Settle(1))
		require.Equal(t, 85, l.left())
		require.Equal(t, uint64(27+86), l.Stats()[0].GivenBack)
		require.Equal(t, uint64(4), l.Stats()[0].Allowed)
	})
}

// TestReserveDenied proves that a denied Reservation, a nil one and a zero one hold no units.
func TestReserveDenied(t *testing.T) {
	eachReserverAndAlgorithm(t, ratelimit.PerHour(5), func(t *testing.T, l *reserver) {
		l.take(3)
		r := l.reserve(3)
		res := r.Result()
		require.False(t, res.Allowed)
		require.Equal(t, 2, res.Remaining)
		require.NotZero(t, res.RetryAfter)
		require.NoError(t, r.Settle(1000), "nothing was charged, and nothing is")
		require.Equal(t, ratelimit.ErrSettled, r.Settle(0))
		require.NoError(t, r.Cancel())
		require.Equal(t, 2, l.left())
	})
	var none *ratelimit.Reservation
	require.Zero(t, none.Result())
	require.Equal(t, ratelimit.ErrSettled, none.Settle(3))
	require.ErrorIs(t, none.Settle(-1), ratelimit.ErrInvalidCount)
	require.NoError(t, none.Cancel())
	zero := new(ratelimit.Reservation)
	require.Zero(t, zero.Result())
	require.NoError(t, zero.Settle(3))
	require.Equal(t, ratelimit.ErrSettled, zero.Settle(3))
	require.NoError(t, zero.Cancel())

	r, err := new(ratelimit.RateLimiter).Reserve(t.Context(), ratelimit.Request{Cost: 9}, sec)
	require.NoError(t, err)
	require.True(t, r.Result().Allowed, "a zero RateLimiter grants everything")
	require.NoError(t, r.Settle(math.MaxInt32))
}

// TestReserveBadInput proves which errors wrong counts and terms give, and that nothing is taken.
func TestReserveBadInput(t *testing.T) {
	eachReserver(t, ratelimit.Rule{Rate: ratelimit.PerHour(100)}, func(t *testing.T, l *reserver) {
		ctx, req := t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 4}
		for _, row := range []struct {
			ctx  context.Context
			req  ratelimit.Request
			term time.Duration
			is   error
			text string
		}{
			{ctx, req, 0, ratelimit.ErrInvalidConfig, "ratelimit: term is 0s: must be from a microsecond to 24 hours"},
			{ctx, req, -sec, ratelimit.ErrInvalidConfig, "ratelimit: term is -1s: must be from a microsecond to 24 hours"},
			{ctx, req, time.Microsecond - 1, ratelimit.ErrInvalidConfig, "ratelimit: term is 999ns: must be from a microsecond to 24 hours"},
			{ctx, req, 24*time.Hour + 1, ratelimit.ErrInvalidConfig, "ratelimit: term is 24h0m0.000000001s: must be from a microsecond to 24 hours"},
			{ctx, ratelimit.Request{Cost: -1}, sec, ratelimit.ErrInvalidCount, "ratelimit: count must not be negative"},
			{ctx, ratelimit.Request{Rules: []string{"our"}}, sec, ratelimit.ErrUnknownRule, `ratelimit: unknown rule "our"; did you mean "ours"?`},
			{canceled(), req, sec, context.Canceled, "context canceled"},
		} {
			r, err := l.Reserve(row.ctx, row.req, row.term)
			require.Nil(t, r, row.text)
			require.ErrorIs(t, err, row.is)
			require.EqualError(t, err, row.text)
		}
		require.Equal(t, 100, l.left())
		for _, term := range []time.Duration{time.Microsecond, 24 * time.Hour} {
			r, err := l.Reserve(ctx, req, term)
			require.NoError(t, err)
			for _, n := range []int64{-1, math.MinInt32, math.MinInt64, 1<<50 + 1} {
				if int64(int(n)) != n {
					continue // does not fit an int of 32 bits
				}
				err := r.Settle(int(n))
				require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
				require.EqualError(t, err, "ratelimit: count must not be negative, nor above 1125899906842624")
			}
			require.NoError(t, r.Cancel(), "it is still open")
			require.Equal(t, 100, l.left())
		}
	})
}

// TestReserveOfCustomLimiters proves that Reserve refuses rules with custom limiters, and stores
// without Settle or Accepts.
func TestReserveOfCustomLimiters(t *testing.T) {
	asked := 0
	limiter := custom(func(context.Context, string, int) (ratelimit.Result, error) { asked++; return yes(9, 9, 0), nil })
	l := newRules(t, []ratelimit.Rule{{Name: "ours", Rate: ratelimit.PerHour(3)}, {Name: "theirs", Limiter: limiter}}, nil)
	both := ratelimit.Request{Rules: []string{"ours", "theirs"}}
	r, err := l.Reserve(t.Context(), both, sec)
	require.Nil(t, r)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, `ratelimit: rules["theirs"].limiter is ratelimit_test.custom: must not be asked for a reservation: a custom `+
		`limiter gives no units back`)
	require.Zero(t, asked)
	require.Equal(t, 3, check(t, l, both).Remaining+1, "nothing was taken")

	store := newFaultyStore(t, nil)
	l = newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(3)}, ratelimit.WithStore(store))
	_, err = l.Reserve(t.Context(), ratelimit.Request{}, sec)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, `ratelimit: store is *ratelimit_test.faultyStore: must have a method Settle(context.Context, []Ask) error: `+
		`units are to be reserved`)
	l = newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(3)}, ratelimit.WithStore(onlySettles{store}))
	_, err = l.Reserve(t.Context(), ratelimit.Request{}, sec)
	require.EqualError(t, err, `ratelimit: store is ratelimit_test.onlySettles: must have a method Accepts(Ask) error: units are to be `+
		`reserved`)
	require.Empty(t, store.calls)

	refusing := newSettlingStore(t, nil)
	refusing.accepts = func(a ratelimit.Ask) error {
		if a.Receipt != 0 && a.HoldFor > minute {
			return errors.New("a minute at most")
		}
		return nil
	}
	l = newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(3)}, ratelimit.WithStore(refusing))
	_, err = l.Reserve(t.Context(), ratelimit.Request{}, time.Hour)
	require.EqualError(t, err, `ratelimit: rules["default"].rate is 3/h: is not supported by the store: a minute at most`)
	require.Empty(t, refusing.calls)
	_, err = l.Reserve(t.Context(), ratelimit.Request{}, minute)
	require.NoError(t, err)
}

// An onlySettles is a store without Accepts.
type onlySettles struct{ ratelimit.Store }

func (onlySettles) Settle(context.Context, []ratelimit.Ask) error { return nil }

// TestReserveOvershoot proves, for each algorithm, what happens if Settle is given more units than
// were reserved.
func TestReserveOvershoot(t *testing.T) {
	eachReserverAndAlgorithm(t, ratelimit.PerMinute(60), func(t *testing.T, l *reserver) {
		l.clock.Advance(15 * sec)
		r := l.reserved(10)
		l.clock.Advance(5 * sec)
		require.NoError(t, r.Settle(85)) // 75 are charged now
		res := l.take(1)
		require.Equal(t, 0, res.Remaining)
		var retry time.Duration
		switch l.algorithm() {
		case ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket:
			retry = 21 * sec // 10 - 5 + 75 are owed, 60 at most, and one more
		case ratelimit.AlgorithmFixedWindow:
			retry = 40 * sec // the window ends
		case ratelimit.AlgorithmSlidingWindowLog:
			retry = minute // 75 of 85 leave all at once
		case ratelimit.AlgorithmSlidingWindowCounter:
			retry = 40*sec + 18352941177*time.Nanosecond // 85 weigh less than 60 as the previous window
		}
		require.Equal(t, retry, res.RetryAfter)
		l.clock.Advance(retry - 1000)
		require.False(t, l.take(1).Allowed)
		l.clock.Advance(1000)
		require.True(t, l.take(1).Allowed)
		require.Zero(t, l.Stats()[0].GivenBack)

		l.reset()
		r = l.reserved(5)
		l.reset()
		require.NoError(t, r.Settle(8))
		require.Equal(t, 57, l.left(), "the reserved units were forgotten, the three others are charged")
	})
}

// algorithm returns the algorithm of the rule "ours".
func (l *reserver) algorithm() ratelimit.Algorithm {
	rules, _ := l.Rules()
	return rules[0].Algorithm
}

// TestReserveSaturates proves that the debt of a key does not overflow.
func TestReserveSaturates(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		eachReserver(t, ratelimit.Rule{Algorithm: a.inRules(), Rate: ratelimit.PerDay(8)}, func(t *testing.T, l *reserver) {
			if l.store != nil {
				return
			}
			var open []*ratelimit.Reservation
			for range 8 {
				open = append(open, l.reserved(1))
			}
			for _, r := range open {
				require.NoError(t, r.Settle(math.MaxInt32))
				res := l.take(1)
				require.False(t, res.Allowed)
				require.Zero(t, res.Remaining)
				require.Positive(t, res.RetryAfter)
			}
			l.clock.Advance(23 * time.Hour)
			require.False(t, l.take(1).Allowed)
			require.NoError(t, l.UpdateRate("ours", ratelimit.PerDay(9)))
			require.False(t, l.take(1).Allowed, "a change of the rate forgives nothing")
			require.NoError(t, l.UpdateRate("ours", ratelimit.PerDay(7)))
			require.False(t, l.take(1).Allowed)
		})
	})
}

// TestReserveAttacks proves that reservations give nobody more units: each row is an attack, and
// what it must not gain.
func TestReserveAttacks(t *testing.T) {
	eachReserverAndAlgorithm(t, ratelimit.PerHour(8), func(t *testing.T, l *reserver) {
		t.Log("reserve all, wait until it is there again, use all, cancel")
		r := l.reserved(8)
		l.clock.Advance(2 * time.Hour)
		require.True(t, l.take(8).Allowed)
		require.NoError(t, r.Cancel())
		require.Zero(t, l.left())

		t.Log("reset, use all, cancel")
		l.reset()
		r = l.reserved(5)
		l.reset()
		require.True(t, l.take(8).Allowed)
		require.NoError(t, r.Cancel())
		require.Zero(t, l.left())

		t.Log("cancel many times at once")
		l.reset()
		l.take(4)
		r = l.reserved(2)
		var done atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if r.Settle(0) == nil {
					done.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, done.Load())
		require.Equal(t, 4, l.left())

		t.Log("a flood of reservations: the oldest become final")
		l.reset()
		require.NoError(t, l.UpdateRate("ours", ratelimit.PerHour(3000)))
		first := l.reserved(1)
		second := l.reserved(1)
		for range 1023 {
			l.reserved(1)
		}
		require.NoError(t, first.Cancel())
		require.Equal(t, 3000-1025, l.left(), "final")
		require.NoError(t, second.Cancel())
		require.Equal(t, 3000-1024, l.left())

		t.Log("settle far more than was reserved")
		l.reset()
		r = l.reserved(1)
		require.NoError(t, r.Settle(1e9))
		require.Zero(t, l.left())
		require.Greater(t, l.take(1).RetryAfter, minute)
	})
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		eachReserver(t, ratelimit.Rule{Algorithm: a.inRules(), Rate: ratelimit.PerHour(8)}, func(t *testing.T, l *reserver) {
			if l.store != nil {
				return // a store learns of the change with the next request
			}
			t.Log("reserve, have the limit cut and raised, cancel")
			r := l.reserved(6)
			require.NoError(t, l.UpdateRate("ours", ratelimit.PerHour(2)))
			require.NoError(t, l.UpdateRate("ours", ratelimit.PerHour(8)))
			before := l.left()
			require.NoError(t, r.Cancel())
			require.LessOrEqual(t, l.left(), 8)
			require.GreaterOrEqual(t, l.left(), before)
			require.False(t, l.take(9).Allowed)
		})
	})
}

// TestReserveDrainedAndLowered proves that a charge that has drained is not given back after the
// rate was lowered, and that a leaky bucket never lets two requests leave at the same instant.
func TestReserveDrainedAndLowered(t *testing.T) {
	eachReserver(t, ratelimit.Rule{Rate: ratelimit.PerSecond(8)}, func(t *testing.T, l *reserver) {
		r := l.reserved(8)
		l.clock.Advance(sec)
		require.True(t, l.take(8).Allowed, "all were back")
		require.NoError(t, l.UpdateRate("ours", ratelimit.PerHour(8)))
		require.NoError(t, r.Cancel())
		require.Zero(t, l.left())
	})
	eachReserver(t, ratelimit.Rule{Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(10)},
		func(t *testing.T, l *reserver) {
			first := l.reserved(3)
			require.Equal(t, 3*sec, l.take(2).Delay)
			require.NoError(t, first.Cancel())
			require.Equal(t, 5*sec, l.take(1).Delay, "whoever was told a Delay keeps the place")
			require.Equal(t, 7, l.left())
			last := l.reserved(3)
			require.NoError(t, last.Settle(5))
			require.Equal(t, 11*sec, l.take(1).Delay, "units beyond stand in the queue too")
		})
}

// TestReserveTerm proves that a reservation can be settled until its term ends.
func TestReserveTerm(t *testing.T) {
	eachReserverAndAlgorithm(t, ratelimit.PerDay(10), func(t *testing.T, l *reserver) {
		open := func() *ratelimit.Reservation {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 4}, sec)
			require.NoError(t, err)
			return r
		}
		r := open()
		l.clock.Advance(sec)
		require.NoError(t, r.Cancel())
		require.Equal(t, 10, l.left(), "its last instant")
		r, other := open(), open()
		l.clock.Advance(sec + time.Microsecond)
		require.NoError(t, r.Cancel())
		require.Equal(t, 2, l.left())
		require.NoError(t, other.Settle(5))
		require.Equal(t, 1, l.left(), "what was used is charged")
	})
}

// TestReserveOfRulesThatChange proves that Settle skips rules that were removed, or that have
// another algorithm or key now.
func TestReserveOfRulesThatChange(t *testing.T) {
	rule := ratelimit.Rule{Name: "ours", Endpoint: "/o", Rate: ratelimit.PerHour(10)}
	for _, row := range []struct {
		change func(t *testing.T, l *reserver)
		left   int
		kept   bool
		why    string
	}{
		{func(*testing.T, *reserver) {}, 9, true, "nothing has changed"},
		{func(t *testing.T, l *reserver) {
			other := rule
			other.Resolve = func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.Rate{}, false }
			require.NoError(t, l.SetRule(other))
		}, 9, true, "the rule keeps its keys"},
		{func(t *testing.T, l *reserver) { require.NoError(t, l.UpdateRate("ours", ratelimit.PerHour(20))) }, 9, true,
			"another rate: a bucket keeps its tokens"},
		{func(t *testing.T, l *reserver) { require.NoError(t, l.RemoveRule("ours")) }, -1, false, "it is gone"},
		{func(t *testing.T, l *reserver) {
			other := rule
			other.Algorithm = ratelimit.AlgorithmFixedWindow
			require.NoError(t, l.SetRule(other))
		}, 10, false, "another algorithm"},
		{func(t *testing.T, l *reserver) {
			other := rule
			other.Key = ratelimit.KeyIP
			require.NoError(t, l.SetRule(other))
		}, 10, false, "another key"},
	} {
		eachReserver(t, rule, func(t *testing.T, l *reserver) {
			give, more := l.reserved(3), l.reserved(1)
			row.change(t, l)
			require.NoError(t, give.Settle(0), row.why)
			require.NoError(t, more.Settle(2), row.why)
			if left := l.left(); l.store == nil || !row.kept {
				require.Equal(t, row.left, left+btoi(row.kept), row.why)
			}
			if stats := l.Stats(); row.kept {
				require.EqualValues(t, 3, stats[0].GivenBack, row.why)
			} else if len(stats) > 0 {
				require.Zero(t, stats[0].GivenBack, row.why)
			}
		})
	}
}

// btoi returns 1 for true and 0 for false.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestReserveOfSeveralRules proves that Settle settles all rules of a request: enforcing ones,
// shadow ones, and those with tiers and resolved rates.
func TestReserveOfSeveralRules(t *testing.T) {
	for _, stored := range []bool{false, true} {
		clock := ratelimit.NewFakeClock(epoch)
		opts := []ratelimit.Option{ratelimit.WithClock(clock)}
		if stored {
			opts = append(opts, ratelimit.WithStore(newSettlingStore(t, clock)))
		}
		l := newRules(t, []ratelimit.Rule{
			{Name: "user", Endpoint: "/", Rate: ratelimit.PerHour(10), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(100),
				"free": ratelimit.Unlimited}},
			{Name: "resolved", Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(10),
				Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
					return ratelimit.PerHour(50), r.Tier == "paid"
				}},
			{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmSlidingWindowLog,
				Rate: ratelimit.PerHour(1000)},
			{Name: "shadow", Endpoint: "/", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerHour(30)},
			{Name: "small", Endpoint: "/", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerHour(3)},
		}, nil, opts...)
		req := ratelimit.Request{Client: "a", Endpoint: "/", Tier: "paid", Cost: 20}
		left := func() (left []int) {
			for _, name := range []string{"user", "resolved", "all", "shadow", "small"} {
				res, err := l.Peek(t.Context(), ratelimit.Request{Client: "a", Tier: "paid", Endpoint: "/elsewhere", Rules: []string{name}})
				require.NoError(t, err)
				left = append(left, res.Remaining)
			}
			return left
		}
		r, err := l.Reserve(t.Context(), req, minute)
		require.NoError(t, err)
		require.Equal(t, []int{80, 30, 980, 980, 980}, left()) // for a shadow rule, Peek answers by the global rule
		require.NoError(t, r.Settle(5))
		require.Equal(t, []int{95, 45, 995, 995, 995}, left())
		r, err = l.Reserve(t.Context(), req, minute)
		require.NoError(t, err)
		require.NoError(t, r.Settle(27))
		require.Equal(t, []int{68, 18, 968, 968, 968}, left())
		given := map[string]uint64{}
		for _, s := range l.Stats() {
			given[s.Rule] = s.GivenBack
		}
		require.Equal(t, map[string]uint64{"user": 15, "resolved": 15, "all": 15, "shadow": 15, "small": 0}, given)
		shadow := ratelimit.Request{Client: "a", Endpoint: "/", Tier: "paid"}
		for range 4 { // 30 - 5 - 27 are left in shadow: none
			require.True(t, check(t, l, shadow).Allowed)
		}
		for _, s := range l.Stats() {
			if s.Rule == "shadow" {
				require.EqualValues(t, 4, s.ShadowDenied, "units beyond count in shadow rules too")
			}
		}
		req.Tier = "free"
		r, err = l.Reserve(t.Context(), req, minute)
		require.NoError(t, err)
		require.False(t, r.Result().Allowed, "the resolved rule has its own 10")
	}
}

// TestReserveWhenTheStoreIsDown proves where a reservation is charged while the store fails, and
// that Settle may be repeated.
func TestReserveWhenTheStoreIsDown(t *testing.T) {
	begin := func(t *testing.T, policy ratelimit.FailurePolicy) *reserver {
		l := &reserver{t: t, clock: ratelimit.NewFakeClock(epoch)}
		l.store = newSettlingStore(t, l.clock)
		l.RateLimiter = newRules(t, []ratelimit.Rule{{Name: "ours", Endpoint: "/o", Rate: ratelimit.PerHour(10), OnStoreError: policy}}, nil,
			ratelimit.WithClock(l.clock), ratelimit.WithStore(l.store))
		return l
	}
	down := func(l *reserver, n int) *ratelimit.Reservation {
		l.store.script = append(l.store.script, errsBefore)
		r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: n}, time.Hour)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.NotNil(t, r)
		require.True(t, r.Result().Degraded)
		return r
	}
	t.Run("repeated", func(t *testing.T) {
		for _, f := range []fault{errsBefore, errsAfter} {
			l := begin(t, ratelimit.FailOpen)
			r := l.reserved(6)
			l.store.script = []fault{f}
			err := r.Settle(2)
			require.ErrorIs(t, err, ratelimit.ErrStore)
			require.ErrorIs(t, err, errFault)
			require.NoError(t, r.Settle(2))
			require.Equal(t, ratelimit.ErrSettled, r.Settle(2))
			require.Equal(t, 8, l.left())
			require.EqualValues(t, 4, l.Stats()[0].GivenBack)
			require.EqualValues(t, 1, l.Stats()[0].Errors)

			r = l.reserved(3)
			l.store.script = []fault{f}
			require.ErrorIs(t, r.Settle(4), ratelimit.ErrStore)
			require.Equal(t, ratelimit.ErrSettled, r.Settle(4), "more is sent once")
			require.Equal(t, ratelimit.ErrSettled, r.Settle(0))
		}
	})
	t.Run("a breaker refuses", func(t *testing.T) {
		l := begin(t, ratelimit.FailClosed)
		r := l.reserved(3)
		l.store.then = errsBefore
		for range 20 {
			_, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o"})
			require.ErrorIs(t, err, ratelimit.ErrStore)
		}
		calls := l.store.settled
		require.ErrorIs(t, r.Settle(5), ratelimit.ErrStore)
		require.Equal(t, calls, l.store.settled, "nothing was sent")
		l.store.then = sound
		l.clock.Advance(minute)
		require.NoError(t, r.Settle(5), "so it is still open")
		require.Equal(t, 5, l.left())
	})
	t.Run("the share", func(t *testing.T) {
		l := begin(t, ratelimit.FailLocal(1))
		r := down(l, 7)
		require.Equal(t, 3, r.Result().Remaining)
		require.NoError(t, r.Settle(2))
		require.Zero(t, l.store.settled, "the store has charged nothing")
		require.Equal(t, 7, down(l, 1).Result().Remaining)
		require.NoError(t, down(l, 1).Settle(5))
		require.Equal(t, 1, down(l, 1).Result().Remaining)
		require.Equal(t, uint64(5), l.Stats()[0].GivenBack)
		require.Equal(t, 10, l.left(), "of the store")
	})
	t.Run("open and closed", func(t *testing.T) {
		l := begin(t, ratelimit.FailOpen)
		r := down(l, 7)
		require.True(t, r.Result().Allowed)
		require.NoError(t, r.Settle(100))
		l = begin(t, ratelimit.FailClosed)
		r = down(l, 7)
		require.False(t, r.Result().Allowed)
		require.NoError(t, r.Settle(100))
		require.Zero(t, l.store.settled)
		require.Equal(t, 10, l.left())
	})
	t.Run("the store panics", func(t *testing.T) {
		l := begin(t, ratelimit.FailOpen)
		r := l.reserved(7)
		l.store.script = []fault{panics}
		require.PanicsWithValue(t, errFault, func() { _ = r.Settle(1) })
		require.Equal(t, ratelimit.ErrSettled, r.Settle(1))
	})
	t.Run("the caller leaves during the call", func(t *testing.T) {
		l := begin(t, ratelimit.FailOpen)
		ctx, cancel := context.WithCancel(t.Context())
		cancelling := &cancelsFirst{settlingStore: l.store, cancel: cancel}
		other := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(10)}, ratelimit.WithClock(l.clock), ratelimit.WithStore(cancelling))
		r, err := other.Reserve(ctx, ratelimit.Request{Client: "a"}, minute)
		require.Nil(t, r)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, "ratelimit: the units may be charged: context canceled")
	})
}

// A cancelsFirst is a store that cancels the context of the caller in Take.
type cancelsFirst struct {
	*settlingStore
	cancel func()
}

func (s *cancelsFirst) Take(ctx context.Context, _ []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.cancel()
	return nil, ctx.Err()
}

// TestReserveOutlivesItsContext proves that Settle works after the context of the request has
// ended.
func TestReserveOutlivesItsContext(t *testing.T) {
	eachReserver(t, ratelimit.Rule{Rate: ratelimit.PerHour(10)}, func(t *testing.T, l *reserver) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := l.Reserve(ctx, ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 10}, minute)
		require.NoError(t, err)
		cancel()
		require.NoError(t, r.Settle(4))
		require.Equal(t, 6, l.left())
	})
}

// TestReserveWakesWaiters proves that waiters get the units that Settle gives back, and wait longer
// if Settle charges more.
func TestReserveWakesWaiters(t *testing.T) {
	for _, stored := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts := []ratelimit.Option{}
			if stored {
				opts = append(opts, ratelimit.WithStore(newSettlingStore(t, nil)))
			}
			l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(10)}, opts...)
			req := ratelimit.Request{Client: "a", Cost: 10}
			r, err := l.Reserve(t.Context(), req, time.Hour)
			require.NoError(t, err)
			begun := time.Now()
			req.Cost = 4
			w := startRuleWait(t.Context(), l, req)
			synctest.Wait()
			time.Sleep(minute)
			require.NoError(t, r.Settle(6))
			<-w.done
			require.NoError(t, w.err)
			require.True(t, w.res.Allowed)
			require.Equal(t, minute, time.Since(begun).Truncate(ms))
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(60)})
		r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Cost: 60}, time.Hour)
		require.NoError(t, err)
		begun := time.Now()
		w := startRuleWait(t.Context(), l, ratelimit.Request{Client: "a", Cost: 10})
		synctest.Wait()
		require.NoError(t, r.Settle(80))
		<-w.done
		require.True(t, w.res.Allowed)
		require.Equal(t, 30*sec, time.Since(begun), "the 20 units beyond come first")
	})
}

// TestReserveConcurrently has many goroutines reserve, settle and cancel units of one key, while
// the rate changes and other keys come and go. In the end, exactly the units that were not used
// must be left.
func TestReserveConcurrently(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		rate := ratelimit.Rate{Requests: 60_000, Per: 997 * time.Hour}
		l := newRules(t, nil, &ratelimit.Rule{Algorithm: a.inRules(), Rate: rate}, ratelimit.WithClock(clock))
		var used, back atomic.Int64
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				for i := range 150 {
					r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Cost: 1 + i%5}, time.Hour)
					if err != nil || !r.Result().Allowed {
						t.Error(err, r.Result())
						return
					}
					n := (i * (g + 3)) % 7
					defer func() { _ = r.Cancel() }()
					if i%3 == 0 {
						l.Allow(string(rune('b'+i%9)), "")
					}
					if i%4 == 0 {
						continue // cancelled in the end
					}
					var settled atomic.Int64
					var both sync.WaitGroup
					for range 2 {
						both.Go(func() {
							if r.Settle(n) == nil {
								settled.Add(1)
							}
						})
					}
					both.Wait()
					used.Add(settled.Load() * int64(n))
					back.Add(int64(max(1+i%5-n, 0)))
				}
			})
		}
		for range 50 {
			if err := l.UpdateRate("default", rate); err != nil {
				t.Error(err)
			}
			l.Stats()
		}
		all.Wait()
		res, err := l.Peek(t.Context(), ratelimit.Request{Client: "a"})
		require.NoError(t, err)
		require.EqualValues(t, 60_000-used.Load(), res.Remaining)
		require.Greater(t, l.Stats()[0].GivenBack, uint64(back.Load()), "and those that were cancelled")
	})
}

// TestReserveWhileTheClockIsSet sets the clock from the zero time to today while a reservation is
// open. All keys are new after that.
func TestReserveWhileTheClockIsSet(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(time.Time{})
		l := newRules(t, nil, &ratelimit.Rule{Algorithm: a.inRules(), Rate: ratelimit.PerHour(10)}, ratelimit.WithClock(clock))
		reserve := func() *ratelimit.Reservation {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Cost: 4}, minute)
			require.NoError(t, err)
			require.True(t, r.Result().Allowed)
			return r
		}
		before, more := reserve(), reserve()
		clock.Set(epoch)
		after := reserve()
		require.NoError(t, before.Cancel())
		require.NoError(t, more.Settle(6))
		require.Equal(t, 3, l.Allow("a", "").Remaining, "10 - 4 - 2 - 1: nothing of before comes back")
		require.NoError(t, after.Cancel())
		require.Equal(t, 6, l.Allow("a", "").Remaining)
	})
}

// TestReserveByAnInvalidRate proves that Reserve returns a Reservation together with the error of
// an invalid resolved rate.
func TestReserveByAnInvalidRate(t *testing.T) {
	eachReserver(t, ratelimit.Rule{Rate: ratelimit.PerHour(10), Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
		return ratelimit.Rate{Requests: -1}, true
	}}, func(t *testing.T, l *reserver) {
		r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 4}, time.Hour)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.True(t, r.Result().Allowed)
		require.NoError(t, r.Settle(1))
		res, _ := l.Peek(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o"})
		require.Equal(t, 9, res.Remaining)
	})
}

// TestReserveOverflow proves that a charge to the budget that keys beyond WithMaxKeys share is
// never given back, and that units beyond the reserved ones are charged there.
func TestReserveOverflow(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := newRules(t, nil, &ratelimit.Rule{Algorithm: a.inRules(), Rate: ratelimit.PerHour(20)}, ratelimit.WithClock(clock),
			ratelimit.WithMaxKeys(1))
		require.True(t, l.Allow("holder", "").Allowed)
		reserve := func(client string, n int) *ratelimit.Reservation {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: client, Cost: n}, minute)
			require.NoError(t, err)
			require.True(t, r.Result().Allowed)
			return r
		}
		left := func(client string) int {
			res, err := l.Peek(t.Context(), ratelimit.Request{Client: client})
			require.NoError(t, err)
			return res.Remaining
		}
		require.NoError(t, reserve("b", 5).Cancel())
		require.Equal(t, 15, left("c"), "final")
		require.NoError(t, reserve("b", 2).Settle(5))
		require.Equal(t, 10, left("c"))
		require.Equal(t, 19, left("holder"))
		require.NoError(t, reserve("holder", 2).Settle(40))
		require.Zero(t, left("holder"))
		require.Equal(t, 10, left("c"))
	})
}

// TestReserveOfManyKeys proves that a rule has no more open reservations than WithMaxKeys, and that
// the oldest one beyond can no longer give units back.
func TestReserveOfManyKeys(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := newRules(t, nil, &ratelimit.Rule{Algorithm: a.inRules(), Rate: ratelimit.PerHour(20)}, ratelimit.WithClock(clock),
			ratelimit.WithMaxKeys(3))
		var open []*ratelimit.Reservation
		for _, client := range []string{"a", "b", "b", "c"} {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: client, Cost: 5}, minute)
			require.NoError(t, err)
			open = append(open, r)
		}
		left := func(client string) int {
			res, err := l.Peek(t.Context(), ratelimit.Request{Client: client})
			require.NoError(t, err)
			return res.Remaining
		}
		require.NoError(t, open[0].Cancel())
		require.Equal(t, 15, left("a"), "final")
		require.True(t, l.Allow("a", "").Allowed, "its state leads nowhere now")
		again, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Cost: 4}, minute)
		require.NoError(t, err)
		require.NoError(t, open[1].Cancel())
		require.Equal(t, 10, left("b"), "final too")
		require.NoError(t, open[2].Cancel())
		require.Equal(t, 15, left("b"))
		require.NoError(t, open[3].Cancel())
		require.Equal(t, 20, left("c"))
		require.NoError(t, again.Cancel())
		require.Equal(t, 14, left("a"))
	})
}

// TestCancelRepeatsASettle defers Cancel, as programs do, and makes the Settle before it fail: the
// units that were used must stay charged.
func TestCancelRepeatsASettle(t *testing.T) {
	for _, f := range []fault{errsBefore, errsAfter} {
		clock := ratelimit.NewFakeClock(epoch)
		store := newSettlingStore(t, clock)
		l := newRules(t, []ratelimit.Rule{{Name: "ours", Endpoint: "/o", Rate: ratelimit.PerHour(10)}}, nil, ratelimit.WithClock(clock),
			ratelimit.WithStore(store))
		req := ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 6}
		r, err := l.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		store.script = []fault{f, f}
		require.ErrorIs(t, r.Settle(2), ratelimit.ErrStore)
		require.ErrorIs(t, r.Cancel(), ratelimit.ErrStore, "it fails, too")
		require.NoError(t, r.Cancel())
		require.Equal(t, 8, peek(t, l, req).Remaining, "2 units were used")
		require.NoError(t, r.Cancel())
		require.Equal(t, ratelimit.ErrSettled, r.Settle(0))
	}
}

// TestReservationResults proves that Reserve charges and answers as CheckAll does, for
// the request and for each rule, and that Cancel undoes the whole charge.
func TestReservationResults(t *testing.T) {
	overTwins(t, func(t *testing.T, one, two *ratelimit.RateLimiter, req ratelimit.Request) bool {
		canceled, err := two.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		require.NoError(t, canceled.Cancel())
		res, each := checkAll(t, one, req)
		r, err := two.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		require.NoError(t, r.Settle(req.Cost))
		require.Equal(t, res, r.Result())
		results := r.Results()
		require.Equal(t, each, results)
		clear(results)
		require.Equal(t, each, r.Results(), "the caller gets a copy")
		return res.Allowed
	})
}

// TestReserveErrors proves that Reserve returns no Reservation if it decides nothing, and that this has
// no Results.
func TestReserveErrors(t *testing.T) {
	l, _ := buildRules(t, threeRules)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		req  ratelimit.Request
		term time.Duration
		want error
	}{
		{t.Context(), ratelimit.Request{Endpoint: "/e"}, 0, ratelimit.ErrInvalidConfig},
		{t.Context(), ratelimit.Request{Endpoint: "/e", Cost: -1}, time.Hour, ratelimit.ErrInvalidCount},
		{t.Context(), ratelimit.Request{Rules: []string{"nobody"}}, time.Hour, ratelimit.ErrUnknownRule},
		{ended, ratelimit.Request{Endpoint: "/e"}, time.Hour, context.Canceled},
	} {
		r, err := l.Reserve(c.ctx, c.req, c.term)
		require.ErrorIs(t, err, c.want)
		require.Nil(t, r)
		require.Empty(t, r.Results())
	}
}

// TestReserveObserved proves that a Reservation has the answers of CheckAll, and gives back what each rule has charged, with an
// observer, for which the general path makes it, and without one.
func TestReserveObserved(t *testing.T) {
	tiers := map[string]ratelimit.Rate{"free": ratelimit.PerMinute(4)}
	one := ratelimit.Rule{Name: "one", Endpoint: "*", Rate: ratelimit.PerMinute(10), Tiers: tiers}
	two, shadow, advise, staff := one, one, one, one
	two.Name, two.Additional = "two", true
	shadow.Name, shadow.Mode = "shadow", ratelimit.ModeShadow
	advise.Name, advise.Mode = "advise", ratelimit.ModeAdvise
	staff.Tiers = map[string]ratelimit.Rate{"free": ratelimit.Unlimited}
	for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithObserver(&record{})}} {
		for name, rules := range map[string][]ratelimit.Rule{
			"one": {one}, "a tier without a limit": {staff}, "two": {one, two}, "shadow": {shadow}, "one and shadow": {one, shadow},
			"advise": {advise}, "one and advise": {one, advise},
		} {
			for _, tier := range []string{"", "free"} {
				clock := ratelimit.WithClock(ratelimit.NewFakeClock(epoch))
				l, m := newRules(t, rules, nil, append(opts, clock)...), newRules(t, rules, nil, clock)
				req := ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 2, Tier: tier}
				res, each, err := m.CheckAll(t.Context(), req, nil)
				require.NoError(t, err)
				r, err := l.Reserve(t.Context(), req, minute)
				require.NoError(t, err)
				require.Equal(t, res, r.Result(), name)
				require.Equal(t, each, append([]ratelimit.Result(nil), r.Results()...), name)
				require.NoError(t, r.Settle(1))
				require.ErrorIs(t, r.Settle(1), ratelimit.ErrSettled)
				for _, s := range l.Stats() {
					require.Equal(t, r.Result().Limit > 0 || s.Rule != "one", s.GivenBack == 1, "%s: rule %s, tier %q", name, s.Rule, tier)
				}
			}
		}
	}
}
