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

// A desk is a RateLimiter whose rule "ours" is reserved of, in this process or in a store.
type desk struct {
	*ratelimit.RateLimiter
	t     *testing.T
	clock *ratelimit.FakeClock
	store *settlingStore // nil without a store
}

// overDesks runs test in this process and beside a store.
func overDesks(t *testing.T, ours ratelimit.Rule, test func(t *testing.T, d *desk)) {
	for _, stored := range []bool{false, true} {
		name := "memory"
		if stored {
			name = "store"
		}
		t.Run(name, func(t *testing.T) {
			d := &desk{t: t, clock: ratelimit.NewFakeClock(epoch)}
			set := []ratelimit.Option{ratelimit.WithClock(d.clock)}
			if stored {
				d.store = newSettlingStore(t, d.clock)
				set = append(set, ratelimit.WithStore(d.store))
			}
			ours.Name, ours.Endpoint = "ours", "/o"
			d.RateLimiter = newRules(t, []ratelimit.Rule{ours}, nil, set...)
			test(t, d)
		})
	}
}

func (d *desk) reserve(n int) *ratelimit.Reservation {
	d.t.Helper()
	r, err := d.Reserve(d.t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: n}, time.Hour)
	require.NoError(d.t, err)
	return r
}

func (d *desk) reserved(n int) *ratelimit.Reservation {
	d.t.Helper()
	r := d.reserve(n)
	require.True(d.t, r.Result().Allowed, "%d units", n)
	return r
}

func (d *desk) take(n int) ratelimit.Result {
	d.t.Helper()
	return check(d.t, d.RateLimiter, ratelimit.Request{Client: "a", Endpoint: "/o", Cost: n})
}

