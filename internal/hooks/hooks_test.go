package hooks

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A mutex counts how often it is locked, and knows whether it is.
type mutex struct {
	locks  int
	locked bool
}

func (m *mutex) Lock()   { m.locks, m.locked = m.locks+1, true }
func (m *mutex) Unlock() { m.locked = false }

// TestEachCallIsMadeOnce proves that a call is made outside of the lock, once for each key, and that its answer
// is there in the next try.
func TestEachCallIsMadeOnce(t *testing.T) {
	var c Calls
	var mu mutex
	made := map[string]int{}
	refused := errors.New("refused")
	ask := func(key string, answer error) error {
		return c.Ask(key, func() error {
			assert.False(t, mu.locked, "user code runs without the lock")
			made[key]++
			return answer
		})
	}
	steps := []int{0, 0, 0}
	first := func() error {
		assert.True(t, mu.locked)
		steps[0]++
		if err := ask("a", refused); steps[0] == 1 {
			assert.NoError(t, err, "an answer that is missing")
			assert.NoError(t, ask("a", refused), "asked for twice")
			assert.NoError(t, ask("b", nil))
			assert.True(t, c.Missing())
			assert.Empty(t, made, "no call is made in the plan")
			return errors.New("an error without the answers means nothing")
		}
		assert.Equal(t, []int{1, 1}, []int{made["a"], made["b"]})
		assert.ErrorIs(t, ask("a", nil), refused, "what the call has answered")
		assert.NoError(t, ask("b", refused))
		assert.False(t, c.Missing())
		return nil
	}
	second := func() error {
		steps[1]++
		return ask("c", refused) // only the second step needs it
	}
	third := func() error {
		steps[2]++
		return nil
	}
	done, err := c.Change(&mu, 3, first, second, third)
	assert.True(t, done)
	assert.ErrorIs(t, err, refused)
	assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, made)
	assert.Equal(t, []int{3, 2, 0}, steps, "each try begins with the first step, and an error ends it")
	assert.Equal(t, 3, mu.locks)
	assert.False(t, mu.locked)
}

// TestChangeEnds proves that a change is tried only so often, and that its last step ends it.
func TestChangeEnds(t *testing.T) {
	var c Calls
	var mu mutex
	tries := 0
	another := func() error {
		tries++
		return c.Ask(tries, func() error { return nil })
	}
	done, err := c.Change(&mu, 4, another)
	assert.NoError(t, err)
	assert.Equal(t, []any{false, 4, 4, false}, []any{done, tries, mu.locks, mu.locked}, "each try needs another answer")

	ended := 0
	end := func() error {
		ended++
		return nil
	}
	done, err = c.Change(&mu, 4, end, end)
	assert.NoError(t, err)
	assert.Equal(t, []any{true, 2}, []any{done, ended})
}

// A closer counts how often it is closed.
type closer struct {
	closed int
	panics bool
}

func (c *closer) Close() error {
	c.closed++
	if c.panics {
		panic("closing")
	}
	return errors.New("closing")
}

// TestCloseUnused proves that a value is closed once, and only if no rule has it.
func TestCloseUnused(t *testing.T) {
	none := func(any) bool { return false }
	v := &closer{panics: true}
	m := &Built{Value: v}
	var nobody *Built
	nobody.Use(1)
	m.Use(2)
	m.Use(-1)
	CloseUnused(none, m, nil)
	assert.Zero(t, v.closed, "a rule has it")
	m.Use(-1)
	CloseUnused(func(other any) bool { return other == any(v) }, m)
	assert.Zero(t, v.closed, "the hook has returned it twice, and a rule has the other one")
	CloseUnused(none, m)
	assert.Equal(t, 1, v.closed, "nobody has it")
	CloseUnused(none, m, m)
	assert.Equal(t, 1, v.closed, "once")
	CloseUnused(none, &Built{Value: 1})

	kept := &closer{}
	later := &Built{Value: kept, Build: func() (any, error) { return nil, errors.New("refused") }}
	CloseUnused(none, later)
	assert.Zero(t, kept.closed, "what another one has made")
	assert.Error(t, later.Finish())
	CloseUnused(none, later)
	assert.Zero(t, kept.closed, "nor if making its own has failed")
	own := &closer{}
	later.Build = func() (any, error) { return own, nil }
	assert.NoError(t, later.Finish())
	CloseUnused(none, later)
	assert.Equal(t, []int{0, 1}, []int{kept.closed, own.closed}, "its own")
}

// A setter records the rates that are set.
type setter struct {
	rates []int
	err   error
}

func (r *setter) SetRate(rate int) error {
	if r.err == nil {
		r.rates = append(r.rates, rate)
	}
	return r.err
}

// A reporter is a setter that reports its rate.
type reporter struct{ setter }

func (r *reporter) Rate() int { return r.rates[len(r.rates)-1] }

// TestTeller proves that each rate is set once for each state, and that the rates of a failed change
// are set back.
func TestTeller(t *testing.T) {
	unchanged := func(string) (int, bool) { return 0, false }
	named := func(name string, err error) error {
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	}
	var calls Calls
	var teller Teller[string, int]
	a, b, c, refusing := &reporter{setter{rates: []int{1}}}, &setter{}, &setter{}, &setter{err: errors.New("refused")}
	assert.False(t, teller.Plan("d", "d", "a limiter whose rate cannot be set", 1, 2))
	plan := func(state string) error {
		teller.Begin()
		assert.True(t, teller.Plan("a", state, a, 3, 5))
		assert.True(t, teller.Plan("b", "b", b, 0, 6))
		assert.True(t, teller.Plan("c", "c", c, 2, 7))
		return teller.Ask(&calls, named)
	}
	assert.NoError(t, plan("a"))
	assert.Equal(t, []int{1}, a.rates, "not in the plan")
	calls.run()
	assert.NoError(t, plan("a"))
	assert.False(t, calls.Missing())
	assert.NoError(t, plan("another a"))
	assert.True(t, calls.Missing(), "another change has come between")
	calls.run()
	assert.NoError(t, plan("another a"))
	assert.Equal(t, []int{1, 5, 5}, a.rates)
	assert.Equal(t, [][]int{{6}, {7}}, [][]int{b.rates, c.rates})

	teller.Plan("refusing", "refusing", refusing, 1, 7)
	assert.NoError(t, teller.Ask(&calls, named))
	calls.run()
	err := teller.Ask(&calls, named)
	assert.ErrorIs(t, err, refusing.err)
	assert.EqualError(t, err, "refusing: refused")
	teller.Undo(unchanged)
	assert.Equal(t, []int{1, 5, 5, 5, 1}, a.rates, "it gets the rates that it had, the first one last")
	assert.Equal(t, []int{7, 2}, c.rates, "it does not report its rate, so it gets that of its rule")
	assert.Equal(t, []int{6}, b.rates, "but for one whose rate was not known")

	teller, a.rates = Teller[string, int]{}, []int{1}
	calls = Calls{}
	assert.NoError(t, plan("a"))
	calls.run()
	teller.Commit()
	teller.Undo(unchanged)
	assert.Equal(t, []int{1, 5}, a.rates, "the change is made")
	teller.Begin()
	teller.Plan("a", "a", a, 0, 9)
	assert.NoError(t, teller.Ask(&calls, named))
	calls.run()
	teller.Undo(func(state string) (int, bool) { return 8, state == "a" })
	assert.Equal(t, []int{1, 5, 9, 8}, a.rates, "another change, which has made it 8, stands")
}
