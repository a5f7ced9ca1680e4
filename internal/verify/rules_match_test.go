package verify

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A matcher is a RateLimiter whose rules change, and a list of the same rules.
type matcher struct {
	random  *rand.Rand
	limiter *ratelimit.RateLimiter
	rules   []bookRule
	made    int
	counts  map[string]uint64 // how often each rule was charged
}

// What a matcher draws from. Endpoints that differ in their last byte alone tell whether a
// prefix is compared as a whole.
var (
	matchedPatterns  = append(slices.Clone(patterns), "/ab*")
	matchedEndpoints = append(slices.Clone(endpoints), "/ab", "/ac")
)

// draw returns a random rule whose limit is never reached. Each rule has a smaller limit than
// those before it, so that it is known which one binds.
func (m *matcher) draw() (r bookRule) {
	m.made++
	r.Name, r.Rate, r.Mode = fmt.Sprint("r", m.made), ratelimit.PerSecond(1_000_000-1000*m.made), ratelimit.ModeEnforce
	if m.random.IntN(3) == 0 {
		r.Mode = ratelimit.ModeShadow
	}
	r.Endpoint = matchedPatterns[m.random.IntN(len(matchedPatterns))]
	r.Additional = r.Endpoint != "" && m.random.IntN(4) == 0
	return r
}

// drawDefault returns a random default rule.
func (m *matcher) drawDefault() (r bookRule) {
	r = m.draw()
	r.isDefault, r.Endpoint, r.Additional = true, "", false
	return r
}

// change makes one random change.
func (m *matcher) change(t *testing.T) {
	t.Helper()
	last := len(m.rules)
	hasDefault := last > 0 && m.rules[last-1].isDefault
	if hasDefault {
		last--
	}
	switch i := m.random.IntN(len(m.rules) + 1); m.random.IntN(6) {
	case 0:
		r := m.draw()
		require.NoError(t, m.limiter.AddRule(r.Rule))
		m.rules = slices.Insert(m.rules, last, r)
	case 1:
		if i < len(m.rules) {
			require.NoError(t, m.limiter.RemoveRule(m.rules[i].Name))
			m.rules = slices.Delete(m.rules, i, i+1)
		}
	case 2:
		if i < len(m.rules) {
			m.rules[i].Rate.Requests++
			require.NoError(t, m.limiter.UpdateRate(m.rules[i].Name, m.rules[i].Rate))
		}
	case 3:
		r := m.drawDefault()
		require.NoError(t, m.limiter.SetDefaultRule(r.Rule))
		m.rules = append(m.rules[:last], r)
	case 4:
		m.random.Shuffle(last, func(i, j int) { m.rules[i], m.rules[j] = m.rules[j], m.rules[i] })
		if i < last {
			name := m.rules[i].Name
			m.rules[i] = m.draw()
			m.rules[i].Name = name
		}
		list, defaultRule := m.list()
		require.NoError(t, m.limiter.Replace(list, defaultRule))
	}
}

func (m *matcher) list() (list []ratelimit.Rule, defaultRule *ratelimit.Rule) {
	for _, r := range m.rules {
		if r.isDefault {
			defaultRule = &r.Rule
			continue
		}
		list = append(list, r.Rule)
	}
	return list, defaultRule
}

// ask makes a random request and compares the rules that were charged with those of the list
// that apply.
func (m *matcher) ask(t *testing.T) {
	t.Helper()
	req := ratelimit.Request{Client: "ann", Endpoint: matchedEndpoints[m.random.IntN(len(matchedEndpoints))]}
	if m.random.IntN(4) == 0 {
		for _, r := range m.rules {
			if m.random.IntN(3) == 0 {
				req.Rules = append(req.Rules, r.Name)
			}
		}
	}
	res, err := m.limiter.Check(t.Context(), req)
	require.NoError(t, err)
	require.True(t, res.Allowed)
	var want, got []string
	binding, least := "", math.MaxInt
	for _, r := range applying(m.rules, req) {
		if want = append(want, r.Name); r.Mode != ratelimit.ModeShadow && r.Rate.Requests < least {
			binding, least = r.Name, r.Rate.Requests
		}
	}
	counts := make(map[string]uint64)
	for _, s := range m.limiter.Stats() {
		if counts[s.Rule] = s.Allowed; s.Allowed != m.counts[s.Rule] {
			got = append(got, s.Rule)
		}
	}
	m.counts = counts
	if !slices.Equal(want, got) || binding != res.Rule {
		require.Equal(t, want, got, "%+v with the rules %+v", req, m.rules)
		require.Equal(t, binding, res.Rule, "%+v with the rules %+v", req, m.rules)
	}
}

