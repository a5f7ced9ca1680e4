package ratelimittest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// mutants are limiters with one fault each.
var mutants = []struct {
	name  string
	model func(time.Time, ratelimit.Rate) Model // model that the limiter is made of
	parts parts
	right func(time.Time, ratelimit.Rate) Model // model that it should have
	bound Bound
	by    string // promise that it breaks if the kit has no model
}{
	{name: "admits one too many", by: "look-agrees", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		if max(n, 1) == res.Remaining+1 && !res.Allowed && max(n, 1) <= res.Limit {
			return ratelimit.Result{Allowed: true, Limit: res.Limit, ResetAfter: res.ResetAfter}
		}
		return res
	})},
	{name: "admits more than the limit", by: "never", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		if n > res.Limit && res.Remaining == res.Limit {
			res.Allowed, res.RetryAfter = true, 0
		}
		return res
	})},
	{name: "forgets Never", by: "never", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		if n > res.Limit {
			res.RetryAfter = time.Hour
		}
		return res
	})},
	{name: "Never too often", by: "retry-after", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		if n > 1 && !res.Allowed {
			res.RetryAfter = ratelimit.Never
		}
		return res
	})},
	{name: "RetryAfter one short", by: "retry-after", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		if res.RetryAfter > 1 && res.RetryAfter != ratelimit.Never {
			res.RetryAfter--
		}
		return res
	})},
	{name: "RetryAfter one long", by: "retry-after", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		if !res.Allowed && res.RetryAfter != ratelimit.Never {
			res.RetryAfter++
		}
		return res
	})},
	{name: "RetryAfter of what is allowed", by: "well-formed", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		res.RetryAfter = max(res.RetryAfter, 1)
		return res
	})},
	{name: "ResetAfter one short", by: "reset-after", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		res.ResetAfter = max(res.ResetAfter-1, 0)
		return res
	})},
	{name: "ResetAfter one long", by: "model", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		res.ResetAfter = max(res.ResetAfter, res.ResetAfter+1)
		return res
	})},
	{name: "Remaining one high", by: "exact-use", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		if res.Allowed && n > 0 {
			res.Remaining++
		}
		return res
	})},
	{name: "Remaining one low", by: "look-agrees", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		res.Remaining = max(res.Remaining-1, 0)
		return res
	})},
	{name: "Remaining above the limit", by: "well-formed", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		res.Remaining++
		return res
	})},
	{name: "panics", by: "well-formed", parts: edit(func(res ratelimit.Result, n int) ratelimit.Result {
		if res.Remaining == 2 {
			panic("two")
		}
		return res
	})},
	{name: "a denial is an error", by: "well-formed", parts: parts{take: func(
		l *modelLimiter, ctx context.Context, key string, n int,
	) (ratelimit.Result, error) {
		if n < 0 {
			return ratelimit.Result{}, ratelimit.ErrInvalidCount
		}
		if ctx.Err() != nil {
			return ratelimit.Result{}, ctx.Err()
		}
		res := l.ask(key, n)
		if !res.Allowed {
			return res, ratelimit.ErrExceedsLimit
		}
		return res, nil
	}}},
	{name: "a look charges", by: "look-is-free", parts: deciding(func(l *modelLimiter, key string, n int) ratelimit.Result {
		return l.of(key).Ask(l.clock.Now(), max(n, 1))
	})},
	{name: "a denial charges", by: "denial-is-free", parts: deciding(func(l *modelLimiter, key string, n int) ratelimit.Result {
		res := l.of(key).Ask(l.clock.Now(), n)
		if n > 1 && !res.Allowed {
			l.of(key).Ask(l.clock.Now(), 1)
		}
		return res
	})},
	{name: "a denial moves the time", by: "denial-is-free", parts: deciding(func(l *modelLimiter, key string, n int) ratelimit.Result {
		now := l.clock.Now()
		if l.seen[key].After(now) {
			now = l.seen[key]
		}
		res := l.of(key).Ask(now, n)
		if n > 0 && !res.Allowed {
			l.seen[key] = now
		}
		return res
	})},
	{name: "the clock rewinds", by: "clock", parts: deciding(func(l *modelLimiter, key string, n int) ratelimit.Result {
		if l.keys[key] == nil {
			l.keys[key] = &rewinding{Model: l.of(key), last: l.clock.Now()}
		}
		if n == 0 {
			return l.keys[key].(*rewinding).Model.Ask(l.clock.Now(), 0)
		}
		return l.keys[key].Ask(l.clock.Now(), n)
	})},
	{name: "an ended context is ignored", by: "ended-context", parts: parts{take: func(
		l *modelLimiter, _ context.Context, key string, n int,
	) (ratelimit.Result, error) {
		if n < 0 {
			return ratelimit.Result{}, ratelimit.ErrInvalidCount
		}
		return l.ask(key, n), nil
	}}},
	{name: "an ended context is charged", by: "ended-context", parts: parts{take: func(
		l *modelLimiter, ctx context.Context, key string, n int,
	) (ratelimit.Result, error) {
		if n < 0 {
			return ratelimit.Result{}, ratelimit.ErrInvalidCount
		}
		if res := l.ask(key, n); ctx.Err() == nil {
			return res, nil
		}
		return ratelimit.Result{}, ctx.Err()
	}}},
	{name: "a negative count is taken as none", by: "negative-count", parts: parts{take: func(
		l *modelLimiter, ctx context.Context, key string, n int,
	) (ratelimit.Result, error) {
		if ctx.Err() != nil {
			return ratelimit.Result{}, ctx.Err()
		}
		return l.ask(key, max(n, 0)), nil
	}}},
	{name: "a negative count refills", by: "negative-count", parts: parts{take: func(
		l *modelLimiter, ctx context.Context, key string, n int,
	) (ratelimit.Result, error) {
		if n < 0 {
			l.of(key).Reset()
			return ratelimit.Result{}, ratelimit.ErrInvalidCount
		}
		if ctx.Err() != nil {
			return ratelimit.Result{}, ctx.Err()
		}
		return l.ask(key, n), nil
	}}},
	{name: "keys share a budget", by: "keys", parts: deciding(func(l *modelLimiter, _ string, n int) ratelimit.Result {
		return l.of(keys[0]).Ask(l.clock.Now(), n)
	})},
	{name: "less is left later", by: "monotone", parts: deciding(func(l *modelLimiter, key string, n int) ratelimit.Result {
		if l.clock.Now().Sub(l.start)/l.rate.Per%2 != 0 {
			return ratelimit.Result{Limit: burst(l.rate), RetryAfter: l.rate.Per}
		}
		return l.of(key).Ask(l.clock.Now(), n)
	})},
	{name: "several at once count as later", by: "split", parts: deciding(func(l *modelLimiter, key string, n int) ratelimit.Result {
		if n > 1 {
			return l.of(key).Ask(l.clock.Now().Add(1), n)
		}
		return l.of(key).Ask(l.clock.Now(), n)
	})},
	{name: "Allow takes two", by: "shortcuts", parts: parts{allow: func(l *modelLimiter, key string) ratelimit.Result {
		return l.ask(key, 2)
	}}},
	{name: "Peek shows one unit taken", by: "shortcuts", parts: parts{peek: func(l *modelLimiter, key string) ratelimit.Result {
		res := l.ask(key, 0)
		res.Remaining = max(res.Remaining-1, 0)
		return res
	}}},
	{name: "Reset does nothing", by: "reset", parts: parts{reset: func(*modelLimiter, string) error {
		return nil
	}}},
	{name: "SetRate refills", by: "rate-change", parts: parts{setRate: func(l *modelLimiter, r ratelimit.Rate) error {
		if err := r.Validate(); err != nil {
			return err
		}
		l.rate, l.keys = r, make(map[string]Model)
		return nil
	}}},
	{name: "SetRate to the same refills", by: "same-rate", parts: parts{setRate: func(l *modelLimiter, r ratelimit.Rate) error {
		if r == l.rate {
			l.keys = make(map[string]Model)
		}
		return l.change(r)
	}}},
	{name: "SetRate takes anything", by: "rate-change", parts: parts{setRate: func(l *modelLimiter, r ratelimit.Rate) error {
		if r.Validate() != nil {
			return nil
		}
		return l.change(r)
	}}},
	{name: "earns twice as fast", by: "bound", model: faster(TokenBucketModel)},
	{name: "leaks twice as fast", by: "bound", right: LeakyBucketModel, bound: LeakyBucketBound, model: faster(LeakyBucketModel)},
	{name: "a window where a log should be", by: "bound", right: SlidingWindowLogModel, bound: SlidingWindowLogBound, model: FixedWindowModel},
	{name: "a window where a counter should be", by: "bound",
		right: SlidingWindowCounterModel, bound: SlidingWindowCounterBound, model: FixedWindowModel},
	{name: "a bucket where a window should be", by: "bound", right: FixedWindowModel, bound: FixedWindowBound, model: TokenBucketModel},
	{name: "a log where a counter should be", by: "model",
		right: SlidingWindowCounterModel, bound: SlidingWindowCounterBound, model: SlidingWindowLogModel},
	{name: "no Delay", by: "model", right: LeakyBucketModel, bound: LeakyBucketBound, model: TokenBucketModel},
}

