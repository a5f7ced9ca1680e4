package ratelimit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// anAsk is the name of a method that decides or looks, and a function that calls it.
type anAsk struct {
	name string
	do   func(l *ratelimit.RateLimiter) ratelimit.Result
}

// asksOf returns the methods by which a caller asks for one unit.
func asksOf(ctx context.Context) []anAsk {
	return []anAsk{
		{"Allow", func(l *ratelimit.RateLimiter) ratelimit.Result { return l.Allow("c", "/e") }},
		{"Check", func(l *ratelimit.RateLimiter) ratelimit.Result {
			res, _ := l.Check(ctx, ratelimit.Request{Client: "c", Endpoint: "/e"})
			return res
		}},
		{"Peek", func(l *ratelimit.RateLimiter) ratelimit.Result {
			res, _ := l.Peek(ctx, ratelimit.Request{Client: "c", Endpoint: "/e"})
			return res
		}},
	}
}

// TestBreakerOpensAndProbes proves that the breaker opens after five failures in a row, and lets
// one request probe the store after each pause.
func TestBreakerOpensAndProbes(t *testing.T) {
	for _, ask := range asksOf(t.Context()) {
		store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1000)}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
		ten := func(want int, why string) {
			t.Helper()
			for range 10 {
				res := ask.do(l)
				require.True(t, res.Allowed)
				require.Equal(t, 1000, res.Limit)
			}
			require.Equal(t, want, store.called(), "%s: %s", ask.name, why)
		}
		store.do(errsBefore, errsAfter, miscounts, errsBefore)
		ten(10, "an answer after four failures: the store is asked on")
		store.from(errsBefore)
		ten(5, "after five failures in a row the store is left alone")
		for _, pause := range []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 500 * ms, 500 * ms} {
			store.clock.Advance(pause / 2)
			ten(0, "a pause lasts at least half of its length")
			store.clock.Advance(pause - pause/2)
			ten(1, "one probe when it is over")
		}
		store.from(sound)
		ten(0, "no probe has found out yet that the store is back")
		store.clock.Advance(500 * ms)
		require.False(t, ask.do(l).Degraded, "the probe is answered")
		ten(11, "from then on every request asks the store")
	}
}

// TestDecisionsDoNotWaitForAProbe proves that decisions take no time while a probe hangs, and that
// there is only one probe.
func TestDecisionsDoNotWaitForAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ask := range asksOf(t.Context()) {
			store := newFaultyStore(t, nil)
			l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1000)}, ratelimit.WithStore(store))
			store.from(hangs)
			time.AfterFunc(minute, func() { close(store.release) })
			began := time.Now()
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() { ask.do(l) })
			}
			wg.Wait()
			require.Equal(t, minute, time.Since(began), "the store hangs for a minute")
			require.Equal(t, 5, store.called())

			advanceMachine(100 * ms)
			store.mu.Lock()
			store.release = make(chan struct{})
			store.mu.Unlock()
			wg.Go(func() { ask.do(l) })
			synctest.Wait()
			require.Equal(t, 1, store.called(), "the probe hangs")
			began = time.Now()
			for range 1000 {
				require.True(t, ask.do(l).Degraded)
			}
			advanceMachine(time.Hour)
			require.True(t, ask.do(l).Degraded, "%s: there is no second probe", ask.name)
			require.Equal(t, time.Hour, time.Since(began), "decisions took no time")
			require.Zero(t, store.called())
			close(store.release)
			wg.Wait()
			store.from(sound)
			advanceMachine(100 * ms)
			require.False(t, ask.do(l).Degraded, "%s: the store is back", ask.name)
		}
	}) // the bubble fails if a goroutine is left
}

