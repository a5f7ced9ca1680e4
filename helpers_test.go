package ratelimit_test

import (
	"context"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// epoch is when the tests' clocks start: at an edge of every window.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	ms     = time.Millisecond
	sec    = time.Second
	minute = time.Minute
)

// A limiter has the methods that the five limiters of the package share.
type limiter interface {
	ratelimit.Limiter
	Peek(key string) ratelimit.Result
	Wait(ctx context.Context, key string, n int) (ratelimit.Result, error)
	Reset(key string) error
	SetRate(r ratelimit.Rate) error
	Rate() ratelimit.Rate
	Len() int
}

// An algorithm is the name of one of the five, and its constructor.
type algorithm struct {
	name string
	make func(r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error)
}

func tokenBucket(r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error) {
	return orNil(ratelimit.NewTokenBucket(r, opts...))
}

func fixedWindow(r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error) {
	return orNil(ratelimit.NewFixedWindow(r, opts...))
}

func slidingLog(r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error) {
	return orNil(ratelimit.NewSlidingWindowLog(r, opts...))
}

func slidingCounter(r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error) {
	return orNil(ratelimit.NewSlidingWindowCounter(r, opts...))
}

func leakyBucket(r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error) {
	return orNil(ratelimit.NewLeakyBucket(r, opts...))
}

// orNil returns a nil limiter if err is not nil: a nil *L in a limiter would not be nil.
func orNil[L limiter](l L, err error) (limiter, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

var algorithms = []algorithm{
	{"token bucket", tokenBucket},
	{"fixed window", fixedWindow},
	{"sliding window log", slidingLog},
	{"sliding window counter", slidingCounter},
	{"leaky bucket", leakyBucket},
}

// start makes a limiter of the rate r, which must be valid.
func (a algorithm) start(tb testing.TB, r ratelimit.Rate, opts ...ratelimit.Option) limiter {
	tb.Helper()
	l, err := a.make(r, opts...)
	require.NoError(tb, err)
	return l
}

// eachAlgorithm runs test as a subtest for each of the five.
func eachAlgorithm(t *testing.T, test func(t *testing.T, a algorithm)) {
	t.Helper()
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) { test(t, a) })
	}
}

// eachInBubble runs test in a synctest bubble for each of the five.
func eachInBubble(t *testing.T, test func(t *testing.T, a algorithm)) {
	t.Helper()
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) { test(t, a) })
	})
}

// eachOnFakeClock runs test in a synctest bubble for each of the five, with a limiter of the rate r
// on a FakeClock.
func eachOnFakeClock(t *testing.T, r ratelimit.Rate, test func(t *testing.T, a algorithm, l limiter, clock *ratelimit.FakeClock)) {
	t.Helper()
	eachInBubble(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		test(t, a, a.start(t, r, ratelimit.WithClock(clock)), clock)
	})
}

// startLeaky makes a leaky bucket of 1 a second with this burst.
func startLeaky(t *testing.T, burst int, opts ...ratelimit.Option) limiter {
	t.Helper()
	return algorithm{"leaky bucket", leakyBucket}.start(t, ratelimit.PerSecond(1).WithBurst(burst), opts...)
}

// inRules returns the algorithm by its name in rules.
func (a algorithm) inRules() ratelimit.Algorithm {
	return map[string]ratelimit.Algorithm{
		"token bucket":           ratelimit.AlgorithmTokenBucket,
		"fixed window":           ratelimit.AlgorithmFixedWindow,
		"sliding window log":     ratelimit.AlgorithmSlidingWindowLog,
		"sliding window counter": ratelimit.AlgorithmSlidingWindowCounter,
		"leaky bucket":           ratelimit.AlgorithmLeakyBucket,
	}[a.name]
}

// yes returns the Result of a granted request: remaining units are left, and the key has its full
// limit again after reset.
func yes(limit, remaining int, reset time.Duration) ratelimit.Result {
	return ratelimit.Result{Allowed: true, Limit: limit, Remaining: remaining, ResetAfter: reset}
}

// no returns the Result of a denied request that may be tried again after retry.
func no(limit, remaining int, retry, reset time.Duration) ratelimit.Result {
	return ratelimit.Result{Limit: limit, Remaining: remaining, RetryAfter: retry, ResetAfter: reset, Reason: ratelimit.ReasonLimit}
}

// delayed returns r with a Delay of d.
func delayed(d time.Duration, r ratelimit.Result) ratelimit.Result {
	r.Delay = d
	return r
}

// peeked returns the Result of looking at a key that has remaining units left.
func peeked(limit, remaining int, reset time.Duration) ratelimit.Result {
	return yes(limit, remaining, reset)
}

// degraded returns res as a failure policy answers it.
func degraded(res ratelimit.Result) ratelimit.Result {
	if res.Degraded = true; !res.Allowed {
		res.Reason = ratelimit.ReasonPolicy
	}
	return res
}

// by returns res with rule as the binding rule.
func by(rule string, res ratelimit.Result) ratelimit.Result {
	res.Rule = rule
	return res
}

// unlimited is the Result of a request that no rule limits.
var unlimited = ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}

// take calls Take for n units, which must not return an error.
func take(t *testing.T, l ratelimit.Limiter, key string, n int) ratelimit.Result {
	t.Helper()
	res, err := l.Take(t.Context(), key, n)
	require.NoError(t, err)
	return res
}

