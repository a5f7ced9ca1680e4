package verify

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A machine is a limiter of many keys, with a model for each key that was asked for.
//
// A table that is not small forgets keys that are as good as new. That is invisible as long
// as the clock does not step back and the burst is not raised. The machine therefore has
// either many keys, or few keys and freer moves.
type machine struct {
	algorithm algorithm
	limiter   limiter
	clock     *manualClock
	rate      ratelimit.Rate
	rates     []ratelimit.Rate
	models    map[string]ratelimittest.Model
	keys      *rapid.Generator[string]
	free      bool // whether it has few keys
	last      ratelimit.Result
	acts      map[string]int
}

const fewKeys = 4 // a table keeps so many keys without forgetting any

var (
	// oneBurst are rates that differ in everything except the burst.
	oneBurst = []ratelimit.Rate{
		{Requests: 3, Per: 10, Burst: 5},
		{Requests: 1, Per: 7, Burst: 5},
		{Requests: 5, Per: 100, Burst: 5},
		{Requests: 9, Per: 30, Burst: 5},
		{Requests: 9, Per: 10, Burst: 5},
	}
	manyKeys = rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("k", rapid.IntRange(0, 19).Draw(t, "key")) })
	someKeys = rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("k", rapid.IntRange(0, fewKeys-1).Draw(t, "key")) })
)

func (m *machine) model(key string) ratelimittest.Model {
	if m.models[key] == nil {
		m.models[key] = m.algorithm.model(starts[0], m.rate)
	}
	return m.models[key]
}

// ask asks for n units, and compares the whole answer.
func (m *machine) ask(t *rapid.T, key string, n int) {
	res, err := m.limiter.Take(context.Background(), key, n)
	require.NoError(t, err)
	require.Equal(t, m.model(key).Ask(m.clock.now, n), res, "Take(%q, %d) at %+d ns and %#v", key, n, m.clock.now.Sub(starts[0]), m.rate)
	m.last = res
}

func (m *machine) actions() map[string]func(*rapid.T) {
	acts := map[string]func(*rapid.T){
		"Allow": func(t *rapid.T) {
			key := m.keys.Draw(t, "key")
			res := m.limiter.Allow(key)
			require.Equal(t, m.model(key).Ask(m.clock.now, 1), res)
			m.last = res
		},
		"Take": func(t *rapid.T) {
			m.ask(t, m.keys.Draw(t, "key"), rapid.IntRange(0, 7).Draw(t, "n"))
		},
		"Peek": func(t *rapid.T) {
			key := m.keys.Draw(t, "key")
			require.Equal(t, m.model(key).Ask(m.clock.now, 0), m.limiter.Peek(key))
		},
		"Reset": func(t *rapid.T) {
			key := m.keys.Draw(t, "key")
			require.NoError(t, m.limiter.Reset(key))
			m.model(key).Reset()
		},
		"SetRate": func(t *rapid.T) {
			m.rate = rapid.SampledFrom(m.rates).Draw(t, "rate")
			require.NoError(t, m.limiter.SetRate(m.rate))
			for _, model := range m.models {
				model.SetRate(m.clock.now, m.rate)
			}
		},
		"Forward": func(t *rapid.T) {
			m.clock.now = m.clock.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "ns")))
		},
		"Retry": func(t *rapid.T) {
			if m.last.RetryAfter == ratelimit.Never {
				t.Skip("no wait is long enough")
			}
			m.clock.now = m.clock.now.Add(m.last.RetryAfter)
		},
		"Idle": func(t *rapid.T) {
			m.clock.now = m.clock.now.Add(m.last.ResetAfter)
		},
	}
	if m.free {
		acts["Back"] = func(t *rapid.T) {
			m.clock.now = m.clock.now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "ns")))
		}
	}
	for name, act := range acts {
		acts[name] = func(t *rapid.T) {
			act(t)
			m.acts[name]++
		}
	}
	acts[""] = func(t *rapid.T) {
		require.LessOrEqual(t, m.limiter.Len(), len(m.models))
		live := 0
		for key, model := range m.models {
			want := model.Ask(m.clock.now, 0)
			require.Equal(t, want, m.limiter.Peek(key))
			if want.ResetAfter > 0 {
				live++
			}
		}
		require.GreaterOrEqual(t, m.limiter.Len(), live, "a key that is not as good as new is kept")
	}
	return acts
}

// TestPropertiesOfManyKeys makes random calls in a random order, and after each compares
// all keys with their models.
func TestPropertiesOfManyKeys(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		acts := make(map[string]int)
		machines := 0
		rapid.Check(t, func(t *rapid.T) {
			m := &machine{algorithm: a, clock: &manualClock{starts[0]}, acts: acts}
			m.models = make(map[string]ratelimittest.Model)
			m.keys, m.rates = manyKeys, a.those(oneBurst)
			if m.free = rapid.Bool().Draw(t, "few keys"); m.free {
				m.keys, m.rates = someKeys, a.those(everydayRates)
			}
			m.rate = m.rates[0]
			m.limiter = a.start(t, m.rate, ratelimit.WithClock(m.clock))
			t.Repeat(m.actions())
			machines++
		})
		t.Logf("%s: %d machines, %v: 0 counterexamples", a.name, machines, acts)
		require.GreaterOrEqual(t, machines, wantChecks())
	})
}
