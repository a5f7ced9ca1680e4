package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// penalized returns an ask for n units of a key with a limit of one unit an hour, which is blocked for ten seconds after
// three denials in a minute.
func penalized(n int) ratelimit.Ask {
	a := ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerHour(1), n)
	a.Penalty = ratelimit.Penalty{After: 3, Within: time.Minute, For: 10 * time.Second}
	return a
}

// A penalTest has a store with a clock that is set by hand, which shows a full hour at first.
type penalTest struct {
	*redisstore.Store
	t      *testing.T
	client *redis.Client
	clock  *ratelimit.FakeClock
}

func newPenalTest(t *testing.T, opts ...redisstore.Option) *penalTest {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	opts = append([]redisstore.Option{redisstore.WithClock(clock), redisstore.WithDenialCache(0)}, opts...)
	return &penalTest{newStore(t, client, opts...), t, client, clock}
}

// deny requires that the ask is denied, and returns whether it is by a block.
func (p *penalTest) deny(a ratelimit.Ask) (blocked bool) {
	p.t.Helper()
	res := take(p.t, p.Store, a)
	require.False(p.t, res.Allowed)
	return res.Reason == ratelimit.ReasonPenalty
}

// block makes n asks, of which only the last one may begin a block, and does begin one.
func (p *penalTest) block(a ratelimit.Ask, n int) {
	p.t.Helper()
	for i := range n {
		blocked := p.deny(a)
		require.Equal(p.t, i == n-1, blocked, "denial %d", i+1)
	}
}

// TestPenalty blocks a key at its third denial, for the time that the Penalty says and not longer.
func TestPenalty(t *testing.T) {
	p := newPenalTest(t)
	a := penalized(1)
	a.Rate = ratelimit.Rate{Requests: 1, Per: 2 * time.Second}
	require.True(t, take(t, p.Store, a).Allowed)
	p.clock.Advance(time.Second)
	denied := denial(1, 0, time.Second, time.Second)
	require.Equal(t, denied, take(t, p.Store, a))
	require.Equal(t, denied, take(t, p.Store, a))
	blocked := ratelimit.Result{Limit: 1, RetryAfter: 10 * time.Second, ResetAfter: 10 * time.Second, Reason: ratelimit.ReasonPenalty}
	require.Equal(t, blocked, take(t, p.Store, a), "the third denial begins a block")
	p.clock.Advance(10*time.Second - time.Microsecond)
	blocked.RetryAfter, blocked.ResetAfter = time.Microsecond, time.Microsecond
	require.Equal(t, blocked, take(t, p.Store, a), "the rule would grant the request, and asking again prolongs nothing")
	a.Look = true
	require.Equal(t, blocked, take(t, p.Store, a), "a look shows the block too")
	a.Look = false
	p.clock.Advance(time.Microsecond)
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 1, ResetAfter: time.Second}, take(t, p.Store, a), "the block is over")
	p.block(a, 3)
}

// TestPenaltyWaits requires that a blocked request is told the longer of two times: the rest of the block, and that of
// the rule.
func TestPenaltyWaits(t *testing.T) {
	p := newPenalTest(t)
	require.True(t, take(t, p.Store, penalized(1)).Allowed)
	p.block(penalized(1), 3)
	res := take(t, p.Store, penalized(1))
	assert.Equal(t, ratelimit.Result{Limit: 1, RetryAfter: time.Hour, ResetAfter: time.Hour, Reason: ratelimit.ReasonPenalty}, res)
	assert.Equal(t, ratelimit.Never, take(t, p.Store, penalized(2)).RetryAfter, "two units never fit")
	p.clock.Advance(10*time.Second - time.Microsecond)
	blocked := p.deny(penalized(1))
	assert.True(t, blocked)
	p.clock.Advance(time.Microsecond)
	res = take(t, p.Store, penalized(1))
	assert.Equal(t, ratelimit.ReasonLimit, res.Reason)
	assert.Equal(t, time.Hour-10*time.Second, res.RetryAfter)
	p.block(penalized(1), 2)
}

