package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// inProcessAndStore runs test twice, on a FakeClock: with the options of a limiter that keeps its
// state in this process, and of one that keeps it in a store.
func inProcessAndStore(t *testing.T, test func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option)) {
	t.Helper()
	for _, place := range []string{"memory", "store"} {
		t.Run(place, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			opts := []ratelimit.Option{ratelimit.WithClock(clock)}
			if place == "store" {
				st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(st))
			}
			test(t, clock, opts...)
		})
	}
}

// ids returns the option for request IDs that most tests use.
func ids() ratelimit.Option { return ratelimit.WithRequestIDs(time.Hour) }

// TestRetryIsChargedOnce sends a request again with the same ID, as a client does that has not got
// the answer.
func TestRetryIsChargedOnce(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/pay", Rate: ratelimit.PerMinute(60).WithBurst(10)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/pay", Cost: 4, ID: "7f3a"}
		first := check(t, l, req)
		require.Equal(t, by("/pay", yes(10, 6, 4*sec)), first)
		req.Cost, req.ID = 1, ""
		require.Equal(t, by("/pay", yes(10, 5, 5*sec)), check(t, l, req), "another request")
		req.Cost, req.ID = 4, "7f3a"
		require.Equal(t, first, check(t, l, req), "at the same instant, the very same answer")
		clock.Advance(3 * sec)
		require.Equal(t, by("/pay", yes(10, 6, 1*sec)), check(t, l, req), "less the time since")
		clock.Advance(3 * sec)
		require.Equal(t, by("/pay", yes(10, 6, 0)), check(t, l, req), "and at least 0")
		require.Equal(t, 10, peek(t, l, req).Remaining, "nothing was charged again: what was used has drained")
		stats := l.Stats()[0]
		assert.EqualValues(t, 2, stats.Allowed)
		assert.EqualValues(t, 3, stats.Replayed)
	})
}

// TestRetryWithAnInvalidCost proves that a negative cost is an error, also if the request was granted
// before with a cost of 1.
func TestRetryWithAnInvalidCost(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, _ *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(10)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		granted := check(t, l, req)
		stats := l.Stats()
		req.Cost = -1
		res, err := l.Check(t.Context(), req)
		require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
		require.Zero(t, res)
		_, each, err := l.CheckAll(t.Context(), req, nil)
		require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
		require.Empty(t, each)
		require.Equal(t, stats, l.Stats(), "it is not counted, not even as a replay")
		req.Cost = 1
		require.Equal(t, granted, check(t, l, req), "the record is still there")
	})
}

// TestRecordsExpire proves to the nanosecond how long a record answers, and that no time passes for
// it on a clock that steps back.
func TestRecordsExpire(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(10)}}, nil, append(opts, ratelimit.WithRequestIDs(minute))...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		require.Equal(t, 9, check(t, l, req).Remaining)
		clock.Set(epoch.Add(-time.Hour))
		require.Equal(t, by("/", yes(10, 9, 6*minute)), check(t, l, req), "the clock has stepped back")
		clock.Set(epoch.Add(minute - 1))
		require.Equal(t, by("/", yes(10, 9, 5*minute+1)), check(t, l, req), "the last instant")
		clock.Set(epoch.Add(minute))
		require.Equal(t, by("/", yes(10, 8, 11*minute)), check(t, l, req), "its time is over: it is charged")
		require.Equal(t, by("/", yes(10, 8, 11*minute)), check(t, l, req), "which is recorded anew")
	})
}

// TestRecordAnswersAHundredTimes proves that one ID cannot be reused without end.
func TestRecordAnswersAHundredTimes(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(2)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		for round, want := range []int{1, 0} {
			for i := range 101 {
				require.Equal(t, want, check(t, l, req).Remaining, "round %d, call %d", round, i)
			}
		}
		denied := check(t, l, req)
		require.Equal(t, by("/", no(2, 0, 30*minute, time.Hour)), denied, "after 100 replays it is decided anew")
		require.Equal(t, denied, check(t, l, req), "and as it is denied, the record stays as it is")
		clock.Advance(30 * minute)
		require.True(t, check(t, l, req).Allowed, "a grant replaces the record")
		require.EqualValues(t, 3, l.Stats()[0].Allowed)
		require.EqualValues(t, 200, l.Stats()[0].Replayed)
	})
}

