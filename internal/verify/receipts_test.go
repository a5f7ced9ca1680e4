package verify

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// An event is something that happened to a key and that its account is replayed from: a charge
// or, if n is 0, a change of the rate.
type event struct {
	at   time.Time
	n    int
	rate ratelimit.Rate
}

// A replayed account is a model, and the events that it is made of.
type replayed struct {
	ratelimittest.Model
	events []*event
	weak   bool // whether the key may have less left than the model
}

// A returning is a nested schedule of charges that the custom limiter revokes or keeps.
type returning struct {
	*nested
	keys map[string]*replayed

	charged, returned, lost, allowed int
}

// account returns the account of a key.
func (s *returning) account(key string) *replayed {
	key = s.accountOf(key)
	if s.keys[key] == nil {
		k := &replayed{Model: s.a.model(starts[0], s.first())}
		if s.keys[key] = k; s.rate != s.first() {
			k.events = append(k.events, &event{s.clock.now, 0, s.rate})
			k.SetRate(s.clock.now, s.rate)
		}
	}
	return s.keys[key]
}

// replay makes the model of k anew from its events.
func (s *returning) replay(k *replayed) {
	k.Model = s.a.model(starts[0], s.first())
	for _, e := range k.events {
		if e.n == 0 {
			k.SetRate(e.at, e.rate)
		} else {
			require.True(s.t, k.Ask(e.at, e.n).Allowed, "what was granted is granted without the charge that was given back")
		}
	}
}

// agree requires that key has what its account says.
func (s *returning) agree(key string) {
	k := s.account(key)
	got, err := s.l.Peek(context.Background(), ratelimit.Request{Client: key, Rules: []string{"ours"}})
	require.NoError(s.t, err)
	want := k.Ask(s.clock.now, 0)
	if k.weak {
		require.LessOrEqual(s.t, got.Remaining, want.Remaining, "%s never has more than without the charge", key)
		return
	}
	require.Equal(s.t, []any{want.Allowed, want.Remaining, want.RetryAfter}, []any{got.Allowed, got.Remaining, got.RetryAfter},
		"%s at %v: it is as if the charge had not been made", key, s.clock.now.Sub(starts[0]))
}

// charge asks for n units, beside the custom limiter if inner is not nil: that then grants them
// if inner returns true.
func (s *returning) charge(key string, n int, inner func() bool) {
	rules := []string{"ours"}
	if inner != nil {
		rules = append(rules, "custom")
	}
	k, e, entered := s.account(key), &event{s.clock.now, n, ratelimit.Rate{}}, false
	enter := func() {
		// From here on the units are charged.
		entered = true
		s.charged += n
		s.allowed++
		k.events = append(k.events, e)
		if res := k.Ask(e.at, n); !k.weak {
			require.True(s.t, res.Allowed, key)
		}
	}
	s.decide = func() bool {
		enter()
		return inner()
	}
	before := k.Ask(s.clock.now, 0).Remaining
	res, err := s.l.Check(context.Background(), ratelimit.Request{Client: key, Rules: rules, Cost: n})
	require.NoError(s.t, err)
	switch {
	case !entered && !res.Allowed:
		require.True(s.t, k.weak || n > before, "%s is denied %d of %d", key, n, before)
		return
	case !entered:
		enter()
		return
	case res.Allowed:
		return
	}
	s.allowed--
	for i, other := range k.events {
		if other != e || s.account(key) != k {
			continue
		}
		if s.full && key != "holder" {
			s.lost += n // final
			return
		}
		s.returned += n
		k.events = append(k.events[:i:i], k.events[i+1:]...)
		if s.a.name == "LeakyBucket" && s.changes > 0 {
			// After a change, the queue of those who keep their place takes room, and an
			// empty bucket is not one that was never used.
			k.weak = true
		}
		for _, later := range k.events[i:] {
			// A bucket may be full without the charge when its burst is raised.
			k.weak = k.weak || later.n == 0 && s.a.bucket && s.changes == 2
		}
		s.replay(k)
		return
	}
	s.lost += n // the key was reset
}

// step does one thing at random.
func (s *returning) step() {
	if s.steps == 0 {
		return
	}
	s.steps--
	key := s.key()
	switch act := s.r.IntN(20); {
	case act < 8 && s.depth < 4:
		s.depth++
		grant, steps := s.r.IntN(3) == 0, s.r.IntN(5)
		s.charge(key, 1+s.r.IntN(3), func() bool {
			for range steps {
				s.step()
			}
			return grant
		})
		s.depth--
	case act < 13:
		s.charge(key, 1+s.r.IntN(3), nil)
	case act < 16:
		s.clock.now = s.clock.now.Add(time.Duration(s.r.IntN(receiptPer)))
	case act == 16 && !s.full:
		require.NoError(s.t, resetOwn(s.l, key))
		delete(s.keys, key)
	case act == 17 && !s.full:
		s.allowed += s.crowd()
	case act == 18 && s.changes > 0 && !s.full:
		if s.change() {
			for _, k := range s.keys {
				k.events = append(k.events, &event{s.clock.now, 0, s.rate})
				k.SetRate(s.clock.now, s.rate)
			}
		}
	}
	if s.full && s.account("holder").Ask(s.clock.now, 0).ResetAfter < receiptPer {
		s.charge("holder", 1, nil) // so that it keeps the only slot
	}
	for key := range s.keys {
		s.agree(clientOf(key))
	}
}

