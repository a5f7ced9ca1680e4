package ratelimittest

import (
	"context"
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// storeMutants are stores with one fault each, and the subtest that must find it.
var storeMutants = []struct {
	name   string
	by     string
	faults faults
}{
	{"RetryAfter one long", "answers/TokenBucket", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) {
		if !res.Allowed && res.RetryAfter != ratelimit.Never {
			res.RetryAfter++
		}
	})},
	{"RetryAfter one short", "answers/SlidingWindowCounter", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) {
		if res.RetryAfter > 1 && res.RetryAfter != ratelimit.Never {
			res.RetryAfter--
		}
	})},
	{"ResetAfter of a denial is zero", "answers/FixedWindow", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) {
		if !res.Allowed {
			res.ResetAfter = 0
		}
	})},
	{"no Delay", "answers/LeakyBucket", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) { res.Delay = 0 })},
	{"the Delay of a denial", "answers/LeakyBucket", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) {
		if !res.Allowed {
			res.Delay = 1
		}
	})},
	{"names the rule", "answers/TokenBucket", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) { res.Rule = a.Rule })},
	{"degraded", "answers/TokenBucket", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) { res.Degraded = true })},
	{"forgets Never", "answers/SlidingWindowLog", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) {
		if a.N == math.MaxInt {
			res.RetryAfter = 1
		}
	})},
	{"a result too few", "answers/TokenBucket", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		return results[1:]
	})},
	{"panics", "answers/TokenBucket", storeEditing(func(res *ratelimit.Result, a ratelimit.Ask) {
		if a.N > 2 {
			panic("three")
		}
	})},
	{"a denial is an error", "answers/TokenBucket", faults{take: func(
		s *slowStore, ctx context.Context, asks []ratelimit.Ask,
	) ([]ratelimit.Result, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		results := s.decide(asks)
		if !allowed(results) {
			return results, ratelimit.ErrExceedsLimit
		}
		return results, nil
	}}},
	{"a denial charges", "answers/TokenBucket", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		if !results[0].Allowed && asks[0].N > 1 {
			s.decide([]ratelimit.Ask{with(asks[0], 1)})
		}
		return results
	})},
	{"a look charges", "answers/SlidingWindowLog", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		if asks[0].N == 0 {
			s.decide([]ratelimit.Ask{with(asks[0], 1)})
		}
		return results
	})},
	{"a denial moves the time", "answers/TokenBucket", faults{now: func(s *slowStore, a ratelimit.Ask) time.Time {
		now := s.clock.Now()
		if last, ok := s.latest[idOf(a)]; ok && last.After(now) {
			now = last
		}
		if a.N > 0 {
			s.latest[idOf(a)] = now
		}
		return now
	}}},
	{"windows begin at the first ask", "answers/FixedWindow", faults{fresh: func(s *slowStore, a ratelimit.Ask) keeper {
		m := algorithmNamed(a.Algorithm).model(s.clock.Now(), a.Rate).(keeper)
		if w, ok := m.(*fixedWindow); ok {
			w.start = time.Unix(0, 0)
		}
		return m
	}}},
	{"an ask is charged before the next is denied", "all-or-none", storeDeciding(func(
		s *slowStore, asks []ratelimit.Ask,
	) (results []ratelimit.Result) {
		for i := range asks {
			results = append(results, s.decide(asks[i : i+1])[0])
		}
		return results
	})},
	{"what fits is denied with the others", "all-or-none", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		if !passed(asks, results) {
			for i := range results {
				results[i].Allowed = false
				results[i].RetryAfter = max(results[i].RetryAfter, 1)
			}
		}
		return results
	})},
	{"what fits is shown as charged among denials", "all-or-none", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		if !passed(asks, results) {
			for i, a := range asks {
				if results[i].Allowed {
					results[i].Remaining -= a.N
				}
			}
		}
		return results
	})},
	{"results in another order", "all-or-none", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		slices.Reverse(results)
		return results
	})},
	{"charges only the first", "all-or-none", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		before := make([]keeper, len(asks))
		for i, a := range asks[1:] {
			before[i+1] = s.states[s.name(a)]
		}
		results := s.decide(asks)
		for i, a := range asks {
			if before[i] != nil {
				s.states[s.name(a)] = before[i]
			}
		}
		return results
	})},
	{"a shadow denies the others", "shadow", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		all := slices.Clone(asks)
		for i := range all {
			all[i].Shadow = false
		}
		return s.decide(all)
	})},
	{"a shadow that does not fit is charged", "shadow", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		for i, a := range asks {
			if a.Shadow && a.N > 0 && results[i].Remaining > 0 && !results[i].Allowed {
				s.decide([]ratelimit.Ask{with(a, results[i].Remaining)})
			}
		}
		return results
	})},
	{"a shadow is charged though the others are denied", "shadow", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		results := s.decide(asks)
		for i, a := range asks {
			if a.Shadow && results[i].Allowed && !passed(asks, results) {
				s.decide([]ratelimit.Ask{with(a, a.N)})
			}
		}
		return results
	})},
	{"a shadow is never charged", "shadow", storeDeciding(func(s *slowStore, asks []ratelimit.Ask) []ratelimit.Result {
		var results []ratelimit.Result
		for _, a := range asks {
			if a.Shadow {
				results = append(results, s.decide([]ratelimit.Ask{with(a, 0)})[0])
			}
		}
		if results == nil || len(results) < len(asks) {
			return s.decide(asks)
		}
		return results
	})},
	{"forgets the old rate", "rate-change/TokenBucket",
		faults{adopt: func(m keeper, at time.Time, r ratelimit.Rate) { m.(*bucket).setRate(r) }}},
	{"keeps the old rate", "rate-change/FixedWindow", faults{adopt: func(keeper, time.Time, ratelimit.Rate) {}}},
	{"is new after a change", "rate-change/SlidingWindowLog", faults{adopt: func(m keeper, at time.Time, r ratelimit.Rate) {
		if log := m.(*slidingLog); log.rate != r {
			log.Reset()
			log.rate = r
		}
	}}},
	{"counts at the old rate", "rate-change/TokenBucket", faults{adopt: func(m keeper, at time.Time, r ratelimit.Rate) { m.SetRate(at, r) }}},
	{"counts at the new rate", "rate-change/LeakyBucket", faults{adopt: func(m keeper, at time.Time, r ratelimit.Rate) {
		if b := m.(*bucket); b.last != nil {
			m.SetRate(b.start.Add(duration(b.last)), r)
		}
	}}},
	{"rounds for the client", "rate-change/TokenBucket", faults{adopt: func(m keeper, at time.Time, r ratelimit.Rate) {
		m.adopt(at, r)
		if b := m.(*bucket); b.changed != nil && len(b.grants) == 0 {
			b.changed.owed = largest(num(0), sub(b.changed.owed, num(1)))
		}
	}}},
	{"a longer window is a new one", "rate-change/FixedWindow", faults{adopt: func(m keeper, at time.Time, r ratelimit.Rate) {
		if w := m.(*fixedWindow); r.Per > w.rate.Per {
			w.Reset()
		}
		m.adopt(at, r)
	}}},
	{"carries an estimate rounded down", "rate-change/SlidingWindowCounter", faults{adopt: func(m keeper, at time.Time, r ratelimit.Rate) {
		w := m.(*slidingCounter)
		w.setRate(w.instant(at), r, func(u *big.Int) *big.Int { return floorDiv(w.estimate(u), w.per()) })
	}}},
	{"is new when it is full at the rate of the last charge", "rate-change/TokenBucket", storeKeeping(func(b *bucket) { b.slowest = nil })},
	{"is new when it has drained at the rate of the last charge", "rate-change/LeakyBucket",
		storeKeeping(func(b *bucket) { b.slowest = nil })},
	{"is never new again", "rate-change/TokenBucket", storeKeeping(func(b *bucket) { b.grace = num(math.MaxInt64) })},
	{"is never new again, a leaky one", "rate-change/LeakyBucket", storeKeeping(func(b *bucket) { b.grace = num(math.MaxInt64) })},
	{"a denial keeps the old rate", "rate-change/TokenBucket", faults{keeps: func(_ ratelimit.Ask, _, charged bool) bool { return charged }}},
	{"a denial keeps the old rate, a leaky one", "rate-change/LeakyBucket",
		faults{keeps: func(_ ratelimit.Ask, _, charged bool) bool { return charged }}},
	{"a denial under a smaller burst changes the rate", "rate-change/TokenBucket",
		faults{keeps: func(a ratelimit.Ask, _, _ bool) bool { return a.N > 0 }}},
	{"a denial under a smaller burst changes the rate, a leaky one", "rate-change/LeakyBucket",
		faults{keeps: func(a ratelimit.Ask, _, _ bool) bool { return a.N > 0 }}},
	{"what can never fit keeps the old rate", "rate-change/TokenBucket", faults{keeps: func(a ratelimit.Ask, cut, charged bool) bool {
		return charged || a.N > 0 && a.N <= burst(a.Rate) && !cut
	}}},
	{"a shadow keeps the old rate", "rate-change/TokenBucket",
		faults{keeps: func(a ratelimit.Ask, cut, charged bool) bool { return charged || a.N > 0 && !a.Shadow && !cut }}},
	{"a look changes the rate", "rate-change/TokenBucket",
		faults{keeps: func(_ ratelimit.Ask, cut, charged bool) bool { return charged || !cut }}},
	{"Reset does nothing", "reset", faults{reset: func(*slowStore, context.Context, []ratelimit.Ask) error { return nil }}},
	{"Reset does one", "reset", faults{reset: func(s *slowStore, _ context.Context, asks []ratelimit.Ask) error {
		delete(s.states, s.name(asks[0]))
		return nil
	}}},
	{"Reset minds N", "reset", faults{reset: func(s *slowStore, _ context.Context, asks []ratelimit.Ask) error {
		for _, a := range asks {
			if a.N > 0 {
				delete(s.states, s.name(a))
			}
		}
		return nil
	}}},
	{"Reset of what is new fails", "reset", faults{reset: func(s *slowStore, _ context.Context, asks []ratelimit.Ask) error {
		for _, a := range asks {
			if s.states[s.name(a)] == nil {
				return errors.New("no such key")
			}
			delete(s.states, s.name(a))
		}
		return nil
	}}},
	{"Reset keeps the time", "reset", faults{reset: func(s *slowStore, _ context.Context, asks []ratelimit.Ask) error {
		for _, a := range asks {
			if m, ok := s.states[s.name(a)].(*bucket); ok {
				m.grants, m.changed = nil, nil
			} else {
				delete(s.states, s.name(a))
			}
		}
		return nil
	}}},
	{"joins by a colon", "names", storeNaming(func(a ratelimit.Ask) stateID { return stateID{a.Algorithm, a.Rule + ":" + a.Key, ""} })},
	{"joins by nothing", "names", storeNaming(func(a ratelimit.Ask) stateID { return stateID{a.Algorithm, a.Rule + a.Key, ""} })},
	{"joins by NUL", "names", storeNaming(func(a ratelimit.Ask) stateID { return stateID{a.Algorithm, a.Rule + "\x00" + a.Key, ""} })},
	{"any order of rule and key", "names", storeNaming(func(a ratelimit.Ask) stateID {
		return stateID{a.Algorithm, min(a.Rule, a.Key), max(a.Rule, a.Key)}
	})},
	{"cuts a key off", "names", storeNaming(func(a ratelimit.Ask) stateID {
		return stateID{a.Algorithm, a.Rule, a.Key[:min(len(a.Key), 1<<10)]}
	})},
	{"mends UTF-8", "names", storeNaming(func(a ratelimit.Ask) stateID {
		return stateID{a.Algorithm, a.Rule, strings.ToValidUTF8(a.Key, "\ufffd")}
	})},
	{"trims a key", "names", storeNaming(func(a ratelimit.Ask) stateID { return stateID{a.Algorithm, a.Rule, strings.TrimSpace(a.Key)} })},
	{"folds case", "names", storeNaming(func(a ratelimit.Ask) stateID { return stateID{a.Algorithm, a.Rule, strings.ToLower(a.Key)} })},
	{"drops braces", "names", storeNaming(func(a ratelimit.Ask) stateID {
		return stateID{a.Algorithm, a.Rule, strings.Trim(a.Key, "{}")}
	})},
	{"the client is the key", "names", storeNaming(func(a ratelimit.Ask) stateID { return stateID{a.Algorithm, a.Rule, a.Client} })},
	{"fails for some clients", "names", faults{take: func(
		s *slowStore, ctx context.Context, asks []ratelimit.Ask,
	) ([]ratelimit.Result, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(asks) > 1 && asks[0].Client == "}" {
			return nil, errors.New("CROSSSLOT")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.decide(asks), nil
	}}},
	{"the algorithm does not matter", "all-or-none", faults{
		id: func(a ratelimit.Ask) stateID { return stateID{"", a.Rule, a.Key} },
	}},
	{"an ended context is ignored", "ended-context", faults{take: func(
		s *slowStore, _ context.Context, asks []ratelimit.Ask,
	) ([]ratelimit.Result, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.decide(asks), nil
	}}},
	{"an ended context charges", "ended-context", faults{take: func(
		s *slowStore, ctx context.Context, asks []ratelimit.Ask,
	) ([]ratelimit.Result, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.decide(asks), ctx.Err()
	}}},
	{"an ended context is another error", "ended-context", faults{take: func(
		s *slowStore, ctx context.Context, asks []ratelimit.Ask,
	) ([]ratelimit.Result, error) {
		if ctx.Err() != nil {
			return nil, ratelimit.ErrStore
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.decide(asks), nil
	}}},
	{"a deadline is a cancellation", "ended-context", faults{take: func(
		s *slowStore, ctx context.Context, asks []ratelimit.Ask,
	) ([]ratelimit.Result, error) {
		if ctx.Err() != nil {
			return nil, context.Canceled
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.decide(asks), nil
	}}},
}

// TestStoreMutants checks that the kit finds each mutant by its subtest.
func TestStoreMutants(t *testing.T) {
	killed := 0
	for _, m := range storeMutants {
		t.Run(m.name, func(t *testing.T) {
			k, err := newStoreKit(StoreConfig{New: newSlowStore(m.faults), Schedules: 200})
			require.NoError(t, err)
			i := slices.IndexFunc(k.scheduleKinds(), func(f scheduleKind) bool { return f.name == m.by })
			require.GreaterOrEqual(t, i, 0, "there is no subtest %q", m.by)
			f := k.run(k.scheduleKinds()[i])
			require.NotNil(t, f, "not found by %s", m.by)
			killed++
			t.Logf("found in schedule %d, shown in %d calls", f.schedule, len(f.answers))
			require.LessOrEqual(t, len(f.answers), 8, "the schedule is not short:\n%v", f)
		})
	}
	t.Logf("%d of %d mutants killed", killed, len(storeMutants))
}
