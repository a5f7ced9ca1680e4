package ruleconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestPolicy proves that each policy is read as it is written, and that only Local needs replicas.
func TestPolicy(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		text   string
		why    string
	}{
		{Policy{Name: Open}, "open", "it grants"},
		{Policy{Name: Closed}, "closed", "it denies"},
		{Policy{Local, 1}, "local:1", "the whole rate"},
		{Policy{Local, 4}, "local:4", "a quarter"},
	} {
		assert.Equal(t, c.text, c.policy.String(), c.why)
		assert.Empty(t, c.policy.Problem(), c.why)
		read, reason := ParsePolicy(c.text)
		assert.Equal(t, c.policy, read, c.why)
		assert.Empty(t, reason, c.why)
	}
	assert.Equal(t, "inherit", Policy{}.String(), "a rule without a policy")
	assert.Empty(t, Policy{}.Problem())
	none := Policy{Name: Local}
	_, reason := ParsePolicy(none.String())
	assert.Equal(t, "must have at least 1 replica", none.Problem())
	assert.Equal(t, none.Problem(), reason)
}