// TestPropertiesOfReceipts plays random schedules of charges that a custom limiter revokes or
// keeps, nested in each other, with denials, keys that are forgotten, a table that is full,
// resets and changes of the rate in between. Each key must be as a model that replays its
// history without the charges that were given back.
//
// Where the burst of a bucket changes, the key may be full in that history but not with the
// charge, and stays full there. Then it must never have more than the model. The same holds for
// a leaky bucket whose rate changes at all.
func TestPropertiesOfReceipts(t *testing.T) { returnAtRandom(t, false) }

// TestPropertiesOfReceiptsInAStore is the same beside a MemoryStore, at rates that do not change:
// 20,000 random steps and more for each algorithm.
func TestPropertiesOfReceiptsInAStore(t *testing.T) { returnAtRandom(t, true) }

func returnAtRandom(t *testing.T, stored bool) {
	schedules := 2000
	if stored {
		schedules = 400
	}
	if raceEnabled || testing.Short() {
		schedules /= 5
	}
	each(t, func(t *testing.T, a algorithm) {
		steps, charged, returned, lost := 0, 0, 0, 0
		for seed := range uint64(schedules) {
			s := &returning{nested: newNested(t, a, seed, 9, stored), keys: make(map[string]*replayed)}
			if s.full {
				s.charge("holder", 1, nil)
			}
			for steps += s.steps; s.steps > 0; {
				s.step()
			}
			stats := s.l.Stats()[0]
			require.EqualValues(t, s.allowed, stats.Allowed, "what is given back is not counted")
			charged, returned, lost = charged+s.charged, returned+s.returned, lost+s.lost
		}
		t.Logf("%d schedules, %d steps, %d units charged, %d given back exactly, %d final: 0 counterexamples", schedules, steps, charged, returned, lost)
		require.Positive(t, returned)
		require.Positive(t, lost)
	})
}