func (d *desk) left() int {
	d.t.Helper()
	res, err := d.Peek(d.t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o"})
	require.NoError(d.t, err)
	return res.Remaining
}

func (d *desk) reset() {
	d.t.Helper()
	require.NoError(d.t, d.Reset(d.t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o"}))
}

// overKinds runs test for each algorithm at a rate, in this process and beside a store.
func overKinds(t *testing.T, r ratelimit.Rate, test func(t *testing.T, d *desk)) {
	overAll(t, func(t *testing.T, a algorithm) {
		overDesks(t, ratelimit.Rule{Algorithm: byName[a.name], Rate: r}, test)
	})
}

// TestReserve proves what a reservation charges, and what Settle and Cancel give back.
func TestReserve(t *testing.T) {
	overKinds(t, ratelimit.PerHour(100), func(t *testing.T, d *desk) {
		r := d.reserve(40)
		want := d.take(1)
		want.Remaining, want.ResetAfter, want.Delay = 60, r.Result().ResetAfter, 0
		require.Equal(t, want, r.Result())
		require.NoError(t, r.Settle(13))
		require.Equal(t, 86, d.left())
		require.Equal(t, ratelimit.ErrSettled, r.Settle(13))
		require.NoError(t, r.Cancel(), "settled: for defer")
		require.Equal(t, 86, d.left())

		r = d.reserved(86)
		require.False(t, d.take(1).Allowed)
		require.NoError(t, r.Cancel())
		require.Equal(t, ratelimit.ErrSettled, r.Settle(5))
		require.Equal(t, 86, d.left())

		r = d.reserved(1)
		require.NoError(t, r.Settle(1))
		require.Equal(t, 85, d.left())
		require.Equal(t, uint64(27+86), d.Stats()[0].GivenBack)
		require.Equal(t, uint64(4), d.Stats()[0].Allowed)
	})
}

// TestReserveDenied proves that a denied reservation, a nil one and a zero one hold nothing.
func TestReserveDenied(t *testing.T) {
	overKinds(t, ratelimit.PerHour(5), func(t *testing.T, d *desk) {
		d.take(3)
		r := d.reserve(3)
		res := r.Result()
		require.False(t, res.Allowed)
		require.Equal(t, 2, res.Remaining)
		require.NotZero(t, res.RetryAfter)
		require.NoError(t, r.Settle(1000), "nothing was charged, and nothing is")
		require.Equal(t, ratelimit.ErrSettled, r.Settle(0))
		require.NoError(t, r.Cancel())
		require.Equal(t, 2, d.left())
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

// TestReserveBadInput proves the errors for wrong counts and terms, and that nothing is taken.
func TestReserveBadInput(t *testing.T) {
	overDesks(t, ratelimit.Rule{Rate: ratelimit.PerHour(100)}, func(t *testing.T, d *desk) {
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
			{over(), req, sec, context.Canceled, "context canceled"},
		} {
			r, err := d.Reserve(row.ctx, row.req, row.term)
			require.Nil(t, r, row.text)
			require.ErrorIs(t, err, row.is)
			require.EqualError(t, err, row.text)
		}
		require.Equal(t, 100, d.left())
		for _, term := range []time.Duration{time.Microsecond, 24 * time.Hour} {
			r, err := d.Reserve(ctx, req, term)
			require.NoError(t, err)
			for _, n := range []int64{-1, math.MinInt32, math.MaxInt32 + 1} {
				if int64(int(n)) != n {
					continue // not an int here
				}
				err := r.Settle(int(n))
				require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
				require.EqualError(t, err, "ratelimit: count must not be negative, nor above 2147483647")
			}
			require.NoError(t, r.Cancel(), "it is still open")
			require.Equal(t, 100, d.left())
		}
	})
}

// TestReserveOfCustomLimiters proves that a custom limiter is not reserved of, and that a store
// must have Settle and Accepts.
func TestReserveOfCustomLimiters(t *testing.T) {
	asked := 0
	limiter := custom(func(context.Context, string, int) (ratelimit.Result, error) { asked++; return yes(9, 9, 0), nil })
	l := newRules(t, []ratelimit.Rule{{Name: "ours", Rate: ratelimit.PerHour(3)}, {Name: "theirs", Limiter: limiter}}, nil)
	both := ratelimit.Request{Rules: []string{"ours", "theirs"}}
	r, err := l.Reserve(t.Context(), both, sec)
	require.Nil(t, r)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, `ratelimit: rules["theirs"].limiter is ratelimit_test.custom: must not be asked for a reservation: a custom limiter gives no units back`)
	require.Zero(t, asked)
	require.Equal(t, 3, check(t, l, both).Remaining+1, "nothing was taken")

	store := newFaultyStore(t, nil)
	l = newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(3)}, ratelimit.WithStore(store))
	_, err = l.Reserve(t.Context(), ratelimit.Request{}, sec)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, `ratelimit: store is *ratelimit_test.faultyStore: must have a method Settle(context.Context, []Ask) error: units are to be reserved`)
	l = newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(3)}, ratelimit.WithStore(onlySettles{store}))
	_, err = l.Reserve(t.Context(), ratelimit.Request{}, sec)
	require.EqualError(t, err, `ratelimit: store is ratelimit_test.onlySettles: must have a method Accepts(Ask) error: units are to be reserved`)
	require.Empty(t, store.calls)

	refusing := newSettlingStore(t, nil)
	refusing.accepts = func(a ratelimit.Ask) error {
		if a.Receipt != 0 && a.Term > mins {
			return errors.New("a minute at most")
		}
		return nil
	}
	l = newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(3)}, ratelimit.WithStore(refusing))
	_, err = l.Reserve(t.Context(), ratelimit.Request{}, time.Hour)
	require.EqualError(t, err, `ratelimit: rules["default"].rate is 3/h: is not supported by the store: a minute at most`)
	require.Empty(t, refusing.calls)
	_, err = l.Reserve(t.Context(), ratelimit.Request{}, mins)
	require.NoError(t, err)
}

// An onlySettles is a store without Accepts.
type onlySettles struct{ ratelimit.Store }

func (onlySettles) Settle(context.Context, []ratelimit.Ask) error { return nil }

// TestReserveOvershoot proves what more units than were reserved mean for each algorithm.
func TestReserveOvershoot(t *testing.T) {
	overKinds(t, ratelimit.PerMinute(60), func(t *testing.T, d *desk) {
		d.clock.Advance(15 * sec)
		r := d.reserved(10)
		d.clock.Advance(5 * sec)
		require.NoError(t, r.Settle(85)) // 75 are charged now
		res := d.take(1)
		require.Equal(t, 0, res.Remaining)
		var retry time.Duration
		switch d.algorithm() {
		case ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket:
			retry = 21 * sec // 10 - 5 + 75 are owed, 60 at most, and one more
		case ratelimit.AlgorithmFixedWindow:
			retry = 40 * sec // the window ends
		case ratelimit.AlgorithmSlidingWindowLog:
			retry = mins // 75 of 85 leave all at once
		case ratelimit.AlgorithmSlidingWindowCounter:
			retry = 40*sec + 18352941177*time.Nanosecond // 85 weigh less than 60 as the previous window
		}
		require.Equal(t, retry, res.RetryAfter)
		d.clock.Advance(retry - 1000)
		require.False(t, d.take(1).Allowed)
		d.clock.Advance(1000)
		require.True(t, d.take(1).Allowed)
		require.Zero(t, d.Stats()[0].GivenBack)

		d.reset()
		r = d.reserved(5)
		d.reset()
		require.NoError(t, r.Settle(8))
		require.Equal(t, 57, d.left(), "the reserved units were forgotten, the three others are charged")
	})
}