// TestMutants checks that the kit finds each mutant by the promise that it breaks, and by
// comparison with the model.
func TestMutants(t *testing.T) {
	const schedules = 500
	killed := 0
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			if m.right == nil {
				m.right, m.bound = TokenBucketModel, TokenBucketBound
			}
			if m.model == nil {
				m.model = m.right
			}
			c := Config{New: newLimiter(m.model, m.parts), Rates: smallRates, Bound: m.bound, Schedules: schedules}
			if m.by == "model" {
				c.Model = m.right
			}
			var f *failure
			var all []string
			for ; f == nil && c.Seed < 10; c.Seed++ { // with some seeds, another promise breaks first
				k, err := newKit(c)
				if err != nil {
					t.Fatal(err)
				}
				broken := k.run()
				f, all = broken[m.by], slices.Sorted(maps.Keys(broken))
			}
			if f == nil {
				t.Fatalf("it must be found by %s, but was found by %v", m.by, all)
			}
			killed++
			t.Logf("found by %v in schedule %d of seed %d, shown in %d calls", all, f.schedule, f.kit.Seed, f.step+1)
			if f.step > 8 {
				t.Errorf("the schedule is not short:\n%v", f)
			}
		})
	}
	t.Logf("%d of %d mutants killed", killed, len(mutants))
}

// smallRates have no burst, so that all algorithms accept them.
var smallRates = []ratelimit.Rate{
	{Requests: 1, Per: 10},
	{Requests: 3, Per: 10},
	{Requests: 4, Per: 8},
	{Requests: 7, Per: 100},
	{Requests: 5, Per: 10 * time.Second},
}