// TestIdentity changes each field of a request that has a record, and proves which changes make it
// a new request.
func TestIdentity(t *testing.T) {
	const rule = "rule"
	own := func() []ratelimit.Rule {
		return []ratelimit.Rule{{Name: rule, Rate: ratelimit.PerHour(1000), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(2000)}},
			{Name: "other", Rate: ratelimit.PerHour(1000)}}
	}
	for _, row := range []struct {
		name   string
		req    func(req *ratelimit.Request)
		reload func(rules []ratelimit.Rule) []ratelimit.Rule
		same   bool
	}{
		{name: "nothing", same: true},
		{name: "another ID", req: func(req *ratelimit.Request) { req.ID = "2" }},
		{name: "another client", req: func(req *ratelimit.Request) { req.Client = "bob" }},
		{name: "the boundary of client and ID", req: func(req *ratelimit.Request) { req.Client, req.ID = "alice1", "" }},
		{name: "a higher cost", req: func(req *ratelimit.Request) { req.Cost = 100 }},
		{name: "a cost of 1", req: func(req *ratelimit.Request) { req.Cost = 1 }, same: true},
		{name: "another rule", req: func(req *ratelimit.Request) { req.Rules = []string{"other"} }},
		{name: "one more rule", req: func(req *ratelimit.Request) { req.Rules = []string{rule, "other"} }},
		{name: "a tier", req: func(req *ratelimit.Request) { req.Tier = "paid" }, same: true},
		{name: "an address that is in no key", req: func(req *ratelimit.Request) { req.IP = "::1" }, same: true},
		{name: "another rate", same: true, reload: func(rules []ratelimit.Rule) []ratelimit.Rule {
			rules[0].Rate = ratelimit.PerMinute(7)
			return rules
		}},
		{name: "another key type", reload: func(rules []ratelimit.Rule) []ratelimit.Rule {
			rules[0].Key = ratelimit.KeyOf(ratelimit.KeyUser, ratelimit.KeyIP)
			return rules
		}},
		{name: "another algorithm", reload: func(rules []ratelimit.Rule) []ratelimit.Rule {
			rules[0].Algorithm = ratelimit.AlgorithmFixedWindow
			return rules
		}},
		{name: "a rule that enforces no more", reload: func(rules []ratelimit.Rule) []ratelimit.Rule {
			rules[0].Mode = ratelimit.ModeShadow
			return rules
		}},
		{name: "a rule beside it", reload: func(rules []ratelimit.Rule) []ratelimit.Rule {
			return append(rules, ratelimit.Rule{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Additional: true,
				Rate: ratelimit.PerHour(1000)})
		}},
		{name: "another order of rules", same: true, reload: func(rules []ratelimit.Rule) []ratelimit.Rule {
			return []ratelimit.Rule{rules[1], rules[0]}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
				l := newRules(t, own(), nil, append(opts, ids())...)
				req := ratelimit.Request{Client: "alice", Rules: []string{rule}, ID: "1"}
				check(t, l, req)
				if row.req != nil {
					row.req(&req)
				}
				if row.reload != nil {
					require.NoError(t, l.Replace(row.reload(own()), nil))
				}
				check(t, l, req)
				replayed := uint64(0)
				for _, stats := range l.Stats() {
					replayed += stats.Replayed
				}
				assert.Equal(t, row.same, replayed == 1, "%d replays", replayed)
			})
		})
	}
}

