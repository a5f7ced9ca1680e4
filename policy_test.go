package ratelimit_test

import (
	"context"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestFailLocalNeedsAReplica proves that FailLocal of less than 1 replica is refused wherever a
// policy can be given, and that the refusal changes nothing.
func TestFailLocalNeedsAReplica(t *testing.T) {
	bad := ratelimit.FailLocal(0)
	worse := ratelimit.FailLocal(-1)
	good := ratelimit.Rule{Name: "good", Endpoint: "/e", Rate: ratelimit.PerMinute(5)}
	with := func(r ratelimit.Rule, p ratelimit.FailurePolicy) ratelimit.Rule {
		r.OnStoreError = p
		return r
	}
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithStore(store), ratelimit.WithName("test")}} {
		_, err := ratelimit.New([]ratelimit.Rule{with(good, bad)}, nil, opts...)
		require.EqualError(t, err, "ratelimit: rules[0].onStoreError is local:0: must have at least 1 replica", "a rule")
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		_, err = ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(5), OnStoreError: worse}, opts...)
		require.EqualError(t, err, "ratelimit: defaultRule.onStoreError is local:-1: must have at least 1 replica", "the default rule")
		_, err = ratelimit.New(nil, nil, append(opts, ratelimit.WithFailurePolicy(bad))...)
		require.EqualError(t, err, "ratelimit: failurePolicy is local:0: must have at least 1 replica", "an option")

		l := newRules(t, []ratelimit.Rule{good}, nil, append(opts, ratelimit.WithClock(store.clock))...)
		require.True(t, l.Allow("c", "/e").Allowed)
		before := l.Stats()
		added := with(good, bad)
		added.Name = "added"
		for _, row := range []struct {
			change func() error
			why    string
		}{
			{func() error { return l.AddRule(added) }, "AddRule"},
			{func() error { return l.SetDefaultRule(with(ratelimit.Rule{Rate: ratelimit.PerMinute(5)}, bad)) }, "SetDefaultRule"},
			{func() error { return l.Replace([]ratelimit.Rule{with(good, bad)}, nil) }, "Replace"},
			{func() error { return l.Replace(nil, &added) }, "Replace with a default rule"},
		} {
			require.ErrorIs(t, row.change(), ratelimit.ErrInvalidConfig, row.why)
			require.Equal(t, before, l.Stats(), "%s: nothing is changed", row.why)
			res, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
			require.NoError(t, err, row.why)
			require.Equal(t, by("good", yes(5, 4, 12*sec)), res, row.why)
			require.Equal(t, unlimited, l.Allow("c", "/other"), "%s: no default rule", row.why)
		}
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}))
	}
}

// TestFailurePolicyIsAValue proves that policies can be compared, used as map keys, and printed as
// configs write them.
func TestFailurePolicyIsAValue(t *testing.T) {
	for _, row := range []struct {
		p    ratelimit.FailurePolicy
		want string
		why  string
	}{
		{ratelimit.FailurePolicy{}, "inherit", "the zero value"},
		{ratelimit.FailOpen, "open", "as a config has it"},
		{ratelimit.FailClosed, "closed", "as a config has it"},
		{ratelimit.FailLocal(1), "local:1", "as a config has it"},
		{ratelimit.FailLocal(4), "local:4", "as a config has it"},
	} {
		require.Equal(t, row.want, row.p.String(), row.why)
	}
	known := map[ratelimit.FailurePolicy]bool{ratelimit.FailLocal(4): true}
	require.True(t, known[ratelimit.FailLocal(4)], "equal policies are one map key")
	require.NotEqual(t, ratelimit.FailLocal(4), ratelimit.FailLocal(3))
}

