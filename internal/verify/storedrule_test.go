package verify

import (
	"context"
	"errors"
	"slices"
	"testing"
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

func newStoredRule(t *rapid.T, rule ratelimit.Rule, policy ratelimit.FailurePolicy, observed bool) *storedRule {
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

// TestPropertiesOfOneStoredRule compares the short way of one rule with a store, which Allow and
// Check take, with the general one, which CheckAll takes: whatever the store does, nothing that
// can be seen differs.
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