// algorithm returns that of the rule "ours".
func (d *desk) algorithm() ratelimit.Algorithm {
	rules, _ := d.Rules()
	return rules[0].Algorithm
}

// TestReserveSaturates proves that a key can owe no more than it can count.
func TestReserveSaturates(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		overDesks(t, ratelimit.Rule{Algorithm: byName[a.name], Rate: ratelimit.PerDay(8)}, func(t *testing.T, d *desk) {
			if d.store != nil {
				return
			}
			var open []*ratelimit.Reservation
			for range 8 {
				open = append(open, d.reserved(1))
			}
			for _, r := range open {
				require.NoError(t, r.Settle(math.MaxInt32))
				res := d.take(1)
				require.False(t, res.Allowed)
				require.Zero(t, res.Remaining)
				require.Positive(t, res.RetryAfter)
			}
			d.clock.Advance(23 * time.Hour)
			require.False(t, d.take(1).Allowed)
			require.NoError(t, d.UpdateRate("ours", ratelimit.PerDay(9)))
			require.False(t, d.take(1).Allowed, "a change of the rate forgives nothing")
			require.NoError(t, d.UpdateRate("ours", ratelimit.PerDay(7)))
			require.False(t, d.take(1).Allowed)
		})
	})
}

// TestReserveAttacks proves that nobody gains units by reservations: each attack of whoever
// reserves, and what it must not get.
func TestReserveAttacks(t *testing.T) {
	overKinds(t, ratelimit.PerHour(8), func(t *testing.T, d *desk) {
		t.Log("reserve all, wait until it is there again, use all, cancel")
		r := d.reserved(8)
		d.clock.Advance(2 * time.Hour)
		require.True(t, d.take(8).Allowed)
		require.NoError(t, r.Cancel())
		require.Zero(t, d.left())

		t.Log("reset, use all, cancel")
		d.reset()
		r = d.reserved(5)
		d.reset()
		require.True(t, d.take(8).Allowed)
		require.NoError(t, r.Cancel())
		require.Zero(t, d.left())

		t.Log("cancel many times at once")
		d.reset()
		d.take(4)
		r = d.reserved(2)
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
		require.Equal(t, 4, d.left())

		t.Log("a flood of reservations: the oldest become final")
		d.reset()
		require.NoError(t, d.UpdateRate("ours", ratelimit.PerHour(3000)))
		first := d.reserved(1)
		second := d.reserved(1)
		for range 1023 {
			d.reserved(1)
		}
		require.NoError(t, first.Cancel())
		require.Equal(t, 3000-1025, d.left(), "final")
		require.NoError(t, second.Cancel())
		require.Equal(t, 3000-1024, d.left())

		t.Log("settle far more than was reserved")
		d.reset()
		r = d.reserved(1)
		require.NoError(t, r.Settle(1e9))
		require.Zero(t, d.left())
		require.Greater(t, d.take(1).RetryAfter, mins)
	})
	overAll(t, func(t *testing.T, a algorithm) {
		overDesks(t, ratelimit.Rule{Algorithm: byName[a.name], Rate: ratelimit.PerHour(8)}, func(t *testing.T, d *desk) {
			if d.store != nil {
				return // there, the change shows at the next request
			}
			t.Log("reserve, have the limit cut and raised, cancel")
			r := d.reserved(6)
			require.NoError(t, d.UpdateRate("ours", ratelimit.PerHour(2)))
			require.NoError(t, d.UpdateRate("ours", ratelimit.PerHour(8)))
			before := d.left()
			require.NoError(t, r.Cancel())
			require.LessOrEqual(t, d.left(), 8)
			require.GreaterOrEqual(t, d.left(), before)
			require.False(t, d.take(9).Allowed)
		})
	})
}

