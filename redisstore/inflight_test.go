package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// held returns an ask for n units in flight, of a limit of units at once, each for at most a minute.
func held(limit, n int, id uint64) ratelimit.Ask {
	return revocable(ratelimit.AlgorithmInFlight, ratelimit.Rate{Requests: limit, Per: time.Minute}, n, id, time.Hour)
}

// extend makes the hold of u go on, and reports whether it was not over.
func extend(t testing.TB, s ratelimit.Store, u ratelimit.Ask) bool {
	t.Helper()
	u.Charged = u.N
	err := s.(ratelimit.StoreSettler).Settle(context.Background(), []ratelimit.Ask{u})
	if errors.Is(err, ratelimit.ErrSettled) {
		return false
	}
	require.NoError(t, err)
	return true
}

// TestHeldStored checks what the server stores of holds: a sorted set beside the state. Both go with a Reset, and expire
// when all holds are over.
func TestHeldStored(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s, ctx := newStore(t, client, redisstore.WithClock(clock)), t.Context()
	one, two := held(10, 3, 1<<63+7), held(10, 2, 8)
	key := s.KeyOf(one)
	require.Equal(t, "ratelimit:{ca}:1h:rule", key)
	found, ok := s.Stored(key)
	require.True(t, ok)
	require.Equal(t, ratelimit.AlgorithmInFlight, found.Ask.Algorithm)

	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 10, Remaining: 7, ResetAfter: time.Minute}, take(t, s, one))
	clock.Advance(time.Second)
	require.Equal(t, 5, take(t, s, two).Remaining)
	require.Equal(t, "60000000 1772323201 0 5", client.Get(ctx, key).Val())
	require.Equal(t, []redis.Z{{Score: 1772323260000000, Member: "9223372036854775815:3"}, {Score: 1772323261000000, Member: "8:2"}},
		client.ZRangeWithScores(ctx, key+";r", 0, -1).Val())
	for _, name := range []string{key, key + ";r"} {
		assert.InDelta(t, (time.Hour + time.Minute).Seconds(), client.TTL(ctx, name).Val().Seconds(), 10, name) // the pad of WithClock is an hour
	}
	denied := denial(10, 5, 59*time.Second, time.Minute)
	require.Equal(t, denied, take(t, s, held(10, 6, 9)))
	require.Equal(t, ratelimit.Never, take(t, s, held(10, 11, 9)).RetryAfter)
	states, err := s.Look(ctx, []redisstore.Stored{{Name: key, Ask: ratelimit.Ask{Algorithm: found.Ask.Algorithm, Rate: one.Rate}}})
	require.NoError(t, err)
	require.Equal(t, 5, states[0].Remaining)

	settle(t, s, one, 0)
	settle(t, s, one, 0)
	require.Equal(t, 8, look(t, s, held(10, 1, 0)).Remaining+1, "an end counts once")
	require.False(t, extend(t, s, one), "it has ended")
	clock.Advance(30 * time.Second)
	require.True(t, extend(t, s, two))
	clock.Advance(time.Minute - time.Microsecond)
	require.Equal(t, time.Microsecond, take(t, s, held(10, 10, 9)).RetryAfter)
	clock.Advance(time.Microsecond)
	require.False(t, extend(t, s, two), "it is over")
	require.True(t, take(t, s, held(10, 10, 9)).Allowed)
	require.EqualValues(t, 1, client.ZCard(ctx, key+";r").Val(), "holds that are over are removed")

	require.NoError(t, s.Reset(ctx, []ratelimit.Ask{one}))
	require.Zero(t, client.Exists(ctx, key, key+";r").Val())
	require.False(t, extend(t, s, held(10, 10, 9)))
	anonymous := held(10, 4, 0)
	require.Equal(t, 6, take(t, s, anonymous).Remaining)
	clock.Advance(time.Second)
	require.Equal(t, 2, take(t, s, anonymous).Remaining)
	clock.Advance(time.Minute - time.Second)
	require.True(t, take(t, s, anonymous).Allowed, "two holds without a number are two: the first is over")

	require.NoError(t, client.Del(ctx, key+";r").Err())
	require.Equal(t, 6, take(t, s, anonymous).Remaining, "without the set, nothing is held")

	for _, foreign := range []string{"foreign", "0 1772323201 0 5", "60000000 1772323201 1000000 5"} {
		require.NoError(t, client.Set(ctx, key, foreign, 0).Err())
		failsForNow(t, s, []ratelimit.Ask{one}, redisstore.ClassCorrupt)
		require.Equal(t, foreign, client.Get(ctx, key).Val())
	}
	require.NoError(t, client.Del(ctx, key).Err())
	require.NoError(t, client.Set(ctx, key+";r", "foreign", 0).Err())
	require.True(t, take(t, s, one).Allowed, "a set of another state is replaced")
}

