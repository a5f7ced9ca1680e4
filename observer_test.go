package ratelimit_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A record is an Observer that keeps every Decision.
type record struct{ seen []ratelimit.Decision }

func (r *record) Observe(_ context.Context, d ratelimit.Decision) { r.seen = append(r.seen, d) }

// told returns the decisions since the last call of told, with Took and Key set to zero.
func (r *record) told(t *testing.T) []ratelimit.Decision {
	t.Helper()
	seen := r.seen
	r.seen = nil
	for i := range seen {
		require.GreaterOrEqual(t, seen[i].Took, 0*sec)
		require.Equal(t, seen[i].Rule == "", seen[i].Key == 0)
		seen[i].Took, seen[i].Key = 0, 0
	}
	return seen
}

// watched returns a RateLimiter with enforcing and shadow rules, and a record of its decisions.
func watched(t *testing.T, opts ...ratelimit.Option) (*ratelimit.RateLimiter, *record) {
	t.Helper()
	seen := new(record)
	opts = append([]ratelimit.Option{ratelimit.WithObserver(seen), ratelimit.WithClock(ratelimit.NewFakeClock(epoch))}, opts...)
	return newRules(t, []ratelimit.Rule{
		{Name: "user", Endpoint: "/e", Rate: ratelimit.PerMinute(5)},
		{Name: "all", Endpoint: "/e", Rate: ratelimit.PerMinute(2), Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmFixedWindow},
		{Name: "trial", Endpoint: "/e", Rate: ratelimit.PerMinute(1), Key: ratelimit.KeyEndpoint, Mode: ratelimit.ModeShadow},
		{Name: "shadow", Endpoint: "/s", Rate: ratelimit.PerMinute(1), Mode: ratelimit.ModeShadow},
	}, nil, opts...), seen
}

// TestObserverSeesEveryDecision proves that an observer gets, for every request, the decision of
// the binding rule and of each shadow rule.
func TestObserverSeesEveryDecision(t *testing.T) {
	l, seen := watched(t)
	req := ratelimit.Request{Client: "c", Endpoint: "/e"}
	all := ratelimit.Decision{
		Rule: "all", Algorithm: ratelimit.AlgorithmFixedWindow, KeyType: ratelimit.KeyGlobal, Mode: ratelimit.ModeEnforce,
		Rate: ratelimit.PerMinute(2), Source: ratelimit.SourceMemory, Time: epoch,
	}
	trial := ratelimit.Decision{
		Rule: "trial", Algorithm: ratelimit.AlgorithmTokenBucket, KeyType: ratelimit.KeyEndpoint, Mode: ratelimit.ModeShadow,
		Rate: ratelimit.PerMinute(1), Source: ratelimit.SourceMemory, Time: epoch,
	}
	with := func(d ratelimit.Decision, cost int, res ratelimit.Result) ratelimit.Decision {
		d.Cost, d.Result = cost, by(d.Rule, res)
		return d
	}
	for _, row := range []struct {
		do   func() ratelimit.Result
		want []ratelimit.Decision
		why  string
	}{
		{func() ratelimit.Result { return l.Allow("c", "/e") },
			[]ratelimit.Decision{with(all, 1, yes(2, 1, minute)), with(trial, 1, yes(1, 0, minute))},
			"one decision of the binding rule, one of the shadow"},
		{func() ratelimit.Result { return checked(l.Check(t.Context(), req)) },
			[]ratelimit.Decision{with(all, 1, yes(2, 0, minute)), with(trial, 1, no(1, 0, minute, minute))}, "the shadow would have denied"},
		{func() ratelimit.Result { return l.Allow("c", "/e") },
			[]ratelimit.Decision{with(all, 1, no(2, 0, minute, minute)), with(trial, 1, no(1, 0, minute, minute))}, "denied"},
		{func() ratelimit.Result {
			return checked(l.Check(t.Context(), ratelimit.Request{Rules: []string{"all"}, Cost: 3}))
		}, []ratelimit.Decision{with(all, 3, no(2, 0, ratelimit.Never, minute))}, "more than the limit"},
		{func() ratelimit.Result { return l.Allow("c", "/none") },
			[]ratelimit.Decision{{Cost: 1, Source: ratelimit.SourceNone, Result: unlimited, Time: epoch}}, "no rule applies"},
		{func() ratelimit.Result {
			return checked(l.Wait(t.Context(), ratelimit.Request{Client: "d", Rules: []string{"user"}}))
		},
			[]ratelimit.Decision{with(ratelimit.Decision{
				Rule: "user", Algorithm: ratelimit.AlgorithmTokenBucket, KeyType: ratelimit.KeyUser, Mode: ratelimit.ModeEnforce,
				Rate: ratelimit.PerMinute(5), Source: ratelimit.SourceMemory, Time: epoch,
			}, 1, yes(5, 4, 12*sec))}, "a Wait that is served is a decision"},
	} {
		res := row.do()
		got := seen.told(t)
		require.Equal(t, row.want, got, row.why)
		require.Equal(t, res, got[0].Result, "%s: the observer sees the Result that the caller got", row.why)
	}

	l.Allow("c", "/s")
	got := seen.told(t)
	shadow := got[len(got)-1]
	require.Equal(t, with(ratelimit.Decision{
		Rule: "shadow", Algorithm: ratelimit.AlgorithmTokenBucket, KeyType: ratelimit.KeyUser, Mode: ratelimit.ModeShadow,
		Rate: ratelimit.PerMinute(1), Source: ratelimit.SourceMemory, Time: epoch,
	}, 1, yes(1, 0, minute)), shadow, "a shadow by itself")
}

