package verify

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// A turn is what a scriptedStore does when it is called.
type turn struct {
	results []ratelimit.Result
	err     error
	cancels bool // whether the caller's context ends during the call
	left    bool // whether the error is a laterError
	panics  bool
}

// A scriptedStore is a store that does what it is told to, and keeps what it was asked.
type scriptedStore struct {
	turn
	cancel func()
	asked  []ratelimit.Ask
	later  []func(error) // of the laterErrors that it has returned
}

func (s *scriptedStore) Part(a ratelimit.Ask) int { return len(a.Key) }

func (s *scriptedStore) Take(_ context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.asked = append(s.asked, asks...)
	if s.cancels {
		s.cancel()
	}
	if s.panics {
		panic(errDead)
	}
	if s.left {
		return nil, laterError{s}
	}
	return s.results, s.err
}

func (s *scriptedStore) Reset(context.Context, []ratelimit.Ask) error { return nil }

// A laterError is that of a caller who has left: how the call ends is said later.
type laterError struct{ store *scriptedStore }

func (laterError) Error() string             { return context.Canceled.Error() }
func (laterError) Unwrap() error             { return context.Canceled }
func (e laterError) Later(f func(err error)) { e.store.later = append(e.store.later, f) }

// An answeredError says that the server has answered, and a sharedError that other callers have
// the call in common.
type (
	answeredError struct{ error }
	sharedError   struct{ error }
)

func (answeredError) Answered() bool { return true }
func (sharedError) Call() uint64     { return 7 }

// A storedRule is a RateLimiter of one rule with a scriptedStore.
type storedRule struct {
	limiter *ratelimit.RateLimiter
	store   *scriptedStore
	clock   *ratelimit.FakeClock
	told    []ratelimit.Decision
}

func (s *storedRule) Observe(_ context.Context, d ratelimit.Decision) {
	d.Took = 0
	s.told = append(s.told, d)
}

func newStoredRule(t require.TestingT, rule ratelimit.Rule, policy ratelimit.FailurePolicy, observed bool) *storedRule {
	s := &storedRule{store: new(scriptedStore), clock: ratelimit.NewFakeClock(time.Unix(1e9, 0))}
	opts := []ratelimit.Option{ratelimit.WithStore(s.store), ratelimit.WithName("n"), ratelimit.WithClock(s.clock), ratelimit.WithFailurePolicy(policy)}
	if observed {
		opts = append(opts, ratelimit.WithObserver(s))
	}
	var err error
	s.limiter, err = ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
	require.NoError(t, err)
	return s
}

// decided is all that can be seen of a decision.
type decided struct {
	result ratelimit.Result
	err    string
	kinds  [3]bool // what the error matches
	panic  any
	asked  []ratelimit.Ask
	told   []ratelimit.Decision
	rules  []ratelimit.RuleStats
	store  ratelimit.StoreStats
	reason string // the LastError of store
}

// decide makes a decision by ask, while the store does do, and returns what can be seen of it. A
// call that the caller has left then ends with ended.
func (s *storedRule) decide(do turn, ended error, ask func(context.Context, *ratelimit.RateLimiter) (ratelimit.Result, error)) (seen decided) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.store.turn, s.store.cancel, s.store.asked, s.store.later, s.told = do, cancel, nil, nil, nil
	func() {
		defer func() { seen.panic = recover() }()
		var err error
		seen.result, err = ask(ctx, s.limiter)
		if err != nil {
			seen.err = err.Error()
			seen.kinds = [3]bool{errors.Is(err, ratelimit.ErrStore), errors.Is(err, errDead), errors.Is(err, context.Canceled)}
		}
	}()
	for _, f := range s.store.later {
		f(ended)
	}
	seen.asked, seen.told = s.store.asked, s.told
	for i := range seen.told {
		if err := seen.told[i].Err; err != nil {
			seen.told[i].Err = errors.New(err.Error())
		}
	}
	seen.rules, seen.store = s.limiter.Stats(), s.limiter.StoreStats()
	if seen.store.LastError != nil {
		seen.reason, seen.store.LastError = seen.store.LastError.Error(), nil
	}
	return seen
}