// TestHeldBadAsks refuses what no rule can have.
func TestHeldBadAsks(t *testing.T) {
	s := nowhere(t)
	for _, row := range []struct {
		change func(a *ratelimit.Ask)
		want   string
	}{
		{func(a *ratelimit.Ask) { a.Rate.Per = 25 * time.Hour }, "per must be at most 24h for what is in flight"},
		{func(a *ratelimit.Ask) { a.Rate.Per = 1500 }, "per must be whole microseconds in a Redis store: its clock has no finer ones"},
		{func(a *ratelimit.Ask) { a.Rate.Burst = 3 }, "burst must be 0: windows have no burst"},
		{
			func(a *ratelimit.Ask) { a.Warmup = ratelimit.Warmup{From: 1, Over: time.Hour} },
			"ratelimit: warmup is {1 1h0m0s}: must be left out: a rule that counts what is running has none",
		},
	} {
		a := held(5, 1, 1)
		row.change(&a)
		require.ErrorContains(t, s.Accepts(a), row.want)
	}
	require.NoError(t, s.Accepts(held(5, 1, 1)))
}

// TestHeldAsMemory plays random schedules of asks for two keys in different slots, which count what is in flight and
// requests, with ends, extensions, other limits, looks and a clock that steps back, on a server and on a cluster. Each
// answer is that of a MemoryStore.
func TestHeldAsMemory(t *testing.T) {
	t.Parallel()
	n := soaked(500, 2000)
	_, cluster := startReplicated(t)
	for name, client := range map[string]redis.UniversalClient{"standalone": startReal(t).client(t), "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			answers, denied := 0, 0
			for seed := range n {
				h := newHolding(t, client, uint64(seed))
				for range 40 {
					h.step(t)
				}
				answers, denied = answers+h.answers, denied+h.denied
			}
			t.Logf("%d schedules, %d answers, %d of them denials: 0 differences", n, answers, denied)
			require.Greater(t, denied, answers/10)
		})
	}
}

// A holding is a schedule that is played on two stores.
type holding struct {
	stores          []ratelimit.Store
	clock           *ratelimit.FakeClock
	latest          time.Time // the latest time that the clock has shown
	r               *rand.Rand
	prefix          string
	limit, per      int
	made            []ratelimit.Ask // holds, and charges in requests, that were granted
	ends            []time.Time     // when each of these is over, or was before it was extended
	id              uint64
	answers, denied int
}

func newHolding(t *testing.T, client redis.UniversalClient, seed uint64) *holding {
	h := &holding{clock: ratelimit.NewFakeClock(time.Unix(1772323200, 0)), r: rand.New(rand.NewPCG(seed, 7)), limit: 4, per: 60}
	h.prefix = fmt.Sprint("s", seed, ":")
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(h.clock))
	require.NoError(t, err)
	h.stores = []ratelimit.Store{newStore(t, client, redisstore.WithClock(h.clock), redisstore.WithDenialCache(0)), memory}
	return h
}