// TestTwoLimitersOnAStoreShareRecords proves that two limiters on a store share records even if
// their rules are in different orders, as in two processes after a reload.
func TestTwoLimitersOnAStoreShareRecords(t *testing.T) {
	st, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	a := ratelimit.Rule{Name: "a", Rate: ratelimit.PerHour(10)}
	b := ratelimit.Rule{Name: "b", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(5)}
	one := newRules(t, []ratelimit.Rule{a, b}, nil, ratelimit.WithStore(st), ids())
	other := newRules(t, []ratelimit.Rule{b, a}, nil, ratelimit.WithStore(st), ids())
	req := ratelimit.Request{Client: "alice", Rules: []string{"a", "b"}, ID: "1"}
	first, each, err := one.CheckAll(t.Context(), req, nil)
	require.NoError(t, err)
	again, rest, err := other.CheckAll(t.Context(), req, nil)
	require.NoError(t, err)
	assert.Equal(t, first.Remaining, again.Remaining)
	require.Len(t, rest, 2)
	assert.Equal(t, []string{"a", "b"}, []string{each[0].Rule, each[1].Rule})
	assert.Equal(t, []string{"b", "a"}, []string{rest[0].Rule, rest[1].Rule})
	assert.Equal(t, each[0].Remaining, rest[1].Remaining, "each rule has its own answer")
	assert.Equal(t, each[1].Remaining, rest[0].Remaining)
}

// TestDenialsAreNotRecorded proves that a denied client may be granted later under the same ID.
func TestDenialsAreNotRecorded(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		check(t, l, req)
		req.ID = "2"
		for range 200 {
			require.Equal(t, by("/", no(1, 0, minute, minute)), check(t, l, req))
		}
		clock.Advance(minute)
		require.True(t, check(t, l, req).Allowed)
		require.EqualValues(t, 200, l.Stats()[0].Denied)
		require.Zero(t, l.Stats()[0].Replayed)
	})
}

// TestResetKeepsRecords proves that a retry is not charged again after a Reset.
func TestResetKeepsRecords(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(5)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		first := check(t, l, req)
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "alice"}))
		require.Equal(t, first, check(t, l, req))
		require.Equal(t, 5, peek(t, l, req).Remaining)
	})
}

// TestOldestRecordIsDroppedFirst proves that, with room for two records, only a further grant drops
// one, and that it drops the oldest.
func TestOldestRecordIsDroppedFirst(t *testing.T) {
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Key: ratelimit.KeyEndpoint, Rate: ratelimit.PerHour(100)}}, nil,
		ratelimit.WithMaxKeys(2), ids())
	send := func(id string, cost int) (replayed bool) {
		before := l.Stats()[0].Replayed
		check(t, l, ratelimit.Request{Client: "alice", Endpoint: "/", ID: id, Cost: cost})
		return l.Stats()[0].Replayed > before
	}
	require.False(t, send("1", 1))
	require.False(t, send("2", 1))
	for i := range 1000 {
		require.False(t, send("denied "+strconv.Itoa(i), 1000))
	}
	require.True(t, send("1", 1), "denials leave no record")
	require.True(t, send("2", 1))
	require.False(t, send("3", 1))
	require.True(t, send("2", 1), "the oldest went")
	require.True(t, send("3", 1))
	require.False(t, send("1", 1), "its retry is charged again")
}

// TestMillionIDs proves that the number of records is bounded, and that IDs may be of any length
// and are not stored.
func TestMillionIDs(t *testing.T) {
	n := 1_000_000
	if testing.Short() || raceEnabled {
		n = 50_000
	}
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Key: ratelimit.KeyEndpoint, Rate: ratelimit.PerSecond(1 << 30)}}, nil,
		ratelimit.WithMaxKeys(1000), ids())
	for i := range n {
		res, err := l.Check(t.Context(), ratelimit.Request{Endpoint: "/", ID: strconv.Itoa(i)})
		if err != nil || !res.Allowed {
			require.Fail(t, "not granted", "%d: %v, %v", i, res, err)
		}
	}
	require.Equal(t, 1000, l.Records())
	large := ratelimit.Request{Endpoint: "/", ID: strings.Repeat("x", 1<<20)}
	check(t, l, large)
	check(t, l, large)
	require.EqualValues(t, 1, l.Stats()[0].Replayed)
	large.ID += "y"
	check(t, l, large)
	require.EqualValues(t, 1, l.Stats()[0].Replayed, "all of an ID counts")
}