// TestObserverSeesOnlyDecisions proves that looks, resets, refused requests and failed waits are
// not reported to an observer.
func TestObserverSeesOnlyDecisions(t *testing.T) {
	l, seen := watched(t)
	req := ratelimit.Request{Client: "c", Endpoint: "/e"}
	_, err := l.Peek(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, seen.told(t), "a look")
	for _, row := range []struct {
		ctx context.Context
		req ratelimit.Request
		err error
		why string
	}{
		{t.Context(), ratelimit.Request{Rules: []string{"user", "none"}}, ratelimit.ErrUnknownRule, "an unknown rule"},
		{t.Context(), ratelimit.Request{Endpoint: "/e", Cost: -1}, ratelimit.ErrInvalidCount, "a negative cost"},
		{canceled(), req, context.Canceled, "the caller has given up"},
	} {
		for _, ask := range []func(context.Context, ratelimit.Request) (ratelimit.Result, error){l.Check, l.Peek, l.Wait} {
			res, err := ask(row.ctx, row.req)
			require.ErrorIs(t, err, row.err, row.why)
			require.Equal(t, ratelimit.Result{}, res, row.why)
			require.Empty(t, seen.told(t), row.why)
		}
	}
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}))
	require.Empty(t, seen.told(t), "a reset")
	l.Allow("c", "/e")
	l.Allow("c", "/e")
	seen.told(t)
	ctx, cancel := context.WithTimeout(t.Context(), sec)
	defer cancel()
	_, err = l.Wait(ctx, req)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	refused := seen.told(t)
	require.NotEmpty(t, refused)
	require.False(t, refused[0].Result.Allowed, "what Wait refuses is denied, and seen once")
	require.Equal(t, checked(l.Peek(t.Context(), req)).RetryAfter, refused[0].Result.RetryAfter)
	w := startRuleWait(t.Context(), l, req)
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}))
	_ = w
}