// draw returns asks for one or both keys.
func (h *holding) draw() (asks []ratelimit.Ask) {
	for _, key := range []string{"a", "b"} {
		if h.r.IntN(3) == 0 {
			continue
		}
		h.id++
		a := held(h.limit, 1+h.r.IntN(3), h.id)
		a.Rule, a.Key, a.Client, a.Rate.Per = h.prefix+"held", key, key, time.Duration(h.per)*time.Second
		a.Shadow = h.r.IntN(6) == 0
		if h.r.IntN(10) == 0 {
			a.N = 0
		}
		asks = append(asks, a)
		if h.r.IntN(3) == 0 {
			a.Rule, a.Algorithm, a.Rate, a.Receipt, a.N = h.prefix+"requests", ratelimit.AlgorithmFixedWindow, ratelimit.PerMinute(9), h.id, 1
			asks = append(asks, a)
		}
	}
	return asks
}

func (h *holding) step(t *testing.T) {
	t.Helper()
	switch op := h.r.IntN(20); {
	case op < 9:
		h.take(t)
	case op < 14:
		h.settle(t)
	case op == 14:
		h.limit = 1 + h.r.IntN(6)
	case op == 15 && h.r.IntN(2) == 0:
		h.per = 30 + h.r.IntN(60)
	case op == 16 && h.r.IntN(2) == 0:
		if asks := h.draw(); len(asks) > 0 {
			for _, s := range h.stores {
				require.NoError(t, s.Reset(t.Context(), asks))
			}
		}
	case op == 17:
		back := h.clock.Now().Add(-time.Duration(h.r.Int64N(5e6)) * time.Microsecond)
		for _, end := range h.ends { // the stores may have forgotten what is over
			if !end.After(h.latest) && end.After(back) {
				back = end
			}
		}
		h.clock.Set(back)
	default:
		h.clock.Advance(time.Duration(h.r.Int64N(30e6)) * time.Microsecond)
		if now := h.clock.Now(); now.After(h.latest) {
			h.latest = now
		}
	}
}

func (h *holding) take(t *testing.T) {
	asks := h.draw()
	if len(asks) == 0 {
		return
	}
	if h.r.IntN(6) == 0 {
		for i := range asks {
			asks[i].Look = true
		}
	}
	var results [2][]ratelimit.Result
	for i, s := range h.stores {
		var err error
		results[i], err = s.Take(t.Context(), asks)
		require.NoError(t, err)
	}
	require.Equal(t, results[1], results[0], "memory and Redis: %+v", asks)
	h.answers++
	passes := true
	for i, res := range results[0] {
		passes = passes && (res.Allowed || asks[i].Shadow)
	}
	if !passes {
		h.denied++
	}
	for i, a := range asks {
		if passes && results[0][i].Allowed && !a.Look && a.N > 0 {
			h.made, h.ends = append(h.made, a), append(h.ends, h.clock.Now().Add(results[0][i].ResetAfter))
		}
	}
}

func (h *holding) settle(t *testing.T) {
	if len(h.made) == 0 {
		return
	}
	i := h.r.IntN(len(h.made))
	a := h.made[i]
	if a.Algorithm == ratelimit.AlgorithmInFlight && h.r.IntN(3) == 0 {
		require.Equal(t, extend(t, h.stores[1], a), extend(t, h.stores[0], a))
		a.Look, a.Receipt = true, 0
		res, err := h.stores[1].Take(t.Context(), []ratelimit.Ask{a})
		require.NoError(t, err)
		h.ends = append(h.ends, h.clock.Now().Add(res[0].ResetAfter))
		return
	}
	a.Charged, a.N = a.N, 0
	for _, s := range h.stores {
		require.NoError(t, s.(ratelimit.StoreSettler).Settle(t.Context(), []ratelimit.Ask{a}))
	}
	if h.r.IntN(5) > 0 { // otherwise it may end twice
		h.made = slices.Delete(h.made, i, i+1)
	}
}