// TestReplayWithShadowRules proves that a replay does not charge a shadow rule, whose answer is not
// part of the result, and that it gives each rule its recorded answer.
func TestReplayWithShadowRules(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		seen := new(record)
		l := newRules(t, []ratelimit.Rule{
			{Name: "own", Endpoint: "/", Rate: ratelimit.PerMinute(5)},
			{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Additional: true, Rate: ratelimit.PerMinute(3)},
			{Name: "planned", Endpoint: "/", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerMinute(2)},
		}, nil, append(opts, ids(), ratelimit.WithObserver(seen))...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		first, each, err := l.CheckAll(t.Context(), req, nil)
		require.NoError(t, err)
		require.Len(t, each, 2)
		before := seen.told(t)
		again, eachAgain, err := l.CheckAll(t.Context(), req, nil)
		require.NoError(t, err)
		assert.Equal(t, first, again)
		assert.Equal(t, each, eachAgain)
		told := seen.told(t)
		require.Len(t, told, 2)
		for i, d := range told {
			assert.Equal(t, ratelimit.SourceReplay, d.Source)
			assert.NotEqual(t, ratelimit.SourceReplay, before[i].Source)
			assert.Equal(t, before[i].Result, d.Result)
			assert.Equal(t, before[i].Rule, d.Rule)
		}
		for rule, left := range map[string]int{"own": 4, "all": 2, "planned": 1} {
			res, err := l.Peek(t.Context(), ratelimit.Request{Client: "alice", Rules: []string{rule}})
			require.NoError(t, err)
			if rule != "planned" {
				assert.Equal(t, min(left, 2), res.Remaining, rule)
			}
		}
		for _, stats := range l.Stats() {
			assert.EqualValues(t, 1, stats.Replayed, stats.Rule)
			assert.EqualValues(t, 1, stats.Allowed, stats.Rule)
		}
	})
}

// TestIDsOfRequestsWithoutRules proves that a request with an ID may be one that no rule charges.
func TestIDsOfRequestsWithoutRules(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1),
			Tiers: map[string]ratelimit.Rate{"staff": ratelimit.Unlimited}}}, nil, append(opts, ids())...)
		for range 2 {
			require.Equal(t, unlimited, check(t, l, ratelimit.Request{Endpoint: "/none", ID: "1"}))
			require.Equal(t, unlimited, check(t, l, ratelimit.Request{Endpoint: "/", Tier: "staff", ID: "1"}))
		}
		require.Equal(t, by("/", yes(1, 0, minute)), check(t, l, ratelimit.Request{Endpoint: "/", ID: "1"}))
		require.EqualValues(t, 2, l.Stats()[0].Allowed-1, "the exempt requests were not replayed")
	})
}

// TestPeekIgnoresTheID proves that Peek answers as for a request without a record.
func TestPeekIgnoresTheID(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		require.True(t, peek(t, l, req).Allowed)
		require.True(t, check(t, l, req).Allowed, "the look has left no record")
		require.False(t, peek(t, l, req).Allowed)
		require.True(t, check(t, l, req).Allowed)
		require.EqualValues(t, 1, l.Stats()[0].Replayed)
	})
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, nil)
	require.True(t, peek(t, l, ratelimit.Request{Endpoint: "/", ID: "1"}).Allowed, "also without the option")
}

// TestReplayedDelayShrinks proves that the replay of a leaky bucket's grant has the rest of the
// Delay.
func TestReplayedDelayShrinks(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(5)}},
			nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", Cost: 3}
		check(t, l, req)
		req.Cost, req.ID = 1, "1"
		require.Equal(t, by("/", delayed(3*sec, yes(5, 1, 4*sec))), check(t, l, req))
		clock.Advance(sec)
		require.Equal(t, by("/", delayed(2*sec, yes(5, 1, 3*sec))), check(t, l, req))
		clock.Advance(5 * sec)
		require.Equal(t, by("/", yes(5, 1, 0)), check(t, l, req))
	})
}

