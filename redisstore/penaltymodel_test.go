package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// A convict is the model of the strikes and the block of one key.
type convict struct {
	start, until time.Time
	count        int
	last         time.Duration
}

// rest returns how long c is still blocked.
func (c *convict) rest(now time.Time) time.Duration { return max(c.until.Sub(now), 0) }

// strike counts a denial of c, which is not blocked.
func (c *convict) strike(p ratelimit.Penalty, now time.Time) {
	if c.count == 0 || !now.Before(c.start.Add(p.Within)) {
		c.start, c.count = now, 0
	}
	if c.count++; c.count < p.After {
		return
	}
	if now.Before(c.start) { // the clock was set back
		now = c.start
	}
	d := p.For
	if p.Most > 0 && c.last > 0 && now.Sub(c.until) < p.Most {
		d = min(2*c.last, p.Most)
	}
	c.until, c.last, c.count = now.Add(d), d, 0
}

// A penalModel is the model of a Store with Penalties. The answers of the rules are those of a MemoryStore, which gets asks
// without Penalties.
type penalModel struct {
	rules    *ratelimit.MemoryStore
	clock    *ratelimit.FakeClock
	convicts map[string]*convict
}

func (m *penalModel) convict(a *ratelimit.Ask) *convict {
	c := m.convicts[a.Rule]
	if c == nil {
		c = new(convict)
		m.convicts[a.Rule] = c
	}
	return c
}

// never is an ask that is always denied, so that the other asks of its call are not charged.
var never = ratelimit.Ask{Rule: "never", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(1), N: 2}

// free returns a copy of the asks without Penalties, and whether a block denies the request.
func (m *penalModel) free(asks []ratelimit.Ask) (free []ratelimit.Ask, denied bool) {
	for _, a := range asks {
		denied = denied || a.Penalty.After > 0 && !a.Shadow && m.convict(&a).rest(m.clock.Now()) > 0
		a.Penalty, a.NoStrike = ratelimit.Penalty{}, false
		free = append(free, a)
	}
	return free, denied
}

// take decides on the asks. once is the request, or nil if it has no ID.
func (m *penalModel) take(
	ctx context.Context, once *ratelimit.Attempt, asks []ratelimit.Ask,
) (results []ratelimit.Result, replayed bool, err error) {
	free, denied := m.free(asks)
	if once != nil {
		look := *once
		look.Look = true
		if _, replayed, err = m.rules.Once(ctx, look, free); err != nil || replayed {
			return m.rules.Once(ctx, *once, free)
		}
	}
	switch {
	case denied:
		uncharged := never
		uncharged.Look = asks[0].Look
		if results, err = m.rules.Take(ctx, append([]ratelimit.Ask{uncharged}, free...)); err == nil {
			results = results[1:]
		}
	case once != nil:
		results, _, err = m.rules.Once(ctx, *once, free)
	default:
		results, err = m.rules.Take(ctx, free)
	}
	if err != nil {
		return nil, false, err
	}
	for i := range asks {
		m.judge(&asks[i], &results[i])
	}
	return results, false, nil
}

// judge changes the answer of a rule to that of the rule with its Penalty.
func (m *penalModel) judge(a *ratelimit.Ask, res *ratelimit.Result) {
	if a.Penalty.After == 0 || a.Shadow {
		return
	}
	c, now := m.convict(a), m.clock.Now()
	if c.rest(now) == 0 && !res.Allowed && !a.NoStrike && !a.Look && a.N > 0 {
		c.strike(a.Penalty, now)
	}
	if rest := c.rest(now); rest > 0 {
		*res = ratelimit.Result{
			Limit: res.Limit, RetryAfter: max(rest, res.RetryAfter), ResetAfter: max(rest, res.ResetAfter), Reason: ratelimit.ReasonPenalty,
		}
	}
}

// A penalRun plays random schedules on a store, on a MemoryStore, and on the model.
type penalRun struct {
	store  *redisstore.Store
	memory *ratelimit.MemoryStore
	model  *penalModel
	rand   *rand.Rand
	asks   []ratelimit.Ask // one for each state
	ids    int
	seen   map[string]int // how often each event has happened
}

// newPenalRun returns a run with five states, in several slots of a Cluster, whose names contain the number.
func newPenalRun(t *testing.T, client redis.UniversalClient, number int, seen map[string]int, opts ...redisstore.Option) *penalRun {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	rules, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	r := &penalRun{
		store:  newStore(t, client, append(opts, redisstore.WithClock(clock))...),
		memory: memory,
		model:  &penalModel{rules, clock, make(map[string]*convict)},
		rand:   rand.New(rand.NewPCG(uint64(number), 23)), seen: seen,
	}
	for i, a := range all {
		name := fmt.Sprintf("%d-%d", number, i)
		u := ratelimit.Ask{
			Rule: name, Key: name, Client: strconv.Itoa(number) + "-" + strconv.Itoa(i%3), Algorithm: a,
			Rate: ratelimit.Rate{Requests: 2, Per: 4 * time.Second},
		}
		if r.rand.IntN(3) == 0 {
			u.Rate.Requests = 1
		}
		u.Penalty = ratelimit.Penalty{After: 1 + r.rand.IntN(3), Within: r.upTo(8), For: r.upTo(8)}
		if r.rand.IntN(2) == 0 {
			u.Penalty.Most = u.Penalty.For + r.upTo(30)
		}
		if i == 4 {
			u.Penalty = ratelimit.Penalty{}
		}
		r.asks = append(r.asks, u)
	}
	return r
}

