package ratelimittest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A pickyStore supports only one algorithm, and no Per above a second.
type pickyStore struct{ ratelimit.Store }

func (pickyStore) Supports(a ratelimit.Algorithm, r ratelimit.Rate) error {
	if a != ratelimit.AlgorithmFixedWindow || r.Per > time.Second {
		return ratelimit.ErrInvalidConfig
	}
	return nil
}

func (s pickyStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	for _, a := range asks {
		if err := s.Supports(a.Algorithm, a.Rate); err != nil {
			panic("the store was asked something that it does not support")
		}
	}
	return s.Store.Take(ctx, asks)
}

func newPickyStore(clock ratelimit.Clock) (ratelimit.Store, error) {
	s, err := newSlowStore(faults{})(clock)
	return pickyStore{s}, err
}

func TestStoreConfig(t *testing.T) {
	window := []ratelimit.Algorithm{ratelimit.AlgorithmFixedWindow}
	rates := func(r ratelimit.Rate) map[ratelimit.Algorithm][]ratelimit.Rate {
		return map[ratelimit.Algorithm][]ratelimit.Rate{window[0]: {r}}
	}
	TestStore(t, StoreConfig{New: newPickyStore, Algorithms: window, Schedules: 20})

	for why, c := range map[string]StoreConfig{
		"no New":                        {},
		"New fails":                     {New: func(ratelimit.Clock) (ratelimit.Store, error) { return nil, ratelimit.ErrStore }},
		"an unknown algorithm":          {New: newPickyStore, Algorithms: []ratelimit.Algorithm{"Guess"}},
		"no rate is supported":          {New: newPickyStore},
		"a given rate is not supported": {New: newPickyStore, Algorithms: window, Rates: rates(ratelimit.PerDay(1))},
		"a given rate is invalid":       {New: newPickyStore, Algorithms: window, Rates: rates(ratelimit.Rate{Requests: 1, Per: 1, Burst: 1})},
	} {
		_, err := newStoreKit(c)
		require.Error(t, err, why)
	}

	k, err := newStoreKit(StoreConfig{New: newSlowStore(faults{}), Resolution: time.Microsecond, Span: 1<<63 - 1})
	require.NoError(t, err)
	require.Len(t, k.Algorithms, 5)
	require.Zero(t, k.Span%time.Microsecond)
	require.Equal(t, (time.Duration(1<<62 - 1)).Truncate(time.Microsecond), k.Span)
}

// TestStoreSchedules checks that the random schedules do what the comment of TestStore
// says, and reach the cases that they are meant to reach.
func TestStoreSchedules(t *testing.T) {
	k, err := newStoreKit(StoreConfig{New: newSlowStore(faults{}), Resolution: time.Microsecond, Span: time.Hour, Steps: 40})
	require.NoError(t, err)
	for _, f := range k.scheduleKinds() {
		seen := make(map[string]int)
		for i := range 30 {
			start, calls := k.write(f, i)
			tr := k.play(start, calls)
			require.Empty(t, tr.broken, f.name)
			_, again := k.write(f, i)
			require.Equal(t, calls, again, "the same seed must make the same schedule")
			for j, c := range calls {
				require.Zero(t, c.at%time.Microsecond)
				require.LessOrEqual(t, c.at.Abs(), time.Hour)
				wellAsked(t, c)
				if c.over == nil && !c.reset {
					tally(seen, c, tr.answers[j].results)
				}
			}
		}
		require.Greater(t, seen["granted"], 150, f.name)
		require.Greater(t, seen["denied"], 90, f.name)
		require.Greater(t, seen["looks"], 90, f.name)
		if f.several {
			require.Greater(t, seen["passed"], 60, f.name)
			require.Greater(t, seen["one does not fit"], 60, f.name)
		}
	}
}

// tally counts what c asks, and how it is answered.
func tally(seen map[string]int, c storeCall, results []ratelimit.Result) {
	fit := 0
	for i, res := range results {
		switch {
		case res.Allowed:
			fit++
			seen["granted"]++
		default:
			seen["denied"]++
		}
		if c.asks[i].N == 0 {
			seen["looks"]++
		}
	}
	if len(results) > 1 && fit == len(results) {
		seen["passed"]++
	}
	if len(results) > 1 && fit == len(results)-1 {
		seen["one does not fit"]++
	}
}

// wellAsked checks that c asks only what the limiters of package ratelimit ask.
func wellAsked(t *testing.T, c storeCall) {
	t.Helper()
	seen := make(map[stateID]bool)
	for _, a := range c.asks {
		require.False(t, seen[idOf(a)], "a call must not have a state twice")
		seen[idOf(a)] = true
		require.GreaterOrEqual(t, a.N, 0)
		require.NoError(t, algorithmNamed(a.Algorithm).valid(a.Rate))
	}
	require.NotEmpty(t, c.asks)
}

// TestStoreFailure checks the text of a failure, which can be pasted into a test.
func TestStoreFailure(t *testing.T) {
	k, err := newStoreKit(StoreConfig{
		New: newSlowStore(storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) {
			if a.Key == "b" && !res.Allowed {
				res.ResetAfter++
			}
		})),
		Algorithms: []ratelimit.Algorithm{ratelimit.AlgorithmFixedWindow},
		Rates:      map[ratelimit.Algorithm][]ratelimit.Rate{ratelimit.AlgorithmFixedWindow: {{Requests: 2, Per: 10}}},
		Starts:     []time.Time{time.Unix(7, 8)},
	})
	require.NoError(t, err)
	f := k.run(k.scheduleKinds()[2])
	require.NotNil(t, f)
	same := strings.NewReplacer("KEY", `Key: "b", Client: "b"`, "RATE", `Rate: ratelimit.Rate{Requests:2, Per:10, Burst:0, Window:""}`)
	require.Equal(t, same.Replace(`seed 0, schedule 0; instants since the start:
	start := time.Unix(7, 8)
	clock := ratelimit.NewFakeClock(start)
	s, _ := New(clock)
	clock.Set(start.Add(0)) // 0s
	s.Take(ctx, []ratelimit.Ask{
		{Rule: "user", KEY, Algorithm: "FixedWindow", RATE, N: 1}, // allowed, 1 of 2 remain, reset after 2ns
	})
	s.Take(ctx, []ratelimit.Ask{
		{Rule: "user", KEY, Algorithm: "FixedWindow", RATE, N: 1}, // allowed, 0 of 2 remain, reset after 2ns
	})
	s.Take(ctx, []ratelimit.Ask{
		{Rule: "user", KEY, Algorithm: "FixedWindow", RATE, N: 0}, // denied, 0 of 2 remain, reset after 3ns, retry after 2ns
	})
	// the model says of ask 0: denied, 0 of 2 remain, reset after 2ns, retry after 2ns`), f.String())
	require.Equal(t, f.String(), k.run(k.scheduleKinds()[2]).String(), "the same seed must show the same failure")

	long := storeFailure{storeTrace: &storeTrace{
		calls:   []storeCall{{over: context.DeadlineExceeded, asks: []ratelimit.Ask{{Key: long + "1"}}}},
		answers: []storeAnswer{{err: context.Canceled}},
	}}
	require.Contains(t, long.String(), `s.Take(late, []ratelimit.Ask{
		{Rule: "", Key: strings.Repeat("x", 65536)+"1", Algorithm: "", Rate: ratelimit.Rate{Requests:0, Per:0, Burst:0, Window:""}, N: 0},
	}) // context canceled`)
}