// TestHeldMany fills one key: 65,536 holds are the most. Each of them can be ended.
func TestHeldMany(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("fills a key")
	}
	t.Parallel()
	client := startReal(t).client(t)
	s := newStore(t, client, frozen())
	const most, limit = 1 << 16, 1 << 20
	eachOf(16, most, func(i int) {
		results, err := s.Take(context.Background(), []ratelimit.Ask{held(limit, 1, uint64(i+1))})
		assert.NoError(t, err)
		assert.True(t, results[0].Allowed)
	})
	denied := take(t, s, held(limit, 1, most+1))
	require.False(t, denied.Allowed)
	require.Equal(t, 0, denied.Remaining)
	eachOf(16, most, func(i int) {
		u := held(limit, 1, uint64((i*40_503)%most+1)) // in another order: 40,503 is odd
		u.Charged, u.N = 1, 0
		assert.NoError(t, s.Settle(context.Background(), []ratelimit.Ask{u}))
	})
	require.Equal(t, limit-1, take(t, s, held(limit, 1, 1)).Remaining, "0 held at the end")
}

// TestHeldFull asks for one more hold of a key that has as many as a key can have.
func TestHeldFull(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s, ctx := newStore(t, client, redisstore.WithClock(clock)), t.Context()
	const most, limit = 1 << 16, 1 << 20
	first := held(limit, 1, 1)
	take(t, s, first)
	members := make([]redis.Z, most-2)
	for i := range members {
		members[i] = redis.Z{Score: 1772323261000000 + float64(i), Member: strconv.Itoa(i+2) + ":1"}
	}
	key := s.KeyOf(first)
	require.NoError(t, client.ZAdd(ctx, key+";r", members...).Err())
	require.NoError(t, client.Set(ctx, key, fmt.Sprintf("60000000 1772323200 0 %d", most-1), time.Hour).Err())
	last := held(limit, 1, most)
	require.Equal(t, limit-most, take(t, s, last).Remaining)
	full := denial(limit, 0, time.Minute, 61*time.Second+(most-3)*time.Microsecond)
	require.Equal(t, full, take(t, s, held(limit, 1, most+1)), "until the oldest is over")
	settle(t, s, last, 0)
	require.Equal(t, limit-most, take(t, s, held(limit, 1, most+1)).Remaining)
}

// TestHeldExpires lets many holds end by their time: a denial removes them from the server, so that no later call counts them again.
func TestHeldExpires(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock))
	const many = 3000
	for i := range many {
		take(t, s, held(1<<20, 1, uint64(i+1)))
	}
	clock.Advance(30 * time.Second)
	last := held(1<<20, 5, many+1)
	take(t, s, last)
	clock.Advance(30 * time.Second)
	require.False(t, take(t, s, held(4, 1, many+2)).Allowed, "5 are held")
	require.EqualValues(t, 1, client.ZCard(t.Context(), s.KeyOf(last)+";r").Val())
	settle(t, s, last, 0)
	require.Equal(t, 3, take(t, s, held(4, 1, many+3)).Remaining)
}

// TestHeldHeals moves a state that is far ahead of the clock of the server to now.
func TestHeldHeals(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithHealing())
	one := held(2, 1, 1)
	take(t, s, one)
	clock.Advance(-2 * time.Minute)
	require.Equal(t, 3*time.Minute, take(t, s, held(2, 2, 2)).RetryAfter, "not so far ahead that it must be wrong")
	clock.Advance(-time.Microsecond)
	require.Equal(t, time.Minute, take(t, s, held(2, 2, 2)).RetryAfter, "the hold lasts for a minute from now")
	require.True(t, take(t, s, held(2, 1, 2)).Allowed)
	clock.Advance(time.Minute - time.Microsecond)
	require.False(t, take(t, s, held(2, 2, 3)).Allowed)
	settle(t, s, one, 0)
	clock.Advance(time.Microsecond)
	require.True(t, take(t, s, held(2, 2, 3)).Allowed)
}