// TestDeadStoreCostsNoTime measures in real time what TestDecisionsDoNotWaitForAProbe proves in a
// bubble: while a probe hangs, a decision takes less than 10 ms and does not call the store.
func TestDeadStoreCostsNoTime(t *testing.T) {
	const decisions = 1000
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1000)}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	store.from(errsBefore)
	for range 5 {
		l.Allow("c", "")
	}
	require.Equal(t, 5, store.called())
	store.from(hangs)
	store.clock.Advance(sec)
	probe := make(chan struct{})
	go func() {
		defer close(probe)
		l.Allow("c", "")
	}()
	for store.called() == 0 { // until the probe hangs
		<-time.After(ms)
	}
	began := time.Now()
	for range decisions {
		l.Allow("c", "")
		_, err := l.Check(t.Context(), ratelimit.Request{})
		assert.ErrorIs(t, err, ratelimit.ErrStore)
	}
	assert.Less(t, time.Since(began), 2*decisions*10*ms)
	assert.Zero(t, store.called(), "only the probe calls the store")
	close(store.release)
	<-probe
}

// TestAbandonedProbeAllowsAnother proves that another request may probe the store after the caller
// of a probe has given up.
func TestAbandonedProbeAllowsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore(t, nil)
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1000)}, ratelimit.WithStore(store))
		store.from(errsBefore)
		for range 5 {
			l.Allow("c", "")
		}
		advanceMachine(50 * ms)
		store.from(hangs)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), ms)
			res, err := l.Check(ctx, ratelimit.Request{})
			cancel()
			require.Equal(t, context.DeadlineExceeded, err)
			require.Equal(t, ratelimit.Result{}, res)
		}
		store.from(sound)
		res, err := l.Check(t.Context(), ratelimit.Request{})
		require.NoError(t, err, "the pause is over, and no probe has been answered: this request probes")
		require.False(t, res.Degraded)
	})
}

// TestProbeThatPanicsAllowsAnother proves that a probe that panics counts as a failed probe.
func TestProbeThatPanicsAllowsAnother(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1000)}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	store.from(errsBefore)
	for range 5 {
		l.Allow("c", "")
	}
	store.from(panics)
	store.clock.Advance(50 * ms)
	require.Panics(t, func() { l.Allow("c", "") })
	require.True(t, l.Allow("c", "").Degraded, "the probe has failed, so there is another pause")
	store.from(sound)
	store.clock.Advance(100 * ms)
	require.False(t, l.Allow("c", "").Degraded)
}

// TestStoreDownWhileTheClockStepsBack proves that a clock that steps back does not lengthen the
// pause of the breaker.
func TestStoreDownWhileTheClockStepsBack(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1000)}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	store.from(errsBefore)
	for range 5 {
		l.Allow("c", "")
	}
	store.from(sound)
	store.clock.Advance(-time.Hour)
	require.False(t, l.Allow("c", "").Degraded, "the pause ends although the clock went back by an hour")
}

// TestOneBreakerForAllRules proves that all rules in a store share its breaker.
func TestOneBreakerForAllRules(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, []ratelimit.Rule{
		{Endpoint: "/a", Rate: ratelimit.PerMinute(5)},
		{Endpoint: "/b", Rate: ratelimit.PerMinute(5), OnStoreError: ratelimit.FailClosed},
	}, nil, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	store.from(errsBefore)
	for range 5 {
		l.Allow("c", "/a")
	}
	require.Equal(t, by("/b", degraded(no(5, 0, sec, sec))), l.Allow("c", "/b"))
	require.Equal(t, 5, store.called(), "the store that does not answer /a does not answer /b")
	res, err := l.Check(t.Context(), ratelimit.Request{Endpoint: "/none"})
	require.NoError(t, err, "without a rule the store is not asked")
	require.False(t, res.Degraded)
}