// TestPenaltyWithin requires that strikes count together only within a time that the first of them begins.
func TestPenaltyWithin(t *testing.T) {
	p := newPenalTest(t)
	require.True(t, take(t, p.Store, penalized(1)).Allowed)
	strike := func(want bool, why string) {
		t.Helper()
		blocked := p.deny(penalized(1))
		require.Equal(t, want, blocked, why)
	}
	strike(false, "the first strike")
	p.clock.Advance(time.Minute - time.Microsecond)
	strike(false, "the second one")
	p.clock.Advance(time.Microsecond)
	strike(false, "the minute is over: this is the first strike of the next one")
	p.clock.Advance(time.Minute - time.Microsecond)
	strike(false, "the second one")
	strike(true, "the third one, in the last microsecond of the minute")
}

// TestPenaltyGrows requires that a block soon after another one is twice as long, up to Most.
func TestPenaltyGrows(t *testing.T) {
	p := newPenalTest(t)
	a := penalized(1)
	a.Rate = ratelimit.PerDay(1)
	a.Penalty = ratelimit.Penalty{After: 1, Within: time.Second, For: 10 * time.Second, Most: 35 * time.Second}
	require.True(t, take(t, p.Store, a).Allowed)
	block := func(lasts time.Duration, why string) {
		t.Helper()
		p.block(a, 1)
		p.clock.Advance(lasts - time.Microsecond)
		blocked := p.deny(a)
		require.True(t, blocked, why)
		p.clock.Advance(time.Microsecond)
		look := a
		look.Look = true
		blocked = p.deny(look)
		require.False(t, blocked, why)
	}
	block(10*time.Second, "the first one")
	block(20*time.Second, "twice as long, at once after the first one")
	p.clock.Advance(35*time.Second - time.Microsecond)
	block(35*time.Second, "no longer than Most")
	block(35*time.Second, "nor longer than that")
	p.clock.Advance(35 * time.Second)
	block(10*time.Second, "Most after the last block it is forgotten")
	a.Penalty.Most = 0
	block(10*time.Second, "without Most all blocks are of the same length")
	block(10*time.Second, "without Most all blocks are of the same length")
}

// TestNoStrike requires that only some denials are strikes.
func TestNoStrike(t *testing.T) {
	p := newPenalTest(t)
	require.True(t, take(t, p.Store, penalized(1)).Allowed)
	for name, change := range map[string]func(a *ratelimit.Ask){
		"NoStrike":   func(a *ratelimit.Ask) { a.NoStrike = true },
		"a look":     func(a *ratelimit.Ask) { a.Look = true },
		"a shadow":   func(a *ratelimit.Ask) { a.Shadow = true },
		"N of 0":     func(a *ratelimit.Ask) { a.N = 0 },
		"no Penalty": func(a *ratelimit.Ask) { a.Penalty = ratelimit.Penalty{} },
	} {
		held := dump(t, p.client)
		for range 4 {
			a := penalized(1)
			change(&a)
			blocked := p.deny(a)
			require.False(t, blocked, name)
		}
		require.Equal(t, held, dump(t, p.client), "%s writes nothing", name)
	}
	p.block(penalized(1), 3)
	held := dump(t, p.client)
	for range 3 {
		p.deny(penalized(1))
	}
	require.Equal(t, held, dump(t, p.client), "while a key is blocked, nothing is a strike")
}

