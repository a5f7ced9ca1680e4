package ratelimit_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// wherever runs test with options that keep state, and the answers to requests with an ID, in this
// process, and with ones that keep them in a store.
func wherever(t *testing.T, test func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option)) {
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

// ids is the option that most tests of IDs use.
func ids() ratelimit.Option { return ratelimit.WithRequestIDs(time.Hour) }

// TestARetryIsChargedOnce sends a request again with its ID, as a client does whose answer was lost.
func TestARetryIsChargedOnce(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
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

// TestARecordAnswersForItsTime proves both edges of ttl, and that a clock that steps back counts
// as one that stands still.
func TestARecordAnswersForItsTime(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(10)}}, nil, append(opts, ratelimit.WithRequestIDs(mins))...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		require.Equal(t, 9, check(t, l, req).Remaining)
		clock.Set(epoch.Add(-time.Hour))
		require.Equal(t, by("/", yes(10, 9, 6*mins)), check(t, l, req), "the clock has stepped back")
		clock.Set(epoch.Add(mins - 1))
		require.Equal(t, by("/", yes(10, 9, 5*mins+1)), check(t, l, req), "the last instant")
		clock.Set(epoch.Add(mins))
		require.Equal(t, by("/", yes(10, 8, 11*mins)), check(t, l, req), "its time is over: it is charged")
		require.Equal(t, by("/", yes(10, 8, 11*mins)), check(t, l, req), "which is recorded anew")
	})
}

// TestARecordAnswersAHundredTimes proves that one ID cannot be used for any number of requests.
func TestARecordAnswersAHundredTimes(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(2)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		for round, want := range []int{1, 0} {
			for i := range 101 {
				require.Equal(t, want, check(t, l, req).Remaining, "round %d, call %d", round, i)
			}
		}
		denied := check(t, l, req)
		require.Equal(t, by("/", no(2, 0, 30*mins, time.Hour)), denied, "after 100 replays it is decided anew")
		require.Equal(t, denied, check(t, l, req), "and as it is denied, the record stays as it is")
		clock.Advance(30 * mins)
		require.True(t, check(t, l, req).Allowed, "a grant replaces the record")
		require.EqualValues(t, 3, l.Stats()[0].Allowed)
		require.EqualValues(t, 200, l.Stats()[0].Replayed)
	})
}

// TestIdentity changes one thing after the other of a request that has a record.
func TestIdentity(t *testing.T) {
	const rule = "rule"
	own := func() []ratelimit.Rule {
		return []ratelimit.Rule{{Name: rule, Rate: ratelimit.PerHour(1000), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(2000)}}, {Name: "other", Rate: ratelimit.PerHour(1000)}}
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
			return append(rules, ratelimit.Rule{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Additional: true, Rate: ratelimit.PerHour(1000)})
		}},
		{name: "another order of rules", same: true, reload: func(rules []ratelimit.Rule) []ratelimit.Rule {
			return []ratelimit.Rule{rules[1], rules[0]}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
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

// TestTwoLimitersOnAStoreMeanTheSameRequest has two limiters made their rules in different orders,
// as two processes may after a reload.
func TestTwoLimitersOnAStoreMeanTheSameRequest(t *testing.T) {
	st, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	a, b := ratelimit.Rule{Name: "a", Rate: ratelimit.PerHour(10)}, ratelimit.Rule{Name: "b", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(5)}
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

// TestADenialIsNotKept proves that a client that was denied is granted later under the same ID.
func TestADenialIsNotKept(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		check(t, l, req)
		req.ID = "2"
		for range 200 {
			require.Equal(t, by("/", no(1, 0, mins, mins)), check(t, l, req))
		}
		clock.Advance(mins)
		require.True(t, check(t, l, req).Allowed)
		require.EqualValues(t, 200, l.Stats()[0].Denied)
		require.Zero(t, l.Stats()[0].Replayed)
	})
}

// TestRecordsOutliveAReset proves that a Reset does not make a retry one more charge.
func TestRecordsOutliveAReset(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(5)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
		first := check(t, l, req)
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "alice"}))
		require.Equal(t, first, check(t, l, req))
		require.Equal(t, 5, peek(t, l, req).Remaining)
	})
}

