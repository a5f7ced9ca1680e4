package verify

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A faultyPair decides by two rules that follow the sequential specification. Its decide
// function combines them rightly or wrongly.
type faultyPair struct {
	clock *hostileClock
	mu    sync.Mutex
	state pairState
	take  func(f *faultyPair, req request) ratelimit.Result
}

func (f *faultyPair) Allow(clientID, _ string) ratelimit.Result {
	return f.ask(clientID, 1)
}

func (f *faultyPair) Check(_ context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	return f.ask(req.Client, req.Cost), nil
}

func (f *faultyPair) Peek(_ context.Context, req ratelimit.Request) (ratelimit.Result, error) {
	return f.ask(req.Client, 0), nil
}

func (f *faultyPair) ask(client string, n int) ratelimit.Result {
	key, err := strconv.Atoi(client)
	if err != nil {
		panic(err)
	}
	return f.take(f, request{key: key, n: n})
}

// one asks one of the two rules, as a limiter of its own would be asked.
func (f *faultyPair) one(of func(*pairState) *seqState, n int) (res ratelimit.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := of(&f.state)
	s.now = f.clock.Now().UnixNano()
	*s, res = seqBucket(*s, int64(n), false)
	return res
}

func (req request) own(s *pairState) *seqState { return &s.own[req.key] }
func (request) all(s *pairState) *seqState     { return &s.all }

// withBothLocks is right: it locks both rules and reads the clock once.
func withBothLocks(f *faultyPair, req request) (res ratelimit.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.on(f.clock.Now().UnixNano() - f.state.all.now)
	bucket := seqSteps["TokenBucket"]
	f.state, res = pairOf(bucket, bucket)(f.state, req)
	return res
}

// withTwoReadings is wrong: it locks both rules, but reads the clock for each.
func withTwoReadings(f *faultyPair, req request) (res ratelimit.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	own, all := req.own(&f.state), req.all(&f.state)
	own.now = f.clock.Now().UnixNano()
	all.now = f.clock.Now().UnixNano()
	bucket := seqSteps["TokenBucket"]
	f.state, res = pairOf(bucket, bucket)(f.state, req)
	return res
}

// withRefund is wrong: it asks one rule after the other, and gives back what the first has
// granted if the second denies.
func withRefund(f *faultyPair, req request) ratelimit.Result {
	own := f.one(req.own, req.n)
	if !own.Allowed {
		return both(own, f.one(req.all, 0), false)
	}
	f.clock.Now() // lets other goroutines run
	all := f.one(req.all, req.n)
	if !all.Allowed {
		f.clock.Now()
		f.mu.Lock()
		s := req.own(&f.state)
		s.debt = max(s.debt-int64(req.n)*seqPer, 0)
		f.mu.Unlock()
		own = f.one(req.own, 0)
	}
	return both(own, all, all.Allowed)
}

// withoutRefund is wrong: it keeps what the first rule has granted.
func withoutRefund(f *faultyPair, req request) ratelimit.Result {
	own := f.one(req.own, req.n)
	if !own.Allowed {
		return both(own, f.one(req.all, 0), false)
	}
	all := f.one(req.all, req.n)
	return both(own, all, all.Allowed)
}

// TestLinearizableRulesCheckerFindsFaults requires that the checker rejects histories of
// wrong ways to decide by two rules, and accepts those of the right one.
func TestLinearizableRulesCheckerFindsFaults(t *testing.T) {
	const histories = 60
	for _, c := range []struct {
		name  string
		take  func(f *faultyPair, req request) ratelimit.Result
		least int // at least so many histories must be rejected
		most  int
		why   string
	}{
		{"both locks, one reading", withBothLocks, 0, 0, "it is linearizable"},
		{"both locks, two readings", withTwoReadings, 5, histories, "the two rules answer for two instants"},
		{"one after the other, with a refund", withRefund, 50, histories, "other requests are denied units that are given back later"},
		{"one after the other, without a refund", withoutRefund, 50, histories, "a denial takes something"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bucket := algorithms[0]
			v := examinePairs(bucket, bucket, histories, func(clock *hostileClock) arbiter {
				return &faultyPair{clock: clock, take: c.take}
			})
			t.Logf("%s: %d of %d histories illegal, unknown %d, slowest check %v", c.name, v.illegal, v.histories, v.unknown, v.slowest)
			require.Zero(t, v.unknown)
			require.GreaterOrEqual(t, v.illegal, c.least, c.why)
			require.LessOrEqual(t, v.illegal, c.most, c.why)
		})
	}
}
