package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestDenialAtAnotherRate denies one request at another rate of a shared key. It must not take units from
// the other requests, or what the key earns, also in a store.
func TestDenialAtAnotherRate(t *testing.T) {
	for _, c := range []struct {
		why        string
		algorithm  ratelimit.Algorithm
		base, tier ratelimit.Rate
		used, cost int
		later      time.Duration
		left       int
	}{
		{"leaky, smaller burst", ratelimit.AlgorithmLeakyBucket,
			ratelimit.PerMinute(60).WithBurst(50), ratelimit.PerMinute(60).WithBurst(5), 10, 1, 0, 40},
		{"token bucket, smaller burst", ratelimit.AlgorithmTokenBucket,
			ratelimit.PerMinute(60).WithBurst(50), ratelimit.PerMinute(60).WithBurst(5), 10, 6, 0, 40},
		{"token bucket, slower and larger burst", ratelimit.AlgorithmTokenBucket,
			ratelimit.PerSecond(100).WithBurst(10), ratelimit.PerHour(1).WithBurst(20), 9, 5, time.Second, 10},
		{"leaky, slower and larger burst", ratelimit.AlgorithmLeakyBucket,
			ratelimit.PerSecond(100).WithBurst(10), ratelimit.PerHour(1).WithBurst(20), 9, 5, time.Second, 10},
		{"token bucket, slower", ratelimit.AlgorithmTokenBucket,
			ratelimit.PerSecond(2).WithBurst(10), ratelimit.PerHour(1).WithBurst(10), 9, 2, time.Second, 3},
		{"leaky, slower", ratelimit.AlgorithmLeakyBucket,
			ratelimit.PerSecond(2).WithBurst(10), ratelimit.PerHour(1).WithBurst(10), 9, 2, time.Second, 3},
	} {
		for _, stored := range []bool{false, true} {
			clock := &manualClock{starts[0]}
			opts := []ratelimit.Option{ratelimit.WithClock(clock)}
			if stored {
				store, err := ratelimit.NewMemoryStore(opts...)
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("n"))
			}
			rule := ratelimit.Rule{Endpoint: "/", Key: ratelimit.KeyGlobal, Algorithm: c.algorithm, Rate: c.base,
				Tiers: map[string]ratelimit.Rate{"other": c.tier}}
			l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
			require.NoError(t, err)
			ask := func(tier string, n int) ratelimit.Result {
				res, err := l.Check(context.Background(), ratelimit.Request{Endpoint: "/", Tier: tier, Cost: n})
				require.NoError(t, err)
				return res
			}
			require.True(t, ask("", c.used).Allowed)
			require.False(t, ask("other", c.cost).Allowed)
			clock.now = clock.now.Add(c.later)
			require.Equal(t, c.left-1, ask("", 1).Remaining, "%s, store %v", c.why, stored)
		}
	}
}

// TestStoreLearnsFromDenials asks a store at a rate that nobody has announced. A denial must make a raised
// limit known, even if the key has nothing left. A look must not, and must leave alone what can be given back.
func TestStoreLearnsFromDenials(t *testing.T) {
	ctx, slow, fast := context.Background(), ratelimit.PerDay(10), ratelimit.Rate{Requests: 700, Per: time.Second, Burst: 20}
	clock := &manualClock{starts[0]}
	asks := func(r ratelimit.Rate, n int) []ratelimit.Ask {
		return []ratelimit.Ask{{Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: r, N: n}}
	}
	play := func(meddle []ratelimit.Ask) (last ratelimit.Result) {
		clock.now = starts[0]
		s, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		take := func(a []ratelimit.Ask) ratelimit.Result {
			res, err := s.Take(ctx, a)
			require.NoError(t, err)
			return res[0]
		}
		charge := asks(slow, 5)
		charge[0].Receipt, charge[0].HoldFor = 1, time.Hour
		require.True(t, take(charge).Allowed)
		clock.now = clock.now.Add(time.Second)
		require.True(t, take(asks(slow, 4)).Allowed)
		if meddle != nil {
			require.Equal(t, meddle[0].Look, take(meddle).Allowed)
		}
		clock.now = clock.now.Add(10 * time.Millisecond)
		if meddle == nil || meddle[0].Look {
			charge[0].N, charge[0].Charged = 0, 5
			require.NoError(t, s.Settle(ctx, charge))
			return take(asks(slow, 1))
		}
		return take(asks(fast, 1))
	}
	look := asks(fast, 1)
	look[0].Look = true
	require.Equal(t, play(nil), play(look))
	require.Equal(t, 7, play(asks(fast, 3)).Remaining, "1 of 10 was left, and 7 were earned at the new rate")
}