// TestTheOldestRecordGoesFirst keeps two records, and proves that only grants push others out.
func TestTheOldestRecordGoesFirst(t *testing.T) {
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Key: ratelimit.KeyEndpoint, Rate: ratelimit.PerHour(100)}}, nil, ratelimit.WithMaxKeys(2), ids())
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

// TestAMillionIDs proves that records are bounded, and that IDs of any size work and are not kept.
func TestAMillionIDs(t *testing.T) {
	n := 1_000_000
	if testing.Short() || raceEnabled {
		n = 50_000
	}
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Key: ratelimit.KeyEndpoint, Rate: ratelimit.PerSecond(1 << 30)}}, nil, ratelimit.WithMaxKeys(1000), ids())
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

// TestShadowsAreReplayedToo proves that a replay does not charge a shadow rule, which does not
// appear in the answer, and that each rule has its own answer.
func TestShadowsAreReplayedToo(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
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

// TestRequestsWithoutRules proves that an ID does no harm where nothing is charged.
func TestRequestsWithoutRules(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1), Tiers: map[string]ratelimit.Rate{"staff": ratelimit.Unlimited}}}, nil, append(opts, ids())...)
		for range 2 {
			require.Equal(t, unlimited, check(t, l, ratelimit.Request{Endpoint: "/none", ID: "1"}))
			require.Equal(t, unlimited, check(t, l, ratelimit.Request{Endpoint: "/", Tier: "staff", ID: "1"}))
		}
		require.Equal(t, by("/", yes(1, 0, mins)), check(t, l, ratelimit.Request{Endpoint: "/", ID: "1"}))
		require.EqualValues(t, 2, l.Stats()[0].Allowed-1, "the exempt requests were not replayed")
	})
}

// TestPeekIgnoresTheID proves that a look tells what a new request would get.
func TestPeekIgnoresTheID(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
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

// TestADelayRunsOn proves that a replay of a leaky bucket's grant tells what is left of the Delay.
func TestADelayRunsOn(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(5)}}, nil, append(opts, ids())...)
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

// TestRequestIDsThatCannotWork lists what is refused, with the exact errors.
func TestRequestIDsThatCannotWork(t *testing.T) {
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
	_, err = ratelimit.New(nil, nil, ratelimit.WithFactory(ratelimit.NewFactory(ids())), ratelimit.WithRequestIDs(mins))
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

// TestOnceRefuses calls Once of a MemoryStore in ways that it refuses.
func TestOnceRefuses(t *testing.T) {
	st, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	good := ratelimit.Ask{Rule: "r", Key: "a", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(2), N: 1}
	none, looking := good, good
	none.N, looking.Look = 0, true
	once := ratelimit.Once{Client: "a", ID: "1", TTL: mins}
	for _, row := range []struct {
		ctx  context.Context
		once ratelimit.Once
		ask  ratelimit.Ask
		want string
	}{
		{t.Context(), ratelimit.Once{TTL: mins}, good, `ratelimit: id is "": must not be empty`},
		{t.Context(), ratelimit.Once{ID: "1"}, good, "ratelimit: ttl is 0s: must be from a microsecond to 366 days"},
		{t.Context(), ratelimit.Once{ID: "1", TTL: 366*24*time.Hour + 1}, good, "ratelimit: ttl is 8784h0m0.000000001s: must be from a microsecond to 366 days"},
		{t.Context(), once, none, ratelimit.ErrInvalidCount.Error()},
		{t.Context(), once, looking, "ratelimit: look is true: must be false: Once has a Look of its own"},
		{over(), once, good, context.Canceled.Error()},
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

// TestAFailurePolicysAnswerIsNotKept has a store fail, and proves that what was granted meanwhile is
// charged when the store is back, and that a record there is found then.
func TestAFailurePolicysAnswerIsNotKept(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	st := newFaultyStore(t, clock)
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(10)}}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(st), ids())
	req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}
	first := check(t, l, req)
	st.from(errsBefore)
	for left := range 3 {
		res, err := l.Check(t.Context(), req)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.Equal(t, degraded(by("/", yes(10, 8-left, time.Duration(2+left)*6*mins))), res, "it is charged each time")
	}
	st.from(sound)
	require.Equal(t, first, check(t, l, req))
	assert.EqualValues(t, 1, l.Stats()[0].Replayed)
}