// TestFailurePolicyAnswers proves what each failure policy answers, for a limiter and for a rule,
// and that the policy of a rule takes precedence over that of the RateLimiter.
func TestFailurePolicyAnswers(t *testing.T) {
	windows := ratelimit.PerMinute(10)
	bucket := ratelimit.PerSecond(10)
	open := unlimited
	for _, row := range []struct {
		algorithm string
		rate      ratelimit.Rate
		policy    ratelimit.FailurePolicy
		n         int
		want      ratelimit.Result
		why       string
	}{
		{"token bucket", bucket, ratelimit.FailOpen, 1, open, "no limit applies"},
		{"token bucket", bucket, ratelimit.FailOpen, 11, open, "not even the burst"},
		{"token bucket", bucket, ratelimit.FailOpen, 0, open, "a look gets the same answer"},
		{"fixed window", windows, ratelimit.FailOpen, 1, open, "whatever the algorithm"},
		{"token bucket", bucket, ratelimit.FailClosed, 1, no(10, 0, sec, sec), "denied for a second"},
		{"token bucket", bucket.WithBurst(20), ratelimit.FailClosed, 1, no(20, 0, sec, sec), "the limit is the burst"},
		{"token bucket", bucket, ratelimit.FailClosed, 0, no(10, 0, sec, sec), "a look gets the same answer"},
		{"leaky bucket", bucket, ratelimit.FailClosed, 1, no(10, 0, sec, sec), "whatever the algorithm"},
		{"token bucket", bucket, ratelimit.FailurePolicy{}, 1, yes(10, 9, 100*ms), "the default is FailLocal(1): the whole rate"},
		{"token bucket", bucket, ratelimit.FailLocal(1), 1, yes(10, 9, 100*ms), "the whole rate"},
		{"token bucket", bucket, ratelimit.FailLocal(1), 10, yes(10, 0, sec), "the whole burst"},
		{"token bucket", bucket, ratelimit.FailLocal(3), 1, yes(3, 2, 300*ms), "a third: 10 a second are 10 in 3 s"},
		{"token bucket", bucket, ratelimit.FailLocal(3), 0, yes(3, 3, 0), "a look at the share"},
		{"token bucket", bucket, ratelimit.FailLocal(3), 4, no(3, 3, ratelimit.Never, 0), "more than the share never fits"},
		{"token bucket", bucket, ratelimit.FailLocal(5), 1, yes(2, 1, 500*ms), "2 a second"},
		{"token bucket", ratelimit.PerSecond(7), ratelimit.FailLocal(3), 1, yes(2, 1, 428571429), "7 in 3 s, exactly"},
		{"token bucket", bucket, ratelimit.FailLocal(20), 1, yes(1, 0, 2*sec), "a share is at least 1, the refill still a twentieth"},
		{"token bucket", bucket.WithBurst(7), ratelimit.FailLocal(3), 1, yes(2, 1, 300*ms), "the burst is divided rounding down"},
		{"leaky bucket", bucket, ratelimit.FailLocal(3), 2, yes(3, 1, 600*ms), "a third"},
		{"fixed window", windows, ratelimit.FailLocal(3), 1, yes(3, 2, minute), "the count is divided rounding down"},
		{"fixed window", windows, ratelimit.FailLocal(11), 1, yes(1, 0, minute), "a share is at least 1"},
		{"fixed window", windows, ratelimit.FailLocal(3), 4, no(3, 3, ratelimit.Never, 0), "more than the share never fits"},
		{"sliding window log", windows, ratelimit.FailLocal(3), 1, yes(3, 2, minute), "the count is divided rounding down"},
		{"sliding window counter", windows, ratelimit.FailLocal(3), 1, yes(3, 2, 2*minute), "the count is divided rounding down"},
	} {
		for _, a := range algorithms {
			if a.name != row.algorithm {
				continue
			}
			why := row.algorithm + ", " + row.policy.String() + ": " + row.why
			store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
			store.from(errsBefore)
			opts := []ratelimit.Option{ratelimit.WithClock(store.clock), ratelimit.WithStore(store), ratelimit.WithName("n")}
			want := degraded(row.want)

			l := a.start(t, row.rate, append(opts, ratelimit.WithFailurePolicy(row.policy))...)
			res, err := l.Take(t.Context(), "key", row.n)
			require.ErrorIs(t, err, ratelimit.ErrStore, why)
			require.ErrorIs(t, err, errFault, why)
			require.Equal(t, want, res, why)
			if row.n == 1 {
				require.Equal(t, want, l.Allow("other"), "%s: Allow swallows the error", why)
			}

			rule := ratelimit.Rule{Algorithm: a.inRules(), Rate: row.rate}
			of := newRules(t, nil, &rule, append(opts, ratelimit.WithFailurePolicy(row.policy))...)
			checkPolicy(t, of, row.n, want, why+", of the limiter")
			rule.OnStoreError = row.policy
			other := ratelimit.FailClosed
			if row.policy == other {
				other = ratelimit.FailOpen
			}
			if row.policy != (ratelimit.FailurePolicy{}) {
				of = newRules(t, nil, &rule, append(opts, ratelimit.WithFailurePolicy(other))...)
				checkPolicy(t, of, row.n, want, why+", of the rule")
			}
		}
	}
}