// killed is the environment variable that makes TestHeldByKilledProcess run as the process that is killed.
const killed = "RATELIMIT_TEST_KILLED"

// TestHeldByKilledProcess kills a process that has 1,000 holds: they are over after Per, by the clock of the server.
func TestHeldByKilledProcess(t *testing.T) {
	t.Parallel()
	const holds = 1000
	limiter := func(client *redis.Client, per time.Duration) *ratelimit.RateLimiter {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "running", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal,
			Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: holds, Per: per}}}, nil,
			ratelimit.WithStore(newStore(t, client)), ratelimit.WithName("killed"))
		require.NoError(t, err)
		return l
	}
	const per = 3 * time.Second
	if addr := os.Getenv(killed); addr != "" {
		client := redis.NewClient(&redis.Options{Addr: addr})
		l := limiter(client, per)
		for range holds {
			r, err := l.Reserve(context.Background(), ratelimit.Request{Endpoint: "/"}, time.Hour)
			require.NoError(t, err)
			require.True(t, r.Result().Allowed)
		}
		require.NoError(t, client.Set(context.Background(), "ready", 1, 0).Err())
		select {}
	}
	srv := startReal(t)
	client := srv.client(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestHeldByKilledProcess$")
	cmd.Env = append(os.Environ(), killed+"="+srv.addr)
	require.NoError(t, cmd.Start())
	until(t, func(ctx context.Context) error { return client.Get(ctx, "ready").Err() })
	l := limiter(client, per)
	first, err := l.Reserve(t.Context(), ratelimit.Request{Endpoint: "/"}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, ratelimit.ReasonBusy, first.Result().Reason)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.LessOrEqual(t, first.Result().ResetAfter, per)
	until(t, func(context.Context) error {
		r, err := l.Reserve(t.Context(), ratelimit.Request{Endpoint: "/", Cost: holds}, time.Hour)
		if err == nil && !r.Result().Allowed {
			err = errors.New("some are still held")
		}
		return err
	})
	require.EqualValues(t, 1, client.ZCard(t.Context(), client.Keys(t.Context(), "*;r").Val()[0]).Val())
}

// TestHeldUnitsAreConserved draws requests of three units that run for a while, in memory, in a MemoryStore, on a server
// and on a cluster: what is denied has charged nothing, what is settled is what was used, and in the end nothing is held.
func TestHeldUnitsAreConserved(t *testing.T) {
	t.Parallel()
	steps := soaked(5000, 20_000)
	_, cluster := startReplicated(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	onServer := func(client redis.UniversalClient) ratelimit.Store {
		return newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	}
	for name, store := range map[string]ratelimit.Store{
		"memory": nil, "memory store": memory, "standalone": onServer(startReal(t).client(t)), "cluster": onServer(cluster),
	} {
		t.Run(name, func(t *testing.T) {
			limits := map[string]int{"": 110, "tokens": 15_000, "bytes": 150_000}
			rules := []ratelimit.Rule{
				{Name: "running", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal,
					Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 12, Per: time.Hour}},
				{Name: "tokens at once", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Unit: "tokens",
					Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 900, Per: time.Hour}},
			}
			for _, unit := range slices.Sorted(maps.Keys(limits)) {
				rules = append(rules, ratelimit.Rule{Name: "all " + unit, Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Unit: unit,
					Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.Rate{Requests: limits[unit], Per: 24 * time.Hour}})
			}
			opts := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithName("conserved")}
			if store != nil {
				opts = append(opts, ratelimit.WithStore(store))
			}
			l, err := ratelimit.New(rules, nil, opts...)
			require.NoError(t, err)
			c := &conserving{l: l, limits: limits, used: map[string]int{}, r: rand.New(rand.NewPCG(5, 6))}
			for step := range steps {
				if len(c.open) > 0 && c.r.IntN(2) == 0 {
					c.end(t)
				} else {
					c.reserve(t, step)
				}
				if step%301 == 300 {
					for unit := range limits {
						require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Rules: []string{"all " + unit}}))
					}
					clear(c.used)
					for i := range c.open {
						c.open[i].costs = nil // what was reset does not come back
					}
				}
			}
			for len(c.open) > 0 {
				c.end(t)
			}
			require.Zero(t, c.running)
			for unit := range limits {
				require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Rules: []string{"all " + unit}}))
			}
			r, err := l.Reserve(t.Context(), ratelimit.Request{Costs: []ratelimit.Cost{{Unit: "", N: 12}, {Unit: "tokens", N: 900}}}, time.Hour)
			require.NoError(t, err)
			for _, res := range r.Results()[:2] {
				require.True(t, res.Allowed, "0 held at the end: %v", res)
				require.Zero(t, res.Remaining)
			}
			t.Logf("%d steps, %d denied, %d of them only because others run", steps, c.denied, c.busy)
			require.Greater(t, c.busy, steps/100)
			require.Greater(t, c.denied-c.busy, steps/100)
		})
	}
}

