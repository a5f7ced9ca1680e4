package override

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCheckList proves which overrides cannot be set in one call, and that the first reason is returned.
func TestCheckList(t *testing.T) {
	const mixed = "must not be given together with a pardon, which is done at once"
	const inFile = `must be one of "block", "exempt", "rate"`
	for _, c := range []struct {
		effects       []Effect
		layer         Layer
		field, reason string
		value         any
		why           string
	}{
		{nil, Code, "", "", nil, "no override"},
		{[]Effect{Block, Exempt, Rate, Lift}, Code, "", "", nil, "all that stays or lifts"},
		{[]Effect{Pardon, Pardon}, Code, "", "", nil, "pardons only"},
		{[]Effect{Block, Pardon, Pardon}, Code, "overrides[1].effect", mixed, `"pardon"`, "the first pardon"},
		{[]Effect{Pardon, Pardon, Lift}, Code, "overrides[2].effect", mixed, `""`, "the first that is none"},
		{[]Effect{Block, Exempt, Rate}, File, "", "", nil, "all that a file has"},
		{[]Effect{Block, Lift, Pardon}, File, "overrides[1].effect", inFile, `""`, "a file lifts by leaving out"},
		{[]Effect{Pardon}, File, "overrides[0].effect", inFile, `"pardon"`, "a file is read again and again"},
		{make([]Effect, MaxOwn+1), File, "overrides", "must be at most 65536", MaxOwn + 1, "too many, before all else"},
		{make([]Effect, MaxOwn+1), Code, "", "", nil, "some may lift others"},
	} {
		var all []Override
		for _, e := range c.effects {
			all = append(all, Override{Effect: e})
		}
		field, value, reason := CheckList(all, c.layer)
		assert.Equal(t, c.field, field, c.why)
		assert.Equal(t, c.value, value, c.why)
		assert.Equal(t, c.reason, reason, c.why)
	}
}