// TestObservedRequests proves that an observer gets the Request only with WithObservedRequests.
func TestObservedRequests(t *testing.T) {
	l, seen := watched(t, ratelimit.WithObservedRequests())
	req := ratelimit.Request{Client: "c", Endpoint: "/e", IP: "192.0.2.1", Tier: "paid", Cost: 2}
	checked(l.Check(t.Context(), req))
	got := seen.told(t)
	require.Len(t, got, 2)
	require.Equal(t, req, got[0].Request)
	require.Equal(t, req, got[1].Request)
	l, seen = watched(t)
	checked(l.Check(t.Context(), req))
	require.Equal(t, ratelimit.Request{}, seen.told(t)[0].Request, "without the option the Request is empty")
}

// TestObserverSources proves that a Decision names its source, and has the error that Allow does
// not return.
func TestObserverSources(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l, seen := watched(t, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	sources := func() (all []ratelimit.Source) {
		for _, d := range seen.told(t) {
			require.Equal(t, d.Source == ratelimit.SourcePolicy, d.Result.Degraded)
			all = append(all, d.Source)
		}
		return all
	}
	l.Allow("c", "/e")
	require.Equal(t, []ratelimit.Source{ratelimit.SourceStore, ratelimit.SourceStore}, sources())
	store.from(errsBefore)
	for range 10 {
		l.Allow("c", "/e")
		for _, d := range seen.seen {
			require.ErrorIs(t, d.Err, ratelimit.ErrStore, "Allow swallows the error, and the observer sees it")
			require.ErrorIs(t, d.Err, errFault)
		}
		require.Equal(t, []ratelimit.Source{ratelimit.SourcePolicy, ratelimit.SourcePolicy}, sources())
	}
	l.Allow("c", "/none")
	require.Equal(t, []ratelimit.Source{ratelimit.SourceNone}, sources(), "no rule, so the store was not asked")

	require.NoError(t, l.Replace(nil, nil))
	l, seen = watched(t)
	require.NoError(t, l.Replace([]ratelimit.Rule{
		{Name: "own", Endpoint: "/e", Limiter: answering(no(1, 0, sec, sec), nil)},
		{Name: "ours", Endpoint: "/e", Rate: ratelimit.PerMinute(5)},
		{Name: "bad", Endpoint: "/bad", Rate: ratelimit.PerMinute(5), Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
			return ratelimit.Rate{}, true
		}},
	}, nil))
	l.Allow("c", "/e")
	require.Equal(t, []ratelimit.Decision{{
		Rule: "own", KeyType: ratelimit.KeyUser, Mode: ratelimit.ModeEnforce, Cost: 1, Source: ratelimit.SourceLimiter,
		Result: by("own", no(1, 0, sec, sec)), Time: epoch,
	}}, seen.told(t))
	l.Allow("c", "/bad")
	got := seen.told(t)
	require.ErrorIs(t, got[0].Err, ratelimit.ErrInvalidConfig, "an invalid rate")
	require.Equal(t, by("bad", yes(5, 4, 12*sec)), got[0].Result)
}

// TestObserverIsCalledAfterUnlock proves that an observer may call any method of the
// RateLimiter that it observes.
func TestObserverIsCalledAfterUnlock(t *testing.T) {
	var l *ratelimit.RateLimiter
	depth, calls := 0, 0
	observer := observing(func(d ratelimit.Decision) {
		calls++
		if depth++; depth == 1 {
			l.Allow("c", "/e")
			_, _ = l.Peek(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
			l.Stats()
			require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}))
			require.NoError(t, l.UpdateRate("a", ratelimit.PerMinute(7)))
			require.NoError(t, l.AddRule(ratelimit.Rule{Name: "b", Endpoint: "/b", Rate: ratelimit.PerMinute(7)}))
		}
		depth--
	})
	l = newRules(t, []ratelimit.Rule{{Name: "a", Endpoint: "/e", Rate: ratelimit.PerMinute(5)}}, nil, ratelimit.WithObserver(observer))
	require.Equal(t, 5, l.Allow("c", "/e").Limit, "decided before the observer changed the rate")
	require.Equal(t, 2, calls)
	require.NoError(t, l.RemoveRule("b"))
	require.Equal(t, 7, l.Allow("c", "/e").Limit)
}