// conserving is a model of rules of three units and of what is running.
type conserving struct {
	l               *ratelimit.RateLimiter
	limits, used    map[string]int
	running, tokens int
	open            []openWork
	denied, busy    int
	r               *rand.Rand
}

// openWork is work that runs.
type openWork struct {
	res          *ratelimit.Reservation
	held, tokens int
	costs        map[string]int // nil after a Reset
}

func (c *conserving) reserve(t *testing.T, step int) {
	t.Helper()
	w := openWork{held: 1, tokens: c.r.IntN(200), costs: map[string]int{"": 1, "bytes": c.r.IntN(2000)}}
	w.costs["tokens"] = w.tokens
	busy := c.running+1 > 12 || c.tokens+max(w.tokens, 1) > 900
	fits := true
	var costs []ratelimit.Cost
	for _, unit := range slices.Sorted(maps.Keys(w.costs)) {
		costs = append(costs, ratelimit.Cost{Unit: unit, N: w.costs[unit]})
		fits = fits && c.used[unit]+max(w.costs[unit], 1) <= c.limits[unit]
	}
	var err error
	w.res, err = c.l.Reserve(t.Context(), ratelimit.Request{Costs: costs}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, fits && !busy, w.res.Result().Allowed, "step %d", step)
	for _, res := range w.res.Results() {
		unit, isAll := strings.CutPrefix(res.Rule, "all ")
		left := c.limits[unit] - c.used[unit]
		if fits && !busy {
			left -= w.costs[unit]
		}
		if isAll {
			require.Equal(t, max(left, 0), res.Remaining, "step %d, unit %q", step, unit)
		}
	}
	if !fits || busy {
		c.denied++
		if fits {
			c.busy++
			require.Equal(t, ratelimit.ReasonBusy, w.res.Result().Reason)
		}
		return
	}
	c.running++
	c.tokens += w.tokens
	for unit, n := range w.costs {
		c.used[unit] += n
	}
	c.open = append(c.open, w)
}

func (c *conserving) end(t *testing.T) {
	t.Helper()
	i := c.r.IntN(len(c.open))
	w := c.open[i]
	c.open = slices.Delete(c.open, i, i+1)
	c.running--
	c.tokens -= w.tokens
	switch c.r.IntN(4) {
	case 0:
		require.NoError(t, w.res.Cancel())
		for unit, n := range w.costs {
			c.used[unit] -= n
		}
	case 1:
		require.NoError(t, w.res.Done())
	default:
		if w.costs == nil { // a settlement of more than was reserved would be charged
			require.NoError(t, w.res.Done())
			return
		}
		actual := ratelimit.Cost{Unit: "tokens", N: c.r.IntN(2*w.tokens + 2)}
		c.used["tokens"] += actual.N - w.tokens
		require.NoError(t, w.res.SettleCosts(actual))
		require.NoError(t, w.res.Done())
	}
}

