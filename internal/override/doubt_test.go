package override_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit/internal/override"
)

// TestDoubt refuses exemptions of an address, and of a client that is named after the address.
func TestDoubt(t *testing.T) {
	type name struct{}
	outer := context.WithValue(t.Context(), name{}, "value")
	for _, row := range []struct {
		override override.Override
		client   bool // whether the client is named after the address
		want     bool
		why      string
	}{
		{override.Override{IP: "10.0.0.0/8", Effect: override.Exempt}, false, true, "the address may be a proxy's"},
		{override.Override{IP: "10.0.0.1", Effect: override.Exempt}, true, true, "the same"},
		{override.Override{Client: "ip:10.0.0.1", Effect: override.Exempt}, true, true, "this client is an address"},
		{override.Override{Client: "alice", Effect: override.Exempt}, false, false, "this client was verified"},
		{override.Override{IP: "10.0.0.0/8", Effect: override.Block}, true, false, "no header evades a block"},
		{override.Override{IP: "10.0.0.0/8", Effect: override.Rate}, true, false, "a rate is a limit"},
	} {
		d, e := override.NewDoubt(outer, row.client), override.NewEntry(row.override)
		inner := context.WithValue(d, name{}, "other")
		assert.Same(t, d, override.DoubtOf(inner), "the doubt is found")
		assert.Equal(t, "value", d.Value(name{}), "other values stay")
		assert.Equal(t, row.want, d.Refuses(&e), row.why)
		assert.Equal(t, row.want, d.Met(), row.why)
	}
	var none *override.Doubt
	e := override.NewEntry(override.Override{IP: "10.0.0.0/8", Effect: override.Exempt})
	assert.False(t, none.Refuses(&e))
	assert.Nil(t, override.DoubtOf(outer))
}