// TestStorePartsFailSeparately proves that requests skip a dead part of a store, and still go to
// the other parts.
func TestStorePartsFailSeparately(t *testing.T) {
	for _, shift := range []int{0, 61, 62, 64, 6400, -64, -3} {
		store := newPartedStore(t)
		store.shift = shift
		l := store.limiter(t)
		store.die(1)
		for range 10 {
			require.False(t, l.Allow("0", "").Degraded)
			require.True(t, l.Allow("1", "").Degraded)
			require.False(t, l.Allow("2", "").Degraded)
		}
		require.Equal(t, [3]int{10, 5, 10}, store.called(), "the dead part is left alone")
		stats := l.StoreStats()
		require.ErrorIs(t, stats.LastError, ratelimit.ErrStore)
		require.ErrorContains(t, stats.LastError, "no answer of ")
		stats.LastError = nil
		failures := []ratelimit.StoreFailures{{Part: int(uint(1+shift) % 64), Class: "other", Calls: 5}}
		require.Equal(t, ratelimit.StoreStats{Parts: 3, Open: 1, Opened: 1, Failures: failures}, stats)
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "1"})
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.True(t, res.Degraded)
		require.ErrorIs(t, l.Reset(t.Context(), ratelimit.Request{Client: "1", Endpoint: ""}), ratelimit.ErrStore)
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "0", Endpoint: ""}))
		require.Equal(t, [3]int{1, 1, 0}, store.called(), "a Reset goes through an open breaker")
		require.Equal(t, 1, l.StoreStats().Open)

		store.die()
		store.clock.Advance(50 * ms)
		require.False(t, l.Allow("1", "").Degraded, "the part is back")
		stats = l.StoreStats()
		require.Zero(t, stats.Open)
		require.EqualValues(t, 1, stats.Opened)
	}
}

// TestRequestToADeadAndALivePart proves that failure policies answer a request that needs a dead
// and a live part, and that this does not count as a failure of the live part.
func TestRequestToADeadAndALivePart(t *testing.T) {
	store := newPartedStore(t)
	l := store.limiter(t)
	store.die(2)
	for range 20 {
		require.Equal(t, by("endpoint", degraded(no(1000, 0, sec, sec))), l.Allow("0", "2"), "each rule's own failure policy answers")
	}
	require.Equal(t, [3]int{5, 0, 5}, store.called())
	require.Equal(t, 1, l.StoreStats().Open)
	require.False(t, l.Allow("0", "").Degraded, "the live part is still asked")
	require.True(t, l.Allow("2", "").Degraded)

	store.die()
	store.clock.Advance(50 * ms)
	require.False(t, l.Allow("0", "2").Degraded)
	require.Zero(t, l.StoreStats().Open)
}

// TestErrorsThatNameNoPart proves that an error that names no part counts as a failure of all parts
// of the request, until a probe shows that one of them works.
func TestErrorsThatNameNoPart(t *testing.T) {
	store := newPartedStore(t)
	store.mute = true
	l := store.limiter(t)
	store.die(2)
	for range 10 {
		l.Allow("0", "2")
		l.Allow("1", "")
	}
	require.Equal(t, [3]int{5, 10, 5}, store.called())
	require.Equal(t, 2, l.StoreStats().Open, "both parts that were asked are blamed")
	require.True(t, l.Allow("0", "").Degraded)
	store.clock.Advance(50 * ms)
	require.False(t, l.Allow("0", "").Degraded, "a probe finds that one of them is alive")
	require.True(t, l.Allow("2", "").Degraded)
	require.Equal(t, 1, l.StoreStats().Open)
}

// TestProbeNeedsAllPartsOfARequest proves that a request to several parts uses up the probe of one
// part only if the breakers of the others allow the call too.
func TestProbeNeedsAllPartsOfARequest(t *testing.T) {
	store := newPartedStore(t)
	l := store.limiter(t)
	open := func(part string) {
		t.Helper()
		for range 5 {
			require.True(t, l.Allow(part, "").Degraded)
		}
	}
	store.die(0, 2)
	open("0")
	store.clock.Advance(50 * ms)
	open("2")
	store.die(2)
	for range 10 {
		require.True(t, l.Allow("0", "2").Degraded, "part 0 may be probed, but part 2 has to be left alone")
	}
	require.Equal(t, [3]int{5, 0, 5}, store.called())
	require.False(t, l.Allow("0", "").Degraded, "part 0 can still be probed")

	store.die(0, 2)
	open("0")
	store.clock.Advance(500 * ms)
	store.die(2)
	require.True(t, l.Allow("0", "2").Degraded, "both parts are probed, and part 2 fails")
	require.Equal(t, 2, l.StoreStats().Open, "that tells nothing of part 0")
	require.False(t, l.Allow("0", "").Degraded, "part 0 is probed again")
	store.die()
	store.clock.Advance(500 * ms)
	require.False(t, l.Allow("0", "2").Degraded)
	require.Zero(t, l.StoreStats().Open)
}