// TestHeldBesideSlots denies in one slot what another one has held: the hold is given back, and lasts a second at most if
// this process ends before.
func TestHeldBesideSlots(t *testing.T) {
	t.Parallel()
	_, cluster := startReplicated(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, cluster, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	here, there := held(1, 1, 1), ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerDay(1), 1)
	for i := 0; s.Slot(here)/6000 == s.Slot(there)/6000; i++ {
		there.Key, there.Client = strconv.Itoa(i), ""
	}
	both := []ratelimit.Ask{here, there}
	results, err := s.Take(t.Context(), both)
	require.NoError(t, err)
	require.True(t, results[0].Allowed && results[1].Allowed)
	require.Equal(t, time.Minute, results[0].ResetAfter)
	clock.Advance(30 * time.Second)
	require.Equal(t, 30*time.Second, look(t, s, held(1, 1, 0)).RetryAfter, "it lasts for Per once the decision stands")
	settle(t, s, here, 0)
	here.Receipt = 2
	both[0] = here
	results, err = s.Take(t.Context(), both)
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, []bool{results[0].Allowed, results[1].Allowed})
	require.True(t, look(t, s, held(1, 1, 0)).Allowed, "what the other slot has denied holds nothing")

	here.Receipt = 3
	require.NoError(t, s.TakePart(t.Context(), []ratelimit.Ask{here}))
	require.Equal(t, time.Second, look(t, s, held(1, 1, 0)).RetryAfter, "until the decision stands, it lasts for a second")
	clock.Advance(time.Second)
	require.False(t, extend(t, s, here))

	here.Receipt, there.Receipt = 4, 5
	_, replayed, err := s.Once(t.Context(), ratelimit.Attempt{Client: "z", ID: "x", TTL: time.Hour}, []ratelimit.Ask{here})
	require.NoError(t, err)
	require.False(t, replayed)
	require.Equal(t, time.Minute, look(t, s, held(1, 1, 0)).RetryAfter, "beside a record in another slot, too")
}

// TestHeldServerKilled kills the server while this process has holds in it, and starts it again without data: FailLocal
// counts what runs here, and at most the limit runs once more. In the end nothing is held.
func TestHeldServerKilled(t *testing.T) {
	srv := startReal(t)
	s, err := redisstore.New(srv.client(t))
	require.NoError(t, err)
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "running", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal,
		Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 20, Per: time.Hour}}}, nil,
		ratelimit.WithStore(s), ratelimit.WithName("killed"))
	require.NoError(t, err)
	var running []*ratelimit.Reservation
	fill := func() (granted int, degraded bool) {
		for {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Endpoint: "/"}, time.Hour)
			degraded = err != nil
			if !r.Result().Allowed {
				return granted, degraded
			}
			running = append(running, r)
			granted++
		}
	}
	granted, degraded := fill()
	require.Equal(t, 20, granted)
	require.False(t, degraded)
	srv.kill(t)
	granted, degraded = fill()
	require.Zero(t, granted, "this process runs as many as the policy lets it")
	require.True(t, degraded)
	for _, r := range running[:5] {
		require.ErrorIs(t, r.Done(), ratelimit.ErrStore)
	}
	granted, _ = fill()
	require.Equal(t, 5, granted)

	srv.run(t)
	until(t, func(context.Context) error {
		r, err := l.Reserve(t.Context(), ratelimit.Request{Endpoint: "/"}, time.Hour)
		return errors.Join(err, r.Cancel())
	})
	granted, degraded = fill()
	require.Equal(t, 20, granted, "the server has lost its data")
	require.False(t, degraded)
	for _, r := range running {
		require.NoError(t, r.Done())
	}
	r, err := l.Reserve(t.Context(), ratelimit.Request{Endpoint: "/", Cost: 20}, time.Hour)
	require.NoError(t, err)
	require.True(t, r.Result().Allowed, "0 held at the end")
}
