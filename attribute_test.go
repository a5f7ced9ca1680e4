package ratelimit_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestAttributeKeepsItsTrailingSpace proves that a key type is the same after it was written as JSON and read again.
func TestAttributeKeepsItsTrailingSpace(t *testing.T) {
	for text, want := range map[string]ratelimit.KeyType{
		"attr:tenant +user":  ratelimit.KeyOf(ratelimit.KeyAttr("tenant "), ratelimit.KeyUser),
		"attr:tenant ":       ratelimit.KeyAttr("tenant "),
		"attr:tenant + user": ratelimit.KeyOf(ratelimit.KeyAttr("tenant"), ratelimit.KeyUser),
	} {
		config, err := json.Marshal(map[string]any{"endpoint": "/", "rate": "1/s", "key": text})
		require.NoError(t, err)
		var r ratelimit.Rule
		require.NoError(t, json.Unmarshal(config, &r))
		assert.Equal(t, want, r.Key, "%q", text)
	}
}