// TestPropertiesOfOneStoredRule compares Check, which may answer without a call of the store, with
// CheckAll, which never does: whatever the store does, nothing that can be seen differs.
func TestPropertiesOfOneStoredRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := []ratelimit.Rate{ratelimit.PerSecond(10), ratelimit.PerMinute(3), {Requests: 7, Per: 3 * time.Second}}
		rule := ratelimit.Rule{
			Name: "r", Endpoint: "/e", Rate: rapid.SampledFrom(rates).Draw(t, "rate"),
			Key:       rapid.SampledFrom([]ratelimit.KeyType{ratelimit.KeyUser, ratelimit.KeyUserEndpoint, ratelimit.KeyGlobal}).Draw(t, "key"),
			Algorithm: rapid.SampledFrom([]ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket}).Draw(t, "algorithm"),
		}
		if rapid.Bool().Draw(t, "tiers") {
			rule.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerSecond(100)}
		}
		policy := rapid.SampledFrom([]ratelimit.FailurePolicy{{}, ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.FailLocal(3)}).Draw(t, "policy")
		observed := rapid.Bool().Draw(t, "observed")
		short, general := newStoredRule(t, rule, policy, observed), newStoredRule(t, rule, policy, observed)

		t.Repeat(map[string]func(*rapid.T){"decide": func(t *rapid.T) {
			// Pauses of breakers are shortened at random by up to a half: each is surely not over, or it surely is.
			step := rapid.SampledFrom([]time.Duration{0, time.Microsecond, time.Second}).Draw(t, "step")
			short.clock.Advance(step)
			general.clock.Advance(step)
			req := ratelimit.Request{
				Client: rapid.SampledFrom([]string{"a", "bb"}).Draw(t, "client"), Endpoint: "/e",
				Tier: rapid.SampledFrom([]string{"", "paid", "free"}).Draw(t, "tier"),
				Cost: rapid.IntRange(0, 3).Draw(t, "cost"),
			}
			do := turn{
				err:     rapid.SampledFrom([]error{nil, nil, nil, errDead, errDead, answeredError{errDead}, sharedError{errDead}}).Draw(t, "error"),
				panics:  rapid.IntRange(0, 19).Draw(t, "panics") == 0,
				cancels: rapid.IntRange(0, 4).Draw(t, "cancels") == 0,
			}
			do.left = do.cancels && rapid.Bool().Draw(t, "left")
			if count := rapid.SampledFrom([]int{1, 1, 1, 1, 0, 2}).Draw(t, "results"); do.err == nil {
				res := ratelimit.Result{
					Allowed: rapid.Bool().Draw(t, "allowed"), Limit: rapid.IntRange(-1, 10).Draw(t, "limit"), Remaining: rapid.IntRange(-2, 10).Draw(t, "remaining"),
					RetryAfter: rapid.SampledFrom([]time.Duration{0, 1, time.Second, ratelimit.Never}).Draw(t, "retry"),
					ResetAfter: time.Second, Delay: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "delay"),
					Rule: "the store's own", Degraded: rapid.Bool().Draw(t, "degraded"),
				}
				do.results = slices.Repeat([]ratelimit.Result{res}, count)
			}
			ended := rapid.SampledFrom([]error{nil, errDead, context.Canceled}).Draw(t, "ended")

			want := general.decide(do, ended, func(ctx context.Context, l *ratelimit.RateLimiter) (ratelimit.Result, error) {
				res, _, err := l.CheckAll(ctx, req, nil)
				return res, err
			})
			got := short.decide(do, ended, func(ctx context.Context, l *ratelimit.RateLimiter) (ratelimit.Result, error) {
				return l.Check(ctx, req)
			})
			require.Equal(t, want, got)
		}})
	})
}