// upTo returns a random duration of up to so many seconds, often a whole number of them.
func (r *penalRun) upTo(seconds int) time.Duration {
	d := time.Duration(1+r.rand.IntN(seconds)) * time.Second
	if r.rand.IntN(3) == 0 {
		d -= time.Duration(r.rand.IntN(1_000_000)) * time.Microsecond
	}
	return d
}

// some returns random asks for some of the states.
func (r *penalRun) some() []ratelimit.Ask {
	var asks []ratelimit.Ask
	look := r.rand.IntN(6) == 0
	for _, i := range r.rand.Perm(len(r.asks))[:1+r.rand.IntN(3)*r.rand.IntN(2)] {
		a := r.asks[i]
		a.N, a.Look = 1+r.rand.IntN(8)/7-r.rand.IntN(10)/9, look
		a.Shadow, a.NoStrike = r.rand.IntN(8) == 0, r.rand.IntN(8) == 0
		asks = append(asks, a)
	}
	return asks
}

// advance moves the clock, often to the first or the last microsecond of something.
func (r *penalRun) advance() {
	now, c := r.model.clock.Now(), r.model.convict(&r.asks[r.rand.IntN(len(r.asks))])
	switch at := time.Duration(r.rand.IntN(3)-1) * time.Microsecond; r.rand.IntN(5) {
	case 0:
		if c.until.After(now) {
			r.model.clock.Advance(c.until.Sub(now) + at)
		}
	case 1:
		if end := c.start.Add(r.asks[0].Penalty.Within); c.count > 0 && end.After(now) {
			r.model.clock.Advance(end.Sub(now) + at)
		}
	case 2:
		if r.rand.IntN(10) == 0 {
			r.model.clock.Advance(-r.upTo(5))
		}
	default:
		r.model.clock.Advance(r.upTo(2))
	}
}

// step makes one random call of the store, and requires that it has the result of the model.
func (r *penalRun) step(t *testing.T) {
	t.Helper()
	asks := r.some()
	ctx := t.Context()
	switch r.rand.IntN(40) {
	case 0:
		require.NoError(t, r.store.Reset(ctx, asks))
		require.NoError(t, r.memory.Reset(ctx, asks))
		require.NoError(t, r.model.rules.Reset(ctx, asks))
		for i := range asks {
			delete(r.model.convicts, asks[i].Rule)
		}
		return
	case 1:
		require.NoError(t, r.store.Pardon(ctx, asks))
		require.NoError(t, r.memory.Pardon(ctx, asks))
		for i := range asks {
			delete(r.model.convicts, asks[i].Rule)
		}
		return
	}
	var once *ratelimit.Attempt
	if r.rand.IntN(6) == 0 {
		if r.rand.IntN(3) > 0 || r.ids == 0 {
			r.ids++
		}
		for i := range asks {
			asks[i].Look, asks[i].Shadow, asks[i].N = false, false, 1
		}
		once = &ratelimit.Attempt{Client: asks[0].Client, ID: strconv.Itoa(r.ids), TTL: time.Hour}
	}
	want, wantReplay, err := r.model.take(ctx, once, asks)
	require.NoError(t, err)
	got, replay, err := takeAs(ctx, r.memory, once, asks)
	require.NoError(t, err)
	require.Equal(t, wantReplay, replay, "%+v", asks)
	require.Equal(t, want, got, "in memory: %+v", asks)
	got, replay, err = takeAs(ctx, r.store, once, asks)
	require.NoError(t, err)
	require.Equal(t, wantReplay, replay, "%+v", asks)
	require.Equal(t, want, got, "in Redis: %+v", asks)
	r.count(asks, got, replay)
}

// takeAs takes the asks as the request once, or as one without an ID if once is nil.
func takeAs(
	ctx context.Context, s ratelimit.StoreReplayer, once *ratelimit.Attempt, asks []ratelimit.Ask,
) ([]ratelimit.Result, bool, error) {
	if once != nil {
		return s.Once(ctx, *once, asks)
	}
	results, err := s.(ratelimit.Store).Take(ctx, asks)
	return results, false, err
}

// count counts what has happened, so that the test can require that everything has happened often.
func (r *penalRun) count(asks []ratelimit.Ask, results []ratelimit.Result, replay bool) {
	if replay {
		r.seen["replays"]++
	}
	for i := range results {
		switch {
		case results[i].Reason == ratelimit.ReasonPenalty && asks[i].Look:
			r.seen["blocks seen by a look"]++
		case results[i].Reason == ratelimit.ReasonPenalty:
			r.seen["denials by a block"]++
		case results[i].Allowed:
			r.seen["grants"]++
		default:
			r.seen["denials"]++
		}
	}
}

// TestPenaltySchedules plays random schedules, and requires that each answer of Redis and of a MemoryStore is that of the
// model.
func TestPenaltySchedules(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		client, seen := connect(), make(map[string]int)
		const steps = 40
		n := soaked(500, 2000)
		for number := range n {
			cache := time.Duration(number%2) * time.Hour
			r := newPenalRun(t, client, number, seen, redisstore.WithDenialCache(cache))
			for range steps {
				r.advance()
				r.step(t)
			}
		}
		require.Len(t, seen, 5, "%v", seen)
		for what, times := range seen {
			require.Greater(t, times, n/10, what)
		}
		t.Logf("%d schedules of %d steps, 0 mismatches: %v", n, steps, seen)
	})
}
