package verify

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

// A striker is the model of a penalty: when its strikes began and how many there are, and its last block.
type striker struct {
	ratelimit.Penalty
	start, until time.Time
	last         time.Duration
	count        int
}

// denied counts a denial at the time now, and returns how long the key is blocked from then.
func (s *striker) denied(now time.Time) time.Duration {
	if s.count == 0 || !now.Before(s.start.Add(s.Within)) {
		s.start, s.count = now, 0
	}
	if s.count++; s.count < s.After {
		return 0
	}
	d := s.For
	if s.Most > 0 && s.last > 0 && now.Sub(s.until) < s.Most {
		d = min(2*s.last, s.Most)
	}
	s.until, s.last, s.count = now.Add(d), d, 0
	return d
}

// TestPenaltyModel compares random schedules of requests with the same requests to a rule without a Penalty, around which
// the model counts. It does so for keys in this process and in a MemoryStore.
func TestPenaltyModel(t *testing.T) {
	oneGoroutine(t)
	const schedules = 2000
	var denials, blocked int
	for seed := range uint64(schedules) {
		r := rand.New(rand.NewPCG(seed, 23))
		pick := func(all ...time.Duration) time.Duration { return all[r.IntN(len(all))] }
		p := ratelimit.Penalty{After: 1 + r.IntN(4), Within: pick(time.Second, 10*time.Second), For: pick(time.Second, 7*time.Second)}
		if r.IntN(2) == 0 {
			p.Most = p.For * time.Duration(1+r.IntN(5))
		}
		algorithms := []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
			ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket}
		rule := ratelimit.Rule{Name: "r", Endpoint: "/", Rate: ratelimit.Rate{Requests: 1 + r.IntN(3), Per: pick(time.Second, 5*time.Second)},
			Algorithm: algorithms[r.IntN(len(algorithms))]}
		clock := ratelimit.NewFakeClock(newYear)
		plain, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		rule.Penalty = p
		opts := []ratelimit.Option{ratelimit.WithClock(clock)}
		if seed%2 == 1 {
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("t"))
		}
		l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
		require.NoError(t, err)
		model := striker{Penalty: p}
		for step := range 60 {
			clock.Advance(pick(0, 1, time.Millisecond, 300*time.Millisecond, time.Second, 3*time.Second, p.Within-1, p.Within, p.For-1, p.For, p.Most))
			if rest := model.until.Sub(clock.Now()); r.IntN(4) == 0 && rest > 1 {
				clock.Advance(rest - time.Duration(r.IntN(2)))
			}
			req := ratelimit.Request{Client: "alice", Endpoint: "/", Cost: 1 + r.IntN(2)}
			what := fmt.Sprintf("seed %d, step %d, %+v", seed, step, p)
			now, rest := clock.Now(), model.until.Sub(clock.Now())
			var want ratelimit.Result
			switch {
			case rest > 0:
				// The block denies; a look at the plain rule says what the rule alone would answer.
				x, err := plain.Explain(t.Context(), req)
				require.NoError(t, err)
				if want = x.Result; want.Allowed {
					want.RetryAfter, want.Delay = 0, 0
				}
			default:
				want, err = plain.Check(t.Context(), req)
				require.NoError(t, err)
				if !want.Allowed {
					denials++
					rest = model.denied(now)
				}
			}
			if rest > 0 {
				blocked++
				want.Allowed, want.Remaining, want.Reason = false, 0, ratelimit.ReasonPenalty
				want.RetryAfter, want.ResetAfter = max(want.RetryAfter, rest), max(want.ResetAfter, rest)
			}
			got, err := l.Check(t.Context(), req)
			require.NoError(t, err)
			if want.Reason != "" { // what a blocked key would have afterwards is not part of the answer
				got.ResetAfter, want.ResetAfter = 0, 0
			}
			require.Equal(t, want, got, what)
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d schedules: %d denials, %d by a block", schedules, denials, blocked)
	require.Greater(t, blocked, schedules)
}

