package ratelimittest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A replayStore is a store made of the limiters of package ratelimit instead of the models.
// It remembers what happened to each state, and repeats it on a new limiter for each ask.
type replayStore struct {
	clock ratelimit.Clock

	mu     sync.Mutex
	states map[stateID]record
}

// A record is what happened to one state.
type record struct {
	start time.Time      // of the limiter
	first ratelimit.Rate // of the limiter
	told  []told

	rate    ratelimit.Rate // rate in force
	last    time.Time      // instant of the latest charge or change
	slowest ratelimit.Rate // the slowest rate at which a bucket was charged since it was new
}

// A told is one event: n units taken or, if n is 0, a change of the rate.
type told struct {
	at   time.Time
	n    int
	rate ratelimit.Rate
}

func newReplayStore(clock ratelimit.Clock) (ratelimit.Store, error) {
	return &replayStore{clock: clock, states: make(map[stateID]record)}, nil
}

// limiters make a limiter of each algorithm.
var limiters = map[ratelimit.Algorithm]func(ratelimit.Rate, ratelimit.Clock) (ratelimit.Limiter, error){
	ratelimit.AlgorithmTokenBucket:          limiterOf(ratelimit.NewTokenBucket),
	ratelimit.AlgorithmFixedWindow:          limiterOf(ratelimit.NewFixedWindow),
	ratelimit.AlgorithmSlidingWindowLog:     limiterOf(ratelimit.NewSlidingWindowLog),
	ratelimit.AlgorithmSlidingWindowCounter: limiterOf(ratelimit.NewSlidingWindowCounter),
	ratelimit.AlgorithmLeakyBucket:          limiterOf(ratelimit.NewLeakyBucket),
}

func limiterOf[L ratelimit.Limiter](
	construct func(ratelimit.Rate, ...ratelimit.Option) (L, error),
) func(ratelimit.Rate, ratelimit.Clock) (ratelimit.Limiter, error) {
	return func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
		return construct(r, ratelimit.WithClock(clock))
	}
}

func (s *replayStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	results := make([]ratelimit.Result, len(asks))
	passes := true
	for i, a := range asks {
		before := s.states[idOf(a)]
		rec := before.under(a, now)
		results[i] = rec.ask(a, now)
		passes = passes && (a.Shadow || results[i].Allowed)
		bursts, r := algorithmNamed(a.Algorithm).bursts && len(before.told) > 0, before.rate
		switch cut := bursts && (burst(a.Rate) < burst(r) || slower(a.Rate, r) || before.full(a.Algorithm, r, now)); {
		case a.N > 0 && !cut:
			s.states[idOf(a)] = rec
		case cut:
			results[i].ResetAfter = before.until(a, now, func(res ratelimit.Result) bool { return res.ResetAfter == 0 })
			if !results[i].Allowed {
				results[i].RetryAfter = before.until(a, now, func(res ratelimit.Result) bool { return res.Allowed })
			}
		}
	}
	for i, a := range asks {
		if passes && a.N > 0 && results[i].Allowed {
			rec := s.states[idOf(a)].under(a, now)
			var err error
			if results[i], err = rec.limiter(a.Algorithm, now).Take(ctx, "", a.N); err != nil {
				return nil, err
			}
			rec.told = append(rec.told, told{at: now, n: a.N})
			rec.touch(now)
			s.states[idOf(a)] = rec
		}
	}
	return results, nil
}

// ask returns the result of a, without charging it: an ask that fits gets the result of a
// look.
func (rec record) ask(a ratelimit.Ask, now time.Time) ratelimit.Result {
	l := rec.limiter(a.Algorithm, now)
	look, _ := l.Take(context.Background(), "", 0)
	if a.N <= look.Remaining {
		return look
	}
	res, _ := l.Take(context.Background(), "", a.N)
	return res
}