// TestRequestIDErrors proves which IDs and options are refused, with the exact errors.
func TestRequestIDErrors(t *testing.T) {
	for _, ttl := range []time.Duration{-1, 0, time.Microsecond - 1, 366*24*time.Hour + 1} {
		_, err := ratelimit.New(nil, nil, ratelimit.WithRequestIDs(ttl))
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.EqualError(t, err, "ratelimit: requestIDs is "+ttl.String()+": must be from a microsecond to 366 days")
	}
	for _, ttl := range []time.Duration{time.Microsecond, 366 * 24 * time.Hour} {
		_, err := ratelimit.New(nil, nil, ratelimit.WithRequestIDs(ttl))
		require.NoError(t, err)
	}
	st := newFaultyStore(t, nil)
	_, err := ratelimit.New(nil, nil, ratelimit.WithStore(noOnce{st}), ratelimit.WithName("x"), ids())
	require.EqualError(t, err, "ratelimit: store is ratelimit_test.noOnce: must have a method Once: requests have IDs")
	_, err = ratelimit.NewMemoryStore(ids())
	require.EqualError(t, err, "ratelimit: options is others: must be WithClock or WithMaxKeys")
	_, err = ratelimit.New(nil, nil, ratelimit.WithFactory(ratelimit.NewFactory(ids())), ratelimit.WithRequestIDs(minute))
	require.EqualError(t, err, "ratelimit: factory.requestIDs is 1h0m0s: must not differ from that of the limiter, which is 1m0s")
	_, err = ratelimit.NewTokenBucket(ratelimit.PerSecond(1), ratelimit.WithStore(noOnce{st}), ratelimit.WithName("x"), ids())
	require.NoError(t, err, "the option has no effect on a limiter by itself")

	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, nil)
	req := ratelimit.Request{Endpoint: "/", ID: "7f3a"}
	const want = `ratelimit: id is "7f3a": must be empty: the limiter has no WithRequestIDs`
	res, err := l.Check(t.Context(), req)
	require.EqualError(t, err, want)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.Zero(t, res)
	res, each, err := l.CheckAll(t.Context(), req, nil)
	require.EqualError(t, err, want)
	require.Zero(t, res)
	require.Empty(t, each)
	res, err = l.Wait(t.Context(), req)
	require.EqualError(t, err, want)
	require.Zero(t, res)
	require.Equal(t, 1, peekAt(t, l, "/", "").Remaining, "nothing was charged")
	req.ID = strings.Repeat("x", 1<<20)
	_, err = l.Check(t.Context(), req)
	require.Less(t, len(err.Error()), 200, "a long ID is cut off")
	res, err = new(ratelimit.RateLimiter).Check(t.Context(), req)
	require.NoError(t, err, "the zero RateLimiter grants everything")
	require.Equal(t, unlimited, res)
}

// A noOnce is a store without the method Once.
type noOnce struct{ ratelimit.Store }

// TestOnceRefuses proves which calls of Once a MemoryStore refuses.
func TestOnceRefuses(t *testing.T) {
	st, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	good := ratelimit.Ask{Rule: "r", Key: "a", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(2), N: 1}
	none, looking := good, good
	none.N, looking.Look = -1, true
	once := ratelimit.Attempt{Client: "a", ID: "1", TTL: minute}
	for _, row := range []struct {
		ctx  context.Context
		once ratelimit.Attempt
		ask  ratelimit.Ask
		want string
	}{
		{t.Context(), ratelimit.Attempt{TTL: minute}, good, `ratelimit: id is "": must not be empty`},
		{t.Context(), ratelimit.Attempt{ID: "1"}, good, "ratelimit: ttl is 0s: must be from a microsecond to 366 days"},
		{t.Context(), ratelimit.Attempt{ID: "1", TTL: 366*24*time.Hour + 1}, good,
			"ratelimit: ttl is 8784h0m0.000000001s: must be from a microsecond to 366 days"},
		{t.Context(), once, none, ratelimit.ErrInvalidCount.Error()},
		{t.Context(), once, looking, "ratelimit: look is true: must be false: Once has a Look of its own"},
		{canceled(), once, good, context.Canceled.Error()},
	} {
		results, replayed, err := st.Once(row.ctx, row.once, []ratelimit.Ask{good, row.ask})
		require.EqualError(t, err, row.want)
		require.Nil(t, results)
		require.False(t, replayed)
	}
	results, replayed, err := new(ratelimit.MemoryStore).Once(t.Context(), once, []ratelimit.Ask{good})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.Nil(t, results)
	require.False(t, replayed)
	results, replayed, err = st.Once(t.Context(), once, nil)
	require.NoError(t, err)
	require.Empty(t, results)
	require.False(t, replayed)
	look := once
	look.Look = true
	for range 2 {
		results, replayed, err = st.Once(t.Context(), look, []ratelimit.Ask{good})
		require.NoError(t, err)
		require.Equal(t, 2, results[0].Remaining, "a look changes nothing")
		require.False(t, replayed)
	}
	_, _, err = st.Once(t.Context(), once, []ratelimit.Ask{good})
	require.NoError(t, err)
	for range 200 {
		results, replayed, err = st.Once(t.Context(), look, []ratelimit.Ask{good})
		require.NoError(t, err)
		require.Equal(t, 1, results[0].Remaining)
		require.True(t, replayed, "and it sees the record, for any number of times")
	}
}