// during makes a RateLimiter of the rule r, "ours", whose request for n units is revoked by a
// custom limiter after it has done what do says.
func during(t *testing.T, r ratelimit.Rule, n int, do func(l *ratelimit.RateLimiter, clock *manualClock)) *ratelimit.RateLimiter {
	clock := &manualClock{starts[0]}
	s, r2 := &nested{}, r
	r2.Name = "ours"
	l, err := ratelimit.New([]ratelimit.Rule{r2, {Name: "custom", Limiter: s}}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	s.decide = func() bool { do(l, clock); return false }
	res, err := l.Check(context.Background(), ratelimit.Request{Client: "c", Rules: []string{"ours", "custom"}, Cost: n})
	require.NoError(t, err)
	require.False(t, res.Allowed)
	return l
}

func askOurs(t *testing.T, l *ratelimit.RateLimiter, n int) ratelimit.Result {
	res, err := l.Check(context.Background(), ratelimit.Request{Client: "c", Rules: []string{"ours"}, Cost: n})
	require.NoError(t, err)
	return res
}

// TestTwoNeverLeaveAtOnce requires that a request that was told its Delay keeps its place when a
// charge before it is given back.
func TestTwoNeverLeaveAtOnce(t *testing.T) {
	rule := ratelimit.Rule{Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(10)}
	var told time.Duration
	l := during(t, rule, 2, func(l *ratelimit.RateLimiter, _ *manualClock) { told = askOurs(t, l, 1).Delay })
	require.Equal(t, 2*time.Second, told)
	require.Equal(t, 3*time.Second, askOurs(t, l, 1).Delay)
}

// TestLooksLeaveReceiptsAlone requires that a look at another tier does not change what is given
// back.
func TestLooksLeaveReceiptsAlone(t *testing.T) {
	rule := ratelimit.Rule{
		Rate:  ratelimit.Rate{Requests: 1, Per: 10, Burst: 9},
		Tiers: map[string]ratelimit.Rate{"other": {Requests: 1, Per: 1000, Burst: 20}},
	}
	l := during(t, rule, 5, func(l *ratelimit.RateLimiter, clock *manualClock) {
		clock.now = clock.now.Add(5)
		look := func() {
			_, err := l.Peek(context.Background(), ratelimit.Request{Client: "c", Rules: []string{"ours"}, Tier: "other"})
			require.NoError(t, err)
		}
		look()
		require.True(t, askOurs(t, l, 2).Allowed)
		look() // now the receipt has a part of a unit, which the other rate counts in other parts
	})
	require.Equal(t, 6, askOurs(t, l, 1).Remaining)

	rule = ratelimit.Rule{
		Algorithm: ratelimit.AlgorithmLeakyBucket,
		Rate:      ratelimit.PerMinute(20),
		Tiers:     map[string]ratelimit.Rate{"other": ratelimit.PerMinute(20).WithBurst(9)},
	}
	l = during(t, rule, 5, func(l *ratelimit.RateLimiter, _ *manualClock) {
		_, err := l.Peek(context.Background(), ratelimit.Request{Client: "c", Rules: []string{"ours"}, Tier: "other"})
		require.NoError(t, err)
	})
	require.Equal(t, 19, askOurs(t, l, 1).Remaining, "its room is that of the burst of 20")
}

// A slowLimiter is a custom limiter that answers when it is told to.
type slowLimiter struct{ asked chan chan bool }

func (s slowLimiter) Take(context.Context, string, int) (ratelimit.Result, error) {
	answer := make(chan bool)
	s.asked <- answer
	if <-answer {
		return ratelimit.Result{Allowed: true, Limit: 9, Remaining: 9}, nil
	}
	return ratelimit.Result{Limit: 9, RetryAfter: time.Hour}, nil
}

// Allow is not used.
func (s slowLimiter) Allow(string) ratelimit.Result { return ratelimit.Result{} }

// TestReceiptsEndInAnyOrder has requests that a custom limiter is asked about at the same time,
// and that it denies in the order in which they came.
func TestReceiptsEndInAnyOrder(t *testing.T) {
	for _, row := range []struct {
		play func(open func(n int) (deny func()), l *ratelimit.RateLimiter, clock *manualClock)
		left int
		why  string
	}{
		{func(open func(n int) func(), l *ratelimit.RateLimiter, clock *manualClock) {
			first := open(5)
			open(1)
			clock.now = clock.now.Add(6 * time.Second)
			require.True(t, askOurs(t, l, 4).Allowed)
			first()
		}, 6, "all of the first had drained when the last came"},
		{func(open func(n int) func(), l *ratelimit.RateLimiter, clock *manualClock) {
			first, second := open(5), open(3)
			clock.now = clock.now.Add(4 * time.Second)
			require.True(t, askOurs(t, l, 1).Allowed)
			first()
			second()
		}, 9, "what is given back for the first is not given back for the second again"},
		{func(open func(n int) func(), l *ratelimit.RateLimiter, _ *manualClock) {
			first := open(5)
			require.NoError(t, resetOwn(l, "c"))
			open(3)
			first()
		}, 7, "the key was reset, and does not owe the first any more"},
	} {
		clock, s := &manualClock{starts[0]}, slowLimiter{asked: make(chan chan bool)}
		rules := []ratelimit.Rule{{Name: "ours", Endpoint: "/", Rate: ratelimit.PerSecond(1).WithBurst(10)}, {Name: "custom", Limiter: s}}
		l, err := ratelimit.New(rules, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		var left []func()
		row.play(func(n int) func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = l.Check(context.Background(), ratelimit.Request{Client: "c", Rules: []string{"ours", "custom"}, Cost: n})
			}()
			answer := <-s.asked
			deny := sync.OnceFunc(func() {
				answer <- false
				<-done
			})
			left = append(left, deny)
			return deny
		}, l, clock)
		res, err := l.Peek(context.Background(), ratelimit.Request{Client: "c", Rules: []string{"ours"}})
		require.NoError(t, err)
		require.Equal(t, row.left, res.Remaining, row.why)
		for _, deny := range left {
			deny()
		}
	}
}

// TestAnotherPerEndsReceipts requires that nothing is given back to a window of another length.
func TestAnotherPerEndsReceipts(t *testing.T) {
	rule := ratelimit.Rule{Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(9)}
	l := during(t, rule, 5, func(l *ratelimit.RateLimiter, _ *manualClock) {
		require.NoError(t, l.UpdateRate("ours", ratelimit.PerHour(9)))
	})
	require.Equal(t, 3, askOurs(t, l, 1).Remaining)
}

// TestRememberedIsNotOverflow requires that only charges are counted as overflow.
func TestRememberedIsNotOverflow(t *testing.T) {
	clock := &manualClock{starts[0]}
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(10)}, ratelimit.WithStore(store),
		ratelimit.WithName("n"), ratelimit.WithMaxKeys(1), ratelimit.WithClock(clock))
	require.NoError(t, err)
	for i := range 100 {
		require.True(t, l.Allow(fmt.Sprint(i), "/").Allowed)
	}
	require.Zero(t, l.Stats()[0].Overflowed)
}