// checkPolicy checks what l answers to a request for n units while its store fails.
func checkPolicy(t *testing.T, l *ratelimit.RateLimiter, n int, want ratelimit.Result, why string) {
	t.Helper()
	want.Rule = "default"
	ask := l.Check
	if n == 0 {
		ask = l.Peek
	}
	res, err := ask(t.Context(), ratelimit.Request{Client: "c", Cost: n})
	require.ErrorIs(t, err, ratelimit.ErrStore, why)
	require.ErrorIs(t, err, errFault, why)
	require.Equal(t, want, res, why)
	if n == 1 {
		require.Equal(t, want, l.Allow("other", "/e"), "%s: Allow swallows the error", why)
	}
}

// TestFailLocalStartsFromWhatTheStoreSaid proves that the local share of a key is a part of the
// units that the store last reported as left, and that what the policy grants counts until it is
// earned, whatever the store answers.
func TestFailLocalStartsFromWhatTheStoreSaid(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := algorithm{"token bucket", tokenBucket}.start(t, ratelimit.PerSecond(10), ratelimit.WithClock(store.clock),
		ratelimit.WithStore(store), ratelimit.WithName("n"), ratelimit.WithFailurePolicy(ratelimit.FailLocal(3)))
	for _, row := range []struct {
		at   time.Duration
		f    fault
		n    int
		want ratelimit.Result
		why  string
	}{
		{0, sound, 4, yes(10, 6, 400*ms), "the store leaves 6"},
		{0, errsBefore, 1, degraded(yes(3, 1, 600*ms)), "2 of the 6 are this process's share"},
		{0, errsBefore, 2, degraded(no(3, 1, 300*ms, 600*ms)), "one of those 2 has been taken"},
		{0, sound, 2, yes(10, 4, 600*ms), "the store leaves 4"},
		{0, errsBefore, 0, degraded(yes(3, 1, 600*ms)), "1 of the 4 is the share, rounded down"},
		{0, errsAfter, 1, degraded(yes(3, 0, 900*ms)), "the store took the unit and failed: the share is charged all the same"},
		{0, errsBefore, 1, degraded(no(3, 0, 300*ms, 900*ms)), "nothing is left"},
		{0, sound, 0, yes(10, 3, 700*ms), "the store has been charged for that failure"},
		{0, errsBefore, 0, degraded(yes(3, 1, 600*ms)), "a look sets the share too"},
		{300 * ms, errsBefore, 2, degraded(yes(3, 0, 900*ms)), "the share refills at a third of the rate"},
		{sec, sound, 0, yes(10, 10, 0), "the store is full again"},
		{sec, errsBefore, 0, degraded(yes(3, 2, 200*ms)), "the share is 3, but 700 ms after the last grant of the policy, it has earned only 2"},
		{sec, sound, 10, yes(10, 0, sec), "the store is empty"},
		{sec, errsBefore, 1, degraded(no(3, 0, 300*ms, 900*ms)), "the share follows what the store says is left"},
		{1300 * ms, errsBefore, 1, degraded(yes(3, 0, 900*ms)), "one has been earned in 300 ms"},
		{1300 * ms, sound, 4, no(10, 3, 100*ms, 700*ms), "a denial by the store"},
		{1300 * ms, errsBefore, 1, degraded(yes(3, 0, 900*ms)), "a denial by the store sets the share as well"},
		{1300 * ms, loses, 1, yes(10, 9, 100*ms), "the store has lost its state, and answers as if new"},
		{1300 * ms, errsBefore, 2, degraded(no(3, 1, 300*ms, 600*ms)), "of the share of 3, the policy has granted 2 before"},
		{1300 * ms, errsBefore, 1, degraded(yes(3, 0, 900*ms)), "the third"},
		{1300 * ms, miscounts, 1, degraded(no(3, 0, 300*ms, 900*ms)), "too few answers are a failure"},
		{1300 * ms, overcounts, 1, degraded(no(3, 0, 300*ms, 900*ms)), "too many answers are a failure"},
	} {
		store.clock.Set(epoch.Add(row.at))
		store.do(row.f)
		res, err := l.Take(t.Context(), "key", row.n)
		require.Equal(t, row.want, res, "at %v: %s", row.at, row.why)
		if row.want.Degraded {
			require.ErrorIs(t, err, ratelimit.ErrStore, row.why)
		} else {
			require.NoError(t, err, row.why)
		}
	}
	store.do(errsBefore)
	require.Equal(t, degraded(yes(3, 2, 300*ms)), l.Allow("unknown"), "a key that the store was never asked about starts full")
}