// TestFailurePolicyAnswersAreNotRecorded proves that a request that a failure policy granted is
// charged when the store works again, and that earlier records in the store are found then.
func TestFailurePolicyAnswersAreNotRecorded(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	st := newFaultyStore(t, clock)
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(10)}}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(st),
		ids())
	req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
	first := check(t, l, req)
	st.from(errsBefore)
	for left := range 3 {
		res, err := l.Check(t.Context(), req)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.Equal(t, degraded(by("/", yes(10, 8-left, time.Duration(2+left)*6*minute))), res, "it is charged each time")
	}
	st.from(sound)
	require.Equal(t, first, check(t, l, req))
	assert.EqualValues(t, 1, l.Stats()[0].Replayed)
}

// TestReplayedReservationHoldsNothing proves that the replay of a reservation has nothing to give
// back, because it was not charged.
func TestReplayedReservationHoldsNothing(t *testing.T) {
	inProcessAndStore(t, func(t *testing.T, _ *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/ask", Rate: ratelimit.PerHour(10)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/ask", Cost: 4, ID: "7f3a"}
		first, err := l.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		again, err := l.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		require.Equal(t, by("/ask", yes(10, 6, 24*minute)), first.Result())
		require.Equal(t, first.Result(), again.Result())
		require.Equal(t, []ratelimit.Result{first.Result()}, again.Results())

		require.NoError(t, again.Settle(0))
		require.Equal(t, 6, peek(t, l, req).Remaining, "nothing comes back")
		require.NoError(t, again.Cancel())
		require.NoError(t, first.Settle(1))
		require.Equal(t, 9, peek(t, l, req).Remaining)
		stats := l.Stats()[0]
		assert.EqualValues(t, 3, stats.GivenBack)
		assert.EqualValues(t, 1, stats.Replayed)
		assert.EqualValues(t, 1, stats.Allowed)
	})
}

// A keptAnswer is what a recordModel remembers of one granted request.
type keptAnswer struct {
	id      string
	at      time.Time
	each    []ratelimit.Result // of the request, then of each of its rules
	replays int
}

// A recordModel is the model of a limiter with request IDs: a map from the identities of requests
// to their answers, and a limiter without request IDs.
type recordModel struct {
	clock  *ratelimit.FakeClock
	rules  *ratelimit.RateLimiter
	ttl    time.Duration
	most   int
	grants []*keptAnswer // the oldest first
	last   map[string]*keptAnswer
}