// A played limiter is one of two limiters that get the same requests.
type played struct {
	*ratelimit.RateLimiter
	open []*ratelimit.Reservation
}

// A duel draws a history at random, and plays it on two limiters with the same rules. The limiter asked also
// gets requests that are denied, and looks.
type duel struct {
	*rand.Rand
	clock          *manualClock
	tiers          []string
	clients        []string
	limits         int // no burst is larger
	warms          bool
	rate           func() ratelimit.Rate // draws a rate
	asked, without played
	extra, denials int
}

// newDuel returns a duel with rules of the given algorithm. Each rule has several rates.
func newDuel(t *testing.T, a algorithm, seed uint64, rules int, warms bool) *duel {
	p := &duel{Rand: rand.New(rand.NewPCG(seed, uint64(rules))), clock: &manualClock{starts[0]}, tiers: []string{"", "free", "paid", "gold"},
		limits: 12, warms: warms}
	p.rate = func() ratelimit.Rate {
		r := ratelimit.Rate{Requests: 4 + p.IntN(9), Per: time.Duration(1+p.IntN(5)) * time.Duration(1+p.IntN(1000)), Burst: 4 + p.IntN(9)}
		if !a.bucket {
			r.Per, r.Burst = 500, 0
		}
		return r
	}
	var list []ratelimit.Rule
	for i := range rules {
		r := ratelimit.Rule{Name: fmt.Sprint(i), Endpoint: "/", Algorithm: ratelimit.Algorithm(a.name), Rate: p.rate(),
			Key:   []ratelimit.KeyType{ratelimit.KeyGlobal, ratelimit.KeyUser}[p.IntN(2)],
			Tiers: map[string]ratelimit.Rate{"free": p.rate(), "paid": p.rate()}}
		if gold := p.rate(); p.IntN(2) == 0 {
			r.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) { return gold, req.Tier == "gold" }
		}
		if warms {
			r.Warmup = ratelimit.Warmup{From: 3, Over: time.Duration(1000 + p.IntN(9000))}
		}
		list = append(list, r)
	}
	p.clients = []string{"a", "b", "c"}[:1+p.IntN(3)]
	keys := 1 + p.IntN(3) // sometimes fewer than there are clients: they then share a debt
	for _, tw := range []*played{&p.asked, &p.without} {
		var err error
		tw.RateLimiter, err = ratelimit.New(list, nil, ratelimit.WithClock(p.clock), ratelimit.WithMaxKeys(keys))
		require.NoError(t, err)
	}
	return p
}

func (p *duel) request(n int) ratelimit.Request {
	return ratelimit.Request{Client: p.clients[p.IntN(len(p.clients))], Endpoint: "/", Tier: p.tiers[p.IntN(len(p.tiers))], Cost: n}
}

// both makes the same call of both limiters, and requires the same answer.
func (p *duel) both(t *testing.T, what string, call func(tw *played) any) {
	require.Equal(t, call(&p.without), call(&p.asked), what)
}