// spend takes n units one by one. Each must be granted.
func spend(t *testing.T, l ratelimit.Limiter, key string, n int) {
	t.Helper()
	for i := range n {
		require.True(t, l.Allow(key).Allowed, "unit %d of %d", i+1, n)
	}
}

// denied asks for one unit, which must be denied.
func denied(t *testing.T, l ratelimit.Limiter, key string) {
	t.Helper()
	require.False(t, l.Allow(key).Allowed)
}

// canceled returns a context that has been cancelled.
func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A session makes calls for one key of a limiter, and compares each whole answer.
type session struct {
	t     *testing.T
	clock *ratelimit.FakeClock
	l     limiter
}

// begin starts a session at the epoch.
func begin(t *testing.T, construct func(ratelimit.Rate, ...ratelimit.Option) (limiter, error), r ratelimit.Rate) *session {
	t.Helper()
	clock := ratelimit.NewFakeClock(epoch)
	l, err := construct(r, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return &session{t, clock, l}
}

// at sets the clock to d after the epoch.
func (s *session) at(d time.Duration) *session {
	s.clock.Set(epoch.Add(d))
	return s
}

// take asks for n units and compares the answer with want. why says what the call proves.
func (s *session) take(n int, want ratelimit.Result, why string) *session {
	s.t.Helper()
	got, err := s.l.Take(s.t.Context(), "key", n)
	require.NoError(s.t, err, why)
	require.Equal(s.t, want, got, why)
	return s
}

// look asks for 0 units, which takes nothing, and compares the answer with want.
func (s *session) look(want ratelimit.Result, why string) *session {
	s.t.Helper()
	return s.take(0, want, why)
}

// set changes the rate of the limiter.
func (s *session) set(r ratelimit.Rate) *session {
	s.t.Helper()
	require.NoError(s.t, s.l.SetRate(r))
	require.Equal(s.t, r, s.l.Rate())
	return s
}

// advanceMachine waits until d has passed on the machine's clock. In a synctest bubble, that takes
// no real time.
func advanceMachine(d time.Duration) { <-time.After(d) }

// newRules makes a RateLimiter of rules that must be valid.
func newRules(t testing.TB, rules []ratelimit.Rule, defaultRule *ratelimit.Rule, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	t.Helper()
	opts = append([]ratelimit.Option{ratelimit.WithName("test")}, opts...) // which limiters in a store need
	l, err := ratelimit.New(rules, defaultRule, opts...)
	require.NoError(t, err)
	return l
}

// rules makes a RateLimiter on a FakeClock, and returns both.
func rules(t *testing.T, rs []ratelimit.Rule, defaultRule *ratelimit.Rule) (*ratelimit.RateLimiter, *ratelimit.FakeClock) {
	t.Helper()
	clock := ratelimit.NewFakeClock(epoch)
	l, err := ratelimit.New(rs, defaultRule, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return l, clock
}

// check calls l.Check, which must not return an error.
func check(t *testing.T, l *ratelimit.RateLimiter, req ratelimit.Request) ratelimit.Result {
	t.Helper()
	res, err := l.Check(t.Context(), req)
	require.NoError(t, err)
	return res
}

// peek calls l.Peek, which must not return an error.
func peek(t *testing.T, l *ratelimit.RateLimiter, req ratelimit.Request) ratelimit.Result {
	t.Helper()
	res, err := l.Peek(t.Context(), req)
	require.NoError(t, err)
	return res
}

// peekAt returns what the rule has left for the client.
func peekAt(t *testing.T, l *ratelimit.RateLimiter, rule, client string) ratelimit.Result {
	t.Helper()
	res, err := l.Peek(t.Context(), ratelimit.Request{Client: client, Rules: []string{rule}})
	require.NoError(t, err)
	return res
}

// checked returns res. It panics if err is not nil.
func checked(res ratelimit.Result, err error) ratelimit.Result {
	if err != nil {
		panic(err)
	}
	return res
}

// observing is an Observer that is a function of a Decision.
type observing func(d ratelimit.Decision)

func (f observing) Observe(_ context.Context, d ratelimit.Decision) { f(d) }

// A custom is a custom limiter that is a function.
type custom func(ctx context.Context, key string, n int) (ratelimit.Result, error)

func (f custom) Allow(string) ratelimit.Result { panic("a rule has no use for Allow") }

func (f custom) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	return f(ctx, key, n)
}

// answering returns a custom limiter that always returns res and err.
func answering(res ratelimit.Result, err error) custom {
	return func(context.Context, string, int) (ratelimit.Result, error) { return res, err }
}

// A waiter is a call of Wait that runs in its own goroutine.
type waiter struct {
	done chan struct{} // closed once the call has returned
	res  ratelimit.Result
	err  error
}

// startWait calls Wait in a new goroutine.
func startWait(ctx context.Context, l ratelimit.Limiter, key string, n int) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.res, w.err = ratelimit.Wait(ctx, l, key, n)
	}()
	return w
}

// returned reports whether the call has returned.
func (w *waiter) returned() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// served waits until the call has returned, and fails the test if it was not granted.
func (w *waiter) served(t *testing.T) ratelimit.Result {
	t.Helper()
	<-w.done
	require.NoError(t, w.err)
	require.True(t, w.res.Allowed)
	return w.res
}

// waiting returns how many calls of Wait wait for l, over all keys.
func waiting(l limiter) int { return l.(interface{ Waiting() int }).Waiting() }

// raceEnabled reports whether the race detector is on: with it, calls allocate and take longer.
var raceEnabled = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

// must returns v. It panics if err is not nil.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