// check returns what a limiter with request IDs must answer to req.
func (m *recordModel) check(t *testing.T, req ratelimit.Request) []ratelimit.Result {
	now := m.clock.Now()
	id := fmt.Sprintf("%q %q %d %q %q", req.Client, req.ID, max(req.Cost, 1), req.Rules, req.Endpoint)
	if k := m.last[id]; req.ID != "" && k != nil && k.age(now) < m.ttl && k.replays < 100 {
		k.replays++
		each := slices.Clone(k.each)
		for i := range each {
			each[i].ResetAfter = max(each[i].ResetAfter-k.age(now), 0)
			each[i].Delay = max(each[i].Delay-k.age(now), 0)
		}
		return each
	}
	plain := req
	plain.ID = ""
	res, each, err := m.rules.CheckAll(context.Background(), plain, nil)
	require.NoError(t, err)
	each = slices.Insert(each, 0, res)
	if req.ID != "" && res.Allowed {
		for len(m.grants) > 0 && m.grants[0].age(now) >= m.ttl {
			m.forget()
		}
		if len(m.grants) == m.most {
			m.forget()
		}
		m.last[id] = &keptAnswer{id: id, at: now, each: each}
		m.grants = append(m.grants, m.last[id])
	}
	return each
}

// age returns how long ago the answer was recorded.
func (k *keptAnswer) age(now time.Time) time.Duration { return max(now.Sub(k.at), 0) }

// forget drops the oldest record.
func (m *recordModel) forget() {
	if k := m.grants[0]; m.last[k.id] == k {
		delete(m.last, k.id)
	}
	m.grants = m.grants[1:]
}

// TestRandomRetries compares limiters with request IDs with the model. Its random requests have few
// clients, IDs and costs and match several rules, while the clock moves and rates change.
func TestRandomRetries(t *testing.T) {
	schedules, steps := 60, 400
	switch {
	case os.Getenv("RATELIMIT_SOAK") == "1":
		schedules = 6000
	case testing.Short() || raceEnabled:
		schedules = 12
	}
	replays, answers := 0, 0
	for i := range schedules {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		all := []ratelimit.Algorithm{
			ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
			ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket,
		}
		rules := []ratelimit.Rule{
			{Name: "a", Algorithm: all[i%5], Rate: ratelimit.PerMinute(3 + r.IntN(20))},
			{Name: "b", Algorithm: all[r.IntN(5)], Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(5 + r.IntN(50))},
			{Name: "s", Algorithm: all[r.IntN(5)], Mode: ratelimit.ModeShadow, Rate: ratelimit.PerMinute(2)},
		}
		clock := ratelimit.NewFakeClock(epoch)
		m := &recordModel{clock: clock, ttl: []time.Duration{time.Microsecond, sec, minute, time.Hour}[r.IntN(4)], most: 4 + r.IntN(20),
			last: make(map[string]*keptAnswer)}
		opts := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithMaxKeys(m.most)}
		tested := append(slices.Clone(opts), ratelimit.WithRequestIDs(m.ttl))
		if i%2 == 1 {
			for _, o := range []*[]ratelimit.Option{&opts, &tested} {
				st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(m.most))
				require.NoError(t, err)
				*o = append(*o, ratelimit.WithStore(st))
			}
		}
		m.rules = newRules(t, rules, nil, opts...)
		l := newRules(t, rules, nil, tested...)
		clients, names, moves := 1+r.IntN(3), 1+r.IntN(6), 1+r.IntN(20)
		for step := range steps {
			switch p := r.IntN(100); {
			case p < moves:
				clock.Advance(time.Duration(r.Int64N(int64(m.ttl) + int64(5*sec))))
			case p == 98:
				clock.Advance(-time.Duration(r.Int64N(int64(10 * sec))))
			case p == 99:
				rule, rate := rules[r.IntN(3)].Name, ratelimit.PerMinute(1+r.IntN(30))
				require.NoError(t, l.UpdateRate(rule, rate))
				require.NoError(t, m.rules.UpdateRate(rule, rate))
			}
			req := ratelimit.Request{Client: "c" + string(rune('0'+r.IntN(clients))), Rules: []string{"a", "b", "s"}[r.IntN(2):], Cost: r.IntN(3)}
			if r.IntN(10) > 0 {
				req.ID = string(rune('0' + r.IntN(names)))
			}
			before := l.Stats()[1].Replayed
			want := m.check(t, req)
			res, each, err := l.CheckAll(t.Context(), req, nil)
			require.NoError(t, err)
			require.Equal(t, want, slices.Insert(each, 0, res), "schedule %d, step %d: %+v", i, step, req)
			look := ratelimit.Request{Client: req.Client, Rules: req.Rules}
			require.Equal(t, peek(t, m.rules, look), peek(t, l, look), "schedule %d, step %d: what is left after %+v", i, step, req)
			replays += int(l.Stats()[1].Replayed - before)
			answers++
		}
	}
	assert.Greater(t, replays, answers/10, "the schedules have replays")
	t.Logf("%d answers, %d of them replays, 0 differences", answers, replays)
}