// A flapping is a number of limiters that share a store, which fails and answers in turn.
type flapping struct {
	store *settlingStore
	rules []*ratelimit.RateLimiter
	when  []time.Duration // when each unit was granted by a policy, after the epoch
}

// newFlapping returns n limiters with the given rule and FailLocal(n).
func newFlapping(t *testing.T, n int, rule ratelimit.Rule) *flapping {
	t.Helper()
	f := &flapping{store: newSettlingStore(t, ratelimit.NewFakeClock(epoch))}
	rule.Name = "r"
	for range n {
		f.rules = append(f.rules, newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithClock(f.store.clock),
			ratelimit.WithStore(f.store), ratelimit.WithFailurePolicy(ratelimit.FailLocal(n))))
	}
	return f
}

// ask asks l for n units of the key.
func (f *flapping) ask(t *testing.T, l *ratelimit.RateLimiter, n int) ratelimit.Result {
	t.Helper()
	res, _ := l.Check(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"r"}, Cost: n})
	for range n {
		if res.Allowed && res.Degraded {
			f.when = append(f.when, f.store.clock.Now().Sub(epoch))
		}
	}
	return res
}

// outage makes the store fail until a policy has denied a unit in each limiter. Then each limiter gets an answer of
// the store, about a number of units that may remain in the store. It returns how many units the policies have granted.
func (f *flapping) outage(t *testing.T, n int) (granted int) {
	t.Helper()
	granted = -len(f.when)
	f.store.from(errsBefore)
	for _, l := range f.rules {
		for f.ask(t, l, 1).Allowed {
		}
	}
	f.store.from(sound)
	f.store.clock.Advance(sec) // each circuit breaker allows a call
	for _, l := range f.rules {
		require.False(t, f.ask(t, l, n).Degraded, "the store answers")
	}
	return granted + len(f.when)
}

// TestFailLocalGrantsTheLimitOnceMoreInAll has a store fail 60 times in a minute, while much less than a unit is earned.
// All processes together grant the limit once more, not once more for each outage.
func TestFailLocalGrantsTheLimitOnceMoreInAll(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, replicas := range []int{1, 3} {
			f := newFlapping(t, replicas, ratelimit.Rule{Algorithm: a.inRules(), Rate: ratelimit.Rate{Requests: 12, Per: 366 * 24 * time.Hour}})
			granted := 0
			for range 60 {
				granted += f.outage(t, 13) // more than the limit: the store denies it, and says that 12 remain
			}
			require.Equal(t, 12, granted, "%d replicas", replicas)
		}
	})
}

