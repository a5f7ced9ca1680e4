package verify

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestCountersAreTheFields proves that Counters describes each number of RuleStats that only grows,
// in the order of the fields, that each reads its own field, and that callers cannot change them.
func TestCountersAreTheFields(t *testing.T) {
	for range 2 {
		counters := ratelimit.Counters()
		var s ratelimit.RuleStats
		fields := reflect.ValueOf(&s).Elem()
		next := 0
		for i := range fields.NumField() {
			if fields.Field(i).Kind() != reflect.Uint64 {
				continue
			}
			require.Equal(t, fields.Type().Field(i).Name, counters[next].Field)
			fields.Field(i).SetUint(uint64(100 + next))
			require.EqualValues(t, 100+next, counters[next].Value(&s), counters[next].Field)
			next++
		}
		require.Len(t, counters, next)
		clear(counters)
	}
}

// TestRefusedWaitsAreCounted proves what a rule counts while its failure policy denies: one denial for
// each Wait that is refused and for each request behind one that waits, and nothing for one that waits.
func TestRefusedWaitsAreCounted(t *testing.T) {
	for _, policy := range []ratelimit.FailurePolicy{ratelimit.FailClosed, ratelimit.FailLocal(1)} {
		synctest.Test(t, func(t *testing.T) {
			memory, err := ratelimit.NewMemoryStore()
			require.NoError(t, err)
			store := &flakyStore{MemoryStore: memory, down: true}
			l, err := ratelimit.New([]ratelimit.Rule{{Name: "r", Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, nil,
				ratelimit.WithStore(store), ratelimit.WithName("test"), ratelimit.WithFailurePolicy(policy))
			require.NoError(t, err)
			before := func() ratelimit.RuleStats {
				s := l.Stats()[0]
				s.Errors, s.LiveKeys = 0, 0 // how often the breaker lets a call through is left to chance
				return s
			}
			want := ratelimit.RuleStats{Rule: "r"}
			if policy != ratelimit.FailClosed {
				require.True(t, l.Allow("a", "/").Allowed)
				want.Allowed, want.Degraded = 1, 1
			}
			require.Equal(t, want, before())
			denied := func(why string) {
				want.Denied++
				want.Degraded++
				require.Equal(t, want, before(), why)
			}
			refused := func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
				defer cancel()
				res, err := l.Wait(ctx, ratelimit.Request{Client: "a", Endpoint: "/"})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, res.Degraded)
			}
			refused()
			denied("a Wait that would end too late")
			var waiting sync.WaitGroup
			waiting.Go(func() {
				_, err := l.Wait(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/"})
				assert.NoError(t, err)
			})
			synctest.Wait()
			require.Equal(t, want, before(), "a caller that waits is not decided yet")
			require.False(t, l.Allow("a", "/").Allowed)
			denied("a request behind it")
			refused()
			denied("a Wait behind it")
			_, err = l.Peek(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/"})
			require.NoError(t, err)
			_, err = l.Explain(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/"})
			require.NoError(t, err)
			require.Equal(t, want, before(), "looks are not counted")
			store.down = false
			require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/"})) // the caller tries again at once
			waiting.Wait()
			want.Allowed++
			require.Equal(t, want, before(), "the store has granted it")
		})
	}
}

// TestCountsOfSeveralRules proves what rules count that grant a request, or do not limit it, while
// another one denies it.
func TestCountsOfSeveralRules(t *testing.T) {
	inBothPlaces(t, []ratelimit.Rule{
		{Name: "small", Endpoint: "/", Rate: ratelimit.PerHour(2)},
		{Name: "large", Endpoint: "/", Rate: ratelimit.PerHour(20)},
		{Name: "planned", Endpoint: "/", Rate: ratelimit.PerHour(1), Mode: ratelimit.ModeShadow},
		{Name: "exempt", Endpoint: "/", Rate: ratelimit.PerHour(2), Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
			return ratelimit.Unlimited, true
		}},
	}, func(r *retrier) {
		for _, req := range []ratelimit.Request{
			{Endpoint: "/", ID: "1"}, {Endpoint: "/", ID: "1"}, {Endpoint: "/", ID: "2", Cost: 3}, {Endpoint: "/"},
		} {
			r.send(req)
		}
		stats := r.l.Stats()
		for i := range stats {
			stats[i].LiveKeys = 0
		}
		require.Equal(r.t, []ratelimit.RuleStats{
			{Rule: "small", Allowed: 2, Denied: 1, Replayed: 1},
			{Rule: "large", Allowed: 2, Replayed: 1},
			{Rule: "planned", Allowed: 1, ShadowDenied: 2, Replayed: 1},
			{Rule: "exempt", Allowed: 2, Replayed: 1},
		}, stats)
	})
}

// TestOrderOfSteps proves, with a caller that waits for a store, that a retry of a granted request
// has its record, that other requests are denied behind that caller, and that the store is not called
// for these.
func TestOrderOfSteps(t *testing.T) {
	inBothPlaces(t, []ratelimit.Rule{{Name: "r", Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, func(r *retrier) {
		r.send(ratelimit.Request{Endpoint: "/", ID: "1"})
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, err := r.l.Wait(r.t.Context(), ratelimit.Request{Endpoint: "/"})
			assert.NoError(r.t, err)
		})
		synctest.Wait()
		require.Equal(r.t, 2*time.Minute, r.l.Allow("", "/").RetryAfter)
		e, err := r.l.Explain(r.t.Context(), ratelimit.Request{Endpoint: "/"})
		require.NoError(r.t, err)
		require.Equal(r.t, 2*time.Minute, e.Result.RetryAfter)
		require.Equal(r.t, e.Result, e.Rules[0].Result)
		e, err = r.l.Explain(r.t.Context(), ratelimit.Request{Endpoint: "/", ID: "1"})
		require.NoError(r.t, err)
		require.True(r.t, e.Recorded && e.Result.Allowed)
		r.clock.Advance(time.Minute)
		waiting.Wait()
	})
}

// TestRequestsThatTakeNothing proves that a request with a negative cost, or whose context has ended,
// takes nothing, also by rules that are decided the short way, and also if it has the ID of a grant.
func TestRequestsThatTakeNothing(t *testing.T) {
	inBothPlaces(t, []ratelimit.Rule{
		{Name: "r", Endpoint: "/", Rate: ratelimit.PerHour(9)}, {Name: "other", Endpoint: "/other", Rate: ratelimit.PerHour(8)},
	}, func(r *retrier) {
		granted, _, _ := r.send(ratelimit.Request{Client: "a", Endpoint: "/", ID: "1"})
		require.Equal(r.t, 8, granted.Remaining)
		for _, id := range []string{"", "1"} {
			req := ratelimit.Request{Client: "a", Endpoint: "/", ID: id}
			ended, cancel := context.WithCancel(r.t.Context())
			cancel()
			stats := r.l.Stats()
			for _, row := range []struct {
				ctx  context.Context
				cost int
				err  error
			}{{r.t.Context(), -1, ratelimit.ErrInvalidCount}, {ended, 1, context.Canceled}, {ended, 0, context.Canceled}} {
				req.Cost = row.cost
				res, err := r.l.Check(row.ctx, req)
				require.ErrorIs(r.t, err, row.err)
				require.Zero(r.t, res)
				_, each, err := r.l.CheckAll(row.ctx, req, nil)
				require.ErrorIs(r.t, err, row.err)
				require.Empty(r.t, each)
				reservation, err := r.l.Reserve(row.ctx, req, time.Second)
				require.ErrorIs(r.t, err, row.err)
				require.Nil(r.t, reservation)
			}
			require.Equal(r.t, stats, r.l.Stats())
		}
		res, err := r.l.Check(r.t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Rules: []string{"other"}})
		require.NoError(r.t, err)
		require.Equal(r.t, 7, res.Remaining, "the rule that the request names")
		require.Equal(r.t, 7, r.l.Allow("a", "/").Remaining)
	})
}

// TestReplaysAreObserved proves that a retry of a grant by one or two plain rules is counted, and
// that an observer sees it.
func TestReplaysAreObserved(t *testing.T) {
	rules := []ratelimit.Rule{{Name: "a", Endpoint: "/", Rate: ratelimit.PerHour(9)}, {Name: "b", Endpoint: "/", Rate: ratelimit.PerHour(8)}}
	for n := range rules {
		var told []ratelimit.Decision
		for _, opts := range [][]ratelimit.Option{
			{ratelimit.WithRequestIDs(time.Hour)},
			{ratelimit.WithRequestIDs(time.Hour), ratelimit.WithObserver(observing(func(d ratelimit.Decision) { told = append(told, d) }))},
		} {
			l, err := ratelimit.New(rules[:n+1], nil, opts...)
			require.NoError(t, err)
			for range 3 {
				res, err := l.Check(t.Context(), ratelimit.Request{Endpoint: "/", ID: "1"})
				require.NoError(t, err)
				require.True(t, res.Allowed)
			}
			for _, s := range l.Stats() {
				require.Equal(t, ratelimit.RuleStats{Rule: s.Rule, Allowed: 1, Replayed: 2, LiveKeys: 1}, s)
			}
		}
		require.Len(t, told, 3)
		require.Equal(t, ratelimit.SourceReplay, told[len(told)-1].Source)
	}
}