// TestOneStoredRule proves what one rule asks of its store, what it answers and what it counts,
// whatever the store does.
func TestOneStoredRule(t *testing.T) {
	own, paid := ratelimit.PerMinute(10), ratelimit.PerSecond(100)
	granted := turn{results: []ratelimit.Result{{Allowed: true, Limit: 10, Remaining: 2, ResetAfter: time.Minute}}}
	denied := turn{results: []ratelimit.Result{{Limit: 10, RetryAfter: time.Second, ResetAfter: time.Minute}}}
	down, left := turn{err: errDead}, turn{err: errDead, cancels: true}
	open := ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1, Degraded: true, Rule: "r"}
	closed := ratelimit.Result{
		Limit: 10, RetryAfter: time.Second, ResetAfter: time.Second, Degraded: true, Rule: "r", Reason: ratelimit.ReasonPolicy,
	}
	named := func(do turn) ratelimit.Result {
		res := do.results[0]
		if res.Rule = "r"; !res.Allowed {
			res.Reason = ratelimit.ReasonLimit // the rule says so, though the store says nothing
		}
		return res
	}
	type stats = ratelimit.RuleStats
	for _, row := range []struct {
		policy ratelimit.FailurePolicy
		do     turn
		tier   string
		rate   ratelimit.Rate
		want   ratelimit.Result
		err    error
		stats  stats
		why    string
	}{
		{ratelimit.FailOpen, granted, "", own, named(granted), nil, stats{Allowed: 1}, "the store grants"},
		{ratelimit.FailOpen, granted, "paid", paid, named(granted), nil, stats{Allowed: 1}, "a tier has its own rate"},
		{ratelimit.FailOpen, granted, "free", own, named(granted), nil, stats{Allowed: 1, UnknownTier: 1}, "an unknown tier has that of the rule"},
		{ratelimit.FailOpen, denied, "", own, named(denied), nil, stats{Denied: 1}, "the store denies"},
		{ratelimit.FailOpen, down, "", own, open, ratelimit.ErrStore, stats{Allowed: 1, Degraded: 1, Errors: 1}, "FailOpen answers"},
		{ratelimit.FailClosed, down, "", own, closed, ratelimit.ErrStore, stats{Denied: 1, Degraded: 1, Errors: 1}, "FailClosed answers"},
		{ratelimit.FailClosed, left, "", own, ratelimit.Result{}, context.Canceled, stats{}, "the caller has left: nothing was decided"},
	} {
		rule := ratelimit.Rule{Name: "r", Endpoint: "/e", Rate: own, Tiers: map[string]ratelimit.Rate{"paid": paid}}
		s := newStoredRule(t, rule, row.policy, false)
		seen := s.decide(row.do, errDead, func(ctx context.Context, l *ratelimit.RateLimiter) (ratelimit.Result, error) {
			res, err := l.Check(ctx, ratelimit.Request{Client: "a", Endpoint: "/e", Tier: row.tier, Cost: 3})
			require.ErrorIs(t, err, row.err, row.why)
			return res, err
		})
		require.Equal(t, row.want, seen.result, row.why)
		ask := ratelimit.Ask{Rule: "n:r", Key: "a", Client: "a", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: row.rate, N: 3}
		require.Equal(t, []ratelimit.Ask{ask}, seen.asked, row.why)
		row.stats.Rule = "r"
		require.Equal(t, []stats{row.stats}, seen.rules, row.why)
	}

	s := newStoredRule(t, ratelimit.Rule{Name: "r", Endpoint: "/e", Rate: own}, ratelimit.FailLocal(1), false)
	allow := func(_ context.Context, l *ratelimit.RateLimiter) (ratelimit.Result, error) {
		return l.Allow("a", "/e"), nil
	}
	require.True(t, s.decide(granted, nil, allow).result.Allowed)
	for _, want := range []bool{true, true, false} {
		require.Equal(t, want, s.decide(down, nil, allow).result.Allowed, "the store has left 2 units")
	}
	require.Equal(t, []stats{{Rule: "r", Allowed: 3, Denied: 1, Degraded: 3, Errors: 3, LiveKeys: 1}}, s.limiter.Stats())
}