// TestObserverThatPanics proves that a panic in an observer is recovered: the decision stands, and
// the other observers are called.
func TestObserverThatPanics(t *testing.T) {
	calls := 0
	observer := observing(func(ratelimit.Decision) { calls++; panic(errFault) })
	l, _ := watched(t, ratelimit.WithObserver(observer))
	require.Equal(t, by("all", yes(2, 1, minute)), l.Allow("c", "/e"), "the decision stands")
	require.Equal(t, 2, calls, "the observer is told of the second decision too")
	require.Equal(t, by("all", yes(2, 0, minute)), checked(l.Wait(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})))
	require.Equal(t, by("all", no(2, 0, minute, minute)), l.Allow("c", "/e"))
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(2), ratelimit.WithObserver(observer), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		spend(t, l, "key", 2)
		denied(t, l, "key")
	})
}

// TestObserverOfLimiters proves that a limiter reports each decision under its own name or that of
// its algorithm, and answers as it does without an observer.
func TestObserverOfLimiters(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, row := range []struct {
			opts []ratelimit.Option
			rule string
			why  string
		}{
			{nil, string(a.inRules()), "the limiter is reported under its algorithm's name"},
			{[]ratelimit.Option{ratelimit.WithName("login")}, "login", "the limiter is reported under its own name"},
		} {
			seen := new(record)
			clock := ratelimit.NewFakeClock(epoch.Add(sec))
			twin := a.start(t, ratelimit.PerMinute(2), ratelimit.WithClock(clock))
			l := a.start(t, ratelimit.PerMinute(2), slices.Concat(row.opts, []ratelimit.Option{
				ratelimit.WithClock(clock), ratelimit.WithObserver(seen), ratelimit.WithObservedRequests(),
			})...)
			for range 3 {
				want := twin.Allow("key")
				require.Equal(t, want, l.Allow("key"), row.why)
				require.Equal(t, []ratelimit.Decision{{
					Rule: row.rule, Algorithm: a.inRules(), KeyType: ratelimit.KeyUser, Mode: ratelimit.ModeEnforce,
					Rate: ratelimit.PerMinute(2), Cost: 1, Source: ratelimit.SourceMemory, Time: clock.Now(),
					Result: want, Request: ratelimit.Request{Client: "key", Cost: 1},
				}}, seen.told(t), row.why)
			}
			l.Peek("key")
			take(t, l, "key", 0)
			_, err := l.Take(t.Context(), "key", -1)
			require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
			require.Empty(t, seen.told(t), "neither a look nor what is refused is a decision")
			require.Equal(t, 1, l.Len())
			require.NoError(t, l.SetRate(ratelimit.PerMinute(3)))
			require.NoError(t, twin.SetRate(ratelimit.PerMinute(3)))
			require.Equal(t, twin.Allow("key"), l.Allow("key"), row.why)
			require.NoError(t, l.Reset("key"))
			require.Equal(t, 3, l.Peek("key").Remaining)
		}
	})
}

// seen is an Observer that counts decisions.
type seen struct{ n int }

func (s *seen) Observe(context.Context, ratelimit.Decision) { s.n++ }

// TestObserverSeesDenialsWithoutAStoreCall proves that an observer also gets the denials that a
// store makes without a call.
func TestObserverSeesDenialsWithoutAStoreCall(t *testing.T) {
	store, o := newDenyingStore(t), new(seen)
	store.denies = func(ratelimit.Ask) bool { return true }
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(5)}, ratelimit.WithStore(store), ratelimit.WithName("n"),
		ratelimit.WithObserver(o))
	l.Allow("c", "/e")
	_, err := l.Check(t.Context(), ratelimit.Request{Client: "c"})
	require.NoError(t, err)
	require.Equal(t, 2, o.n)
	require.Empty(t, store.seen, "the store decides, and the observer hears of it")
}