// TestPartsUnderConcurrency proves that no failure policy answers for a part that works, and that
// all parts are used again in the end, while many goroutines decide and one part dies and returns.
func TestPartsUnderConcurrency(t *testing.T) {
	store := newPartedStore(t)
	l := store.limiter(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				client := string(rune('0' + (g+i)%3))
				switch i % 4 {
				case 0:
					l.Allow(client, "2")
				case 1:
					_ = l.Reset(t.Context(), ratelimit.Request{Client: client, Endpoint: "2"})
				default:
					if res := l.Allow(client, ""); res.Degraded && client != "1" {
						t.Errorf("part %s is live", client)
					}
				}
				if g == 0 && i%100 == 0 {
					store.die([][]int{{1}, {}}[i/100%2]...)
				}
				store.clock.Advance(ms)
			}
		})
	}
	wg.Wait()
	store.die()
	store.clock.Advance(500 * ms)
	for part := range 3 {
		require.False(t, l.Allow(fmt.Sprint(part), "").Degraded, "part %d is back", part)
		require.False(t, l.Allow(fmt.Sprint(part), "2").Degraded)
	}
	stats := l.StoreStats()
	require.Zero(t, stats.Open)
	require.Positive(t, stats.Opened, "the part was left alone at least once")
	require.Equal(t, 3, stats.Parts)
	t.Logf("a part was left alone %d times", stats.Opened)
}

// TestLimiterOnAStoreNamesNoRule proves that the Results of a limiter in a store name no rule,
// while the store answers and while its breaker is open.
func TestLimiterOnAStoreNamesNoRule(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(1000), ratelimit.WithStore(store), ratelimit.WithName("l"),
		ratelimit.WithClock(store.clock))
	require.NoError(t, err)
	require.Empty(t, l.Allow("c").Rule)
	store.from(errsBefore)
	for i := range 10 {
		res := l.Allow("c")
		require.True(t, res.Degraded, i)
		require.Empty(t, res.Rule, i)
		res, err = l.Take(t.Context(), "c", 1)
		require.ErrorIs(t, err, ratelimit.ErrStore, i)
		require.Empty(t, res.Rule, i)
	}
}

// A spokenStore is a MemoryStore whose calls fail with err. Types of err tell the breaker more
// about the failure.
type spokenStore struct {
	*ratelimit.MemoryStore
	err   error
	leave func() // called before a call fails, if it is not nil
}

func (s *spokenStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.leave != nil {
		s.leave()
	}
	if s.err != nil {
		return nil, fmt.Errorf("take: %w", s.err)
	}
	return s.MemoryStore.Take(ctx, asks)
}

// spoken returns a spokenStore, a RateLimiter on it, and the clock of both.
func spoken(t *testing.T) (*spokenStore, *ratelimit.RateLimiter, *ratelimit.FakeClock) {
	clock := ratelimit.NewFakeClock(epoch)
	memory, err := newMemory(clock)
	require.NoError(t, err)
	store := &spokenStore{MemoryStore: memory}
	rule := &ratelimit.Rule{Rate: ratelimit.PerSecond(1000), OnStoreError: ratelimit.FailClosed}
	return store, newRules(t, nil, rule, ratelimit.WithStore(store), ratelimit.WithClock(clock), ratelimit.WithName("n")), clock
}

type answeredError bool

func (answeredError) Error() string    { return "a foreign value" }
func (e answeredError) Answered() bool { return bool(e) }

// TestErrorsOfAStoreThatAnswersOpenNoBreaker proves that an error that says that the store has
// answered does not open the breaker, and that a probe that gets such an error closes it.
func TestErrorsOfAStoreThatAnswersOpenNoBreaker(t *testing.T) {
	store, l, clock := spoken(t)
	store.err = answeredError(true)
	for range 20 {
		require.Equal(t, by("default", degraded(no(1000, 0, sec, sec))), l.Allow("c", ""), "the failure policy answers")
	}
	require.Zero(t, l.StoreStats().Opened)
	store.err = answeredError(false)
	for range 5 {
		l.Allow("c", "")
	}
	require.Equal(t, 1, l.StoreStats().Open, "an error that says no is a failure")
	store.err = answeredError(true)
	clock.Advance(50 * ms)
	require.True(t, l.Allow("c", "").Degraded)
	require.Zero(t, l.StoreStats().Open, "the probe was answered")
}