// TestReasonBehindAnOpenBreaker proves that a denial by FailLocal names the policy, also if no call of the store is tried any more.
func TestReasonBehindAnOpenBreaker(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(1)}}, nil, ratelimit.WithStore(deadStore{}), ratelimit.WithName("n"))
	require.NoError(t, err)
	require.True(t, l.Allow("a", "/").Allowed)
	for range 100 {
		res := l.Allow("a", "/")
		require.False(t, res.Allowed)
		require.Equal(t, ratelimit.ReasonPolicy, res.Reason)
	}
	require.Equal(t, 1, l.StoreStats().Open)
}

// TestReasonBehindAWaiter asks for a key whose block a caller of Wait waits for: the denial is still by the penalty.
func TestReasonBehindAWaiter(t *testing.T) {
	for _, stored := range []bool{false, true} {
		clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
		opts := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithName("n")}
		if stored {
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			opts = append(opts, ratelimit.WithStore(store))
		}
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "r", Endpoint: "/", Rate: ratelimit.PerHour(1),
			Penalty: ratelimit.Penalty{After: 1, Within: time.Minute, For: 3 * time.Hour}}}, nil, opts...)
		require.NoError(t, err)
		require.True(t, l.Allow("c", "/").Allowed)
		require.False(t, l.Allow("c", "/").Allowed, "a strike, which begins a block")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := l.Wait(ctx, ratelimit.Request{Client: "c", Endpoint: "/"})
			done <- err
		}()
		clock.BlockUntil(1)
		require.Equal(t, ratelimit.ReasonPenalty, l.Allow("c", "/").Reason, "store: %v", stored)
		res, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/"})
		require.NoError(t, err)
		require.Equal(t, ratelimit.ReasonPenalty, res.Reason, "store: %v, Peek", stored)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	}
}

// A knowingStore is a ledgerStore that knows a denial while it is told to.
type knowingStore struct {
	*ledgerStore
	knows bool
	known []ratelimit.Ask
}

func (s *knowingStore) Denied(a ratelimit.Ask) (ratelimit.Result, bool) {
	s.known = append(s.known, a)
	return ratelimit.Result{Limit: 1, RetryAfter: time.Hour, ResetAfter: time.Hour}, s.knows
}

// TestKnownDenials proves when a store is asked for a denial that it knows, and that this is counted,
// observed, and not given to a request behind others that wait.
func TestKnownDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := ratelimit.Rule{Name: "r", Endpoint: "/", Rate: ratelimit.PerMinute(1)}
		made := func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, *knowingStore) {
			clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
			store := &knowingStore{ledgerStore: newLedgerStore(t, clock), knows: true}
			opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("n"), ratelimit.WithClock(clock))
			l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
			require.NoError(t, err)
			return l, store
		}
		l, store := made()
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Cost: 3})
		require.NoError(t, err)
		require.Equal(t, ratelimit.Result{Limit: 1, RetryAfter: time.Hour, ResetAfter: time.Hour, Rule: "r", Reason: ratelimit.ReasonLimit}, res)
		require.Empty(t, store.taken)
		require.Equal(t, []ratelimit.Ask{{
			Rule: "n:r", Key: "a", Client: "a", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(1), N: 3,
		}}, store.known)
		require.Equal(t, []ratelimit.RuleStats{{Rule: "r", Denied: 1}}, l.Stats())

		store.knows = false
		require.True(t, l.Allow("a", "/").Allowed, "what it does not know, it decides")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := l.Wait(ctx, ratelimit.Request{Client: "a", Endpoint: "/"})
			done <- err
		}()
		synctest.Wait()
		store.knows = true
		require.Equal(t, 2*time.Minute, l.Allow("a", "/").RetryAfter, "behind the caller that waits")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)

		var told []ratelimit.Decision
		l, store = made(ratelimit.WithObserver(observing(func(d ratelimit.Decision) { told = append(told, d) })))
		require.True(t, l.Allow("a", "/").Allowed)
		require.Empty(t, store.known, "an observer sees each answer of the store")
		require.Len(t, told, 1)
		rule.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(9)}
		l, store = made()
		require.True(t, l.Allow("a", "/").Allowed)
		require.Empty(t, store.known, "a rule with tiers has several rates")
	})
}
