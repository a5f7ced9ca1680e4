package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	assert.Equal(t, 5, strings.Count(out.String(), "  call "))
	first, second, _ := strings.Cut(out.String(), "a connection, with a retry policy: true")
	assert.Equal(t, 1, strings.Count(first, `denied, ResourceExhausted, retry in`))
	assert.Contains(t, first, `by the rule "per-client"`)
	assert.NotContains(t, second, "denied", "the connection waits")
}