type sharedError uint64

func (sharedError) Error() string  { return "the reply was lost" }
func (e sharedError) Call() uint64 { return uint64(e) }

// TestSharedCallCountsAsOneFailure proves that callers that share one call of the store report one
// failure, also if the callers of several calls report in turn.
func TestSharedCallCountsAsOneFailure(t *testing.T) {
	store, l, _ := spoken(t)
	for range 40 {
		for call := range 4 {
			store.err = sharedError(call + 1)
			require.True(t, l.Allow("c", "").Degraded)
		}
	}
	require.Zero(t, l.StoreStats().Opened, "four calls were lost")
	store.err = sharedError(5)
	l.Allow("c", "")
	require.EqualValues(t, 1, l.StoreStats().Opened, "the fifth opens the breaker")

	store, l, _ = spoken(t)
	store.err = sharedError(0)
	for range 5 {
		l.Allow("c", "")
	}
	require.EqualValues(t, 1, l.StoreStats().Opened, "0 is no number of a call")
}

// A leftError says that the caller has left before the call ended. It keeps the function to tell
// how the call ends.
type leftError struct {
	error
	tell *func(error)
}

func (e leftError) Later(f func(error)) { *e.tell = f }
func (e leftError) Unwrap() error       { return e.error }

// TestAbandonedCallCountsWhenItEnds proves that a call whose caller has left counts when it ends:
// as a failure, as a success, or not at all.
func TestAbandonedCallCountsWhenItEnds(t *testing.T) {
	store, l, clock := spoken(t)
	var tell func(error)
	leave := func(end error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		store.err, store.leave = leftError{context.Canceled, &tell}, cancel
		res, err := l.Check(ctx, ratelimit.Request{Client: "c"})
		require.Equal(t, context.Canceled, err)
		require.Equal(t, ratelimit.Result{}, res)
		tell(end)
	}
	for range 4 {
		leave(errFault)
	}
	for range 10 {
		leave(fmt.Errorf("never made: %w", context.Canceled))
	}
	require.Zero(t, l.StoreStats().Opened, "four calls have failed, and ten were never made")
	leave(errFault)
	require.Equal(t, 1, l.StoreStats().Open, "the fifth has failed")

	clock.Advance(50 * ms)
	leave(context.Canceled)
	require.Equal(t, 1, l.StoreStats().Open, "a probe that was never made tells nothing")
	leave(errFault)
	clock.Advance(50 * ms)
	store.err, store.leave = errFault, nil
	require.True(t, l.Allow("c", "").Degraded, "a probe that fails later doubles the pause")
	clock.Advance(50 * ms)
	leave(nil)
	require.Zero(t, l.StoreStats().Open, "the store has answered the probe, although its caller had left")
	for range 4 {
		leave(errFault)
	}
	leave(answeredError(true))
	leave(errFault)
	require.Zero(t, l.StoreStats().Open, "an answer comes between the failures")
}

// TestDelayOfAFirstCall lets the store fail after it has told the Delay of a leaky bucket to a caller of Wait with a
// deadline: FailOpen lets the caller pass without this Delay.
func TestDelayOfAFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore(t, nil)
		rate := ratelimit.PerMinute(6).WithBurst(5)
		rule := &ratelimit.Rule{Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: rate, OnStoreError: ratelimit.FailOpen}
		l := newRules(t, nil, rule, ratelimit.WithStore(store))
		require.True(t, l.Allow("c", "/e").Allowed)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		store.do(sound, errsBefore)
		began := time.Now()
		res, err := l.Wait(ctx, ratelimit.Request{Client: "c", Endpoint: "/e"})
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.Equal(t, degraded(ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1, Rule: "default"}), res)
		require.Zero(t, time.Since(began))
	})
}