// TestBlockChargesNothing requires that a block of one ask keeps all asks of the call from being charged, and that an ask
// which alone would be granted is not struck.
func TestBlockChargesNothing(t *testing.T) {
	for _, algorithm := range all {
		p := newPenalTest(t)
		other := ratelimit.Ask{Rule: "other", Key: "a", Client: "a", Algorithm: algorithm, Rate: ratelimit.PerHour(3), N: 1}
		other.Penalty = ratelimit.Penalty{After: 1, Within: time.Hour, For: time.Hour}
		both := func(a ratelimit.Ask) []ratelimit.Result {
			results, err := p.Take(t.Context(), []ratelimit.Ask{a, other})
			require.NoError(t, err)
			return results
		}
		a := penalized(1)
		a.Algorithm, a.Rate = algorithm, ratelimit.Rate{Requests: 1, Per: 2 * time.Second}
		require.True(t, both(a)[1].Allowed)
		for i := range 5 {
			results := both(a)
			require.False(t, results[0].Allowed)
			require.Equal(t, i >= 2, results[0].Reason == ratelimit.ReasonPenalty, "%s, denial %d", algorithm, i+1)
			require.True(t, results[1].Allowed, "%s: alone it would be granted", algorithm)
			require.Equal(t, 2, results[1].Remaining, "%s: and it is not charged", algorithm)
		}
		p.clock.Advance(5 * time.Second)
		require.Equal(t, ratelimit.ReasonPenalty, both(a)[0].Reason, "the rule would grant it")
		shadow := a
		shadow.Shadow = true
		results := both(shadow)
		require.True(t, results[0].Allowed, "%s: a rule in shadow has no Penalty", algorithm)
		require.True(t, results[1].Allowed, algorithm)
		require.Equal(t, 1, results[1].Remaining, algorithm)
		require.Equal(t, ratelimit.ReasonPenalty, take(t, p.Store, a).Reason, "%s: but the block is still there", algorithm)
		p.clock.Advance(5 * time.Second)
		results = both(a)
		require.True(t, results[0].Allowed, "%s: the block is over", algorithm)
		require.Equal(t, 0, results[0].Remaining, algorithm)
	}
}

// TestResetAndPardon requires that both forget the strikes and the block, and that only a Reset gives units back.
func TestResetAndPardon(t *testing.T) {
	p := newPenalTest(t, redisstore.WithDenialCache(time.Hour))
	a := penalized(1)
	a.Penalty.Most = time.Hour
	require.True(t, take(t, p.Store, a).Allowed)
	p.block(a, 3)
	require.NoError(t, p.Pardon(t.Context(), []ratelimit.Ask{a}))
	p.block(a, 3)
	rest, err := p.client.Get(t.Context(), p.KeyOf(a)+";p").Result()
	require.NoError(t, err)
	require.Equal(t, "1772323200000000 0 1772323210000000 10000000", rest, "the block is not twice as long")
	p.deny(a)
	require.NoError(t, p.Reset(t.Context(), []ratelimit.Ask{a}))
	require.True(t, take(t, p.Store, a).Allowed)
	p.block(a, 3)
	require.NoError(t, p.Pardon(t.Context(), nil))
	assert.ErrorIs(t, p.Pardon(t.Context(), []ratelimit.Ask{{}}), ratelimit.ErrInvalidConfig)
	assert.ErrorIs(t, (*redisstore.Store)(nil).Pardon(t.Context(), nil), ratelimit.ErrInvalidConfig)
}

// TestPenaltyAccepted checks which Penalties a Store accepts.
func TestPenaltyAccepted(t *testing.T) {
	s := nowhere(t)
	valid := ratelimit.Penalty{After: 1, Within: time.Microsecond, For: time.Microsecond, Most: time.Microsecond}
	day := 24 * time.Hour
	for _, row := range []struct {
		change func(p *ratelimit.Penalty)
		says   string
	}{
		{func(*ratelimit.Penalty) {}, ""},
		{func(p *ratelimit.Penalty) { p.Within, p.For, p.Most = 366*day, 366*day, 366*day }, ""},
		{func(p *ratelimit.Penalty) { p.Most = 0 }, ""},
		{func(p *ratelimit.Penalty) { p.After = 0 }, "penalty.after"},
		{func(p *ratelimit.Penalty) { p.After = -1 }, "penalty.after"},
		{func(p *ratelimit.Penalty) { p.Within = 0 }, "penalty.within"},
		{func(p *ratelimit.Penalty) { p.Within = 366*day + time.Microsecond }, "penalty.within"},
		{func(p *ratelimit.Penalty) { p.For, p.Most = 999, 0 }, "penalty.for"},
		{func(p *ratelimit.Penalty) { p.For, p.Most = 1500, 0 }, "whole microseconds"},
		{func(p *ratelimit.Penalty) { p.For = 2 * time.Microsecond }, "penalty.most"},
		{func(p *ratelimit.Penalty) { p.Most = 366*day + time.Microsecond }, "penalty.most"},
		{func(p *ratelimit.Penalty) { p.Most = -1 }, "penalty.most"},
	} {
		a := penalized(1)
		a.Penalty = valid
		row.change(&a.Penalty)
		_, failed := s.Take(t.Context(), []ratelimit.Ask{a})
		if err := s.Accepts(a); row.says == "" {
			assert.NoError(t, err)
			assert.ErrorIs(t, failed, ratelimit.ErrStore, "the store is not there")
		} else {
			assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			assert.ErrorContains(t, err, row.says)
			assert.ErrorIs(t, failed, ratelimit.ErrInvalidConfig)
		}
	}
	held := ask(ratelimit.AlgorithmInFlight, ratelimit.PerHour(1), 1)
	require.NoError(t, s.Accepts(held))
	held.Penalty = valid
	require.ErrorContains(t, s.Accepts(held), "penalty")
	require.ErrorIs(t, s.Accepts(held), ratelimit.ErrInvalidConfig)
}