// TestStrikes proves which denials are strikes.
func TestStrikes(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	rules := []ratelimit.Rule{
		{Name: "r", Endpoint: "/", Rate: ratelimit.PerHour(2), Penalty: ratelimit.Penalty{After: 2, Within: time.Minute, For: time.Hour}},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(6)},
		{Name: "shadow", Endpoint: "/shadow", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerHour(1), Penalty: ratelimit.Penalty{After: 1, Within: 1000, For: 1000}},
	}
	l, err := ratelimit.New(rules, nil, ratelimit.WithClock(clock), ratelimit.WithRequestIDs(time.Hour))
	require.NoError(t, err)
	ctx, req := t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1", Cost: 2}
	res, err := l.Check(ctx, req)
	require.NoError(t, err)
	require.True(t, res.Allowed)
	for range 5 {
		res, err = l.Peek(ctx, req)
		require.NoError(t, err)
		require.NotEqual(t, ratelimit.ReasonPenalty, res.Reason, "a look is no strike")
		_, err = l.Explain(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"})
		require.NoError(t, err)
		res, err = l.Check(ctx, req)
		require.NoError(t, err)
		require.True(t, res.Allowed, "a repeated answer is no strike")
	}
	req.ID = ""
	res, _, err = l.CheckAll(ctx, req, nil)
	require.NoError(t, err)
	require.Equal(t, ratelimit.ReasonLimit, res.Reason, "the first strike")
	r, err := l.Reserve(ctx, req, time.Minute)
	require.NoError(t, err)
	require.Equal(t, ratelimit.ReasonPenalty, r.Result().Reason, "a reservation that is denied is a strike, too")
	require.Equal(t, time.Hour, r.Result().RetryAfter)
	x, err := l.Explain(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"})
	require.NoError(t, err)
	require.Equal(t, ratelimit.ReasonPenalty, x.Result.Reason)
	require.Equal(t, ratelimit.ReasonPenalty, x.Rules[0].Result.Reason)
	require.Equal(t, ratelimit.AnsweredBy("own"), x.Rules[0].AnsweredBy)
	_, all, err := l.CheckAll(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"}, nil)
	require.NoError(t, err)
	require.Equal(t, []ratelimit.Reason{ratelimit.ReasonPenalty, ""}, []ratelimit.Reason{all[0].Reason, all[1].Reason})
	require.Equal(t, 4, all[1].Remaining, "what a block denies charges nothing")

	require.True(t, l.Allow("bob", "/").Allowed)
	res, err = l.Check(ctx, ratelimit.Request{Client: "bob", Endpoint: "/", Cost: 7})
	require.NoError(t, err)
	require.Equal(t, ratelimit.Never, res.RetryAfter, "what can never be granted")
	require.EqualValues(t, 1, l.Stats()[0].Penalized)
	_, err = l.Check(ctx, ratelimit.Request{Client: "carl", Endpoint: "/other", Cost: 3})
	require.NoError(t, err)
	for range 3 {
		res, err = l.Check(ctx, ratelimit.Request{Client: "carl", Endpoint: "/"})
		require.NoError(t, err)
		require.Equal(t, "all", res.Rule)
		require.Equal(t, ratelimit.ReasonLimit, res.Reason, "a denial by another rule is no strike")
	}
	for range 3 {
		res, err = l.Check(ctx, ratelimit.Request{Client: "dora", Endpoint: "/shadow", Cost: 2})
		require.NoError(t, err)
		require.False(t, res.Allowed)
		require.Equal(t, ratelimit.ReasonLimit, res.Reason)
	}
	require.Zero(t, l.Stats()[2].Penalized, "a rule in shadow blocks nobody")
	clock.Advance(-10 * time.Second)
	require.Equal(t, ratelimit.ReasonPenalty, l.Allow("alice", "/").Reason, "a clock that steps back ends no block")
}

// TestStrikesStayWithin proves that strikes count only within the time, from the first of them.
func TestStrikesStayWithin(t *testing.T) {
	for _, c := range []struct {
		gap  time.Duration
		want ratelimit.Reason
	}{{30 * time.Second, ratelimit.ReasonPenalty}, {30*time.Second + 1, ratelimit.ReasonLimit}} {
		clock := ratelimit.NewFakeClock(newYear)
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "r", Endpoint: "/", Rate: ratelimit.PerDay(1),
			Penalty: ratelimit.Penalty{After: 3, Within: time.Minute + 1, For: time.Hour}}}, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		l.Allow("alice", "/")
		l.Allow("alice", "/")
		clock.Advance(30 * time.Second)
		l.Allow("alice", "/")
		clock.Advance(c.gap)
		require.Equal(t, c.want, l.Allow("alice", "/").Reason, "%v", c.gap)
	}
}