// TestFailLocalKeepsTheRateWhileTheStoreFlaps has a store fail and answer at random times. In every interval, the
// policies grant no more than the rule grants in an interval of that length.
func TestFailLocalKeepsTheRateWhileTheStoreFlaps(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for replicas := 1; replicas <= 3; replicas++ {
			rate := ratelimit.Rate{Requests: 6, Per: minute}
			f := newFlapping(t, replicas, ratelimit.Rule{Algorithm: a.inRules(), Rate: rate})
			for range 200 {
				f.store.clock.Advance(time.Duration(r.IntN(3)) * time.Duration(r.Int64N(int64(20*sec))))
				f.outage(t, r.IntN(8))
			}
			share := ratelimit.FailLocal(replicas).Share(rate, a.inRules().Windowed())
			for i := range f.when {
				for j := i; j < len(f.when); j++ {
					most := replicas * a.inRules().MaxIn(share, f.when[j]-f.when[i])
					require.LessOrEqual(t, j-i+1, most, "%d replicas, from %v to %v", replicas, f.when[i], f.when[j])
				}
			}
			require.Greater(t, len(f.when), 40, "%d replicas: the policies go on to grant what the rate allows", replicas)
		}
	})
}

// TestFailLocalKeepsItsOwnGrants proves what becomes of the units that a policy has granted when the store has answered
// since: settlements, a Reset and changes of the rate count, and denials by another rule or a custom limiter do not.
func TestFailLocalKeepsItsOwnGrants(t *testing.T) {
	day := ratelimit.Rate{Requests: 10, Per: 24 * time.Hour}
	// down returns what a policy grants in one more outage, one unit at a time.
	down := func(t *testing.T, f *flapping) int { return f.outage(t, 21) }
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		rule := ratelimit.Rule{Algorithm: a.inRules(), Rate: day}
		reserve := func(t *testing.T, f *flapping, n int) *ratelimit.Reservation {
			f.store.from(errsBefore)
			res, err := f.rules[0].Reserve(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"r"}, Cost: n}, time.Hour)
			require.ErrorIs(t, err, ratelimit.ErrStore)
			require.True(t, res.Result().Allowed)
			return res
		}
		t.Run("units of a reservation are given back after the store has answered", func(t *testing.T) {
			f := newFlapping(t, 1, rule)
			res := reserve(t, f, 7)
			require.Equal(t, 3, down(t, f))
			require.NoError(t, res.Settle(2))
			require.Equal(t, 5, down(t, f))
			require.Equal(t, uint64(5), f.rules[0].Stats()[0].GivenBack)
		})
		t.Run("units of a reservation are given back in the same outage", func(t *testing.T) {
			f := newFlapping(t, 1, rule)
			require.NoError(t, reserve(t, f, 7).Settle(2))
			require.Equal(t, 8, down(t, f))
		})
		t.Run("a reservation that has used more", func(t *testing.T) {
			f := newFlapping(t, 1, rule)
			res := reserve(t, f, 2)
			require.Equal(t, 8, down(t, f))
			f.store.clock.Advance(48 * time.Hour)
			require.NoError(t, res.Settle(6))
			require.Equal(t, 6, down(t, f), "4 more than reserved")
		})
		t.Run("a reset", func(t *testing.T) {
			f := newFlapping(t, 1, rule)
			require.Equal(t, 10, down(t, f))
			require.NoError(t, f.rules[0].Reset(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"r"}}))
			require.Equal(t, 10, down(t, f))
		})
		t.Run("a change of the rate", func(t *testing.T) {
			f := newFlapping(t, 1, rule)
			require.Equal(t, 10, down(t, f))
			require.NoError(t, f.rules[0].UpdateRate("r", ratelimit.Rate{Requests: 20, Per: 24 * time.Hour}))
			more := 10
			if !a.inRules().Windowed() {
				more = 0 // a larger burst gives no units to a key that has used some
			}
			require.Equal(t, more, down(t, f))
		})
		t.Run("another rule denies", func(t *testing.T) {
			f := newFlapping(t, 1, rule)
			other := rule
			other.Name, other.Rate.Requests = "other", 4
			require.NoError(t, f.rules[0].AddRule(other))
			f.store.from(errsBefore)
			granted := 0
			for range 20 {
				res, _ := f.rules[0].Check(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"r", "other"}})
				if res.Allowed {
					granted++
				}
			}
			require.Equal(t, 4, granted)
			require.Equal(t, 6, down(t, f), "of both rules are charged, or none")
		})
		t.Run("a custom limiter denies", func(t *testing.T) {
			f := newFlapping(t, 1, rule)
			f.store.from(errsBefore)
			require.NoError(t, f.rules[0].AddRule(ratelimit.Rule{Name: "custom", Limiter: answering(no(1, 0, minute, minute), nil)}))
			for range 20 {
				res, _ := f.rules[0].Check(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"r", "custom"}})
				require.False(t, res.Allowed)
			}
			require.Equal(t, 10, down(t, f))
		})
	})
	t.Run("a key that has the full limit is not new to the policy", func(t *testing.T) {
		rule := ratelimit.Rule{Rate: ratelimit.PerMinute(10), Warmup: ratelimit.Warmup{From: 2, Over: time.Hour}}
		f := newFlapping(t, 1, rule)
		require.Equal(t, 2, down(t, f), "new")
		for range 40 {
			f.store.clock.Advance(2 * minute)
			require.True(t, f.ask(t, f.rules[0], 1).Allowed)
		}
		f.store.clock.Advance(minute)
		require.Equal(t, 10, down(t, f), "the store says that it has the full limit")
	})
}