// TestReserveDrainedAndLowered proves that a charge that has drained is not given back after the
// rate was lowered, and that a leaky bucket never lets two requests leave at one instant.
func TestReserveDrainedAndLowered(t *testing.T) {
	overDesks(t, ratelimit.Rule{Rate: ratelimit.PerSecond(8)}, func(t *testing.T, d *desk) {
		r := d.reserved(8)
		d.clock.Advance(sec)
		require.True(t, d.take(8).Allowed, "all were back")
		require.NoError(t, d.UpdateRate("ours", ratelimit.PerHour(8)))
		require.NoError(t, r.Cancel())
		require.Zero(t, d.left())
	})
	overDesks(t, ratelimit.Rule{Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(10)}, func(t *testing.T, d *desk) {
		first := d.reserved(3)
		require.Equal(t, 3*sec, d.take(2).Delay)
		require.NoError(t, first.Cancel())
		require.Equal(t, 5*sec, d.take(1).Delay, "whoever was told a Delay keeps the place")
		require.Equal(t, 7, d.left())
		last := d.reserved(3)
		require.NoError(t, last.Settle(5))
		require.Equal(t, 11*sec, d.take(1).Delay, "units beyond stand in the queue too")
	})
}

// TestReserveTerm proves that a reservation can be settled up to the end of its term.
func TestReserveTerm(t *testing.T) {
	overKinds(t, ratelimit.PerDay(10), func(t *testing.T, d *desk) {
		open := func() *ratelimit.Reservation {
			r, err := d.Reserve(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 4}, sec)
			require.NoError(t, err)
			return r
		}
		r := open()
		d.clock.Advance(sec)
		require.NoError(t, r.Cancel())
		require.Equal(t, 10, d.left(), "its last instant")
		r, other := open(), open()
		d.clock.Advance(sec + time.Microsecond)
		require.NoError(t, r.Cancel())
		require.Equal(t, 2, d.left())
		require.NoError(t, other.Settle(5))
		require.Equal(t, 1, d.left(), "what was used is charged")
	})
}