// TestConcurrentRetries sends each request from 64 goroutines at once, to one RateLimiter or to two
// that share a store.
func TestConcurrentRetries(t *testing.T) {
	rounds := 1000
	if testing.Short() || raceEnabled {
		rounds = 100
	}
	inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		rules := []ratelimit.Rule{
			{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(1 << 20)},
			{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Additional: true, Algorithm: ratelimit.AlgorithmSlidingWindowLog,
				Rate: ratelimit.PerHour(1 << 14)},
		}
		one := newRules(t, rules, nil, append(opts, ids())...)
		other := one
		if len(opts) > 1 { // they share a store
			other = newRules(t, rules, nil, append(opts, ids())...)
		}
		atOnce(t, rounds, []*ratelimit.RateLimiter{one, other}, "/")
		require.Equal(t, 1<<14-rounds, peekAt(t, one, "all", "alice").Remaining, "one charge for each")
	})
}

// TestConcurrentRetriesWithACustomLimiter sends each request from 64 goroutines at once to rules
// with a custom limiter, which is called without a lock.
func TestConcurrentRetriesWithACustomLimiter(t *testing.T) {
	const rounds = 50
	inner, err := ratelimit.NewFixedWindow(ratelimit.PerHour(rounds), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
	require.NoError(t, err)
	l := newRules(t, []ratelimit.Rule{
		{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(rounds)},
		{Name: "custom", Endpoint: "/", Limiter: inner},
	}, nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ids())
	atOnce(t, rounds, []*ratelimit.RateLimiter{l, l}, "/")
	require.Zero(t, inner.Peek("alice").Remaining, "one charge for each, and none too many")
	require.Zero(t, peekAt(t, l, "own", "alice").Remaining)
}

// atOnce sends requests with an ID, each from 64 goroutines, all of which must get the same answer.
func atOnce(t *testing.T, rounds int, ls []*ratelimit.RateLimiter, endpoint string) {
	t.Helper()
	for round := range rounds {
		req := ratelimit.Request{Client: "alice", Endpoint: endpoint, ID: fmt.Sprint(round)}
		var results [64]ratelimit.Result
		var begin, all sync.WaitGroup
		begin.Add(1)
		for g := range results {
			all.Go(func() {
				begin.Wait()
				results[g], _ = ls[g%len(ls)].Check(context.Background(), req)
			})
		}
		begin.Done()
		all.Wait()
		require.True(t, results[0].Allowed)
		for _, res := range results {
			require.Equal(t, results[0], res, "round %d", round)
		}
	}
}

// BenchmarkCheckWithID measures Check with and without an ID.
func BenchmarkCheckWithID(b *testing.B) {
	rule := []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.Rate{Requests: 1 << 30, Per: sec}}}
	l := newRules(b, rule, nil, ids(), ratelimit.WithMaxKeys(1<<16))
	for _, row := range []struct {
		name string
		id   func(i int) string
	}{
		{"id=none", func(int) string { return "" }},
		{"id=new", strconv.Itoa},
		{"id=replayed", func(i int) string { return "x" + strconv.Itoa(i/100%1000) }},
	} {
		b.Run(row.name, func(b *testing.B) {
			names := make([]string, 1<<17)
			for i := range names {
				names[i] = row.id(i)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				res, err := l.Check(b.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", ID: names[i%len(names)]})
				if i++; err != nil || !res.Allowed {
					require.Fail(b, "not granted")
				}
			}
		})
	}
}