// TestFailLocalRoundsDown proves that the local share is the number of units left divided by the
// replicas, rounded down.
func TestFailLocalRoundsDown(t *testing.T) {
	const limit = 9
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for replicas := 1; replicas <= limit+1; replicas++ {
			for used := 0; used <= limit; used++ {
				store := newFaultyStore(t, ratelimit.NewFakeClock(epoch.Add(20*sec)))
				l := a.start(t, ratelimit.PerMinute(limit), ratelimit.WithClock(store.clock), ratelimit.WithStore(store),
					ratelimit.WithName("n"), ratelimit.WithFailurePolicy(ratelimit.FailLocal(replicas)))
				take(t, l, "key", used)
				store.do(errsBefore)
				want := (limit - used) / replicas
				look := l.Peek("key")
				require.Equal(t, want, look.Remaining, "%d of %d left, for each of %d", limit-used, limit, replicas)
				require.Equal(t, max(limit/replicas, 1), look.Limit)
			}
		}
	})
}

// TestPoliciesOfOneDecision proves what a request gets if its rules have different failure
// policies.
func TestPoliciesOfOneDecision(t *testing.T) {
	local, open, closed := ratelimit.FailLocal(2), ratelimit.FailOpen, ratelimit.FailClosed
	for _, row := range []struct {
		first, second ratelimit.FailurePolicy
		cost          int
		want          ratelimit.Result
		left          [2]int // left in each rule's share afterwards; -1 where it has no share
		why           string
	}{
		{local, local, 2, by("second", yes(4, 2, minute)), [2]int{3, 2}, "both shares have the units: both are charged"},
		{local, local, 5, by("second", no(4, 4, ratelimit.Never, 0)), [2]int{5, 4}, "one share never has them: neither is charged"},
		{local, open, 2, by("first", yes(5, 3, minute)), [2]int{3, -1}, "a rule that fails open leaves the answer to the other"},
		{open, local, 2, by("second", yes(4, 2, minute)), [2]int{-1, 2}, "whatever the order"},
		{local, closed, 2, by("second", no(8, 0, sec, sec)), [2]int{5, -1},
			"a rule that fails closed denies, and the other's share is not charged"},
		{closed, local, 2, by("first", no(10, 0, sec, sec)), [2]int{-1, 4}, "whatever the order"},
		{closed, local, 5, by("second", no(4, 0, ratelimit.Never, 0)), [2]int{-1, 4}, "the denial with Never binds"},
		{open, open, 100, by("first", unlimited), [2]int{-1, -1}, "no rule limits"},
		{open, closed, 1, by("second", no(8, 0, sec, sec)), [2]int{-1, -1}, "one rule that denies is enough"},
	} {
		store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
		store.from(errsBefore)
		rules := []ratelimit.Rule{
			{Name: "first", Endpoint: "/e", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(10), OnStoreError: row.first},
			{Name: "second", Endpoint: "/e", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(8), OnStoreError: row.second},
		}
		l := newRules(t, rules, nil, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
		res, err := l.Check(t.Context(), ratelimit.Request{Endpoint: "/e", Cost: row.cost})
		require.ErrorIs(t, err, ratelimit.ErrStore, row.why)
		require.Equal(t, degraded(row.want), res, row.why)
		require.Equal(t, 1, store.called(), row.why)
		for i, policy := range []ratelimit.FailurePolicy{row.first, row.second} {
			if policy == local {
				res, _ := l.Peek(t.Context(), ratelimit.Request{Rules: []string{rules[i].Name}})
				require.Equal(t, row.left[i], res.Remaining, "%s: rule %d", row.why, i)
			}
		}
	}
}

// TestEndedContextIsNoStoreFailure proves that a caller whose context ends gets the error of its
// context, which does not count as a failure of the store.
func TestEndedContextIsNoStoreFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore(t, nil)
		var seen []ratelimit.Decision
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(5)}, ratelimit.WithStore(store),
			ratelimit.WithObserver(observing(func(d ratelimit.Decision) { seen = append(seen, d) })))
		store.from(hangs)
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
			want := context.DeadlineExceeded
			if i%2 == 0 {
				want = context.Canceled
				time.AfterFunc(ms, cancel)
			}
			ask := l.Check
			if i%4 < 2 {
				ask = l.Peek
			}
			res, err := ask(ctx, ratelimit.Request{})
			require.Equal(t, want, err, "the context's own error")
			require.Equal(t, ratelimit.Result{}, res)
			cancel()
		}
		require.Equal(t, 20, store.called(), "every call reaches the store: the breaker counts none of these as a failure")
		require.Empty(t, seen, "no decision was made")
		require.Equal(t, []ratelimit.RuleStats{{Rule: "default"}}, l.Stats())
		store.from(sound)
		res, err := l.Check(t.Context(), ratelimit.Request{})
		require.NoError(t, err)
		require.Equal(t, 4, res.Remaining, "nothing was taken from the store")

		store.from(errsBefore)
		res, err = l.Peek(t.Context(), ratelimit.Request{})
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.Equal(t, 4, res.Remaining, "nothing was taken from the local share")
	})
}

