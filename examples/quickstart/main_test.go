package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestQuickstart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, run(&out))
		require.Equal(t, `/search: 2 requests a second, 3 at once, for each user
  request 1: allowed, 2 left
  request 2: allowed, 1 left
  request 3: allowed, 0 left
  request 4: denied, retry in 500ms
having waited: allowed is true
somebody else: allowed is true, 2 left
`, out.String())
	})
}
