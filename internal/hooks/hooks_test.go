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
