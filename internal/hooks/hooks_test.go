package hooks

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestEachCallIsMadeOnce proves that a call is made outside of the plan, once for each key, and
// that its answer is there in the next plan.
func TestEachCallIsMadeOnce(t *testing.T) {
	var c Calls
	made := map[string]int{}
	refused := errors.New("refused")
	ask := func(key string, answer error) error {
		return c.Ask(key, func() error {
			made[key]++
			return answer
		})
	}
	assert.False(t, c.Missing(), "nothing is asked")
	for range 3 {
		c.Begin()
		assert.NoError(t, ask("a", refused), "an answer that is missing")
		assert.NoError(t, ask("a", refused), "asked for twice")
		assert.NoError(t, ask("b", nil))
		assert.True(t, c.Missing())
		assert.Empty(t, made, "no call is made in the plan")
	}
	c.Run()
	assert.Equal(t, map[string]int{"a": 1, "b": 1}, made)
	c.Begin()
	assert.ErrorIs(t, ask("a", nil), refused, "what the call has answered")
	assert.NoError(t, ask("b", refused))
	assert.False(t, c.Missing())
	assert.NoError(t, ask("c", refused), "which only the second plan needs")
	assert.True(t, c.Missing())
	c.Run()
	assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, made)
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

// A rated records the rates that are set.
type rated struct {
	rates []int
	err   error
}

func (r *rated) Rate() int {
	if len(r.rates) == 0 {
		return 0
	}
	return r.rates[len(r.rates)-1]
}

func (r *rated) SetRate(rate int) error {
	if r.err == nil {
		r.rates = append(r.rates, rate)
	}
	return r.err
}

// TestTeller proves that each rate is set once for each state, and that the rates of a failed change
// are set back.
func TestTeller(t *testing.T) {
	unchanged := func(string) (int, bool) { return 0, false }
	var calls Calls
	var teller Teller[string, int]
	a, b, refusing := &rated{rates: []int{1}}, &rated{}, &rated{err: errors.New("refused")}
	plan := func(state string) error {
		calls.Begin()
		teller.Begin()
		teller.Plan("a", state, a, 5)
		teller.Plan("b", "b", b, 6)
		return teller.Ask(&calls)
	}
	assert.NoError(t, plan("a"))
	assert.Equal(t, []int{1}, a.rates, "not in the plan")
	calls.Run()
	assert.NoError(t, plan("a"))
	assert.False(t, calls.Missing())
	assert.NoError(t, plan("another a"))
	assert.True(t, calls.Missing(), "another change has come between")
	calls.Run()
	assert.NoError(t, plan("another a"))
	assert.Equal(t, []int{1, 5, 5}, a.rates)
	assert.Equal(t, []int{6}, b.rates)

	teller.Plan("refusing", "refusing", refusing, 7)
	assert.NoError(t, teller.Ask(&calls))
	calls.Run()
	assert.ErrorIs(t, teller.Ask(&calls), refusing.err)
	teller.Undo(unchanged)
	assert.Equal(t, []int{1, 5, 5, 5, 1}, a.rates, "it gets the rates that it had, the first one last")
	assert.Equal(t, []int{6}, b.rates, "but for one whose rate was not known")

	teller, a.rates = Teller[string, int]{}, []int{1}
	calls = Calls{}
	assert.NoError(t, plan("a"))
	calls.Run()
	teller.Commit()
	teller.Undo(unchanged)
	assert.Equal(t, []int{1, 5}, a.rates, "the change is made")
	teller.Begin()
	teller.Plan("a", "a", a, 9)
	calls.Begin()
	assert.NoError(t, teller.Ask(&calls))
	calls.Run()
	teller.Undo(func(state string) (int, bool) { return 8, state == "a" })
	assert.Equal(t, []int{1, 5, 9, 8}, a.rates, "another change, which has made it 8, stands")
}