// step plays one call on both limiters.
func (p *duel) step(t *testing.T) {
	req := p.request(1 + p.IntN(5))
	switch p.IntN(8) {
	default:
		p.both(t, "Check", func(tw *played) any {
			res, each, err := tw.CheckAll(context.Background(), req, nil)
			require.NoError(t, err)
			return []any{res, each}
		})
	case 0, 1:
		p.both(t, "Reserve", func(tw *played) any {
			r, err := tw.Reserve(context.Background(), req, time.Hour)
			require.NoError(t, err)
			tw.open = append(tw.open, r)
			return r.Result()
		})
	case 2:
		if p.IntN(4) == 0 {
			r := p.rate()
			p.both(t, "UpdateRate", func(tw *played) any { return tw.UpdateRate("0", r) })
		}
	case 3:
		if open := len(p.without.open); open > 0 {
			i, n := p.IntN(open), p.IntN(4)
			p.both(t, "Settle", func(tw *played) any { return tw.open[i].Settle(n) })
		}
	}
}

// meddle makes calls of one limiter that must not change anything.
func (p *duel) meddle(t *testing.T) {
	ctx := context.Background()
	for range p.IntN(4) {
		req := p.request(0)
		look, err := p.asked.Peek(ctx, req)
		require.NoError(t, err)
		p.extra++
		switch req.Cost = look.Remaining + 1 + p.IntN(2)*p.IntN(p.limits); p.IntN(5) {
		case 0:
		case 1:
			_, err = p.asked.Explain(ctx, req)
			require.NoError(t, err)
		case 2:
			r, err := p.asked.Reserve(ctx, req, time.Hour)
			require.NoError(t, err)
			require.False(t, r.Result().Allowed)
			p.denials++
		default:
			res, err := p.asked.Check(ctx, req)
			require.NoError(t, err)
			require.False(t, res.Allowed)
			p.denials++
		}
	}
}

// move moves the clock, sometimes back, and often to about the instant at which a request is granted.
func (p *duel) move(t *testing.T) {
	d := time.Duration(p.IntN(400) - 40)
	if p.IntN(3) == 0 {
		res, err := p.without.Peek(context.Background(), p.request(0))
		require.NoError(t, err)
		if d = res.ResetAfter; p.IntN(2) == 0 && res.RetryAfter != ratelimit.Never {
			d = res.RetryAfter
		}
		d += time.Duration(p.IntN(3) - 1)
	}
	p.clock.now = p.clock.now.Add(d)
}

// exact requires that a denial of a client that makes no other request says the truth: the request is
// granted after RetryAfter and not before, and the key is as new after ResetAfter. Check denies it with the same answer.
func (p *duel) exact(t *testing.T) {
	ctx, now := context.Background(), p.clock.now
	defer func() { p.clock.now = now }()
	peek := func(req ratelimit.Request, after time.Duration) ratelimit.Explanation {
		p.clock.now = now.Add(after)
		e, err := p.asked.Explain(ctx, req)
		require.NoError(t, err)
		return e
	}
	for _, tier := range p.tiers {
		req := p.request(1 + p.IntN(p.limits))
		req.Tier = tier
		e := peek(req, 0)
		if p.warms && e.Rules[0].AnsweredBy == "shared" {
			continue // what a unit costs a new key is rounded at the rate of each key that shares the debt
		}
		if wait := e.Result.RetryAfter; wait > 0 && wait != ratelimit.Never {
			require.True(t, peek(req, wait).Result.Allowed, "%v after %d", e, wait)
			require.False(t, peek(req, wait-1).Result.Allowed, "%v before %d", e, wait)
			require.False(t, peek(req, time.Duration(p.Int64N(int64(wait)))).Result.Allowed, "%v", e)
			p.denials++
		}
		if p.clock.now = now; !e.Result.Allowed {
			res, err := p.asked.Check(ctx, req)
			require.NoError(t, err)
			require.Equal(t, e.Result, res, "%v", e)
		}
	}
}