// TestReserveOfRulesThatChange proves that removed rules are skipped, and those that are of another
// kind now.
func TestReserveOfRulesThatChange(t *testing.T) {
	rule := ratelimit.Rule{Name: "ours", Endpoint: "/o", Rate: ratelimit.PerHour(10)}
	for _, row := range []struct {
		change func(t *testing.T, d *desk)
		left   int
		kept   bool
		why    string
	}{
		{func(*testing.T, *desk) {}, 9, true, "nothing has changed"},
		{func(t *testing.T, d *desk) {
			other := rule
			other.Resolve = func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.Rate{}, false }
			require.NoError(t, d.SetRule(other))
		}, 9, true, "the rule keeps its keys"},
		{func(t *testing.T, d *desk) { require.NoError(t, d.UpdateRate("ours", ratelimit.PerHour(20))) }, 9, true, "another rate: a bucket keeps its tokens"},
		{func(t *testing.T, d *desk) { require.NoError(t, d.RemoveRule("ours")) }, -1, false, "it is gone"},
		{func(t *testing.T, d *desk) {
			other := rule
			other.Algorithm = ratelimit.AlgorithmFixedWindow
			require.NoError(t, d.SetRule(other))
		}, 10, false, "another algorithm"},
		{func(t *testing.T, d *desk) {
			other := rule
			other.Key = ratelimit.KeyIP
			require.NoError(t, d.SetRule(other))
		}, 10, false, "another key"},
	} {
		overDesks(t, rule, func(t *testing.T, d *desk) {
			give, more := d.reserved(3), d.reserved(1)
			row.change(t, d)
			require.NoError(t, give.Settle(0), row.why)
			require.NoError(t, more.Settle(2), row.why)
			if left := d.left(); d.store == nil || !row.kept {
				require.Equal(t, row.left, left+btoi(row.kept), row.why)
			}
			if stats := d.Stats(); row.kept {
				require.EqualValues(t, 3, stats[0].GivenBack, row.why)
			} else if len(stats) > 0 {
				require.Zero(t, stats[0].GivenBack, row.why)
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestReserveOfSeveralRules proves that all rules of a request are settled: those that deny, those
// in shadow, at the rates of tiers and at resolved ones.
func TestReserveOfSeveralRules(t *testing.T) {
	for _, stored := range []bool{false, true} {
		clock := ratelimit.NewFakeClock(epoch)
		opts := []ratelimit.Option{ratelimit.WithClock(clock)}
		if stored {
			opts = append(opts, ratelimit.WithStore(newSettlingStore(t, clock)))
		}
		l := newRules(t, []ratelimit.Rule{
			{Name: "user", Endpoint: "/", Rate: ratelimit.PerHour(10), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(100), "free": ratelimit.Unlimited}},
			{Name: "resolved", Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(10), Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
				return ratelimit.PerHour(50), r.Tier == "paid"
			}},
			{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(1000)},
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
		r, err := l.Reserve(t.Context(), req, mins)
		require.NoError(t, err)
		require.Equal(t, []int{80, 30, 980, 980, 980}, left()) // of a shadow rule alone, Peek shows the global one
		require.NoError(t, r.Settle(5))
		require.Equal(t, []int{95, 45, 995, 995, 995}, left())
		r, err = l.Reserve(t.Context(), req, mins)
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
		r, err = l.Reserve(t.Context(), req, mins)
		require.NoError(t, err)
		require.False(t, r.Result().Allowed, "the resolved rule has its own 10")
	}
}

// TestReserveWhenTheStoreIsDown proves to whom a reservation goes while a store cannot be reached,
// and that Settle may be repeated.
func TestReserveWhenTheStoreIsDown(t *testing.T) {
	begin := func(t *testing.T, policy ratelimit.FailurePolicy) *desk {
		d := &desk{t: t, clock: ratelimit.NewFakeClock(epoch)}
		d.store = newSettlingStore(t, d.clock)
		d.RateLimiter = newRules(t, []ratelimit.Rule{{Name: "ours", Endpoint: "/o", Rate: ratelimit.PerHour(10), OnStoreError: policy}}, nil,
			ratelimit.WithClock(d.clock), ratelimit.WithStore(d.store))
		return d
	}
	down := func(d *desk, n int) *ratelimit.Reservation {
		d.store.script = append(d.store.script, errsBefore)
		r, err := d.Reserve(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: n}, time.Hour)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.NotNil(t, r)
		require.True(t, r.Result().Degraded)
		return r
	}
	t.Run("repeated", func(t *testing.T) {
		for _, f := range []fault{errsBefore, errsAfter} {
			d := begin(t, ratelimit.FailOpen)
			r := d.reserved(6)
			d.store.script = []fault{f}
			err := r.Settle(2)
			require.ErrorIs(t, err, ratelimit.ErrStore)
			require.ErrorIs(t, err, errFault)
			require.NoError(t, r.Settle(2))
			require.Equal(t, ratelimit.ErrSettled, r.Settle(2))
			require.Equal(t, 8, d.left())
			require.EqualValues(t, 4, d.Stats()[0].GivenBack)
			require.EqualValues(t, 1, d.Stats()[0].Errors)

			r = d.reserved(3)
			d.store.script = []fault{f}
			require.ErrorIs(t, r.Settle(4), ratelimit.ErrStore)
			require.Equal(t, ratelimit.ErrSettled, r.Settle(4), "more is sent once")
			require.Equal(t, ratelimit.ErrSettled, r.Settle(0))
		}
	})
	t.Run("a breaker refuses", func(t *testing.T) {
		d := begin(t, ratelimit.FailClosed)
		r := d.reserved(3)
		d.store.then = errsBefore
		for range 20 {
			_, err := d.Check(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o"})
			require.ErrorIs(t, err, ratelimit.ErrStore)
		}
		calls := d.store.settled
		require.ErrorIs(t, r.Settle(5), ratelimit.ErrStore)
		require.Equal(t, calls, d.store.settled, "nothing was sent")
		d.store.then = sound
		d.clock.Advance(mins)
		require.NoError(t, r.Settle(5), "so it is still open")
		require.Equal(t, 5, d.left())
	})
	t.Run("the share", func(t *testing.T) {
		d := begin(t, ratelimit.FailLocal(1))
		r := down(d, 7)
		require.Equal(t, 3, r.Result().Remaining)
		require.NoError(t, r.Settle(2))
		require.Zero(t, d.store.settled, "the store has charged nothing")
		require.Equal(t, 7, down(d, 1).Result().Remaining)
		require.NoError(t, down(d, 1).Settle(5))
		require.Equal(t, 1, down(d, 1).Result().Remaining)
		require.Equal(t, uint64(5), d.Stats()[0].GivenBack)
		require.Equal(t, 10, d.left(), "of the store")
	})
	t.Run("open and closed", func(t *testing.T) {
		d := begin(t, ratelimit.FailOpen)
		r := down(d, 7)
		require.True(t, r.Result().Allowed)
		require.NoError(t, r.Settle(100))
		d = begin(t, ratelimit.FailClosed)
		r = down(d, 7)
		require.False(t, r.Result().Allowed)
		require.NoError(t, r.Settle(100))
		require.Zero(t, d.store.settled)
		require.Equal(t, 10, d.left())
	})
	t.Run("the store panics", func(t *testing.T) {
		d := begin(t, ratelimit.FailOpen)
		r := d.reserved(7)
		d.store.script = []fault{panics}
		require.PanicsWithValue(t, errFault, func() { _ = r.Settle(1) })
		require.Equal(t, ratelimit.ErrSettled, r.Settle(1))
	})
	t.Run("the caller leaves during the call", func(t *testing.T) {
		d := begin(t, ratelimit.FailOpen)
		ctx, cancel := context.WithCancel(t.Context())
		cancelling := &cancelsFirst{settlingStore: d.store, cancel: cancel}
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(10)}, ratelimit.WithClock(d.clock), ratelimit.WithStore(cancelling))
		r, err := l.Reserve(ctx, ratelimit.Request{Client: "a"}, mins)
		require.Nil(t, r)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, "ratelimit: the units may be charged: context canceled")
	})
}

// A cancelsFirst is a store whose caller leaves while it is called.
type cancelsFirst struct {
	*settlingStore
	cancel func()
}

func (s *cancelsFirst) Take(ctx context.Context, _ []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.cancel()
	return nil, ctx.Err()
}

// TestReserveOutlivesItsContext proves that Settle works when the request is over.
func TestReserveOutlivesItsContext(t *testing.T) {
	overDesks(t, ratelimit.Rule{Rate: ratelimit.PerHour(10)}, func(t *testing.T, d *desk) {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := d.Reserve(ctx, ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 10}, mins)
		require.NoError(t, err)
		cancel()
		require.NoError(t, r.Settle(4))
		require.Equal(t, 6, d.left())
	})
}