// TestMatchingAgainstAModel compares which rules a RateLimiter finds, in 2,000 random sets of
// rules that change, with a filter of the list of the rules.
func TestMatchingAgainstAModel(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for seed := range uint64(2000) {
		m := &matcher{random: rand.New(rand.NewPCG(seed, 10))}
		for range m.random.IntN(8) {
			m.rules = append(m.rules, m.draw())
		}
		if m.random.IntN(2) == 0 {
			m.rules = append(m.rules, m.drawDefault())
		}
		list, defaultRule := m.list()
		var err error
		m.limiter, err = ratelimit.New(list, defaultRule, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1e9, 0))))
		require.NoError(t, err)
		for range 20 {
			m.ask(t)
			if m.random.IntN(2) == 0 {
				m.change(t)
				counts := make(map[string]uint64)
				for _, s := range m.limiter.Stats() {
					counts[s.Rule] = s.Allowed
				}
				m.counts = counts
			}
		}
	}
}

// TestShadowRulesChangeNoResult compares 100,000 answers of limiters with shadow rules with
// those of limiters that have the same rules without the shadow rules.
func TestShadowRulesChangeNoResult(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	denied := 0
	for seed := range uint64(500) {
		m := &matcher{random: rand.New(rand.NewPCG(seed, 11))}
		clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
		for i := range 8 {
			r := m.draw()
			if i == 7 {
				r = m.drawDefault()
			}
			r.Algorithm = algorithmNames[m.random.IntN(len(algorithmNames))]
			r.Key = keyTypes[m.random.IntN(len(keyTypes))]
			r.Rate = ratelimit.Rate{Requests: 1 + m.random.IntN(9), Per: time.Second}
			m.rules = append(m.rules, r)
		}
		list, defaultRule := m.list()
		all, err := ratelimit.New(list, defaultRule, ratelimit.WithClock(clock))
		require.NoError(t, err)
		m.rules = slices.DeleteFunc(m.rules, func(r bookRule) bool { return r.Mode == ratelimit.ModeShadow })
		list, defaultRule = m.list()
		without, err := ratelimit.New(list, defaultRule, ratelimit.WithClock(clock))
		require.NoError(t, err)
		for range 200 {
			clock.Advance(time.Duration(m.random.IntN(1e8)))
			req := ratelimit.Request{
				Client: clients[m.random.IntN(len(clients))], Endpoint: matchedEndpoints[m.random.IntN(len(matchedEndpoints))],
				IP: addresses[m.random.IntN(len(addresses))], Cost: m.random.IntN(3),
			}
			got, err := all.Check(t.Context(), req)
			require.NoError(t, err)
			want, err := without.Check(t.Context(), req)
			require.NoError(t, err)
			if got != want {
				require.Equal(t, want, got, "%+v", req)
			}
			if !got.Allowed {
				denied++
			}
		}
	}
	require.Greater(t, denied, 10_000)
}

// TestKeysOfParts proves that requests share a budget if and only if they are equal in each
// part of the key: in this process, and in a store.
func TestKeysOfParts(t *testing.T) {
	t.Parallel()
	values := []string{"", "1", ":", "1:", "1:1", "a", "1:a", "+", "\x00"}
	tenant, region := ratelimit.KeyAttr("tenant"), ratelimit.KeyAttr("region")
	parts := []ratelimit.KeyType{ratelimit.KeyUser, ratelimit.KeyEndpoint, ratelimit.KeyIP, tenant, region}
	for mask := 1; mask < 1<<len(parts); mask++ {
		var some []ratelimit.KeyType
		for i, part := range parts {
			if mask>>i&1 == 1 {
				some = append(some, part)
			}
		}
		rule := ratelimit.Rule{Name: "r", Endpoint: "*", Key: ratelimit.KeyOf(some...), Rate: ratelimit.PerDay(1)}
		clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
		store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		random := rand.New(rand.NewPCG(uint64(mask), 12))
		here, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		there, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("n"))
		require.NoError(t, err)
		seen := make(map[[5]string]bool)
		for range 2000 {
			var drawn, key [5]string
			for i := range drawn {
				drawn[i] = values[random.IntN(len(values))]
				if mask>>i&1 == 1 {
					key[i] = drawn[i]
				}
			}
			req := ratelimit.Request{Client: drawn[0], Endpoint: drawn[1], IP: drawn[2], Attrs: map[string]string{"tenant": drawn[3], "region": drawn[4]}}
			if drawn[4] == "" {
				delete(req.Attrs, "region")
			}
			for _, l := range []*ratelimit.RateLimiter{here, there} {
				res, err := l.Check(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, !seen[key], res.Allowed, "%s: %q", rule.Key, drawn)
			}
			seen[key] = true
		}
	}
}