// TestInvalidRateWhileTheStoreFails proves that an invalid resolved rate and a failing
// store are both reported.
func TestInvalidRateWhileTheStoreFails(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	store.from(errsBefore)
	for _, policy := range []ratelimit.FailurePolicy{ratelimit.FailLocal(1), ratelimit.FailOpen, ratelimit.FailClosed} {
		l := newRules(t, nil, &ratelimit.Rule{
			Rate: ratelimit.PerMinute(5), OnStoreError: policy,
			Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.Rate{}, true },
		}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
		_, err := l.Check(t.Context(), ratelimit.Request{})
		assert.ErrorIs(t, err, ratelimit.ErrStore, policy)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%v: both problems are reported", policy)
	}
}

// TestStoreThatPanics proves that the panic of a store reaches the caller and counts as a failure,
// and that no lock stays held.
func TestStoreThatPanics(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(5)}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	store.from(panics)
	for range 5 {
		require.PanicsWithValue(t, errFault, func() { l.Allow("c", "") }, "the panic reaches the caller")
	}
	require.Equal(t, 5, store.called())
	require.Equal(t, by("default", degraded(yes(5, 4, 12*sec))), l.Allow("c", ""),
		"after five panics, which are failures, the store is left alone")
	require.Zero(t, store.called())
	store.from(sound)
	store.clock.Advance(sec)
	res, err := l.Check(t.Context(), ratelimit.Request{Client: "c"})
	require.NoError(t, err, "nothing is left locked")
	require.Equal(t, by("default", yes(5, 4, 12*sec)), res)
}