// TestDecisionTimeIsAfterResolve proves that a slow Resolve does not make the instant of a decision
// earlier, with and without an observer.
func TestDecisionTimeIsAfterResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := ratelimit.Rule{Rate: ratelimit.PerSecond(1), Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
			advanceMachine(time.Second)
			return ratelimit.Rate{}, false
		}}
		l := newRules(t, nil, &rule, ratelimit.WithObserver(new(seen)))
		for range 3 {
			require.True(t, l.Allow("c", "/e").Allowed)
		}
	})
}

// TestObserverGetsTheContext proves that an observer gets the caller's context, the tier and the
// rate of the decision, and the hash of the key.
func TestObserverGetsTheContext(t *testing.T) {
	var ctxs []context.Context
	var told []ratelimit.Decision
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	o := ctxObserver(func(ctx context.Context, d ratelimit.Decision) { ctxs, told = append(ctxs, ctx), append(told, d) })
	paid, special := ratelimit.PerMinute(9), ratelimit.PerMinute(7)
	rule := ratelimit.Rule{Rate: ratelimit.PerMinute(1), Tiers: map[string]ratelimit.Rate{"paid": paid}}
	resolved := rule
	resolved.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) { return special, req.Client == "special" }
	type name struct{}
	ctx := context.WithValue(t.Context(), name{}, 1)
	for _, l := range []*ratelimit.RateLimiter{
		newRules(t, nil, &rule, ratelimit.WithClock(clock), ratelimit.WithObserver(o)),
		newRules(t, nil, &resolved, ratelimit.WithClock(clock), ratelimit.WithObserver(o)),
		newRules(t, nil, &resolved, ratelimit.WithClock(clock), ratelimit.WithObserver(o), ratelimit.WithStore(store), ratelimit.WithName("n")),
	} {
		ctxs, told = nil, nil
		clock.Advance(sec)
		l.Allow("c", "/")
		checked(l.Check(ctx, ratelimit.Request{Client: "c", Tier: "paid"}))
		checked(l.Check(ctx, ratelimit.Request{Client: "d", Tier: "none"}))
		checked(l.Check(nil, ratelimit.Request{Client: "special", Tier: "paid"})) //nolint:staticcheck // nil is allowed
		require.Equal(t, []context.Context{context.Background(), ctx, ctx, context.Background()}, ctxs)
		require.Equal(t, []string{"", "paid", ""}, []string{told[0].Tier, told[1].Tier, told[2].Tier})
		require.Equal(t, []ratelimit.Rate{rule.Rate, paid, rule.Rate}, []ratelimit.Rate{told[0].Rate, told[1].Rate, told[2].Rate})
		if told[3].Tier == "" {
			require.Equal(t, special, told[3].Rate)
		} else {
			require.Equal(t, paid, told[3].Rate, "without Resolve")
		}
		for _, d := range told {
			require.Equal(t, clock.Now(), d.Time)
			require.Equal(t, ratelimit.AlgorithmTokenBucket, d.Algorithm)
			require.NotZero(t, d.Key)
		}
		require.Equal(t, told[0].Key, told[1].Key, "one client")
		require.NotEqual(t, told[0].Key, told[2].Key, "another client")
	}
}

// A ctxObserver is an Observer that is a function of a context and a Decision.
type ctxObserver func(ctx context.Context, d ratelimit.Decision)

func (f ctxObserver) Observe(ctx context.Context, d ratelimit.Decision) { f(ctx, d) }

// An endingStore is a MemoryStore whose Take fails once ended is set.
type endingStore struct {
	*ratelimit.MemoryStore
	ended bool
}

func (s *endingStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.ended {
		return nil, errFault
	}
	return s.MemoryStore.Take(ctx, asks)
}