// TestDenialsAndLooksChangeNothing plays random histories on two limiters. One of them also gets requests
// that are denied, and looks, at random rates of its rules. All other answers must be the same.
func TestDenialsAndLooksChangeNothing(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		histories, extra, denials := 0, 0, 0
		for seed := range uint64(wantHistories()) {
			for rules := 1; rules <= 2; rules++ {
				p := newDuel(t, a, seed, rules, seed%4 == 3)
				for range 40 {
					p.move(t)
					p.meddle(t)
					p.step(t)
				}
				for _, client := range p.clients {
					for _, tier := range p.tiers {
						p.both(t, "Peek", func(tw *played) any {
							res, err := tw.Peek(context.Background(), ratelimit.Request{Client: client, Endpoint: "/", Tier: tier})
							require.NoError(t, err)
							return res
						})
					}
				}
				require.Equal(t, p.without.Stats()[0].Allowed, p.asked.Stats()[0].Allowed)
				histories, extra, denials = histories+1, extra+p.extra, denials+p.denials
			}
		}
		t.Logf("%s: %d histories with %d looks and %d denials: 0 differences", a.name, histories, extra, denials)
		require.Greater(t, denials, 10*histories)
	})
}

// TestRetryAfterAtOtherRates denies requests at other rates than that of the last charge, in random
// histories of one rule. A lone client must be granted its units after RetryAfter, and not before.
func TestRetryAfterAtOtherRates(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		histories, denials := 0, 0
		for seed := range uint64(wantHistories()) {
			p := newDuel(t, a, seed, 1, seed%4 == 3)
			for range 20 {
				p.move(t)
				p.step(t)
				p.exact(t)
			}
			histories, denials = histories+1, denials+p.denials
		}
		t.Logf("%s: %d histories with %d denials: 0 differences", a.name, histories, denials)
		require.Greater(t, denials, 10*histories)
	})
}

// TestWaitsAtOtherRates has callers wait for one key at different rates. Each first makes the same request
// without waiting: it is denied, and the RetryAfter must be the time that the caller then waits.
func TestWaitsAtOtherRates(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		if a.name == "LeakyBucket" {
			t.Skip("Wait also holds a request for its Delay")
		}
		waits := 0
		for seed := range uint64(wantHistories() / 4) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 9))
				rate := func() ratelimit.Rate {
					return a.rate(ratelimit.Rate{Requests: 1 + r.IntN(5), Per: time.Second, Burst: 3 + r.IntN(5)})
				}
				l, err := ratelimit.New([]ratelimit.Rule{{
					Endpoint: "/", Key: ratelimit.KeyGlobal, Algorithm: ratelimit.Algorithm(a.name), Rate: rate(),
					Tiers: map[string]ratelimit.Rate{"free": rate(), "paid": rate()},
				}}, nil)
				require.NoError(t, err)
				var all sync.WaitGroup
				for range 12 {
					time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
					synctest.Wait()
					req := ratelimit.Request{Endpoint: "/", Tier: []string{"", "free", "paid"}[r.IntN(3)], Cost: 1 + r.IntN(3)}
					res, err := l.Check(t.Context(), req)
					require.NoError(t, err)
					if res.Allowed || res.RetryAfter == ratelimit.Never {
						continue
					}
					waits++
					began := time.Now()
					all.Go(func() {
						_, err := l.Wait(t.Context(), req)
						require.NoError(t, err)
						require.Equal(t, res.RetryAfter, time.Since(began), "%+v: %v", req, res)
					})
					synctest.Wait()
				}
				all.Wait()
			})
		}
		t.Logf("%s: %d waits: 0 differences", a.name, waits)
		require.Positive(t, waits)
	})
}

// wantHistories returns how many histories a test plays. Each has only one goroutine, in which no race can be, so the race
// detector gets few.
func wantHistories() int {
	switch {
	case raceEnabled:
		return 300
	case testing.Short():
		return 800
	}
	return 8000
}