// TestInvalidResolvedRateFallsBackToTheTier proves that, while a store is down, a request whose
// resolved rate is invalid gets the local share of the rate of its tier.
func TestInvalidResolvedRateFallsBackToTheTier(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	store.from(errsBefore)
	l := newRules(t, nil, &ratelimit.Rule{
		Rate:    ratelimit.PerSecond(5),
		Tiers:   map[string]ratelimit.Rate{"paid": ratelimit.PerSecond(50)},
		Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerSecond(-1), true },
	}, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Tier: "paid"})
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.Equal(t, 50, res.Limit)
}

// TestFailLocalShare proves which rate each of several replicas grants while the store fails.
func TestFailLocalShare(t *testing.T) {
	const year = 366 * 24 * time.Hour
	rate := func(n int, per time.Duration, burst int) ratelimit.Rate {
		return ratelimit.Rate{Requests: n, Per: per, Burst: burst}
	}
	for _, tt := range []struct {
		rate     ratelimit.Rate
		replicas int
		windowed bool
		want     ratelimit.Rate
		why      string
	}{
		{ratelimit.PerSecond(10), 1, false, rate(10, time.Second, 10), "all of it"},
		{ratelimit.PerSecond(10), 3, false, rate(10, 3*time.Second, 3), "the refill is exact, the burst rounded down"},
		{ratelimit.PerSecond(12), 4, false, rate(3, time.Second, 3), "in the smallest numbers"},
		{ratelimit.PerSecond(12).WithBurst(2), 8, false, rate(3, 2*time.Second, 1), "at least one at once"},
		{ratelimit.PerMinute(10), 3, true, ratelimit.Rate{Requests: 3, Per: time.Minute}, "a window keeps its length"},
		{ratelimit.PerMinute(2), 3, true, ratelimit.Rate{Requests: 1, Per: time.Minute}, "and at least one"},
		{rate(1, year, 1000), 291, false, rate(1, 291*year, 3), "as long as a Duration holds"},
		{rate(1, year, 1000), 1000, false, rate(1, math.MaxInt64, 1), "longer is as long as that"},
	} {
		assert.Equal(t, tt.want, ratelimit.FailLocal(tt.replicas).Share(tt.rate, tt.windowed), tt.why)
	}
}

// TestFailLocalShareIsRoundedDown proves that the rounded share of a replica is the largest one that a Rate
// can express which is not more than the exact share.
func TestFailLocalShareIsRoundedDown(t *testing.T) {
	for _, requests := range []int{2, 3, 1000, math.MaxInt32} {
		for _, per := range []time.Duration{366 * 24 * time.Hour, math.MaxInt64} {
			for _, replicas := range []int{2, 293, 1000, 99_991, math.MaxInt32} {
				rate := ratelimit.Rate{Requests: requests, Per: per}
				share := ratelimit.FailLocal(replicas).Share(rate, false)
				require.NoError(t, share.Validate())
				got := big.NewRat(int64(share.Requests), int64(share.Per))
				want := big.NewRat(int64(requests), int64(per))
				want.Quo(want, big.NewRat(int64(replicas), 1))
				slowest := big.NewRat(1, math.MaxInt64) // the slowest Rate; the exact share may be less
				if want.Cmp(slowest) < 0 {
					want = slowest
				}
				assert.LessOrEqual(t, got.Cmp(want), 0, "%v of %d: %v", rate, replicas, share)
				next := big.NewRat(int64(share.Requests)+1, int64(share.Per))
				assert.Positive(t, next.Cmp(want), "%v of %d: %v is not the nearest", rate, replicas, share)
			}
		}
	}
}