// until returns how long it takes until holds is true for the result of a, if a is not charged.
func (rec record) until(a ratelimit.Ask, now time.Time, holds func(ratelimit.Result) bool) time.Duration {
	var ahead time.Duration // nothing changes until the clock has reached rec.last
	if now.Before(rec.last) {
		ahead, now = rec.last.Sub(now), rec.last
	}
	at := func(d time.Duration) bool { return holds(rec.under(a, now.Add(d)).ask(a, now.Add(d))) }
	early, late := time.Duration(0), time.Duration(1)
	for late < ratelimit.Never && !at(late) {
		early, late = late+1, late+min(late, ratelimit.Never-late)
	}
	for early < late {
		if middle := early + (late-early)/2; at(middle) {
			late = middle
		} else {
			early = middle + 1
		}
	}
	if late == 0 {
		return 0
	}
	return later(late, ahead)
}

// slower reports whether a bucket earns units more slowly at the rate r than at another one.
func slower(r, than ratelimit.Rate) bool {
	return mul(num(int64(r.Requests)), num(int64(than.Per))).Cmp(mul(num(int64(than.Requests)), num(int64(r.Per)))) < 0
}

// under returns rec after a change to the rate of a.
func (rec record) under(a ratelimit.Ask, now time.Time) record {
	old, r := rec.rate, a.Rate
	rec.rate = r
	bursts := algorithmNamed(a.Algorithm).bursts
	if len(rec.told) == 0 {
		rec.start, rec.first, rec.slowest = now, r, r
		return rec
	}
	unused := bursts && rec.full(a.Algorithm, rec.slowest.WithBurst(burst(old)), now)
	if unused || !slower(rec.slowest, r) {
		rec.slowest = r
	}
	switch {
	case old == r, bursts && equivalent(old, r):
		return rec
	}
	rec.told = slices.Clip(rec.told)
	if bursts && slower(r, old) && !unused {
		rec.told = append(rec.told, told{at: rec.last, rate: r.WithBurst(burst(old))})
		if burst(r) == burst(old) {
			// The limiter would ignore a change to the rate that it has.
			rec.told = append(rec.told, told{at: now, rate: ratelimit.Rate{Requests: r.Requests, Per: 2 * r.Per, Burst: burst(old)}})
		}
	}
	rec.told = append(rec.told, told{at: now, rate: r})
	rec.touch(now)
	return rec
}

// full reports whether the bucket with the record rec is full at now, if it has earned units at the rate r since rec.last.
func (rec record) full(a ratelimit.Algorithm, r ratelimit.Rate, now time.Time) bool {
	rec.told = append(slices.Clip(rec.told), told{at: rec.last, rate: r})
	if now.Before(rec.last) {
		now = rec.last
	}
	look, _ := rec.limiter(a, now).Take(context.Background(), "", 0)
	return look.ResetAfter == 0
}

func (rec *record) touch(now time.Time) {
	if len(rec.told) == 1 || now.After(rec.last) {
		rec.last = now
	}
}

// limiter returns a limiter that has been through the events of rec. Its clock reads now.
func (rec record) limiter(a ratelimit.Algorithm, now time.Time) ratelimit.Limiter {
	clock := &manualClock{rec.start}
	l, err := limiters[a](rec.first, clock)
	for _, t := range rec.told {
		clock.now = t.at
		if t.n > 0 && err == nil {
			_, err = l.Take(context.Background(), "", t.n)
		} else if err == nil {
			err = l.(rateSetter).SetRate(t.rate)
		}
	}
	if err != nil {
		panic(err)
	}
	clock.now = now
	return l
}

func (s *replayStore) Reset(_ context.Context, asks []ratelimit.Ask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range asks {
		delete(s.states, idOf(a))
	}
	return nil
}

// TestReplayStore compares the models of the kit with the limiters, including unannounced
// changes of the rate.
//
// It leaves these out for leaky buckets: two announced changes cannot express what an
// unannounced change does to a queue that is longer than the burst.
func TestReplayStore(t *testing.T) {
	var tellable []ratelimit.Algorithm
	for _, a := range algorithms {
		if a.name != ratelimit.AlgorithmLeakyBucket {
			tellable = append(tellable, a.name)
		}
	}
	TestStore(t, StoreConfig{New: newReplayStore, Algorithms: tellable, Schedules: 25, Seed: 2})
	k, err := newStoreKit(StoreConfig{New: newReplayStore, Schedules: 25, Seed: 3})
	require.NoError(t, err)
	for _, f := range k.scheduleKinds() {
		if !f.changes {
			require.Nil(t, k.run(f), f.name)
		}
	}
}
