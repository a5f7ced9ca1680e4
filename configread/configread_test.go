package configread_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configread"
)

// TestRead proves that a BuildFunc can read its fields as package ratelimit reads configs.
func TestRead(t *testing.T) {
	f := ratelimit.NewFactory()
	require.NoError(t, f.Register("Custom", func(algoConfig map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		c := configread.Read(algoConfig)
		c.Int("open")
		if c.Has("a b") {
			c.Float("a b")
		}
		return struct{ ratelimit.Limiter }{}, c.Err()
	}))
	create := func(algoConfig map[string]any) error {
		_, err := f.Create(map[string]any{"algorithm": "Custom", "algoConfig": algoConfig})
		return err
	}
	for _, open := range []any{9, 9.0, int64(9), json.Number("9"), json.Number("9.0"), uint8(9)} {
		require.NoError(t, create(map[string]any{"Open": open}), "%T", open)
	}
	err := create(map[string]any{"opn": 9, "a b": "x"})
	require.EqualError(t, err, `ratelimit: algoConfig["a b"] is "x": must be a number`+"\n"+`ratelimit: algoConfig.opn is 9: unknown `+
		`field; did you mean "open"?`)
	var field *ratelimit.ConfigError
	require.ErrorAs(t, err, &field)
	require.Equal(t, `algoConfig["a b"]`, field.Field)

	many := map[string]any{"open": 9}
	for i := range 200 {
		many[fmt.Sprintf("f%07d", i)] = i
	}
	err = create(many)
	require.ErrorContains(t, err, "ratelimit: algoConfig.f0000099 is 99: unknown field\nratelimit: and 100 more")
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	delete(many, "open")
	all := configread.Read(maps.Clone(many)).Err()
	require.ErrorContains(t, all, "ratelimit: f0000099 is 99: unknown field\nratelimit: and 100 more")
	require.ErrorIs(t, all, ratelimit.ErrInvalidConfig)
	require.ErrorIs(t, configread.Read(map[string]any{"x": 1}).Err(), ratelimit.ErrInvalidConfig)
	require.NoError(t, configread.Read(nil).Err())
}