// TestPenaltyKept requires that the server keeps strikes and blocks for as long as they matter, and no longer.
func TestPenaltyKept(t *testing.T) {
	client := startReal(t).client(t)
	store := newStore(t, client, redisstore.WithDenialCache(0))
	a := penalized(1)
	a.Penalty = ratelimit.Penalty{After: 2, Within: 100 * time.Second, For: 20 * time.Second}
	lasts := func(want time.Duration) {
		t.Helper()
		ttl, err := client.PTTL(t.Context(), store.KeyOf(a)+";p").Result()
		require.NoError(t, err)
		assert.LessOrEqual(t, ttl, want+2*time.Second, "a second longer than needed, and a millisecond for rounding")
		assert.Greater(t, ttl, want-20*time.Second, "a busy machine may take some seconds")
	}
	require.True(t, take(t, store, a).Allowed)
	require.Zero(t, client.Exists(t.Context(), store.KeyOf(a)+";p").Val(), "a grant writes nothing")
	require.False(t, take(t, store, a).Allowed)
	lasts(100 * time.Second)
	require.False(t, take(t, store, a).Allowed)
	lasts(20 * time.Second)
	require.NoError(t, store.Pardon(context.Background(), []ratelimit.Ask{a}))
	a.Penalty.Most = 500 * time.Second
	take(t, store, a)
	lasts(100 * time.Second)
	take(t, store, a)
	lasts(520 * time.Second)
}

// TestPenaltyOfForeignValue requires that a value that is no Penalty is an error, and is not overwritten.
func TestPenaltyOfForeignValue(t *testing.T) {
	p := newPenalTest(t)
	name := p.KeyOf(penalized(1)) + ";p"
	require.NoError(t, p.client.Set(t.Context(), name, "other", 0).Err())
	_, err := p.Take(t.Context(), []ratelimit.Ask{penalized(1)})
	var failed *redisstore.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, redisstore.ClassCorrupt, failed.Class)
	assert.Equal(t, "other", p.client.Get(t.Context(), name).Val())
	require.NoError(t, p.Reset(t.Context(), []ratelimit.Ask{penalized(1)}))
	require.True(t, take(t, p.Store, penalized(1)).Allowed)
}

