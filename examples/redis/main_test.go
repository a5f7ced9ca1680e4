package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWithoutServer names an address where no server listens. The program reports that,
// and limits requests all the same.
func TestWithoutServer(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), &out, "redis://127.0.0.1:1/0"))
	assert.Contains(t, out.String(), "request 1: decided in this process")
	assert.Contains(t, out.String(), "request 5: allowed, 0 left")
	assert.Contains(t, out.String(), "request 6: denied, retry in")
}

// TestWithServer runs the program on the server that REDIS_URL names.
func TestWithServer(t *testing.T) {
	url := os.Getenv("REDIS_URL")
	if url == "" {
		t.Skip("REDIS_URL names no server")
	}
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), &out, url))
	assert.NotContains(t, out.String(), "decided in this process")
	assert.Equal(t, 6, strings.Count(out.String(), "request "))
	assert.Contains(t, out.String(), "denied, retry in")
}

func TestBadURL(t *testing.T) {
	assert.Error(t, run(context.Background(), &bytes.Buffer{}, "no URL"))
}