// TestStrikesWithoutRoom proves that running blocks keep their place, that strikes lose theirs first, and that the budget of
// nobody is touched.
func TestStrikesWithoutRoom(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "r", Endpoint: "/", Rate: ratelimit.PerDay(1),
		Penalty: ratelimit.Penalty{After: 2, Within: time.Hour, For: time.Hour}}}, nil, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(4))
	require.NoError(t, err)
	strike := func(client string) ratelimit.Reason { return l.Allow(client, "/").Reason }
	for i := range 3 {
		client := fmt.Sprint("blocked ", i)
		strike(client)
		strike(client)
		strike(client)
		require.Equal(t, ratelimit.ReasonPenalty, strike(client))
	}
	for i := range 100 {
		strike(fmt.Sprint("many ", i))
	}
	for i := range 3 {
		require.Equal(t, ratelimit.ReasonPenalty, strike(fmt.Sprint("blocked ", i)), "a running block keeps its key")
	}
	strike("last")
	strike("last")
	require.Equal(t, ratelimit.ReasonPenalty, strike("last"), "a strike takes the place of one of another key")
	strike("full")
	strike("full")
	strike("full")
	require.Equal(t, ratelimit.ReasonLimit, strike("full"), "if all keys are blocked, no further one is")
	clock.Advance(time.Hour)
	strike("full")
	require.Equal(t, ratelimit.ReasonPenalty, strike("full"), "when blocks have ended, there is room")
}

// TestStrikeWhileBlocked proves that a denial which another goroutine has counted too late is no strike.
func TestStrikeWhileBlocked(t *testing.T) {
	table := penalty.New(penalty.Rule{After: 1, Within: time.Hour, For: time.Minute, Most: time.Hour}, 10)
	key := keytable.HashOf("k")
	rest, begun := table.Strike(key, penalty.Whose{}, keytable.Start)
	require.True(t, begun)
	require.Equal(t, time.Minute, rest)
	rest, begun = table.Strike(key, penalty.Whose{}, keytable.Start.Add(time.Second))
	require.False(t, begun)
	require.Equal(t, 59*time.Second, rest)
}

// TestPenaltyClockBack proves that a block whose strikes began long after the last block is not longer than the first one, also if
// the clock was set back between these strikes.
func TestPenaltyClockBack(t *testing.T) {
	table := penalty.New(penalty.Rule{After: 2, Within: time.Hour, For: time.Minute, Most: 2 * time.Minute}, 10)
	key, at := keytable.HashOf("alice"), func(d time.Duration) keytable.Instant { return keytable.Start.Add(d) }
	strike := func(d time.Duration) time.Duration {
		rest, _ := table.Strike(key, penalty.Whose{}, at(d))
		return rest
	}
	require.Zero(t, strike(0))
	require.Equal(t, time.Minute, strike(0))
	require.Zero(t, strike(time.Hour))
	require.Equal(t, time.Hour-90*time.Second+time.Minute, strike(90*time.Second), "it begins at the first of its strikes")
	require.Zero(t, strike(time.Hour+2*time.Minute))
	require.Equal(t, 2*time.Minute, strike(time.Hour+2*time.Minute), "a minute after the last one")
}