// TestReserveWakesWaiters proves that those who wait get what comes back, and wait longer for what
// is used beyond.
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
			time.Sleep(mins)
			require.NoError(t, r.Settle(6))
			<-w.done
			require.NoError(t, w.err)
			require.True(t, w.res.Allowed)
			require.Equal(t, mins, time.Since(begun).Truncate(ms))
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

// TestReserveConcurrently has many goroutines reserve of one key, settle and cancel, while the rate
// changes and other keys come and go. What is left in the end is what was not used.
func TestReserveConcurrently(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		rate := ratelimit.Rate{Requests: 60_000, Per: 997 * time.Hour}
		l := newRules(t, nil, &ratelimit.Rule{Algorithm: byName[a.name], Rate: rate}, ratelimit.WithClock(clock))
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

// TestReserveOverARestart has a clock be set from the zero time to today while a reservation is open.
// All keys are then as new.
func TestReserveOverARestart(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(time.Time{})
		l := newRules(t, nil, &ratelimit.Rule{Algorithm: byName[a.name], Rate: ratelimit.PerHour(10)}, ratelimit.WithClock(clock))
		reserve := func() *ratelimit.Reservation {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Cost: 4}, mins)
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

// TestReserveByAnInvalidRate proves that an invalid resolved rate is an error beside an answer.
func TestReserveByAnInvalidRate(t *testing.T) {
	overDesks(t, ratelimit.Rule{Rate: ratelimit.PerHour(10), Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
		return ratelimit.Rate{Requests: -1}, true
	}}, func(t *testing.T, d *desk) {
		r, err := d.Reserve(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 4}, time.Hour)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.True(t, r.Result().Allowed)
		require.NoError(t, r.Settle(1))
		res, _ := d.Peek(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/o"})
		require.Equal(t, 9, res.Remaining)
	})
}

// TestReserveOverflow proves that a charge of the budget that keys share is final, and that units
// beyond are charged there.
func TestReserveOverflow(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := newRules(t, nil, &ratelimit.Rule{Algorithm: byName[a.name], Rate: ratelimit.PerHour(20)}, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		require.True(t, l.Allow("holder", "").Allowed)
		reserve := func(client string, n int) *ratelimit.Reservation {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: client, Cost: n}, mins)
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

// TestReserveOfManyKeys proves that a rule has no more open reservations than it may have keys, and
// that the oldest of all become final.
func TestReserveOfManyKeys(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := newRules(t, nil, &ratelimit.Rule{Algorithm: byName[a.name], Rate: ratelimit.PerHour(20)}, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(3))
		var open []*ratelimit.Reservation
		for _, client := range []string{"a", "b", "b", "c"} {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: client, Cost: 5}, mins)
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
		again, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Cost: 4}, mins)
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