// TestStrikeWithoutMemory requires that a denial stays a denial if the server has no memory for its strike.
func TestStrikeWithoutMemory(t *testing.T) {
	p := newPenalTest(t)
	require.True(t, take(t, p.Store, penalized(1)).Allowed)
	require.NoError(t, p.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	once := penalized(1)
	once.Penalty.After = 1
	for range 4 {
		blocked := p.deny(once)
		require.False(t, blocked)
	}
	require.NoError(t, p.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	p.block(penalized(1), 3)
}

// TestClockStepsBackPenalty requires that strikes count on while a clock that was set back catches up, and that a block
// far ahead is moved to now.
func TestClockStepsBackPenalty(t *testing.T) {
	p := newPenalTest(t)
	require.True(t, take(t, p.Store, penalized(1)).Allowed)
	p.deny(penalized(1))
	p.clock.Advance(-10 * time.Minute)
	p.block(penalized(1), 2)
	p.clock.Advance(10*time.Minute + 10*time.Second - time.Microsecond)
	blocked := p.deny(penalized(1))
	require.True(t, blocked, "the block lasts from the first strike, which is the latest time that is known")
	p.clock.Advance(time.Microsecond)
	blocked = p.deny(penalized(1))
	require.False(t, blocked)

	p = newPenalTest(t, redisstore.WithHealing())
	require.True(t, take(t, p.Store, penalized(1)).Allowed)
	p.deny(penalized(1))
	p.clock.Advance(-2*time.Minute - time.Microsecond)
	blocked = p.deny(penalized(1))
	require.False(t, blocked)
	p.clock.Advance(time.Minute)
	p.block(penalized(1), 3)
	p.clock.Advance(-time.Hour)
	held := dump(t, p.client)
	look := penalized(1)
	look.Look = true
	blocked = p.deny(look)
	require.True(t, blocked)
	require.Equal(t, held, dump(t, p.client), "a look moves nothing")
	blocked = p.deny(penalized(1))
	require.True(t, blocked)
	p.clock.Advance(10*time.Second - time.Microsecond)
	blocked = p.deny(penalized(1))
	require.True(t, blocked, "the block was moved")
	p.clock.Advance(time.Microsecond)
	blocked = p.deny(penalized(1))
	require.False(t, blocked, "and is over")
}

// TestBlockCached requires that the denial cache answers for a key with a Penalty only while it is blocked.
func TestBlockCached(t *testing.T) {
	p := newPenalTest(t, redisstore.WithDenialCache(time.Hour))
	a := penalized(1)
	require.True(t, take(t, p.Store, a).Allowed)
	denied := func() bool {
		res, denied := p.Denied(a)
		if denied {
			assert.Equal(t, ratelimit.ReasonPenalty, res.Reason)
			assert.Equal(t, take(t, p.Store, a), res)
		}
		return denied
	}
	for range 2 {
		p.deny(a)
		require.False(t, denied(), "the next denial must be counted")
	}
	p.block(a, 1)
	calls := p.Stats().Calls
	require.True(t, denied())
	p.clock.Advance(10*time.Second - time.Microsecond)
	require.True(t, denied())
	res, _ := p.Denied(a)
	require.Equal(t, time.Hour-10*time.Second+time.Microsecond, res.RetryAfter)
	two := a
	two.N = 2
	_, known := p.Denied(two)
	require.False(t, known, "how long two units must wait is not known")
	two.N, two.Penalty = 1, ratelimit.Penalty{}
	_, known = p.Denied(two)
	require.False(t, known, "without a Penalty the block does not count")
	require.Equal(t, calls, p.Stats().Calls)
	p.clock.Advance(time.Microsecond)
	require.False(t, denied(), "the block is over, and the next denial must be counted")
	p.block(a, 3)
	require.True(t, denied())
	require.NoError(t, p.Pardon(t.Context(), []ratelimit.Ask{a}))
	require.False(t, denied())
	p.block(a, 3)
	require.NoError(t, p.Reset(t.Context(), []ratelimit.Ask{a}))
	require.False(t, denied())
	require.True(t, take(t, p.Store, a).Allowed)

	warm := a
	warm.Warmup = ratelimit.Warmup{From: 1, Over: time.Hour}
	require.True(t, take(t, p.Store, warm).Allowed)
	p.block(warm, 3)
	calls = p.Stats().Calls
	p.block(warm, 1)
	require.Equal(t, calls, p.Stats().Calls)
	require.False(t, denied(), "a key that warms up is another one")
}

// TestPenaltyOf1970 requires that the first block is no continuation of one that ended when the clock began.
func TestPenaltyOf1970(t *testing.T) {
	p := newPenalTest(t)
	p.clock.Set(time.Unix(100, 0))
	a := penalized(1)
	a.Penalty.After, a.Penalty.Most = 1, time.Hour
	require.True(t, take(t, p.Store, a).Allowed)
	p.block(a, 1)
	p.clock.Advance(10*time.Second - time.Microsecond)
	blocked := p.deny(a)
	require.True(t, blocked)
}