// TestReasons denies requests for each reason. Check, CheckAll, Peek, Explain, Reserve and the observer say the same reason, in memory
// and over a store.
func TestReasons(t *testing.T) {
	one := ratelimit.PerHour(1)
	for name, limit := range map[string]ratelimit.Rule{
		"one rule": {Name: "r", Endpoint: "/limit", Rate: one},
		"a tier":   {Name: "r", Endpoint: "/limit", Rate: ratelimit.PerHour(9), Tiers: map[string]ratelimit.Rate{"free": one}},
	} {
		rules := []ratelimit.Rule{
			limit,
			{Name: "second", Endpoint: "/two", Rate: ratelimit.PerHour(9)},
			{Name: "first", Endpoint: "/two", Rate: one},
			{Name: "running", Endpoint: "/busy", Rate: one, Algorithm: ratelimit.AlgorithmInFlight},
			{Name: "struck", Endpoint: "/penalty", Rate: one, Penalty: ratelimit.Penalty{After: 1, Within: time.Minute, For: time.Hour}},
			{Name: "own", Endpoint: "/custom", Limiter: answering(ratelimit.Result{Limit: 1, RetryAfter: sec}, nil)},
		}
		for _, stored := range []bool{false, true} {
			clock := ratelimit.NewFakeClock(epoch)
			memory, err := newMemory(clock)
			require.NoError(t, err)
			store := &endingStore{MemoryStore: memory}
			told := new(record)
			opts := []ratelimit.Option{
				ratelimit.WithClock(clock), ratelimit.WithObserver(told), ratelimit.WithFailurePolicy(ratelimit.FailClosed),
			}
			if stored {
				opts = append(opts, ratelimit.WithStore(store))
			}
			l := newRules(t, rules, nil, opts...)
			denied := func(client, endpoint string, reason ratelimit.Reason) {
				t.Helper()
				req := ratelimit.Request{Client: client, Endpoint: endpoint, Tier: "free"}
				answers := make([]ratelimit.Result, 0, 4)
				if endpoint != "/busy" { // only Reserve asks a rule that limits running requests
					res, _ := l.Check(t.Context(), req)
					peeked, _ := l.Peek(t.Context(), req)
					explained, _ := l.Explain(t.Context(), req)
					all, _, _ := l.CheckAll(t.Context(), req, nil)
					answers = append(answers, res, peeked, explained.Result, all)
				}
				if endpoint != "/custom" {
					held, _ := l.Reserve(t.Context(), req, time.Hour)
					answers = append(answers, held.Result())
				}
				for i, res := range answers {
					require.False(t, res.Allowed, "%s, store: %v, %s, answer %d", name, stored, endpoint, i)
					require.Equal(t, reason, res.Reason, "%s, store: %v, %s, answer %d", name, stored, endpoint, i)
				}
				require.NotEmpty(t, told.seen)
				for _, d := range told.seen {
					require.Equal(t, reason, d.Result.Reason, "%s, store: %v, %s, told", name, stored, endpoint)
				}
				told.seen = nil
			}
			for _, endpoint := range []string{"/limit", "/two", "/busy", "/penalty"} {
				held, err := l.Reserve(t.Context(), ratelimit.Request{Client: "c", Endpoint: endpoint, Tier: "free"}, time.Hour)
				require.NoError(t, err)
				require.True(t, held.Result().Allowed)
				require.Empty(t, held.Result().Reason)
			}
			require.False(t, check(t, l, ratelimit.Request{Client: "c", Endpoint: "/penalty"}).Allowed, "a strike, which begins a block")
			told.seen = nil
			denied("c", "/limit", ratelimit.ReasonLimit)
			denied("c", "/two", ratelimit.ReasonLimit)
			denied("c", "/custom", ratelimit.ReasonLimit)
			denied("c", "/busy", ratelimit.ReasonBusy)
			denied("c", "/penalty", ratelimit.ReasonPenalty)
			require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "b", Effect: ratelimit.EffectBlock, Until: epoch.Add(time.Hour)}))
			denied("b", "/limit", ratelimit.ReasonOverride)
			if stored {
				store.ended = true
				denied("d", "/limit", ratelimit.ReasonPolicy)
				denied("d", "/two", ratelimit.ReasonPolicy)
			}
		}
	}
}
